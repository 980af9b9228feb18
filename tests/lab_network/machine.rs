//! One machine of a lab: a real `weir` in its network namespace.

use super::cables::Cables;
use crate::control::gate::{PATIENCE, wait_for};
use crate::harness::Run;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debug builds on a busy machine are slower than a real lab, so these times are longer than the defaults.
const PATIENT: &str = "reply_wait = \"500ms\"\nmissed_beats = 10\nabort_wait = \"2s\"\nlease = \"8s\"\n";
/// For tests in which no leader may lose its role, however little processor time there is.
const STEADY: &str = "reply_wait = \"1s\"\nmissed_beats = 40\nabort_wait = \"5s\"\nlease = \"120s\"\n";

/// How one machine of the lab is configured.
#[derive(Clone, Copy)]
pub(super) struct Configured<'a> {
    pub(super) index: u32,
    /// Whether no leader may lose its role in this test.
    pub(super) steady: bool,
    /// Further settings for the section `[lab]`.
    pub(super) more: &'a str,
}

impl<'a> Configured<'a> {
    /// A machine like all others.
    pub(super) fn with(more: &'a str) -> Configured<'a> {
        Configured { index: 7, steady: false, more }
    }
}

/// One machine of the lab.
pub(super) struct Machine {
    pub(super) home: tempfile::TempDir,
    space: String,
    running: Option<Child>,
}

impl Machine {
    pub(super) fn new(cables: &Cables, number: usize, records: &str, configured: Configured<'_>) -> Machine {
        let Configured { index, steady, more } = configured;
        let timers = if steady { STEADY } else { PATIENT };
        let lab = format!("address = \"{}/24\"\nprocessing_index = {index}\n{timers}{more}", cables.address(number));
        Machine::configured(cables.space(number), &format!("[store]\nrecords = \"{records}\"\n"), &lab)
    }

    /// A machine that the lab knows by its IPv6 address.
    pub(super) fn in_ipv6(cables: &Cables, number: usize, records: &str) -> Machine {
        let lab = format!("address = \"{}/64\"\nprocessing_index = 7\n{PATIENT}", cables.address_ipv6(number));
        Machine::configured(cables.space(number), &format!("[store]\nrecords = \"{records}\"\n"), &lab)
    }

    /// The machine outside, which has no database.
    pub(super) fn outside(cables: &Cables, more: &str) -> Machine {
        let lab = format!("address = \"{}/24\"\n{PATIENT}{more}", cables.far_address());
        Machine::configured(cables.far_space(), "", &lab)
    }

    /// A worker in the lab's own network, which has no database either.
    pub(super) fn worker(cables: &Cables, number: usize) -> Machine {
        let lab = format!("address = \"{}/24\"\n{PATIENT}", cables.address(number));
        Machine::configured(cables.space(number), "", &lab)
    }

    fn configured(space: String, store: &str, lab: &str) -> Machine {
        let (home, ports) = (tempfile::tempdir().expect("a folder"), "listen = [\"127.0.0.1:0\"]");
        let configuration = format!(
            "[submission]\nenabled = false\nhostname = \"n.example\"\n[web]\n{ports}\n\
             [console]\n{ports}\n{store}[lab]\nenabled = true\nslots = 1\n{lab}"
        );
        fs::write(home.path().join("weir.toml"), configuration).expect("a configuration");
        Machine { home, space, running: None }
    }

    /// Appends to its configuration, which ends with the section of the lab.
    pub(super) fn configure(&self, more: &str) {
        let path = self.home.path().join("weir.toml");
        let before = fs::read_to_string(&path).expect("a configuration");
        fs::write(path, format!("{before}{more}")).expect("a configuration");
    }

    /// Its certificate on the disk.
    pub(super) fn certificate(&self) -> String {
        fs::read_to_string(self.home.path().join("data/lab/node/certificate.pem")).expect("a certificate")
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space, env!("CARGO_BIN_EXE_weir")]).args(args);
        command
            .arg("--data")
            .arg(self.home.path().join("data"))
            .arg("--config")
            .arg(self.home.path().join("weir.toml"));
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn weir(&self, args: &[&str]) -> Run {
        self.command(args).output().expect("the binary starts").into()
    }

