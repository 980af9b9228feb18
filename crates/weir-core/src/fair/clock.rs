//! Virtual time of one front-end: how much work each unit of backlogged weight has been given.
//!
//! It is an integer that never runs backwards and may roll over at 2^64. One unit is about a microsecond of slot time at the average
//! weight. The remainder of a division is carried over, so small advances at a large total weight lose nothing.

/// Virtual time V.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualClock {
    now: u64,
    /// Work (in tag units) done but not yet turned into time; below zero where a request was charged
    /// more than it took, so that the clock waits until the work has caught up.
    carried: i64,
}

impl VirtualClock {
    pub(super) fn starting_at(origin: u64) -> VirtualClock {
        VirtualClock { now: origin, carried: 0 }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// `tags` of work were given to backlogged sessions of this total weight. With nobody backlogged
    /// there is no one to measure by, and nothing happens.
    #[inline]
    pub(super) fn advance(&mut self, tags: i64, weight: u64) {
        if weight == 0 {
            return;
        }
        self.carried = self.carried.saturating_add(tags);
        if self.carried >= weight as i64 {
            let units = self.carried as u64 / weight;
            self.now = self.now.wrapping_add(units);
            self.carried -= (units * weight) as i64;
        }
    }

    /// Nobody is eligible before `then`, so the clock jumps there.
    pub(super) fn jump(&mut self, then: u64) {
        *self = VirtualClock::starting_at(then);
    }
}

/// How far `tag` lies ahead of `other`; both may have rolled over.
#[inline]
pub(super) fn ahead(tag: u64, other: u64) -> i64 {
    tag.wrapping_sub(other) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_advances_add_up_and_refunds_hold_the_clock() {
        let mut clock = VirtualClock::starting_at(u64::MAX);
        (0..30).for_each(|_| clock.advance(1, 10));
        assert_eq!(clock.now(), 2, "three units across the rollover");
        clock.advance(-25, 10);
        clock.advance(30, 10);
        assert_eq!(clock.now(), 2);
        clock.advance(5, 10);
        assert_eq!(clock.now(), 3);
        clock.advance(1_000, 0);
        assert_eq!(clock.now(), 3);
    }
}
