//! Follows a sample and everything that it starts, with ptrace.
//!
//! A process that is traced brings its children along: forks, double forks, new sessions, threads. The loop ends when the
//! last of them has.

use crate::calls::{self, Deed};
use crate::companion;
use crate::disguise;
use crate::filter::SHORT;
use crate::internet::Internet;
use crate::peek;
use crate::program;
use crate::record::Record;
use crate::sleep::{self, Shortened, TimeForm};
use crate::stage;
use crate::sys;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use weir_guest::behaviour::Process;

/// Sockets whose addresses are remembered.
const BOUND_MAX: usize = 1024;
/// How much of a command line or an environment is read: a sample may have made it megabytes long.
const PROC_MAX: u64 = 64 * 1024;

/// Follows one sample.
#[derive(Debug)]
pub(crate) struct Tracer<'a> {
    record: &'a Record,
    internet: &'a Internet,
    first: i32,
    user: u32,
    /// Those that were seen already, with what they are doing.
    tasks: HashMap<i32, Option<PendingCall>>,
    /// Threads of others: they are no processes of their own.
    threads: HashSet<i32>,
    /// The processes that tasks belong to, as far as somebody asked.
    groups: HashMap<i32, i32>,
    /// What an exec would run.
    programs: HashMap<i32, (String, String)>,
    bound: HashMap<(i32, u64), SocketAddr>,
    ended: String,
    /// The sample's own file.
    sample: String,
}

/// A system call whose end is waited for.
#[derive(Debug)]
struct PendingCall {
    deed: Deed,
    who: u32,
    /// The file was there before, with something in it.
    existed: bool,
    sleep: Option<Shortened>,
}

