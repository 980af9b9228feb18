//! Limits that give way: whether, on the mail of now, they save waiting against one line without limits.
//!
//! A worker that is kept for small mail stands idle while larger mail waits. That pays as long as mail is as it was when
//! the limits were chosen; when it is not, the limits cost more than they save. So two shadows see the same arrivals as
//! the feeds: one keeps the limits, the other lets every worker take every size. The difference of what they wait is an
//! account that forgets: what the limits saved lately is their credit. While there is none the feeds are open, and so
//! they are at the start: limits must earn their place.
//!
//! Because what still waits counts from the first moment, and not only when its scan begins, a burst that the limits
//! hold up uses their credit up within seconds. Shadows take as long for a scan as is expected of the message. Memory
//! is bounded: at most [`Opening::SHADOW_MAX`] messages wait in a shadow. An arrival costs about three times what it
//! costs [`Dispatch`] alone.

use super::running::Running;
use super::{Dispatch, DispatchError, Limits, Machine, Message, Plan};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;

/// The account of a plan's limits.
#[derive(Clone, Debug)]
pub struct Opening {
    limited: Running,
    line: Running,
    /// What the limits saved lately, and what one line waited; both forget alike, in nanoseconds.
    saved_ns: f64,
    line_waited_ns: f64,
    /// The mean scan of lately, in nanoseconds; none before the first message.
    scan_ns: Option<f64>,
    at: Instant,
    open: bool,
}

impl Opening {
    /// So many messages wait in a shadow at most; beyond that it is as bad as it gets.
    pub const SHADOW_MAX: usize = 1_000;
    /// The account reaches back about so many mean scans.
    pub const MEMORY_SCANS: f64 = 300.0;
    /// Bounds on that, in nanoseconds.
    pub const MEMORY_NS: (f64, f64) = (5e9, 1.2e12);
    /// Limits come into force when they have saved this part of what one line waited.
    pub const EARNED: f64 = 0.05;
    /// The mean scan is that of about so many messages.
    const MEAN_OVER: f64 = 200.0;

    /// An account without credit, from now on: open.
    pub fn new(plan: &Plan, machine: &Machine, now: Instant) -> Result<Opening, DispatchError> {
        let shadow = |open| {
            let mut dispatch = Dispatch::new(plan.clone(), &machine.workers, Opening::SHADOW_MAX)?;
            dispatch.set_open(open, now);
            Ok(Running::new(dispatch, machine.cpus, now))
        };
        let (limited, line) = (shadow(false)?, shadow(true)?);
        Ok(Opening { limited, line, saved_ns: 0.0, line_waited_ns: 0.0, scan_ns: None, at: now, open: true })
    }

    /// A message arrives.
    pub fn arrive(&mut self, message: Message, now: Instant) {
        self.look(now);
        for shadow in [&mut self.limited, &mut self.line] {
            shadow.arrive(message, now, &mut |_| {});
        }
        let scan_ns = message.expected.as_nanos() as f64;
        let mean = self.scan_ns.get_or_insert(scan_ns);
        *mean += (scan_ns - *mean) / Opening::MEAN_OVER;
    }

    /// Brings the account up to now; whether the feeds are to be open.
    pub fn look(&mut self, now: Instant) -> bool {
        let passed = now.since(self.at).as_nanos() as f64;
        if passed > 0.0 {
            let before = [&self.limited, &self.line].map(Running::waited_ns);
            for shadow in [&mut self.limited, &mut self.line] {
                shadow.run_until(now, &mut |_| {});
            }
            let kept = libm::exp(-passed / self.memory_ns());
            let line_waited = self.line.waited_ns() - before[1];
            self.saved_ns = self.saved_ns * kept + line_waited - (self.limited.waited_ns() - before[0]);
            self.line_waited_ns = self.line_waited_ns * kept + line_waited;
            self.at = now;
            self.decide();
        }
        self.open
    }

    /// The limits have changed: they have saved nothing yet.
    pub fn retune(&mut self, limits: &Limits, now: Instant) {
        self.look(now);
        self.limited.retune(limits);
        self.line.retune(limits);
        (self.saved_ns, self.line_waited_ns, self.open) = (0.0, 0.0, true);
    }

    /// Whether the feeds are to be open, as of the last look.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// What the limits saved lately, as a part of what one line waited; none if that had nothing to wait for.
    pub fn saved(&self) -> Option<f64> {
        (self.line_waited_ns > 0.0).then(|| self.saved_ns / self.line_waited_ns)
    }

    fn decide(&mut self) {
        if self.saved_ns < 0.0 {
            self.open = !planted(Mutant::FeedsStayShut) || self.open;
        } else if self.saved_ns > Opening::EARNED * self.line_waited_ns {
            self.open = false;
        }
    }

    fn memory_ns(&self) -> f64 {
        let (least, most) = Opening::MEMORY_NS;
        (self.scan_ns.unwrap_or(0.0) * Opening::MEMORY_SCANS).clamp(least, most)
    }
}
