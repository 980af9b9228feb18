//! `weir sim throttle`: a virus, a trace or a population against the mail throttle; the paper's table and figures.

mod print;

use crate::cmd::throttle_options::{self, ThrottleOptions};
use crate::config::ConfigArg;
use anyhow::{Context, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use weir_core::throttle::Params;
use weir_core::time::Instant;
use weir_settings::units::{Rate, Span};
use weir_sim::throttle::{
    QueueLength, REVIEW_AFTER, Role, ThrottleReport, Virus, figures, picture, run_population, run_site, run_users,
    table1,
};
use weir_sim::trace;

/// Simulate a worm, a trace or a population of users against the mail throttle
///
/// Without options it simulates a virus that sends 60 mails a minute.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("experiment").multiple(false))]
pub(crate) struct Args {
    /// Simulate a virus that sends mails at this rate, each to a new address [default: 60/min]
    #[arg(long, value_name = "RATE", group = "experiment")]
    virus_rate: Option<Rate>,
    /// Use your own mail, as JSON lines such as {"t":12.5,"user":"ann","to":["bob@x.org"]}, with t in seconds
    #[arg(long, value_name = "FILE.jsonl", group = "experiment")]
    trace: Option<PathBuf>,
    /// Simulate this many users, similar to those of the paper; or the people of a site with one role (office, sales,
    /// assistants, helpdesk, newsletter), or of all roles if no value is given
    #[arg(long, value_name = "N|ROLE", group = "experiment", num_args = 0..=1, default_missing_value = "site")]
    population: Option<Population>,
    /// Simulate the six viruses of the paper's Table 1, and print its numbers beside ours
    #[arg(long, group = "experiment", conflicts_with = throttle_options::GROUP)]
    table1: bool,
    /// Print stand-ins for Figures 1, 2, 5 to 8 and 13 of the paper, with a synthetic population of the same size
    #[arg(long, group = "experiment")]
    figures: bool,

    /// How many days the population sends mail, beginning on a Monday [default: 1, and 365 for the people of a site]
    #[arg(long, value_name = "D", requires = "population")]
    days: Option<u32>,
    /// Assume that the user has just sent mail, so that the virus has one slack less
    #[arg(long, conflicts_with_all = ["trace", "population", "table1", "figures"])]
    slack_spent: bool,
    /// How long after the user was first seen the virus starts, and so at which point of a period
    #[arg(long, value_name = "SPAN", default_value = "0s", conflicts_with_all = ["trace", "population", "table1", "figures"])]
    start: Span,
    /// When the virus gives up if nothing stops it
    #[arg(long, value_name = "SPAN", default_value = "7d", conflicts_with_all = ["trace", "population", "table1", "figures"])]
    give_up: Span,
    /// Assume that somebody releases all held mail this long after each stop [default: never for a trace, 5m for a
    /// population]
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["virus_rate", "table1", "figures"])]
    review: Option<Span>,

    /// The seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the result as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    throttle: Box<ThrottleArgs>,
    #[command(flatten)]
    config: ConfigArg,
}

/// A population of users.
#[derive(Debug, Clone)]
pub(crate) enum Population {
    /// This many users, similar to the paper's.
    Users(u32),
    /// The people of a site.
    Roles(Vec<Role>),
}

impl FromStr for Population {
    type Err = String;

    fn from_str(text: &str) -> Result<Population, String> {
        if text == "site" {
            return Ok(Population::Roles(Role::ALL.to_vec()));
        }
        match (Role::named(text), text.parse()) {
            (Some(role), _) => Ok(Population::Roles(vec![role])),
            (None, Ok(users)) => Ok(Population::Users(users)),
            (None, Err(_)) => Err(format!(
                "neither a number of users nor a role; the roles are {}",
                Role::ALL.map(Role::name).join(", ")
            )),
        }
    }
}

/// The throttle's parameters as options; what is not given comes from the configuration.
#[derive(clap::Args)]
#[command(
    next_help_heading = "The throttle (parameters that are not given come from the configuration; if only --rate is \
                         given, --multi-rate is the same)"
)]
pub(crate) struct ThrottleArgs {
    #[command(flatten)]
    options: ThrottleOptions,
}

