//! Delivery as the rest of the gate sees it: letters in, and a queue for people.

use super::{GateError, wall_clock};
use crate::date::Date;
use crate::delivery::Delivery;
use crate::delivery::message::{Job, Message, Recipient};
use crate::delivery::queue::{Listed, Selection};
use crate::delivery::settings::Settings;
use crate::delivery::spool_ledger::SpoolLedger;
use crate::desk::{Answer, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use crate::dkim::Keyring;
use crate::letter::{Letter, LetterTo, Origin};
use crate::outbound::Outbound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_store::spool::{Marks, MessageId, Spool};

/// Most messages that one change is about, and that a restricted list looks through.
const MESSAGES_MAX: usize = 1_000_000;

/// Delivery, taking letters. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WayOut {
    delivery: Delivery<SpoolLedger>,
    spool: Spool,
    keys: Arc<Path>,
    about: Arc<str>,
}

impl WayOut {
    /// Starts delivery, which is said to be `about`, with the keys in this folder.
    pub fn start(mut settings: Settings, spool: &Spool, keys: &Path, about: &str) -> Result<WayOut, GateError> {
        settings.keyring = Keyring::load(keys)?;
        // Mail that delivery itself writes is a letter like all others.
        let ledger = SpoolLedger::with_envelopes(spool.clone(), |message| own_letter(message).write());
        let delivery = Delivery::start(settings, ledger, Arc::new(wall_clock))?;
        Ok(WayOut { delivery, spool: spool.clone(), keys: keys.into(), about: about.into() })
    }

    fn size_of(&self, id: MessageId) -> u64 {
        self.spool.body(id).map_or(0, |body| body.size())
    }

    /// What fits all of a selection.
    fn listed(&self, selection: &QueueSelection) -> Vec<Listed> {
        let most_selective = match selection {
            QueueSelection { messages, .. } if !messages.is_empty() => {
                Selection::Messages(messages.iter().filter_map(|id| id.parse().ok()).collect())
            }
            QueueSelection { user, .. } if !user.is_empty() => Selection::Owner(user.clone()),
            QueueSelection { domain, .. } if !domain.is_empty() => Selection::Domain(domain.clone()),
            _ => Selection::All,
        };
        let mut listed = self.delivery.list(&most_selective, 0, MESSAGES_MAX);
        listed.retain(|one| selection.takes(&one.id, &one.owner, one.recipients.iter().map(|to| to.address.as_str())));
        listed
    }

    fn named(&self, selection: &QueueSelection) -> (Vec<String>, Selection) {
        let names: Vec<String> = self.listed(selection).into_iter().map(|one| one.id).collect();
        let ids = names.iter().filter_map(|id| id.parse().ok()).collect();
        (names, Selection::Messages(ids))
    }
}

impl Outbound for WayOut {
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>) {
        self.delivery.enqueue(message(id, &letter, &places, self.size_of(id)));
    }

    fn resume(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>, marks: &Marks) {
        match Job::resumed(message(id, &letter, &places, self.size_of(id)), marks.iter()) {
            Some(job) => self.delivery.enqueue(job),
            // Everybody has it; only the last word was lost.
            None => drop(self.spool.finish(id)),
        }
    }

    fn keys_changed(&self) {
        match Keyring::load(&self.keys) {
            Ok(keyring) => self.delivery.set_keyring(keyring),
            Err(error) => tracing::error!(%error, "the keys to sign with cannot be read; those of before stay"),
        }
    }

    async fn stop(&self, patience: Duration) {
        if !self.delivery.shutdown(patience).await {
            tracing::info!("some deliveries were broken off; they begin again at the next start");
        }
    }
}

impl Queue for WayOut {
    fn about(&self) -> String {
        self.about.to_string()
    }

    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> Answer<'a, QueueList> {
        Box::pin(async move {
            let everything = QueueSelection { all: selection.all, ..QueueSelection::default() };
            let (listed, total) = if *selection == everything {
                (self.delivery.list(&Selection::All, 0, most), self.delivery.stats().queue.messages)
            } else {
                let listed = self.listed(selection);
                let total = listed.len();
                (listed, total)
            };
            Ok(QueueList { messages: listed.into_iter().take(most).map(entry).collect(), total })
        })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let (names, selection) = self.named(selection);
            self.delivery.retry(&selection);
            Ok(names)
        })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let (names, selection) = self.named(selection);
            self.delivery.delete(&selection);
            self.spool.flush().await?;
            Ok(names)
        })
    }
}

/// A letter for the recipients at these places, as delivery knows messages.
pub(super) fn message(id: MessageId, letter: &Letter, places: &[usize], size_bytes: u64) -> Message {
    let recipient = |place: &usize| {
        let to = letter.to.get(*place)?.rcpt()?;
        Some(Recipient { index: u32::try_from(*place).ok()?, to })
    };
    Message {
        id,
        owner: letter.owner.as_str().into(),
        sender: letter.mail_from(),
        recipients: places.iter().filter_map(recipient).collect(),
        size_bytes,
        accepted_at: Instant(letter.at),
        sign: true,
    }
}

/// Mail that delivery itself writes, as a letter.
fn own_letter(message: &Message) -> Letter {
    let envelope = crate::smtp::envelope::Envelope {
        sender: message.sender.clone(),
        recipients: message.recipients.iter().map(|recipient| recipient.to.clone()).collect(),
        forwarded: None,
    };
    let mut letter = Letter::new(&envelope, Origin::Own, &message.owner, "", message.accepted_at.0);
    letter.to = message.recipients.iter().map(|recipient| LetterTo::from(&recipient.to)).collect();
    letter
}

fn entry(listed: Listed) -> QueueEntry {
    let date = |unix_ms: u64| Date::new(Instant(unix_ms.saturating_mul(1_000_000))).rfc3339();
    let next = listed.recipients.iter().filter_map(|to| to.next_attempt_unix_ms).min();
    QueueEntry {
        message: listed.id,
        user: listed.owner,
        sender: listed.sender,
        accepted: date(listed.accepted_unix_ms),
        size_bytes: listed.size_bytes,
        attempts: listed.recipients.iter().map(|to| to.attempts).max().unwrap_or_default(),
        next_attempt: next.map(date),
        recipients: listed
            .recipients
            .into_iter()
            .map(|to| QueueRecipient { address: to.address, last_answer: to.last_answer.unwrap_or_default() })
            .collect(),
    }
}
