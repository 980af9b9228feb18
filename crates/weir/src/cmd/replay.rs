//! `weir replay`: what the throttle would have done to past mail.

use crate::cmd::sim::throttle::ThrottleArgs;
use crate::config::ConfigArg;
use anyhow::{Context, bail};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use weir_core::throttle::Params;
use weir_mail::inbound::Domains;
use weir_replay::{
    self, OutlyingDay, PastMail, Reader, Replay, Skipped, SourceKind, UserReplay, Wanted, pictures, printable,
};
use weir_settings::units::Span;

/// Show what the throttle would have done to past mail
///
/// It reads mail that was sent, runs it through the throttle, and reports who would have been delayed or stopped.
///
/// A source is a Postfix log, an mbox file or a Maildir (a Sent folder, or a folder for each user); its kind is
/// recognised from its content. Times are in UTC, or in the log's own time if the log names no time zone.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Postfix logs, mbox files or Maildir folders; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The kind of all files, instead of recognising it from their content
    #[arg(long, value_enum)]
    kind: Option<KindArg>,
    /// Count all mail as sent by this user, whoever the sender is
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// From a log, use only mail whose sender had logged in (sasl_username)
    #[arg(long)]
    authenticated: bool,
    /// Ignore this recipient, which the server adds itself, such as an archive; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    ignore: Vec<String>,
    /// Another domain whose users count as colleagues, besides those of the configuration; may be given several times
    #[arg(long, value_name = "DOMAIN")]
    own: Vec<String>,
    /// For logs without years: the year of the last line [default: the latest year that the date of the file allows]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1980..=2100))]
    year: Option<i32>,
    /// Assume that somebody releases all held mail this long after each stop, such as "1h" [default: never]
    #[arg(long, value_name = "SPAN")]
    review: Option<Span>,
    /// Show at most this many users in the table
    #[arg(long, default_value_t = 20, value_name = "N")]
    top: usize,
    /// Print one JSON document, with all users
    #[arg(long)]
    json: bool,
    /// Draw the delay queues of the users who would have waited longest, and the habits of your users (as in Figures 1
    /// and 2 of the paper), as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    throttle: ThrottleArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum KindArg {
    /// One file with many mails, each of which begins with a line "From …"
    Mbox,
    /// A folder with one file for each mail
    Maildir,
    /// A log of Postfix
    Postfix,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let params = self.throttle.params(&self.config)?;
        self.check_plot()?;
        let past = self.read()?;
        let domains = self.colleagues()?;
        let is_colleague = |address: &str| address.rsplit_once('@').is_some_and(|(_, domain)| domains.contain(domain));
        let replay = weir_replay::replay_at(&past, params, self.review.map(|span| span.0), is_colleague)?;
        if let Some(path) = &self.plot {
            let svg = pictures(&past, &replay, params.stop_at);
            std::fs::write(path, svg).with_context(|| format!("--plot {} cannot be written", path.display()))?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &replay).map_err(io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        summary(out, &past, &replay, &params)?;
        self.table(out, &replay)?;
        proposed(out, &replay)?;
        skipped(out, &replay.skipped)
    }

    /// Domains whose people count as colleagues.
    fn colleagues(&self) -> anyhow::Result<Domains> {
        let config = self.config.load()?.config;
        let (throttle, inbound) = (config.throttle, config.inbound);
        let named = [&throttle.own_domains, &throttle.partner_domains, &self.own].into_iter().flatten();
        let taken_for = inbound.domains.iter().map(|rule| &rule.domain);
        Ok(Domains::new(named.chain(taken_for)))
    }

    fn read(&self) -> anyhow::Result<PastMail> {
        let wanted = Wanted {
            user: self.user.clone(),
            authenticated_only: self.authenticated,
            ignored_recipients: self.ignore.clone(),
        };
        let mut reader = Reader::new(self.kind.map(KindArg::kind), self.year, wanted);
        for path in &self.files {
            if path == Path::new("-") {
                reader.stream(Path::new("standard input"), BufReader::new(io::stdin().lock()), weir_replay::now())?;
            } else {
                reader.path(path)?;
            }
        }
        Ok(reader.finish()?)
    }

    fn check_plot(&self) -> anyhow::Result<()> {
        match &self.plot {
            Some(path) if path.extension().is_none_or(|end| end != "svg") => {
                bail!("--plot {}: pictures are SVG files\n  hint: give a name that ends in .svg", path.display())
            }
            _ => Ok(()),
        }
    }

    fn table(&self, out: &mut dyn Write, replay: &Replay) -> anyhow::Result<()> {
        let users = replay.worst_first();
        let width = users.iter().take(self.top).map(|(user, _)| name(user).chars().count()).max().unwrap_or(0).max(4);
        let row = |cells: [String; 8]| {
            let [user, mails, recipients, delayed, mean, longest, held, refused] = cells;
            format!(
                "{user:width$}  {mails:>7}  {recipients:>10}  {delayed:>7}  {mean:>10}  {longest:>9}  {held:>10}  {refused:>7}"
            )
        };
        let titles = ["user", "mails", "recipients", "delayed", "mean delay", "longest", "held", "refused"];
        writeln!(out, "{}  stopped at, by the mail", row(titles.map(String::from)))?;
        let units = ["", "", "", "%", "h:mm:ss", "h:mm:ss", "recipients", "mails"];
        writeln!(out, "{}", row(units.map(String::from)))?;
        for (user, replay) in users.iter().take(self.top) {
            writeln!(out, "{}  {}", row(cells(user, replay)), stopped(replay))?;
        }
        rest(out, users.get(self.top..).unwrap_or_default())
    }
}

