//! Units, bounds and settings of one front-end's scheduler.

use super::profile::Weight;

/// An amount of work. The shell measures it in nanoseconds of slot time; only ratios matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(pub u64);

impl Work {
    /// No work.
    pub const ZERO: Work = Work(0);
    /// The most that one request or the debt cap can be: about 19 hours of slot time.
    pub const MAX: Work = Work(1 << 46);
}

/// Fraction bits of a tag: tags are in units of 2^-14 of a unit of work.
pub(super) const FRACTION_BITS: u32 = 14;

impl Work {
    /// The same in tag units; at most 2^60, so that sums and differences of a few never wrap.
    pub(super) fn tag(self) -> u64 {
        self.0.min(Work::MAX.0) << FRACTION_BITS
    }

    pub(super) fn from_tag(tag: u64) -> Work {
        Work(tag >> FRACTION_BITS)
    }
}

/// How one front-end schedules. Values outside the bounds are moved to the nearest bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests that the backend serves at once: 1 … 65 535.
    pub slots: u32,
    /// How far service elsewhere and overruns may set a session back; also the most that one request may be
    /// charged at dispatch. More than the service that a session can receive elsewhere within the exchange
    /// delay: 5 to 20 requests.
    pub debt_cap: Work,
    /// The history of a subnet that the profile does not know, in multiples of the average.
    pub stranger_weight: Weight,
    /// Whether a known history below the average counts as the average.
    pub floor_history: bool,
    /// The most requests that wait; further ones are refused: 1 … 2^30.
    pub waiting_max: u32,
    /// The most sessions remembered, with or without requests: 1 … 2^24.
    pub sessions_max: u32,
    /// The most front-ends whose reports are kept: 0 … 255.
    pub peers_max: u8,
    /// Whether reports for other front-ends are collected; if so, they must be taken.
    pub report: bool,
    /// Where the lives of records start ([`super::Report::life`]). A scheduler that replaces another one under the same name must start behind
    /// that one's [`super::Fair::lives`], or its reports are mistaken for old ones.
    pub first_life: u32,
    /// Where virtual time starts and returns to. It rolls over at 2^64; only tests need a value other than zero.
    pub origin: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            slots: 16,
            debt_cap: Work(5_000_000_000),
            stranger_weight: Weight::ONE,
            floor_history: true,
            waiting_max: 1 << 20,
            sessions_max: 1 << 20,
            peers_max: 64,
            report: true,
            first_life: 0,
            origin: 0,
        }
    }
}

impl Settings {
    pub(super) fn bounded(mut self) -> Settings {
        self.slots = self.slots.clamp(1, 65_535);
        self.debt_cap = self.debt_cap.clamp(Work(1), Work::MAX);
        self.waiting_max = self.waiting_max.clamp(1, 1 << 30);
        self.sessions_max = self.sessions_max.clamp(1, 1 << 24);
        self
    }
}
