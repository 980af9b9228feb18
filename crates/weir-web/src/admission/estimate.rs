//! What a request will probably cost, and how long the backend takes when it is not pressed.
//!
//! One cell a route and method: an EWMA of slot time for the charge at dispatch, and one of the time to the first byte
//! when at most half of the slots were in use, against which `limit` measures pressure. A cell without
//! samples borrows from the whole backend, and that from the settings. Constant time, memory fixed at start.

use std::time::Duration;

use http::Method;

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

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    cost: Mean,
    unpressed: Mean,
}

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
    pub(super) fn answered_unpressed(&mut self, class: Class, took_ns: u64) {
        if let Some(cell) = self.cells.get_mut(class.0 as usize) {
            cell.unpressed.add(took_ns);
        }
    }

    /// How long the backend takes to answer when it is not pressed, if that was ever seen.
    pub(super) fn unpressed_ns(&self, class: Class) -> Option<u64> {
        self.cells.get(class.0 as usize)?.unpressed.value()
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
    fn absurd_samples_and_classes_stay_in_bounds() {
        let mut estimates = estimates();
        let strange = Class::new(u16::MAX, &Method::TRACE);
        estimates.ended(strange, u64::MAX);
        estimates.answered_unpressed(strange, 1);
        assert_eq!(estimates.cost_ns(strange), 5_000 * MS);
        assert_eq!(estimates.unpressed_ns(strange), None);
        estimates.ended(Class::new(0, &Method::GET), 0);
        assert_eq!(estimates.cost_ns(Class::new(0, &Method::GET)), LEAST_NS);
    }
}
