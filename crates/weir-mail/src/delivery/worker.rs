//! A delivery worker: makes one delivery after another to one destination, in the same session for as long as it lasts.
//!
//! When there is nothing to do, the worker keeps its session open and waits for a while. However a worker ends, even by a panic, [`InHand`]
//! settles its delivery.

use std::sync::Arc;

use super::ledger::Ledger;
use super::message::OutgoingMessage;
use super::pool::{Pool, Seat};
use super::queue::{Assignment, Attempt};
use super::window::Feedback;
use weir_smtp::client::session::Session;
use weir_smtp::outcome::{DeliveryOutcome, Fate, Status};
use weir_store::diary::{DiaryLine, Facts};
use weir_store::spool::MessageId;

/// Recipients of one delivery that have a line of their own in the diary. Others of the same fate share lines, of so many octets.
const OWN_LINES_MAX: usize = 50;
const SHARED_LINE_BYTES: usize = 600;

/// Starts a worker as a task of the pool.
pub(super) fn start<L: Ledger>(pool: &Arc<Pool<L>>, first: Assignment) {
    pool.spawn(run(Arc::clone(pool), first));
}

/// Works until there is nothing left to do for its destination.
async fn run<L: Ledger>(pool: Arc<Pool<L>>, first: Assignment) {
    let mut session = None;
    let mut next = Some(first);
    while let Some(assignment) = next.take() {
        let hand = InHand { pool: &pool, assignment: Some(assignment) };
        let Some(assignment) = &hand.assignment else { break };
        let attempt = pool.transport.carry(assignment, &mut session, &pool.ledger, pool.now()).await;
        note(&pool.ledger, assignment, &attempt);
        retire(&pool, &mut session).await;
        next = match hand.settle(&attempt, session.is_some()) {
            NextStep::Next(assignment) => Some(assignment),
            NextStep::Park(seat) => wait(&pool, seat, &mut session).await,
            NextStep::Leave => None,
        };
    }
    if let Some(session) = session {
        session.quit().await;
    }
}

/// Ends a session that has served long enough.
async fn retire<L: Ledger>(pool: &Pool<L>, session: &mut Option<Session>) {
    let keep = &pool.keep;
    if let Some(worn) =
        session.take_if(|open| open.messages() >= keep.messages_max || open.opened().elapsed() >= keep.lifetime)
    {
        worn.quit().await;
    }
}

/// Waits for a call; nothing if none comes in time or the server hangs up.
async fn wait<L: Ledger>(pool: &Pool<L>, mut seat: Seat, session: &mut Option<Session>) -> Option<Assignment> {
    let open = session.as_mut()?;
    let mut alive = true;
    tokio::select! {
        biased;
        called = &mut seat.call => return called.ok(),
        () = open.disturbed() => alive = false,
        () = tokio::time::sleep(pool.keep.idle) => {}
    }
    if !alive {
        *session = None;
    }
    if pool.state().leave(&seat) {
        return None;
    }
    // The call came at the same moment.
    seat.call.await.ok()
}

/// What a worker does next.
enum NextStep {
    Next(Assignment),
    Park(Seat),
    Leave,
}

/// A delivery that must be settled.
struct InHand<'a, L: Ledger> {
    pool: &'a Arc<Pool<L>>,
    assignment: Option<Assignment>,
}

impl<L: Ledger> InHand<'_, L> {
    /// Settles it, writes down what came of it, and finds out what is next.
    fn settle(mut self, attempt: &Attempt, has_session: bool) -> NextStep {
        match self.assignment.take() {
            Some(assignment) => settle(self.pool, &assignment, attempt, has_session),
            None => NextStep::Leave,
        }
    }
}

impl<L: Ledger> Drop for InHand<'_, L> {
    fn drop(&mut self) {
        // At shutdown nothing is written: after the next start it is simply tried again.
        if let Some(assignment) = self.assignment.take()
            && !self.pool.is_stopping()
        {
            let outcome = DeliveryOutcome::temporary(Status(4, 3, 0), "the delivery was broken off");
            let outcomes = vec![outcome; assignment.places.len()];
            let attempt =
                Attempt { outcomes, feedback: Feedback::Lost, untried: false, reports_itself: false, arrived: false };
            settle(self.pool, &assignment, &attempt, false);
        }
    }
}

