//! Letters that wait for the scan, in the list of what waits: before those that wait for delivery.

use super::state::Waiting;
use super::{Scanning, Shared};
use crate::date::Date;
use crate::desk::{Answer, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use crate::letter::Letter;
use crate::outbound::Outbound;
use std::sync::Arc;

/// Letters that are looked at for a list: more wait only when scanners are down, and then any of them will do.
const LOOKED_AT_MAX: usize = 5_000;

impl<O: Outbound + Queue> Queue for Scanning<O> {
    fn about(&self) -> String {
        self.shared.inner.about()
    }

    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> Answer<'a, QueueList> {
        Box::pin(async move {
            let waiting = self.shared.waiting(selection).await;
            let behind = self.shared.inner.list(selection, most.saturating_sub(waiting.len())).await?;
            let total = behind.total + waiting.len();
            let scanned = waiting.into_iter().map(|(_, entry)| entry).take(most);
            Ok(QueueList { messages: scanned.chain(behind.messages).collect(), total })
        })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let waiting = self.shared.waiting(selection).await;
            let now = self.shared.now();
            let mut found: Vec<String> = Vec::new();
            {
                let mut state = self.shared.state();
                for (number, entry) in waiting {
                    if let Some(retry) = state.retry.iter().find(|(_, other)| *other == number).copied() {
                        state.retry.remove(&retry);
                        state.retry.insert((now, number));
                        found.push(entry.message);
                    }
                }
            }
            self.shared.stirred.notify_one();
            found.extend(self.shared.inner.retry(selection).await?);
            Ok(found)
        })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let mut gone = Vec::new();
            loop {
                let before = gone.len();
                for (number, entry) in self.shared.waiting(selection).await {
                    let withdrawn = self.shared.state().withdraw(number);
                    if let Some(waiting) = withdrawn {
                        let _ = self.shared.site.spool.finish(waiting.id);
                        gone.push(entry.message);
                    }
                }
                if gone.len() == before {
                    break;
                }
            }
            gone.extend(self.shared.inner.delete(selection).await?);
            Ok(gone)
        })
    }
}

impl<O: Outbound> Shared<O> {
    /// Letters of a selection that are here, oldest first.
    async fn waiting(&self, selection: &QueueSelection) -> Vec<(u64, QueueEntry)> {
        let mut some: Vec<(u64, Waiting)> = {
            let state = self.state();
            let named = |waiting: &Waiting| {
                selection.messages.is_empty() || selection.messages.contains(&waiting.id.to_string())
            };
            let here = state.letters.iter().filter(|(_, waiting)| named(waiting));
            here.take(LOOKED_AT_MAX).map(|(number, waiting)| (*number, waiting.clone())).collect()
        };
        some.sort_by_key(|(_, waiting)| waiting.id);
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

    async fn letter(&self, waiting: &Waiting) -> Option<Arc<Letter>> {
        match &waiting.letter {
            Some(letter) => Some(Arc::clone(letter)),
            None => {
                let envelope = self.site.spool.envelope(waiting.id).await.ok()?;
                Some(waiting.remembered(Letter::read(&envelope).ok()?))
            }
        }
    }
}

fn entry(waiting: &Waiting, letter: &Letter) -> QueueEntry {
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
