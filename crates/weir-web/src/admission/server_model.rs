//! A model of the server in observe mode: estimates how long the server really worked on each request that was let through.
//!
//! Nobody waits in observe mode, so the queue is inside the server, and from outside a page of 20 ms takes seconds. With slots enforced,
//! only the work itself would be measured. The server is modelled as one worker per slot, first come, first served: a request begins when
//! it is among the first so many that have not ended. If a request ends that should not even have begun, the server shares its time in
//! another way; then each request gets its share of the workers' time, which is never more than the time it stayed. Either way the shares
//! of all requests add up to the time that the workers had.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct ServerModel {
    /// The requests at the server, in the order of arrival.
    there: BTreeMap<ServerVisit, Progress>,
    /// Those of them that the server has not begun.
    unbegun: BTreeSet<ServerVisit>,
    next: u64,
    /// The part of a worker's time that each had so far, in nanoseconds.
    part_ns: f64,
    last_ns: u64,
}

/// A request at the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ServerVisit(u64);

#[derive(Clone, Copy, Debug)]
struct Progress {
    begun_ns: Option<u64>,
    part_ns: f64,
}

impl ServerModel {
    /// A request is sent to the server.
    pub(super) fn arrive(&mut self, slots: u32, now_ns: u64) -> ServerVisit {
        self.pass(slots, now_ns);
        let visit = ServerVisit(self.next);
        self.next += 1;
        self.there.insert(visit, Progress { begun_ns: None, part_ns: self.part_ns });
        self.unbegun.insert(visit);
        self.begin(slots, now_ns);
        visit
    }

    /// A request has ended; returns how long the server worked on it.
    pub(super) fn end(&mut self, visit: ServerVisit, slots: u32, now_ns: u64) -> u64 {
        self.pass(slots, now_ns);
        let Some(seen) = self.there.remove(&visit) else { return 0 };
        self.unbegun.remove(&visit);
        self.begin(slots, now_ns);
        match seen.begun_ns {
            Some(begun_ns) => now_ns.saturating_sub(begun_ns),
            None => (self.part_ns - seen.part_ns).max(0.0) as u64,
        }
    }

    /// How long the server has worked on it so far.
    pub(super) fn worked_ns(&self, visit: ServerVisit, now_ns: u64) -> u64 {
        let begun_ns = self.there.get(&visit).and_then(|seen| seen.begun_ns);
        begun_ns.map_or(0, |begun_ns| now_ns.saturating_sub(begun_ns))
    }

    fn begin(&mut self, slots: u32, now_ns: u64) {
        let at_work = self.there.len() - self.unbegun.len();
        for _ in at_work..slots as usize {
            let Some(visit) = self.unbegun.pop_first() else { return };
            if let Some(seen) = self.there.get_mut(&visit) {
                seen.begun_ns = Some(now_ns);
            }
        }
    }

    fn pass(&mut self, slots: u32, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.last_ns) as f64;
        let there = self.there.len().max(1) as f64;
        self.part_ns += passed_ns * (f64::from(slots.max(1)) / there).min(1.0);
        self.last_ns = self.last_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_queue_is_not_its_work() {
        let mut model = ServerModel::default();
        // Forty requests at once to four workers of 20 ms: ten rounds.
        let visits: Vec<ServerVisit> = (0..40).map(|_| model.arrive(4, 0)).collect();
        for (at, visit) in visits.into_iter().enumerate() {
            let round = at as u64 / 4 + 1;
            assert_eq!(model.end(visit, 4, round * 20), 20);
        }
        assert!(model.there.is_empty() && model.unbegun.is_empty());
    }

    #[test]
    fn dear_and_cheap_requests_keep_their_own_work() {
        let mut model = ServerModel::default();
        let (dear, cheap) = (model.arrive(2, 0), model.arrive(2, 0));
        let late = model.arrive(2, 0);
        assert_eq!(model.end(cheap, 2, 10), 10);
        assert_eq!(model.worked_ns(late, 15), 5);
        assert_eq!((model.end(late, 2, 20), model.end(dear, 2, 500)), (10, 500));
    }

    #[test]
    fn a_server_that_shares_its_time_is_given_no_more_than_its_workers_had() {
        let mut model = ServerModel::default();
        let visits: Vec<ServerVisit> = (0..8).map(|_| model.arrive(2, 0)).collect();
        // The last one ends first.
        let works: Vec<u64> = visits.into_iter().rev().map(|visit| model.end(visit, 2, 800)).collect();
        assert_eq!(works[0], 200, "an eighth of two workers for 800");
        assert!(works.iter().sum::<u64>() <= 3 * 1_600, "{works:?}");
    }
}
