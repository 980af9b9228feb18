//! What the agent writes down about a sample. It is bounded; what does not fit is only counted.

use crate::persistence;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_guest::behaviour::{
    ARGUMENTS_MAX, Act, Behaviour, FileChange, LISTED_MAX, Network, Persistence, Process, TEXT_MAX,
};

/// Names of addresses that are remembered.
const NAMES_MAX: usize = 512;
/// Commands that were missing and are told.
const MISSED_TOLD: usize = 32;
/// Files that are remembered as written, so that each is listed once.
const WRITTEN_MAX: usize = 4096;

/// Everything of one sample; shared by the tracer and the internet.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    /// When the sample began.
    begun: Option<Instant>,
    behaviour: Behaviour,
    seen: HashSet<Network>,
    ways: HashSet<Persistence>,
    acts: HashSet<Act>,
    written: HashSet<String>,
    /// Who called an address last, and who sent something last.
    callers: BTreeMap<SocketAddr, u32>,
    asker: u32,
    /// The names for which addresses were given out.
    names: BTreeMap<IpAddr, String>,
    /// Commands that were looked for: those that are somewhere, and those that are not in one place at least.
    found: HashSet<String>,
    missed: BTreeSet<String>,
    /// Processes that have become a program already.
    executed: HashSet<u32>,
    /// How long it wanted to sleep, all sleeps together, and what of that is listed.
    slept_s: u64,
    slept_told_s: u64,
}

impl Record {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was written down so far, and begins anew.
    pub(crate) fn take(&self) -> Behaviour {
        let next = Notes { begun: Some(Instant::now()), ..Notes::default() };
        let mut notes = std::mem::replace(&mut *self.notes(), next);
        let missed = std::mem::take(&mut notes.missed);
        for name in missed.iter().filter(|name| !notes.found.contains(*name)).take(MISSED_TOLD) {
            notes.behaviour.acts.push(Act { what: "missing".into(), detail: name.clone(), ..Act::default() });
        }
        // Many short sleeps are one long one.
        let more = notes.slept_s.saturating_sub(notes.slept_told_s);
        if more > 0 {
            notes.behaviour.acts.push(Act { what: "sleeps".into(), detail: format!("{more} s"), ..Act::default() });
        }
        notes.behaviour
    }

    /// A sleep of so many seconds was made short.
    pub(crate) fn sleeps(&self, pid: u32, seconds: u64) {
        let mut notes = self.notes();
        let listed = notes.behaviour.acts.len();
        notes.acts(pid, "sleeps", &format!("{seconds} s"));
        notes.slept_s = notes.slept_s.saturating_add(seconds);
        if notes.behaviour.acts.len() > listed {
            notes.slept_told_s = notes.slept_told_s.saturating_add(seconds);
        }
    }

    /// It would have changed this file, and may not.
    pub(crate) fn may_not_write(&self, pid: u32, path: &str) {
        if is_guarded(path) {
            self.notes().acts(pid, "fails-to-write", path);
        }
    }

    /// A command was looked for in one of its folders and is there.
    pub(crate) fn finds(&self, name: &str) {
        let mut notes = self.notes();
        if notes.found.len() < NAMES_MAX {
            notes.found.insert(name.chars().take(TEXT_MAX).collect());
        }
    }

    /// A command was looked for in one of its folders and is not there.
    pub(crate) fn misses(&self, name: &str) {
        let mut notes = self.notes();
        if notes.missed.len() < NAMES_MAX {
            notes.missed.insert(name.chars().take(TEXT_MAX).collect());
        }
    }

    pub(crate) fn process(&self, mut process: Process) {
        let mut notes = self.notes();
        process.at_ms = notes.now();
        // Process ids are used again.
        notes.executed.remove(&process.pid);
        if notes.behaviour.processes.len() < LISTED_MAX {
            notes.behaviour.processes.push(process);
        } else {
            notes.behaviour.left_out += 1;
        }
    }

    /// A process has become another program, or a new one's parent is known now.
    pub(crate) fn change(&self, pid: u32, change: impl FnOnce(&mut Process)) {
        let mut notes = self.notes();
        if let Some(process) = notes.behaviour.processes.iter_mut().rev().find(|process| process.pid == pid) {
            change(process);
        }
    }

