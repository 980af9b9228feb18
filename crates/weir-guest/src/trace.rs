//! Follows a sample and everything that it starts, with ptrace.
//!
//! A process that is traced brings its children along: forks, double forks, new sessions, threads. The loop ends when the
//! last of them has.

use crate::calls::{self, Deed};
use crate::internet::Internet;
use crate::record::Record;
use crate::sys;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use weir_guest::behaviour::Process;

/// Sockets whose addresses are remembered.
const BOUND_MAX: usize = 1024;

/// Follows one sample.
#[derive(Debug)]
pub(crate) struct Tracer<'a> {
    record: &'a Record,
    internet: &'a Internet,
    first: i32,
    user: u32,
    /// Those that were seen already, with what they are doing.
    tasks: HashMap<i32, Option<Deed>>,
    /// Threads of others: they are no processes of their own.
    threads: HashSet<i32>,
    /// What an exec would run.
    programs: HashMap<i32, String>,
    bound: HashMap<(i32, u64), SocketAddr>,
    ended: String,
}

impl<'a> Tracer<'a> {
    /// For a process that has stopped itself to be traced.
    pub(crate) fn new(record: &'a Record, internet: &'a Internet, first: i32, user: u32) -> Tracer<'a> {
        let (tasks, threads, programs, bound) = Default::default();
        let ended = String::new();
        Tracer { record, internet, first, user, tasks, threads, programs, bound, ended }
    }

    /// Until nothing is left of it; how the first process ended.
    pub(crate) fn follow(mut self) -> String {
        self.record.process(Process { pid: self.first as u32, parent: 1, user: self.user, ..Process::default() });
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
            return;
        }
        let parent = if self.threads.contains(&parent) { group(parent).unwrap_or(parent) } else { parent };
        let like = self.record.program(parent as u32).unwrap_or_default();
        let (pid, parent, user) = (child as u32, parent as u32, like.user);
        self.record.process(Process { pid, parent, user, ended: String::new(), ..like });
    }

    fn executed(&mut self, pid: i32) {
        // It may have been a thread that did it, and has the number of its process now.
        let former = ptrace::getevent(Pid::from_raw(pid)).map_or(pid, |former| former as i32);
        let Some(path) = self.programs.remove(&former).or_else(|| self.programs.remove(&pid)) else { return };
        // busybox starts its other selves this way.
        let path = match path.starts_with("/proc/") {
            true => {
                std::fs::read_link(format!("/proc/{pid}/exe")).map_or(path, |exe| exe.to_string_lossy().into_owned())
            }
            false => path,
        };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = line.strip_suffix(&[0]).unwrap_or(&line);
        let arguments = line.split(|byte| *byte == 0).take(64).map(|a| String::from_utf8_lossy(a).into_owned());
        self.record.executes(pid as u32, &path, arguments.collect());
        let user = std::fs::metadata(format!("/proc/{pid}")).map(|m| std::os::unix::fs::MetadataExt::uid(&m));
        self.record.change(pid as u32, |process| process.user = user.unwrap_or(process.user));
    }

    /// A system call begins.
    fn enters(&mut self, pid: i32) {
        let deed = ptrace::getregs(Pid::from_raw(pid)).ok().and_then(|registers| calls::deed(pid, &registers));
        let who = group(pid).unwrap_or(pid) as u32;
        let mut to_exit = false;
        match deed {
            Some(Deed::Execute(path)) => drop(self.programs.insert(pid, path)),
            Some(Deed::Connect(to)) => {
                self.internet.expect(to);
                self.record.connects(who, to);
            }
            Some(Deed::Send(to)) => {
                self.internet.expect(to);
                self.record.sends(who, to);
            }
            Some(Deed::Bind(socket, at)) if self.bound.len() < BOUND_MAX => {
                self.bound.insert((who as i32, socket), at);
            }
            Some(Deed::Bind(..)) => {}
            Some(Deed::Listen(socket)) => {
                let any = SocketAddr::from(([0, 0, 0, 0], 0));
                self.record.listens(who, self.bound.get(&(who as i32, socket)).copied().unwrap_or(any));
            }
            Some(deed) => {
                self.tasks.insert(pid, Some(deed));
                to_exit = true;
            }
            None => {}
        }
        sys::go_on(pid, 0, to_exit);
    }

    /// A system call whose end was waited for has ended.
    fn leaves(&mut self, pid: i32) {
        let Some(deed) = self.tasks.insert(pid, None).flatten() else { return };
        let worked = ptrace::getregs(Pid::from_raw(pid)).is_ok_and(|registers| registers.rax.cast_signed() >= 0);
        match deed {
            Deed::Write(path) => self.record.writes(&path, worked),
            Deed::Delete(path) if worked => self.record.deletes(&path),
            Deed::Rename(path, to) => self.record.renames(&path, &to, worked),
            _ => {}
        }
    }

    fn gone(&mut self, pid: i32, how: String) {
        self.tasks.remove(&pid);
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

/// The process that a thread belongs to.
fn group(task: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn is_thread(task: i32) -> bool {
    group(task).is_some_and(|group| group != task)
}
