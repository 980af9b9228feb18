//! What the agent writes down about a sample. It is bounded; what does not fit is only counted.

use crate::persistence;
use crate::room;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_guest::behaviour::{
    ARGUMENTS_MAX, Act, Behaviour, FileChange, LISTED_MAX, Network, Persistence, Process, TEXT_MAX,
};
use weir_guest::secret;

/// Names of addresses that are remembered.
const NAMES_MAX: usize = 512;
/// Events that are remembered, so that each is listed once.
const SEEN_MAX: usize = 4096;
/// Commands that were missing and are told.
const MISSED_TOLD: usize = 32;
/// Files that are remembered as written, so that each is listed once.
const WRITTEN_MAX: usize = 16_384;
/// The guest's own resolver: what is asked there is told by its answers.
pub(crate) const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);

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
    /// By whom. In order, because a folder that is renamed takes with it what is below.
    written: BTreeMap<String, u32>,
    /// Who called an address last, and who sent something last.
    callers: BTreeMap<SocketAddr, u32>,
    asker: u32,
    /// The names for which addresses were given out.
    names: BTreeMap<IpAddr, String>,
    /// Commands that were looked for: those that are somewhere, and those that are not in one place at least.
    found: HashSet<String>,
    missed: BTreeSet<String>,
    /// Files beside the sample that it wanted and that were not there.
    absent: BTreeSet<String>,
    /// Processes that have become a program already.
    executed: HashSet<u32>,
    /// How long it wanted to sleep, all sleeps together.
    slept_s: u64,
}

impl Record {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was written down so far, and begins anew.
    pub(crate) fn take(&self) -> Behaviour {
        let next = Notes { begun: Some(Instant::now()), ..Notes::default() };
        let mut notes = std::mem::replace(&mut *self.notes(), next);
        let nowhere = notes.missed.iter().filter(|name| !notes.found.contains(*name)).take(MISSED_TOLD);
        let absent = notes.absent.iter().filter(|path| !notes.has_been(path)).take(MISSED_TOLD);
        let missing: Vec<String> = nowhere.chain(absent).cloned().collect();
        for name in missing {
            notes.act(Act { what: "missing".into(), detail: name, ..Act::default() });
        }
        notes.tell_all_sleeps();
        notes.behaviour
    }

