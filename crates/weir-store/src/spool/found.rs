//! A message that recovery found in the spool at start.

use super::id::MessageId;

/// A message that is in the spool at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundMessage {
    /// Its id.
    pub id: MessageId,
    /// The bytes that came with its commit.
    pub envelope: Box<[u8]>,
    /// The length of its body.
    pub size: u64,
    /// Its marks since then, in order.
    pub marks: Marks,
    /// Whether its body can be read. If not, the envelope still can: tell the sender, then finish it.
    pub intact: bool,
    pub(super) home: u32,
}

/// The marks of a message, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks(Vec<u8>);

impl Marks {
    /// The marks, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (mark, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(mark)
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, mark: &[u8]) {
        self.0.reserve_exact(4 + mark.len());
        self.0.extend_from_slice(&(mark.len() as u32).to_le_bytes());
        self.0.extend_from_slice(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_in_order() {
        let mut marks = Marks::default();
        assert!(marks.is_empty() && marks.iter().next().is_none());
        for mark in [&b"one"[..], b"", b"three"] {
            marks.push(mark);
        }
        assert_eq!(marks.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
    }
}
