//! The mail throttle of one user: may this mail go now, or must it wait?
//!
//! Mail to recently mailed addresses goes at once; mail to new addresses spends slack or waits in the delay
//! queue, which releases one entry per period. A worm fills the queue faster than it drains; above the stop threshold the user is stopped:
//! nothing more is accepted and the queue stands still until somebody decides.
//!
//! Source: Williamson, *Design, Implementation and Test of an Email Virus Throttle*, section 3, figures 3 and 4. The rules, with what the
//! paper leaves open, are in `docs/algorithms/throttle.md`.
//!
//! Invariants: slacks never exceed their maxima; a stopped user has at least one held entry; entries leave in
//! order of arrival unless a person decides otherwise or a relay is absent; a period that releases an entry grants
//! no slack. The cheap ones are asserted in debug builds (`invariants.rs`).
//!
//! Cost: a decision is a search of the working set (≤ 128 keys) and O(1) more; catching up with any length of
//! time is O(entries released). With two different rates, listing expected times walks the queue. Memory: an
//! idle user at the default takes about 300 bytes, with any parameters less than 2 KiB; an entry takes 24. The
//! queue holds at most `stop_at` entries and the recipients of one more mail, which the shell must bound.
//!
//! Left to the shell: who the user is, what an address is (canonical form, then a keyed hash:
//! [`RecipientKey`]), each recipient at most once per mail, storing held mail under [`EntryId`], notices, locks.

mod absent;
mod class;
mod clock_jump;
mod crowd;
mod decision;
mod delay_queue;
mod fences;
mod invariants;
mod lane;
mod learning;
mod mail;
mod params;
mod periods;
mod saved;
mod working_set;

pub use class::{Class, LaneId, Mail, NetworkKey, Recipient};
pub use crowd::{Crowd, CrowdParams};
pub use decision::{Decision, Held, MailDecision, Released, Stop, StopReason};
pub use delay_queue::{Entry, MailKind};
pub use fences::Today;
pub use lane::SavedLane;
pub use learning::Learned;
pub use params::{ClassParams, PARAMS, Param, ParamKind, Params, ParamsError, Recipients, Replacement};
pub use saved::Saved;

use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use delay_queue::DelayQueue;
use lane::{Lane, short};
use params::LaneParams;
use periods::Periods;
use working_set::WorkingSet;

/// A recipient, as the shell hashed its canonical address with a secret: equal addresses, equal keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecipientKey(pub u64);

/// An entry of a user's delay queue: one recipient of one mail. Never used twice for a user; ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub u64);

/// One user's throttle. Every method that takes `now` first does what was due until then; entries that are released by this
/// are returned by the next [`Throttle::advance`]. A `now` before an earlier one counts as the earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Throttle {
    params: Arc<Params>,
    now: Instant,
    periods: Periods,
    slack: u32,
    multi_slack: u32,
    working_set: WorkingSet,
    queue: DelayQueue,
    /// The lanes of [`LaneId::WIDER`], from the first time that one of them is needed.
    wider: Option<Box<[Lane; 3]>>,
    next_entry: u64,
    state: State,
    situation: u32,
    today: Today,
    released: Vec<Released>,
}

impl Throttle {
    /// The throttle of a user first seen at `now`: full slack, nobody known, periods counted from `now`. Users with
    /// the same parameters should share one `Arc` of them.
    pub fn new(params: impl Into<Arc<Params>>, now: Instant) -> Result<Throttle, ParamsError> {
        let params = params.into();
        params.check()?;
        Ok(Throttle {
            periods: Periods::new(&params, now),
            slack: params.max_slack,
            multi_slack: params.max_multi_slack,
            now,
            working_set: WorkingSet::restore(&[], &params),
            queue: DelayQueue::default(),
            wider: None,
            next_entry: 0,
            state: State::Open,
            situation: 0,
            today: Today::default(),
            released: Vec::new(),
            params,
        })
    }

    /// Decides about a mail to these recipients, each named once, by the paper's rules alone. Only simulations use it; mail goes through
    /// [`Throttle::submit_mail`]. A mail to nobody is accepted and changes nothing.
    pub fn submit(&mut self, now: Instant, to: &[RecipientKey]) -> Decision {
        self.catch_up(now);
        if self.stopped().is_some() {
            return Decision::Refused;
        }
        self.end_learning();
        let decision = self.accept(to);
        self.check_invariants();
        decision
    }

