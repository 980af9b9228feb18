//! `weir feeds`: the scan gate's feeds.

mod live;

use crate::answer::print_json;
use crate::folder_args::FolderArgs;
use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use weir_core::feeds::{FEEDS_MAX, LastLimit, Limits, Load, Objective, Plan, Service, Strategy, Weights};
use weir_settings::units::{Size, Span};
use weir_sim::feeds::{Judged, SearchProgress, Sizes, TuneTask, Tuned, tuned_svg};

#[derive(clap::Subcommand)]
pub(crate) enum Feeds {
    /// Show how much mail waits for the scan, for how long, and how much mail the feeds can handle
    Status(live::StatusArgs),
    /// Find the size limits with the shortest mean wait
    ///
    /// Without other options than --apply, it uses the mail that the running gate has scanned recently. With any of the
    /// others, for example --dist or --sizes, it simulates a case of your own.
    Tune(TuneArgs),
}

impl Feeds {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Feeds::Status(args) => args.run(out),
            Feeds::Tune(args) => args.run(out),
        }
    }
}

/// What comes in and how long it takes to scan. The defaults are the paper's example.
#[derive(clap::Args)]
pub(crate) struct MailArgs {
    /// The distribution of message sizes (dual-gaussian unless --sizes is given)
    #[arg(long, value_enum, conflicts_with = "sizes")]
    dist: Option<Dist>,
    /// A file with message sizes in bytes, separated by spaces or line breaks
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// How many messages arrive per second, on average
    #[arg(long, default_value = "1.5", value_parser = positive)]
    lambda: f64,
    /// Seconds that every scan takes, whatever the size of the message
    #[arg(long, default_value = "0.1", value_parser = not_negative)]
    t0: f64,
    /// Seconds that each byte adds to a scan
    #[arg(long, default_value = "0.0002", value_parser = not_negative)]
    ts: f64,
    /// How many processors there are; if there are fewer than feeds, every scan takes longer [default: one for each
    /// feed]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cpus: Option<u32>,
    /// Whether the last feed also takes smaller mail. In the paper it does not; as this adds a server, the results
    /// cannot be compared with the paper's [default: as in the paper if its strategies or its last limit are asked for,
    /// otherwise as the gate does it]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) last_feed_helps: Option<bool>,
    /// With the strategy shortest: a message that has waited for this long goes before all smaller ones; "none" for
    /// never [default: 60s, and the configuration's for `weir sim feeds`]
    #[arg(long, value_name = "TIME", value_parser = age_bound)]
    pub(crate) age_bound: Option<Duration>,
}

/// A named distribution of sizes.
#[derive(Clone, Copy, ValueEnum)]
enum Dist {
    /// The paper's example: 90 % around 2 kB, 10 % around 50 kB
    DualGaussian,
    /// A stand-in for measured mail: a log-normal body and a Pareto tail up to 2 MB
    HeavyTailed,
}

/// A strategy on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StrategyArg {
    /// By size alone (the first one of the paper)
    Size,
    /// By size and load (the second one of the paper)
    SizeLoad,
    /// Shortest first, within the limits (our own)
    Shortest,
    /// All three
    All,
}

impl MailArgs {
    pub(crate) fn read_sizes(&self) -> anyhow::Result<Sizes> {
        match (&self.sizes, self.dist) {
            (Some(path), _) => Ok(Sizes::read(path)?),
            (None, Some(Dist::HeavyTailed)) => Ok(Sizes::heavy_tailed()),
            (None, _) => Ok(Sizes::dual_gaussian()),
        }
    }

    /// Whether any option was given. Otherwise the running gate is tuned.
    fn is_given(&self) -> bool {
        let usual = (self.lambda, self.t0, self.ts) == (1.5, 0.1, 0.0002);
        let options = self.cpus.is_some() || self.last_feed_helps.is_some() || self.age_bound.is_some();
        self.dist.is_some() || self.sizes.is_some() || !usual || options
    }

