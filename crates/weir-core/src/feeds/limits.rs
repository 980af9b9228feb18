//! The feeds' size limits s_1 ≤ s_2 ≤ … ≤ s_{N−1}, in bytes; feed N has none.
//!
//! Invariants: at least one limit, at most [`FEEDS_MAX`] − 1, in ascending order. Equal limits are legal: the feeds
//! between them then have no class of their own.

use alloc::vec::Vec;
use core::fmt;

/// The largest number of feeds.
pub const FEEDS_MAX: usize = 64;

/// The limits of N feeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    bytes: Vec<u64>,
}

impl Limits {
    /// A limit that no message reaches: a feed with it takes every size. It may also be set in a configuration.
    pub const UNLIMITED: u64 = 1 << 40;

    /// N feeds without limits: one line.
    pub fn unlimited(feeds: usize) -> Result<Limits, LimitsError> {
        Limits::new(alloc::vec![Limits::UNLIMITED; feeds.saturating_sub(1)])
    }

    /// Takes N − 1 limits in ascending order.
    pub fn new(bytes: Vec<u64>) -> Result<Limits, LimitsError> {
        if bytes.is_empty() {
            return Err(LimitsError::None);
        }
        if bytes.len() >= FEEDS_MAX {
            return Err(LimitsError::TooMany(bytes.len()));
        }
        match bytes.windows(2).position(|w| matches!(w, [a, b] if a > b)) {
            Some(i) => Err(LimitsError::Disordered(i + 2)),
            None => Ok(Limits { bytes }),
        }
    }

    /// The paper's default limits (2000, 10000, 50000, 250000), or as many between the same ends; scaled to `last`.
    pub fn default_for(feeds: usize, last: u64) -> Result<Limits, LimitsError> {
        let steps = feeds.saturating_sub(2).max(1) as f64;
        let limit = |below_last: usize| last as f64 / libm::pow(125.0, below_last as f64 / steps);
        let below_last = (0..feeds.saturating_sub(1)).rev();
        Limits::new(below_last.map(|i| if i == 0 { last } else { libm::round(limit(i)) as u64 }).collect())
    }

    /// N, the number of feeds.
    pub fn feeds(&self) -> usize {
        self.bytes.len() + 1
    }

    /// The class of a size: the k with s_{k−1} < s ≤ s_k, counted from 0; the last class is above every limit.
    #[inline]
    pub fn class_of(&self, size: u64) -> usize {
        // A handful of limits: counting is faster than a binary search, and has no branch to mispredict.
        self.bytes.iter().map(|limit| usize::from(*limit < size)).sum()
    }

    /// The class of messages above every limit that a message could reach; 0 if there is no such limit.
    pub fn largest_class(&self) -> usize {
        self.bytes.iter().filter(|limit| **limit < Limits::UNLIMITED).count()
    }

    /// All limits, in ascending order.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// s_{N−1}, the largest limit.
    pub fn last(&self) -> u64 {
        self.bytes.last().copied().unwrap_or(0)
    }
}

/// For people: `2000 / 10000 / none`.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, limit) in self.bytes.iter().enumerate() {
            f.write_str(if i > 0 { " / " } else { "" })?;
            match *limit < Limits::UNLIMITED {
                true => write!(f, "{limit}")?,
                false => f.write_str("none")?,
            }
        }
        Ok(())
    }
}

/// Why a list of numbers is not a list of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// No limit was given.
    None,
    /// This many limits were given: more than [`FEEDS_MAX`] − 1.
    TooMany(usize),
    /// The limit with this number (counted from 1) is smaller than the one before it.
    Disordered(usize),
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitsError::None => write!(f, "there is no limit: two feeds need one"),
            LimitsError::TooMany(count) => write!(f, "{count} limits are too many: at most {}", FEEDS_MAX - 1),
            LimitsError::Disordered(at) => write!(f, "limit {at} is smaller than limit {}", at - 1),
        }
    }
}

impl core::error::Error for LimitsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn classes_end_at_their_limit() {
        let limits = Limits::default_for(5, 250_000).unwrap();
        assert_eq!(limits.bytes(), [2000, 10_000, 50_000, 250_000]);
        let classes = [0, 2000, 2001, 10_000, 250_000, 250_001, u64::MAX].map(|s| limits.class_of(s));
        assert_eq!(classes, [0, 0, 1, 1, 3, 4, 4]);
        let equal = Limits::new(vec![5, 5, 9]).unwrap();
        assert_eq!([5, 6].map(|s| equal.class_of(s)), [0, 2], "equal limits leave no class between them");
    }

    #[test]
    fn limits_are_shown_as_people_read_them() {
        let limits = Limits::new(vec![2000, 10_000, Limits::UNLIMITED]).unwrap();
        assert_eq!(alloc::format!("{limits}"), "2000 / 10000 / none");
    }

    #[test]
    fn disorder_is_refused_with_its_place() {
        assert_eq!(Limits::new(vec![]), Err(LimitsError::None));
        assert_eq!(Limits::new(vec![1, 3, 2]), Err(LimitsError::Disordered(3)));
        assert_eq!(Limits::new(vec![0; 64]), Err(LimitsError::TooMany(64)));
        assert_eq!(Limits::default_for(1, 10), Err(LimitsError::None));
        assert_eq!(Limits::default_for(2, 10).unwrap().bytes(), [10]);
        assert_eq!(Limits::default_for(3, 250_000).unwrap().bytes(), [2000, 250_000]);
    }
}
