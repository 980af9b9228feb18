//! The M/G/1 formulas (eq. 2–7): what each feed's messages wait on average, and which rate the feeds can bear.
//!
//! The waits hold for [`Strategy::Size`], whose feeds see Poisson arrivals; the other strategies must be simulated.
//! λ_max holds for all three, see [`Mg1::lambda_max_per_s`]. A question costs O(N log M).

use super::size_table::Sums;
use super::{Limits, Load, Objective, Plan, SizeTable, Strategy};
use alloc::vec::Vec;

/// The formulas for one distribution of sizes and one load.
#[derive(Clone, Copy, Debug)]
pub struct Mg1<'a> {
    /// The sizes.
    pub table: &'a SizeTable,
    /// λ and the service time.
    pub load: Load,
}

/// One feed as the formulas see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedModel {
    /// F_i, its share of all messages.
    pub fraction: f64,
    /// λ_i t̄_i, the share of time that its worker is busy; unstable from 1 on (eq. 5).
    pub load: f64,
    /// t̄_i in seconds (eq. 2); 0 if the feed gets nothing.
    pub mean_service_s: f64,
    /// W_i in seconds (eq. 4); infinite if unstable.
    pub wait_s: f64,
}

impl<'a> Mg1<'a> {
    /// The formulas for these sizes and this load.
    pub fn new(table: &'a SizeTable, load: Load) -> Mg1<'a> {
        Mg1 { table, load }
    }

    /// Each feed under [`Strategy::Size`], the last included.
    pub fn feeds(&self, limits: &Limits) -> Vec<FeedModel> {
        self.classes(limits).map(|sums| self.feed(sums)).collect()
    }

    /// W under [`Strategy::Size`] (eq. 7 with the objective's weights); infinite if a feed that counts is unstable.
    pub fn mean_wait_s(&self, limits: &Limits, objective: &Objective) -> f64 {
        let counted = objective.feeds_counted(limits.feeds());
        let ends = limits.bytes().iter().map(|b| *b as f64).chain([f64::INFINITY]);
        let mut from = 0.0;
        let mut total = 0.0;
        for to in ends.take(counted) {
            total += self.weighted_wait_s(from, to, objective);
            from = to;
        }
        total
    }

    /// The largest λ that the feeds counted in W can handle (the last feed is left out, see [`Plan`]).
    ///
    /// By size this is eq. 6. For limits that give way it is what all feeds can handle without any limits. Where feeds k … N−1 share the work of classes k … N−1, it is the minimum over k of
    /// their number divided by that work: no strategy within these limits can handle more.
    pub fn lambda_max_per_s(&self, plan: &Plan) -> f64 {
        let works: Vec<f64> = self.classes(&plan.limits).map(|sums| self.load.service.work(sums).0).collect();
        if plan.opens {
            return works.len() as f64 / works.iter().sum::<f64>();
        }
        let last = works.len() - 1;
        let end = if plan.last_feed_helps && plan.strategy != Strategy::Size { last + 1 } else { last };
        let rate = |k: usize| match plan.strategy {
            Strategy::Size => 1.0 / works[k],
            Strategy::SizeLoad | Strategy::Shortest => (end - k) as f64 / works[k..end].iter().sum::<f64>(),
        };
        (0..end).map(rate).fold(f64::INFINITY, f64::min)
    }

    /// Whether the feeds that count can handle the load permanently (eq. 5).
    pub fn bears(&self, plan: &Plan, objective: &Objective) -> bool {
        let last_work = self
            .load
            .service
            .work(self.table.below(f64::INFINITY).minus(self.table.below(plan.limits.last() as f64)))
            .0;
        let last_counts = !plan.opens && objective.feeds_counted(plan.limits.feeds()) == plan.limits.feeds();
        let last_bears = !last_counts || self.load.lambda_per_s * last_work < 1.0;
        last_bears && self.load.lambda_per_s < self.lambda_max_per_s(plan)
    }

    /// The bound on λ_max: all messages up to the last limit spread over N − 1 feeds without limits.
    pub fn lambda_bound_per_s(&self, limits: &Limits) -> f64 {
        let work = self.load.service.work(self.table.below(limits.last() as f64)).0;
        (limits.feeds() - 1) as f64 / work
    }

    /// w·F·W of one feed for sizes in `from` < s ≤ `to`.
    pub(super) fn weighted_wait_s(&self, from: f64, to: f64, objective: &Objective) -> f64 {
        let sums = self.table.below(to).minus(self.table.below(from));
        let weight = objective.weights.share_below(self.table, to) - objective.weights.share_below(self.table, from);
        if sums.p < 1e-12 { 0.0 } else { weight * self.wait_s(sums) }
    }

    /// W_i (eq. 4) of a feed that gets these messages.
    pub(super) fn wait_s(&self, sums: Sums) -> f64 {
        let (work, square) = self.load.service.work(sums);
        let busy = self.load.lambda_per_s * work;
        if busy < 1.0 { self.load.lambda_per_s * square / (2.0 * (1.0 - busy)) } else { f64::INFINITY }
    }

    fn feed(&self, sums: Sums) -> FeedModel {
        let work = self.load.service.work(sums).0;
        let mean_service_s = if sums.p > 0.0 { work / sums.p } else { 0.0 };
        FeedModel {
            fraction: sums.p,
            load: self.load.lambda_per_s * work,
            mean_service_s,
            wait_s: if sums.p > 0.0 { self.wait_s(sums) } else { 0.0 },
        }
    }

    /// The sums of each class, from the smallest.
    fn classes(&self, limits: &Limits) -> impl Iterator<Item = Sums> {
        let ends = limits.bytes().iter().map(|b| *b as f64).chain([f64::INFINITY]);
        let mut before = Sums::default();
        ends.map(|end| self.table.below(end)).map(move |upto| {
            let class = upto.minus(before);
            before = upto;
            class
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feeds::Service;
    use alloc::vec;

    fn table() -> SizeTable {
        SizeTable::new(&[vec![1000; 60], vec![4000; 40]].concat()).unwrap()
    }

    fn mg1(table: &SizeTable, lambda_per_s: f64) -> Mg1<'_> {
        Mg1::new(table, Load { lambda_per_s, service: Service::new(0.0, 0.001).unwrap() })
    }

    #[test]
    fn one_feed_a_size_is_two_queues_with_fixed_service() {
        let table = table();
        let limits = Limits::new(vec![1000, 4000]).unwrap();
        let feeds = mg1(&table, 0.5).feeds(&limits);
        // M/D/1: W = λ t² / (2 (1 − λ t)).
        assert!((feeds[0].wait_s - 0.3 / (2.0 * 0.7)).abs() < 1e-9, "{feeds:?}");
        assert!((feeds[1].wait_s - 0.2 * 16.0 / (2.0 * 0.2)).abs() < 1e-9, "{feeds:?}");
        assert_eq!((feeds[2].fraction, feeds[2].wait_s), (0.0, 0.0));
        let wait = mg1(&table, 0.5).mean_wait_s(&limits, &Objective::default());
        assert!((wait - (0.6 * feeds[0].wait_s + 0.4 * feeds[1].wait_s)).abs() < 1e-9);
    }

    #[test]
    fn the_largest_rate_depends_on_who_shares_the_work() {
        let table = table();
        let limits = Limits::new(vec![1000, 4000]).unwrap();
        let rate = |strategy| mg1(&table, 0.1).lambda_max_per_s(&Plan::new(limits.clone(), strategy));
        assert!((rate(Strategy::Size) - 1.0 / 1.6).abs() < 1e-9);
        assert!((rate(Strategy::SizeLoad) - 1.0 / 1.6).abs() < 1e-9, "feed 2 alone must bear the large");
        let open = Plan::new(Limits::new(vec![4000, 4000]).unwrap(), Strategy::SizeLoad);
        assert!((mg1(&table, 0.1).lambda_max_per_s(&open) - 2.0 / 2.2).abs() < 1e-9);
        assert!((mg1(&table, 0.1).lambda_bound_per_s(&limits) - 2.0 / 2.2).abs() < 1e-9);
        assert!(mg1(&table, 0.7).mean_wait_s(&limits, &Objective::default()).is_infinite());
    }
}
