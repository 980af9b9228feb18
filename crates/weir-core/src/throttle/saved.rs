//! A throttle as plain data, so that a restart in the middle changes nothing.

use super::delay_queue::DelayQueue;
use super::periods::Periods;
use super::working_set::WorkingSet;
use super::{Entry, EntryId, Params, ParamsError, RecipientKey, Released, State, Stop, Throttle, Today};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
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
    /// The working set, the next to leave first.
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
    /// Released and not yet handed out.
    pub released: Vec<Released>,
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
        }
    }

    /// The throttle as it was exported. With other parameters: what no longer fits them is cut to size.
    pub fn restore(params: impl Into<Arc<Params>>, saved: Saved) -> Result<Throttle, ParamsError> {
        let params = params.into();
        params.check()?;
        let queue = DelayQueue::restore(saved.queue);
        let unused = queue.last().map_or(0, |entry| entry.id.0.saturating_add(1));
        let state = match saved.stopped.filter(|_| !queue.is_empty()) {
            _ if saved.learning => State::Learning,
            Some(stop) => State::Stopped(stop),
            None => State::Open,
        };
        let throttle = Throttle {
            now: saved.now,
            periods: Periods::restore(&params, saved.now, (saved.single_period_end, saved.multi_period_end)),
            slack: saved.slack.min(params.max_slack),
            multi_slack: saved.multi_slack.min(params.max_multi_slack),
            working_set: WorkingSet::restore(&saved.working_set, &params),
            queue,
            next_entry: saved.next_entry.0.max(unused),
            state,
            situation: saved.situation,
            today: saved.today,
            released: saved.released,
            params,
        };
        throttle.check_invariants();
        Ok(throttle)
    }

    /// Uses `params` from now on: what no longer fits them is cut to size, and a period that is running ends after one
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
        self.params = params;
        self.check_invariants();
        Ok(())
    }
}