    pub(crate) fn load(&self, feeds: usize) -> anyhow::Result<Load> {
        let service =
            Service::new(self.t0, self.ts).context("--t0 and --ts are both zero, but a scan takes some time")?;
        let cpus = self.cpus.map_or(feeds, |cpus| cpus as usize);
        Ok(Load { lambda_per_s: self.lambda, service: service.stretched(feeds, cpus) })
    }
}

impl StrategyArg {
    pub(crate) fn strategies(self) -> Vec<Strategy> {
        match self {
            StrategyArg::Size => vec![Strategy::Size],
            StrategyArg::SizeLoad => vec![Strategy::SizeLoad],
            StrategyArg::Shortest => vec![Strategy::Shortest],
            StrategyArg::All => vec![Strategy::Size, Strategy::SizeLoad, Strategy::Shortest],
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    mail: MailArgs,
    /// Let the running gate use the limits that were found
    #[arg(long, conflicts_with_all = ["dist", "sizes"])]
    apply: bool,
    #[command(flatten)]
    place: FolderArgs,
    /// How many feeds there are
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u16).range(2..=32))]
    feeds: u16,
    /// The largest limit; larger messages go to the last feed and are not counted
    #[arg(long, default_value = "250000", value_name = "SIZE")]
    last_limit: Size,
    /// Also search for the largest limit, and count the mail of the last feed; at most half of the feeds then have a
    /// limit, unless --last-feed-helps=false is given
    #[arg(long)]
    free_last_limit: bool,
    /// The strategy to find limits for
    #[arg(long, value_enum, default_value = "all")]
    strategy: StrategyArg,
    /// How much a second of waiting counts, by size: "10kB:5" makes messages up to 10 kB count five times
    #[arg(long, value_delimiter = ',', value_name = "SIZE:WEIGHT,…", value_parser = weight)]
    weights: Vec<(u64, f64)>,
    /// The seed of the search
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the waiting times and the sizes as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl TuneArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if !self.is_what_if() {
            return live::tune(out, &self.place, self.apply, self.json);
        }
        let task = self.task()?;
        let bar = Bar::new();
        let tuned = task.run(&mut |progress| bar.show(progress))?;
        bar.clear();
        if let Some(path) = &self.plot {
            write_plot(path, &tuned_svg(&tuned, &task.sizes))?;
        }
        if self.json {
            return print_json(out, &tuned);
        }
        print_tuned(out, &tuned, &task)
    }

    /// Whether any option was given that the running gate cannot use.
    fn is_what_if(&self) -> bool {
        let usual = (self.feeds, self.last_limit.0, self.seed) == (5, 250_000, 1) && self.weights.is_empty();
        let options = self.free_last_limit || self.plot.is_some() || !matches!(self.strategy, StrategyArg::All);
        self.mail.is_given() || !usual || options
    }

    fn task(&self) -> anyhow::Result<TuneTask> {
        let feeds = usize::from(self.feeds).min(FEEDS_MAX);
        let weights =
            Weights::new(self.weights.clone()).context("--weights: the sizes must ascend, such as 10kB:5,100kB:2")?;
        let last = if self.free_last_limit { LastLimit::Free } else { LastLimit::Fixed };
        anyhow::ensure!(self.last_limit.0 > 0, "--last-limit: 0 is not a limit; give bytes, such as 250000");
        Ok(TuneTask {
            sizes: self.mail.read_sizes()?,
            load: self.mail.load(feeds)?,
            feeds,
            last_limit: self.last_limit.0,
            objective: Objective { weights, last },
            strategies: self.strategy.strategies(),
            age_bound: self.mail.age_bound.unwrap_or(Plan::AGE_BOUND),
            // If the last feed counts, it must be able to do whatever a single queue for all mail could do.
            last_feed_helps: self.mail.last_feed_helps.unwrap_or(self.free_last_limit),
            seed: self.seed,
            search_arrivals: TuneTask::SEARCH_ARRIVALS,
            judge_arrivals: 2_000_000,
        })
    }
}

