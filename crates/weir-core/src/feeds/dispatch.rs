//! The decision in the running gate: when a message arrives or a worker becomes free, which worker scans which message?
//!
//! The shell tells arrivals and ended scans with the time, and carries out what comes back. Each feed has one worker
//! or more. With the strategies *size* and *size and load* a message gets its feed on arrival and waits there in order; *shortest first*
//! keeps one line. No worker is idle while a message waits that it may take, and where several workers share a processor
//! ([`Dispatch::sharing`]) no processor is idle while any message waits. Scans that take longer or shorter than expected are accounted
//! for as they end. Messages that arrive with a sender take turns: within a feed (or a class of the common line) each sender has
//! [`Dispatch::TURN`] messages a round, so a flood of one sender delays another by at most one turn of each.
//!
//! Bounds: at most `waiting_max` messages wait, beyond that [`Placed::Full`]. A decision costs O(workers + log n).

use super::plan::TieRule;
use super::{InForce, Limits, Plan, Spot, Strategy, WaitingLine};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

/// The feeds with their workers and waiting messages.
#[derive(Clone, Debug)]
pub struct Dispatch {
    plan: Plan,
    workers: Vec<Worker>,
    /// The workers of each feed.
    of_feed: Vec<Range<usize>>,
    /// Shortest first: one line, with a class for each limit. Otherwise a "class" is the feed that was chosen.
    line: WaitingLine<Waiting>,
    spots: BTreeMap<MessageId, (Spot, usize)>,
    /// Expected scan time of what waits at each feed, in nanoseconds (not for shortest first).
    queued_ns: Vec<u128>,
    waiting_max: usize,
    /// The round that each sender has reached at each feed, while a message of theirs waits there.
    senders: BTreeMap<(usize, SenderId), Turn>,
    in_force: InForce,
    /// While fewer workers than this are busy, a worker with nothing else to do takes messages above its limit.
    busy_least: usize,
}

/// The shell's name for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// Whose message it is, for turns between senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u64);

/// A sender's place in the rounds of one feed.
#[derive(Clone, Copy, Debug)]
struct Turn {
    round: u64,
    /// Messages in that round.
    taken: u32,
    waiting: usize,
}

/// A worker: those of feed 0 come first, then those of feed 1, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// A message to be scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name; no two waiting messages share one.
    pub id: MessageId,
    /// Its size in bytes.
    pub size: u64,
    /// How long its scan should take.
    pub expected: Duration,
}

/// What happened to a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// This worker scans it now.
    Started(WorkerId),
    /// It waits: at this feed, or in the common line for this feed or a later one.
    Waits(usize),
    /// Too many wait already; it stays with the caller.
    Full,
    /// A message with this name waits already.
    Known,
}

/// A message that a worker is to scan now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Who.
    pub worker: WorkerId,
    /// What.
    pub message: Message,
    /// How long it waited.
    pub waited: Duration,
}

/// Idle → Busy when it starts a scan; Busy → Idle or Busy when the scan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Idle,
    /// `overdue`: its message went before all smaller ones.
    Busy {
        until: Instant,
        overdue: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    message: Message,
    arrived: Instant,
    sender: Option<SenderId>,
}

/// What waits at a feed, or in a class of the common line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// How many messages.
    pub waiting: usize,
    /// When the oldest of them arrived.
    pub oldest: Option<Instant>,
}

impl Dispatch {
    /// Idle feeds. `workers` says how many each of the N feeds has.
    pub fn new(plan: Plan, workers: &[usize], waiting_max: usize) -> Result<Dispatch, DispatchError> {
        let feeds = plan.limits.feeds();
        if workers.len() != feeds {
            return Err(DispatchError::FeedCount { feeds, given: workers.len() });
        }
        if let Some(feed) = workers.iter().position(|w| *w == 0 || *w > Dispatch::WORKERS_MAX) {
            return Err(DispatchError::WorkerCount { feed });
        }
        let mut next = 0;
        let mut of_feed = Vec::new();
        for count in workers {
            of_feed.push(next..next + count);
            next += count;
        }
        Ok(Dispatch {
            line: empty_line(&plan),
            plan,
            workers: vec![Worker::Idle; next],
            of_feed,
            spots: BTreeMap::new(),
            queued_ns: vec![0; feeds],
            waiting_max,
            senders: BTreeMap::new(),
            in_force: InForce::All,
            busy_least: 0,
        })
    }