impl ThrottleArgs {
    /// The parameters; an error names every option that is out of bounds.
    pub(crate) fn params(&self, config: &ConfigArg) -> anyhow::Result<Params> {
        let mut params = self.options.over(config.load()?.config.throttle.person);
        if self.options.has("rate") && !self.options.has("multi_rate") {
            params.multi_rate_period = params.rate_period;
        }
        let problems: Vec<String> =
            params.problems().map(|p| format!("--{} must be {}", p.name.replace('_', "-"), p.kind)).collect();
        if problems.is_empty() { Ok(params) } else { bail!("{}", problems.join("\n  and ")) }
    }
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.check_plot()?;
        let params = self.throttle.params(&self.config)?;
        if self.table1 {
            self.table1(out)
        } else if self.figures {
            self.figures(out, params)
        } else if let Some(path) = &self.trace {
            self.trace(out, path, params)
        } else if let Some(Population::Roles(roles)) = &self.population {
            self.site(out, roles, params)
        } else if let Some(Population::Users(users)) = self.population {
            self.population(out, users, params)
        } else {
            self.virus(out, params)
        }
    }

    fn virus(&self, out: &mut dyn Write, params: Params) -> anyhow::Result<()> {
        if self.review.is_some() {
            bail!(
                "--review has no effect on a virus, whose run ends with the stop\n  hint: use --trace or --population"
            );
        }
        let rate_per_min = self.virus_rate.map_or(60.0, |rate| rate.count * 60.0 / rate.per.as_secs_f64());
        let virus =
            Virus { rate_per_min, phase: self.start.0, slack_spent: self.slack_spent, gives_up_after: self.give_up.0 };
        let outbreak = virus.run(params)?;
        self.draw(|| picture::of_virus(&virus, &params, &outbreak))?;
        if !self.json {
            return print::virus(out, &virus, &params, &outbreak);
        }
        json(out, &ThrottleReport { users: [("virus".to_string(), outbreak.report)].into() })
    }

    fn trace(&self, out: &mut dyn Write, path: &Path, params: Params) -> anyhow::Result<()> {
        let mails = trace::read_file(path)?;
        let users = run_users(&mails, params, self.review.map(|span| span.0))?;
        self.draw(|| {
            let ends = || users.iter().flat_map(|(_, _, journal)| &journal.queue_changes).map(|change| change.0);
            let from = mails.first().map_or(Instant::ZERO, |mail| mail.at);
            let to = mails.iter().map(|mail| mail.at).chain(ends()).max().unwrap_or(from);
            let length = QueueLength::of(users.iter().map(|(_, _, journal)| journal), from, to);
            let stops: Vec<Instant> = users.iter().flat_map(|(_, _, journal)| journal.stops.clone()).collect();
            picture::of_trace(&length, &stops)
        })?;
        let report = ThrottleReport { users: users.into_iter().map(|(user, report, _)| (user, report)).collect() };
        if self.json { json(out, &report) } else { print::trace(out, &params, &report) }
    }

    fn population(&self, out: &mut dyn Write, users: u32, params: Params) -> anyhow::Result<()> {
        let review: Duration = self.review.map_or(REVIEW_AFTER, |span| span.0);
        let run = run_population(users, self.days.unwrap_or(1), self.seed, params, review)?;
        self.draw(|| picture::of_population(&run))?;
        if self.json { json(out, &run) } else { print::population(out, &params, &run) }
    }

    fn site(&self, out: &mut dyn Write, roles: &[Role], params: Params) -> anyhow::Result<()> {
        let days = self.days.unwrap_or(365);
        if !(1..=3_650).contains(&days) {
            bail!("--days {days}: a population can send mail for 1 to 3650 days\n  hint: leave it out for a year");
        }
        if self.review.is_some() {
            bail!("--review has no effect here: somebody always looks five minutes after each stop");
        }
        let run = run_site(roles, days, self.seed, params, self.plot.is_some())?;
        self.draw(|| picture::of_site(&run, &params))?;
        if self.json { json(out, &run) } else { print::site(out, &params, &run) }
    }

    fn table1(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let table = table1()?;
        self.draw(|| picture::of_table1(&table))?;
        if self.json { json(out, &table) } else { print::table1(out, &table) }
    }

    fn figures(&self, out: &mut dyn Write, params: Params) -> anyhow::Result<()> {
        let figures = figures(self.seed, params)?;
        self.draw(|| picture::of_figures(&figures, &params))?;
        if self.json { json(out, &figures) } else { print::figures(out, &params, &figures) }
    }

    fn check_plot(&self) -> anyhow::Result<()> {
        match &self.plot {
            Some(path) if path.extension().is_none_or(|end| end != "svg") => {
                bail!("--plot {}: pictures are SVG files\n  hint: give a name that ends in .svg", path.display())
            }
            _ => Ok(()),
        }
    }

    fn draw(&self, svg: impl FnOnce() -> String) -> anyhow::Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        std::fs::write(path, svg()).with_context(|| format!("--plot {} cannot be written", path.display()))
    }
}

fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}
