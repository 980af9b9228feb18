//! A server under test: a process (or a family of them), a port, a folder.

use crate::usage::Usage;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};
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
        Usage::of(self.process.0.id())
    }

    /// The most that its first process ever had in memory.
    pub(crate) fn peak_mb(&self) -> f64 {
        crate::usage::peak_mb(self.process.0.id())
    }

    /// Stops it and keeps its folder.
    pub(crate) fn stop(self) -> tempfile::TempDir {
        drop(self.process);
        self.folder
    }
}

/// A process of ours; dropping it ends it.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process(
            command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start ({error}): run `make setup`")),
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(15);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
