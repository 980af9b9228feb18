//! `weir sim feeds`: a stream of mail through the scan feeds, and the paper's tables.

use crate::answer::print_json;
use crate::cmd::feeds::{Bar, MailArgs, StrategyArg, bytes, write_plot};
use crate::config::ConfigArg;
use std::io::Write;
use std::path::PathBuf;
use weir_core::feeds::{LastLimit, Limits, Plan};
use weir_settings::units::Size;
use weir_sim::feeds::{
    BesideLine, Experiment, LineRow, Paper, PaperServer, PaperTask, PerFeed, Report, paper_svg, report_svg,
};
use weir_sim::input::InputError;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    mail: MailArgs,
    /// The size limits of all feeds but the last, in ascending order [default: those of the configuration]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    limits: Vec<Size>,
    /// How a message finds its worker; the two strategies of the paper follow the paper's rules [default: the
    /// configuration's]
    #[arg(long, value_enum)]
    strategy: Option<StrategyArg>,
    /// How many messages arrive [default: 1000000; with --paper 10000000, with --beside-line 200000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    arrivals: Option<u64>,
    /// The seed of the random numbers
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Whether the limits are not in force while mail would wait less in one line without limits [default: false with
    /// --strategy size, size-load or all, as in the paper, otherwise as in the configuration]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    limits_give_way: Option<bool>,
    /// Compare the feeds with one line, for many loads and mixes of mail; only --arrivals, --seed and --json count then
    #[arg(long, conflicts_with = "paper")]
    beside_line: bool,
    /// Print the paper's tables beside ours; only --arrivals, --seed, --json and --plot count then
    #[arg(long)]
    paper: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the waiting times and the sizes as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match (self.paper, self.beside_line) {
            (true, _) => self.run_paper(out),
            (_, true) => self.run_beside_line(out),
            _ => self.run_experiment(out),
        }
    }

    fn run_beside_line(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let arrivals = self.arrivals.unwrap_or(200_000).min(100_000_000) as usize;
        let rows = BesideLine { arrivals, seed: self.seed }.run();
        if self.json { print_json(out, &serde_json::json!({ "rows": rows })) } else { print_beside_line(out, &rows) }
    }

    fn run_experiment(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let sizes = self.mail.read_sizes()?;
        let configured = self.config.load()?.config.scan.stage.plan;
        let limits = match self.limits.as_slice() {
            [] => Ok(configured.limits),
            given => Limits::new(given.iter().map(|limit| limit.0).collect()),
        };
        let strategies = self.strategy.map_or_else(|| vec![configured.strategy], StrategyArg::strategies);
        let hint = "give them in ascending order, such as 2000,10000,50000,250000";
        let limits = limits.map_err(|e| InputError::new("--limits", e.to_string(), hint))?;
        let load = self.mail.load(limits.feeds())?;
        let mut reports = Vec::new();
        // A user who names one of the paper's strategies means the paper's rules.
        let by_the_paper = self.strategy.is_some_and(|strategy| !matches!(strategy, StrategyArg::Shortest));
        for strategy in strategies {
            let last_feed_helps = self.mail.last_feed_helps.unwrap_or(configured.last_feed_helps && !by_the_paper);
            let opens = self.limits_give_way.unwrap_or(configured.opens && !by_the_paper);
            let age_bound = self.mail.age_bound.unwrap_or(configured.age_bound);
            let plan = Plan { limits: limits.clone(), strategy, last_feed_helps, age_bound, opens };
            let arrivals = self.arrivals.unwrap_or(1_000_000);
            let last = if last_feed_helps || opens { LastLimit::Free } else { LastLimit::Fixed };
            reports.push(Experiment { sizes: sizes.clone(), load, plan, last, arrivals, seed: self.seed }.run()?);
        }
        if let Some(path) = &self.plot {
            write_plot(path, &report_svg(&reports, &sizes))?;
        }
        match (&reports[..], self.json) {
            ([report], true) => print_json(out, report),
            (reports, true) => print_json(out, &serde_json::json!({ "strategies": reports })),
            (reports, false) => reports.iter().try_for_each(|report| print_report(out, report)),
        }
    }

    fn run_paper(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let task = PaperTask { arrivals: self.arrivals.unwrap_or(10_000_000), seed: self.seed };
        let bar = Bar::new();
        let paper = task.run(&mut |progress| bar.show(progress))?;
        bar.clear();
        if let Some(path) = &self.plot {
            write_plot(path, &paper_svg(&paper))?;
        }
        if self.json { print_json(out, &paper) } else { print_paper(out, &paper, &task) }
    }
}

