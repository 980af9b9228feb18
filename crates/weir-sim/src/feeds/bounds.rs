//! Other queueing disciplines on the same mail, for comparison. The gate does not use them.
//!
//! First come, first served over N − 1 workers without limits, and preemptive shortest remaining time first, which no
//! scanner can do: it is the bound that every strategy falls short of.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_core::feeds::{Arrival, Service};

/// One queue in order of arrival before so many workers; tells each message's size and wait in nanoseconds.
pub(super) fn first_come(
    arrivals: impl Iterator<Item = Arrival>,
    service: &Service,
    workers: usize,
    mut waited: impl FnMut(u64, u64),
) {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    for arrival in arrivals {
        let Some(Reverse(free)) = free_at.pop() else { break };
        let start = free.max(arrival.at.0);
        free_at.push(Reverse(start + service.time_ns(arrival.size)));
        waited(arrival.size, start - arrival.at.0);
    }
}

/// The messages with the least remaining work are always those in service; tells each message's size, and its time in
/// the system less its scan time.
pub(super) fn shortest_remaining(
    arrivals: impl Iterator<Item = Arrival>,
    service: &Service,
    workers: usize,
    mut waited: impl FnMut(u64, u64),
) {
    let mut present = Present { jobs: Vec::new(), now: 0, workers };
    for arrival in arrivals {
        present.run_until(arrival.at.0, &mut waited);
        present.add(arrival, service.time_ns(arrival.size));
    }
    present.run_until(u64::MAX, &mut waited);
}

struct Present {
    /// Least remaining first.
    jobs: Vec<Job>,
    now: u64,
    workers: usize,
}

struct Job {
    remaining: u64,
    earliest_end: u64,
    size: u64,
}

impl Present {
    fn add(&mut self, arrival: Arrival, work: u64) {
        let place = self.jobs.partition_point(|job| job.remaining <= work);
        self.jobs.insert(place, Job { remaining: work, earliest_end: arrival.at.0 + work, size: arrival.size });
    }

    /// The first `workers` jobs shrink together; the first of them ends first.
    fn run_until(&mut self, until: u64, waited: &mut impl FnMut(u64, u64)) {
        while let Some(least) = self.jobs.first().map(|job| job.remaining) {
            let step = least.min(until - self.now);
            for job in self.jobs.iter_mut().take(self.workers) {
                job.remaining -= step;
            }
            self.now += step;
            if step < least {
                return;
            }
            let ended = self.jobs.remove(0);
            waited(ended.size, self.now - ended.earliest_end);
        }
        self.now = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::time::Instant;

    fn arrivals(list: &[(u64, u64)]) -> impl Iterator<Item = Arrival> {
        list.iter().map(|(at, size)| Arrival { at: Instant(*at), size: *size })
    }

    fn total_s(run: impl FnOnce(&mut dyn FnMut(u64, u64))) -> f64 {
        let mut total = 0.0;
        run(&mut |_, wait_ns| total += wait_ns as f64 / 1e9);
        total
    }

    #[test]
    fn small_examples_by_hand() {
        let service = Service::new(0.0, 1.0).unwrap();
        let s = 1_000_000_000;
        // One worker: 10 s of work, then 1 s of work that comes at second 2.
        let list = [(0, 10), (2 * s, 1)];
        let first_come = |workers| total_s(|waited| first_come(arrivals(&list), &service, workers, waited));
        let remaining = |workers| total_s(|waited| shortest_remaining(arrivals(&list), &service, workers, waited));
        assert_eq!((first_come(1), remaining(1)), (8.0, 1.0));
        assert_eq!((first_come(2), remaining(2)), (0.0, 0.0));
    }
}
