//! The settings of the scheduler, and which values are refused.

use super::priority::PriorityRules;
use core::time::Duration;

/// Settings of the scheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// THRESHOLD: how long an attempt may take from its start on a VM. Default 10 minutes.
    pub threshold: Duration,
    /// Attempts without a result after which a sample is quarantined; at least 1. Default 3.
    pub attempts_max: u8,
    /// *Current* and *next* of a machine hold at most this many waiting samples for each VM. Default 2; with 0 nothing
    /// is fetched ahead.
    pub waiting_per_vm: u32,
    /// Where the priority classes begin and end, and which directories return to *current*.
    pub priority: PriorityRules,
    /// Ageing: for each queue number that a sample is behind another, this waiting time is subtracted. Off by default: strict priority.
    pub ageing: Option<Duration>,
    /// How long samples wait for a machine that could serve them at all. Default 1 hour.
    pub unserviceable_after: Duration,
    /// Samples held at once, ended ones included until they are forgotten. Default 4 million.
    pub samples_max: u32,
    /// Needs classes that submissions may bring. Default 1024.
    pub classes_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            threshold: Duration::from_secs(600),
            attempts_max: 3,
            waiting_per_vm: 2,
            priority: PriorityRules::default(),
            ageing: None,
            unserviceable_after: Duration::from_secs(3600),
            samples_max: 4_000_000,
            classes_max: 1024,
        }
    }
}

/// Why a sample or a machine was refused. This is a normal answer, not an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunqRefusal {
    /// As many samples as allowed are held.
    Full,
    /// Its needs would be one needs class more than allowed.
    TooManyClasses,
    /// It asks for no plugin.
    NothingToRun,
    /// A machine may have 1–128 VMs.
    VmCount,
}