fn print_report(out: &mut dyn Write, report: &Report) -> anyhow::Result<()> {
    let Report { arrivals, lambda, sizes, strategy, seed, .. } = report;
    writeln!(
        out,
        "{arrivals} messages ({sizes}), {lambda} per second, {} feeds, strategy {strategy}, seed {seed}:",
        report.per_feed.len()
    )?;
    writeln!(
        out,
        "\n  mean wait {:.4} s{}, 95 % wait at most {:.3} s, mean slowdown {:.2}",
        report.mean_wait_s,
        report.formula_wait_s.map_or(String::new(), |w| format!(" (formula {w:.4} s)")),
        report.p95_wait_s,
        report.mean_slowdown
    )?;
    writeln!(
        out,
        "  largest class waits {:.3} s, largest 5 % of messages {:.3} s",
        report.largest_class_wait_s, report.largest_5_percent_wait_s
    )?;
    writeln!(
        out,
        "  can handle at most {:.3} messages per second; no limits can handle more than {:.3}",
        report.lambda_max, report.lambda_bound
    )?;
    writeln!(out, "  one line, first come, first served, with as many workers: mean wait {:.4} s", report.line_wait_s)?;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    writeln!(
        out,
        "  the last feed also takes smaller mail: {}; limits give way: {}",
        yes(report.last_feed_helps),
        yes(report.limits_give_way)
    )?;
    writeln!(
        out,
        "  the exponential model nearest to the sizes has a mean of {:.0} bytes; its distribution is off by {:.3} (root mean square)",
        report.exponential.mean_bytes, report.exponential.rms_error
    )?;
    if !report.stable {
        writeln!(out, "  OVERLOADED: the waits grow for as long as this goes on")?;
    }
    writeln!(
        out,
        "\n{:>6} {:>12} {:>10} {:>8} {:>7} {:>10} {:>10} {:>12}",
        "feed", "limit (B)", "messages", "share", "load", "mean (s)", "p95 (s)", "formula (s)"
    )?;
    report.per_feed.iter().try_for_each(|feed| print_feed(out, feed))?;
    writeln!(out)?;
    Ok(())
}

fn print_feed(out: &mut dyn Write, feed: &PerFeed) -> anyhow::Result<()> {
    let limit = feed.limit.map_or("none".into(), |limit| limit.to_string());
    let formula = feed.formula_wait_s.map_or("–".into(), |wait| format!("{wait:.3}"));
    writeln!(
        out,
        "{:>6} {limit:>12} {:>10} {:>6.2} % {:>7.3} {:>10.3} {:>10.3} {formula:>12}{}",
        feed.feed,
        feed.messages,
        100.0 * feed.fraction,
        feed.load,
        feed.mean_wait_s,
        feed.p95_wait_s,
        if feed.load >= 0.999 { "  overloaded" } else { "" }
    )?;
    Ok(())
}

fn print_beside_line(out: &mut dyn Write, rows: &[LineRow]) -> anyhow::Result<()> {
    writeln!(out, "Mean wait (s) in the feeds, and in one line, first come, first served, with the same workers.\n")?;
    writeln!(
        out,
        "{:>7} {:>6} {:>5} {:>8} {:>10} {:>10} {:>7}  limits (bytes)",
        "workers", "mix", "load", "limits", "feeds", "one line", "ratio"
    )?;
    for row in rows {
        writeln!(
            out,
            "{:>7} {:>6} {:>5} {:>8} {:>10.4} {:>10.4} {:>7.2}  {}{}",
            row.workers,
            row.mix,
            row.load,
            row.limits_are,
            row.feeds_s,
            row.line_s,
            row.ratio(),
            bytes(&row.limits),
            if row.holds() { "" } else { "  WORSE THAN ONE LINE" }
        )?;
    }
    Ok(())
}

fn print_paper(out: &mut dyn Write, paper: &Paper, task: &PaperTask) -> anyhow::Result<()> {
    print_waits(out, paper, task)?;
    print_table_3(out, paper)?;
    print_policies(out, paper, task)?;
    print_paper_only(out, paper)?;
    writeln!(out, "\nStand-in for those sizes: {}.", paper.stand_in)?;
    paper.servers.iter().try_for_each(|server| print_server(out, server))
}