    /// A sleep of so many seconds was made short.
    pub(crate) fn sleeps(&self, pid: u32, seconds: u64) {
        let mut notes = self.notes();
        notes.acts(pid, "sleeps", &format!("{seconds} s"));
        notes.slept_s = notes.slept_s.saturating_add(seconds);
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

    /// A file beside the sample was wanted and is not there.
    pub(crate) fn lacks(&self, path: &str) {
        let mut notes = self.notes();
        if notes.absent.len() < NAMES_MAX {
            notes.absent.insert(path.to_owned());
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
            notes.ran(path);
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
        // A link may stand in the place of a whole folder.
        if let Some(what) = persistence::way(path).or_else(|| persistence::way(&format!("{path}/"))) {
            notes.stays(path, what);
        }
        if worked {
            notes.stands_above(path);
        }
        if is_of_the_kernel(path) {
            notes.acts(pid, "device", path);
        }
        if !worked && is_guarded(path) {
            notes.acts(pid, "fails-to-write", path);
        }
        if !worked || is_device(path) || notes.written.contains_key(path) {
            return;
        }
        if notes.written.len() < WRITTEN_MAX {
            notes.written.insert(path.to_owned(), pid);
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
        notes.renames(&Rename { pid, path, to, existed, worked, swaps: false });
        if worked {
            notes.carry(&[(path, to)]);
        }
    }

    /// Two names are exchanged. Of each it is told whether there was something in it.
    pub(crate) fn swaps(
        &self,
        pid: u32,
        (path, existed): (&str, bool),
        (other, was_other): (&str, bool),
        worked: bool,
    ) {
        let mut notes = self.notes();
        notes.renames(&Rename { pid, path, to: other, existed, worked, swaps: false });
        notes.renames(&Rename { pid, path: other, to: path, existed: was_other, worked, swaps: true });
        if worked {
            notes.carry(&[(path, other), (other, path)]);
        }
    }

    /// A file is given a second name, under which it can be read or changed unseen. What becomes of that name is not followed: it may be
    /// renamed, alone or with a folder around it, and have more names given to it.
    pub(crate) fn links(&self, pid: u32, from: Option<&str>, to: &str, worked: bool) {
        self.writes(pid, to, false, worked);
        let Some(from) = from else { return };
        let mut notes = self.notes();
        // Folders have no second names.
        if is_kept(from, false) && !is_kept(to, false) {
            notes.acts(pid, "reads", from);
        }
        if let Some(what) = persistence::way(from).filter(|_| worked) {
            notes.stays(from, what);
        }
    }

    /// Whether the sample wrote this file.
    pub(crate) fn has_written(&self, path: &str) -> bool {
        self.notes().written.contains_key(path)
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
        if notes.asks_resolver(pid, to) {
            return;
        }
        let host = notes.names.get(&to.ip()).cloned().unwrap_or_default();
        let (what, to) = ("connect".into(), to.to_string());
        notes.network(Network { pid, what, to, host, at_ms, ..Network::default() });
    }

    pub(crate) fn sends(&self, pid: u32, to: SocketAddr) {
        let mut notes = self.notes();
        if notes.asks_resolver(pid, to) {
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

/// A new name for a file or folder.
struct Rename<'a> {
    pid: u32,
    path: &'a str,
    to: &'a str,
    existed: bool,
    worked: bool,
    /// What had the new name has the old one now.
    swaps: bool,
}

impl Notes {
    fn renames(&mut self, rename: &Rename<'_>) {
        let Rename { pid, path, to, existed, worked, swaps } = *rename;
        if let Some(what) = persistence::way(to).or_else(|| persistence::way(&format!("{to}/"))) {
            self.stays(to, what);
        }
        // Elsewhere it can be read without anybody seeing what it is.
        let is_folder = worked && !existed;
        if is_kept(path, is_folder) && !is_kept(to, is_folder) {
            self.acts(pid, "reads", path);
        }
        if worked {
            self.stands_above(to);
            let existed = existed && !self.made(path);
            let (path, to, what) = (path.to_owned(), Some(to.to_owned()), "renamed".into());
            self.file(FileChange { pid, path, what, to, existed, swaps, ..FileChange::default() });
        }
    }

    /// What the sample wrote has another path from now on: a file that was renamed, and all that is in a folder that was.
    fn carry(&mut self, moves: &[(&str, &str)]) {
        let mut carried = Vec::new();
        for (from, to) in moves {
            let below = format!("{from}/");
            let range = self.written.range(below.clone()..).map(|(path, _)| path);
            let paths: Vec<String> = range.take_while(|path| path.starts_with(&below)).cloned().collect();
            for path in paths.into_iter().chain([(*from).to_owned()]) {
                let rest = path.strip_prefix(from).unwrap_or_default();
                carried.extend(self.written.remove(&path).map(|pid| (format!("{to}{rest}"), pid)));
            }
        }
        self.written.extend(carried);
    }

    /// How long ago the sample began, in milliseconds.
    fn now(&self) -> Option<u64> {
        self.begun.and_then(|begun| u64::try_from(begun.elapsed().as_millis()).ok())
    }

    /// Whoever calls a resolver asks for the names that come next. What another than the guest's own is told is no mere question.
    fn asks_resolver(&mut self, pid: u32, to: SocketAddr) -> bool {
        if to.port() == RESOLVER.port() {
            self.asker = pid;
        }
        to == RESOLVER
    }

    fn file(&mut self, mut change: FileChange) {
        change.at_ms = self.now();
        let kinds: &[fn(&FileChange) -> &str] = &[|change| if change.existed { "existed" } else { &change.what }];
        let is_whole = room::add(&mut self.behaviour.files, change, kinds);
        self.behaviour.left_out += u64::from(!is_whole);
    }

    /// A file runs: if the sample wrote it, that is listed, however much it wrote before. What gives way to others is at the end of a list.
    fn ran(&mut self, path: &str) {
        let Some(pid) = self.written.get(path).copied().filter(|_| self.behaviour.files.len() >= LISTED_MAX) else {
            return;
        };
        let files = &mut self.behaviour.files;
        let is_it = |file: &FileChange| file.path == path || file.to.as_deref() == Some(path);
        let is_dull = |file: &FileChange| file.what == "written" && !file.existed;
        let known = files.iter().position(is_it).map(|at| files.remove(at));
        if known.is_none() {
            let last = files.iter().rposition(is_dull).unwrap_or(files.len() - 1);
            files.remove(last);
            self.behaviour.left_out += 1;
        }
        let written = || FileChange { pid, path: path.to_owned(), what: "written".into(), ..FileChange::default() };
        self.behaviour.files.insert(0, known.unwrap_or_else(written));
    }

    /// Whether a file was there at some time because the sample made it, or is there now.
    fn has_been(&self, path: &str) -> bool {
        let of = |file: &FileChange| file.path == path || file.to.as_deref() == Some(path);
        self.behaviour.files.iter().any(of) || std::fs::symlink_metadata(path).is_ok()
    }

    fn network(&mut self, mut network: Network) {
        // The time does not count: the same event a moment later is not listed again.
        let at_ms = network.at_ms.take().or_else(|| self.now());
        if self.seen.contains(&network) {
            return;
        }
        if self.seen.len() < SEEN_MAX {
            self.seen.insert(network.clone());
        }
        let kinds: &[fn(&Network) -> &str] = &[|call| &call.what, |call| &call.to];
        let is_whole = room::add(&mut self.behaviour.network, Network { at_ms, ..network }, kinds);
        self.behaviour.left_out += u64::from(!is_whole);
    }

    /// Whether the sample made this file: the first that is known of it is that it was written and had not been there. It is followed
    /// backwards through the names that the folders around it had.
    fn made(&self, path: &str) -> bool {
        let (mut path, mut first, mut is_other_half) = (path.to_owned(), None, false);
        for file in self.behaviour.files.iter().rev() {
            if file.path == path || file.to.as_deref() == Some(path.as_str()) {
                first = Some(file);
            }
            let before = file.carried(&path).filter(|_| !is_other_half);
            is_other_half = file.swaps && before.is_some();
            path = before.unwrap_or(path);
        }
        first.is_some_and(|file| !file.existed)
    }

    fn acts(&mut self, pid: u32, what: &str, detail: &str) {
        let detail = detail.chars().take(TEXT_MAX).collect();
        let act = Act { pid, what: what.to_owned(), detail, at_ms: None };
        if self.acts.contains(&act) {
            return;
        }
        if self.acts.len() < SEEN_MAX {
            self.acts.insert(act.clone());
        }
        let at_ms = self.now();
        self.act(Act { at_ms, ..act });
    }

    /// Many short sleeps are one long one, whether each of them is listed or not.
    fn tell_all_sleeps(&mut self) {
        let seconds = |act: &Act| act.detail.strip_suffix(" s").and_then(|number| number.parse::<u64>().ok());
        let is_sleep = |act: &&mut Act| act.what == "sleeps";
        let told = self.behaviour.acts.iter().filter(|act| act.what == "sleeps").filter_map(seconds);
        let more = self.slept_s.saturating_sub(told.fold(0, u64::saturating_add));
        let is_full = self.behaviour.acts.len() >= LISTED_MAX;
        match self.behaviour.acts.iter_mut().rev().find(is_sleep).filter(|_| is_full) {
            _ if more == 0 => {}
            Some(last) => last.detail = format!("{} s", more.saturating_add(seconds(last).unwrap_or(0))),
            None => self.act(Act { what: "sleeps".into(), detail: format!("{more} s"), ..Act::default() }),
        }
    }

    fn act(&mut self, act: Act) {
        let is_whole = room::add(&mut self.behaviour.acts, act, &[|act| &act.what]);
        self.behaviour.left_out += u64::from(!is_whole);
    }

    /// Something was put here: a folder in which there is a way already, or a link to one in which there may be one later.
    fn stands_above(&mut self, path: &str) {
        let is_link = |path: &str| std::fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
        let leads_to_file = |path: &str| std::fs::metadata(path).is_ok_and(|about| about.is_file());
        let is_there = |folder: &str| std::fs::symlink_metadata(folder).is_ok();
        let is_way = |folder: &str| is_there(folder) || (is_link(path) && !leads_to_file(path));
        if let Some((what, _)) = persistence::below(path).find(|(_, folder)| is_way(folder)) {
            self.stays(path, what);
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

/// Whether keys or passwords can be read wherever this is moved to. What is called `.config` may also be a file, such as that of the
/// kernel's build, which is also renamed where it is not there.
fn is_kept(path: &str, is_folder: bool) -> bool {
    secret::moved(path).is_some() && (is_folder || !path.ends_with("/.config"))
}

/// Files that nobody changes by mistake: those that say where host names lead, and the system's logs.
fn is_guarded(path: &str) -> bool {
    let names = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"];
    let logs = ["auth.log", "syslog", "messages", "secure", "wtmp", "btmp", "lastlog", "kern.log"];
    names.contains(&path) || path.strip_prefix("/var/log/").is_some_and(|name| logs.contains(&name))
}

/// Paths that are no real files: `/dev/null`, the sample's own `/proc`. Root can put files beside the devices.
fn is_device(path: &str) -> bool {
    let under = |folder: &str| path.starts_with(folder);
    let is_file = || std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    (under("/dev/") && !under("/dev/shm/") && !is_file()) || under("/proc/") || under("/sys/")
}

/// What only attacks on the machine itself write to: memory, disks, the kernel's switches.
fn is_of_the_kernel(path: &str) -> bool {
    let begins = ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/sd", "/dev/vd", "/dev/nvme", "/proc/sysrq-trigger"];
    let memory = path.starts_with("/proc/") && path.ends_with("/mem");
    memory || begins.iter().any(|begin| path.starts_with(begin))
}

#[cfg(test)]
mod tests;
