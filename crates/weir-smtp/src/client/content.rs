//! The text of a message on its way to one server: headers that we add, then the body.
//!
//! A short message is in memory as a whole and is sent in one write; a long one is a stream of which only one piece is in memory.

use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;

use super::fitness::header_eight_bit;
use crate::outcome::DeliveryOutcome;

/// A body, read from front to back.
pub trait BodySource: Send {
    /// A stretch of it.
    type Piece: Deref<Target = [u8]> + Debug + Send + Sync;

    /// Why it cannot be read, and what that means for the recipients.
    type Error: Into<DeliveryOutcome> + Send;

    /// The next piece, at most 64 KiB; nothing at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, Self::Error>> + Send;
}

/// The text of a message.
pub enum Content<B: BodySource> {
    /// All of it.
    Whole(ContentParts<B::Piece>),
    /// Its beginning, and where the rest comes from.
    Stream {
        /// How many octets of it we add.
        added: usize,
        /// Headers that we add, and the first piece.
        head: Vec<u8>,
        /// The rest.
        rest: B,
    },
}

/// Headers that we add, and a short body.
#[derive(Clone, Debug)]
pub struct ContentParts<P> {
    /// Whole lines with CR LF.
    pub added: Box<[u8]>,
    /// The body.
    pub body: P,
}

impl<P: Deref<Target = [u8]>> ContentParts<P> {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        [&*self.added, &*self.body].into_iter()
    }

    /// How long they are together.
    pub fn length(&self) -> usize {
        self.added.len() + self.body.len()
    }
}

impl<B: BodySource> Content<B> {
    /// Whether all of it is here.
    pub fn is_whole(&self) -> bool {
        matches!(self, Content::Whole(_))
    }
}

/// Reads the header of a message to see whether it has octets above 127.
pub async fn look_through<B: BodySource>(mut body: B) -> Result<bool, B::Error> {
    let (mut eight_bit, mut in_header) = (false, true);
    while let Some(piece) = body.next().await?.filter(|_| in_header) {
        eight_bit |= header_eight_bit(&piece, &mut in_header);
    }
    Ok(eight_bit)
}
