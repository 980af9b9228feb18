//! What the scheduler tells the code around it (the shell) to do.

use super::group::VmId;
use super::needs::Plugins;
use super::sample::{AttemptId, SampleEnd, SampleId};
use crate::time::Instant;

/// What the scheduler wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Run a sample on a VM.
    Start(Assignment),
    /// Stop an attempt and revert its VM.
    Stop {
        /// The attempt.
        attempt: AttemptId,
        /// Its VM, which is on revert from now on.
        vm: VmId,
        /// Why.
        reason: StopReason,
    },
    /// A sample has ended.
    Ended {
        /// The sample.
        sample: SampleId,
        /// How.
        end: SampleEnd,
    },
}

/// A sample that is to run on a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The attempt, by which its results are identified.
    pub attempt: AttemptId,
    /// Where.
    pub vm: VmId,
    /// Which plugins.
    pub plugins: Plugins,
    /// When THRESHOLD will have passed.
    pub deadline: Instant,
}

/// Why an attempt is to be stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StopReason {
    /// THRESHOLD has passed.
    Expired,
    /// The sample was cancelled.
    Cancelled,
    /// Late results of an earlier attempt brought all that this one was started for.
    Satisfied,
}