/// Prints what was read, under which rules, and the outcome.
fn summary(out: &mut dyn Write, past: &PastMail, replay: &Replay, params: &Params) -> anyhow::Result<()> {
    let total = Total::of(replay);
    let last = past.mails.last().map_or(past.start, |mail| past.wall(mail.at));
    let (users, mails) = (number(total.users, "user"), number(total.mails, "mail"));
    let recipients = number(total.recipients, "recipient");
    writeln!(out, "{users} sent {mails} to {recipients} between {} and {last}.", past.start)?;
    writeln!(
        out,
        "With one recipient each {}, working set {}, slack {}, multi-slack {}, stop above {}:",
        Span(params.rate_period),
        params.working_set,
        params.max_slack,
        params.max_multi_slack,
        params.stop_at,
    )?;
    writeln!(out, "{}; {}.\n", total.delays(), total.stops())?;
    Ok(())
}

impl KindArg {
    fn kind(self) -> SourceKind {
        match self {
            KindArg::Mbox => SourceKind::Mbox,
            KindArg::Maildir => SourceKind::Maildir,
            KindArg::Postfix => SourceKind::Postfix,
        }
    }
}

/// The figures of all users together.
#[derive(Default)]
struct Total<'a> {
    users: u64,
    mails: u64,
    recipients: u64,
    accepted: u64,
    delayed: f64,
    held: u64,
    refused: u64,
    longest_s: f64,
    stopped: Vec<&'a str>,
}