impl<'a> Tracer<'a> {
    /// For a process that has stopped itself to be traced.
    pub(crate) fn new(internet: &'a Internet, sample: &Path, first: i32, user: u32) -> Tracer<'a> {
        let (tasks, threads, groups, programs, bound) = Default::default();
        let (record, ended, sample) = (internet.record(), String::new(), sample.to_string_lossy().into_owned());
        Tracer { record, internet, first, user, tasks, threads, groups, programs, bound, ended, sample }
    }

    /// Follows it until no process is left. Returns how the first process ended.
    pub(crate) fn follow(mut self) -> String {
        let user = Some(self.user);
        self.record.process(Process { pid: self.first as u32, parent: 1, user, ..Process::default() });
        // Children of every kind.
        let all = WaitOptions::from_bits_retain(libc::__WALL as u32);
        loop {
            match wait(all) {
                Ok(Some((pid, status))) => self.step(pid.as_raw_nonzero().get(), status),
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return self.ended,
            }
        }
    }

    fn step(&mut self, pid: i32, status: WaitStatus) {
        if let Some(code) = status.exit_status() {
            return self.gone(pid, format!("exit {code}"));
        }
        if let Some(signal) = status.terminating_signal() {
            return self.gone(pid, format!("signal {signal}"));
        }
        let Some(signal) = status.stopping_signal() else { return };
        let event = status.as_raw() >> 16;
        match (signal, event) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE) => {
                self.forked(pid);
                sys::go_on(pid, 0, false);
            }
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => {
                self.executed(pid);
                sys::go_on(pid, 0, false);
            }
            (libc::SIGTRAP, libc::PTRACE_EVENT_SECCOMP) => self.enters(pid),
            (signal, _) if signal == libc::SIGTRAP | 0x80 => {
                self.leaves(pid);
                sys::go_on(pid, 0, false);
            }
            (_, 0) => self.stopped(pid, signal),
            _ => sys::go_on(pid, 0, false),
        }
    }

    /// A signal is on its way to a process, or it is new, or it has stopped.
    fn stopped(&mut self, pid: i32, signal: i32) {
        let is_new = self.tasks.insert(pid, None).is_none();
        if pid == self.first && is_new {
            let options = Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_TRACESECCOMP
                | Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_EXITKILL;
            let _ = ptrace::setoptions(Pid::from_raw(pid), options);
        }
        // A new one begins with a stop of its own. One that has stopped for good goes on: nobody would wake it.
        let at_rest = is_new && signal == libc::SIGSTOP || ptrace::getsiginfo(Pid::from_raw(pid)).is_err();
        sys::go_on(pid, if at_rest { 0 } else { signal }, false);
    }

    fn forked(&mut self, parent: i32) {
        let Ok(child) = ptrace::getevent(Pid::from_raw(parent)) else { return };
        let child = child as i32;
        if is_thread(child) {
            self.threads.insert(child);
            let of = group(parent).unwrap_or(parent);
            self.record.change(of as u32, |process| process.threads = process.threads.saturating_add(1));
            return;
        }
        let parent = if self.threads.contains(&parent) { group(parent).unwrap_or(parent) } else { parent };
        let like = self.record.program(parent as u32).unwrap_or_default();
        let (pid, parent, user) = (child as u32, parent as u32, like.user);
        self.record.process(Process { pid, parent, user, ended: String::new(), threads: 0, ..like });
    }

    fn executed(&mut self, pid: i32) {
        // A thread may have done it; it now has the number of its process.
        let former = ptrace::getevent(Pid::from_raw(pid)).map_or(pid, |former| former as i32);
        let said = self.programs.remove(&former).or_else(|| self.programs.remove(&pid));
        if former != pid {
            self.groups.remove(&former);
            self.tasks.remove(&former);
            self.threads.remove(&former);
        }
        self.tasks.insert(pid, None);
        // busybox starts its other selves by way of /proc; what is run from memory has no other name.
        let exe = || std::fs::read_link(format!("/proc/{pid}/exe")).map(|exe| exe.to_string_lossy().into_owned());
        let path = match said.filter(|(said, _)| !said.starts_with("/proc/")) {
            // What the sample wrote is known by its real name; a program with many names by the one that it was called by.
            Some((_, real)) if self.record.has_written(&real) => real,
            Some((said, _)) => said,
            None => exe().unwrap_or_default(),
        };
        let line = start_of(&format!("/proc/{pid}/cmdline"));
        let line = line.strip_suffix(&[0]).unwrap_or(&line);
        let arguments = line.split(|byte| *byte == 0).take(64).map(|a| String::from_utf8_lossy(a).into_owned());
        self.record.executes(pid as u32, &path, arguments.collect());
        let user = std::fs::metadata(format!("/proc/{pid}")).map(|m| std::os::unix::fs::MetadataExt::uid(&m));
        self.record.change(pid as u32, |process| process.user = user.ok().or(process.user));
        self.circumstances(pid, &path);
    }

    /// A program whose standard input is a socket may take orders from outside, and a preloaded library is code that is not its own.
    fn circumstances(&self, pid: i32, path: &str) {
        let input = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
        if input.as_os_str().as_encoded_bytes().starts_with(b"socket:") {
            self.record.acts(pid as u32, "takes-orders", path);
        }
        let environment = start_of(&format!("/proc/{pid}/environ"));
        let loads = |entry: &[u8]| [&b"LD_PRELOAD="[..], b"LD_AUDIT="].into_iter().any(|name| entry.starts_with(name));
        if let Some(entry) = environment.split(|byte| *byte == 0).find(|entry| loads(entry)) {
            self.record.acts(pid as u32, "preloads", &String::from_utf8_lossy(entry));
        }
    }

    /// A system call begins.
    fn enters(&mut self, pid: i32) {
        let task = Pid::from_raw(pid);
        let short = ptrace::getevent(task).is_ok_and(|said| said == i64::from(SHORT));
        let deed = ptrace::getregs(task).ok().and_then(|registers| calls::deed(pid, &registers, short));
        let to_exit = deed.is_some_and(|deed| self.begins(pid, deed));
        sys::go_on(pid, 0, to_exit);
    }

    /// Notes what a process is about to do; whether it matters how that ends.
    fn begins(&mut self, pid: i32, deed: Deed) -> bool {
        // The system's own files are read all the time, and nobody but root can have put a link there.
        if matches!(&deed, Deed::See(path, _) if self.user != 0 && calls::is_of_the_system(path)) {
            return false;
        }
        let who = *self.groups.entry(pid).or_insert_with(|| group(pid).unwrap_or(pid)) as u32;
        match deed {
            Deed::Connect(to) => {
                self.internet.expect(to);
                self.record.connects(who, to);
            }
            Deed::Send(all) => {
                for to in all {
                    self.internet.expect(to);
                    self.record.sends(who, to);
                }
            }
            Deed::Bind(socket, at) => {
                if self.bound.len() < BOUND_MAX {
                    self.bound.insert((who as i32, socket), at);
                }
            }
            Deed::Listen(socket) => {
                let any = SocketAddr::from(([0, 0, 0, 0], 0));
                self.record.listens(who, self.bound.get(&(who as i32, socket)).copied().unwrap_or(any));
            }
            Deed::Kill { to, signal } => {
                if signal != 0 && signal != libc::SIGCONT && self.is_foreign(to) {
                    self.record.acts(who, "kills", &format!("{signal} {to}"));
                }
            }
            Deed::Trace(None) => self.record.acts(who, "traces", "itself"),
            Deed::Trace(Some(other)) => self.record.acts(who, "traces", &other.to_string()),
            Deed::Session => self.record.acts(who, "session", ""),
            Deed::Name(name) => {
                if is_kernel_like(&name) {
                    self.record.acts(who, "named", &name);
                }
            }
            Deed::Load => self.record.acts(who, "loads", ""),
            Deed::Reboot => self.record.acts(who, "reboots", ""),
            Deed::Remount(how) => self.record.acts(who, "remounts", how),
            Deed::Sniff(what) => self.record.acts(who, "sniffs", what),
            Deed::Read(path) => self.record.acts(who, "reads", &path),
            Deed::Setuid(path) => self.record.acts(who, "setuid", &path),
            Deed::Open(path, _) if stage::number(&path).is_some() => {
                self.internet.stage_ran(who, &path);
            }
            Deed::Sleep { at, until, form } => return self.begins_to_sleep(pid, who, at, (until, form)),
            deed => return self.await_end(pid, who, deed),
        }
        false
    }

    fn begins_to_sleep(&mut self, pid: i32, who: u32, at: u64, (until, form): (Option<i32>, TimeForm)) -> bool {
        let Some(sleep) = sleep::shorten(pid, at, until, form) else { return false };
        if sleep.wanted.as_secs() > 0 {
            self.record.sleeps(who, sleep.wanted.as_secs());
        }
        let deed = Deed::Sleep { at, until, form };
        self.tasks.insert(pid, Some(PendingCall { deed, who, existed: false, sleep: Some(sleep) }));
        true
    }

    /// A program could not be run: what was missing, in words that tell it.
    fn not_run(&self, who: u32, path: &str, errno: i32) {
        if let (Some(name), libc::ENOENT) = (calls::command(path), errno) {
            self.record.misses(name);
        }
        let Some(head) = Some(start_of(path)).filter(|head| !head.is_empty()) else { return };
        let why = program::obstacle(&head, errno);
        if let Some(name) =
            program::interpreter(&head).and_then(|path| path.rsplit('/').next()).filter(|_| errno == libc::ENOENT)
        {
            self.record.misses(name);
        }
        let is_foreign = program::is_elf(&head) || (program::is_python(&head) && !program::is_of_our_python(&head));
        if path == self.sample && (errno != libc::ENOEXEC || is_foreign) {
            self.record.acts(who, "not-run", &why);
        }
        if [libc::ENOEXEC, libc::EACCES].contains(&errno) && path != self.sample {
            self.record.acts(who, "fails-to-run", path);
        }
    }

    fn await_end(&mut self, pid: i32, who: u32, deed: Deed) -> bool {
        let existed = match &deed {
            Deed::Open(path, _) | Deed::Write(path) | Deed::Delete(path) => has_content(pid, path),
            Deed::Rename(path, _) | Deed::Swap(path, _) => has_content(pid, path),
            _ => false,
        };
        if let Deed::Execute(said, real) = &deed {
            self.programs.insert(pid, (said.clone(), real.clone()));
        }
        self.tasks.insert(pid, Some(PendingCall { deed, who, existed, sleep: None }));
        true
    }

    /// A file was wanted that is not there.
    fn lacks(&self, path: &str) {
        if companion::is_companion(path, &self.sample) && !Path::new(path).exists() {
            self.record.lacks(path);
        }
    }

    /// A file was opened to be read, by a name that tells nothing: behind a link it may be a secret.
    fn saw(&self, pid: i32, who: u32, (path, is_folder): (&Path, bool), opened: Option<i32>) {
        // What was opened has a name without links, unless another thread has closed it already; what could not be opened was wanted all
        // the same.
        let opened = opened.and_then(|file| peek::open_path(pid, file));
        let real = opened.unwrap_or_else(|| peek::real(pid, path, true));
        if Path::new(&real) == path {
            return;
        }
        let real = own_name(pid, who, real);
        if Path::new(&real) != path && calls::tells(&real, is_folder) {
            self.record.acts(who, "reads", &real);
        }
    }

    /// Whether a signal to this process or group goes to somebody who is not the sample.
    fn is_foreign(&self, to: i32) -> bool {
        let group = to.unsigned_abs() as i32;
        // A child that was only just made is known by its name alone, and so is a group whose first process has ended.
        let is_ours = || self.tasks.contains_key(&group) || self.record.program(group as u32).is_some();
        let is_there = || Path::new(&format!("/proc/{group}")).exists();
        to == -1 || (to != 0 && !is_ours() && is_there())
    }

    /// A system call whose end was waited for has ended.
    fn leaves(&mut self, pid: i32) {
        let Some(PendingCall { deed, who, existed, sleep }) = self.tasks.insert(pid, None).flatten() else { return };
        if let Some(sleep) = sleep {
            return sleep.over(pid);
        }
        let Ok(ended) = ptrace::getregs(Pid::from_raw(pid)).map(|registers| registers.rax.cast_signed()) else {
            return;
        };
        let worked = ended >= 0;
        match deed {
            Deed::Open(path, reads) => {
                // Behind a link it may be another file by now.
                let opened = i32::try_from(ended).ok().filter(|_| worked).and_then(|file| peek::open_path(pid, file));
                let path = opened.unwrap_or(path);
                let read = own_name(pid, who, path.clone());
                // The kernel's files have no length, whatever is in them.
                let has_content =
                    existed || ["/proc/", "/dev/mem", "/dev/kmem"].iter().any(|begin| read.starts_with(begin));
                if reads && has_content && calls::tells(&read, false) {
                    self.record.acts(who, "reads", &read);
                }
                self.record.writes(who, &path, existed, worked);
            }
            Deed::Write(path) => self.record.writes(who, &path, existed, worked),
            Deed::See(path, is_folder) => {
                if ended == -i64::from(libc::ENOENT) {
                    self.lacks(&peek::real(pid, &path, true));
                }
                let opened = i32::try_from(ended).ok().filter(|_| worked);
                self.saw(pid, who, (&path, is_folder), opened);
            }
            Deed::Link(from, to) => self.record.links(who, from.as_deref(), &to, worked),
            Deed::Delete(path) if worked => self.record.deletes(who, &path, existed),
            Deed::Delete(path) if ended == -i64::from(libc::EACCES) => self.record.may_not_write(who, &path),
            Deed::Swap(path, other) => {
                let other_existed = has_content(pid, &path);
                self.record.swaps(who, (&path, existed), (&other, other_existed), worked);
            }
            Deed::Rename(path, to) => self.record.renames((who, path.as_str()), &to, existed, worked),
            Deed::Execute(path, real) => {
                self.programs.remove(&pid);
                if ended == -i64::from(libc::ENOENT) {
                    self.lacks(&real);
                }
                if !worked {
                    self.not_run(who, &path, ended.unsigned_abs() as i32);
                }
            }
            Deed::Ask(question, at) if worked => disguise::answer(pid, question, at, ended),
            Deed::Look(path) => match calls::command(&path) {
                Some(name) if worked => self.record.finds(name),
                Some(name) if ended == -i64::from(libc::ENOENT) => self.record.misses(name),
                _ => {}
            },
            _ => {}
        }
    }

    fn gone(&mut self, pid: i32, how: String) {
        self.tasks.remove(&pid);
        self.groups.remove(&pid);
        self.programs.remove(&pid);
        if self.threads.remove(&pid) {
            return;
        }
        self.record.change(pid as u32, |process| process.ended.clone_from(&how));
        if pid == self.first {
            self.ended = how;
        }
    }
}

