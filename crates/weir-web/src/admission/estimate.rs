//! Estimates what a request will cost, and how long the backend takes when it is not under load.
//!
//! There is a cell for each route and method: an EWMA of slot time for the charge at dispatch, and one of the time to the first byte when
//! at most half of the slots were in use, against which `limit` measures pressure. A cell without samples borrows from the whole backend,
//! and that from the settings. The time to the first byte is kept by subnet: requests of one class differ, and a client that picks cheap
//! ones for a while must not make those of others look slow. Constant time; memory is bounded by 32 subnets for each cell.

use std::collections::HashMap;
use std::time::Duration;

use http::Method;
use weir_core::fair::SubnetKey;

/// Requests that are expected to cost the same: one route, one method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Class(u32);

/// Methods that are distinguished; all others count as one.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS];

impl Class {
    /// The class of `method` on a route, by the route's number among those of its backend.
    pub fn new(route: u16, method: &Method) -> Class {
        let method = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        Class(u32::from(route) * CELLS_A_ROUTE + method as u32)
    }

    /// The number of its route.
    pub(super) fn route(self) -> usize {
        (self.0 / CELLS_A_ROUTE) as usize
    }

    /// The same class after the routes have changed, by the new number of each old route. A class whose route is gone matches no other.
    pub(super) fn after(self, moved: &Moved) -> Class {
        let (route, method) = (self.0 / CELLS_A_ROUTE, self.0 % CELLS_A_ROUTE);
        moved.0.get(&route).map_or(Class(u32::MAX), |now| Class(now * CELLS_A_ROUTE + method))
    }
}

/// The new number of each old route.
#[derive(Debug)]
pub(super) struct Moved(HashMap<u32, u32>);

impl Moved {
    /// `routes` says for each route which number it had before.
    pub(super) fn new(routes: &[Option<u16>]) -> Moved {
        let moves = routes.iter().zip(0..).filter_map(|(before, now)| Some((u32::from((*before)?), now)));
        Moved(moves.collect())
    }
}

/// One for each method that is distinguished, and one for all others.
const CELLS_A_ROUTE: u32 = METHODS.len() as u32 + 1;

/// All cells of a backend.
#[derive(Debug)]
pub(super) struct Estimates {
    cells: Vec<Cell>,
    whole: Cell,
    first_ns: u64,
    most_ns: u64,
    /// The cost of each route that the owner of the site has configured: used until it was measured.
    told_ns: Vec<Option<u64>>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    cost: Mean,
    unloaded: Unloaded,
}

/// Times of a backend that is not under pressure, by subnet.
#[derive(Clone, Debug, Default)]
struct Unloaded {
    subnets: Vec<SubnetCost>,
    /// The subnet that the next new one replaces.
    next: usize,
}

/// The time that one subnet has seen, and when it was last seen.
#[derive(Clone, Copy, Debug)]
struct SubnetCost {
    subnet: SubnetKey,
    mean: Mean,
    at_ns: u64,
}

/// For how many subnets of a class times are kept.
const SUBNETS: usize = 32;
/// Older times are used only if there are no others, because the backend may have changed. A fresh time is measured every ten seconds.
const FRESH_NS: u64 = 15_000_000_000;

/// The least that a request is charged.
const LEAST_NS: u64 = 10_000;

impl Estimates {
    /// Cells for this many routes; `first` is the guess before anything was measured, `most` the largest charge.
    pub(super) fn new(routes: u16, first: Duration, most: Duration) -> Estimates {
        let cells = usize::from(routes.max(1)) * CELLS_A_ROUTE as usize;
        let (first_ns, most_ns) = bounds(first, most);
        Estimates {
            cells: vec![Cell::default(); cells],
            whole: Cell::default(),
            first_ns,
            most_ns,
            told_ns: Vec::new(),
        }
    }

    /// The cost of each route that the owner of the site has configured. It is only used at the start: measurements count more, and in the end a request is
    /// charged what it really cost.
    pub(super) fn tell(&mut self, costs: &[Option<Duration>]) {
        let ns = |cost: &Duration| u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self.told_ns = costs.iter().map(|cost| cost.as_ref().map(ns)).collect();
    }

    /// The routes have changed: `routes` says for each of them which number it had before. Measurements stay with their route.
    pub(super) fn change(&mut self, routes: &[Option<u16>], first: Duration, most: Duration) {
        let width = CELLS_A_ROUTE as usize;
        let mut before = std::mem::take(&mut self.cells);
        self.cells = vec![Cell::default(); routes.len().max(1) * width];
        for (cells, from) in self.cells.chunks_mut(width).zip(routes) {
            let from = from.map_or(usize::MAX, |from| usize::from(from) * width);
            if let Some(known) = before.get_mut(from..from.saturating_add(width)) {
                cells.swap_with_slice(known);
            }
        }
        (self.first_ns, self.most_ns) = bounds(first, most);
    }

    /// What to charge at dispatch.
    pub(super) fn cost_ns(&self, class: Class) -> u64 {
        let own = self.cells.get(class.0 as usize).and_then(|cell| cell.cost.value());
        let told = || self.told_ns.get(class.route()).copied().flatten();
        own.or_else(told).or(self.whole.cost.value()).unwrap_or(self.first_ns).clamp(LEAST_NS, self.most_ns)
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
    pub(super) fn answered_unloaded(&mut self, class: Class, subnet: SubnetKey, now_ns: u64, took_ns: u64) {
        if let Some(cell) = self.cells.get_mut(class.0 as usize) {
            cell.unloaded.add(subnet, took_ns, now_ns);
        }
    }

    /// How long the backend takes to answer this subnet when it is not under pressure; if that was not seen yet, the time for most subnets.
    pub(super) fn unloaded_ns(&self, class: Class, subnet: SubnetKey, now_ns: u64) -> Option<u64> {
        self.cells.get(class.0 as usize)?.unloaded.value(subnet, now_ns)
    }
}

impl Unloaded {
    fn add(&mut self, subnet: SubnetKey, sample_ns: u64, at_ns: u64) {
        if let Some(seen) = self.subnets.iter_mut().find(|seen| seen.subnet == subnet) {
            seen.mean.add(sample_ns);
            seen.at_ns = at_ns;
            return;
        }
        let mut mean = Mean::default();
        mean.add(sample_ns);
        let seen = SubnetCost { subnet, mean, at_ns };
        if self.subnets.len() < SUBNETS {
            self.subnets.push(seen);
        } else {
            self.subnets[self.next] = seen;
            self.next = (self.next + 1) % SUBNETS;
        }
    }

