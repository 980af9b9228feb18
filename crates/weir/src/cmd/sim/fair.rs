//! `weir sim fair`: shares of clients across replicated servers, beside the ideal.

use crate::answer::print_json;
use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use weir_sim::fair::{Interval, Scenario, Scheduler, SchedulerOutcome, chart, run};
use weir_sim::input::InputError;

/// Larger scenario files are refused.
const FILE_MAX: u64 = 16 << 20;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Args {
    /// Run the test of the thesis: four clients, two servers, 125 seconds; with the figures of FIFO for comparison
    #[arg(long, group = "what")]
    thesis: bool,
    /// Run the scenario in this JSON file: servers, clients, history
    #[arg(long, group = "what", value_name = "FILE.json")]
    scenario: Option<PathBuf>,
    /// Run this many random scenarios, and compare each with its ideal
    #[arg(long, group = "what", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    random: Option<u64>,
    /// The seed of the first random scenario; each of the others uses the next number
    #[arg(long, value_name = "S", default_value_t = 1, conflicts_with_all = ["thesis", "scenario"])]
    seed: u64,
    /// The scheduler that decides what is served next
    #[arg(long, value_enum, default_value_t = Choice::Dfq)]
    scheduler: Choice,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the rates over time as an SVG picture, with the ideal ones dashed
    #[arg(long, value_name = "FILE.svg", conflicts_with = "random")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// Distributed fair queueing, as in the web gate
    Dfq,
    /// First come, first served, on each server by itself
    Fifo,
    /// The pseudocode of the thesis: O(N), and debt without a bound
    Naive,
}

impl From<Choice> for Scheduler {
    fn from(choice: Choice) -> Scheduler {
        match choice {
            Choice::Dfq => Scheduler::Dfq,
            Choice::Fifo => Scheduler::Fifo,
            Choice::Naive => Scheduler::Naive,
        }
    }
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(count) = self.random {
            return self.random(count, out);
        }
        let scenario = match &self.scenario {
            Some(path) => read(path)?,
            None => Scenario::thesis(),
        };
        let (outcome, timeline) = run(&scenario, self.scheduler.into());
        if let Some(path) = &self.plot {
            std::fs::write(path, chart(&scenario, &outcome, &timeline))
                .with_context(|| format!("cannot write the plot to {}", path.display()))?;
        }
        let fifo = self.thesis.then(|| run(&scenario, Scheduler::Fifo).0);
        if self.json {
            return print_json(out, &Document { outcome: &outcome, fifo: fifo.as_ref() });
        }
        match fifo {
            Some(fifo) => print_thesis(out, &outcome, &fifo),
            None => print_scenario(out, &scenario, &outcome),
        }
    }

    fn random(&self, count: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        let play = |seed: u64| {
            let scenario = Scenario::random(seed);
            let (outcome, _) = run(&scenario, self.scheduler.into());
            RandomRun {
                seed,
                servers: scenario.servers.len(),
                clients: scenario.clients.len(),
                intervals: outcome.intervals.len(),
                worst_percent: outcome.worst_percent(),
            }
        };
        let runs: Vec<RandomRun> = (0..count).map(|i| play(self.seed.wrapping_add(i))).collect();
        let worst_percent = runs.iter().map(|run| run.worst_percent).fold(0.0, f64::max);
        if self.json {
            return print_json(out, &RandomRuns { scheduler: self.scheduler.into(), worst_percent, runs });
        }
        writeln!(out, "Random scenarios: how far the worst client is from its water-filling share in any interval.\n")?;
        writeln!(out, "{:>20} {:>8} {:>8} {:>10} {:>12}", "seed", "servers", "clients", "intervals", "worst (%)")?;
        for run in &runs {
            let RandomRun { seed, servers, clients, intervals, worst_percent } = run;
            writeln!(out, "{seed:>20} {servers:>8} {clients:>8} {intervals:>10} {worst_percent:>12.2}")?;
        }
        writeln!(out, "\nworst of {count}: {worst_percent:.2} %")?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    outcome: &'a SchedulerOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    fifo: Option<&'a SchedulerOutcome>,
}

#[derive(Serialize)]
struct RandomRuns {
    scheduler: Scheduler,
    worst_percent: f64,
    runs: Vec<RandomRun>,
}

#[derive(Serialize)]
struct RandomRun {
    seed: u64,
    servers: usize,
    clients: usize,
    intervals: usize,
    worst_percent: f64,
}

