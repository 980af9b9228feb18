//! Decides which of the size limits are in force: only those that save waiting with the mail that is arriving now.
//!
//! A worker that is reserved for small mail is idle while larger mail waits. That pays as long as mail is as it was when the limits were
//! chosen; when it is not, the limits cost more than they save. So three simulations (*shadows*) see the same arrivals as the feeds: one
//! keeps all limits, one keeps some feeds for what is small, and one lets every worker take every size. Each keeps a moving sum of how long
//! mail was held up in it lately, and the feeds follow the shadow with the smallest sum. A shadow that reserves more workers must be better
//! by a margin, the fraction [`Opening::EARNED`].
//!
//! The shadow in the middle keeps all workers for small mail but as many as there are processors
//! ([`Machine::spare_feeds`]). Where there are more workers than processors that costs large mail nothing, since two scans on
//! one processor end no sooner than one after the other, and what is small finds a worker while large scans run. So it is in
//! force there from the start. All limits together leave large mail to one worker and a processor idle, and without any a few large
//! messages take all workers, so that what is small waits as long as a large scan takes. Where every worker has a processor,
//! the shadow keeps one feed, and nothing is in force at the start.
//!
//! A message is held up while it waits, and while others share the processor with its scan: a scan that begins at once and
//! takes twice as long has gained nothing.
//!
//! Because what still waits counts from the first moment, and not only when its scan begins, a burst that the limits
//! hold up uses their credit up within seconds. Shadows take as long for a scan as is expected of the message. Memory
//! is bounded: at most [`Opening::SHADOW_MAX`] messages wait in a shadow. An arrival costs about four times what it
//! costs [`Dispatch`](super::Dispatch) alone.

use super::running::Running;
use super::{DispatchError, InForce, Limits, Machine, Message, Plan};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;

/// The account of a plan's limits.
#[derive(Clone, Debug)]
pub struct Opening {
    shadows: [Shadow; 3],
    /// The mean time of recent scans, in nanoseconds; none before the first message.
    scan_ns: Option<f64>,
    at: Instant,
    /// What is in force before any limit has shown that it saves time.
    at_first: InForce,
    in_force: InForce,
}

/// A simulation of the feeds with this part of the limits in force.
#[derive(Clone, Debug)]
struct Shadow {
    in_force: InForce,
    feeds: Running,
    /// How long mail was held up here recently, in nanoseconds. Old times are gradually forgotten.
    held_up_ns: f64,
}

impl Opening {
    /// At most this many messages wait in a shadow; beyond that it only counts that mail is held up.
    pub const SHADOW_MAX: usize = 1_000;
    /// The account covers about this many mean scans.
    pub const MEMORY_SCANS: f64 = 300.0;
    /// Bounds on that, in nanoseconds.
    pub const MEMORY_NS: (f64, f64) = (5e9, 1.2e12);
    /// A larger part of the limits comes into force when it would have saved this part of the time that mail is held up.
    pub const EARNED: f64 = 0.05;
    /// The mean scan time is that of about this many messages.
    const MEAN_OVER: f64 = 200.0;

    /// An account that starts now, in which no limit has saved any time.
    pub fn new(plan: &Plan, machine: &Machine, now: Instant) -> Result<Opening, DispatchError> {
        let shadow = |in_force| {
            let mut dispatch = machine.dispatch(plan.clone(), Opening::SHADOW_MAX)?;
            dispatch.put_in_force(in_force, now);
            Ok(Shadow { in_force, feeds: Running::new(dispatch, machine.cpus, now), held_up_ns: 0.0 })
        };
        let kept = InForce::Kept(machine.spare_feeds());
        let at_first = if machine.has_spare_workers() { kept } else { InForce::Nothing };
        let shadows = [shadow(InForce::Nothing)?, shadow(kept)?, shadow(InForce::All)?];
        Ok(Opening { shadows, scan_ns: None, at: now, at_first, in_force: at_first })
    }

    /// A message arrives.
    pub fn arrive(&mut self, message: Message, now: Instant) {
        self.look(now);
        for shadow in &mut self.shadows {
            shadow.feeds.arrive(message, now, &mut |_| {});
        }
        let scan_ns = message.expected.as_nanos() as f64;
        let mean = self.scan_ns.get_or_insert(scan_ns);
        *mean += (scan_ns - *mean) / Opening::MEAN_OVER;
    }

    /// Brings the account up to `now` and returns how much of the limits should be in force.
    pub fn look(&mut self, now: Instant) -> InForce {
        let passed = now.since(self.at).as_nanos() as f64;
        if passed > 0.0 {
            let kept = libm::exp(-passed / self.memory_ns());
            for shadow in &mut self.shadows {
                let before = shadow.feeds.held_up_ns();
                shadow.feeds.run_until(now, &mut |_| {});
                shadow.held_up_ns = shadow.held_up_ns * kept + shadow.feeds.held_up_ns() - before;
            }
            self.at = now;
            self.decide();
        }
        self.in_force
    }

    /// The limits have changed: they have saved nothing yet.
    pub fn retune(&mut self, limits: &Limits, now: Instant) {
        self.look(now);
        for shadow in &mut self.shadows {
            shadow.feeds.retune(limits);
            shadow.held_up_ns = 0.0;
        }
        self.in_force = self.at_first;
    }