    /// Declares that these workers share so few processors that small mail finds a worker even when all processors scan large mail. Then
    /// limits leave no processor idle (shortest first only; the paper's own strategies follow the paper).
    pub fn sharing(self, processors: usize) -> Dispatch {
        let shared = self.plan.strategy == Strategy::Shortest && self.workers.len() > processors;
        Dispatch { busy_least: if shared { processors } else { 0 }, ..self }
    }

    /// The largest number of workers of one feed.
    pub const WORKERS_MAX: usize = 1024;

    /// Messages of one sender in one round.
    pub const TURN: u32 = 16;

    /// A message arrives.
    pub fn arrive(&mut self, message: Message, now: Instant) -> Placed {
        self.arrive_as(message, None, now)
    }

    /// A message of a sender arrives; senders take turns.
    pub fn arrive_from(&mut self, sender: SenderId, message: Message, now: Instant) -> Placed {
        self.arrive_as(message, Some(sender), now)
    }

    fn arrive_as(&mut self, message: Message, sender: Option<SenderId>, now: Instant) -> Placed {
        if self.spots.contains_key(&message.id) {
            return Placed::Known;
        }
        let placed = self.place(Waiting { message, arrived: now, sender }, now);
        self.check_invariants();
        placed
    }

    /// A worker ended its scan (or asks for work): what it scans next. None if there is nothing for it.
    pub fn free(&mut self, worker: WorkerId, now: Instant) -> Option<Started> {
        let feed = self.feed_of(worker)?;
        self.workers[worker.0] = Worker::Idle;
        let classes = match self.plan.strategy {
            Strategy::Shortest => self.plan.classes_now(feed, self.in_force_now()),
            Strategy::Size | Strategy::SizeLoad => feed..=feed,
        };
        let overdue = self.plan.strategy == Strategy::Shortest
            && !self.one_scans_overdue(now)
            && self.line.is_overdue(classes.clone(), now);
        let next = match self.plan.strategy {
            Strategy::Shortest if !overdue => self.line.take_smallest(classes)?,
            _ => self.line.take(classes, now)?,
        };
        self.forget(next);
        let started = self.start(worker, next, now, overdue);
        self.check_invariants();
        Some(started)
    }

    /// Removes a waiting message unscanned; false if no message of this name waits.
    pub fn withdraw(&mut self, id: MessageId) -> bool {
        let removed = self.spots.get(&id).copied().and_then(|(spot, _)| self.line.remove(spot));
        let removed = removed.map(|waiting| self.forget(waiting)).is_some();
        self.check_invariants();
        removed
    }

    /// Takes new limits for the same feeds. Waiting messages choose anew, the oldest first; some may start at once.
    pub fn retune(&mut self, limits: Limits, now: Instant) -> Result<Vec<Started>, DispatchError> {
        let feeds = self.plan.limits.feeds();
        if limits.feeds() != feeds {
            return Err(DispatchError::FeedCount { feeds, given: limits.feeds() });
        }
        self.plan.limits = limits;
        Ok(self.place_anew(now))
    }

    /// Puts this part of the limits in force. Waiting messages choose anew; some may start at once.
    pub fn put_in_force(&mut self, in_force: InForce, now: Instant) -> Vec<Started> {
        if self.in_force == in_force {
            return Vec::new();
        }
        self.in_force = in_force;
        self.place_anew(now)
    }

    /// How much of the limits is in force.
    pub fn in_force(&self) -> InForce {
        self.in_force
    }

    /// What is in force for the next scan: no limits while a processor would be idle.
    fn in_force_now(&self) -> InForce {
        let busy = self.workers.iter().filter(|worker| **worker != Worker::Idle).count();
        if busy < self.busy_least { InForce::Nothing } else { self.in_force }
    }

