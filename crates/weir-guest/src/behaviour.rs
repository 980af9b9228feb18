//! What a sample did, as the agent reports it.

use serde::{Deserialize, Serialize};

/// The most of each that a report lists.
pub const LISTED_MAX: usize = 512;
/// The longest text of a report.
pub const TEXT_MAX: usize = 1024;
/// The most arguments of a process that are listed.
pub const ARGUMENTS_MAX: usize = 32;
/// How much of what a sample prints is kept.
pub const OUTPUT_MAX: usize = 4096;

/// What a sample did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// How its first process ended, or that it was still watched at the end.
    pub ended: String,
    /// The processes that it became.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// What it did to files.
    #[serde(default)]
    pub files: Vec<FileChange>,
    /// Whom it called, and who could call it.
    #[serde(default)]
    pub network: Vec<Network>,
    /// What would outlive a restart.
    #[serde(default)]
    pub persistence: Vec<Persistence>,
    /// The beginning of what it printed.
    #[serde(default)]
    pub output: String,
    /// How much more happened than is listed.
    #[serde(default)]
    pub left_out: u64,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number in the guest.
    pub pid: u32,
    /// The number of whoever started it.
    pub parent: u32,
    /// What it runs.
    pub path: String,
    /// With what.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// As whom.
    pub user: u32,
    /// `exit N`, `signal N`, or nothing if it had not ended.
    #[serde(default)]
    pub ended: String,
}

/// A change of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Where.
    pub path: String,
    /// `written`, `deleted` or `renamed`.
    pub what: String,
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its length at the end, if it was still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its SHA-256 at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Something with the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// Who; 0 if that is not known.
    pub pid: u32,
    /// `connect`, `send`, `dns`, `http` or `listen`.
    pub what: String,
    /// An address with its port, or the name that was asked for.
    pub to: String,
    /// What was asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The name of the server, where one was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// An attempt to stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Persistence {
    /// The file.
    pub path: String,
    /// The way: `cron`, `rc`, `systemd`, `shell`, `preload`, `ssh`, `autostart`, `account` or `module`.
    pub what: String,
}
