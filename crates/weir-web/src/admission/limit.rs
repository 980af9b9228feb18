//! How many requests the backend should work on at once, found by measuring.
//!
//! Too many requests at once show in the response time: with more requests than the backend can work on, each takes longer than when few
//! run. So the time to the first byte is compared with the time of the same class while at most half of the slots were in use. If it is
//! longer by half, there should be fewer slots; if it is about the same and all slots are in use, more. A backend that is always busy would
//! never show its time without load, so every ten seconds the slots are halved for a moment to measure it (as BBR does for networks).
//! Differences below two milliseconds mean nothing. Follows a backend that loses half of its capacity within seconds.
//!
//! Every subnet has one vote, however much it asks for, and the median of the votes counts: a client that picks cheap requests at one time
//! and expensive ones at another moves nothing but its own vote.
//!
//! Constant time. Time is passed in; whoever calls [`Limit::look`] applies what [`Limit::slots`] says.

use weir_core::fair::SubnetKey;

/// Finds the number of slots.
#[derive(Debug)]
pub(super) struct Limit {
    least: f64,
    most: f64,
    slots: f64,
    phase: Phase,
    window: Window,
    /// When the last measurement without pressure ended, and when the next is due.
    next_probe_ns: u64,
}

/// Steady → Draining (slots halved, until no more run) → Probing (samples are unpressed) → Steady.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Steady,
    Draining { since_ns: u64 },
    Probing { since_ns: u64, samples: u32 },
}

/// What was measured since the last judgement.
#[derive(Clone, Debug, Default)]
struct Window {
    since_ns: u64,
    samples: u32,
    subnets: Vec<SubnetSample>,
    busy: bool,
}

/// The samples of one subnet together: how long they took, and how long they take when the backend is not under pressure.
#[derive(Clone, Copy, Debug)]
struct SubnetSample {
    subnet: SubnetKey,
    took_ns: u64,
    unloaded_ns: u64,
}

/// Subnets that are counted in one window; later ones are not.
const SUBNETS_SAMPLED: usize = 64;

const MS: u64 = 1_000_000;
const WINDOW_NS: u64 = 250 * MS;
const WINDOW_SAMPLES: u32 = 20;
const WINDOW_PATIENCE_NS: u64 = 2_000 * MS;
const PROBE_EVERY_NS: u64 = 10_000 * MS;
const PROBE_NS: u64 = 100 * MS;
const PROBE_SAMPLES: u32 = 16;
const PROBE_PATIENCE_NS: u64 = 2_000 * MS;
/// A probe may cost half of the slots for at most this share of the time: one in ten.
const PROBE_REST: u64 = 10;
/// Shorter times count as this: scheduling noise is not a sign of pressure.
const NOISE_NS: u64 = 2 * MS;

impl Limit {
    /// Starts at `start` slots, and stays between `least` and `most`.
    pub(super) fn new(start: u32, least: u32, most: u32) -> Limit {
        let (least, most) = (f64::from(least.max(1)), f64::from(most.max(least).max(1)));
        Limit {
            least,
            most,
            slots: f64::from(start).clamp(least, most),
            phase: Phase::Steady,
            window: Window::default(),
            next_probe_ns: 0,
        }
    }

    /// How many slots there should be now.
    pub(super) fn slots(&self) -> u32 {
        match self.phase {
            Phase::Steady => self.slots as u32,
            Phase::Draining { .. } | Phase::Probing { .. } => self.halved(),
        }
    }

    fn halved(&self) -> u32 {
        ((self.slots / 2.0) as u32).max(1)
    }

    /// Whether a request that is dispatched while `running` others run counts as unpressed.
    pub(super) fn is_unloaded(&self, running: u32) -> bool {
        running < self.halved()
    }

    /// A request that was dispatched to an unpressed backend was answered.
    pub(super) fn answered_unloaded(&mut self) {
        if let Phase::Probing { samples, .. } = &mut self.phase {
            *samples += 1;
        }
    }

