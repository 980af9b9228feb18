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
    /// The sample's own file in the guest; empty where an agent does not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sample: String,
    /// How its first process ended, or that it was still watched at the end.
    #[serde(default)]
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
    /// What else it did that tells something.
    #[serde(default)]
    pub acts: Vec<Act>,
    /// The beginning of what it printed.
    #[serde(default)]
    pub output: String,
    /// How much more happened than is listed.
    #[serde(default)]
    pub left_out: u64,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number in the guest.
    pub pid: u32,
    /// The number of whoever started it.
    pub parent: u32,
    /// What it runs.
    pub path: String,
    /// With what.
    pub arguments: Vec<String>,
    /// As whom, where users have numbers.
    pub user: Option<u32>,
    /// `exit N`, `signal N`, or nothing if it had not ended.
    pub ended: String,
}

/// A change of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileChange {
    /// Who did it first; 0 if that is not known.
    pub pid: u32,
    /// Where.
    pub path: String,
    /// `written`, `deleted` or `renamed`.
    pub what: String,
    /// Its new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// It was there before the sample, with something in it.
    #[serde(skip_serializing_if = "is_false")]
    pub existed: bool,
    /// Its length at the end, if it was still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its SHA-256 at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What is in it at the end looks random: it is packed or encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub random: bool,
}

/// Something with the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Who; 0 if that is not known.
    pub pid: u32,
    /// `connect`, `send`, `dns`, `http`, `talk` (a line of something else) or `listen`.
    pub what: String,
    /// An address with its port, or the name that was asked for.
    pub to: String,
    /// What was asked or said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The name of the server, where one was said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// An attempt to stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Persistence {
    /// The file.
    pub path: String,
    /// The way: `cron`, `rc`, `systemd`, `shell`, `preload`, `ssh`, `autostart`, `account` or `module`.
    pub what: String,
}

/// Something else that tells what a sample is up to. It counts whether it worked or not.
///
/// | `what` | `detail` |
/// | --- | --- |
/// | `reads` | a file of [`crate::secret`] |
/// | `kills` | signal and process, of one that the sample did not start: `9 1`; process -1 is everybody |
/// | `traces` | the process that it wants to trace or whose memory it writes; `itself` if it wants to be traced |
/// | `session` | nothing: it made a session of its own |
/// | `named` | the name of a kernel's thread that it gave itself |
/// | `takes-orders` | a program whose input is a connection |
/// | `preloads` | a library that is put into a program by its environment |
/// | `device` | a device or file of the kernel that it wants to write to |
/// | `setuid` | a file that it made run as its owner |
/// | `loads` | nothing: a module for the kernel |
/// | `reboots` | nothing |
/// | `fails-to-run` | a file that is there and is no program of this guest |
/// | `not-run` | why the sample itself did not run |
/// | `becomes` | the program that a process became which had been another one before |
/// | `missing` | a command or interpreter that was looked for and is not in this guest |
/// | `sleeps` | how long it wanted to wait, such as `3600 s`; the agent has made it short |
/// | `second-stage` | the link of a program that the agent gave out and that ran |
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Act {
    /// Who; 0 if that is not known.
    pub pid: u32,
    /// What.
    pub what: String,
    /// With what.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !*value
}
