//! `make bench-scan`: mail through Weir with clamd beside mail through Postfix with Amavis, and with Rspamd, and the same clamd.
//!
//! All servers run all the time, each with its folder on the same disk, and take turns with one private clamd that knows
//! EICAR, Debian's test files, and 360 000 made-up signatures, so that a scan costs about what it costs on a site. One client and one sink in this process, the same kinds and sizes for every side. Nothing is
//! accepted before it is synced, on any side. *Weir* scans with clamd, YARA rules and the attachment policy (as by default, with clamd); *Weir,
//! ClamAV alone* without the last two; Amavis takes messages apart, judges names and types, and asks clamd about each part.
//!
//! Parts: `4k` (throughput), `dual` and `heavy` (throughput, then times in system at 0.7 of what Amavis bore), `rspamd` (the same beside
//! Postfix with Rspamd: 4 KiB for throughput, then the heavy mix at 0.7 of what it bore), `simulated` (the feeds beside one line for many
//! loads and mixes, by the simulator), `doors` (files to clamd and to Weir in its place; Postfix with clamav-milter and with Weir's milter), `feeds` (Weir's feeds beside Weir without limits by size, first come first served, in a flood and at
//! a load of 0.8; with all workers, and with one for each of two cores). `bench-scan WEIR 4k feeds` runs only those that are named.
//! The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

mod amavis;
mod clamd_door;
mod client;
#[path = "../mail/disk.rs"]
mod disk;
mod milters;
mod mix;
// Each benchmark uses its part of what they share.
#[allow(dead_code)]
#[path = "../mail/postfix.rs"]
mod postfix;
mod report;
mod round;
mod rspamd;
#[allow(dead_code)]
#[path = "../mail/server.rs"]
mod server;
mod side;
mod simulated;
mod sink;
#[allow(dead_code)]
#[path = "../mail/usage.rs"]
mod usage;
mod weir;

use client::Plan;
use disk::Disk;
use mix::{Mix, Writer};
use report::{Report, median, ratio};
use round::{Round, play};
use side::Side;
use sink::Sink;
use std::path::{Path, PathBuf};
use weir::{Setup, Weir};
use weir_peers::Clamd;

const ROUNDS: usize = 3;
/// How long a burst should keep a side busy, by what its warm-up showed, and how many messages it has at least and at most.
const BURST_S: f64 = 4.0;
const BURST: (usize, usize) = (100, 4_000);
/// A warm-up, long enough to show a pace.
const WARM_UP: usize = 100;
/// How long a stream lasts.
const STREAM_S: f64 = 30.0;
/// Of what Amavis bore.
const STREAM_LOAD: f64 = 0.7;
/// Of the same, close to all that the other side bears.
const HEAVY_LOAD: f64 = 0.95;
/// Of what Weir's feeds bear.
const FEEDS_LOAD: f64 = 0.8;
/// Many short rounds: one that the machine disturbed must not be half of them.
const FEEDS_FLOODS: u64 = 3;
const FEEDS_STREAMS: u64 = 5;
const FEEDS_S: f64 = 20.0;
const FEEDS_FLOOD: usize = 1_000;
/// Files of a burst through the doors, and how long a stream of them lasts.
const DOOR_FILES: usize = 600;
const DOOR_S: f64 = 20.0;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(run());
    print!("{report}");
}

async fn run() -> Report {
    let program = std::env::args_os().nth(1).map_or_else(beside, PathBuf::from);
    let named: Vec<String> = std::env::args().skip(2).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    let bench = Bench { disk: Disk::open(), clamd: scanner(), sink: Sink::start().await, program };
    let mut report = Report::default();
    report.figure("disk_syncs_per_s", bench.disk.syncs_per_s());
    if ["4k", "dual", "heavy"].into_iter().any(wanted) {
        bench.compete(&wanted, &mut report).await;
    }
    if wanted("rspamd") {
        bench.rspamd(&mut report).await;
    }
    if wanted("doors") {
        bench.doors(&mut report).await;
    }
    if wanted("simulated") {
        simulated::tell(&mut report);
    }
    if wanted("feeds") {
        bench.feeds(&mut report).await;
    }
    report
}

/// The program in the folder of this one.
fn beside() -> PathBuf {
    std::env::current_exe().expect("a program has a path").with_file_name("weir")
}

/// A clamd that Amavis's user may ask.
fn scanner() -> Clamd {
    use std::os::unix::fs::PermissionsExt;
    // Every scan makes and removes files; on a disk that others sync that costs more than the scan.
    let clamd = Clamd::start_with_database("TemporaryDirectory /dev/shm");
    let socket = clamd.socket();
    let folder = socket.parent().expect("a socket is in a folder");
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    clamd
}