    /// How much of the limits is to be in force, as of the last look.
    pub fn in_force(&self) -> InForce {
        self.in_force
    }

    /// How much time the limits in force saved recently, as a part of how long mail would have been held up without limits. If none are in force, what all
    /// limits would have saved. None if nothing would have been held up.
    pub fn saved(&self) -> Option<f64> {
        let without = self.held_up_ns(InForce::Nothing);
        let with = self.held_up_ns(if self.in_force == InForce::Nothing { InForce::All } else { self.in_force });
        (without > 0.0).then(|| 1.0 - with / without)
    }

    fn held_up_ns(&self, in_force: InForce) -> f64 {
        self.shadows.iter().find(|shadow| shadow.in_force == in_force).map_or(0.0, |shadow| shadow.held_up_ns)
    }

    fn decide(&mut self) {
        let now = self.held_up_ns(self.in_force);
        // A shadow that reserves more must first show that it saves time. So must one that reserves less than the start does, because the start costs nothing.
        let must_earn = |in_force: InForce| in_force > self.in_force || in_force < self.at_first;
        let is_better = |shadow: &&Shadow| match must_earn(shadow.in_force) {
            true => shadow.held_up_ns < (1.0 - Opening::EARNED) * now,
            false => shadow.held_up_ns < now && !planted(Mutant::FeedsStayShut),
        };
        let best = self.shadows.iter().filter(is_better).min_by(|a, b| a.held_up_ns.total_cmp(&b.held_up_ns));
        self.in_force = best.map_or(self.in_force, |shadow| shadow.in_force);
    }

    fn memory_ns(&self) -> f64 {
        let (least, most) = Opening::MEMORY_NS;
        (self.scan_ns.unwrap_or(0.0) * Opening::MEMORY_SCANS).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MessageId, Service, Strategy};
    use super::*;
    use alloc::vec;

    const COUNT: u64 = 20_000;

    /// How long each message is held up on average, in ms: 99 % have 4 KiB and 1 % have 10 MB, which take 1.2 s. Follows the
    /// account if nothing is fixed.
    fn held_up_ms(machine: &Machine, load: f64, fixed: Option<InForce>) -> f64 {
        let service = Service::new(0.002, 1.2e-7).unwrap();
        let scan_ns = 0.99 * service.time_ns(4096) as f64 + 0.01 * service.time_ns(10_000_000) as f64;
        let plan = Plan::live(Limits::default_for(5, 250_000).unwrap(), Strategy::Shortest);
        let mut opening = Opening::new(&plan, machine, Instant(0)).unwrap();
        let mut dispatch = machine.dispatch(plan, usize::MAX).unwrap();
        dispatch.put_in_force(fixed.unwrap_or(opening.in_force()), Instant(0));
        let mut running = Running::new(dispatch, machine.cpus, Instant(0));
        let (mut state, mut at) = (77u64, 0.0);
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        for number in 0..COUNT {
            at -= libm::log(unit()) * scan_ns / machine.cpus as f64 / load;
            let (now, size) = (Instant(at as u64), if unit() < 0.01 { 10_000_000 } else { 4096 });
            let expected = core::time::Duration::from_nanos(service.time_ns(size));
            let message = Message { id: MessageId(number), size, expected };
            running.run_until(now, &mut |_| {});
            opening.arrive(message, now);
            running.put_in_force(fixed.unwrap_or(opening.in_force()), &mut |_| {});
            running.arrive(message, now, &mut |_| {});
        }
        running.run_out(&mut |_| {});
        running.held_up_ns() / COUNT as f64 / 1e6
    }

    #[test]
    fn with_more_workers_than_processors_some_are_kept_for_the_small_from_the_start() {
        let machine = |cpus| Machine { workers: vec![1; 5], cpus };
        let plan = Plan::live(Limits::default_for(5, 250_000).unwrap(), Strategy::Shortest);
        let at_first = |cpus| Opening::new(&plan, &machine(cpus), Instant(0)).unwrap().in_force();
        assert_eq!([at_first(2), at_first(5)], [InForce::Kept(3), InForce::Nothing]);
        // As long as none of several large scans has ended, mail is held up alike in all orders, so nothing changes.
        let mut opening = Opening::new(&plan, &machine(2), Instant(0)).unwrap();
        for number in 0..600 {
            let expected = core::time::Duration::from_secs(9);
            let now = Instant(number * 3_333_333);
            if number < 6 {
                opening.arrive(Message { id: MessageId(number), size: 300_000, expected }, now);
            }
            assert_eq!(opening.look(now), InForce::Kept(3));
        }
    }

    #[test]
    fn large_mail_holds_the_small_up_the_least_where_it_has_a_worker_for_each_processor() {
        for cpus in [2, 3] {
            let machine = Machine { workers: vec![1; 5], cpus };
            for load in [0.5, 0.7, 0.9] {
                let account = held_up_ms(&machine, load, None);
                for other in [InForce::Nothing, InForce::Kept(1), InForce::All] {
                    let fixed = held_up_ms(&machine, load, Some(other));
                    assert!(
                        account < fixed,
                        "{cpus} processors, load {load}: {account:.1} ms, {other:?} {fixed:.1} ms"
                    );
                }
            }
        }
    }
}
