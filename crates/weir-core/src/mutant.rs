//! Bugs put in on purpose, so that the tests can show that they would find them.
//!
//! A test plants one mutant for its own thread with `plant`, runs the same check that the real code
//! must pass, and demands that it fails. Without the feature `mutants` (that is, in every build but a
//! test's) `planted` is a constant `false` and costs nothing.

/// A named bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// The throttle stops at the threshold instead of above it.
    ThrottleStopsAtThreshold,
    /// An entry that is put into the delay queue whatever the slack never stops the user.
    ThrottleEnqueueNeverStops,
    /// Entries of an absent relay block those behind them.
    ThrottleWaitsForTheAbsent,
    /// Recipients that are only learned from are added to the mail that really waits.
    ThrottleLearningJoinsTheQueue,
    /// Multi-slack above a lowered maximum stays.
    ThrottleKeepsOldMultiSlack,
    /// A stop leaves the number of the situation as it was, so that permissions from before it stay valid.
    ThrottleStopKeepsTheSituation,
    /// However many wait in the line of a wider class, the user is not stopped.
    ThrottleLanesNeverStop,
    /// A network that is new to the account is taken for one that is known.
    ThrottleNewNetworksPass,
    /// Where single mail and mail to several share a period's slack, each of them gets it.
    ThrottlePeriodGivesBothSlacks,
    /// A full table of slack removes the key that would be forgotten next.
    CrowdForgetsTheOldest,
    /// A candidate that was aborted continues with its phases.
    ElectionElectsAfterAbort,
    /// The true leader steps down for the victory of a lower-ranked node.
    ElectionTrueLeaderYields,
    /// A leader continues to act after its lease has run out by its own clock.
    ElectionActsOnExpiredLease,
    /// A dispatcher accepts work of an epoch that is over.
    ElectionFenceForgets,
    /// A leader whose priority was made worse continues as if nothing had happened.
    ElectionKeepsOffice,
    /// Feeds: of two feeds that will be empty at the same time, the higher gets the message.
    FeedsTiesToHighest,
    /// Feeds: limits stay in force when they cost more than they save.
    FeedsStayShut,
    /// A machine runs what waits in *next* before what waits in *current*.
    RunqNextBeforeCurrent,
    /// A machine's refusals are never cleared, whatever good results it brings in between.
    RunqForgivesNoRefusal,
    /// The strain that machines report is ignored.
    RunqIgnoresStrain,
    /// `fair`: a subnet's weight changes, but the anchor of its clock does not.
    FairSkipsReanchor,
    /// `fair`: a session counts only while it waits, and not for the work that it was given ahead of its time.
    FairForgetsServed,
    /// `fair`: a subnet's history is divided only among sessions that have a request, and not among those that were served ahead of their time.
    FairForgetsLingering,
    /// `fair`: requests that are estimated to be cheap go first.
    FairBelievesPrices,
    /// `fair`: a full queue drops a request of a subnet that holds no more than the newcomer's would.
    FairDropsOfAnEqual,
    /// History: every request counts, not only visits.
    HistoryCountsRequests,
    /// The line of newcomers: a network that has had its turn keeps its place.
    LineForgetsTurns,
    /// The line of newcomers: visitors who were told a place and have not come back yet are not counted.
    LineForgetsExpected,
    /// The line takes a cookie's word for how long its visitor has waited, whatever turns it has had since.
    LineBelievesCookies,
}

/// Whether this thread runs with `mutant` planted.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn planted(_mutant: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub(crate) use switch::planted;
#[cfg(feature = "mutants")]
pub use switch::{Planted, plant};

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use core::cell::Cell;

    std::thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Keeps a mutant planted until it is dropped.
    #[derive(Debug)]
    pub struct Planted(());

    /// Plants `mutant` for this thread.
    #[must_use = "the mutant is removed when this is dropped"]
    pub fn plant(mutant: Mutant) -> Planted {
        PLANTED.set(Some(mutant));
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    pub(crate) fn planted(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }
}