    fn value(&self, subnet: SubnetKey, now_ns: u64) -> Option<u64> {
        let fresh = |seen: &SubnetCost| now_ns.saturating_sub(seen.at_ns) <= FRESH_NS;
        let own = self.subnets.iter().find(|seen| seen.subnet == subnet);
        match own {
            Some(own) if fresh(own) => Some(own.mean.ns),
            _ => self.median(fresh).or(own.map(|own| own.mean.ns)).or_else(|| self.median(|_| true)),
        }
    }

    fn median(&self, of: impl Fn(&SubnetCost) -> bool) -> Option<u64> {
        let mut all: Vec<u64> = self.subnets.iter().filter(|seen| of(seen)).map(|seen| seen.mean.ns).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}

/// The guess before anything was measured, and the largest charge, in nanoseconds.
fn bounds(first: Duration, most: Duration) -> (u64, u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let most_ns = ns(most).max(LEAST_NS);
    (ns(first).clamp(LEAST_NS, most_ns), most_ns)
}

/// A moving average: exact for the first samples, then an EWMA.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    ns: u64,
    samples: u8,
}

/// When enough samples were seen, a new one counts as one in this many.
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
    fn what_the_owner_says_counts_until_it_was_measured() {
        let mut estimates = estimates();
        let (get, post) = (Class::new(0, &Method::GET), Class::new(1, &Method::POST));
        estimates.tell(&[None, Some(Duration::from_secs(2))]);
        estimates.ended(get, 10 * MS);
        assert_eq!((estimates.cost_ns(get), estimates.cost_ns(post)), (10 * MS, 2_000 * MS));
        estimates.ended(post, 100 * MS);
        assert_eq!(estimates.cost_ns(post), 100 * MS);
        estimates.tell(&[Some(Duration::MAX)]);
        assert_eq!(estimates.cost_ns(Class::new(0, &Method::PUT)), 5_000 * MS, "within bounds");
    }

    #[test]
    fn cheap_requests_of_one_subnet_say_nothing_of_others() {
        let mut estimates = estimates();
        let get = Class::new(0, &Method::GET);
        for subnet in 1..=3 {
            estimates.answered_unloaded(get, SubnetKey(subnet), 1, 20 * MS);
        }
        for _ in 0..1_000 {
            estimates.answered_unloaded(get, SubnetKey(9), 1, MS);
        }
        let seen = |subnet, now_ns| estimates.unloaded_ns(get, SubnetKey(subnet), now_ns);
        assert_eq!((seen(1, 1), seen(9, 1)), (Some(20 * MS), Some(MS)));
        assert_eq!((seen(4, 1), seen(4, 2 * FRESH_NS)), (Some(20 * MS), Some(20 * MS)), "a newcomer");
        estimates.answered_unloaded(get, SubnetKey(2), 2 * FRESH_NS, 40 * MS);
        let seen = |subnet| estimates.unloaded_ns(get, SubnetKey(subnet), 2 * FRESH_NS);
        assert_eq!((seen(1), seen(2)), (Some(30 * MS), Some(30 * MS)), "what was seen long ago counts no more");
        for subnet in 100..100_000 {
            estimates.answered_unloaded(get, SubnetKey(subnet), 1, MS);
        }
        assert_eq!(estimates.cells[0].unloaded.subnets.len(), SUBNETS);
    }

    #[test]
    fn what_was_measured_stays_with_its_route() {
        let mut estimates = estimates();
        let class = |route| Class::new(route, &Method::POST);
        estimates.ended(class(0), 10 * MS);
        estimates.ended(class(1), 80 * MS);
        // The second is first now, and the first has gone; another has come.
        let routes = [Some(1), None];
        estimates.change(&routes, Duration::from_millis(50), Duration::from_secs(5));
        assert_eq!((estimates.cost_ns(class(0)), estimates.cost_ns(class(1))), (80 * MS, 45 * MS));
        let moved = Moved::new(&routes);
        assert_eq!(class(1).after(&moved), class(0));
        assert_eq!(estimates.cost_ns(class(0).after(&moved)), 45 * MS, "that of all");
        estimates.change(&[], Duration::from_millis(50), Duration::from_millis(20));
        assert_eq!(estimates.cost_ns(class(0)), 20 * MS);
    }

    #[test]
    fn absurd_samples_and_classes_stay_in_bounds() {
        let mut estimates = estimates();
        let strange = Class::new(u16::MAX, &Method::TRACE);
        estimates.ended(strange, u64::MAX);
        estimates.answered_unloaded(strange, SubnetKey(1), 1, 1);
        assert_eq!(estimates.cost_ns(strange), 5_000 * MS);
        assert_eq!(estimates.unloaded_ns(strange, SubnetKey(1), 1), None);
        estimates.ended(Class::new(0, &Method::GET), 0);
        assert_eq!(estimates.cost_ns(Class::new(0, &Method::GET)), LEAST_NS);
    }
}
