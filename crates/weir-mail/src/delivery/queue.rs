//! The delivery queue: messages, their recipients, and how far each has come.
//!
//! It does no I/O: time is passed in, and nothing is sent or stored here. [`Queue::next`] hands out an [`Assignment`], [`Queue::settle`]
//! takes back what came of it and says what must be written down; [`Queue::due_task`] hands out what falls due by itself (reports to
//! senders, messages whose time is over). Every message that comes in leaves through a [`Settlement`] that finishes it, exactly once. The
//! list is in memory only; it is rebuilt from the spool at start.
//!
//! States of a recipient: `Waiting → Delivered | Failed → Done`, where `Delivered` and `Failed` mean that the sender is
//! still to be told. Nothing counts as finally failed before the report about it is stored.

mod due_tasks;
mod figures;
mod job;
mod listing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use weir_core::time::Instant;
use weir_store::spool::MessageId;

use self::due_tasks::Todo;
use self::job::{ParcelList, QueuedMessage};
use super::ledger::DeliveryProgress;
use super::message::{Deferral, Job, OutgoingMessage, Recipient};
use super::names::NameNumbers;
use super::retry::RetrySchedule;
use super::route::Target;
use super::scheduler::{DestinationId, ParcelId, Scheduler, SenderId, Then};
use super::slots::{Slot, Slots};
use super::window::{Feedback, WindowBounds};
use weir_settings::settings;
use weir_smtp::outcome::{DeliveryOutcome, Fate, Status};

pub use due_tasks::{Action, DueTask, ReportKind, Reported, SenderReport};
pub use figures::{DestinationStats, QueueStats, Totals};
pub use listing::{Listed, ListedRecipient, Listing, Selection};

/// A failure is reported at the latest after this, even if other recipients of the message are still being tried.
const GATHER: Duration = Duration::from_secs(60);

settings! {
    /// Bounds of a queue.
    #[derive(PartialEq, Eq)]
    pub struct QueueSettings {
        /// Deliveries at once, in all
        pub deliveries_max as "deliveries": usize = count(100, 1..=10_000),
        /// Deliveries at once to one destination
        pub window as "deliveries_per_destination": WindowBounds =
            number(WindowBounds::default().most, 1..=1_000).map(WindowBounds::up_to),
        /// Recipients of one delivery
        pub recipients_max as "recipients_per_delivery": usize = count(100, 1..=10_000),
        /// When to try again, to warn, to give up.
        pub retry: RetrySchedule = part(),
    }
}

/// What is to be delivered.
#[derive(Debug)]
pub struct Queue {
    settings: QueueSettings,
    scheduler: Scheduler<Parcel>,
    jobs: Slots<QueuedMessage>,
    senders: NameNumbers<str>,
    targets: NameNumbers<Target>,
    /// Why a destination could not be reached last.
    troubles: HashMap<DestinationId, Arc<DeliveryOutcome>>,
    alarms: BTreeSet<(Instant, Slot)>,
    due_tasks: VecDeque<Todo>,
    totals: Totals,
}

/// A stretch of a message's recipients that share a target.
struct TargetStretch {
    target: Target,
    first: u32,
    count: u32,
}

/// Some recipients of one message for one destination.
#[derive(Debug)]
struct Parcel {
    job: Slot,
    /// Its recipients: a stretch of the message's.
    first: u32,
    count: u32,
    attempts: u32,
    target: Arc<Target>,
    destination: DestinationId,
}

/// One delivery to carry out.
#[derive(Debug)]
pub struct Assignment {
    /// To be named when it is settled.
    pub parcel: ParcelId,
    /// The destination's number.
    pub destination: DestinationId,
    /// The destination.
    pub target: Arc<Target>,
    /// The message.
    pub message: Arc<OutgoingMessage>,
    /// The places of the recipients to serve.
    pub places: Vec<usize>,
}

/// What came of a delivery.
#[derive(Debug)]
pub struct Attempt {
    /// One for each recipient of the assignment, in order.
    pub outcomes: Vec<DeliveryOutcome>,
    /// What it means for the destination.
    pub feedback: Feedback,
    /// The destination was not reached: the parcel keeps its place and the attempt does not count.
    pub untried: bool,
    /// The next hop reports success itself, if asked for.
    pub reports_itself: bool,
    /// Success means that it has arrived, not only that it was passed on.
    pub arrived: bool,
}

/// What is to be written down, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// Of which message.
    pub id: MessageId,
    /// What happened.
    pub progress: Vec<DeliveryProgress>,
    /// Delivery is done with the message: these were its recipients.
    pub finished: Option<Box<[u32]>>,
}

