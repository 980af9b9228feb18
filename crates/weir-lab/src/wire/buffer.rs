//! Splits the bytes of a connection into lines and payloads. It buffers at most one line and one read.

use super::LINE_MAX;

/// Bytes that have arrived and have not been read yet.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// The bytes before this one have been read.
    start: usize,
    /// Bytes before this one contain no end of a line.
    searched: usize,
}

/// A line is longer than [`LINE_MAX`], or is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is too long or not text")]
pub struct Overlong;

impl Inbox {
    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        // The bytes that were read are removed when there are at least as many of them as of the others: so each byte is moved once at most.
        if self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            (self.start, self.searched) = (0, self.searched.saturating_sub(self.start));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line without its end; `None` if it is not complete.
    pub fn line(&mut self) -> Result<Option<&str>, Overlong> {
        let from = self.searched.max(self.start);
        let Some(at) = self.bytes[from..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.bytes.len() - self.start >= LINE_MAX { Err(Overlong) } else { Ok(None) };
        };
        let line = self.start..from + at;
        self.start = from + at + 1;
        if line.len() >= LINE_MAX {
            return Err(Overlong);
        }
        std::str::from_utf8(&self.bytes[line]).map(Some).map_err(|_| Overlong)
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Up to `most` bytes of a payload.
    pub fn payload(&mut self, most: u64) -> &[u8] {
        let there = self.bytes.len() - self.start;
        let length = usize::try_from(most).map_or(there, |most| most.min(there));
        let from = self.start;
        self.start += length;
        self.searched = self.searched.max(self.start);
        &self.bytes[from..from + length]
    }
}