fn read(path: &Path) -> Result<Scenario, InputError> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| InputError::unreadable(path, &error))?;
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| InputError::unreadable(path, &error))?;
    let place = path.display().to_string();
    if text.len() as u64 > FILE_MAX {
        return Err(InputError::new(
            place,
            "larger than 16 MiB",
            "a scenario of a thousand clients takes less than one",
        ));
    }
    Scenario::parse(&text, &place)
}

/// FIFO's shares in the thesis's five intervals (clients 1 to 4), as its section 4 explains them.
const THESIS_FIFO: [[f64; 4]; 5] = [
    [4.0, 4.0, 0.0, 0.0],
    [2.0, 2.0, 4.0, 0.0],
    [4.0 / 3.0, 4.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0],
    [2.0, 2.0, 0.0, 4.0],
    [4.0, 4.0, 0.0, 0.0],
];

fn print_thesis(out: &mut dyn Write, outcome: &SchedulerOutcome, fifo: &SchedulerOutcome) -> anyhow::Result<()> {
    let name = name(outcome);
    writeln!(
        out,
        "The thesis's test (section 4), in work units per second; s1 and s2 are parts of the total under {name}.\n"
    )?;
    let (ours, fifos) = (format!("{name} total"), "FIFO, thesis");
    writeln!(
        out,
        "{:>9}  {:<6} {ours:>11} {:>7} {:>8} {:>7} {:>7} {:>7} {fifos:>13}",
        "time (s)", "client", "ideal", "off (%)", "s1", "s2", "FIFO"
    )?;
    for ((interval, fifo), thesis) in outcome.intervals.iter().zip(&fifo.intervals).zip(THESIS_FIFO) {
        for (i, (client, rate)) in interval.rates.iter().enumerate() {
            let number = client.trim_start_matches('c').parse().unwrap_or(i + 1);
            let at =
                |server: &str| interval.servers[server].get(client).map_or("–".into(), |rate| format!("{rate:.2}"));
            writeln!(
                out,
                "{:>9}  {client:<6} {rate:>11.2} {:>7.2} {:>+8.1} {:>7} {:>7} {:>7.2} {:>13.2}",
                time(interval, i),
                interval.ideal[client],
                off_percent(interval, client),
                at("s1"),
                at("s2"),
                fifo.rates[client],
                thesis[number - 1],
            )?;
        }
    }
    writeln!(
        out,
        "\nworst: {name} {:.1} %, FIFO {:.1} % off the ideal",
        outcome.worst_percent(),
        fifo.worst_percent()
    )?;
    Ok(())
}

fn print_scenario(out: &mut dyn Write, scenario: &Scenario, outcome: &SchedulerOutcome) -> anyhow::Result<()> {
    let name = name(outcome);
    writeln!(out, "What each client got under {name}, in work units per second, and its max-min share.\n")?;
    let names = scenario.clients.iter().map(|client| client.name.chars().count());
    let wide = names.max().unwrap_or(6).max(6);
    let columns = scenario.servers.iter().map(|server| (&server.name, server.name.chars().count().max(8)));
    let columns: Vec<_> = columns.collect();
    write!(out, "{:>15}  {:<wide$} {:>10} {:>10} {:>8}", "time (s)", "client", "total", "ideal", "off (%)")?;
    columns.iter().try_for_each(|(server, width)| write!(out, " {server:>width$}"))?;
    writeln!(out)?;
    for interval in &outcome.intervals {
        for (i, (client, rate)) in interval.rates.iter().enumerate() {
            let (time, ideal) = (time(interval, i), interval.ideal[client]);
            let off = off_percent(interval, client);
            write!(out, "{time:>15}  {client:<wide$} {rate:>10.3} {ideal:>10.3} {off:>+8.1}")?;
            for (server, width) in &columns {
                let at = interval.servers[*server].get(client).map_or("–".into(), |rate| format!("{rate:.3}"));
                write!(out, " {at:>width$}")?;
            }
            writeln!(out)?;
        }
    }
    writeln!(out, "\nworst: {:.1} % off the ideal", outcome.worst_percent())?;
    Ok(())
}

fn name(outcome: &SchedulerOutcome) -> &'static str {
    match outcome.scheduler {
        Scheduler::Dfq => "DFQ",
        Scheduler::Fifo => "FIFO",
        Scheduler::Naive => "naive",
    }
}

/// The interval, shown only in the first of its rows.
fn time(interval: &Interval, row: usize) -> String {
    if row == 0 { format!("{}–{}", interval.from_s, interval.to_s) } else { String::new() }
}

fn off_percent(interval: &Interval, client: &str) -> f64 {
    (interval.rates[client] / interval.ideal[client] - 1.0) * 100.0
}
