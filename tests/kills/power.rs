//! Load on a gate in a virtual machine, and power cuts.

use super::books::{Answer, Books, Verdict};
use super::load::Load;
use super::machine::{Machine, Running, START_MAX};
use super::sink::{Door, Sink};
use super::site::wait_for;
use super::{SENDERS, number, say};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_sim::rng::Rng;

pub(super) struct Power {
    pub(super) machine: Machine,
    seed: u64,
    rng: Rng,
    sink: Sink,
    door: Door,
    books: Arc<Books>,
    load: Load,
    life: u32,
    /// What the last life wrote to the disk that is never flushed; none if it ended properly.
    unflushed: Option<String>,
}

impl Power {
    /// A machine with users that was switched off properly.
    pub(super) fn new() -> Power {
        let parts: PathBuf = std::env::var_os("WEIR_VM").expect("WEIR_VM: run this by tools/soak-vm").into();
        let seed = number("WEIR_SEED", u64::from(std::process::id()) << 20 | 1);
        say(&format!("power cuts: WEIR_SEED={seed}"));
        let (mut rng, sink, books) = (Rng::new(seed), Sink::default(), Arc::new(Books::default()));
        let (machine, door) = (Machine::new(&parts), sink.open(0));
        let mut first = machine.start("first", &door);
        first.until("WEIR canary", START_MAX);
        first.off();
        let load = Load::start(&SENDERS, &books, &mut rng);
        Power { machine, seed, rng, sink, door, books, load, life: 0, unflushed: None }
    }

    fn start(&mut self, mode: &str) -> Running {
        self.life += 1;
        self.door = self.sink.open(self.life);
        let mut running = self.machine.start(mode, &self.door);
        let canary = running.until("WEIR canary", START_MAX);
        let words: Vec<&str> = canary.split_whitespace().collect();
        let [.., before, "then", now] = words[..] else { panic!("{canary}") };
        // Otherwise the power was not really cut.
        let lost = self.unflushed.as_ref().is_none_or(|written| written != before);
        assert!(lost && now.starts_with("written"), "what nobody flushed survived: {canary}");
        self.unflushed = Some(now.to_owned());
        if mode != "list" {
            running.until("Stop with Ctrl-C", START_MAX);
        }
        running
    }

    /// Runs one life under load and cuts its power.
    pub(super) fn cut_under_load(&mut self) {
        let running = self.start("up");
        self.load.gate_at(Some(running.gate));
        let before = self.books.count(Answer::is_taken);
        let more = || (self.books.count(Answer::is_taken) >= before + 60).then_some(());
        wait_for("some mail to be taken", START_MAX, more);
        std::thread::sleep(Duration::from_millis(self.rng.between(0, 6000)));
        let log = running.cut();
        self.load.gate_at(None);
        let taken = self.books.count(Answer::is_taken) - before;
        say(&format!("power cuts: life {} ended after {taken} messages were acknowledged", self.life));
        for line in log.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).take(5) {
            say(&format!("life {}: {line}", self.life));
        }
    }

    /// Runs lives without load: mail that can be sent is sent; held mail is listed and then released.
    pub(super) fn settle(mut self) -> Verdict {
        self.sink.be_plain();
        let running = self.start("up");
        self.quiet();
        running.cut();
        let mut running = self.start("list");
        let (held, queued) = (running.recipients("held"), running.recipients("queue"));
        running.off();
        self.unflushed = None;
        let missing = self.books.verdict(&self.sink.taken()).missing;
        let nowhere = missing.iter().filter(|(_, to)| !held.contains(to) && !queued.contains(to)).count();
        say(&format!("power cuts: {} recipients wait, {} are held, {nowhere} are nowhere", missing.len(), held.len()));
        let running = self.start("release");
        self.quiet();
        running.cut();
        self.load.stop();
        let verdict = self.books.verdict(&self.sink.taken());
        say(&format!("power cuts: WEIR_SEED={}: {} lives; {verdict}", self.seed, self.life + 1));
        verdict
    }

    /// Waits until everything has arrived, or nothing more arrives.
    fn quiet(&self) {
        let missing = || self.books.verdict(&self.sink.taken()).missing.len();
        let (mut last, mut since) = (missing(), Instant::now());
        while last > 0 && since.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(500));
            let now = missing();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}
