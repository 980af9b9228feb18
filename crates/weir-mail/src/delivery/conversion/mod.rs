//! Makes a message fit a server that takes 7-bit text or short lines only, part by part (RFC 2045, RFC 6152 section 3).
//!
//! Text parts become quoted-printable and other parts base64, where they have 8-bit text or lines that are too long; all other
//! parts stay as they are. A decoded part has the same octets as before. A message is read twice: a [`Survey`] finds the parts that need
//! conversion, then [`Converted`] produces the message as it goes out. Our own DKIM signature is made over the result. Signatures of others
//! break, as they do at every server that converts. Text that is part of a `multipart/signed` is never changed: if it has 8-bit text, the
//! message cannot be sent to such a server, and its sender is told; long lines in it are sent as they are.
//!
//! Memory: a line of 4 KiB, a header of 256 KiB and an octet for each part, of which there are at most 10 000.

mod encoded_word;
mod encoder;
mod part_header;
mod survey;
mod walker;
mod writer;

pub(super) use survey::Survey;

use self::walker::Walker;
use self::writer::Writer;
use std::sync::Arc;
use weir_smtp::client::content::BodySource;
use weir_smtp::outcome::{DeliveryOutcome, Status};

/// What is converted at a time; it may become three times as long.
const STEP_BYTES: usize = 16 << 10;

/// What a server needs of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Needs {
    /// No octets above 127.
    pub(super) seven_bit: bool,
    /// No lines of more than 998 octets.
    pub(super) short_lines: bool,
}

/// Why a message cannot be converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Obstacle {
    /// 8-bit text below a signature.
    Signed,
    /// More parts or levels than anybody needs, or a header without end.
    TooComplex,
}

impl From<Obstacle> for DeliveryOutcome {
    fn from(obstacle: Obstacle) -> DeliveryOutcome {
        let why = match obstacle {
            Obstacle::Signed => "and its signature would no longer be right if it were converted",
            Obstacle::TooComplex => "and it has too many parts to be converted",
        };
        let text = format!("the message has 8-bit text, the server takes 7-bit text only, {why}");
        DeliveryOutcome::permanent(Status(5, 6, 3), &text)
    }
}

/// A message on its way out, with header lines of ours before it.
pub(super) struct Converted<B: BodySource> {
    added: Option<Arc<str>>,
    body: B,
    /// A piece of the body, and how much of it is converted.
    piece: Option<(B::Piece, usize)>,
    walker: Walker,
    writer: Writer,
    ended: bool,
}

impl<B: BodySource> Converted<B> {
    /// The message `added` and `body` as `survey` says that it must be.
    pub(super) fn new(added: &Arc<str>, body: B, survey: &Arc<Survey>) -> Converted<B> {
        let added = Some(Arc::clone(added));
        let (walker, writer) = (Walker::default(), Writer::new(Arc::clone(survey)));
        Converted { added, body, piece: None, walker, writer, ended: false }
    }

    fn walk(&mut self, text: &[u8]) -> Result<(), DeliveryOutcome> {
        self.walker.walk(text, &mut self.writer).map_err(DeliveryOutcome::from)
    }

    /// Converts a little more.
    async fn step(&mut self) -> Result<(), DeliveryOutcome> {
        if let Some(added) = self.added.take() {
            return self.walk(added.as_bytes());
        }
        let (piece, done) = match self.piece.take() {
            Some(begun) => begun,
            None => match self.body.next().await.map_err(Into::into)? {
                Some(piece) => (piece, 0),
                None => {
                    self.ended = true;
                    return self.walker.finish(&mut self.writer).map_err(DeliveryOutcome::from);
                }
            },
        };
        let end = piece.len().min(done + STEP_BYTES);
        let converted = self.walk(piece.get(done..end).unwrap_or_default());
        if end < piece.len() {
            self.piece = Some((piece, end));
        }
        converted
    }
}

impl<B: BodySource> BodySource for Converted<B> {
    type Piece = Vec<u8>;
    type Error = DeliveryOutcome;

    async fn next(&mut self) -> Result<Option<Vec<u8>>, DeliveryOutcome> {
        while !self.ended {
            self.step().await?;
            let text = self.writer.take();
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// Reads a message to see what it needs; nothing if it fits as it is.
pub(super) async fn survey<B: BodySource>(
    added: &str,
    mut body: B,
    needs: Needs,
) -> Result<Option<Survey>, DeliveryOutcome> {
    let (mut walker, mut survey) = (Walker::default(), Survey::new(needs));
    walker.walk(added.as_bytes(), &mut survey)?;
    while let Some(piece) = body.next().await.map_err(Into::into)? {
        walker.walk(&piece, &mut survey)?;
    }
    walker.finish(&mut survey)?;
    Ok(survey.concluded()?)
}

#[cfg(test)]
mod tests;