/// What a process finds about itself in `/proc` is known by the name that it has for everybody.
fn own_name(pid: i32, who: u32, path: String) -> String {
    let own = |begin: String, name: &str| path.strip_prefix(&begin).map(|rest| format!("/proc/{name}/{rest}"));
    let own = own(format!("/proc/{who}/task/{pid}/"), "thread-self").or_else(|| own(format!("/proc/{who}/"), "self"));
    own.unwrap_or(path)
}

/// Whether there is a file here with something in it.
fn has_content(pid: i32, path: &str) -> bool {
    let about = std::fs::symlink_metadata(peek::seen_by(pid, Path::new(path)));
    about.is_ok_and(|about| about.is_file() && about.len() > 0)
}

/// What is in a file of `/proc`, as far as anybody needs it.
fn start_of(path: &str) -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(PROC_MAX).read_to_end(&mut start);
    }
    start
}

/// Names that only threads of the kernel have.
fn is_kernel_like(name: &str) -> bool {
    let names = ["kworker", "kthread", "ksoftirqd", "kswapd", "migration/", "rcu_", "kdevtmpfs", "watchdog/"];
    name.starts_with('[') || names.iter().any(|begin| name.starts_with(begin))
}

/// The process that a thread belongs to.
fn group(task: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn is_thread(task: i32) -> bool {
    group(task).is_some_and(|group| group != task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernels_threads() {
        for (name, is) in [("[kworker/0:1]", true), ("kworker/u2:0", true), ("worker", false), ("sh", false)] {
            assert_eq!(is_kernel_like(name), is, "{name}");
        }
    }

    #[test]
    fn long_files_of_proc_are_cut() {
        assert!(!start_of("/proc/self/cmdline").is_empty());
        assert!(start_of("/proc/self/no-such-file").is_empty());
        assert_eq!(start_of("/dev/zero").len() as u64, PROC_MAX);
    }
}
