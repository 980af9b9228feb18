//! What other disciplines would do with the same mail: yardsticks, not strategies of the gate.
//!
//! First come, first served over N − 1 workers without limits, and preemptive shortest remaining time first, which no
//! scanner can do: it is the bound that every strategy falls short of.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_core::feeds::{Arrival, Service};

/// Mean wait with one queue in order of arrival before so many workers.
pub(super) fn first_come_s(arrivals: impl Iterator<Item = Arrival>, service: &Service, workers: usize) -> f64 {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    let (mut total, mut count) = (0.0, 0u64);
    for arrival in arrivals {
        let Some(Reverse(free)) = free_at.pop() else { break };
        let start = free.max(arrival.at.0);
        free_at.push(Reverse(start + service.time_ns(arrival.size)));
        total += (start - arrival.at.0) as f64;
        count += 1;
    }
    total / 1e9 / count.max(1) as f64
}

/// Mean of response time less scan time when the messages with the least remaining work are always those in service.
pub(super) fn shortest_remaining_s(arrivals: impl Iterator<Item = Arrival>, service: &Service, workers: usize) -> f64 {
    let mut present = Present { jobs: Vec::new(), now: 0, workers, total: 0.0 };
    let mut count = 0u64;
    for arrival in arrivals {
        present.run_until(arrival.at.0);
        present.add(service.time_ns(arrival.size), arrival.at.0);
        count += 1;
    }
    present.run_until(u64::MAX);
    present.total / 1e9 / count.max(1) as f64
}

struct Present {
    /// (remaining, arrived + whole work), least remaining first.
    jobs: Vec<(u64, u64)>,
    now: u64,
    workers: usize,
    total: f64,
}

impl Present {
    fn add(&mut self, work: u64, at: u64) {
        let place = self.jobs.partition_point(|job| job.0 <= work);
        self.jobs.insert(place, (work, at + work));
    }

    /// The first `workers` jobs shrink together; the first of them ends first.
    fn run_until(&mut self, until: u64) {
        while let Some(&(least, _)) = self.jobs.first() {
            let step = least.min(until - self.now);
            for job in self.jobs.iter_mut().take(self.workers) {
                job.0 -= step;
            }
            self.now += step;
            if step < least {
                return;
            }
            let (_, earliest_end) = self.jobs.remove(0);
            self.total += (self.now - earliest_end) as f64;
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

    #[test]
    fn small_examples_by_hand() {
        let service = Service::new(0.0, 1.0).unwrap();
        let s = 1_000_000_000;
        // One worker: 10 s of work, then 1 s of work that comes at second 2.
        let list = [(0, 10), (2 * s, 1)];
        assert!((first_come_s(arrivals(&list), &service, 1) - 4.0).abs() < 1e-6);
        assert!((shortest_remaining_s(arrivals(&list), &service, 1) - 0.5).abs() < 1e-6);
        assert_eq!(first_come_s(arrivals(&list), &service, 2), 0.0);
        assert_eq!(shortest_remaining_s(arrivals(&list), &service, 2), 0.0);
    }
}
