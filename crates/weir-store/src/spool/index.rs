//! The index of the spool in memory: where each message is, and for a while also its body.
//!
//! About a hundred bytes per message: envelope, marks and the places of a long body's chunks stay on the disk. The bodies of small messages
//! that were just committed are kept within a bound, so that immediate delivery reads nothing.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use super::id::MessageId;

/// At most this many bodies are kept, whatever their size.
const BODIES_KEPT_MAX: usize = 4096;

/// All messages that are not finished.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<MessageId, IndexEntry>,
    bytes: u64,
    kept: VecDeque<MessageId>,
    kept_bytes: usize,
    kept_bytes_max: usize,
}

/// Where a message is.
#[derive(Clone, Debug)]
pub(super) struct IndexEntry {
    /// The segment of its commit, whose sidecar takes its marks.
    pub(super) home: u32,
    /// Its only chunk if [`IndexEntry::whole`], otherwise its commit.
    pub(super) at: u32,
    /// How many bytes it takes of its home.
    pub(super) home_bytes: u32,
    /// Whether its commit follows its only chunk.
    pub(super) whole: bool,
    /// The length of its body.
    pub(super) size: u64,
    /// What it takes of other segments.
    pub(super) spans: Box<[Span]>,
    kept: Option<Piece>,
}

/// A part of a message in a segment that is not its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) segment: u32,
    pub(super) bytes: u32,
}

/// A stretch of a body: at most 64 KiB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece(Arc<Vec<u8>>);

impl Index {
    pub(super) fn new(kept_bytes_max: usize) -> Index {
        Index { kept_bytes_max, ..Index::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The length of all bodies together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entry of a message, without the body that may be kept with it.
    pub(super) fn entry(&self, id: MessageId) -> Option<IndexEntry> {
        self.entries.get(&id).map(|entry| IndexEntry { kept: None, spans: entry.spans.clone(), ..*entry })
    }

    pub(super) fn home(&self, id: MessageId) -> Option<u32> {
        self.entries.get(&id).map(|entry| entry.home)
    }

    pub(super) fn kept(&self, id: MessageId) -> Option<Piece> {
        self.entries.get(&id)?.kept.clone()
    }

    pub(super) fn insert(&mut self, id: MessageId, entry: IndexEntry) {
        self.bytes += entry.size;
        if let Some(former) = self.entries.insert(id, entry) {
            self.forget_sizes(&former);
        }
    }

    /// Keeps the body of a message that is in the index; the bodies kept longest are dropped for it.
    pub(super) fn keep(&mut self, id: MessageId, body: Vec<u8>) {
        let cost = body.capacity();
        if cost > self.kept_bytes_max {
            return;
        }
        while self.kept_bytes + cost > self.kept_bytes_max || self.kept.len() >= BODIES_KEPT_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            if let Some(piece) = self.entries.get_mut(&oldest).and_then(|entry| entry.kept.take()) {
                self.kept_bytes -= piece.0.capacity();
            }
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.kept = Some(Piece::from(body));
            self.kept_bytes += cost;
            self.kept.push_back(id);
        }
    }

    pub(super) fn remove(&mut self, id: MessageId) -> Option<IndexEntry> {
        let mut entry = self.entries.remove(&id)?;
        self.forget_sizes(&entry);
        entry.kept = None;
        Some(entry)
    }

    /// Changes the place of the message, if it is still in `from`.
    pub(super) fn relocate(&mut self, id: MessageId, from: &IndexEntry, to: &IndexEntry) -> bool {
        match self.entries.get_mut(&id) {
            Some(entry) if (entry.home, entry.at) == (from.home, from.at) => {
                *entry = IndexEntry { kept: entry.kept.take(), ..to.clone() };
                true
            }
            _ => false,
        }
    }

    /// The messages that have anything in this segment.
    pub(super) fn in_segment(&self, number: u32) -> Vec<MessageId> {
        let inside = |entry: &IndexEntry| entry.home == number || entry.spans.iter().any(|span| span.segment == number);
        self.entries.iter().filter(|(_, entry)| inside(entry)).map(|(id, _)| *id).collect()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.entries.values()
    }

    fn forget_sizes(&mut self, entry: &IndexEntry) {
        self.bytes -= entry.size;
        if let Some(piece) = &entry.kept {
            self.kept_bytes -= piece.0.capacity();
        }
    }
}

impl IndexEntry {
    /// An entry without other segments.
    pub(super) fn new(home: u32, at: u32, size: u64) -> IndexEntry {
        IndexEntry { home, at, home_bytes: 0, whole: false, size, spans: Box::default(), kept: None }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Piece {
        Piece(Arc::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bodies_stay_within_their_bound() {
        let mut index = Index::new(1000);
        for number in 0..100 {
            index.insert(MessageId::of(number), IndexEntry::new(1, 0, 300));
            index.keep(MessageId::of(number), vec![7; 300]);
            assert!(index.kept_bytes <= 1000);
        }
        assert!(index.kept(MessageId::of(99)).is_some() && index.kept(MessageId::of(97)).is_some());
        assert!(index.kept(MessageId::of(96)).is_none());
        for number in 0..100 {
            index.remove(MessageId::of(number));
        }
        assert_eq!((index.kept_bytes, index.bytes(), index.len()), (0, 0, 0));
    }

    #[test]
    fn names_of_finished_messages_do_not_pile_up() {
        let mut index = Index::new(1 << 20);
        for number in 0..20_000 {
            index.insert(MessageId::of(number), IndexEntry::new(1, 0, 3));
            index.keep(MessageId::of(number), vec![7; 3]);
            index.remove(MessageId::of(number));
        }
        assert!(index.kept.len() <= BODIES_KEPT_MAX);
    }

    #[test]
    fn a_message_is_moved_only_from_where_it_stood() {
        let mut index = Index::new(0);
        let id = MessageId::of(5);
        index.insert(id, IndexEntry::new(1, 32, 10));
        let (from, to) = (IndexEntry::new(1, 32, 10), IndexEntry::new(4, 99, 10));
        assert!(index.relocate(id, &from, &to));
        assert!(!index.relocate(id, &from, &to));
        assert_eq!((index.home(id), index.bytes()), (Some(4), 10));
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<(MessageId, IndexEntry)>() <= 64);
    }
}