    /// What a process runs, for a child that is the same program still.
    pub(crate) fn program(&self, pid: u32) -> Option<Process> {
        self.notes().behaviour.processes.iter().rev().find(|process| process.pid == pid).cloned()
    }

    pub(crate) fn executes(&self, pid: u32, path: &str, arguments: Vec<String>) {
        let cut = |text: String| text.chars().take(TEXT_MAX).collect::<String>();
        let arguments: Vec<String> = arguments.into_iter().take(ARGUMENTS_MAX).map(cut).collect();
        if let Some(what) = persistence::way_of_program(path, &arguments) {
            self.notes().stays(path, what);
        }
        {
            let mut notes = self.notes();
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            if notes.found.len() < NAMES_MAX {
                notes.found.insert(name);
            }
            if notes.executed.len() < WRITTEN_MAX && !notes.executed.insert(pid) {
                notes.acts(pid, "becomes", path);
            }
        }
        self.change(pid, |process| {
            process.path = path.to_owned();
            process.arguments = arguments;
        });
    }

    /// An attempt to change a file, which may have been there with something in it, and whether it worked.
    pub(crate) fn writes(&self, pid: u32, path: &str, existed: bool, worked: bool) {
        let mut notes = self.notes();
        if let Some(what) = persistence::way(path) {
            notes.stays(path, what);
        }
        if is_of_the_kernel(path) {
            notes.acts(pid, "device", path);
        }
        if !worked && is_guarded(path) {
            notes.acts(pid, "fails-to-write", path);
        }
        if !worked || is_device(path) || notes.written.contains(path) {
            return;
        }
        if notes.written.len() < WRITTEN_MAX {
            notes.written.insert(path.to_owned());
        }
        let (path, what) = (path.to_owned(), "written".into());
        notes.file(FileChange { pid, path, what, existed, ..FileChange::default() });
    }

    pub(crate) fn deletes(&self, pid: u32, path: &str, existed: bool) {
        let mut notes = self.notes();
        // What the sample made itself was not there before.
        let existed = existed && !notes.made(path);
        notes.written.remove(path);
        let (path, what) = (path.to_owned(), "deleted".into());
        notes.file(FileChange { pid, path, what, existed, ..FileChange::default() });
    }

    pub(crate) fn renames(&self, (pid, path): (u32, &str), to: &str, existed: bool, worked: bool) {
        let mut notes = self.notes();
        if let Some(what) = persistence::way(to) {
            notes.stays(to, what);
        }
        if worked {
            let existed = existed && !notes.made(path);
            let (path, to, what) = (path.to_owned(), Some(to.to_owned()), "renamed".into());
            notes.file(FileChange { pid, path, what, to, existed, ..FileChange::default() });
        }
    }

    /// Something else that tells what it is up to.
    pub(crate) fn acts(&self, pid: u32, what: &str, detail: &str) {
        self.notes().acts(pid, what, detail);
    }

    pub(crate) fn connects(&self, pid: u32, to: SocketAddr) {
        self.connected(pid, to, None);
    }

    /// The same, where it is known from elsewhere when it was.
    pub(crate) fn connected(&self, pid: u32, to: SocketAddr, at_ms: Option<u64>) {
        let mut notes = self.notes();
        if notes.callers.len() < NAMES_MAX {
            notes.callers.insert(to, pid);
        }
        if to.port() == 53 {
            notes.asker = pid;
            return;
        }
        let host = notes.names.get(&to.ip()).cloned().unwrap_or_default();
        let (what, to) = ("connect".into(), to.to_string());
        notes.network(Network { pid, what, to, host, at_ms, ..Network::default() });
    }

    pub(crate) fn sends(&self, pid: u32, to: SocketAddr) {
        let mut notes = self.notes();
        if to.port() == 53 {
            notes.asker = pid;
            return;
        }
        notes.network(Network { pid, what: "send".into(), to: to.to_string(), ..Network::default() });
    }

    pub(crate) fn listens(&self, pid: u32, at: SocketAddr) {
        self.notes().network(Network { pid, what: "listen".into(), to: at.to_string(), ..Network::default() });
    }

