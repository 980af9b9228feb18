//! Limits that give way: how much of them, on the mail of now, saves waiting.
//!
//! A worker that is kept for small mail stands idle while larger mail waits. That pays as long as mail is as it was when
//! the limits were chosen; when it is not, the limits cost more than they save. So three shadows see the same arrivals as
//! the feeds: one keeps all limits, one keeps a single feed for what is small, and one lets every worker take every size.
//! What each of them waited lately is an account that forgets, and the feeds do as the shadow that waited least. At the start
//! nothing is in force, and whatever keeps more workers back must have earned it: [`Opening::EARNED`] of the wait.
//!
//! The shadow in the middle is for machines with more workers than processors. There all limits together leave large mail to
//! one worker and a processor idle, and without any limit a few large messages take all workers, so that what is small
//! waits as long as a large scan takes.
//!
//! Because what still waits counts from the first moment, and not only when its scan begins, a burst that the limits
//! hold up uses their credit up within seconds. Shadows take as long for a scan as is expected of the message. Memory
//! is bounded: at most [`Opening::SHADOW_MAX`] messages wait in a shadow. An arrival costs about four times what it
//! costs [`Dispatch`] alone.

use super::running::Running;
use super::{Dispatch, DispatchError, InForce, Limits, Machine, Message, Plan};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;

/// The account of a plan's limits.
#[derive(Clone, Debug)]
pub struct Opening {
    shadows: [Shadow; 3],
    /// The mean scan of lately, in nanoseconds; none before the first message.
    scan_ns: Option<f64>,
    at: Instant,
    in_force: InForce,
}

/// The feeds as they would be with so much of the limits in force.
#[derive(Clone, Debug)]
struct Shadow {
    in_force: InForce,
    feeds: Running,
    /// What was waited here lately, in nanoseconds. It forgets.
    waited_ns: f64,
}

impl Opening {
    /// So many messages wait in a shadow at most; beyond that it is as bad as it gets.
    pub const SHADOW_MAX: usize = 1_000;
    /// The account reaches back about so many mean scans.
    pub const MEMORY_SCANS: f64 = 300.0;
    /// Bounds on that, in nanoseconds.
    pub const MEMORY_NS: (f64, f64) = (5e9, 1.2e12);
    /// More of the limits comes into force when it would have saved this part of the wait.
    pub const EARNED: f64 = 0.05;
    /// The mean scan is that of about so many messages.
    const MEAN_OVER: f64 = 200.0;

    /// An account without credit, from now on: nothing is in force.
    pub fn new(plan: &Plan, machine: &Machine, now: Instant) -> Result<Opening, DispatchError> {
        let shadow = |in_force| {
            let mut dispatch = Dispatch::new(plan.clone(), &machine.workers, Opening::SHADOW_MAX)?;
            dispatch.put_in_force(in_force, now);
            Ok(Shadow { in_force, feeds: Running::new(dispatch, machine.cpus, now), waited_ns: 0.0 })
        };
        let shadows = [shadow(InForce::Nothing)?, shadow(InForce::OneFeed)?, shadow(InForce::All)?];
        Ok(Opening { shadows, scan_ns: None, at: now, in_force: InForce::Nothing })
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

    /// Brings the account up to now; how much of the limits is to be in force.
    pub fn look(&mut self, now: Instant) -> InForce {
        let passed = now.since(self.at).as_nanos() as f64;
        if passed > 0.0 {
            let kept = libm::exp(-passed / self.memory_ns());
            for shadow in &mut self.shadows {
                let before = shadow.feeds.waited_ns();
                shadow.feeds.run_until(now, &mut |_| {});
                shadow.waited_ns = shadow.waited_ns * kept + shadow.feeds.waited_ns() - before;
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
            shadow.waited_ns = 0.0;
        }
        self.in_force = InForce::Nothing;
    }

    /// How much of the limits is to be in force, as of the last look.
    pub fn in_force(&self) -> InForce {
        self.in_force
    }

    /// What is in force saved lately, as a part of what was waited without limits; where nothing is in force, what all limits
    /// would have saved. None if there was nothing to wait for.
    pub fn saved(&self) -> Option<f64> {
        let without = self.waited_ns(InForce::Nothing);
        let with = self.waited_ns(if self.in_force == InForce::Nothing { InForce::All } else { self.in_force });
        (without > 0.0).then(|| 1.0 - with / without)
    }

    fn waited_ns(&self, in_force: InForce) -> f64 {
        self.shadows.iter().find(|shadow| shadow.in_force == in_force).map_or(0.0, |shadow| shadow.waited_ns)
    }

    fn decide(&mut self) {
        let now = self.waited_ns(self.in_force);
        let is_better = |shadow: &&Shadow| match shadow.in_force > self.in_force {
            true => shadow.waited_ns < (1.0 - Opening::EARNED) * now,
            false => shadow.waited_ns < now && !planted(Mutant::FeedsStayShut),
        };
        let best = self.shadows.iter().filter(is_better).min_by(|a, b| a.waited_ns.total_cmp(&b.waited_ns));
        self.in_force = best.map_or(self.in_force, |shadow| shadow.in_force);
    }

    fn memory_ns(&self) -> f64 {
        let (least, most) = Opening::MEMORY_NS;
        (self.scan_ns.unwrap_or(0.0) * Opening::MEMORY_SCANS).clamp(least, most)
    }
}