fn print_tuned(out: &mut dyn Write, tuned: &Tuned, task: &TuneTask) -> anyhow::Result<()> {
    writeln!(
        out,
        "Best limits for {} feeds, {} messages a second of {}: mean wait {:.3} s by {}.\n",
        task.feeds, tuned.lambda, tuned.sizes, tuned.mean_wait_s, tuned.strategy
    )?;
    writeln!(out, "  limits {}\n", bytes(&tuned.limits))?;
    let weighted = task.objective.weights != Weights::default();
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>9} {:>12} {:>9}{}  limits (bytes)",
        "strategy",
        "mean (s)",
        "p95 (s)",
        "slowdown",
        "largest 5 %",
        "λ max",
        if weighted { "  weighted" } else { "" }
    )?;
    for found in &tuned.strategies {
        write!(
            out,
            "{:<10} {:>9.3} {:>9.3} {:>9.2} {:>10.3} s {:>9.3}",
            found.strategy,
            found.mean_wait_s,
            found.p95_wait_s,
            found.mean_slowdown,
            found.largest_5_percent_wait_s,
            found.lambda_max
        )?;
        if weighted {
            write!(out, " {:>9.3}", found.objective_s)?;
        }
        writeln!(out, "  {}", bytes(&found.limits))?;
    }
    writeln!(out, "\nThe same strategies with other limits:")?;
    for found in &tuned.strategies {
        print_judged(out, "default", &found.default)?;
        print_judged(out, "paper's method", &found.paper_method)?;
    }
    writeln!(out, "\nNo limits can handle more than {:.3} messages a second.", tuned.lambda_bound)?;
    writeln!(out, "Waits were measured on {} arrivals that no search has seen.", task.judge_arrivals)?;
    Ok(())
}

fn print_judged(out: &mut dyn Write, name: &str, judged: &Judged) -> anyhow::Result<()> {
    let wait = judged.mean_wait_s.map_or("overloaded".into(), |wait| format!("{wait:.3} s"));
    writeln!(out, "  {:<10} {name:<15} {wait:>11}  {}", judged.strategy, bytes(&judged.limits))?;
    Ok(())
}

/// Limits for people.
pub(crate) fn bytes(limits: &[u64]) -> String {
    Limits::new(limits.to_vec()).map_or_else(|error| error.to_string(), |limits| limits.to_string())
}

pub(crate) fn write_plot(path: &std::path::Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(path, svg).with_context(|| format!("{}: cannot be written", path.display()))
}

/// A progress bar on standard error, if that is a terminal.
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(crate) fn new() -> Bar {
        let style = ProgressStyle::with_template("{msg:10} {bar:40} {percent:>3} %  {elapsed}");
        let bar = || Some(ProgressBar::new(1).with_style(style.ok()?));
        Bar(std::io::stderr().is_terminal().then(bar).flatten())
    }

    pub(crate) fn show(&self, progress: SearchProgress) {
        if let Some(bar) = &self.0 {
            bar.set_length(progress.total);
            bar.set_message(progress.strategy);
            bar.set_position(progress.done);
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    not_negative(text)?;
    text.parse().ok().filter(|x| *x > 1e-9).ok_or_else(|| "it must be greater than zero, such as 1.5".into())
}

pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number; write one such as 0.1".to_owned())?;
    let sound = number.is_finite() && (0.0..=1e9).contains(&number);
    sound.then_some(number).ok_or_else(|| "it must be a number from 0 to 1e9, such as 0.1".into())
}

fn age_bound(text: &str) -> Result<Duration, String> {
    if text == "none" { Ok(Duration::MAX) } else { text.parse::<Span>().map(|span| span.0) }
}

fn weight(text: &str) -> Result<(u64, f64), String> {
    let (size, weight) = text.split_once(':').ok_or("write SIZE:WEIGHT, such as 10kB:5")?;
    Ok((size.parse::<Size>()?.0, positive(weight)?))
}
