//! The text of a message as it is sent to one server: the headers that we add, then the body.
//!
//! A short message is in memory as a whole and is sent in one write; a long one is a stream of which only one piece is in memory.

use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;

use super::fitness::header_eight_bit;
use crate::outcome::DeliveryOutcome;

/// A body, read from front to back.
pub trait BodySource: Send {
    /// A piece of the body.
    type Piece: Deref<Target = [u8]> + Debug + Send + Sync;

    /// Why the body cannot be read, and what that means for the recipients.
    type Error: Into<DeliveryOutcome> + Send;

    /// The next piece, of at most 64 KiB; none at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, Self::Error>> + Send;
}

/// The text of a message.
pub enum Content<B: BodySource> {
    /// The whole text.
    Whole(ContentParts<B::Piece>),
    /// The beginning of the text, and the source of the rest.
    Stream {
        /// How many octets of `head` were added by us.
        added: usize,
        /// The headers that we add, and the first piece of the body.
        head: Vec<u8>,
        /// The rest.
        rest: B,
    },
}

/// The headers that we add, and a short body.
#[derive(Clone, Debug)]
pub struct ContentParts<P> {
    /// The headers that we add: whole lines with CR LF.
    pub added: Box<[u8]>,
    /// The body.
    pub body: P,
}

impl<P: Deref<Target = [u8]>> ContentParts<P> {
    /// Both parts in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        [&*self.added, &*self.body].into_iter()
    }

    /// The length of both parts together.
    pub fn length(&self) -> usize {
        self.added.len() + self.body.len()
    }
}

impl<B: BodySource> Content<B> {
    /// Whether the whole text is in memory.
    pub fn is_whole(&self) -> bool {
        matches!(self, Content::Whole(_))
    }
}

/// Whether the header of the message has octets above 127. Reads the body as far as the header goes.
pub async fn look_through<B: BodySource>(mut body: B) -> Result<bool, B::Error> {
    let (mut eight_bit, mut in_header) = (false, true);
    while let Some(piece) = body.next().await?.filter(|_| in_header) {
        eight_bit |= header_eight_bit(&piece, &mut in_header);
    }
    Ok(eight_bit)
}