impl Queue {
    /// An empty queue.
    pub fn new(settings: QueueSettings) -> Queue {
        Queue {
            scheduler: Scheduler::new(settings.deliveries_max, settings.window),
            settings,
            jobs: Slots::default(),
            senders: NameNumbers::default(),
            targets: NameNumbers::default(),
            troubles: HashMap::new(),
            alarms: BTreeSet::new(),
            due_tasks: VecDeque::new(),
            totals: Totals::default(),
        }
    }

    /// Takes a message in. One without recipients is over at once.
    pub fn enqueue(&mut self, mut job: Job, target: impl Fn(&Recipient) -> Target, now: Instant) -> Option<Settlement> {
        if job.message.recipients.is_empty() {
            return Some(Settlement { id: job.message.id, progress: Vec::new(), finished: Some(Box::default()) });
        }
        let parts = split(&mut job.message, target, self.settings.recipients_max);
        let deferral = |part: &TargetStretch| {
            job.deferral(job.message.recipients.get(stretch(part.first, part.count)).unwrap_or_default())
        };
        let deferrals: Vec<Deferral> = parts.iter().map(deferral).collect();
        let Job { mut message, warned, .. } = job;
        let (owner, sender) = self.senders.take(&message.owner);
        message.owner = owner;
        let entry = QueuedMessage::new(message, warned);
        let accepted_at = entry.message.accepted_at;
        let slot = self.jobs.insert(entry);
        let mut parcels = ParcelList::default();
        for (part, Deferral { attempts, not_before }) in parts.into_iter().zip(deferrals) {
            let TargetStretch { target, first, count } = part;
            let (target, number) = self.targets.take(&Arc::new(target));
            let destination = DestinationId(number);
            let parcel = Parcel { job: slot, first, count, attempts, target, destination };
            parcels.push(self.scheduler.add(parcel, (SenderId(sender), destination), not_before, now));
        }
        self.totals.enqueued += 1;
        let alarm = self.first_alarm(accepted_at, warned);
        if let Some(entry) = self.jobs.get_mut(slot) {
            (entry.parcels, entry.alarm) = (parcels, alarm);
        }
        self.alarms.insert((alarm, slot));
        None
    }

    /// The next delivery to carry out, if there is one now.
    pub fn next(&mut self, now: Instant) -> Option<Assignment> {
        let (parcel, destination) = self.scheduler.poll(now)?;
        let load = self.scheduler.load(parcel)?;
        let entry = self.jobs.get(load.job)?;
        let places = entry.waiting(load.stretch()).collect();
        Some(Assignment {
            parcel,
            destination,
            target: Arc::clone(&load.target),
            message: Arc::clone(&entry.message),
            places,
        })
    }

    /// Takes back what came of a delivery.
    pub fn settle(&mut self, parcel: ParcelId, attempt: &Attempt, now: Instant) -> Option<Settlement> {
        let load = self.scheduler.load_mut(parcel)?;
        load.attempts += u32::from(!attempt.untried);
        let (slot, stretch, attempts) = (load.job, load.stretch(), load.attempts);
        let destination = load.destination;
        self.note_trouble(destination, attempt);
        let entry = self.jobs.get_mut(slot)?;
        let mut progress = entry.apply(stretch.clone(), attempt, &mut self.totals);
        let end = self.settings.retry.end(entry.message.accepted_at);
        if entry.condemned || now >= end {
            self.totals.failed += entry.waiting(stretch.clone()).count() as u64;
            entry.give_up(stretch.clone(), entry.condemned, None);
        }
        let left = entry.waiting(stretch).filter_map(|place| entry.message.recipients.get(place));
        let recipients: Box<[u32]> = left.map(|recipient| recipient.index).collect();
        let then = if recipients.is_empty() {
            Then::Gone
        } else if attempt.untried {
            Then::Again
        } else {
            let until = self.settings.retry.next_attempt(attempts, entry.message.accepted_at, now);
            progress.push(DeliveryProgress::Deferred { recipients, attempts, until });
            self.totals.deferred += 1;
            Then::Later(until)
        };
        self.complete(parcel, then, attempt.feedback, now);
        self.review(slot, progress, now)
    }

    /// When [`Queue::next`] has something although nothing else has happened.
    pub fn next_attempt(&self) -> Option<Instant> {
        self.scheduler.next_deadline()
    }

    /// When [`Queue::due_task`] has.
    pub fn next_due_task(&self) -> Option<Instant> {
        if !self.due_tasks.is_empty() {
            return Some(Instant::ZERO);
        }
        self.alarms.first().map(|(at, _)| *at).filter(|at| *at != Instant::NEVER)
    }

