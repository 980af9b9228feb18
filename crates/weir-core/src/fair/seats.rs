//! The seat of a session: its start and finish tags, in one of the two heaps of its subnet.
//!
//! While a session waits its tag is here and not in its record, so that a change of heap and most changes of
//! order touch no record of a session.
//!
//! A session whose last waiting request was served ahead of its time *lingers*: it keeps an early seat without a request until the
//! clock has reached its tag. Until then the ideal fluid server would still be giving it the service that it has already had, so its weight
//! counts.

use super::clock::ahead;
use super::heap::{NOWHERE, Node};
use super::requests::Claim;
use crate::mutant::{Mutant, planted};

/// A session's place in the order. Packed, so that a heap with its first seat takes 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Seat {
    /// Start tag x_i.
    pub(super) start: u64,
    /// x_i + what its first request is charged when it is dispatched.
    pub(super) finish: u64,
    /// Arrival number of its first request.
    pub(super) tie: u32,
    pub(super) slot: u32,
    /// Index of its first request; [`NOWHERE`] if it only lingers.
    pub(super) head: u32,
}

impl Seat {
    const NONE: Seat = Seat { start: 0, finish: 0, tie: 0, slot: NOWHERE, head: 0 };

    /// The seat of a session whose first request starts at `start`.
    #[inline(always)]
    pub(super) fn new(slot: u32, start: u64, first: Claim) -> Seat {
        Seat { start, finish: start.wrapping_add(first.tags), tie: first.arrival, slot, head: first.index }
    }

    /// Whether its session waits for nothing.
    #[inline(always)]
    pub(super) fn lingers(&self) -> bool {
        self.head == NOWHERE
    }

    /// What is needed of its first request.
    #[inline(always)]
    pub(super) fn claim(self) -> Claim {
        Claim { tags: self.finish.wrapping_sub(self.start), arrival: self.tie, index: self.head }
    }
}

/// A seat whose start lies ahead of the subnet's clock; ordered by start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early(pub(super) Seat);

/// A seat whose start has come; ordered by start, then by arrival. All requests are ranked as if they cost the same, so the least start is
/// also the least finish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eligible(pub(super) Seat);

impl Node for Early {
    const MARK: u32 = 0;
    const NONE: Early = Early(Seat::NONE);

    #[inline]
    fn id(&self) -> u32 {
        self.0.slot
    }

    #[inline]
    fn before(&self, other: &Early) -> bool {
        ahead(self.0.start, other.0.start) < 0
    }
}

impl Node for Eligible {
    const MARK: u32 = 1 << 31;
    const NONE: Eligible = Eligible(Seat::NONE);

    #[inline]
    fn id(&self) -> u32 {
        self.0.slot
    }

    #[inline]
    fn before(&self, other: &Eligible) -> bool {
        let (mine, theirs) = match planted(Mutant::FairBelievesPrices) {
            true => (self.0.finish, other.0.finish),
            false => (self.0.start, other.0.start),
        };
        let (rank, tie) = (ahead(mine, theirs), self.0.tie.wrapping_sub(other.0.tie) as i32);
        (rank < 0) | ((rank == 0) & (tie < 0))
    }
}

/// Where a session stands, as its place says.
///
/// Aside → Early or Eligible when a request waits; Early → Eligible when the subnet's clock reaches the
/// start tag; Eligible → Early when the tag moves past the clock; back to Aside when none waits and the clock has
/// reached the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Aside,
    Early,
    Eligible,
}

impl Stand {
    #[inline]
    pub(super) fn of(place: u32) -> Stand {
        match place {
            NOWHERE => Stand::Aside,
            place if place & Eligible::MARK != 0 => Stand::Eligible,
            _ => Stand::Early,
        }
    }
}
