//! Measures how fast the queue moves: events per second, counted only while somebody waits. Recent seconds count most.

/// Events in relation to the time in which they could happen. What is this long ago counts half.
const HALF_LIFE_NS: f64 = 10e9;

#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    events: f64,
    busy_ns: f64,
    last_ns: u64,
    busy: bool,
}

impl Rate {
    /// An event happened. While nobody waits, events say nothing about how fast the line is.
    pub(super) fn count(&mut self, now_ns: u64) {
        self.pass(now_ns);
        if self.busy {
            self.events += 1.0;
        }
    }

    /// From now on somebody waits, or nobody does.
    pub(super) fn set_busy(&mut self, busy: bool, now_ns: u64) {
        self.pass(now_ns);
        self.busy = busy;
    }

    /// Events a second, if enough has been seen to tell.
    pub(super) fn per_second(&self) -> Option<f64> {
        (self.busy_ns >= LEAST_NS && self.events >= LEAST_EVENTS).then(|| self.events / (self.busy_ns / 1e9))
    }

    fn pass(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.last_ns) as f64;
        self.last_ns = self.last_ns.max(now_ns);
        // Time in which nobody waited says nothing.
        if self.busy && passed_ns > 0.0 {
            let kept = (-passed_ns / HALF_LIFE_NS).exp2();
            self.events *= kept;
            self.busy_ns = self.busy_ns * kept + passed_ns;
        }
    }
}

const LEAST_NS: f64 = 5e8;
const LEAST_EVENTS: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_time_in_which_somebody_waits_counts() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), None);
        rate.set_busy(true, 0);
        (1..=20).for_each(|tenth| rate.count(tenth * SECOND / 10));
        rate.set_busy(false, 2 * SECOND);
        rate.set_busy(true, 100 * SECOND);
        rate.set_busy(false, 100 * SECOND);
        let seen = rate.per_second().unwrap();
        assert!((9.0..11.0).contains(&seen), "{seen}");
    }

    #[test]
    fn what_happens_while_nobody_waits_does_not_count() {
        let mut rate = Rate::default();
        (1..=100_000).for_each(|event| rate.count(event * 1_000));
        rate.set_busy(true, SECOND);
        (11..=30).for_each(|tenth| rate.count(tenth * SECOND / 10));
        let seen = rate.per_second().unwrap();
        assert!((9.0..11.0).contains(&seen), "{seen}");
    }

    #[test]
    fn the_last_seconds_count_most() {
        let mut rate = Rate::default();
        rate.set_busy(true, 0);
        (1..=100).for_each(|second| rate.count(second * SECOND));
        (1..=400).for_each(|tenth| rate.count(100 * SECOND + tenth * SECOND / 10));
        let seen = rate.per_second().unwrap();
        assert!((8.5..10.5).contains(&seen), "{seen}");
    }
}
