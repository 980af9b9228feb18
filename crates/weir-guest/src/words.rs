//! The contents of frames that are JSON.

use serde::{Deserialize, Serialize};

/// The name of the virtio-serial port.
pub const PORT: &str = "weir.agent.0";

/// To the guest: are you there?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Comes back, so that an answer of an earlier life is no answer.
    pub nonce: String,
    /// Randomness for a guest that is a copy of others, in hexadecimal.
    pub seed: String,
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
}

/// From the guest: I am.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The nonce of the hello that this answers.
    pub nonce: String,
    /// The agent and its system, for people.
    pub agent: String,
    /// The guest's clock that never steps, in nanoseconds; by two of these the lab knows whether it runs at the right speed.
    #[serde(default)]
    pub clock_ns: Option<u64>,
}

/// To the guest: how to run the sample that follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The name that the sample should have.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// How long it is watched at most.
    pub watch_ms: u64,
    /// Whether it runs as root.
    #[serde(default)]
    pub root: bool,
    /// Nanoseconds since the Unix epoch: a VM may have waited for its sample.
    pub time_ns: u64,
    /// Files that may be sent back.
    pub files_max: u32,
    /// Their length together.
    pub files_bytes_max: u64,
    /// Nothing answers on its network.
    #[serde(default)]
    pub offline: bool,
}

/// From the guest: a file that the sample left follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Where it was.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}
