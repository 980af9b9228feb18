//! An assignment: what a dispatcher is told to analyse, where, and how.

use crate::choices::Choices;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_store::samples::SampleHash;

/// One attempt: run these plugins on that sample in this VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The number of the attempt; never used again.
    pub attempt: u64,
    /// The epoch of the leader that assigns; a dispatcher refuses one below the highest it has seen.
    pub epoch: u64,
    pub sample: SampleHash,
    /// Its size in bytes.
    pub size: u64,
    /// The name that it came with, for people and plugins; not a path.
    pub name: String,
    /// The VM of the machine.
    pub vm: String,
    /// What to run, in order.
    pub plugins: Vec<PluginCall>,
    /// The attempt is cancelled after this.
    pub threshold: Duration,
    /// How many files that a plugin finds in the sample may be kept.
    #[serde(default)]
    pub children: ChildLimits,
    /// The choices for it.
    #[serde(default, skip_serializing_if = "Choices::is_none")]
    pub choices: Choices,
}

/// How much one plugin may return.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildLimits {
    /// This many files.
    pub count: u32,
    /// This many bytes, all together.
    pub bytes: u64,
}

/// One plugin of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginCall {
    /// The plugin.
    pub name: String,
    /// Its version: a result of another one does not count.
    pub version: String,
}