/// What all parts stand on.
struct Bench {
    disk: Disk,
    clamd: Clamd,
    sink: Sink,
    program: PathBuf,
}

impl Bench {
    fn weir(&self, setup: Setup) -> Weir {
        let socket: &Path = &self.clamd.socket();
        Weir::start(&self.program, setup, (&self.disk, socket, self.sink.port()))
    }

    /// Weir, Weir with ClamAV alone, and Amavis, in turns.
    async fn compete(&self, wanted: &dyn Fn(&str) -> bool, report: &mut Report) {
        let (whole, alone) = (self.weir(Setup::Whole), self.weir(Setup::ClamavAlone));
        let amavis = amavis::start(&self.disk, &self.clamd.socket(), self.sink.port());
        let sides = [&whole.side, &alone.side, &amavis];
        let mut counts = [0; 3];
        for (side, count) in sides.into_iter().zip(&mut counts) {
            let round = self.play("warm-up", side, &Plan::burst(Writer::new(Mix::Even, 0).write(WARM_UP))).await;
            *count = ((round.per_s * BURST_S) as usize).clamp(BURST.0, BURST.1);
        }
        if wanted("4k") {
            report.title("4 KiB, all at once");
            let rounds = self.bursts((sides, counts), Mix::Even, report).await;
            report.figure("scan_throughput_amavis_per_s", median(rounds[2].iter().map(|round| round.per_s)));
            report.ratio("scan_throughput_clamav_alone", ratio(&rounds[1], &rounds[2], |round| round.per_s));
            report.ratio("scan_throughput", ratio(&rounds[0], &rounds[2], |round| round.per_s));
        }
        for (part, mix) in [("dual", Mix::DualGaussian), ("heavy", Mix::HeavyTailed)] {
            if wanted(part) {
                // Every message is worth some small ones here, and there must be large ones among them.
                self.mixed((sides, counts.map(|count| (count / 2).max(BURST.0))), part, mix, report).await;
            }
        }
    }

    async fn mixed(&self, (sides, counts): ([&Side; 3], [usize; 3]), part: &str, mix: Mix, report: &mut Report) {
        let about = if mix == Mix::DualGaussian { "2 kB, and 10 % of 50 kB" } else { "4 KiB, and 1 % of 10 MB" };
        report.title(&format!("{about}, 2 % infected, all at once"));
        let bursts = self.bursts((sides, counts), mix, report).await;
        report.ratio(&format!("scan_throughput_{part}"), ratio(&bursts[0], &bursts[2], |round| round.per_s));
        let per_s = median(bursts[2].iter().map(|round| round.per_s)) * STREAM_LOAD;
        report.title(&format!("{about}, 2 % infected, {per_s:.1} a second"));
        let mut rounds = [Vec::new(), Vec::new()];
        for number in 1..=if mix == Mix::HeavyTailed { 2 } else { 1 } {
            for (side, rounds) in [sides[0], sides[2]].into_iter().zip(&mut rounds) {
                let messages = Writer::new(mix, 10 + number).write((per_s * STREAM_S) as usize);
                let plan = Plan::stream(messages, per_s, number);
                rounds.push(self.play(&format!("{part} stream {number}"), side, &plan).await);
            }
        }
        report.row(sides[0].name, &rounds[0]);
        report.row(sides[2].name, &rounds[1]);
        let [ours, theirs] = rounds;
        let name = if mix == Mix::HeavyTailed { "scan_small_p95".to_owned() } else { format!("scan_small_p95_{part}") };
        report.ratio(&name, ratio(&theirs, &ours, |round| round.small.p95_s));
    }

    /// Weir and Postfix with Rspamd, in turns.
    async fn rspamd(&self, report: &mut Report) {
        let whole = self.weir(Setup::Whole);
        let rspamd = rspamd::start(&self.disk, &self.clamd.socket(), self.sink.port());
        let sides = [&whole.side, &rspamd];
        let mut counts = [0; 2];
        for (side, count) in sides.into_iter().zip(&mut counts) {
            let round = self.play("warm-up", side, &Plan::burst(Writer::new(Mix::Even, 0).write(WARM_UP))).await;
            *count = ((round.per_s * BURST_S) as usize).clamp(BURST.0, BURST.1);
        }
        report.title("4 KiB, all at once, beside Rspamd");
        let rounds = self.bursts((sides, counts), Mix::Even, report).await;
        report.figure("scan_throughput_rspamd_per_s", median(rounds[1].iter().map(|round| round.per_s)));
        report.ratio("scan_vs_rspamd", ratio(&rounds[0], &rounds[1], |round| round.per_s));
        let (about, mix) = ("4 KiB, and 1 % of 10 MB", Mix::HeavyTailed);
        report.title(&format!("{about}, 2 % infected, all at once, beside Rspamd"));
        let bursts = self.bursts((sides, counts.map(|count| (count / 2).max(BURST.0))), mix, report).await;
        report.ratio("scan_vs_rspamd_heavy", ratio(&bursts[0], &bursts[1], |round| round.per_s));
        let per_s = median(bursts[1].iter().map(|round| round.per_s)) * STREAM_LOAD;
        report.title(&format!("{about}, 2 % infected, {per_s:.1} a second, beside Rspamd"));
        let mut streams = [Vec::new(), Vec::new()];
        for number in 1..=2 {
            for (side, streams) in sides.into_iter().zip(&mut streams) {
                let messages = Writer::new(mix, 30 + number).write((per_s * STREAM_S) as usize);
                let plan = Plan::stream(messages, per_s, number);
                streams.push(self.play(&format!("rspamd stream {number}"), side, &plan).await);
            }
        }
        sides.into_iter().zip(&streams).for_each(|(side, rounds)| report.row(side.name, rounds));
        let [ours, theirs] = streams;
        report.ratio("scan_vs_rspamd_small_p95", ratio(&theirs, &ours, |round| round.small.p95_s));
    }