    #[track_caller]
    pub(super) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.weir(&[args, &["--json"]].concat()).ok()).expect("one JSON document")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    pub(super) fn up(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut child =
            self.command(&["up", "--log", "debug"]).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        while !lines
            .next()
            .unwrap_or_else(|| panic!("it ended early:\n{}", self.said()))
            .expect("text")
            .contains("Ctrl-C")
        {}
        // The output must be read to the end, because otherwise the process would block.
        std::thread::spawn(move || lines.count());
        self.running = Some(child);
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn signal(&self, name: &str) {
        let id = self.running.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill runs").success());
    }

    /// Its files that contain these words; one path on each line.
    pub(super) fn files_with(&self, words: &str) -> String {
        let found = Command::new("grep").args(["-rlaF", words]).arg(self.home.path()).output().expect("grep runs");
        String::from_utf8_lossy(&found.stdout).into_owned()
    }

    /// Whether its process has these words in writable memory.
    pub(super) fn remembers(&self, words: &str) -> bool {
        const PIECE: usize = 1 << 20;
        let id = self.running.as_ref().expect("it runs").id();
        let places = fs::read_to_string(format!("/proc/{id}/maps")).expect("its memory is listed");
        let memory = File::open(format!("/proc/{id}/mem")).expect("root reads the memory of others");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let mut piece = vec![0; PIECE + words.len()];
        for line in places.lines().filter(|line| line.contains(" rw")) {
            let (range, _) = line.split_once(' ').expect("a range");
            let (from, to) = range.split_once('-').expect("a range");
            let (from, to) = (number(from), number(to));
            for at in (from..to).step_by(PIECE) {
                let length = piece.len().min((to - at) as usize);
                // Memory that is not mapped in yet cannot be read.
                let read = memory.read_at(&mut piece[..length], at).unwrap_or(0);
                if String::from_utf8_lossy(&piece[..read]).contains(words) {
                    return true;
                }
            }
        }
        false
    }

    /// Stops it properly.
    pub(super) fn stop(&mut self) {
        let mut child = self.running.take().expect("it runs");
        let told = Command::new("kill").arg(child.id().to_string()).status();
        assert!(told.expect("kill runs").success());
        child.wait().expect("it ends");
    }

    /// The end of its log.
    pub(super) fn said(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let start = log.char_indices().rev().nth(3_000).map_or(0, |(at, _)| at);
        log[start..].to_owned()
    }

    /// The leader, as this machine sees it.
    pub(super) fn leader(&self) -> Option<String> {
        let status = self.weir(&["lab", "status", "--json"]);
        let status: Value = serde_json::from_str(&status.stdout).ok()?;
        status["leader"].as_str().map(str::to_owned)
    }

    /// Waits until this machine sees that leader. Returns how long it took.
    #[track_caller]
    pub(super) fn led_by(&self, name: &str) -> Duration {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < PATIENCE {
            last = self.leader();
            if last.as_deref() == Some(name) {
                return begun.elapsed();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{name} does not lead, but {last:?}; {} says:\n{}", self.space, self.said());
    }

    /// Submits a sample. Returns its number.
    #[track_caller]
    pub(super) fn submit(&self, content: &str) -> String {
        self.submit_bytes(content.as_bytes())
    }

    #[track_caller]
    pub(super) fn submit_bytes(&self, content: &[u8]) -> String {
        let file = self.home.path().join("sample");
        fs::write(&file, content).expect("a file");
        self.json(&["lab", "submit", file.to_str().expect("text")])[0]["sample"].to_string()
    }

    /// Waits until a sample has ended. Returns its page.
    #[track_caller]
    pub(super) fn ended(&self, number: &str) -> Value {
        wait_for("the sample to end", || {
            let page = self.json(&["lab", "report", number]);
            (page["state"] != "queued").then_some(page)
        })
    }

    /// Submits a sample, waits until it has ended, and returns its page.
    #[track_caller]
    pub(super) fn analysed(&self, content: &str) -> Value {
        self.ended(&self.submit(content))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}
