//! One machine with all of our own plugins: files of 4 KiB go in by a numbered directory and come out with a report of each plugin.
//!
//! The files are scripts, programs, PDFs and archives in turn, each with content of its own, so that nothing is known beforehand. `queued`
//! hands in a hundred thousand and looks for a minute whether the lease stays and the memory is flat.

use crate::usage::Usage;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(900);
/// The size of a file.
const SIZE: usize = 4096;
/// How long memory is looked at while a long queue is worked off.
const LOOKED_AT: Duration = Duration::from_secs(60);

/// A lab of one machine.
pub(crate) struct OneMachine {
    weir: PathBuf,
    home: tempfile::TempDir,
    running: Child,
    made: u64,
}

impl OneMachine {
    pub(crate) fn start(weir: &Path) -> OneMachine {
        let home = tempfile::tempdir().expect("a folder");
        let configuration =
            "[submission]\nenabled = false\n[console]\nlisten = [\"127.0.0.1:0\"]\n[lab]\nenabled = true\n";
        fs::write(home.path().join("weir.toml"), configuration).expect("a configuration");
        let log = fs::File::create(home.path().join("log")).expect("a log");
        let mut up = command(weir, home.path(), &["up"]);
        let mut running = up.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut lines = BufReader::new(running.stdout.take().expect("a pipe")).lines();
        let is_up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C"));
        assert!(is_up, "it ended early:\n{}", fs::read_to_string(home.path().join("log")).unwrap_or_default());
        std::thread::spawn(move || lines.count());
        let machine = OneMachine { weir: weir.to_owned(), home, running, made: 0 };
        machine.wait_for("somebody to lead", || machine.status()["leader"].is_string());
        machine
    }

    /// Hands in so many files and waits until all have ended: samples a second.
    pub(crate) fn play(&mut self, files: usize) -> f64 {
        let before = self.ended();
        let begun = Instant::now();
        self.hand_in(files);
        self.wait_for("the samples to end", || self.ended() >= before + files as u64);
        let took = begun.elapsed();
        assert_eq!(self.state("quarantined") + self.state("unserviceable"), 0, "all are done");
        files as f64 / took.as_secs_f64()
    }

    /// Hands in so many files, and returns how much memory the machine has when all are queued and what it grows by while they are worked off.
    /// Fails if the lease is lost.
    pub(crate) fn queue(&mut self, files: usize) -> (f64, f64) {
        let epoch = self.status()["epoch"].clone();
        let known = self.known();
        self.hand_in(files);
        self.wait_for("the files to be taken in", || self.known() >= known + files as u64);
        let begun = Instant::now();
        let first = self.rss_mb();
        let mut most = first;
        while begun.elapsed() < LOOKED_AT {
            std::thread::sleep(Duration::from_secs(5));
            most = most.max(self.rss_mb());
        }
        assert_eq!(self.status()["epoch"], epoch, "the lease was lost");
        (first, most - first)
    }

    /// Written elsewhere first, so that each appears whole.
    fn hand_in(&mut self, files: usize) {
        let analysis = self.home.path().join("data/lab/analysis/32");
        let beside = self.home.path().join("data/lab/beside");
        fs::create_dir_all(&beside).expect("a folder");
        for _ in 0..files {
            self.made += 1;
            let name = format!("sample-{}", self.made);
            fs::write(beside.join(&name), content(self.made)).expect("a file");
            fs::rename(beside.join(&name), analysis.join(&name)).expect("it is handed in");
        }
    }

    fn ended(&self) -> u64 {
        ["done", "quarantined", "unserviceable"].map(|state| self.state(state)).iter().sum()
    }

    fn known(&self) -> u64 {
        self.ended() + self.state("queued")
    }

    fn state(&self, name: &str) -> u64 {
        let status = self.status();
        let states = status["states"].as_array().cloned().unwrap_or_default();
        states.iter().find(|state| state["state"] == name).and_then(|state| state["samples"].as_u64()).unwrap_or(0)
    }

    fn status(&self) -> serde_json::Value {
        let done = command(&self.weir, self.home.path(), &["lab", "status", "--json"]).output().expect("weir runs");
        serde_json::from_slice(&done.stdout).unwrap_or_default()
    }

    fn rss_mb(&self) -> f64 {
        Usage::of(self.running.id()).rss_mb()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, mut look: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !look() {
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(150));
        }
    }
}

impl Drop for OneMachine {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

fn command(weir: &Path, home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(weir);
    command.args(args).arg("--data").arg(home.join("data")).arg("--config").arg(home.join("weir.toml"));
    command.stdin(Stdio::null());
    command
}

/// File number `number`: a script, a program, a PDF or an archive, filled up with words that no other file has.
pub(crate) fn content(number: u64) -> Vec<u8> {
    let mut content = match number % 4 {
        0 => b"#!/bin/sh\necho hello\n".to_vec(),
        1 => fs::read("/bin/true").map(|program| program[..1024].to_vec()).unwrap_or_default(),
        2 => b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /OpenAction 2 0 R >>\nendobj\n".to_vec(),
        _ => b"PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x05\0\0\0\x05\0\0\0a.txthello".to_vec(),
    };
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while content.len() < SIZE {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        content.extend_from_slice(format!("{number} http://host{random:x}.example/{random:x}\n").as_bytes());
    }
    content.truncate(SIZE);
    content
}
