//! The last stage of the pipeline: connects delivery to the rest of the gate. Letters come in, and people see a queue.

use super::GateError;
use crate::delivery::Delivery;
use crate::delivery::message::{Job, OutgoingMessage, Recipient};
use crate::delivery::next_hops::NextHopsView;
use crate::delivery::queue::{Listed, Selection};
use crate::delivery::settings::Settings;
use crate::delivery::spool_ledger::SpoolLedger;
use crate::letter::{Letter, LetterOrigin, LetterTo};
use crate::pipeline::{BoxFuture, Stage, Transit};
use crate::queue::{Dropped, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::OperationFuture;
use weir_foundation::clock::wall_clock;
use weir_foundation::date::Date;
use weir_smtp::dkim::Keyring;
use weir_store::spool::{Marks, MessageId, Spool};

/// What delivery is started with.
pub struct DeliverySettings {
    /// How it behaves.
    pub settings: Settings,
    /// The folder of keys to sign with.
    pub keys: PathBuf,
    /// How mail goes out, in words.
    pub about: String,
}

/// Delivery, taking letters. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Delivering {
    delivery: Delivery<SpoolLedger>,
    ledger: SpoolLedger,
    spool: Spool,
    keys: Arc<Path>,
    about: Arc<str>,
}

impl Delivering {
    pub(super) fn start(settings: DeliverySettings, spool: &Spool) -> Result<Delivering, GateError> {
        let DeliverySettings { mut settings, keys, about } = settings;
        settings.keyring = Keyring::load(&keys)?;
        // Mail that delivery itself writes is a letter like all others.
        let ledger = SpoolLedger::with_envelopes(spool.clone(), |message| own_letter(message).write());
        let delivery = Delivery::start(settings, ledger.clone(), Arc::new(wall_clock))?;
        Ok(Delivering { delivery, ledger, spool: spool.clone(), keys: keys.into(), about: about.into() })
    }

    /// How mail goes out, in words.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// What is known of the next hops that the configuration names.
    pub(super) fn next_hops(&self) -> NextHopsView {
        self.delivery.next_hops()
    }

    /// Keys to sign with were made or removed.
    pub(super) fn keys_changed(&self) {
        match Keyring::load(&self.keys) {
            Ok(keyring) => self.delivery.set_keyring(keyring),
            Err(error) => tracing::error!(%error, "the keys to sign with cannot be read; those of before stay"),
        }
    }

    /// From now on a report to the sender of submitted mail is mail of whoever handed that in, and `submit` takes it through their
    /// throttle without waiting: where senders are not checked, reports are a way to write to anybody. Told once, at start.
    pub(super) fn charge_reports(&self, submit: impl Fn(MessageId, Letter) + Send + Sync + 'static) {
        self.ledger.charge_reports(move |message| submit(message.id, own_letter(message)));
    }

    fn message(&self, transit: &Transit) -> OutgoingMessage {
        let size_bytes = self.spool.body(transit.id).map_or(0, |body| body.size());
        message(transit.id, &transit.letter, &transit.places, size_bytes)
    }
}

impl Stage for Delivering {
    fn take(&self, transit: Transit) -> Option<Transit> {
        self.delivery.enqueue(self.message(&transit));
        None
    }

    fn resume(&self, transit: Transit, marks: &Marks) -> Option<Transit> {
        match Job::resumed(self.message(&transit), marks.iter()) {
            Some(job) => self.delivery.enqueue(job),
            // All recipients have it; only the note that it is finished was lost.
            None => drop(self.spool.finish(transit.id)),
        }
        None
    }

    fn stop(&self, patience: Duration) -> BoxFuture<'_> {
        Box::pin(async move {
            if !self.delivery.shutdown(patience).await {
                tracing::info!("some deliveries were broken off; they begin again at the next start");
            }
        })
    }
}

impl Queue for Delivering {
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> OperationFuture<'a, QueueList> {
        Box::pin(async move {
            let Some(selection) = selected(selection) else { return Ok(QueueList::default()) };
            let listing = self.delivery.list(&selection, 0, most);
            Ok(QueueList { messages: listing.messages.into_iter().map(entry).collect(), total: listing.total })
        })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        Box::pin(async move {
            let found = selected(selection).map(|selection| self.delivery.retry(&selection)).unwrap_or_default();
            Ok(found.iter().map(ToString::to_string).collect())
        })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        Box::pin(async move {
            let mut dropped = Dropped::default();
            let found = selected(selection).map(|selection| self.delivery.delete(&selection)).unwrap_or_default();
            found.iter().for_each(|(message, recipients)| dropped.add(message.to_string(), *recipients));
            if let Err(error) = self.spool.flush().await {
                dropped.note(error);
            }
            Ok(dropped)
        })
    }
}

/// The selection in delivery's terms; none if it names only messages that cannot exist.
fn selected(selection: &QueueSelection) -> Option<Selection> {
    let messages: BTreeSet<MessageId> = selection.messages.iter().filter_map(|id| id.parse().ok()).collect();
    if messages.is_empty() && !selection.messages.is_empty() {
        return None;
    }
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    Some(Selection { messages, owner: given(&selection.user), domain: given(&selection.domain) })
}

/// A letter for the recipients at these places, as delivery knows messages.
pub(super) fn message(id: MessageId, letter: &Letter, places: &[usize], size_bytes: u64) -> OutgoingMessage {
    let recipient = |place: &usize| {
        let to = letter.to.get(*place)?.rcpt()?;
        Some(Recipient { index: u32::try_from(*place).ok()?, to })
    };
    OutgoingMessage {
        id,
        owner: letter.owner.as_str().into(),
        sender: letter.mail_from(),
        recipients: places.iter().filter_map(recipient).collect(),
        size_bytes,
        accepted_at: Instant(letter.at),
        added: letter.added.as_str().into(),
        // If we signed mail from outside, we would vouch for every forger who writes our domain into From.
        sign: letter.origin != LetterOrigin::Received,
        hand_back: letter.hand_back,
        long_lines: letter.long_lines,
    }
}

/// Mail that delivery itself writes, as a letter: our own, or that of the user who caused it.
fn own_letter(message: &OutgoingMessage) -> Letter {
    let envelope = weir_smtp::envelope::Envelope {
        sender: message.sender.clone(),
        recipients: message.recipients.iter().map(|recipient| recipient.to.clone()).collect(),
        ..weir_smtp::envelope::Envelope::default()
    };
    let origin = if message.owner.is_empty() { LetterOrigin::Own } else { LetterOrigin::Submitted };
    let mut letter = Letter::new(&envelope, origin, &message.owner, "", message.accepted_at.0);
    letter.to = message.recipients.iter().map(|recipient| LetterTo::from(&recipient.to)).collect();
    letter.subject = "report on a mail".to_owned();
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
