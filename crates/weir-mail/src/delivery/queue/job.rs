//! One message in the queue and the state of each of its recipients.

use std::ops::Range;
use std::sync::Arc;

use weir_core::time::Instant;

use super::{Attempt, DeliveryOutcome, DeliveryProgress, Fate, OutgoingMessage, ParcelId, Totals};
use weir_smtp::envelope::Notify;
use weir_smtp::outcome::Status;

#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) message: Arc<OutgoingMessage>,
    pub(super) recipients: Box<[RecipientState]>,
    pub(super) parcels: ParcelList,
    pub(super) alarm: Instant,
    /// The sender was told of the delay, or need not be.
    pub(super) warned: bool,
    /// It was deleted while it was under way.
    pub(super) condemned: bool,
    /// A report is being written.
    pub(super) reporting: bool,
}

#[derive(Clone, Debug)]
pub(super) enum RecipientState {
    /// To be delivered; with the last answer.
    Waiting(Option<Arc<DeliveryOutcome>>),
    /// Delivered, and the sender wants to know; whether it has arrived or was passed on.
    Delivered(Arc<DeliveryOutcome>, bool),
    /// Failed, and the sender is to be told.
    Failed(Arc<DeliveryOutcome>),
    /// Over.
    Done,
}

/// The parcels of a message; most have one.
#[derive(Debug, Default)]
pub(super) enum ParcelList {
    #[default]
    Empty,
    One(ParcelId),
    Many(Vec<ParcelId>),
}

impl QueuedMessage {
    pub(super) fn new(message: OutgoingMessage, warned: bool) -> QueuedMessage {
        let recipients = vec![RecipientState::Waiting(None); message.recipients.len()].into();
        let (parcels, alarm) = (ParcelList::Empty, Instant::NEVER);
        let message = Arc::new(message);
        QueuedMessage { message, recipients, parcels, alarm, warned, condemned: false, reporting: false }
    }

    /// The places in a stretch that are to be delivered.
    pub(super) fn waiting(&self, stretch: Range<usize>) -> impl Iterator<Item = usize> {
        let held = self.recipients.get(stretch.clone()).unwrap_or_default();
        held.iter().zip(stretch).filter(|(held, _)| matches!(held, RecipientState::Waiting(_))).map(|(_, place)| place)
    }

    /// Takes the outcomes of a delivery over; what was delivered is to be written down.
    pub(super) fn apply(
        &mut self,
        stretch: Range<usize>,
        attempt: &Attempt,
        totals: &mut Totals,
    ) -> Vec<DeliveryProgress> {
        let places: Vec<usize> = self.waiting(stretch).collect();
        let mut delivered = Vec::new();
        for (place, outcome) in places.into_iter().zip(&attempt.outcomes) {
            let Some(recipient) = self.message.recipients.get(place) else { continue };
            let held = match outcome.fate {
                Fate::Delivered => {
                    delivered.push(recipient.index);
                    let asked = recipient.to.notify.is_some_and(|notify| notify.success) && !attempt.reports_itself;
                    if asked {
                        RecipientState::Delivered(Arc::new(outcome.clone()), attempt.arrived)
                    } else {
                        RecipientState::Done
                    }
                }
                Fate::Permanent => RecipientState::Failed(Arc::new(outcome.clone())),
                Fate::Temporary => RecipientState::Waiting(Some(Arc::new(outcome.clone()))),
            };
            totals.delivered += u64::from(outcome.fate == Fate::Delivered);
            totals.failed += u64::from(outcome.fate == Fate::Permanent);
            if let Some(state) = self.recipients.get_mut(place) {
                *state = held;
            }
        }
        if delivered.is_empty() { Vec::new() } else { vec![DeliveryProgress::Delivered(delivered.into())] }
    }

    /// Gives up what waits in a stretch: silently, or as failed because its time is over.
    pub(super) fn give_up(&mut self, stretch: Range<usize>, silently: bool, trouble: Option<&Arc<DeliveryOutcome>>) {
        for held in self.recipients.get_mut(stretch).unwrap_or_default() {
            if let RecipientState::Waiting(last) = held {
                let never = || DeliveryOutcome::temporary(Status(4, 4, 7), "its turn never came");
                let last = last.as_ref().or(trouble).map_or_else(never, |outcome| (**outcome).clone());
                *held = if silently { RecipientState::Done } else { RecipientState::Failed(Arc::new(last.expired())) };
            }
        }
    }

    /// Ends what failed and nobody wants to hear of; the indices of these.
    pub(super) fn close_silently(&mut self) -> Box<[u32]> {
        let mut closed = Vec::new();
        for (held, recipient) in self.recipients.iter_mut().zip(&self.message.recipients) {
            let told = self.message.has_sender() && wants(recipient.to.notify, |notify| notify.failure);
            let success_told = self.message.has_sender();
            match held {
                RecipientState::Failed(outcome) if !told => {
                    tracing::info!(message = %self.message.id, recipient = %recipient.to.mailbox, %outcome, "undeliverable, and nobody to tell");
                    closed.push(recipient.index);
                    *held = RecipientState::Done;
                }
                RecipientState::Delivered(..) if !success_told => *held = RecipientState::Done,
                _ => {}
            }
        }
        closed.into()
    }

    /// Whether the sender is to be told something.
    pub(super) fn has_news(&self) -> bool {
        self.recipients.iter().any(|held| matches!(held, RecipientState::Failed(_) | RecipientState::Delivered(..)))
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_over(&self) -> bool {
        !self.reporting
            && self.parcels.is_empty()
            && self.recipients.iter().all(|held| matches!(held, RecipientState::Done))
    }
}

/// Whether a notice is wanted; a sender who said nothing wants to hear of failure and delay.
pub(super) fn wants(notify: Option<Notify>, which: impl Fn(Notify) -> bool) -> bool {
    notify.is_none_or(which)
}

impl ParcelList {
    pub(super) fn push(&mut self, parcel: ParcelId) {
        *self = match std::mem::take(self) {
            ParcelList::Empty => ParcelList::One(parcel),
            ParcelList::One(first) => ParcelList::Many(vec![first, parcel]),
            ParcelList::Many(mut all) => {
                all.push(parcel);
                ParcelList::Many(all)
            }
        }
    }

    pub(super) fn remove(&mut self, parcel: ParcelId) {
        match self {
            ParcelList::One(only) if *only == parcel => *self = ParcelList::Empty,
            ParcelList::Many(all) => all.retain(|other| *other != parcel),
            ParcelList::Empty | ParcelList::One(_) => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ParcelId> {
        let all = match self {
            ParcelList::Empty => &[][..],
            ParcelList::One(only) => std::slice::from_ref(only),
            ParcelList::Many(all) => all,
        };
        all.iter().copied()
    }
}