    /// Somebody asked for a name, and was given an address.
    pub(crate) fn asks(&self, name: &str, given: IpAddr) {
        let mut notes = self.notes();
        if notes.names.len() < NAMES_MAX {
            notes.names.insert(given, name.to_owned());
        }
        let detail = given.to_string();
        let network =
            Network { pid: notes.asker, what: "dns".into(), to: name.to_owned(), detail, ..Network::default() };
        notes.network(network);
    }

    /// Somebody says this to the server at this address.
    pub(crate) fn talks(&self, at: SocketAddr, detail: String) {
        let mut notes = self.notes();
        let pid = notes.callers.get(&at).copied().unwrap_or(0);
        let host = notes.names.get(&at.ip()).cloned().unwrap_or_default();
        notes.network(Network { pid, what: "talk".into(), to: at.to_string(), detail, host, at_ms: None });
    }

    /// The sample that called this address carries out what it is told there.
    pub(crate) fn obeys(&self, at: SocketAddr) {
        let mut notes = self.notes();
        let pid = notes.callers.get(&at).copied().unwrap_or(0);
        notes.acts(pid, "takes-orders", "/bin/sh");
    }

    /// A request reached the server at this address.
    pub(crate) fn requests(&self, at: SocketAddr, detail: String, host: String) {
        let mut notes = self.notes();
        let pid = notes.callers.get(&at).copied().unwrap_or(0);
        notes.network(Network { pid, what: "http".into(), to: at.to_string(), detail, host, at_ms: None });
    }
}

impl Notes {
    /// So long after the sample began.
    fn now(&self) -> Option<u64> {
        self.begun.and_then(|begun| u64::try_from(begun.elapsed().as_millis()).ok())
    }

    fn file(&mut self, mut change: FileChange) {
        change.at_ms = self.now();
        if self.behaviour.files.len() < LISTED_MAX {
            self.behaviour.files.push(change);
        } else {
            self.behaviour.left_out += 1;
        }
    }

    fn network(&mut self, mut network: Network) {
        // The time does not count: the same event a moment later is not listed again.
        let at_ms = network.at_ms.take().or_else(|| self.now());
        if self.seen.contains(&network) {
            return;
        }
        if self.behaviour.network.len() < LISTED_MAX {
            self.seen.insert(network.clone());
            self.behaviour.network.push(Network { at_ms, ..network });
        } else {
            self.behaviour.left_out += 1;
        }
    }

    /// Whether the sample made this file: the first that is known of it is that it was written and had not been there.
    fn made(&self, path: &str) -> bool {
        let first = self.behaviour.files.iter().find(|file| file.path == path || file.to.as_deref() == Some(path));
        first.is_some_and(|file| !file.existed)
    }

    fn acts(&mut self, pid: u32, what: &str, detail: &str) {
        let detail = detail.chars().take(TEXT_MAX).collect();
        let act = Act { pid, what: what.to_owned(), detail, at_ms: None };
        if self.acts.contains(&act) {
            return;
        }
        if self.behaviour.acts.len() < LISTED_MAX {
            self.acts.insert(act.clone());
            let at_ms = self.now();
            self.behaviour.acts.push(Act { at_ms, ..act });
        } else {
            self.behaviour.left_out += 1;
        }
    }

    fn stays(&mut self, path: &str, what: &str) {
        let way = Persistence { path: path.to_owned(), what: what.to_owned(), at_ms: None };
        if self.ways.len() < LISTED_MAX && self.ways.insert(way.clone()) {
            let at_ms = self.now();
            self.behaviour.persistence.push(Persistence { at_ms, ..way });
        }
    }
}

/// Files that nobody changes by mistake: those that say where host names lead, and the system's logs.
fn is_guarded(path: &str) -> bool {
    let names = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"];
    let logs = ["auth.log", "syslog", "messages", "secure", "wtmp", "btmp", "lastlog", "kern.log"];
    names.contains(&path) || path.strip_prefix("/var/log/").is_some_and(|name| logs.contains(&name))
}

