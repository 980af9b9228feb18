//! The delay queue: recipients that wait for their turn, in order of arrival.
//!
//! Ids ascend, so an entry is found by bisection. A queue that was long gives its memory back when it is empty; room
//! for a few entries stays, so that the common wait of one or two mails allocates once.

use super::{EntryId, LaneId, NetworkKey, RecipientKey};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// An idle user's queue keeps room for this many entries.
const ROOM_KEPT: usize = 4;

/// Entries in order of arrival, which is the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DelayQueue {
    entries: VecDeque<Entry>,
}

impl DelayQueue {
    /// A queue of these entries. It sorts them and removes entries whose id occurs twice.
    pub(super) fn restore(mut entries: Vec<Entry>) -> DelayQueue {
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        DelayQueue { entries: entries.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn head(&self) -> Option<Entry> {
        self.entries.front().copied()
    }

    pub(super) fn last(&self) -> Option<Entry> {
        self.entries.back().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front();
        self.give_back();
        entry
    }

    /// Takes the entry `id` out, wherever it stands.
    pub(super) fn take(&mut self, id: EntryId) -> Option<Entry> {
        let place = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        let entry = self.entries.remove(place);
        self.give_back();
        entry
    }

    /// The entry `id`, wherever it stands.
    pub(super) fn find(&self, id: EntryId) -> Option<Entry> {
        let place = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        self.entries.get(place).copied()
    }

    /// Takes all of these entries out that are in the queue.
    pub(super) fn take_all(&mut self, ids: &[EntryId]) -> VecDeque<Entry> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let (taken, kept) = self.entries.iter().partition(|entry| ids.binary_search(&entry.id).is_ok());
        self.entries = kept;
        taken
    }

    /// Puts entries back where they stood.
    pub(super) fn put_back(&mut self, entries: VecDeque<Entry>) {
        self.entries.extend(entries);
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.id);
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.give_back();
    }

    fn give_back(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > ROOM_KEPT {
            self.entries = VecDeque::new();
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }
}

/// One recipient of one mail in the delay queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// To whom.
    pub recipient: RecipientKey,
    /// The network that the mail came from, where it waits because of that.
    pub network: NetworkKey,
    /// Whether its mail had one recipient.
    pub kind: MailKind,
    /// Which line it waits in.
    pub lane: LaneId,
}

/// What a mail is to the throttle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailKind {
    /// One recipient: `rate`, slack, working set.
    Single,
    /// Several recipients: `multi_rate`, multi-slack, no working set.
    Multi,
}
