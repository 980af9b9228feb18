//! `make bench-lab`: a lab of five machines in network namespaces with PostgreSQL, beside Karton.
//!
//! One machine leads, four work, as the paper has it. A sample goes the whole way: a row in the database, read and queued by
//! the leader, assigned behind the fence, sent over mutual TLS, done, its result brought, committed and acknowledged. PostgreSQL
//! syncs every commit. All of it, the database included, shares the processors of this machine; so does Karton with its Redis, which
//! syncs nothing, its S3 (moto), its system process and four workers.
//!
//! Parts: `nothing` (a plugin that the dispatcher answers at once), `process` (a child process each), `million` (the same as the first
//! behind a million samples that no machine can serve), `failover` (the leader is killed, and stopped in order), `messages` (of
//! an election, by the simulator), `karton`; and on one machine alone `real` (all of our own plugins on files of 4 KiB, and the same with a
//! Karton service for each look) and `queued` (a hundred thousand of them in the queue). `bench-lab WEIR nothing karton` runs only those that are named, and
//! `--quick` a tenth of each or less: to see that it works, not to believe the figures.
//! The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../../tests/lab_network/cables.rs"]
mod cables;
mod karton;
mod lab;
mod real;
#[allow(dead_code)]
#[path = "../mail/usage.rs"]
mod usage;

use lab::Lab;
use real::OneMachine;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much of everything.
#[derive(Clone, Copy)]
struct Counts {
    rounds: usize,
    /// Samples of a round.
    nothing: usize,
    process: usize,
    million: usize,
    real: usize,
    queued: usize,
}

const WHOLE: Counts =
    Counts { rounds: 3, nothing: 20_000, process: 600, million: 1_000_000, real: 3_000, queued: 100_000 };
const QUICK: Counts = Counts { rounds: 1, nothing: 2_000, process: 40, million: 20_000, real: 300, queued: 5_000 };
/// What waits while a leader is killed, so that the next has something to assign at once.
const BACKLOG: usize = 200;

fn main() {
    let weir = std::env::args_os().nth(1).map_or_else(beside, PathBuf::from);
    let weir = std::path::absolute(weir).expect("a path");
    let mut named: Vec<String> = std::env::args().skip(2).collect();
    let counts = if named.iter().any(|name| name == "--quick") { QUICK } else { WHOLE };
    named.retain(|name| name != "--quick");
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut figures = Figures::default();
    if wanted("messages") {
        messages(&weir, &mut figures);
    }
    let karton = wanted("karton").then(|| karton::rate(counts.rounds));
    let parts = ["nothing", "process", "million", "failover"];
    let mut ours = None;
    if parts.iter().any(|part| wanted(part)) {
        let mut lab = runtime.block_on(Lab::start(&weir));
        if wanted("nothing") {
            ours = Some(nothing(&runtime, &lab, counts, &mut figures));
        }
        if wanted("process") {
            process(&runtime, &lab, counts, &mut figures);
        }
        if wanted("failover") {
            failover(&runtime, &mut lab, counts.rounds, &mut figures);
        }
        if wanted("million") {
            million(&runtime, &lab, counts, &mut figures);
        }
    }
    if let Some(karton) = karton {
        figures.say("karton_tasks_per_s", karton, "the same through Karton, four workers");
        if let Some(ours) = ours {
            figures.last.push(format!("ratio lab_vs_karton {:.1}", ours / karton));
        }
    }
    if wanted("real") {
        real(&weir, counts, &mut figures);
    }
    if wanted("queued") {
        queued(&weir, counts, &mut figures);
    }
    print!("{}", figures.text());
}

/// The program in the folder of this one.
fn beside() -> PathBuf {
    std::env::current_exe().expect("a program has a path").with_file_name("weir")
}

fn nothing(runtime: &tokio::runtime::Runtime, lab: &Lab, counts: Counts, figures: &mut Figures) -> f64 {
    runtime.block_on(lab.play("nothing", counts.nothing / 10));
    let rounds: Vec<f64> = (1..=counts.rounds).map(|_| runtime.block_on(lab.play("nothing", counts.nothing))).collect();
    eprintln!("nothing: {rounds:.0?} samples/s");
    let rate = median(rounds);
    figures.say("lab_leader_rss_mb", lab.leader_rss_mb(), "resident memory of the leader after that");
    figures.last.push(format!("figure lab_samples_per_s {rate:.0}"));
    rate
}

fn process(runtime: &tokio::runtime::Runtime, lab: &Lab, counts: Counts, figures: &mut Figures) {
    let rounds: Vec<f64> = (1..=counts.rounds).map(|_| runtime.block_on(lab.play("process", counts.process))).collect();
    eprintln!("process: {rounds:.0?} samples/s");
    figures.say("lab_process_samples_per_s", median(rounds), "samples a second with a child process each");
}