    /// A request was answered `took_ns` after its dispatch; `unpressed_ns` is what its class takes on a backend that is not under pressure.
    pub(super) fn answered(&mut self, subnet: SubnetKey, took_ns: u64, unloaded_ns: u64) {
        let (took_ns, unloaded_ns) = (took_ns.max(NOISE_NS), unloaded_ns.max(NOISE_NS));
        self.window.hear(SubnetSample { subnet, took_ns, unloaded_ns });
    }

    /// Evaluates what was measured; call it about every 100 ms. `running` is how many run, `waiting` whether any wait.
    pub(super) fn look(&mut self, now_ns: u64, running: u32, waiting: bool) {
        let busy = waiting || running >= self.slots();
        match self.phase {
            Phase::Steady => self.look_steady(now_ns, busy),
            Phase::Draining { since_ns } => {
                if running <= self.halved() || now_ns > since_ns + PROBE_PATIENCE_NS {
                    self.phase = Phase::Probing { since_ns: now_ns, samples: 0 };
                }
            }
            Phase::Probing { since_ns, samples } => {
                let seen = samples >= PROBE_SAMPLES && now_ns >= since_ns + PROBE_NS;
                if seen || now_ns > since_ns + PROBE_PATIENCE_NS {
                    self.end_probe(now_ns, now_ns.saturating_sub(since_ns));
                }
            }
        }
    }

    fn end_probe(&mut self, now_ns: u64, took_ns: u64) {
        self.phase = Phase::Steady;
        self.window = Window { since_ns: now_ns, ..Window::default() };
        self.next_probe_ns = now_ns + PROBE_EVERY_NS.max(took_ns.saturating_mul(PROBE_REST));
    }

    fn look_steady(&mut self, now_ns: u64, busy: bool) {
        self.window.busy |= busy;
        let age_ns = now_ns.saturating_sub(self.window.since_ns);
        let enough = age_ns >= WINDOW_NS && self.window.samples >= WINDOW_SAMPLES;
        if enough || age_ns >= WINDOW_PATIENCE_NS {
            self.judge();
            let busy = self.window.busy;
            self.window = Window { since_ns: now_ns, ..Window::default() };
            if busy && now_ns >= self.next_probe_ns {
                self.phase = Phase::Draining { since_ns: now_ns };
            }
        }
    }

    fn judge(&mut self) {
        let busy = self.window.busy;
        let slots = match self.window.stretch() {
            s if s > 2.0 => self.slots * 0.7,
            s if s > 1.5 => self.slots * 0.9,
            s if s < 1.2 && busy => self.slots + (self.slots * 0.1).max(1.0),
            _ => self.slots,
        };
        self.slots = slots.clamp(self.least, self.most);
    }
}

impl Window {
    fn hear(&mut self, sample: SubnetSample) {
        self.samples += 1;
        if let Some(known) = self.subnets.iter_mut().find(|known| known.subnet == sample.subnet) {
            known.took_ns = known.took_ns.saturating_add(sample.took_ns);
            known.unloaded_ns = known.unloaded_ns.saturating_add(sample.unloaded_ns);
        } else if self.subnets.len() < SUBNETS_SAMPLED {
            self.subnets.push(sample);
        }
    }

