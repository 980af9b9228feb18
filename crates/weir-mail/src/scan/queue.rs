//! The part of the queue listing about letters that wait for the scan.

use super::pending::PendingLetter;
use super::state::WaitingLetter;
use super::{ScanShared, Scanning};
use crate::letter::Letter;
use crate::queue::{Dropped, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_foundation::OperationFuture;
use weir_foundation::date::Date;
use weir_store::spool::{MessageId, SpoolError};

/// Letters that are looked at in one go, and for a list: more wait only when scanners are down, and then the first will do.
const LOOKED_AT_MAX: usize = if cfg!(test) { 10 } else { 5_000 };

impl Queue for Scanning {
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> OperationFuture<'a, QueueList> {
        Box::pin(async move {
            let numbers = self.shared.numbers(selection);
            let waiting = self.shared.waiting(selection, &numbers[..numbers.len().min(LOOKED_AT_MAX)]).await;
            let pending = self.shared.pending_entries(selection).await;
            // Whose recipients matter is only known of those that were looked at.
            let here = if selection.domain.is_empty() { numbers.len() } else { waiting.len() };
            let total = here + pending.len();
            let scanned = waiting.into_iter().map(|(_, entry)| entry);
            let messages = scanned.chain(pending.into_iter().map(|(_, entry)| entry)).take(most);
            Ok(QueueList { messages: messages.collect(), total })
        })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut found: Vec<String> = Vec::new();
            for numbers in self.shared.numbers(selection).chunks(LOOKED_AT_MAX) {
                let waiting = self.shared.waiting(selection, numbers).await;
                found.extend(self.shared.retry_now(waiting));
            }
            self.shared.stirred.notify_one();
            for (id, entry) in self.shared.pending_entries(selection).await {
                if self.shared.ask_again(id) {
                    found.push(entry.message);
                }
            }
            Ok(found)
        })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        Box::pin(async move {
            let mut dropped = Dropped::default();
            for numbers in self.shared.numbers(selection).chunks(LOOKED_AT_MAX) {
                for (number, entry) in self.shared.waiting(selection, numbers).await {
                    let withdrawn = self.shared.state().withdraw(number);
                    if let Some(waiting) = withdrawn {
                        dropped.add(entry.message, entry.recipients.len());
                        self.shared.finish_dropped(waiting.id, &mut dropped);
                    }
                }
            }
            for (id, entry) in self.shared.pending_entries(selection).await {
                if self.shared.delete_pending(id) {
                    dropped.add(entry.message, entry.recipients.len());
                    self.shared.finish_dropped(id, &mut dropped);
                }
            }
            Ok(dropped)
        })
    }
}

impl ScanShared {
    /// What was taken out of the list leaves the spool. If it cannot, it comes back with the next start.
    fn finish_dropped(&self, id: MessageId, dropped: &mut Dropped) {
        match self.site.spool.finish(id) {
            Ok(()) | Err(SpoolError::Unknown(_)) => {}
            Err(error) => dropped.note(error),
        }
    }

    /// Letters that a selection may mean, oldest first, as far as can be said without reading them.
    fn numbers(&self, selection: &QueueSelection) -> Vec<u64> {
        let ids: BTreeSet<MessageId> =
            selection.messages.iter().filter_map(|id| id.to_ascii_lowercase().parse().ok()).collect();
        let named = |waiting: &WaitingLetter| selection.messages.is_empty() || ids.contains(&waiting.id);
        let owned = |waiting: &WaitingLetter| selection.user.is_empty() || selection.user == *waiting.sender;
        let state = self.state();
        let here = state.letters.iter().filter(|(_, waiting)| named(waiting) && owned(waiting));
        let mut numbers: Vec<(MessageId, u64)> = here.map(|(number, waiting)| (waiting.id, *number)).collect();
        drop(state);
        numbers.sort_unstable();
        numbers.into_iter().map(|(_, number)| number).collect()
    }

    /// Those of these letters that a selection means.
    async fn waiting(&self, selection: &QueueSelection, numbers: &[u64]) -> Vec<(u64, QueueEntry)> {
        let some: Vec<(u64, WaitingLetter)> = {
            let state = self.state();
            numbers.iter().filter_map(|number| Some((*number, state.letters.get(number)?.clone()))).collect()
        };
        let mut found = Vec::new();
        for (number, waiting) in some {
            let Some(letter) = self.letter(&waiting).await else { continue };
            let entry = entry(&waiting, &letter);
            let to = entry.recipients.iter().map(|to| to.address.as_str());
            if selection.takes(&entry.message, &entry.user, to) {
                found.push((number, entry));
            }
        }
        found
    }

    /// Those letters that wait for the laboratory and that a selection means.
    async fn pending_entries(&self, selection: &QueueSelection) -> Vec<(MessageId, QueueEntry)> {
        let mut found = Vec::new();
        for PendingLetter { waiting, until, told } in self.pending_letters() {
            let Some(letter) = self.letter(&waiting).await else { continue };
            let mut entry = entry(&waiting, &letter);
            entry.next_attempt = Some(Date::new(until).rfc3339());
            entry.recipients.iter_mut().for_each(|to| to.last_answer.clone_from(&told));
            let to = entry.recipients.iter().map(|to| to.address.as_str());
            if selection.takes(&entry.message, &entry.user, to) {
                found.push((waiting.id, entry));
            }
        }
        found
    }

    /// Has those of these letters tried now that are tried again later; which they are.
    fn retry_now(&self, waiting: Vec<(u64, QueueEntry)>) -> Vec<String> {
        let now = self.now();
        let mut names: BTreeMap<u64, String> =
            waiting.into_iter().map(|(number, entry)| (number, entry.message)).collect();
        let mut found = Vec::new();
        let mut state = self.state();
        let later = std::mem::take(&mut state.retry);
        state.retry = later
            .into_iter()
            .map(|(at, number)| match names.remove(&number) {
                None => (at, number),
                Some(name) => {
                    found.push(name);
                    (now, number)
                }
            })
            .collect();
        found
    }

    async fn letter(&self, waiting: &WaitingLetter) -> Option<Arc<Letter>> {
        match &waiting.letter {
            Some(letter) => Some(Arc::clone(letter)),
            None => {
                let envelope = self.site.spool.envelope(waiting.id).await.ok()?;
                Some(waiting.remembered(Letter::read(&envelope).ok()?))
            }
        }
    }
}

fn entry(waiting: &WaitingLetter, letter: &Letter) -> QueueEntry {
    let recipient = |place: &usize| {
        let address = letter.to.get(*place)?.address.clone();
        Some(QueueRecipient { address, last_answer: "waits for the scan".to_owned() })
    };
    QueueEntry {
        message: waiting.id.to_string(),
        user: letter.owner.clone(),
        sender: letter.from.clone(),
        accepted: Date::new(waiting.at).rfc3339(),
        size_bytes: waiting.size,
        attempts: waiting.attempts,
        next_attempt: None,
        recipients: waiting.places.iter().filter_map(recipient).collect(),
    }
}