fn real(weir: &Path, counts: Counts, figures: &mut Figures) {
    let theirs = karton::rate_of_looks(counts.rounds, 200);
    let mut machine = OneMachine::start(weir);
    machine.play(counts.real / 10);
    let rounds: Vec<f64> = (1..=counts.rounds).map(|_| machine.play(counts.real)).collect();
    eprintln!("real: {rounds:.0?} samples/s");
    let ours = median(rounds);
    figures.say("karton_looks_per_s", theirs, "files a second through Karton, a service for each of seven looks");
    figures.last.push(format!("figure lab_real_samples_per_s {ours:.0}"));
    figures.last.push(format!("ratio lab_real_vs_karton {:.1}", ours / theirs));
}

fn queued(weir: &Path, counts: Counts, figures: &mut Figures) {
    let (first, grown) = OneMachine::start(weir).queue(counts.queued);
    figures.say("lab_queued_rss_mb", first, "memory with a hundred thousand files in the queue");
    figures.say(
        "lab_queued_growth_mb",
        grown,
        "what it grows by in a minute of working them off; the lease is the same",
    );
}

fn million(runtime: &tokio::runtime::Runtime, lab: &Lab, counts: Counts, figures: &mut Figures) {
    let before = lab.leader_rss_mb();
    let begun = Instant::now();
    lab.queue_unservable(counts.million);
    lab.wait_until_read(counts.million);
    figures.say("lab_million_read_s", begun.elapsed().as_secs_f64(), "until a million rows are written and queued");
    let grown = lab.leader_rss_mb() - before;
    figures.say("lab_million_rss_mb", grown, "memory of the leader that they take");
    let rounds: Vec<f64> = (1..=counts.rounds).map(|_| runtime.block_on(lab.play("nothing", counts.nothing))).collect();
    eprintln!("behind a million: {rounds:.0?} samples/s");
    figures.say("lab_million_samples_per_s", median(rounds), "samples a second beside a million that wait");
}

fn failover(runtime: &tokio::runtime::Runtime, lab: &mut Lab, rounds: usize, figures: &mut Figures) {
    let mut killed = Vec::new();
    let mut resigned = Vec::new();
    for round in 1..=rounds {
        killed.push(take_over(runtime, lab, "KILL"));
        resigned.push(take_over(runtime, lab, "TERM"));
        eprintln!("round {round}: killed {:.2} s, stopped in order {:.2} s", killed[round - 1], resigned[round - 1]);
    }
    let worst = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    figures.say("lab_failover_worst_s", worst(&killed), "the worst of these");
    figures.say("lab_resign_worst_s", worst(&resigned), "the worst of these");
    figures.last.push(format!("figure lab_failover_s {:.2}", median(killed)));
    figures.last.push(format!("figure lab_resign_s {:.2}", median(resigned)));
}

/// Seconds from the signal to the leader to the first assignment by the next one.
fn take_over(runtime: &tokio::runtime::Runtime, lab: &mut Lab, signal: &str) -> f64 {
    let epoch = lab.epoch();
    let at = lab.signal_leader(signal);
    runtime.block_on(lab.submit("nothing", BACKLOG));
    let first = lab.first_assignment_after(epoch);
    lab.restart_leader();
    first.duration_since(at).unwrap_or(Duration::ZERO).as_secs_f64()
}

fn messages(weir: &Path, figures: &mut Figures) {
    for nodes in [3, 5, 10, 20, 50] {
        let mut sim = std::process::Command::new(weir);
        sim.args(["sim", "election", "--faults", "crash", "--runs", "20", "--json", "--nodes", &nodes.to_string()]);
        let printed = sim.output().expect("the simulator runs");
        let report: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("one JSON document");
        let each = report["messages_per_election"].as_f64().unwrap_or(f64::NAN);
        figures.say(
            &format!("lab_election_messages_{nodes}"),
            each,
            &format!("messages an election of {nodes} machines"),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A table for the reader, then lines for the machine.
#[derive(Default)]
struct Figures {
    rows: Vec<(String, f64, String)>,
    /// Those with a goal come last.
    last: Vec<String>,
}

impl Figures {
    fn say(&mut self, name: &str, value: f64, about: &str) {
        self.rows.push((name.to_owned(), value, about.to_owned()));
    }

    fn text(&self) -> String {
        let rows = self.rows.iter().map(|(_, value, about)| format!("{value:>12.1}  {about}\n"));
        let figures = self.rows.iter().map(|(name, value, _)| format!("figure {name} {value:.1}\n"));
        let last = self.last.iter().map(|line| format!("{line}\n"));
        rows.chain(["\n".to_owned()]).chain(figures).chain(last).collect()
    }
}
