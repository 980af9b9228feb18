//! `make bench-mail`: smtp-source → Weir → smtp-sink beside smtp-source → Postfix → smtp-sink.
//!
//! Both servers run all the time, each with its spool in a folder on the same disk, and take turns: what else
//! happens on the machine meets both. Same messages, same sessions, same sink; nothing is acknowledged before it is
//! synced, on either side. Weir's throttle decides on every message (by client address, learning only, since
//! smtp-source cannot log in); the part `correspondents` has users who log in and whose correspondents are remembered.
//! A ratio is the median over the rounds of ours ÷ Postfix's within a round.
//! The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line. `bench-mail WEIR 4k backlog` runs
//! only the parts that are named.

#![allow(clippy::print_stdout)]

mod correspondents;
mod disk;
mod load;
mod mail_program;
mod password_server;
mod people;
mod postfix;
mod report;
mod round;
mod server;
mod sink;
mod usage;
mod weir;

use disk::Disk;
use load::Load;
use report::Report;
use round::{Round, Sending, play};
use sink::Sink;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 5;
/// What is sent: name of the row, and the load.
const LOADS: [(&str, Load); 4] = [
    ("4k", Load { messages: 4_000, length: 4 << 10, keep: false }),
    ("4k_kept", Load { messages: 4_000, length: 4 << 10, keep: true }),
    ("100k", Load { messages: 800, length: 100 << 10, keep: false }),
    ("100k_kept", Load { messages: 800, length: 100 << 10, keep: true }),
];
/// So that no process is started and no table is made while the clock runs.
const WARM_UP: Load = Load { messages: 1_000, length: 4 << 10, keep: false };
/// What waits in the spool when its memory is looked at.
const BACKLOG: Load = Load { messages: 100_000, length: 4 << 10, keep: true };

fn main() {
    let weir = std::env::args_os().nth(1).map_or_else(beside, PathBuf::from);
    let named: Vec<String> = std::env::args().skip(2).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    let disk = Disk::open();
    let mut report = Report::default();
    report.figure("disk_syncs_per_s", disk.syncs_per_s());
    let loads: Vec<_> = LOADS.iter().filter(|(name, _)| wanted(name)).collect();
    if !loads.is_empty() {
        compete(&weir, &disk, &loads, &mut report);
    }
    if wanted("correspondents") {
        correspondents::compete(&weir, &disk, &mut report);
    }
    if wanted("backlog") {
        backlog(&weir, &disk, &mut report);
    }
    print!("{report}");
}

/// The program in the folder of this one.
fn beside() -> PathBuf {
    std::env::current_exe().expect("a program has a path").with_file_name("weir")
}

/// All rounds of both servers, and of none: smtp-source straight into smtp-sink is the most that can be seen.
fn compete(weir: &Path, disk: &Disk, loads: &[&(&str, Load)], report: &mut Report) {
    let sink = Sink::start();
    let servers = [weir::start(weir, disk, sink.port()), postfix::start(disk, sink.port())];
    for server in &servers {
        play(server, &WARM_UP, &sink);
    }
    for (name, load) in loads {
        let mut rounds: [Vec<Round>; 2] = Default::default();
        let mut direct = Vec::new();
        for number in 1..=ROUNDS {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                let round = play(server, load, &sink);
                eprintln!("{name} round {number} of {ROUNDS}, {}: {round}", server.name());
                rounds.push(round);
            }
            direct.push(f64::from(load.messages) / load.send(sink.port()).as_secs_f64());
        }
        report.compared((name, &load.about()), &servers, &rounds, &direct);
    }
}

/// The memory of a Weir that cannot deliver anything and has taken 100 000 messages; and after a restart.
fn backlog(weir: &Path, disk: &Disk, report: &mut Report) {
    let nobody = weir_peers::free_port();
    let server = weir::start(weir, disk, nobody);
    let took = BACKLOG.send(server.port());
    let usage = server.usage();
    eprintln!("backlog: {} messages accepted in {:.1} s", BACKLOG.messages, took.as_secs_f64());
    report.figure("mail_accepted_per_s_no_delivery", f64::from(BACKLOG.messages) / took.as_secs_f64());
    report.figure("mail_rss_mb_100k_spooled", usage.rss_mb());
    report.figure("mail_rss_mb_100k_spooled_peak", server.peak_mb());
    let start = Instant::now();
    let server = weir::restart(weir, server);
    report.figure("mail_start_s_100k_spooled", start.elapsed().as_secs_f64());
    report.figure("mail_rss_mb_100k_restarted", server.usage().rss_mb());
}
