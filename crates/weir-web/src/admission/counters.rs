//! Counters of one backend's queue: requests that asked, were let through, refused and so on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::fair::Weight;

use super::ask::AdmissionRefusal;

/// Upper bounds of the classes by which waits are counted, in milliseconds; the last class has none.
pub const WAIT_BOUNDS_MS: [u64; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 30_000];

/// Classes of subnets by their history, compared with the average.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum History {
    None = 0,
    /// Less than the average.
    Below = 1,
    /// The average or more.
    Above = 2,
}

impl History {
    /// All classes, in the order of the counters.
    pub const ALL: [History; 3] = [History::None, History::Below, History::Above];

    /// The class in one word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            History::None => "none",
            History::Below => "below",
            History::Above => "above",
        }
    }

    pub(super) fn of(history: Option<Weight>) -> History {
        match history {
            None => History::None,
            Some(weight) if weight < Weight::ONE => History::Below,
            Some(_) => History::Above,
        }
    }
}

/// Counts, behind the queue's lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) asked: u64,
    pub(super) left: u64,
    pub(super) reports_refused: u64,
    values: CounterValues,
}

/// Totals since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebCounters")]
pub struct CounterValues {
    /// Requests that asked for a slot.
    pub asked: u64,
    /// Requests that got one.
    pub dispatched: u64,
    /// Requests that had to wait for theirs.
    pub waited: u64,
    pub finished: u64,
    /// Requests whose client left while they waited.
    pub left: u64,
    /// Requests that were refused, by reason, in the order of [`AdmissionRefusal::ALL`].
    pub refused: [u64; AdmissionRefusal::ALL.len()],
    /// Waits by class, see [`WAIT_BOUNDS_MS`].
    pub waits: [u64; 13],
    /// All waits together, in seconds.
    pub wait_s: f64,
    /// Slot time of all requests together, in seconds.
    pub service_s: f64,
    /// Requests that ended, by the history of their subnet, in the order of [`History::ALL`].
    pub finished_by_history: [u64; History::ALL.len()],
    /// Their slot time, in seconds.
    pub service_by_history_s: [f64; History::ALL.len()],
    /// Slot time of all requests together by standing, in seconds: known visitors, newcomers, strangers.
    #[serde(default)]
    pub service_by_standing_s: [f64; 3],
    /// Requests that were dispatched earlier than first come, first served would have.
    pub sooner: u64,
    /// By how much, in seconds.
    pub sooner_s: f64,
    /// Requests that were dispatched later than first come, first served would have.
    pub later: u64,
    /// By how much, in seconds.
    pub later_s: f64,
    /// Reports of other front-ends for which the tables had no room.
    pub reports_refused: u64,
}

/// A shorter wait does not count as one, because the slot was free at once.
const WAIT_LEAST_NS: u64 = 1_000;
/// Smaller differences do not count as a change of order.
const SHIFT_LEAST_NS: i64 = 1_000_000;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Counters {
    #[inline]
    pub(super) fn dispatch(&mut self, wait_ns: u64, fcfs_ns: u64) {
        self.values.dispatched += 1;
        if wait_ns < WAIT_LEAST_NS && fcfs_ns == 0 {
            self.values.waits[0] += 1;
            return;
        }
        self.waited(wait_ns, fcfs_ns);
    }

    fn waited(&mut self, wait_ns: u64, fcfs_ns: u64) {
        let values = &mut self.values;
        let class = WAIT_BOUNDS_MS.iter().position(|bound| wait_ns <= bound * 1_000_000);
        values.waits[class.unwrap_or(WAIT_BOUNDS_MS.len())] += 1;
        values.waited += 1;
        values.wait_s += seconds(wait_ns);
        let shift_ns = wait_ns as i64 - fcfs_ns as i64;
        if shift_ns > SHIFT_LEAST_NS {
            values.later += 1;
            values.later_s += seconds(shift_ns.unsigned_abs());
        } else if shift_ns < -SHIFT_LEAST_NS {
            values.sooner += 1;
            values.sooner_s += seconds(shift_ns.unsigned_abs());
        }
    }

    pub(super) fn finish(&mut self, took_ns: u64, history: History, standing: usize) {
        self.values.finished += 1;
        self.values.service_s += seconds(took_ns);
        self.values.finished_by_history[history as usize] += 1;
        self.values.service_by_history_s[history as usize] += seconds(took_ns);
        if let Some(service_s) = self.values.service_by_standing_s.get_mut(standing) {
            *service_s += seconds(took_ns);
        }
    }

    pub(super) fn refuse(&mut self, refused: AdmissionRefusal) {
        let at = AdmissionRefusal::ALL.iter().position(|known| *known == refused).unwrap_or(0);
        self.values.refused[at] += 1;
    }

    pub(super) fn values(&self) -> CounterValues {
        CounterValues {
            asked: self.asked,
            left: self.left,
            reports_refused: self.reports_refused,
            ..self.values.clone()
        }
    }
}
