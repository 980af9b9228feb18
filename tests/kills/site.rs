//! A gate that is killed and started again with the same data folder.

use super::load::PASSWORD;
use crate::harness::{Run, children};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How many deliveries run at the same time.
pub(super) const DELIVERIES: usize = 20;

/// A data folder and its configuration.
#[derive(Debug)]
pub(super) struct Site {
    home: tempfile::TempDir,
    data: PathBuf,
    store: String,
}

impl Site {
    /// A site with the data folder `data`, or with a new one. `store` are lines for `[store]`.
    pub(super) fn new(data: Option<&Path>, store: &str) -> Site {
        let home = tempfile::tempdir().expect("a folder");
        let data = data.map_or_else(|| home.path().join("data"), Path::to_owned);
        Site { home, data, store: store.to_owned() }
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    fn configure(&self, door: SocketAddr) {
        let text = format!(
            "[console]\nlisten = [\"127.0.0.1:0\"]\n[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\nhostname = \"mail.example\"\n\
             [delivery]\nway = \"smarthost\"\nhosts = [\"{door}\"]\nretry = [\"200ms\"]\ntls = \"off\"\n\
             deliveries = {DELIVERIES}\ndeliveries_per_destination = {DELIVERIES}\n[store]\n{}\n",
            self.store
        );
        std::fs::write(self.home.path().join("weir.toml"), text).expect("a configuration");
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = std::env::var_os("WEIR_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
        let mut command = Command::new(program);
        command.args(args).arg("--data").arg(&self.data).arg("--config").arg(self.home.path().join("weir.toml"));
        command
    }

    /// Runs a command.
    pub(super) fn weir(&self, args: &[&str]) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // A command that reads no password may have ended already.
        let _ = child.stdin.take().expect("a pipe").write_all(format!("{PASSWORD}\n").as_bytes());
        child.wait_with_output().expect("it ends").into()
    }

    /// The JSON answer of a command.
    #[track_caller]
    pub(super) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.weir(&[args, &["--json"]].concat()).ok()).expect("one JSON document")
    }

    pub(super) fn add_user(&self, user: &str, profile: &str) {
        let address = format!("{user}@sink.example");
        self.weir(&["user", "add", user, "--address", &address, "--profile", profile, "--password-stdin"]).ok();
    }

    /// Adds the users of the load: two whose mail is never held, one that is slowed down, and one that is stopped.
    pub(super) fn add_users(&self) {
        for (user, profile) in [("bulk", "exempt"), ("crowd", "exempt"), ("slow", "person"), ("worm", "person")] {
            self.add_user(user, profile);
        }
        let slow = ["--rate", "20/s", "--multi-rate", "20/s", "--max-slack", "5", "--max-multi-slack", "5"];
        let uncapped = ["--messages-per-day", "0", "--new-recipients-per-day", "0"];
        self.weir(&[&["user", "set", "slow", "--stop-at", "100000"], &slow[..], &uncapped[..]].concat()).ok();
        let worm = ["--rate", "1/day", "--multi-rate", "1/day", "--max-slack", "1", "--max-multi-slack", "1"];
        self.weir(&[&["user", "set", "worm", "--stop-at", "12"], &worm[..]].concat()).ok();
    }

    /// Starts `weir up`, which delivers to `door` and has a log file of its own.
    pub(super) fn spawn(&self, life: u32, door: SocketAddr) -> Life {
        self.configure(door);
        let log = self.log(life);
        let mut command = self.command(&["up"]);
        command.env("WEIR_LOG", "warn").stderr(File::create(&log).expect("a log"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let (said, up) = channel();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        std::thread::spawn(move || {
            let mut address = None;
            for line in lines.map_while(Result::ok) {
                if line.trim_start().starts_with("submission") {
                    address = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
                }
                if line.contains("Stop with Ctrl-C") {
                    let _ = said.send(address.expect("it listens"));
                }
            }
        });
        Life { child, up, log }
    }

    pub(super) fn log(&self, life: u32) -> PathBuf {
        self.home.path().join(format!("log.{life}"))
    }

    /// All recipients that are held.
    #[track_caller]
    pub(super) fn held(&self) -> BTreeSet<String> {
        let list = self.json(&["held", "list"]);
        assert_eq!(list["more"], false, "the list is whole");
        recipients(&list)
    }

    /// All recipients that wait for delivery.
    #[track_caller]
    pub(super) fn queued(&self) -> BTreeSet<String> {
        recipients(&self.json(&["queue", "list"]))
    }
}

/// The recipients in a list of held or queued mail.
pub(super) fn recipients(list: &Value) -> BTreeSet<String> {
    let messages = list["messages"].as_array().expect("a list").iter();
    let to = messages.flat_map(|message| message["recipients"].as_array().expect("a list"));
    to.map(|to| to["address"].as_str().expect("an address").to_owned()).collect()
}

/// One life of the gate. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Life {
    child: Child,
    up: Receiver<SocketAddr>,
    log: PathBuf,
}

impl Life {
    /// The address at which it listens, if it is up within this time.
    pub(super) fn up_within(&self, time: Duration) -> Option<SocketAddr> {
        match self.up.recv_timeout(time) {
            Ok(address) => Some(address),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("it ended by itself:\n{}", self.said()),
        }
    }

    /// The address at which it listens.
    #[track_caller]
    pub(super) fn up(&self) -> SocketAddr {
        self.up_within(Duration::from_secs(60)).unwrap_or_else(|| panic!("it did not come up:\n{}", self.said()))
    }

    /// Whether it ended by itself within this time.
    pub(super) fn ended_within(&mut self, time: Duration) -> Option<Option<i32>> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return Some(status.code());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// The processes that open mail for it.
    pub(super) fn workers(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// What it logged.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it. Returns its log.
    pub(super) fn kill(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `look` again and again until it returns something.
#[track_caller]
pub(super) fn wait_for<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < at_most, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
