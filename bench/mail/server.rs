//! A server under test: a process (or a family of them), a port, a folder.

use crate::usage::Usage;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; dropping it stops it and removes its folder.
pub(crate) struct Server {
    name: &'static str,
    port: u16,
    process: Process,
    folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn new(name: &'static str, port: u16, process: Process, folder: tempfile::TempDir) -> Server {
        Server { name, port, process, folder }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What all of its processes have used and use.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.process.child.id())
    }

    /// The most that its first process ever had in memory.
    pub(crate) fn peak_mb(&self) -> f64 {
        crate::usage::peak_mb(self.process.child.id())
    }

    /// Stops it and keeps its folder.
    pub(crate) fn stop(self) -> tempfile::TempDir {
        drop(self.process);
        self.folder
    }
}

/// Starts Weir on the configuration in its folder; the port is that of the listener of this name.
pub(crate) fn weir_up(program: &Path, folder: tempfile::TempDir, listener: &str) -> Server {
    let mut command = Command::new(program);
    command.arg("up").arg("--data").arg(folder.path().join("data"));
    command.arg("--config").arg(folder.path().join("weir.toml")).stdout(Stdio::piped());
    let mut process = Process::start(&mut command);
    let lines = BufReader::new(process.child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut port = None;
    for line in lines {
        let mut words = line.split_whitespace();
        if words.next() == Some(listener) {
            port = words.next().and_then(|address| address.rsplit_once(':')?.1.parse().ok());
        }
        if line.contains("Stop with Ctrl-C") {
            break;
        }
    }
    Server::new("Weir", port.expect("Weir says where it listens"), process, folder)
}

/// A process of ours; dropping it ends it, and so does our own end, however it comes.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Waits at the other end of a pipe that only we hold.
    guard: Child,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} does not start ({error}): run `make setup`"));
        // The kernel's own way (a signal at the parent's death) is lost when a server changes its user.
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r _; kill -TERM $0", &child.id().to_string()]).stdin(Stdio::piped());
        Process { child, guard: guard.spawn().expect("there is a shell") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(15);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
