//! The parts of a message for those who show it to people: names, types and texts.
//!
//! The scanner's own reader takes the message apart, under a small budget and from its first [`BYTES_MAX`] octets. No archive is opened,
//! and types are what the sender says.

use crate::budget::{Budget, Exceeded, Limits};
use crate::walk::part::Part;
use crate::walk::structure;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// What is read of a message.
pub const BYTES_MAX: usize = 2 << 20;

/// The beginning of a message, and the parts that begin in it.
#[derive(Debug)]
pub struct Sight {
    beginning: Vec<u8>,
    is_cut: bool,
    parts: Vec<Part>,
}

impl Sight {
    /// Of the message in a file. The inner error is why it cannot be taken apart.
    pub fn of_file(file: &Path) -> io::Result<Result<Sight, Exceeded>> {
        let mut message = Vec::new();
        File::open(file)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut message)?;
        Ok(Sight::of(message))
    }

    /// Of a message, or of a beginning of it that is longer than [`BYTES_MAX`].
    pub fn of(mut message: Vec<u8>) -> Result<Sight, Exceeded> {
        let is_cut = message.len() > BYTES_MAX;
        message.truncate(BYTES_MAX);
        let limits = Limits { levels: 16, parts: 200, time: Duration::from_secs(2), ..Limits::default() };
        let parts = structure::parts(&message, 0, &mut Budget::new(&limits))?;
        Ok(Sight { beginning: message, is_cut, parts })
    }

    /// Whether the message is longer than what was looked at.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Its parts, those with parts of their own among them.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What is in a part, decoded as its header says.
    pub fn content(&self, part: &Part) -> Cow<'_, [u8]> {
        let body = self.beginning.get(part.body.clone()).unwrap_or_default();
        let decoded = part.header.encodings.first().and_then(|encoding| encoding.decode(body));
        decoded.map_or(Cow::Borrowed(body), |decoded| Cow::Owned(decoded.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_long_message_is_looked_at() {
        let head = "Subject: x\r\nContent-Transfer-Encoding: base64\r\n\r\n";
        let sight = Sight::of(format!("{head}YWJj\r\n").into_bytes()).unwrap();
        assert_eq!((sight.is_cut(), sight.parts().len()), (false, 1));
        assert_eq!(*sight.content(&sight.parts()[0]), *b"abc");
        let long = format!("{head}{}", "YWJj".repeat(BYTES_MAX / 4));
        let sight = Sight::of(long.into_bytes()).unwrap();
        let shown = sight.content(&sight.parts()[0]).len();
        assert!(sight.is_cut() && (BYTES_MAX / 2..BYTES_MAX).contains(&shown), "{shown}");
    }
}