    /// How many times longer than without pressure it takes, by the median of the subnets.
    fn stretch(&self) -> f64 {
        let of = |sample: &SubnetSample| sample.took_ns as f64 / sample.unloaded_ns.max(1) as f64;
        let mut all: Vec<f64> = self.subnets.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::{Class, Estimates};
    use super::*;
    use http::Method;
    use std::time::Duration;

    const HERE: SubnetKey = SubnetKey(1);

    /// A backend of some workers behind a queue of its own, which always has more requests: `slots` of them are with it.
    struct Backend {
        limit: Limit,
        estimates: Estimates,
        now_ns: u64,
    }

    impl Backend {
        fn new(start: u32) -> Backend {
            let estimates = Estimates::new(1, Duration::from_millis(50), Duration::from_secs(5));
            Backend { limit: Limit::new(start, 1, 1_000), estimates, now_ns: 0 }
        }

        /// Runs for `seconds` with `workers`, each taking `work_ms` for a request. Returns requests done.
        fn run(&mut self, seconds: u64, workers: u32, work_ms: f64) -> f64 {
            let class = Class::new(0, &Method::GET);
            let (mut done, mut due) = (0.0, 0.0);
            for _ in 0..seconds * 10 {
                let slots = self.limit.slots();
                let took_ms = work_ms * f64::from(slots.max(workers)) / f64::from(workers);
                let rate = f64::from(slots) / took_ms * 100.0;
                (done, due) = (done + rate, due + rate);
                while due >= 1.0 {
                    due -= 1.0;
                    let took_ns = (took_ms * MS as f64) as u64;
                    if self.limit.phase != Phase::Steady {
                        self.estimates.answered_unloaded(class, HERE, self.now_ns, took_ns);
                        self.limit.answered_unloaded();
                    } else if let Some(unloaded_ns) = self.estimates.unloaded_ns(class, HERE, self.now_ns) {
                        self.limit.answered(HERE, took_ns, unloaded_ns);
                    }
                }
                self.now_ns += 100 * MS;
                self.limit.look(self.now_ns, slots, true);
            }
            done
        }
    }

    #[test]
    fn finds_the_number_of_workers_from_above_and_from_below() {
        for start in [1, 4, 16, 200] {
            let mut backend = Backend::new(start);
            backend.run(120, 8, 20.0);
            let slots = backend.limit.slots;
            assert!((7.0..=17.0).contains(&slots), "{slots} slots for 8 workers, from {start}");
        }
    }

    #[test]
    fn follows_a_backend_that_loses_half_within_30_s_and_back() {
        let mut backend = Backend::new(16);
        backend.run(120, 16, 20.0);
        let before = backend.limit.slots;
        backend.run(30, 8, 20.0);
        let after = backend.limit.slots;
        assert!(after <= 0.65 * before && (7.0..=17.0).contains(&after), "{before} then {after} slots");
        backend.run(60, 16, 20.0);
        assert!(backend.limit.slots >= 14.0, "{} slots", backend.limit.slots);
    }

    #[test]
    fn a_slower_backend_keeps_its_slots_and_its_rate() {
        let mut backend = Backend::new(8);
        backend.run(60, 8, 20.0);
        backend.run(60, 8, 40.0);
        let done = backend.run(60, 8, 40.0);
        assert!(done >= 0.9 * 60.0 * 8.0 / 0.040, "{done} requests");
        assert!(backend.limit.slots <= 17.0, "{} slots", backend.limit.slots);
    }

    #[test]
    fn probing_costs_little() {
        let mut backend = Backend::new(8);
        backend.run(60, 8, 20.0);
        let done = backend.run(100, 8, 20.0);
        assert!(done >= 0.95 * 100.0 * 8.0 / 0.020, "{done} requests");
    }

    #[test]
    fn one_subnet_with_dear_requests_does_not_take_slots_away() {
        let (mut limit, mut now_ns) = (Limit::new(16, 1, 64), 0);
        for _ in 0..2_000 {
            (0..100).for_each(|_| limit.answered(SubnetKey(9), 1_000 * MS, 5 * MS));
            (0..3).for_each(|subnet| limit.answered(SubnetKey(subnet), 21 * MS, 20 * MS));
            now_ns += 100 * MS;
            limit.look(now_ns, 1_000, true);
        }
        assert_eq!(limit.slots as u32, 64, "there are as many as there may be");
    }

    #[test]
    fn noise_of_a_fast_backend_is_no_pressure() {
        let mut limit = Limit::new(16, 1, 1_024);
        let mut now_ns = 0;
        for _ in 0..2_000 {
            for _ in 0..50 {
                limit.answered(HERE, 900_000, 100_000);
            }
            now_ns += 100 * MS;
            limit.look(now_ns, 2_000, true);
        }
        assert_eq!(limit.slots as u32, 1_024);
    }
}