    fn place_anew(&mut self, now: Instant) -> Vec<Started> {
        self.spots.clear();
        self.senders.clear();
        self.queued_ns.fill(0);
        let mut started = Vec::new();
        for waiting in self.line.drain() {
            if let Placed::Started(worker) = self.place(waiting, now) {
                let waited = now.since(waiting.arrived);
                started.push(Started { worker, message: waiting.message, waited });
            }
        }
        self.check_invariants();
        started
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// What waits at each feed; for shortest first, in each class of the line. Costs O(n), so it is meant for display only.
    pub fn backlog(&self) -> Vec<Backlog> {
        let of = |feed| Backlog { waiting: self.line.len_of(feed), oldest: self.line.oldest_of(feed) };
        (0..self.of_feed.len()).map(of).collect()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The feed of a worker, from 0.
    pub fn feed_of(&self, worker: WorkerId) -> Option<usize> {
        self.of_feed.iter().position(|workers| workers.contains(&worker.0))
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// When a feed is expected to be empty (W*; not known for shortest first, whose messages have no feed yet).
    pub fn empty_at(&self, feed: usize, now: Instant) -> Option<Instant> {
        (feed < self.of_feed.len() && self.plan.strategy != Strategy::Shortest)
            .then(|| Instant(self.expected_empty(feed, now)))
    }

    fn place(&mut self, waiting: Waiting, now: Instant) -> Placed {
        let class = self.plan.limits.class_of(waiting.message.size);
        let feeds = self.plan.feeds_now(class, self.in_force_now());
        let (feed, idle) = match self.plan.strategy {
            // The workers whose limit is too small for it come last, so that they are free when all limits are in force again.
            Strategy::Shortest => {
                let mut order = (class.max(feeds.start)..feeds.end).chain((feeds.start..class).rev());
                (class, order.find_map(|feed| self.idle_worker(feed)))
            }
            Strategy::Size | Strategy::SizeLoad => {
                let feed = Plan::least_loaded(TieRule::read(), feeds, |feed| self.expected_empty(feed, now));
                (feed, self.idle_worker(feed))
            }
        };
        match idle {
            Some(worker) => Placed::Started(self.start(worker, waiting, now, false).worker),
            None if self.line.len() >= self.waiting_max => Placed::Full,
            None => self.enqueue(feed, waiting),
        }
    }

    /// What is always true between two inputs; O(feeds).
    fn check_invariants(&self) {
        debug_assert!(self.line.len() <= self.waiting_max, "more messages wait than may");
        debug_assert!(self.spots.len() == self.line.len(), "a waiting message that nobody can find");
        debug_assert!(self.senders.len() <= self.line.len(), "a turn of a sender of whom nothing waits");
        debug_assert!(
            (0..self.of_feed.len()).all(|feed| self.line.len_of(feed) > 0 || self.queued_ns[feed] == 0),
            "work is expected at a feed where nothing waits"
        );
    }

    fn enqueue(&mut self, feed: usize, waiting: Waiting) -> Placed {
        let Message { id, size, expected } = waiting.message;
        let round = waiting.sender.map_or(0, |sender| self.round_of(feed, sender));
        if let Some(spot) = self.line.push_in_round(feed, round, (size, waiting.arrived), waiting) {
            self.spots.insert(id, (spot, feed));
            self.queued_ns[feed] += expected.as_nanos();
        }
        Placed::Waits(feed)
    }

    /// The round of a sender's next message at a feed.
    fn round_of(&mut self, feed: usize, sender: SenderId) -> u64 {
        let now = self.line.round(feed);
        let turn = self.senders.entry((feed, sender)).or_insert(Turn { round: now, taken: 0, waiting: 0 });
        if turn.round < now {
            (turn.round, turn.taken) = (now, 0);
        }
        if turn.taken >= Dispatch::TURN {
            (turn.round, turn.taken) = (turn.round + 1, 0);
        }
        turn.taken += 1;
        turn.waiting += 1;
        turn.round
    }

    fn forget(&mut self, Waiting { message, sender, .. }: Waiting) {
        let Some((_, feed)) = self.spots.remove(&message.id) else { return };
        self.queued_ns[feed] -= message.expected.as_nanos();
        let Some(key) = sender.map(|sender| (feed, sender)) else { return };
        if let Some(turn) = self.senders.get_mut(&key) {
            turn.waiting -= 1;
            if turn.waiting == 0 {
                self.senders.remove(&key);
            }
        }
    }

    /// Whether some worker scans a message that went before all smaller ones. Only one worker at a time does: near saturation all large mail is
    /// overdue, and if every worker took it first, small mail would wait longer than in order of arrival. A scan that takes
    /// longer than expected no longer counts, because a stuck worker must not keep other large mail waiting.
    fn one_scans_overdue(&self, now: Instant) -> bool {
        self.workers.iter().any(|worker| matches!(worker, Worker::Busy { overdue: true, until } if *until >= now))
    }

    fn start(&mut self, worker: WorkerId, waiting: Waiting, now: Instant, overdue: bool) -> Started {
        self.workers[worker.0] = Worker::Busy { until: now + waiting.message.expected, overdue };
        Started { worker, message: waiting.message, waited: now.since(waiting.arrived) }
    }

    fn idle_worker(&self, feed: usize) -> Option<WorkerId> {
        let mut workers = self.of_feed.get(feed)?.clone();
        workers.find(|w| self.workers[*w] == Worker::Idle).map(WorkerId)
    }

    /// Now, plus the feed's expected work shared by its workers.
    fn expected_empty(&self, feed: usize, now: Instant) -> u64 {
        let workers = &self.workers[self.of_feed[feed].clone()];
        let running: u128 = workers.iter().map(|worker| u128::from(worker.remaining_ns(now))).sum();
        let share = (running + self.queued_ns[feed]) / workers.len() as u128;
        now.0.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl Worker {
    /// A scan that is late is expected to take as long again as it is late, so that a stuck worker attracts no mail.
    fn remaining_ns(self, now: Instant) -> u64 {
        match self {
            Worker::Idle => 0,
            Worker::Busy { until, .. } => until.0.abs_diff(now.0),
        }
    }
}

fn empty_line(plan: &Plan) -> WaitingLine<Waiting> {
    let age_bound = match plan.strategy {
        Strategy::Shortest => plan.age_bound,
        // First come, first served within a feed.
        Strategy::Size | Strategy::SizeLoad => Duration::ZERO,
    };
    WaitingLine::new(plan.limits.feeds(), age_bound)
}

/// Why feeds cannot be set up or changed in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchError {
    /// The plan has `feeds` feeds, but so many were given.
    FeedCount {
        /// Feeds in the plan.
        feeds: usize,
        /// Feeds given.
        given: usize,
    },
    /// A feed (from 0) has no worker, or more than [`Dispatch::WORKERS_MAX`].
    WorkerCount {
        /// Which feed.
        feed: usize,
    },
}

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DispatchError::FeedCount { feeds, given } => write!(f, "the plan has {feeds} feeds, not {given}"),
            DispatchError::WorkerCount { feed } => {
                write!(f, "feed {} needs 1 to {} workers", feed + 1, Dispatch::WORKERS_MAX)
            }
        }
    }
}

impl core::error::Error for DispatchError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which one worker scans the messages that came while it was busy, by their ids.
    fn order(strategy: Strategy, arrivals: &[(u64, u64, u64)]) -> Vec<u64> {
        let plan = Plan::new(Limits::new(vec![1000]).unwrap(), strategy);
        let mut dispatch = Dispatch::new(plan, &[1, 1], usize::MAX).unwrap();
        let message = |id, size| Message { id: MessageId(id), size, expected: Duration::from_secs(1) };
        assert_eq!(dispatch.arrive(message(u64::MAX, 1), Instant(0)), Placed::Started(WorkerId(0)));
        for (id, sender, size) in arrivals {
            let placed = dispatch.arrive_from(SenderId(*sender), message(*id, *size), Instant(1));
            assert_eq!(placed, Placed::Waits(0));
        }
        assert_eq!(dispatch.backlog()[0], Backlog { waiting: arrivals.len(), oldest: Some(Instant(1)) });
        let order = core::iter::from_fn(|| dispatch.free(WorkerId(0), Instant(2)).map(|s| s.message.id.0)).collect();
        assert!(dispatch.senders.is_empty(), "nothing is remembered of senders without mail");
        order
    }

    #[test]
    fn a_flood_of_one_sender_delays_another_by_one_turn() {
        let flood = (0..500).map(|id| (id, 7, 10));
        let arrivals: Vec<_> = flood.chain([(900, 8, 999), (901, 8, 998)]).collect();
        for strategy in [Strategy::Size, Strategy::SizeLoad, Strategy::Shortest] {
            let order = order(strategy, &arrivals);
            let place = |id| order.iter().position(|o| *o == id).unwrap();
            assert!(place(900) <= 18 && place(901) <= 18, "{strategy:?}: {} {}", place(900), place(901));
            assert_eq!(order.len(), 502);
        }
    }

    #[test]
    fn within_a_turn_the_strategy_decides() {
        let arrivals = [(1, 7, 30), (2, 7, 10), (3, 8, 20)];
        assert_eq!(order(Strategy::Shortest, &arrivals), [2, 3, 1]);
        assert_eq!(order(Strategy::SizeLoad, &arrivals), [1, 2, 3]);
    }
}
