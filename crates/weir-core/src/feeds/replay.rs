//! A trace through the live [`Dispatch`](super::Dispatch) itself, on a machine that may have fewer processors than workers.
//!
//! Like [`super::evaluate`], but with any number of workers per feed, and with scans that share the processors: while more scans run than
//! there are processors, each runs so much slower. So a prediction for a small machine does not stretch every scan as if all workers were
//! always busy. O(workers + log n) per message, about ten times the cost of `evaluate`.

use super::running::Running;
use super::{Arrival, Machine, Message, MessageId, Opening, Plan, Served, Service};
use crate::time::Instant;
use core::time::Duration;

/// Runs a trace and reports each message as its scan starts; nothing if the machine does not fit the plan. `service_ns` is
/// the time that the scan would take alone.
pub fn replay(
    arrivals: impl IntoIterator<Item = Arrival>,
    service: &Service,
    plan: &Plan,
    machine: &Machine,
    served: &mut dyn FnMut(Served),
) {
    let Ok(dispatch) = machine.dispatch(plan.clone(), usize::MAX) else { return };
    let mut arrivals = arrivals.into_iter().peekable();
    let begun = arrivals.peek().map_or(Instant(0), |first| first.at);
    let mut running = Running::new(dispatch, machine.cpus, begun);
    let mut opening = plan.opens.then(|| Opening::new(plan, machine, begun).ok()).flatten();
    for (number, arrival) in arrivals.enumerate() {
        running.run_until(arrival.at, served);
        let expected = Duration::from_nanos(service.time_ns(arrival.size));
        let message = Message { id: MessageId(number as u64), size: arrival.size, expected };
        if let Some(opening) = &mut opening {
            opening.arrive(message, arrival.at);
            running.put_in_force(opening.in_force(), served);
        }
        running.arrive(message, arrival.at, served);
    }
    running.run_out(served);
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Strategy, evaluate};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A busy trace, from a small random generator.
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
