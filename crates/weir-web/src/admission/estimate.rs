//! What a request will probably cost, and how long the backend takes when it is not pressed.
//!
//! One cell a route and method: an EWMA of slot time for the charge at dispatch, and one of the time to the first byte
//! when at most half of the slots were in use, against which `limit` measures pressure. A cell without
//! samples borrows from the whole backend, and that from the settings. That time is kept by subnet: requests of one class differ, and
//! who chooses cheap ones for a while must not make those of others look slow. Constant time; memory is bounded by
//! 32 subnets for each cell.

use std::time::Duration;

use http::Method;
use weir_core::fair::SubnetKey;

/// Requests that are expected to cost the same: one route, one method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(u32);

/// Methods that are told apart; all others are one.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS];

impl Class {
    /// The class of `method` on a route, by the route's number among those of its backend.
    pub fn new(route: u16, method: &Method) -> Class {
        let method = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        Class(u32::from(route) * (METHODS.len() as u32 + 1) + method as u32)
    }
}

/// All cells of a backend.
#[derive(Debug)]
pub(super) struct Estimates {
    cells: Vec<Cell>,
    whole: Cell,
    first_ns: u64,
    most_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    cost: Mean,
    unpressed: Unpressed,
}

/// Times of a backend that is not pressed, by subnet.
#[derive(Clone, Debug, Default)]
struct Unpressed {
    subnets: Vec<Seen>,
    /// Whose place is taken by the next newcomer.
    next: usize,
}

/// What one subnet has seen, and when last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    subnet: SubnetKey,
    mean: Mean,
    at_ns: u64,
}

/// Subnets whose times are kept for a class.
const SUBNETS: usize = 32;
/// Older times are used only if there are no others: the backend may be another by now. It is looked at every ten seconds.
const FRESH_NS: u64 = 15_000_000_000;

/// Nobody is charged less than this for a request.
const LEAST_NS: u64 = 10_000;

impl Estimates {
    /// Cells for this many routes; `first` is the guess before anything was measured, `most` the largest charge.
    pub(super) fn new(routes: u16, first: Duration, most: Duration) -> Estimates {
        let cells = (usize::from(routes.max(1))) * (METHODS.len() + 1);
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let most_ns = ns(most).max(LEAST_NS);
        Estimates {
            cells: vec![Cell::default(); cells],
            whole: Cell::default(),
            first_ns: ns(first).clamp(LEAST_NS, most_ns),
            most_ns,
        }
    }

    /// What to charge at dispatch.
    pub(super) fn cost_ns(&self, class: Class) -> u64 {
        let own = self.cells.get(class.0 as usize).and_then(|cell| cell.cost.value());
        own.or(self.whole.cost.value()).unwrap_or(self.first_ns).clamp(LEAST_NS, self.most_ns)
    }

    /// The mean over all classes.
    pub(super) fn mean_ns(&self) -> u64 {
        self.whole.cost.value().unwrap_or(self.first_ns).clamp(LEAST_NS, self.most_ns)
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, class: Class, took_ns: u64) {
        self.whole.cost.add(took_ns);
        if let Some(cell) = self.cells.get_mut(class.0 as usize) {
            cell.cost.add(took_ns);
        }
    }

    /// The backend has answered a request that it was given while few others ran.
    pub(super) fn answered_unpressed(&mut self, class: Class, (subnet, now_ns): (SubnetKey, u64), took_ns: u64) {
        if let Some(cell) = self.cells.get_mut(class.0 as usize) {
            cell.unpressed.add(subnet, took_ns, now_ns);
        }
    }

    /// How long the backend takes to answer this subnet when it is not pressed; what it takes for most, if that was not seen yet.
    pub(super) fn unpressed_ns(&self, class: Class, (subnet, now_ns): (SubnetKey, u64)) -> Option<u64> {
        self.cells.get(class.0 as usize)?.unpressed.value(subnet, now_ns)
    }
}

impl Unpressed {
    fn add(&mut self, subnet: SubnetKey, sample_ns: u64, at_ns: u64) {
        if let Some(seen) = self.subnets.iter_mut().find(|seen| seen.subnet == subnet) {
            seen.mean.add(sample_ns);
            seen.at_ns = at_ns;
            return;
        }
        let mut mean = Mean::default();
        mean.add(sample_ns);
        let seen = Seen { subnet, mean, at_ns };
        if self.subnets.len() < SUBNETS {
            self.subnets.push(seen);
        } else {
            self.subnets[self.next] = seen;
            self.next = (self.next + 1) % SUBNETS;
        }
    }

