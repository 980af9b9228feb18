//! A [`Dispatch`] with scans whose times are known, on a machine that may have fewer processors than workers.
//!
//! While more scans run than there are processors, each runs so much slower. It also adds up how long messages have
//! been held up in all, by waiting and by sharing a processor: the number that is held up, integrated over time, counts those that
//! still wait too. An event costs
//! O(workers + log n).

use super::{Dispatch, InForce, Limits, Message, Placed, Served, Started, WorkerId};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// The feeds while they run.
#[derive(Clone, Debug)]
pub(super) struct Running {
    dispatch: Dispatch,
    /// What each worker has left to do, in nanoseconds of a processor.
    scans: Vec<Option<f64>>,
    cpus: f64,
    /// Times are counted from here, so that a float can tell nanoseconds apart, whatever the clock says.
    begun: u64,
    now: f64,
    held_up_ns: f64,
}

impl Running {
    pub(super) fn new(dispatch: Dispatch, cpus: usize, now: Instant) -> Running {
        let scans = vec![None; dispatch.workers()];
        Running { dispatch, scans, cpus: cpus.max(1) as f64, begun: now.0, now: 0.0, held_up_ns: 0.0 }
    }

    /// How long messages have been held up so far, all together, in nanoseconds.
    pub(super) fn held_up_ns(&self) -> f64 {
        self.held_up_ns
    }

    /// Ends every scan that is over by `until`, in order, and lets its worker take the next message.
    pub(super) fn run_until(&mut self, until: Instant, served: &mut dyn FnMut(Served)) {
        self.run(until.0.saturating_sub(self.begun) as f64, served);
    }

    /// Lets all scans end.
    pub(super) fn run_out(&mut self, served: &mut dyn FnMut(Served)) {
        self.run(f64::INFINITY, served);
    }

    fn instant(&self) -> Instant {
        Instant(self.begun.saturating_add(self.now as u64))
    }

    fn run(&mut self, until: f64, served: &mut dyn FnMut(Served)) {
        loop {
            let busy = self.scans.iter().flatten().count();
            let speed = (self.cpus / busy.max(1) as f64).min(1.0);
            let first = self.scans.iter().enumerate().filter_map(|(worker, left)| Some((worker, (*left)?)));
            let next = first.min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((worker, left)) = next.filter(|(_, left)| self.now + left / speed <= until) else {
                if until.is_finite() && until > self.now {
                    self.pass(until - self.now, speed);
                    self.now = until;
                }
                return;
            };
            self.pass(left / speed, speed);
            self.scans[worker] = None;
            let now = self.instant();
            if let Some(next) = self.dispatch.free(WorkerId(worker), now) {
                self.start(next, served);
            }
        }
    }

    /// A message comes, now.
    pub(super) fn arrive(&mut self, message: Message, at: Instant, served: &mut dyn FnMut(Served)) {
        if let Placed::Started(worker) = self.dispatch.arrive(message, at) {
            self.start(Started { worker, message, waited: Duration::ZERO }, served);
        }
    }

    pub(super) fn put_in_force(&mut self, in_force: InForce, served: &mut dyn FnMut(Served)) {
        let now = self.instant();
        let started = self.dispatch.put_in_force(in_force, now);
        started.into_iter().for_each(|begun| self.start(begun, served));
    }

    pub(super) fn retune(&mut self, limits: &Limits) {
        let now = self.instant();
        let started = self.dispatch.retune(limits.clone(), now).unwrap_or_default();
        started.into_iter().for_each(|begun| self.start(begun, &mut |_| {}));
    }

    /// This much time passes; each scan progresses at this speed.
    fn pass(&mut self, time: f64, speed: f64) {
        for left in self.scans.iter_mut().flatten() {
            *left = (*left - time * speed).max(0.0);
        }
        let slowed = self.scans.iter().flatten().count() as f64 * (1.0 - speed);
        self.held_up_ns += (self.dispatch.waiting() as f64 + slowed) * time;
        self.now += time;
    }

    fn start(&mut self, begun: Started, served: &mut dyn FnMut(Served)) {
        let Started { worker, message, waited } = begun;
        let service_ns = message.expected.as_nanos() as u64;
        self.scans[worker.0] = Some(service_ns as f64);
        let class = self.dispatch.plan().limits.class_of(message.size);
        let feed = self.dispatch.feed_of(worker).unwrap_or(0);
        served(Served { size: message.size, class, feed, wait_ns: waited.as_nanos() as u64, service_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MessageId, Plan, Strategy};
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Two scans of a second on one processor, by two workers or by one.
    fn held_up(in_force: InForce) -> f64 {
        let plan = Plan::live(Limits::new(vec![10]).unwrap(), Strategy::Shortest);
        let mut dispatch = Dispatch::new(plan, &[1, 1], 9).unwrap();
        dispatch.put_in_force(in_force, Instant(0));
        let mut running = Running::new(dispatch, 1, Instant(0));
        for id in 0..2 {
            let message = Message { id: MessageId(id), size: 99, expected: Duration::from_nanos(S) };
            running.arrive(message, Instant(0), &mut |_| {});
        }
        running.run_out(&mut |_| {});
        running.held_up_ns() / S as f64
    }

    #[test]
    fn limits_keep_a_worker_and_no_processor_idle() {
        let seconds = |ids: core::ops::Range<u64>, seconds: u64, size: u64| {
            ids.map(move |id| Message { id: MessageId(id), size, expected: Duration::from_secs(seconds) })
        };
        let run = |workers: usize, messages: &[Message]| {
            let plan = Plan::live(Limits::default_for(workers, 250_000).unwrap(), Strategy::Shortest);
            let dispatch = Dispatch::new(plan, &vec![1; workers], 99).unwrap().sharing(2);
            let mut running = Running::new(dispatch, 2, Instant(0));
            messages.iter().for_each(|message| running.arrive(*message, Instant(0), &mut |_| {}));
            running.run_out(&mut |_| {});
            (running.now / S as f64, running.held_up_ns() / S as f64)
        };
        let large: Vec<Message> = seconds(0..4, 10, 1 << 20).collect();
        // Four large scans of ten seconds: two at a time, and three workers stay free for small mail.
        assert_eq!(run(5, &large), (20.0, 20.0));
        let mixed: Vec<Message> = large.iter().copied().chain(seconds(4..5, 1, 1000)).collect();
        let (_, held_up) = run(5, &mixed);
        assert!(held_up < 23.0, "the small one waited for a large scan: {held_up}");
        // If every worker has a processor, the one for small mail is left to small mail.
        assert_eq!(run(2, &large).0, 40.0);
    }

    #[test]
    fn a_scan_that_shares_its_processor_is_held_up_as_if_it_waited() {
        // Side by side both take two seconds; one after the other, only the second waits.
        assert_eq!([held_up(InForce::Nothing), held_up(InForce::Kept(1))], [2.0, 1.0]);
    }
}