    /// Puts these strangers into the delay queue whatever slack there is, also while the user is stopped, because mail that has
    /// been accepted must wait somewhere. Too many of them stop the user.
    pub fn enqueue(&mut self, now: Instant, recipients: &[RecipientKey], kind: MailKind) -> Vec<Held> {
        let to: Vec<Recipient> = recipients.iter().copied().map(Recipient::stranger).collect();
        self.enqueue_mail(now, &to, kind)
    }

    /// A mail of a user who is not stopped.
    fn accept(&mut self, to: &[RecipientKey]) -> Decision {
        let new = || to.iter().filter(|key| !self.working_set.contains(**key)).count();
        let new = if self.params.is_fenced() { new() } else { 0 };
        let fence = self.count_today(to.len(), new);
        let at_once = match to {
            _ if fence.is_some() => 0,
            [one] => usize::from(self.pass_single(*one)),
            many => self.pass_multi(many.len()),
        };
        let waiting = self.queue.len();
        self.hold(to, at_once);
        let stopped = fence.or(self.over_threshold(waiting));
        if let Some(reason) = stopped {
            self.enter_stop(reason);
        }
        Decision::Accepted { at_once, held: self.held_from(waiting).collect(), stopped }
    }

    /// Moves to `now` and returns all entries released since the last call, in order: they are to be sent.
    pub fn advance(&mut self, now: Instant) -> Vec<Released> {
        self.catch_up(now);
        self.check_invariants();
        core::mem::take(&mut self.released)
    }