/// Paths that are no real files: `/dev/null`, the sample's own `/proc`.
fn is_device(path: &str) -> bool {
    let under = |folder: &str| path.starts_with(folder);
    (under("/dev/") && !under("/dev/shm/")) || under("/proc/") || under("/sys/")
}

/// What only attacks on the machine itself write to: memory, disks, the kernel's switches.
fn is_of_the_kernel(path: &str) -> bool {
    let begins = ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/sd", "/dev/vd", "/dev/nvme", "/proc/sysrq-trigger"];
    let memory = path.starts_with("/proc/") && path.ends_with("/mem");
    memory || begins.iter().any(|begin| path.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_twice_is_once_and_the_rest_is_counted() {
        let record = Record::default();
        let to = "10.1.2.3:80".parse().unwrap();
        record.connects(7, to);
        record.connects(7, to);
        record.requests(to, "GET /x".into(), String::new());
        for number in 0..LISTED_MAX + 10 {
            record.writes(7, &format!("/tmp/{number}"), false, true);
        }
        record.writes(7, "/dev/null", true, true);
        record.writes(7, "/etc/cron.d/x", false, false);
        let behaviour = record.take();
        let whats: Vec<_> = behaviour.network.iter().map(|network| (network.pid, network.what.as_str())).collect();
        assert_eq!(whats, [(7, "connect"), (7, "http")]);
        assert_eq!((behaviour.files.len(), behaviour.left_out), (LISTED_MAX, 10));
        assert_eq!(behaviour.persistence[0].what, "cron");
        assert_eq!(record.take(), Behaviour::default());
    }

    #[test]
    fn what_was_there_before_is_told_from_what_was_made() {
        let record = Record::default();
        record.writes(7, "/home/user/a.txt", true, true);
        record.deletes(7, "/home/user/b.txt", true);
        record.writes(7, "/tmp/new", false, true);
        record.deletes(7, "/tmp/new", true);
        record.writes(7, "/tmp/x", false, true);
        record.renames((7, "/tmp/x"), "/tmp/y", true, true);
        record.deletes(7, "/tmp/y", true);
        let existed: Vec<bool> = record.take().files.iter().map(|file| file.existed).collect();
        assert_eq!(existed, [true, true, false, false, false, false, false]);
    }

    #[test]
    fn short_sleeps_add_up_and_what_may_not_be_written_is_told() {
        let record = Record::default();
        for _ in 0..20 {
            record.sleeps(7, 15);
        }
        record.writes(7, "/etc/hosts", true, false);
        record.writes(7, "/home/user/x", true, false);
        record.may_not_write(7, "/var/log/wtmp");
        record.may_not_write(7, "/var/log/own.log");
        let acts: Vec<String> =
            record.take().acts.into_iter().map(|act| format!("{} {}", act.what, act.detail)).collect();
        assert_eq!(acts, ["sleeps 15 s", "fails-to-write /etc/hosts", "fails-to-write /var/log/wtmp", "sleeps 285 s"]);
    }

    #[test]
    fn a_command_is_missing_only_if_it_is_nowhere() {
        let record = Record::default();
        record.misses("curl");
        record.misses("wget");
        record.finds("wget");
        record.misses("python3");
        record.process(Process { pid: 7, ..Process::default() });
        record.executes(7, "/usr/bin/python3", vec!["python3".into()]);
        record.executes(7, "/memfd:x (deleted)", vec!["x".into()]);
        let acts: Vec<(String, String)> = record.take().acts.into_iter().map(|act| (act.what, act.detail)).collect();
        assert_eq!(acts, [("becomes".into(), "/memfd:x (deleted)".into()), ("missing".into(), "curl".into())]);
    }

    #[test]
    fn endless_files_and_acts_need_bounded_memory() {
        let record = Record::default();
        for number in 0..WRITTEN_MAX + 100 {
            record.writes(7, &format!("/tmp/{number}"), false, true);
            record.acts(7, "kills", &number.to_string());
            record.acts(7, "kills", "9 1");
        }
        record.writes(7, "/proc/sysrq-trigger", true, false);
        assert_eq!(record.notes().written.len(), WRITTEN_MAX);
        assert_eq!(record.notes().acts.len(), LISTED_MAX);
        assert_eq!(record.take().acts[1].detail, "9 1");
    }
}