fn settle<L: Ledger>(pool: &Arc<Pool<L>>, assignment: &Assignment, attempt: &Attempt, has_session: bool) -> NextStep {
    let now = pool.now();
    let (settlement, order) = {
        let mut state = pool.state();
        let settlement = state.queue.settle(assignment.parcel, attempt, now);
        let order = match pool.hand_out(&mut state, now, Some(&assignment.target)) {
            Some(next) => NextStep::Next(next),
            None if has_session => pool.park(&mut state, &assignment.target).map_or(NextStep::Leave, NextStep::Park),
            None => NextStep::Leave,
        };
        (settlement, order)
    };
    settlement.iter().for_each(|settlement| pool.write_down(settlement));
    order
}

fn note<L: Ledger>(ledger: &L, assignment: &Assignment, attempt: &Attempt) {
    note_outcomes(ledger, &assignment.message, assignment.places.iter().copied().zip(&attempt.outcomes));
}

/// Writes into the diary what happened to recipients, by their places in the message. The first have a line each, the others share lines.
pub(super) fn note_outcomes<'o, L: Ledger>(
    ledger: &L,
    message: &OutgoingMessage,
    outcomes: impl Iterator<Item = (usize, &'o DeliveryOutcome)>,
) {
    let id = message.id;
    let mut shared: Vec<SharedLine> = Vec::new();
    for (number, (place, outcome)) in outcomes.enumerate() {
        let Some(recipient) = message.recipients.get(place) else { continue };
        let to = &recipient.to.mailbox;
        match outcome.fate {
            Fate::Delivered => tracing::debug!(message = %id, %to, %outcome, "delivered"),
            Fate::Temporary => tracing::info!(message = %id, %to, %outcome, "deferred"),
            Fate::Permanent => tracing::info!(message = %id, %to, %outcome, "undeliverable"),
        }
        let event = match outcome.fate {
            Fate::Delivered => "delivered",
            Fate::Temporary => "deferred",
            Fate::Permanent => "undeliverable",
        };
        let line = SharedLine::new(event, to.as_str(), outcome);
        match shared.iter_mut().find(|known| known.takes(&line)) {
            Some(known) if number >= OWN_LINES_MAX => known.add(to.as_str()),
            _ if number >= OWN_LINES_MAX => shared.push(line),
            _ => ledger.note(line.written(id)),
        }
    }
    shared.into_iter().for_each(|line| ledger.note(line.written(id)));
}

/// Recipients of whom the same can be said.
struct SharedLine {
    event: &'static str,
    said: String,
    destination: String,
    to: String,
    count: u64,
}

impl SharedLine {
    fn new(event: &'static str, to: &str, outcome: &DeliveryOutcome) -> SharedLine {
        let destination = outcome.peer.as_ref().map_or_else(String::new, ToString::to_string);
        SharedLine { event, said: outcome.to_string(), destination, to: format!("<{to}>"), count: 1 }
    }

    /// Whether the same is said in both, and there is room.
    fn takes(&self, other: &SharedLine) -> bool {
        let same = (self.event, &self.said, &self.destination) == (other.event, &other.said, &other.destination);
        same && self.to.len() + other.to.len() < SHARED_LINE_BYTES
    }

    fn add(&mut self, to: &str) {
        self.to.push_str(", <");
        self.to.push_str(to);
        self.to.push('>');
        self.count += 1;
    }

    fn written(self, id: MessageId) -> DiaryLine {
        let SharedLine { event, said, destination, to, count } = self;
        let line = DiaryLine::new(id, event, format!("to {to}: {said}"));
        let concerns = if count > 1 { count } else { 0 };
        match (destination.is_empty(), concerns) {
            (true, 0) => line,
            _ => line.with(Facts { destination, concerns, ..Facts::default() }),
        }
    }
}
