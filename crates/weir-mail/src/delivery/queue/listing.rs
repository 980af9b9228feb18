//! The delivery queue for people: list, retry, delete, figures.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use weir_core::time::Instant;
use weir_store::spool::MessageId;

use super::super::scheduler::Counts;
use super::figures::{DestinationStats, QueueStats};
use super::job::{QueuedMessage, RecipientState};
use super::{DeliveryProgress, Queue, Settlement, Slot, Target};

/// Which messages are meant: those that fit everything given. The default fits all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// One of these; any if there is none.
    pub messages: BTreeSet<MessageId>,
    /// Of this owner.
    pub owner: Option<String>,
    /// With a recipient in this domain that still waits.
    pub domain: Option<String>,
}

impl Selection {
    /// Everything.
    pub fn all() -> Selection {
        Selection::default()
    }

    /// These messages.
    pub fn messages(ids: impl IntoIterator<Item = MessageId>) -> Selection {
        Selection { messages: ids.into_iter().collect(), ..Selection::default() }
    }

    /// Those of one owner.
    pub fn owner(owner: &str) -> Selection {
        Selection { owner: Some(owner.to_owned()), ..Selection::default() }
    }

    /// Those with a recipient in this domain that still waits.
    pub fn domain(domain: &str) -> Selection {
        Selection { domain: Some(domain.to_owned()), ..Selection::default() }
    }

    fn takes(&self, entry: &QueuedMessage) -> bool {
        let domain = |domain: &String| {
            entry.message.recipients.iter().zip(&entry.recipients).any(|(recipient, held)| {
                matches!(held, RecipientState::Waiting(_)) && recipient.to.mailbox.domain().eq_ignore_ascii_case(domain)
            })
        };
        (self.messages.is_empty() || self.messages.contains(&entry.message.id))
            && self.owner.as_ref().is_none_or(|owner| *entry.message.owner == **owner)
            && self.domain.as_ref().is_none_or(domain)
    }
}

/// Some messages of the queue, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Listing {
    /// These.
    pub messages: Vec<Listed>,
    /// How many fit the selection in all.
    pub total: usize,
}

/// A message in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// MAIL FROM; empty for a bounce.
    pub sender: String,
    /// Its length.
    pub size_bytes: u64,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_unix_ms: u64,
    /// When it will be given up.
    pub expires_unix_ms: u64,
    /// Recipients that are not done.
    pub recipients: Vec<ListedRecipient>,
}

/// A recipient that is not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListedRecipient {
    /// The address.
    pub address: String,
    /// `waiting`, `under way`, `deferred`, `failed` (the report is being written).
    pub state: &'static str,
    /// How often it has been tried.
    pub attempts: u32,
    /// When the next attempt is due.
    pub next_attempt_unix_ms: Option<u64>,
    /// What was said last.
    pub last_answer: Option<String>,
}

const DESTINATIONS_MAX: usize = 100;

impl Queue {
    /// Messages in order of age, `skip` of them left out, at most `most`.
    pub fn list(&self, selection: &Selection, skip: usize, most: usize) -> Listing {
        let mut found = self.select(selection);
        found.sort_unstable_by_key(|(id, _)| *id);
        let total = found.len();
        let messages = found.into_iter().skip(skip).take(most).filter_map(|(_, slot)| self.listed(slot)).collect();
        Listing { messages, total }
    }

    /// Lets messages be tried as soon as their turn comes; which there were.
    pub fn retry(&mut self, selection: &Selection) -> Vec<MessageId> {
        let found = self.select(selection);
        for (_, slot) in &found {
            let parcels: Vec<_> = self.jobs.get(*slot).into_iter().flat_map(|entry| entry.parcels.iter()).collect();
            parcels.into_iter().for_each(|parcel| self.scheduler.hasten(parcel));
        }
        found.into_iter().map(|(id, _)| id).collect()
    }

    /// Deletes messages without telling the sender; which there were, each with how many of its recipients waited, and what is to be
    /// written down. What is under way is not called back, but not tried again.
    pub fn delete(&mut self, selection: &Selection, now: Instant) -> (Vec<(MessageId, usize)>, Vec<Settlement>) {
        let found = self.select(selection);
        let gone = found.iter().map(|(id, slot)| (*id, self.waiting_of(*slot))).collect();
        let settlements = found.iter().filter_map(|(id, slot)| self.delete_one(*id, *slot, now)).collect();
        (gone, settlements)
    }

    /// Recipients of a message that are to be delivered. One that was deleted while it was under way has none.
    fn waiting_of(&self, slot: Slot) -> usize {
        let entry = self.jobs.get(slot).filter(|entry| !entry.condemned);
        entry.map_or(0, |entry| entry.waiting(0..entry.recipients.len()).count())
    }