    fn value(&self, subnet: SubnetKey, now_ns: u64) -> Option<u64> {
        let fresh = |seen: &Seen| now_ns.saturating_sub(seen.at_ns) <= FRESH_NS;
        let own = self.subnets.iter().find(|seen| seen.subnet == subnet);
        match own {
            Some(own) if fresh(own) => Some(own.mean.ns),
            _ => self.median(fresh).or(own.map(|own| own.mean.ns)).or_else(|| self.median(|_| true)),
        }
    }

    fn median(&self, of: impl Fn(&Seen) -> bool) -> Option<u64> {
        let mut all: Vec<u64> = self.subnets.iter().filter(|seen| of(seen)).map(|seen| seen.mean.ns).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}

/// A mean that forgets: exact for the first samples, then an EWMA.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    ns: u64,
    samples: u8,
}

/// The share of a new sample, once there were as many, is one in this.
const MEMORY: u8 = 16;

impl Mean {
    fn add(&mut self, sample_ns: u64) {
        self.samples = (self.samples + 1).min(MEMORY);
        let step = (i128::from(sample_ns) - i128::from(self.ns)) / i128::from(self.samples);
        self.ns = (i128::from(self.ns) + step).clamp(0, i128::from(u64::MAX)) as u64;
    }

    fn value(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn estimates() -> Estimates {
        Estimates::new(2, Duration::from_millis(50), Duration::from_secs(5))
    }

    #[test]
    fn a_class_without_samples_borrows() {
        let mut estimates = estimates();
        let (get, post) = (Class::new(0, &Method::GET), Class::new(1, &Method::POST));
        assert_eq!(estimates.cost_ns(get), 50 * MS);
        estimates.ended(get, 10 * MS);
        assert_eq!((estimates.cost_ns(get), estimates.cost_ns(post)), (10 * MS, 10 * MS));
        for _ in 0..200 {
            estimates.ended(post, 100 * MS);
        }
        assert_eq!(estimates.cost_ns(get), 10 * MS);
        assert!(estimates.cost_ns(post).abs_diff(100 * MS) < MS);
    }

    #[test]
    fn cheap_requests_of_one_subnet_say_nothing_of_others() {
        let mut estimates = estimates();
        let get = Class::new(0, &Method::GET);
        for subnet in 1..=3 {
            estimates.answered_unpressed(get, (SubnetKey(subnet), 1), 20 * MS);
        }
        for _ in 0..1_000 {
            estimates.answered_unpressed(get, (SubnetKey(9), 1), MS);
        }
        let seen = |subnet, now_ns| estimates.unpressed_ns(get, (SubnetKey(subnet), now_ns));
        assert_eq!((seen(1, 1), seen(9, 1)), (Some(20 * MS), Some(MS)));
        assert_eq!((seen(4, 1), seen(4, 2 * FRESH_NS)), (Some(20 * MS), Some(20 * MS)), "a newcomer");
        estimates.answered_unpressed(get, (SubnetKey(2), 2 * FRESH_NS), 40 * MS);
        let seen = |subnet| estimates.unpressed_ns(get, (SubnetKey(subnet), 2 * FRESH_NS));
        assert_eq!((seen(1), seen(2)), (Some(30 * MS), Some(30 * MS)), "what was seen long ago counts no more");
        for subnet in 100..100_000 {
            estimates.answered_unpressed(get, (SubnetKey(subnet), 1), MS);
        }
        assert_eq!(estimates.cells[0].unpressed.subnets.len(), SUBNETS);
    }

    #[test]
    fn absurd_samples_and_classes_stay_in_bounds() {
        let mut estimates = estimates();
        let strange = Class::new(u16::MAX, &Method::TRACE);
        estimates.ended(strange, u64::MAX);
        estimates.answered_unpressed(strange, (SubnetKey(1), 1), 1);
        assert_eq!(estimates.cost_ns(strange), 5_000 * MS);
        assert_eq!(estimates.unpressed_ns(strange, (SubnetKey(1), 1)), None);
        estimates.ended(Class::new(0, &Method::GET), 0);
        assert_eq!(estimates.cost_ns(Class::new(0, &Method::GET)), LEAST_NS);
    }
}
