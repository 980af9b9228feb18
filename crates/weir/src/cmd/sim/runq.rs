//! `weir sim runq`: a virtual lab around the run queues, with faults.

use anyhow::Context;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use weir_chart::{Axis, Chart};
use weir_settings::units::Span;
use weir_sim::runq::{Experiment, Faults, RunQueueReport, Waits};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many machines the lab has, each with 1 to 4 VMs (1–64)
    #[arg(long, default_value_t = 8, value_name = "N")]
    machines: u32,
    /// How many samples arrive in each run (1–1 000 000)
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    samples: u32,
    /// The seed of the first run; each further run uses the next number
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// What may go wrong until the last sample has arrived: none, all, or some of these, separated by commas:
    /// vm-death, lost-result, late-result, duplicate-result, invalid-result, forged-result, unplug, killer,
    /// slow-revert, cancel, unserviceable
    #[arg(long, default_value = "none", value_name = "LIST")]
    faults: String,
    /// How many runs
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: u32,
    /// How much work arrives, as a multiple of what the VMs can do (0.01–10)
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    load: f64,
    /// How many submitters there are; the first one floods the lab with half of all samples (1–1000)
    #[arg(long, default_value_t = 5, value_name = "N")]
    submitters: u32,
    /// How many samples a machine fetches in advance, into current and next, for each of its VMs (0–100)
    #[arg(long, default_value_t = 2, value_name = "N")]
    waiting_per_vm: u32,
    /// Ageing: the waiting time that counts as one step of priority, such as 30s [default: strict priority]
    #[arg(long, value_name = "SPAN")]
    ageing: Option<Span>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the waiting times and the queues as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let experiment = Experiment {
            machines: self.machines,
            samples: self.samples,
            seed: self.seed,
            faults: Faults::parse(&self.faults)?,
            runs: self.runs,
            load: self.load,
            submitters: self.submitters,
            waiting_per_vm: self.waiting_per_vm,
            ageing: self.ageing.map(|span| span.0),
        };
        let bar = self.bar();
        let report = experiment.run(|runs| bar.set_position(u64::from(runs)));
        bar.finish_and_clear();
        let report = report?;
        if let Some(path) = &self.plot {
            std::fs::write(path, picture(&report)).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            return Ok(writeln!(out)?);
        }
        print(&report, &self.faults, out)
    }

    fn bar(&self) -> indicatif::ProgressBar {
        if self.runs > 1 && std::io::stderr().is_terminal() {
            indicatif::ProgressBar::new(u64::from(self.runs))
        } else {
            indicatif::ProgressBar::hidden()
        }
    }
}

fn print(report: &RunQueueReport, faults: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let RunQueueReport { runs, samples, machines, vms, seed, .. } = report;
    writeln!(
        out,
        "{runs} run(s) of {samples} samples on {machines} machines ({vms} VMs in the first run), seed {seed}, \
         faults {faults}: every invariant held at every step, and every sample ended.\n"
    )?;
    writeln!(out, "wait for the first start")?;
    writeln!(
        out,
        "{:<22} {:>9} {:>10} {:>12} {:>10} {:>10}",
        "class (directories)", "started", "mean (s)", "median (s)", "p95 (s)", "max (s)"
    )?;
    let classes = &report.classes;
    waits(out, "real-time (0-31)", &classes.real_time)?;
    waits(out, "normal (32-95)", &classes.normal)?;
    waits(out, "idle (96-127)", &classes.idle)?;
    counts(report, out)?;
    shares(report, out)
}

fn waits(out: &mut dyn Write, name: &str, waits: &Waits) -> anyhow::Result<()> {
    let Waits { started, mean_wait_s, p50_wait_s, p95_wait_s, max_wait_s } = waits;
    Ok(writeln!(
        out,
        "{name:<22} {started:>9} {mean_wait_s:>10.1} {p50_wait_s:>12.1} {p95_wait_s:>10.1} {max_wait_s:>10.1}"
    )?)
}

fn counts(report: &RunQueueReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let ends = &report.ends;
    writeln!(
        out,
        "\nended       {} done, {} quarantined, {} unserviceable, {} cancelled",
        ends.done, ends.quarantined, ends.unserviceable, ends.cancelled
    )?;
    writeln!(out, "attempts    {} dispatched, {} stopped by THRESHOLD", report.dispatches, report.expired)?;
    Ok(writeln!(
        out,
        "results     {} accepted, {} duplicates kept aside, {} invalid",
        report.accepted, report.duplicates, report.invalid
    )?)
}

fn shares(report: &RunQueueReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let fairness = &report.fairness;
    let fifo = fairness.jain_fifo.map_or(String::new(), |jain| format!(" (plain lists, as in the paper: {jain:.3})"));
    writeln!(out, "\nfairness between submitters (waits of normal samples): Jain index {:.3}{fifo}", fairness.jain)?;
    writeln!(
        out,
        "{:<16} {:>9} {:>15} {:>14} {:>18} {:>14}",
        "submitter", "samples", "mean wait (s)", "turns / equal", "plain: wait (s)", "turns / equal"
    )?;
    for share in fairness.submitters.iter().take(12) {
        let name = if share.submitter == 0 { "0 (floods)".into() } else { share.submitter.to_string() };
        let plain = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
        writeln!(
            out,
            "{name:<16} {:>9} {:>15.1} {:>14.2} {:>18} {:>14}",
            share.samples,
            share.mean_wait_s,
            share.share,
            plain(share.fifo_mean_wait_s, 1),
            plain(share.fifo_share, 2)
        )?;
    }
    let more = fairness.submitters.len().saturating_sub(12);
    if more > 0 {
        writeln!(out, "… and {more} more (--json shows all)")?;
    }
    Ok(())
}

/// A picture of how long samples waited, and of how many waited over time.
fn picture(report: &RunQueueReport) -> String {
    const NAMES: [&str; 3] = ["real-time", "normal", "idle"];
    let longest = report.waits.iter().flatten().copied().fold(1.0, f64::max);
    let waits = Axis::log("wait for the first start", "s").range(1.0, longest);
    let mut spread = Chart::new("Samples that have started after so long", waits, Axis::linear("share", "%"));
    let mut over_time = Chart::new(
        "Samples that have not started yet, first run",
        Axis::linear("time", "s"),
        Axis::linear("samples", ""),
    );
    for (class, name) in NAMES.iter().enumerate() {
        spread = spread.steps(*name, distribution(&report.waits[class]));
        over_time = over_time.steps(*name, report.series.iter().map(|(t, n)| (*t, f64::from(n[class]))));
    }
    let heading = format!("{} samples on {} VMs, seed {}", report.samples, report.vms, report.seed);
    weir_chart::sheet(&heading, &[spread, over_time])
}

/// At most about 400 points: a wait of at least one second, and the percentage of samples that waited no longer.
fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let percent = |rank: usize| 100.0 * (rank + 1) as f64 / sorted.len() as f64;
    let points = sorted.iter().enumerate().map(|(rank, wait)| (wait.max(1.0), percent(rank)));
    let last = sorted.last().map(|wait| (wait.max(1.0), 100.0));
    points.step_by((sorted.len() / 400).max(1)).chain(last).collect()
}
