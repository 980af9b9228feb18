//! Exact fractions, for a model that must not round.

use std::cmp::Ordering;
use std::ops::{Add, Sub};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio {
    num: i128,
    den: i128,
}

impl Ratio {
    pub(super) fn new(num: i128, den: i128) -> Ratio {
        let divisor = gcd(num.abs(), den.abs()).max(1) * den.signum();
        Ratio { num: num / divisor, den: den / divisor }
    }

    pub(super) fn whole(num: i128) -> Ratio {
        Ratio { num, den: 1 }
    }

    pub(super) fn times(self, factor: i128) -> Ratio {
        Ratio::new(self.num * factor, self.den)
    }

    pub(super) fn over(self, divisor: i128) -> Ratio {
        Ratio::new(self.num, self.den * divisor)
    }

    pub(super) fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }

    pub(super) fn ceil(self) -> i128 {
        -(-self.num).div_euclid(self.den)
    }
}

impl Add for Ratio {
    type Output = Ratio;
    fn add(self, other: Ratio) -> Ratio {
        Ratio::new(self.num * other.den + other.num * self.den, self.den * other.den)
    }
}

impl Sub for Ratio {
    type Output = Ratio;
    fn sub(self, other: Ratio) -> Ratio {
        self + other.times(-1)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        (self.num * other.den).cmp(&(other.num * self.den))
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