    /// Figures. `name` says what a destination is called.
    pub fn stats(&self, name: impl Fn(&Target) -> String) -> QueueStats {
        let Counts { parcels, under_way, deferred } = self.scheduler.counts();
        let mut loads: Vec<_> = self.scheduler.loads().collect();
        loads.sort_unstable_by_key(|load| std::cmp::Reverse((load.under_way + load.waiting, load.id)));
        loads.truncate(DESTINATIONS_MAX);
        let named = |load: &super::super::scheduler::DestinationLoad| DestinationStats {
            name: self
                .targets
                .iter()
                .find(|(_, number)| *number == load.id.0)
                .map(|(target, _)| name(target))
                .unwrap_or_default(),
            waiting: load.waiting,
            under_way: load.under_way,
            window: load.window,
            closed_until_unix_ms: load.closed_until.map(unix_ms),
            trouble: self.troubles.get(&load.id).map(|outcome| outcome.to_string()),
        };
        QueueStats {
            messages: self.jobs.len(),
            waiting: parcels.saturating_sub(under_way + deferred),
            under_way,
            deferred,
            owners: self.senders.len(),
            totals: self.totals,
            destinations: loads.iter().map(named).collect(),
        }
    }

    fn select(&self, selection: &Selection) -> Vec<(MessageId, Slot)> {
        let taken = self.jobs.iter().filter(|(_, entry)| selection.takes(entry));
        taken.map(|(slot, entry)| (entry.message.id, slot)).collect()
    }

    fn delete_one(&mut self, id: MessageId, slot: Slot, now: Instant) -> Option<Settlement> {
        let entry = self.jobs.get_mut(slot)?;
        entry.condemned = true;
        self.expire_silently(slot);
        let entry = self.jobs.get(slot)?;
        let gone = entry
            .message
            .recipients
            .iter()
            .zip(&entry.recipients)
            .filter(|(_, held)| matches!(held, RecipientState::Done));
        let gone: Box<[u32]> = gone.map(|(recipient, _)| recipient.index).collect();
        let progress = vec![DeliveryProgress::Failed(gone)];
        tracing::info!(message = %id, "deleted from the queue");
        self.review(slot, progress, now)
    }

    fn expire_silently(&mut self, slot: Slot) {
        let parcels: Vec<_> = self.jobs.get(slot).into_iter().flat_map(|entry| entry.parcels.iter()).collect();
        for parcel in parcels {
            let Some(load) = self.scheduler.remove(parcel) else { continue };
            if let Some(entry) = self.jobs.get_mut(slot) {
                entry.give_up(load.stretch(), true, None);
            }
            self.parcel_gone(slot, parcel, &load.target);
        }
    }

    fn listed(&self, slot: Slot) -> Option<Listed> {
        let entry = self.jobs.get(slot)?;
        let message = &entry.message;
        let mut recipients = Vec::new();
        for parcel in entry.parcels.iter() {
            let Some(load) = self.scheduler.load(parcel) else { continue };
            let (attempts, until) = (load.attempts, self.scheduler.deferred_until(parcel));
            let state = if self.scheduler.is_under_way(parcel) {
                "under way"
            } else if until.is_some() {
                "deferred"
            } else {
                "waiting"
            };
            let trouble = self.troubles.get(&load.destination);
            for place in entry.waiting(load.stretch()) {
                let last = match entry.recipients.get(place) {
                    Some(RecipientState::Waiting(last)) => last.as_ref().or(trouble),
                    _ => None,
                };
                recipients.push((place, state, attempts, until, last));
            }
        }
        let failed = entry.recipients.iter().enumerate().filter_map(|(place, held)| match held {
            RecipientState::Failed(outcome) => Some((place, "failed", 0, None, Some(outcome))),
            _ => None,
        });
        recipients.extend(failed);
        let show = |(place, state, attempts, until, last): (
            usize,
            _,
            _,
            Option<Instant>,
            Option<&Arc<super::DeliveryOutcome>>,
        )| {
            ListedRecipient {
                address: message
                    .recipients
                    .get(place)
                    .map(|recipient| recipient.to.mailbox.to_string())
                    .unwrap_or_default(),
                state,
                attempts,
                next_attempt_unix_ms: until.map(unix_ms),
                last_answer: last.map(|outcome| outcome.to_string()),
            }
        };
        Some(Listed {
            id: message.id.to_string(),
            owner: message.owner.to_string(),
            sender: message.sender.mailbox.as_ref().map(ToString::to_string).unwrap_or_default(),
            size_bytes: message.size_bytes,
            accepted_unix_ms: unix_ms(message.accepted_at),
            expires_unix_ms: unix_ms(self.settings.retry.end(message.accepted_at)),
            recipients: recipients.into_iter().map(show).collect(),
        })
    }
}

fn unix_ms(at: Instant) -> u64 {
    at.0 / 1_000_000
}
