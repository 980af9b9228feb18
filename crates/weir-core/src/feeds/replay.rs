//! A trace through the live [`Dispatch`] itself, on a machine that may have fewer processors than workers.
//!
//! Like [`super::evaluate`], but with any number of workers a feed, and with scans that share the processors: while more scans
//! run than there are processors, each runs so much slower. So a prediction for a small machine does not stretch
//! every scan as if all workers were always busy. O(workers + log n) a message, about ten times the cost of `evaluate`.

use super::{Arrival, Dispatch, Message, MessageId, Placed, Plan, Served, Service, WorkerId};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Who scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Workers of each feed.
    pub workers: Vec<usize>,
    /// Processors that they share; at least one.
    pub cpus: usize,
}

/// Runs a trace and reports each message as its scan starts; nothing if the machine does not fit the plan. `service_ns` is
/// the time that the scan would take alone.
pub fn replay(
    arrivals: impl IntoIterator<Item = Arrival>,
    service: &Service,
    plan: &Plan,
    machine: &Machine,
    served: &mut dyn FnMut(Served),
) {
    let Ok(dispatch) = Dispatch::new(plan.clone(), &machine.workers, usize::MAX) else { return };
    let scans = vec![None; machine.workers.iter().sum()];
    let mut running = Running { dispatch, scans, cpus: machine.cpus.max(1) as f64, now: 0.0, service: *service };
    for (number, arrival) in arrivals.into_iter().enumerate() {
        running.run_until(arrival.at.0 as f64, served);
        running.arrive(number as u64, arrival, served);
    }
    running.run_until(f64::INFINITY, served);
}

struct Running {
    dispatch: Dispatch,
    /// What each worker has left to do, in nanoseconds of a processor.
    scans: Vec<Option<f64>>,
    cpus: f64,
    now: f64,
    service: Service,
}

impl Running {
    fn run_until(&mut self, until: f64, served: &mut dyn FnMut(Served)) {
        loop {
            let busy = self.scans.iter().flatten().count();
            let speed = (self.cpus / busy.max(1) as f64).min(1.0);
            let first = self.scans.iter().enumerate().filter_map(|(worker, left)| Some((worker, (*left)?)));
            let next = first.min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((worker, left)) = next.filter(|(_, left)| self.now + left / speed <= until) else {
                self.pass((until - self.now) * speed);
                self.now = if until.is_finite() { until } else { self.now };
                return;
            };
            self.now += left / speed;
            self.pass(left);
            self.scans[worker] = None;
            if let Some(next) = self.dispatch.free(WorkerId(worker), Instant(self.now as u64)) {
                self.start(worker, next.message, next.waited, served);
            }
        }
    }

    /// So much work is done on every scan.
    fn pass(&mut self, work: f64) {
        for left in self.scans.iter_mut().flatten() {
            *left = (*left - work).max(0.0);
        }
    }

    fn arrive(&mut self, number: u64, arrival: Arrival, served: &mut dyn FnMut(Served)) {
        let expected = Duration::from_nanos(self.service.time_ns(arrival.size));
        let message = Message { id: MessageId(number), size: arrival.size, expected };
        if let Placed::Started(worker) = self.dispatch.arrive(message, arrival.at) {
            self.start(worker.0, message, Duration::ZERO, served);
        }
    }

    fn start(&mut self, worker: usize, message: Message, waited: Duration, served: &mut dyn FnMut(Served)) {
        let service_ns = message.expected.as_nanos() as u64;
        self.scans[worker] = Some(service_ns as f64);
        let class = self.dispatch.plan().limits.class_of(message.size);
        let feed = self.dispatch.feed_of(WorkerId(worker)).unwrap_or(0);
        served(Served { size: message.size, class, feed, wait_ns: waited.as_nanos() as u64, service_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Strategy, evaluate};
    use super::*;

    /// A busy trace, by a small generator.
    fn trace(count: u64) -> Vec<Arrival> {
        let (mut state, mut at) = (9u64, 0);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let arrival = |_| {
            at += next() % 400_000_000;
            Arrival { at: Instant(at), size: if next() % 10 == 0 { 40_000 + next() % 20_000 } else { next() % 4000 } }
        };
        (0..count).map(arrival).collect()
    }

    fn waits(plan: &Plan, machine: &Machine, trace: &[Arrival]) -> Vec<u64> {
        let (service, mut waits) = (Service::new(0.1, 0.00002).unwrap(), Vec::new());
        replay(trace.iter().copied(), &service, plan, machine, &mut |served| waits.push(served.wait_ns));
        waits
    }

    #[test]
    fn with_processors_enough_it_is_evaluate() {
        let trace = trace(3000);
        for strategy in [Strategy::Size, Strategy::SizeLoad, Strategy::Shortest] {
            let plan = Plan::new(Limits::default_for(4, 50_000).unwrap(), strategy);
            let mut expected = Vec::new();
            let service = Service::new(0.1, 0.00002).unwrap();
            evaluate(trace.iter().copied(), &service, &plan, |served| expected.push(served.wait_ns));
            let found = waits(&plan, &Machine { workers: vec![1; 4], cpus: 4 }, &trace);
            let mean = |waits: &[u64]| waits.iter().sum::<u64>() as f64 / waits.len() as f64;
            assert_eq!(found.len(), expected.len());
            assert!((mean(&found) / mean(&expected) - 1.0).abs() < 0.001, "{strategy:?} {}", mean(&found));
        }
    }

    #[test]
    fn fewer_processors_are_slower_and_more_workers_are_faster() {
        let trace = trace(3000);
        let plan = Plan::new(Limits::default_for(4, 50_000).unwrap(), Strategy::Shortest);
        let mean = |workers: usize, cpus| {
            let waits = waits(&plan, &Machine { workers: vec![workers; 4], cpus }, &trace);
            waits.iter().sum::<u64>() as f64 / waits.len() as f64
        };
        assert!(mean(1, 4) > 0.0 && mean(1, 2) > 1.2 * mean(1, 4), "{} {}", mean(1, 2), mean(1, 4));
        assert!(mean(2, 8) < 0.5 * mean(1, 4));
        let wrong = Machine { workers: vec![1; 3], cpus: 4 };
        assert!(waits(&plan, &wrong, &trace).is_empty());
    }
}