    /// The nearer of both.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.next_attempt(), self.next_due_task()].into_iter().flatten().min()
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn complete(&mut self, parcel: ParcelId, then: Then, feedback: Feedback, now: Instant) {
        let gone =
            (then == Then::Gone).then(|| self.scheduler.load(parcel).map(|load| (load.job, Arc::clone(&load.target))));
        self.scheduler.complete(parcel, then, feedback, now);
        if let Some((slot, target)) = gone.flatten() {
            self.parcel_gone(slot, parcel, &target);
        }
    }

    fn parcel_gone(&mut self, slot: Slot, parcel: ParcelId, target: &Target) {
        if let Some(entry) = self.jobs.get_mut(slot) {
            entry.parcels.remove(parcel);
        }
        let number = self.targets.number(target);
        if self.targets.give_back(target)
            && let Some(number) = number
        {
            self.troubles.remove(&DestinationId(number));
        }
    }

    fn note_trouble(&mut self, destination: DestinationId, attempt: &Attempt) {
        match attempt.feedback {
            Feedback::Reached => drop(self.troubles.remove(&destination)),
            Feedback::Lost => {}
            Feedback::Unreachable => {
                if let Some(outcome) = attempt.outcomes.first() {
                    self.troubles.insert(destination, Arc::new(outcome.clone()));
                }
            }
        }
    }

    /// Looks at a message after something happened to it: is there something to tell, is it over?
    fn review(&mut self, slot: Slot, mut progress: Vec<DeliveryProgress>, now: Instant) -> Option<Settlement> {
        let active = self.is_active(slot);
        let entry = self.jobs.get_mut(slot)?;
        let silent = entry.close_silently();
        if !silent.is_empty() {
            progress.push(DeliveryProgress::Failed(silent));
        }
        let id = entry.message.id;
        if entry.has_news() && !entry.reporting {
            if active {
                self.set_alarm(slot, now + GATHER);
            } else {
                entry.reporting = true;
                self.due_tasks.push_back(Todo::Report(slot));
            }
        } else if entry.is_over() {
            return self.finish(slot);
        }
        (!progress.is_empty()).then_some(Settlement { id, progress, finished: None })
    }

    /// Whether a parcel of the message waits for its turn or is under way.
    fn is_active(&self, slot: Slot) -> bool {
        let Some(entry) = self.jobs.get(slot) else { return false };
        entry.parcels.iter().any(|parcel| self.scheduler.deferred_until(parcel).is_none())
    }

    /// Finishing says more than any progress, so nothing else is written down with it.
    fn finish(&mut self, slot: Slot) -> Option<Settlement> {
        let entry = self.jobs.remove(slot)?;
        self.alarms.remove(&(entry.alarm, slot));
        self.senders.give_back(&entry.message.owner);
        self.totals.finished += 1;
        let indices = entry.message.recipients.iter().map(|recipient| recipient.index).collect();
        Some(Settlement { id: entry.message.id, progress: Vec::new(), finished: Some(indices) })
    }

    fn first_alarm(&self, accepted_at: Instant, warned: bool) -> Instant {
        let end = self.settings.retry.end(accepted_at);
        if warned { end } else { end.min(self.settings.retry.warn_at(accepted_at)) }
    }

    /// Moves a message's alarm nearer; it is never moved away from here.
    fn set_alarm(&mut self, slot: Slot, at: Instant) {
        let Some(entry) = self.jobs.get_mut(slot) else { return };
        if at < entry.alarm {
            self.alarms.remove(&(entry.alarm, slot));
            entry.alarm = at;
            self.alarms.insert((at, slot));
        }
    }
}

impl Parcel {
    fn stretch(&self) -> Range<usize> {
        stretch(self.first, self.count)
    }
}

fn stretch(first: u32, count: u32) -> Range<usize> {
    first as usize..(first + count) as usize
}

/// Puts recipients of one destination side by side and cuts them into stretches of at most `most`.
fn split(message: &mut OutgoingMessage, target: impl Fn(&Recipient) -> Target, most: usize) -> Vec<TargetStretch> {
    let mut tagged: Vec<_> = std::mem::take(&mut message.recipients).into_iter().map(|r| (target(&r), r)).collect();
    tagged.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut parts: Vec<TargetStretch> = Vec::new();
    for (place, (target, _)) in tagged.iter().enumerate() {
        match parts.last_mut().filter(|last| last.target == *target && (last.count as usize) < most.max(1)) {
            Some(last) => last.count += 1,
            None => parts.push(TargetStretch { target: target.clone(), first: place as u32, count: 1 }),
        }
    }
    message.recipients = tagged.into_iter().map(|(_, recipient)| recipient).collect();
    parts
}