    /// Weir in clamd's place beside clamd, then Postfix with Weir's milter beside clamav-milter; all with the heavy mix.
    async fn doors(&self, report: &mut Report) {
        let (server, milter, door) = weir::doors(&self.program, (&self.disk, &self.clamd.socket()));
        let (about, mix) = ("4 KiB, and 1 % of 10 MB", Mix::HeavyTailed);
        let ends = [("Weir, as clamd", door), ("clamd", self.clamd.socket())];
        let file_rounds = async |plan: &dyn Fn(u64) -> Plan, rounds: u64, what: &str| {
            let mut played = [Vec::new(), Vec::new()];
            for number in 1..=rounds {
                for ((name, socket), played) in ends.iter().zip(&mut played) {
                    let round = clamd_door::play(socket, &plan(number)).await;
                    eprintln!("{what} {number}, {name}: {round}");
                    played.push(round);
                }
            }
            played
        };
        report.title(&format!("files of {about}, 2 % infected, {} at once", clamd_door::AT_ONCE));
        let burst = |number| Plan::burst(Writer::new(mix, 60 + number).write(DOOR_FILES));
        let bursts = file_rounds(&burst, 3, "files").await;
        ends.iter().zip(&bursts).for_each(|((name, _), rounds)| report.row(name, rounds));
        report.ratio("scan_door_throughput", ratio(&bursts[0], &bursts[1], |round| round.per_s));
        report.ratio("scan_door_flood_small_p95", ratio(&bursts[1], &bursts[0], |round| round.small.p95_s));
        let bears = median(bursts[1].iter().map(|round| round.per_s));
        // While clamd has threads to spare the kernel shares the processors out fairly; where large files take all of them, it is
        // the order that counts.
        for (load, when) in [(STREAM_LOAD, ""), (HEAVY_LOAD, "_heavy_load")] {
            let per_s = bears * load;
            report.title(&format!("files of {about}, 2 % infected, {per_s:.1} a second: {load} of what clamd bears"));
            let stream = |number| {
                let messages = Writer::new(mix, 70 + number).write((per_s * DOOR_S) as usize);
                Plan::stream(messages, per_s, number)
            };
            let streams = file_rounds(&stream, 3, "files in a stream").await;
            ends.iter().zip(&streams).for_each(|((name, _), rounds)| report.row(name, rounds));
            let ratio = ratio(&streams[1], &streams[0], |round| round.small.p95_s);
            report.ratio(&format!("scan_door_small_p95{when}"), ratio);
        }

        let ours = milters::weir(server, milter, (&self.disk, self.sink.port()));
        let theirs = milters::clamav(&self.disk, &self.clamd.socket(), self.sink.port());
        report.title(&format!("mail of {about}, 2 % infected, all at once, through a milter"));
        let bursts = self.bursts(([&ours, &theirs], [300; 2]), mix, report).await;
        report.ratio("scan_milter_throughput", ratio(&bursts[0], &bursts[1], |round| round.per_s));
        let bears = median(bursts[1].iter().map(|round| round.per_s));
        for (load, when) in [(STREAM_LOAD, ""), (HEAVY_LOAD, "_heavy_load")] {
            let per_s = bears * load;
            report.title(&format!(
                "mail of {about}, 2 % infected, {per_s:.1} a second through a milter: {load} of what clamav-milter bears"
            ));
            let mut streams = [Vec::new(), Vec::new()];
            for number in 1..=2 {
                for (side, streams) in [&ours, &theirs].into_iter().zip(&mut streams) {
                    let messages = Writer::new(mix, 80 + number).write((per_s * DOOR_S) as usize);
                    streams.push(self.play("milter stream", side, &Plan::stream(messages, per_s, number)).await);
                }
            }
            [&ours, &theirs].into_iter().zip(&streams).for_each(|(side, rounds)| report.row(side.name, rounds));
            let ratio = ratio(&streams[1], &streams[0], |round| round.small.p95_s);
            report.ratio(&format!("scan_milter_small_p95{when}"), ratio);
        }
    }

