//! What a sample did, as the agent reports it.

use serde::{Deserialize, Serialize};

/// The most of each that a report lists.
pub const LISTED_MAX: usize = 512;
/// The longest text of a report.
pub const TEXT_MAX: usize = 1024;
/// The longest path that a system opens.
const PATH_MAX: usize = 4096;
/// The most arguments of a process that are listed.
pub const ARGUMENTS_MAX: usize = 32;
/// How much of what a sample prints is kept.
pub const OUTPUT_MAX: usize = 4096;

/// The most pictures, and how long they are together.
pub const SCREENS_MAX: usize = 4;
/// The longest picture, in base64.
pub const SCREEN_BYTES_MAX: usize = 400 * 1024;

/// What a sample did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// What ran it: `windows` for a guest with Wine, nothing for Linux.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
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
    /// What is different in the registry of Windows afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registry: Vec<RegistryChange>,
    /// The text of message boxes, and the titles of windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<String>,
    /// Libraries that were loaded and are not Wine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// What was to be seen on the screen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub screens: Vec<Screen>,
    /// What was said on its network; nothing if nobody said anything, or if this guest keeps none of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// The beginning of what it printed.
    #[serde(default)]
    pub output: String,
    /// How much more happened than is listed.
    #[serde(default)]
    pub left_out: u64,
}

impl Behaviour {
    /// Where each file that was written or renamed is in the end, as far as this list tells; none for those that were deleted. A folder may
    /// have been renamed around a file: then the path under which the file was written leads nowhere any more.
    pub fn places(&self) -> Vec<Option<String>> {
        (0..self.files.len()).map(|at| self.names(at).and_then(Iterator::last)).collect()
    }

    /// The paths that the file of this entry had from then on: its own, and one more for each folder that was renamed around it.
    pub fn names(&self, at: usize) -> Option<impl Iterator<Item = String>> {
        let change = self.files.get(at)?;
        let path = match change.what.as_str() {
            "written" => &change.path,
            "renamed" => change.to.as_ref().unwrap_or(&change.path),
            _ => return None,
        };
        // The other half of an exchange concerns what was there before.
        let is_own_half = move |later: &&FileChange| change.to.is_some() && later.swaps;
        let mut later = self.files.iter().skip(at + 1).skip_while(is_own_half);
        let (mut now, mut carried) = (path.clone(), false);
        let next = move || {
            for change in later.by_ref() {
                let next = change.carries(&now).filter(|_| !(change.swaps && carried));
                carried = next.is_some();
                if let Some(next) = next {
                    now.clone_from(&next);
                    return Some(next);
                }
            }
            None
        };
        Some(std::iter::once(path.clone()).chain(std::iter::from_fn(next)))
    }
}

impl FileChange {
    /// The new path of something in a folder that is renamed here; none if it is elsewhere.
    pub fn carries(&self, path: &str) -> Option<String> {
        let to = self.to.as_ref().filter(|_| self.what == "renamed")?;
        moved(path, &self.path, to)
    }

    /// The same backwards: the path that it had before.
    pub fn carried(&self, path: &str) -> Option<String> {
        let to = self.to.as_ref().filter(|_| self.what == "renamed")?;
        moved(path, to, &self.path)
    }
}

/// A path below a folder that has another name now. No system opens a longer one, and each name makes it longer.
fn moved(path: &str, folder: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(folder).filter(|rest| rest.starts_with('/'))?;
    (to.len() + rest.len() <= PATH_MAX).then(|| format!("{to}{rest}"))
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number in the guest.
    pub pid: u32,
    /// The number of the process that started it.
    pub parent: u32,
    /// What it runs.
    pub path: String,
    /// With what.
    pub arguments: Vec<String>,
    /// As whom, where users have numbers.
    pub user: Option<u32>,
    /// `exit N`, `signal N`, or nothing if it had not ended.
    pub ended: String,
    /// Threads that it started besides its first, where they are counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub threads: u32,
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
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
    /// Its first octets, in hexadecimal digits, if something is in it at the end and it is not sent: what is not sent cannot be analysed, and
    /// its beginning tells whether that matters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub begins: String,
    /// It is the second half of an exchange of two names, and happened together with the change before it.
    #[serde(skip_serializing_if = "is_false")]
    pub swaps: bool,
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
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
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// A change of the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryChange {
    /// Such as `HKCU\\Software\\Example`.
    pub key: String,
    /// The name of the value; empty for the key's own, or the key itself.
    pub name: String,
    /// `set` or `deleted`, of a value; `deleted-key`.
    pub what: String,
    /// What it is now, as the hive has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// A picture of the screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Screen {
    /// After so many milliseconds.
    pub at_ms: u64,
    /// A PNG file in base64.
    pub png: String,
}

