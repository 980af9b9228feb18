//! The history profile, and the function RATE of the thesis (Figure 3-10), which computes how much a subnet may claim.
//!
//! Histories are in multiples of the average over all subnets, so the average G is one and only ratios
//! are kept. A session of a subnet with history H of which n sessions are active weighs min(G, H / n).

use super::SubnetKey;
use super::keys::KeyMap;

/// A share in multiples of the average subnet's share, with 24 fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u64);

impl Weight {
    /// The average history, G.
    pub const ONE: Weight = Weight(1 << 24);
    /// A million times the average; larger weights are reduced to this.
    pub const MAX: Weight = Weight(1_000_000 << 24);

    /// `ratio` times the average; NaN and numbers that are not positive become the least weight there is.
    pub fn from_ratio(ratio: f64) -> Weight {
        Weight(((ratio * Weight::ONE.0 as f64) as u64).clamp(1, Weight::MAX.0))
    }

    /// In multiples of the average.
    pub fn ratio(self) -> f64 {
        self.0 as f64 / Weight::ONE.0 as f64
    }

    pub(super) fn from_units(units: u64) -> Weight {
        Weight(units)
    }
}

/// The history of known subnets: one versioned document, the same at every front-end.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    known: KeyMap<Weight>,
}

impl Profile {
    /// A profile in which `subnet` had this history.
    #[must_use]
    pub fn with(mut self, subnet: SubnetKey, history: Weight) -> Profile {
        self.known.insert(subnet.0, history);
        self
    }

    /// A profile from request rates in any unit: the average over these subnets becomes one. Rates that
    /// are not positive numbers are left out.
    pub fn from_rates(rates: &[(SubnetKey, f64)]) -> Profile {
        let sound = || rates.iter().filter(|(_, rate)| rate.is_finite() && *rate > 0.0);
        let average = sound().map(|(_, rate)| rate).sum::<f64>() / sound().count().max(1) as f64;
        sound().fold(Profile::default(), |profile, (key, rate)| profile.with(*key, Weight::from_ratio(rate / average)))
    }

    /// The history of `subnet`, if it has one.
    pub fn history(&self, subnet: SubnetKey) -> Option<Weight> {
        self.known.get(&subnet.0).copied()
    }
}

/// min(G, H / n) in weight units, at least one unit. Rounded down, so that a crowd gets no more than its share.
#[inline]
pub(super) fn rate(history: Weight, active: u32) -> u32 {
    (history.0 / u64::from(active.max(1))).clamp(1, Weight::ONE.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_the_average_serves_ten_sessions_in_full() {
        let history = Weight::from_ratio(10.0);
        assert_eq!(rate(history, 1), 1 << 24);
        assert_eq!(rate(history, 10), 1 << 24);
        assert_eq!(rate(history, 11), (10 << 24) / 11);
    }

    #[test]
    fn absurd_ratios_and_rates_stay_in_bounds() {
        for ratio in [f64::NAN, -1.0, 0.0, 1e-300] {
            assert_eq!(Weight::from_ratio(ratio), Weight(1));
        }
        assert_eq!(Weight::from_ratio(f64::INFINITY), Weight::MAX);
        let rates = [(SubnetKey(1), 30.0), (SubnetKey(2), 10.0), (SubnetKey(3), f64::NAN)];
        let profile = Profile::from_rates(&rates);
        assert_eq!(profile.history(SubnetKey(1)), Some(Weight::from_ratio(1.5)));
        assert_eq!(profile.history(SubnetKey(3)), None);
    }
}