    /// Everything at once through each side, in turns; its rows.
    async fn bursts<const SIDES: usize>(
        &self,
        (sides, counts): ([&Side; SIDES], [usize; SIDES]),
        mix: Mix,
        report: &mut Report,
    ) -> [Vec<Round>; SIDES] {
        let mut rounds: [Vec<Round>; SIDES] = std::array::from_fn(|_| Vec::new());
        for number in 1..=ROUNDS {
            for ((side, rounds), count) in sides.into_iter().zip(&mut rounds).zip(counts) {
                let plan = Plan::burst(Writer::new(mix, number as u64).write(count));
                rounds.push(self.play(&format!("burst {number}"), side, &plan).await);
            }
        }
        sides.into_iter().zip(&rounds).for_each(|(side, rounds)| report.row(side.name, rounds));
        rounds
    }

    async fn play(&self, what: &str, side: &Side, plan: &Plan) -> Round {
        let round = play(side, plan, &self.sink).await;
        eprintln!("{what}, {}: {round}", side.name);
        round
    }

    /// Feeds beside first come, first served: with all workers and with one a core, in a flood and at a steady load.
    async fn feeds(&self, report: &mut Report) {
        // With a worker for each core, at a load of 0.8, is what the aim speaks of; the others are named for what they are.
        let all = ([Setup::Whole, Setup::FirstCome], "_flood_5", "_load_5");
        let one_a_core = ([Setup::TwoFeeds, Setup::TwoInLine], "_flood", "");
        for (setups, in_flood, at_load) in [all, one_a_core] {
            let mix = Mix::HeavyTailed;
            report.title(&format!("4 KiB, and 1 % of 10 MB, a flood of {FEEDS_FLOOD} at once"));
            let flood = |number| Plan::burst(Writer::new(mix, 40 + number).write(FEEDS_FLOOD));
            let (waits, per_s) = self.beside(setups, report, ("flood", FEEDS_FLOODS), &flood).await;
            waits.tell(report, in_flood);
            let per_s = per_s * FEEDS_LOAD;
            report.title(&format!("4 KiB, and 1 % of 10 MB, {per_s:.1} a second: a load of {FEEDS_LOAD}"));
            let stream = |number| {
                let messages = Writer::new(mix, 20 + number).write((per_s * FEEDS_S) as usize);
                Plan::stream(messages, per_s, number)
            };
            let (waits, _) = self.beside(setups, report, ("load", FEEDS_STREAMS), &stream).await;
            waits.tell(report, at_load);
        }
    }

    /// Plays the same plans to both, each time to a new Weir; how long messages waited, and what the feeds bore.
    async fn beside(
        &self,
        setups: [Setup; 2],
        report: &mut Report,
        (what, rounds_wanted): (&str, u64),
        plan: &dyn Fn(u64) -> Plan,
    ) -> (Waits, f64) {
        let (mut waits, mut rounds) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for number in 1..=rounds_wanted {
            for (index, setup) in setups.into_iter().enumerate() {
                let weir = self.weir(setup);
                rounds[index].push(self.play(&format!("{what} {number}"), &weir.side, &plan(number)).await);
                waits[index].push(weir.mean_wait_s());
                eprintln!("  mean wait {:.1} ms", weir.mean_wait_s() * 1e3);
            }
        }
        for (setup, rounds) in setups.into_iter().zip(&rounds) {
            report.row(setup.name(), rounds);
        }
        let per_s = median(rounds[0].iter().map(|round| round.per_s));
        let [feeds, line] = waits;
        (Waits { feeds, line }, per_s)
    }
}

/// Mean waits for a worker in seconds, one a round.
struct Waits {
    feeds: Vec<f64>,
    line: Vec<f64>,
}

impl Waits {
    fn ratio(&self) -> f64 {
        median(self.line.iter().zip(&self.feeds).map(|(line, feeds)| line / feeds))
    }

    /// Figures and ratio, all named with `when` at their ends.
    fn tell(&self, report: &mut Report, when: &str) {
        for (name, waits) in [("feeds", &self.feeds), ("fifo", &self.line)] {
            report.figure(&format!("scan_{name}_mean_wait_ms{when}"), median(waits.iter().map(|wait| wait * 1e3)));
        }
        report.ratio(&format!("scan_feeds_vs_fifo_mean{when}"), self.ratio());
    }
}
