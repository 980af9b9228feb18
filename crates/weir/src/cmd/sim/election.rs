//! `weir sim election`: the lab's leader election under faults.

use crate::config::ConfigArg;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use weir_sim::election::{ElectionReport, Options, Spread, plot, simulate};
use weir_sim::world::Faults;

/// Simulate the lab's leader election under faults
///
/// It runs a virtual lab many times while things go wrong, and checks every rule of the election at every step.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many machines the lab has (2–200): a fifth are external, a fifth are dispatchers, the others are eligible to
    /// lead
    #[arg(long, default_value_t = 5, value_name = "N")]
    nodes: usize,
    /// The seed of the first run; each further run uses the next number
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// What goes wrong: all, none, or some of loss, delay, duplicate, reorder, partition, one-way, crash, pause, clock,
    /// jump, database, resign, forgery, clone, separated by commas
    #[arg(long, default_value = "all", value_name = "LIST")]
    faults: Faults,
    /// How many runs, each with its own seed, on all cores
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw who led at which time in the first run, as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let options = Options {
            nodes: self.nodes,
            seed: self.seed,
            runs: self.runs,
            faults: self.faults.clone(),
            settings: self.config.load()?.config.lab.election,
        };
        let bar = progress_bar(self.runs);
        let report = simulate(&options, &|done| bar.set_position(done))?;
        bar.finish_and_clear();
        if let Some(path) = &self.plot {
            let svg = plot(&options)?;
            std::fs::write(path, svg).with_context(|| format!("--plot {}: cannot be written", path.display()))?;
        }
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            print(&report, out)?;
        }
        out.flush()?;
        refuse_broken(&report, &self.config)
    }
}

fn progress_bar(runs: u64) -> ProgressBar {
    if runs < 2 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
    ProgressBar::new(runs).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn refuse_broken(report: &ElectionReport, config: &ConfigArg) -> anyhow::Result<()> {
    let Some(first) = report.broken.first() else { return Ok(()) };
    anyhow::bail!(
        "{} of {} runs broke an invariant; the first: {}: {}\n  replay: {}{}",
        report.broken_runs,
        report.runs,
        first.invariant,
        first.detail,
        first.replay,
        config.as_typed()
    )
}

fn print(report: &ElectionReport, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{} of a lab of {} machines, faults: {}. Faults happen between 3 s and 30 s of each run; then all of them end, \
         and the best node must lead.\n",
        counted(report.runs, "run"),
        report.nodes,
        report.faults
    )?;
    print_figures(report, out)?;
    print_times(report, out)?;
    print_counts(out, "messages sent", &report.messages)?;
    print_counts(out, "faults injected", &report.faults_injected)?;
    print_invariants(report, out)?;
    for broken in &report.broken {
        writeln!(out, "\nbroken at {:.4} s with seed {}: {}", broken.at_s, broken.seed, broken.invariant)?;
        writeln!(out, "  {}\n  the last steps before it:", broken.detail)?;
        for line in &broken.history {
            writeln!(out, "    {line}")?;
        }
        writeln!(out, "  replay: {}", broken.replay)?;
    }
    Ok(())
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn print_figures(report: &ElectionReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let work = &report.work;
    let rows = [
        ("steps of the world", report.steps.to_string()),
        ("candidacies", report.candidacies.to_string()),
        ("elections (elected, with lease and epoch)", report.elections.to_string()),
        ("epochs a run", format!("{:.2}", report.epochs_per_run)),
        ("election messages an election", format!("{:.1}", report.messages_per_election)),
        ("assignments committed", work.committed.to_string()),
        ("assignments started by dispatchers", work.started.to_string()),
        ("assignments refused as of an old epoch", work.refused_as_stale.to_string()),
        ("forged messages refused", report.forged.to_string()),
    ];
    for (name, value) in rows {
        writeln!(out, "  {name:<42} {value:>12}")?;
    }
    Ok(writeln!(out)?)
}

fn print_times(report: &ElectionReport, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  {:<42} {:>8} {:>8} {:>8} {:>8}", "times (s)", "count", "p50", "p95", "max")?;
    let row = |out: &mut dyn Write, name: &str, s: &Spread| {
        writeln!(out, "  {name:<42} {:>8} {:>8.2} {:>8.2} {:>8.2}", s.count, s.p50, s.p95, s.max)
    };
    row(out, "first acting leader", &report.first_leader_s)?;
    row(out, "fail-over: no leader acts and runs", &report.fail_over_s)?;
    let bound = format!("recovery after the last fault (bound {:.1})", report.recovery_bound_s);
    row(out, &bound, &report.recovery_s)?;
    Ok(writeln!(out)?)
}

fn print_counts(
    out: &mut dyn Write,
    title: &str,
    counts: &std::collections::BTreeMap<&'static str, u64>,
) -> anyhow::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {title}")?;
    for (name, count) in counts {
        writeln!(out, "    {:<40} {count:>12}", name.replace('_', " "))?;
    }
    Ok(writeln!(out)?)
}

fn print_invariants(report: &ElectionReport, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  {:<66} {:>12} {:>8}", "invariants", "checked", "broken")?;
    for invariant in &report.invariants {
        writeln!(out, "    {:<64} {:>12} {:>8}", invariant.name, invariant.checked, invariant.broken)?;
    }
    Ok(())
}