    /// When to call [`Throttle::advance`]; none while nothing waits or the user is stopped.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.released.is_empty() {
            return Some(self.now);
        }
        if self.state != State::Open {
            return None;
        }
        let head = self.queue.head().map(|head| self.periods.end(head.kind));
        head.into_iter().chain(self.lanes().filter_map(Lane::next_deadline)).min()
    }

    /// A person releases an entry at once: no slack is used, and the address is known from now on if its mail
    /// had one recipient. False if it is not held (any more).
    pub fn release(&mut self, now: Instant, entry: EntryId) -> bool {
        let Some(entry) = self.decide(now, entry) else { return false };
        self.mailed(entry);
        true
    }

    /// A person deletes an entry. False if it is not held (any more).
    pub fn delete(&mut self, now: Instant, entry: EntryId) -> bool {
        self.decide(now, entry).is_some()
    }

    /// A person stops the user: no waiting entry is released. False if nothing waits (then the shell's own lock is enough), or if the user is
    /// already stopped.
    pub fn stop(&mut self, now: Instant) -> bool {
        self.catch_up(now);
        let stops = self.state == State::Open && !self.nothing_waits();
        if stops {
            self.enter_stop(StopReason::Person);
        }
        stops
    }

    /// A person ends the stop: mail is accepted again, the queue goes on draining, and the day's caps start to count again (also if
    /// the stop has ended with its last entry). The threshold stays: while more than `stop_at` entries wait, the next
    /// one held stops the user again. False if the user was not stopped.
    pub fn unlock(&mut self, now: Instant) -> bool {
        self.catch_up(now);
        let stopped = self.stopped().is_some();
        if stopped {
            self.leave_stop();
        }
        self.today.forgive();
        stopped
    }

    /// The held entries, in order, with the time at which each will be released if nothing else happens.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        let mut held: Vec<Held> = self.held_from(0).chain(self.held_in_lanes()).take(self.held_count()).collect();
        held.sort_unstable_by_key(|held| held.entry);
        held.into_iter()
    }

    /// To whom an entry goes, and in which lane it waits, while it is held.
    pub fn entry(&self, id: EntryId) -> Option<(RecipientKey, LaneId)> {
        let mut queues = core::iter::once(&self.queue).chain(self.lanes().map(|lane| &lane.queue));
        queues.find_map(|queue| queue.find(id)).map(|entry| (entry.recipient, entry.lane))
    }

    /// How many entries wait in a lane.
    pub fn waiting_in(&self, lane: LaneId) -> usize {
        match lane {
            _ if self.is_learning() => 0,
            LaneId::Strangers => self.queue.len(),
            _ => self.lane(lane).map_or(0, |lane| lane.queue.len()),
        }
    }

    /// Whether more than half of what would stop the user waits in one of the lanes.
    pub fn is_half_full(&self) -> bool {
        let over_half = |lane: LaneId, stop_at: u32| self.waiting_in(lane) * 2 > stop_at as usize;
        let wider = LaneId::WIDER.into_iter().any(|lane| over_half(lane, self.params.lane(lane).stop_at));
        over_half(LaneId::Strangers, self.params.stop_at) || wider
    }

    /// The slack that a wider lane has left.
    pub fn slack_of(&self, lane: LaneId) -> u32 {
        self.lane(lane).map_or(self.params.lane(lane).slack, Lane::slack)
    }

    /// How many entries are held.
    pub fn held_count(&self) -> usize {
        if self.is_learning() { 0 } else { self.queue.len() + self.lanes().map(|lane| lane.queue.len()).sum::<usize>() }
    }

    /// Why and since when the user is stopped.
    pub fn stopped(&self) -> Option<Stop> {
        match self.state {
            State::Open | State::Learning => None,
            State::Stopped(stop) => Some(stop),
        }
    }

    /// A number that changes whenever a stop begins or ends. A permission to decide that was given in one situation is not valid in the
    /// next, because a worm's mail may wait by then behind the harmless mail that was shown.
    pub fn situation(&self) -> u32 {
        self.situation
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    fn catch_up(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(head) = self.due() {
            let at = self.periods.end(head.kind);
            // The periods of both kinds that end at this instant are used up by this one entry.
            self.periods.pass(at);
            self.queue.pop();
            self.let_go(head, at);
        }
        let stopped = self.stopped().is_some();
        let shared = self.periods.ends_together(self.now, self.shared_slack());
        let (single, multi) = self.periods.pass(self.now);
        if self.queue.is_empty() && !stopped {
            self.slack = grown(self.slack, single, self.params.max_slack);
            self.multi_slack = grown(self.multi_slack, multi - shared, self.params.max_multi_slack);
        }
        if let Some(mut lanes) = self.wider.take() {
            self.catch_up_lanes(&mut lanes, stopped);
            self.wider = Some(lanes);
        }
    }

    /// How much slack for single mail is missing, if a period that grants it does not grant slack for mail to several as well. In the paper
    /// a period grants one of each, so a sender who alternates reaches two strangers a period for ever; `alike` is the paper's way.
    fn shared_slack(&self) -> u32 {
        let paper = self.params.recipients == Recipients::Alike || planted(Mutant::ThrottlePeriodGivesBothSlacks);
        if paper { 0 } else { self.params.max_slack.saturating_sub(self.slack) }
    }

    fn catch_up_lanes(&mut self, lanes: &mut [Lane; 3], stopped: bool) {
        for (lane, id) in lanes.iter_mut().zip(LaneId::WIDER) {
            let params = self.params.lane(id);
            while let Some((entry, at)) = Some(()).filter(|()| !stopped).and_then(|()| lane.pop_due(self.now)) {
                self.let_go(entry, at);
                lane.remember(key_in_lane(&entry), &params);
            }
            lane.pass(self.now, &params, stopped);
        }
        self.released.sort_by_key(|released| (released.at, released.entry));
    }

    /// An entry has left its lane because its time had come.
    fn let_go(&mut self, entry: Entry, at: Instant) {
        if !self.is_learning() {
            self.released.push(Released { entry: entry.id, recipient: entry.recipient, lane: entry.lane, at });
        }
        self.mailed(entry);
    }

    fn enter_stop(&mut self, reason: StopReason) {
        self.state = State::Stopped(Stop { since: self.now, reason });
        if !planted(Mutant::ThrottleStopKeepsTheSituation) {
            self.situation = self.situation.wrapping_add(1);
        }
    }

    fn leave_stop(&mut self) {
        self.state = State::Open;
        self.situation = self.situation.wrapping_add(1);
    }

    /// The head of the queue, if its period has ended.
    fn due(&self) -> Option<Entry> {
        let head = self.queue.head().filter(|_| self.stopped().is_none())?;
        (self.periods.end(head.kind) <= self.now).then_some(head)
    }

    /// Counts a mail to this many recipients, of whom this many are new; returns the cap that it passes.
    fn count_today(&mut self, recipients: usize, new: usize) -> Option<StopReason> {
        if !self.params.is_fenced() || recipients == 0 {
            return None;
        }
        self.today.count(self.now, u32::try_from(new).unwrap_or(u32::MAX), &self.params)
    }

    fn pass_single(&mut self, to: RecipientKey) -> bool {
        if self.working_set.hit(to, self.params.replacement) {
            return true;
        }
        let Some(rest) = self.slack.checked_sub(1) else { return false };
        self.slack = rest;
        self.working_set.insert(to, &self.params);
        true
    }

    fn pass_multi(&mut self, recipients: usize) -> usize {
        let at_once = self.multi_slack.min(u32::try_from(recipients).unwrap_or(u32::MAX));
        self.multi_slack -= at_once;
        at_once as usize
    }

    fn hold(&mut self, to: &[RecipientKey], at_once: usize) {
        let kind = if to.len() == 1 { MailKind::Single } else { MailKind::Multi };
        to.iter().skip(at_once).for_each(|recipient| self.push(*recipient, kind));
    }

    fn push(&mut self, recipient: RecipientKey, kind: MailKind) {
        let (network, lane) = (NetworkKey::default(), LaneId::Strangers);
        self.queue.push(Entry { id: EntryId(self.next_entry), recipient, network, kind, lane });
        self.next_entry = self.next_entry.saturating_add(1);
    }

    /// The stop threshold of the delay queue. The paper checks the length "every time a message is added", and only then.
    fn over_threshold(&self, before: usize) -> Option<StopReason> {
        let (length, stop_at) = (self.queue.len(), self.params.stop_at as usize);
        let over = if planted(Mutant::ThrottleStopsAtThreshold) { length >= stop_at } else { length > stop_at };
        (over && length > before).then_some(StopReason::DelayQueue)
    }

    fn decide(&mut self, now: Instant, entry: EntryId) -> Option<Entry> {
        self.catch_up(now);
        if self.is_learning() {
            return None;
        }
        let entry = self.take(entry)?;
        if self.nothing_waits() && self.stopped().is_some() {
            self.leave_stop();
        }
        self.check_invariants();
        Some(entry)
    }

    /// An entry has been sent, by its time or because a person decided so: its recipient and its network are known from now on.
    fn mailed(&mut self, entry: Entry) {
        let stranger = matches!(entry.lane, LaneId::Strangers | LaneId::Networks);
        if stranger && entry.kind == MailKind::Single {
            self.working_set.insert(entry.recipient, &self.params);
        }
        let params = self.params.lane(entry.lane);
        if let (Some(place), Some(lanes)) = (entry.lane.wider(), &mut self.wider) {
            lanes[place].remember(key_in_lane(&entry), &params);
        }
    }

    /// Takes an entry out of its lane.
    fn take(&mut self, entry: EntryId) -> Option<Entry> {
        self.queues_mut().find_map(|queue| queue.take(entry))
    }

    fn queues_mut(&mut self) -> impl Iterator<Item = &mut DelayQueue> {
        let wider = self.wider.iter_mut().flat_map(|lanes| lanes.iter_mut()).map(|lane| &mut lane.queue);
        core::iter::once(&mut self.queue).chain(wider)
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.wider.iter().flat_map(|lanes| lanes.iter())
    }

    fn clear_queues(&mut self) {
        self.queues_mut().for_each(DelayQueue::clear);
    }

    /// Whether every line is empty.
    fn nothing_waits(&self) -> bool {
        self.queue.is_empty() && self.lanes().all(|lane| lane.queue.is_empty())
    }

    /// The newest entry that waits.
    fn newest(&self) -> Option<EntryId> {
        let wider = self.lanes().filter_map(Lane::last_id).max();
        self.queue.last().map(|entry| entry.id).max(wider)
    }

    /// Entries from place `first` on. The first of them is released at the end of a period of its kind that comes
    /// after the entry before it has gone.
    fn held_from(&self, first: usize) -> impl Iterator<Item = Held> {
        let shortcut = first.checked_sub(1).and_then(|before| self.periods.nth_end(before));
        let skipped = if shortcut.is_some() { first } else { 0 };
        let stopped = self.stopped().is_some();
        let mut last = shortcut;
        let held = self.queue.iter().skip(skipped).map(move |entry| {
            let at = match last {
                None => self.periods.end(entry.kind),
                Some(before) => self.periods.end_after(entry.kind, before),
            };
            last = Some(at);
            Held { entry: entry.id, expected_at: (!stopped).then_some(at) }
        });
        held.skip(first - skipped)
    }
}