impl<'a> Total<'a> {
    fn of(replay: &'a Replay) -> Total<'a> {
        let mut total = Total::default();
        for (user, replay) in replay.worst_first() {
            total.users += 1;
            total.mails += replay.sent_mails;
            total.recipients += replay.sent_recipients;
            total.accepted += replay.report.mails;
            total.delayed += replay.report.delayed_percent / 100.0 * replay.report.mails as f64;
            total.held += replay.report.held;
            total.refused += replay.report.refused;
            total.longest_s = total.longest_s.max(replay.longest_delay_s);
            total.stopped.extend(replay.stopped_at.as_ref().map(|_| user));
        }
        total
    }

    fn delays(&self) -> String {
        let percent = 100.0 * self.delayed / (self.accepted as f64).max(1.0);
        let waited = match self.delayed.round() as u64 {
            0 => return "no mail would have waited".into(),
            mails => format!("{} ({percent:.1} % of those accepted) would have waited", number(mails, "mail")),
        };
        // If everything that waited is still held, no longest wait is known.
        if self.longest_s > 0.0 { format!("{waited}, the unluckiest {}", clock(self.longest_s)) } else { waited }
    }

    fn stops(&self) -> String {
        let who = match self.stopped.as_slice() {
            [] => return "nobody would have been stopped".into(),
            [user] => name(user),
            [user, ..] => format!("{}, {} among them,", number(self.stopped.len() as u64, "user"), name(user)),
        };
        let held = number(self.held, "recipient");
        let refused = number(self.refused, "later mail");
        format!("{who} would have been stopped, with {held} held at the end and {refused} refused")
    }
}

fn cells(user: &str, replay: &UserReplay) -> [String; 8] {
    let report = &replay.report;
    [
        name(user),
        replay.sent_mails.to_string(),
        replay.sent_recipients.to_string(),
        format!("{:.1}", report.delayed_percent),
        clock(report.mean_delay_s),
        clock(replay.longest_delay_s),
        report.held.to_string(),
        report.refused.to_string(),
    ]
}

fn stopped(replay: &UserReplay) -> String {
    let (Some(at), Some(by)) = (&replay.stopped_at, &replay.stopped_by) else { return "–".into() };
    let others = match by.recipients.saturating_sub(1) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let at = at.replace('T', " ").replace('Z', "");
    format!("{at}, {} to {}{others}", printable(&by.name), printable(&by.to))
}

fn rest(out: &mut dyn Write, users: &[(&str, &UserReplay)]) -> anyhow::Result<()> {
    if !users.is_empty() {
        let delayed = users.iter().filter(|(_, replay)| replay.report.delayed_percent > 0.0).count();
        let stopped = users.iter().filter(|(_, replay)| replay.stopped_at.is_some()).count();
        let users = number(users.len() as u64, "user");
        writeln!(
            out,
            "… and {users} more, {delayed} of them delayed, {stopped} stopped (--top shows more, --json all)"
        )?;
    }
    Ok(())
}

/// At most this many unusual days are printed.
const OUTLYING_MAX: usize = 10;

/// Prints the daily caps that this mail suggests.
fn proposed(out: &mut dyn Write, replay: &Replay) -> anyhow::Result<()> {
    let Some(caps) = replay.proposed else { return Ok(()) };
    if !replay.outlying.is_empty() {
        writeln!(
            out,
            "\nFar outside of what these users or others usually do, and not counted for the caps below; look at them:"
        )?;
    }
    for OutlyingDay { user, day, usual_mails, .. } in replay.outlying.iter().take(OUTLYING_MAX) {
        let usual = usual_mails
            .map_or_else(String::new, |usual| format!("; {usual} or fewer mails on nine of ten days before"));
        let (mails, strangers) = (number(day.mails, "mail"), number(day.strangers, "stranger"));
        writeln!(out, "  {} on {}: {mails}, {strangers}{usual}", name(user), day.date)?;
    }
    if let Some(more) = replay.outlying.len().checked_sub(OUTLYING_MAX).filter(|more| *more > 0) {
        writeln!(out, "  … and {} more (--json shows all)", number(more as u64, "day"))?;
    }
    writeln!(
        out,
        "\nDaily caps for [throttle] that allow twice the busiest usual day of anybody who would not have been stopped:"
    )?;
    writeln!(
        out,
        "  messages_a_day = {}\n  new_recipients_a_day = {}",
        caps.messages_a_day, caps.new_recipients_a_day
    )?;
    Ok(())
}

fn skipped(out: &mut dyn Write, skipped: &Skipped) -> anyhow::Result<()> {
    if skipped.total() > 0 {
        writeln!(out, "\nNot counted:")?;
    }
    for (reason, case) in skipped.cases() {
        writeln!(out, "{:>7} × {}, such as {}", case.count, reason.words(), case.examples.join("; "))?;
    }
    Ok(())
}

/// A user's name, made safe for the terminal and short enough for a table.
fn name(user: &str) -> String {
    let name = printable(user);
    if name.chars().count() <= 40 { name } else { name.chars().take(39).chain(['…']).collect() }
}

fn number(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Seconds as h:mm:ss.
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fit_their_numbers() {
        assert_eq!((number(1, "mail"), number(0, "mail")), ("1 mail".into(), "0 mails".into()));
        assert_eq!((clock(59.6), clock(3_725.0)), ("0:01:00".into(), "1:02:05".into()));
        assert_eq!(name(&"x".repeat(50)).chars().count(), 40);
    }
}