fn print_waits(out: &mut dyn Write, paper: &Paper, task: &PaperTask) -> anyhow::Result<()> {
    writeln!(
        out,
        "Dual-Gaussian example: mean wait (s), the paper's and ours measured in its way and over {} arrivals.\n",
        task.arrivals
    )?;
    writeln!(
        out,
        "{:<46} {:>7} {:>16} {:>13} {:>9} {:>8}  within 10 %",
        "", "paper", "100 × 10 000", "(least–most)", "long run", "formula"
    )?;
    for row in &paper.waits {
        let formula = row.formula_s.map_or("–".into(), |wait| format!("{wait:.3}"));
        let within = match (row.runs_within_10_percent, row.long_within_10_percent) {
            (true, true) => "yes, both",
            (true, false) => "the paper's way",
            (false, true) => "the long run",
            (false, false) => "NO",
        };
        let scatter = format!("({:.2}–{:.2})", row.runs_least_s, row.runs_most_s);
        writeln!(
            out,
            "{:<46} {:>7.2} {:>16.3} {scatter:>13} {:>9.3} {formula:>8}  {within}",
            row.what, row.paper_s, row.runs_s, row.long_s
        )?;
    }
    Ok(())
}

fn print_table_3(out: &mut dyn Write, paper: &Paper) -> anyhow::Result<()> {
    writeln!(out, "\nTable 3: limits for the dual-Gaussian example (bytes).\n")?;
    writeln!(out, "{:<28} {:>8} {:>8} {:>8}", "", "q1", "q2", "q3")?;
    for column in &paper.table_3 {
        write!(out, "{:<28}", column.name)?;
        column.values.iter().try_for_each(|value| write!(out, " {value:>8}"))?;
        writeln!(out)?;
    }
    Ok(())
}

fn print_policies(out: &mut dyn Write, paper: &Paper, task: &PaperTask) -> anyhow::Result<()> {
    writeln!(out, "\nThe same mail under other disciplines: mean wait (s) over {} arrivals.\n", task.arrivals)?;
    writeln!(out, "{:<28} {:>7} {:>8} {:>12}  limits", "", "paper", "ours", "largest 5 %")?;
    for policy in &paper.policies {
        let paper = policy.paper_s.map_or("–".into(), |wait| format!("{wait:.2}"));
        writeln!(
            out,
            "{:<28} {paper:>7} {:>8.3} {:>12.3}  {}",
            policy.name,
            policy.mean_wait_s,
            policy.largest_5_percent_wait_s,
            bytes(&policy.limits)
        )?;
    }
    Ok(())
}

fn print_paper_only(out: &mut dyn Write, paper: &Paper) -> anyhow::Result<()> {
    writeln!(out, "\nTables 1 and 2 as the paper prints them. NOT REPRODUCIBLE: its sizes were not published.\n")?;
    writeln!(
        out,
        "{:<12} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8} {:>8} {:>8}",
        "server #1", "q1 (B)", "q2 (B)", "q3 (B)", "mean (s)", "q1 (s)", "q2 (s)", "q3 (s)", "q4 (s)"
    )?;
    for waits in &paper.table_2_paper_only {
        write!(out, "{:<12}", waits.name)?;
        match paper.table_1_paper_only.iter().find(|limits| limits.name == waits.name) {
            Some(limits) => limits.values.iter().try_for_each(|value| write!(out, " {value:>8}"))?,
            None => write!(out, "{:>27}", "no limits")?,
        }
        write!(out, "  ")?;
        waits.values.iter().try_for_each(|value| write!(out, " {value:>8.3}"))?;
        writeln!(out)?;
    }
    Ok(())
}

fn print_server(out: &mut dyn Write, server: &PaperServer) -> anyhow::Result<()> {
    writeln!(
        out,
        "\nServer #{} with the stand-in (λ {}, t0 {} s, ts {} s/B); λ max without limits {:.3}/s.\n",
        server.server, server.lambda, server.t0_s, server.ts_s_per_byte, server.lambda_bound
    )?;
    writeln!(
        out,
        "{:<24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  limits (bytes)",
        "", "mean (s)", "q1 (s)", "q2 (s)", "q3 (s)", "q4 (s)", "λ max"
    )?;
    for row in &server.strategies {
        let mean = row.mean_wait_s.map_or("overload".into(), seconds);
        write!(out, "{:<24} {mean:>8}", row.name)?;
        row.per_feed_wait_s.iter().try_for_each(|wait| write!(out, " {:>8}", seconds(*wait)))?;
        writeln!(out, " {:>8.3}  {}", row.lambda_max, bytes(&row.limits))?;
    }
    Ok(())
}

/// Three decimal places, or five if the first two are zero.
fn seconds(wait_s: f64) -> String {
    if wait_s >= 0.01 { format!("{wait_s:.3}") } else { format!("{wait_s:.5}") }
}