impl Screen {
    /// Whether it is what it should be, as far as its beginning, its letters and its length tell: the guest says it, and a browser draws it.
    pub fn is_picture(&self) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        self.png.len() <= SCREEN_BYTES_MAX && self.png.starts_with("iVBORw0KGgo") && self.png.bytes().all(is_letter)
    }
}

/// The packets that a sample sent and got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// A pcap file in base64 ([`crate::pcap`]); empty where only the rest is told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pcap: String,
    /// How many there are.
    pub packets: u32,
    /// There were more than are kept.
    pub cut: bool,
}

/// An attempt to stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Persistence {
    /// The file.
    pub path: String,
    /// The way: `cron`, `rc`, `systemd`, `shell`, `preload`, `ssh`, `autostart`, `account`, `module` or `python`; in Windows `run-key`, `startup`,
    /// `service`, `task`, `winlogon`, `debugger` or `appinit`.
    pub what: String,
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
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
/// | `remounts` | the call by which names come to mean other files, users or processes: `mount`, `chroot`, `unshare` … |
/// | `sniffs` | which packets it wants to hear that are not its own |
/// | `fails-to-write` | a file of the system that it wanted to change or delete and may not: where names lead to, logs |
/// | `fails-to-run` | a file that is there and is no program of this guest |
/// | `not-run` | why the sample itself did not run |
/// | `becomes` | the program that a process became which had been another one before |
/// | `missing` | a command or interpreter that was looked for and is not in this guest, or a file beside the sample that is not there |
/// | `sleeps` | how long it wanted to wait, such as `3600 s`; the agent has made it short |
/// | `second-stage` | the link of a program that the agent gave out and that ran |
/// | `writes-memory` | in Windows: the process whose memory it writes |
/// | `remote-thread` | in Windows: how it makes another process run something |
/// | `hooks-keys` | in Windows: how it listens to the keyboard |
/// | `mutex` | in Windows: the name of one that it made |
/// | `looks` | in Windows: what it looked at to know where it is, such as a key of the registry |
/// | `unprotects` | in Windows: nothing; it opened what Windows keeps locked for its user |
/// | `shows` | in Windows: a message, or the title of a window |
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
    /// When, in milliseconds since the sample began; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_followed_where_their_folders_go() {
        let change = |what: &str, path: &str, to: &str| FileChange {
            what: what.into(),
            path: path.into(),
            to: (!to.is_empty()).then(|| to.to_owned()),
            ..FileChange::default()
        };
        let (written, renamed) =
            (|path: &str| change("written", path, ""), |path: &str, to: &str| change("renamed", path, to));
        let swapped = |path: &str, to: &str| FileChange { swaps: true, ..renamed(path, to) };
        let places = |files: Vec<FileChange>| Behaviour { files, ..Behaviour::default() }.places();
        let at = |paths: &[&str]| -> Vec<Option<String>> {
            paths.iter().map(|path| (!path.is_empty()).then(|| (*path).to_owned())).collect()
        };
        let twice = vec![written("/d/x"), renamed("/d", "/e"), written("/d/x"), renamed("/e", "/f/g")];
        assert_eq!(places(twice), at(&["/f/g/x", "/e", "/d/x", "/f/g"]));
        let others = vec![
            written("/d/x"),
            renamed("/d/x", "/d/y"),
            renamed("/d", "/e"),
            written("/dd"),
            change("deleted", "/z", ""),
        ];
        assert_eq!(places(others), at(&["/e/x", "/e/y", "/e", "/dd", ""]));
        let exchange =
            vec![written("/a/x"), written("/b/y"), renamed("/a", "/b"), swapped("/b", "/a"), renamed("/b", "/c")];
        assert_eq!(places(exchange), at(&["/c/x", "/a/y", "/b", "/a", "/c"]));
        // A list that somebody made up: the path grows with each of its lines.
        let long = vec![written("/d/x")]
            .into_iter()
            .chain((0..500).map(|_| renamed("/d", &format!("/d/{}", "d".repeat(1000)))));
        let long = places(long.collect()).remove(0).unwrap();
        assert!(long.len() <= PATH_MAX, "{}", long.len());
    }
}