/// Open → Stopped: a mail is held and the queue is over the threshold, a day's cap is passed, or a person stops the user while
/// something waits.
/// Stopped → Open: the last entry is decided, or a person unlocks.
/// Open → Learning: a mail is only learned from while nothing waits.
/// Learning → Open: a mail is submitted; the entries that only would have waited are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The entries of the queue stand for no held mail: they would wait if the throttle held mail.
    Learning,
    Stopped(Stop),
}

/// The key under which a lane remembers an entry: its network, or its recipient.
fn key_in_lane(entry: &Entry) -> u32 {
    if entry.lane == LaneId::Networks { entry.network.0 } else { short(entry.recipient) }
}

fn grown(slack: u32, periods: u64, max: u32) -> u32 {
    slack.saturating_add(u32::try_from(periods).unwrap_or(u32::MAX)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::time::Duration;

    fn throttle(params: Params) -> Throttle {
        Throttle::new(params, Instant::ZERO).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn keys(from: u64, count: u64) -> Vec<RecipientKey> {
        (from..from + count).map(RecipientKey).collect()
    }

    /// (sent at once, held, stopped)
    fn counts(decision: &Decision) -> (usize, usize, bool) {
        match decision {
            Decision::Accepted { at_once, held, stopped } => (*at_once, held.len(), stopped.is_some()),
            Decision::Refused => panic!("refused"),
        }
    }

    #[test]
    fn slack_then_the_queue_then_the_working_set() {
        let mut user = throttle(Params::default());
        assert_eq!(counts(&user.submit(at(1), &keys(1, 1))), (1, 0, false), "slack");
        let held = vec![Held { entry: EntryId(0), expected_at: Some(at(60)) }];
        assert_eq!(user.submit(at(2), &keys(2, 1)), Decision::Accepted { at_once: 0, held, stopped: None });
        assert_eq!(counts(&user.submit(at(3), &keys(1, 1))), (1, 0, false), "known");
        assert_eq!(user.next_deadline(), Some(at(60)));
        assert_eq!(user.advance(at(59)), []);
        let released = Released { entry: EntryId(0), recipient: RecipientKey(2), lane: LaneId::Strangers, at: at(60) };
        assert_eq!(user.advance(at(60)), [released]);
        assert_eq!(counts(&user.submit(at(61), &keys(2, 1))), (1, 0, false), "known since its release");
        assert_eq!(counts(&user.submit(at(62), &keys(3, 1))), (0, 1, false), "a period that releases grants no slack");
    }

    #[test]
    fn a_mail_to_many_is_split_and_each_of_the_rest_is_one_entry() {
        let mut user = throttle(Params::default());
        assert_eq!(counts(&user.submit(at(0), &keys(0, 18))), (15, 3, false));
        assert_eq!(user.advance(at(10 * 60)).len(), 3);
        assert_eq!(counts(&user.submit(at(10 * 60), &keys(0, 8))), (7, 1, false), "seven quiet periods, and not known");
    }

    #[test]
    fn more_than_the_threshold_stops_and_the_last_decision_ends_it() {
        let mut user = throttle(Params { stop_at: 2, ..Params::default() });
        assert_eq!(counts(&user.submit(at(0), &keys(0, 17))), (15, 2, false));
        assert_eq!(counts(&user.submit(at(1), &keys(99, 1))), (1, 0, false), "slack is still there");
        assert_eq!(counts(&user.submit(at(2), &keys(98, 1))), (0, 1, true));
        assert_eq!(user.submit(at(3), &keys(99, 1)), Decision::Refused, "even to a known address");
        assert_eq!(user.next_deadline(), None);
        assert_eq!(user.advance(at(1_000)), [], "the queue stands still");
        assert!(user.delete(at(1_000), EntryId(0)) && !user.delete(at(1_000), EntryId(0)));
        assert!(user.release(at(1_000), EntryId(2)));
        assert!(user.stopped().is_some());
        assert!(user.release(at(1_000), EntryId(1)));
        assert_eq!(user.stopped(), None);
        assert_eq!(counts(&user.submit(at(1_001), &keys(98, 1))), (1, 0, false), "released, hence known");
        assert_eq!(counts(&user.submit(at(1_001), &keys(97, 1))), (0, 1, false), "a stop earns no slack");
    }

    #[test]
    fn unlock_drains_on_and_the_threshold_stays() {
        let mut user = throttle(Params { stop_at: 2, max_slack: 0, max_multi_slack: 0, ..Params::default() });
        assert_eq!(counts(&user.submit(at(0), &keys(0, 4))), (0, 4, true));
        assert!(user.unlock(at(30)) && !user.unlock(at(30)));
        assert_eq!(user.held().map(|h| h.expected_at).collect::<Vec<_>>(), [60, 120, 180, 240].map(|s| Some(at(s))));
        assert_eq!(user.advance(at(130)).len(), 2);
        assert_eq!(counts(&user.submit(at(131), &keys(9, 1))), (0, 1, true), "three wait: stopped again");
    }

    #[test]
    fn different_rates_each_release_their_own_kind_in_one_order() {
        let params = Params {
            multi_rate_period: Duration::from_secs(25),
            max_slack: 0,
            max_multi_slack: 0,
            ..Params::default()
        };
        let mut user = throttle(params);
        user.submit(at(0), &keys(0, 2));
        user.submit(at(0), &keys(2, 1));
        user.submit(at(0), &keys(3, 2));
        let expected: Vec<_> = user.held().filter_map(|h| h.expected_at).collect();
        assert_eq!(expected, [25, 50, 60, 75, 100].map(at));
        let released: Vec<_> = user.advance(at(500)).iter().map(|r| r.at).collect();
        assert_eq!(released, expected);
    }

    #[test]
    fn years_of_idleness_cost_nothing_and_fill_the_slack() {
        let params = Params { rate_period: Duration::from_millis(1), ..Params::default() };
        let mut user = throttle(params);
        user.submit(at(0), &keys(0, 15));
        assert_eq!(user.advance(at(100 * 365 * 86_400)), []);
        assert_eq!((user.export().slack, user.export().multi_slack), (1, 15));
        user.advance(Instant::NEVER);
        assert_eq!(counts(&user.submit(at(5), &keys(0, 20))), (15, 5, false), "the past counts as now");
    }

    #[test]
    fn a_fence_holds_the_mail_and_stops() {
        let mut user = throttle(Params { messages_a_day: Some(2), ..Params::default() });
        for _ in 0..2 {
            assert_eq!(counts(&user.submit(at(0), &keys(1, 1))), (1, 0, false));
        }
        assert_eq!(counts(&user.submit(at(0), &keys(1, 1))), (0, 1, true));
        assert_eq!(user.stopped().map(|s| s.reason), Some(StopReason::MessagesADay));
        assert!(user.unlock(at(1)));
        assert_eq!(counts(&user.submit(at(2), &keys(1, 1))), (1, 0, false), "counted afresh");
    }

    #[test]
    fn an_idle_user_is_small_whatever_the_parameters() {
        let largest = Params { working_set: 128, stop_at: 100_000, ..Params::default() };
        let mut user = throttle(largest);
        for key in 0..1_000 {
            user.submit(at(key * 60), &keys(key, 1));
        }
        user.submit(at(60_000), &keys(0, 5_000));
        user.advance(at(60_000 + 5_000 * 60));
        assert_eq!((user.held_count(), user.queue.capacity(), user.released.capacity()), (0, 0, 0));
        assert!(size_of::<Throttle>() + size_of_val(user.working_set.keys()) + 4 * size_of::<Entry>() <= 2048);
        assert!(size_of::<Throttle>() <= 256 && size_of::<Entry>() == 24);
    }
}
