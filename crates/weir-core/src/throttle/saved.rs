//! The state of a throttle as plain data, for storing it; a restart changes nothing.

use super::delay_queue::DelayQueue;
use super::lane::{Lane, SavedLane};
use super::periods::Periods;
use super::working_set::WorkingSet;
use super::{Entry, EntryId, LaneId, Params, ParamsError, RecipientKey, Released, State, Stop, Throttle, Today};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// All state of a [`Throttle`] as plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The last `now`.
    pub now: Instant,
    /// When the current period of single mail ends.
    pub single_period_end: Instant,
    /// When the current period of multiple mail ends.
    pub multi_period_end: Instant,
    /// Slack left.
    pub slack: u32,
    /// Multi-slack left.
    pub multi_slack: u32,
    /// The working set; the next to leave comes first.
    pub working_set: Vec<RecipientKey>,
    /// The delay queue in order.
    pub queue: Vec<Entry>,
    /// The id of the next entry to be held.
    pub next_entry: EntryId,
    /// Whether the user is stopped.
    pub stopped: Option<Stop>,
    /// How often a stop has begun or ended.
    pub situation: u32,
    /// Whether the queue only shows what would wait; then nobody is stopped.
    pub learning: bool,
    /// Counters of the day's caps.
    pub today: Today,
    /// Entries that were released and not yet returned.
    pub released: Vec<Released>,
    /// The lanes of [`LaneId::WIDER`]; none where they were never needed.
    pub wider: Option<[SavedLane; 3]>,
}

impl Throttle {
    /// All state, to be stored.
    pub fn export(&self) -> Saved {
        let (single_period_end, multi_period_end) = self.periods.ends();
        Saved {
            now: self.now,
            single_period_end,
            multi_period_end,
            slack: self.slack,
            multi_slack: self.multi_slack,
            working_set: self.working_set.keys().to_vec(),
            queue: self.queue.iter().copied().collect(),
            next_entry: EntryId(self.next_entry),
            stopped: self.stopped(),
            situation: self.situation,
            learning: self.is_learning(),
            today: self.today,
            released: self.released.clone(),
            wider: self.wider.as_ref().map(|lanes| [lanes[0].save(), lanes[1].save(), lanes[2].save()]),
        }
    }

    /// The throttle as it was exported. With other parameters, anything beyond them is cut.
    pub fn restore(params: impl Into<Arc<Params>>, saved: Saved) -> Result<Throttle, ParamsError> {
        let params = params.into();
        params.check()?;
        let wider = saved.wider.map(|lanes| {
            let mut ids = LaneId::WIDER.into_iter();
            Box::new(lanes.map(|lane| Lane::restore(&params.lane(ids.next().unwrap_or_default()), saved.now, lane)))
        });
        let mut throttle = Throttle {
            now: saved.now,
            periods: Periods::restore(&params, saved.now, (saved.single_period_end, saved.multi_period_end)),
            slack: saved.slack.min(params.max_slack),
            multi_slack: saved.multi_slack.min(params.max_multi_slack),
            working_set: WorkingSet::restore(&saved.working_set, &params),
            queue: DelayQueue::restore(saved.queue),
            wider,
            next_entry: saved.next_entry.0,
            state: State::Open,
            situation: saved.situation,
            today: saved.today,
            released: saved.released,
            params,
        };
        let unused = throttle.newest().map_or(0, |id| id.0.saturating_add(1));
        throttle.next_entry = throttle.next_entry.max(unused);
        throttle.state = match saved.stopped.filter(|_| !throttle.nothing_waits()) {
            _ if saved.learning => State::Learning,
            Some(stop) => State::Stopped(stop),
            None => State::Open,
        };
        throttle.check_invariants();
        Ok(throttle)
    }

    /// Uses `params` from now on: anything beyond them is cut, and a period that is running ends after one
    /// new period at the latest. A queue that is over a lower threshold stops the user when the next entry joins it.
    /// With parameters out of bounds nothing changes.
    pub fn reparameterise(&mut self, params: impl Into<Arc<Params>>) -> Result<(), ParamsError> {
        let params = params.into();
        params.check()?;
        self.periods = Periods::restore(&params, self.now, self.periods.ends());
        self.slack = self.slack.min(params.max_slack);
        if !planted(Mutant::ThrottleKeepsOldMultiSlack) {
            self.multi_slack = self.multi_slack.min(params.max_multi_slack);
        }
        self.working_set = WorkingSet::restore(self.working_set.keys(), &params);
        for (lane, id) in self.wider.iter_mut().flat_map(|lanes| lanes.iter_mut()).zip(LaneId::WIDER) {
            lane.reparameterise(&params.lane(id), self.now);
        }
        self.params = params;
        self.check_invariants();
        Ok(())
    }
}
