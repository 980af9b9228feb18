//! `weir status`: is everything all right? And `weir audit`: who did what.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::Asking;
use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_console::api::whole::{AUDIT, CHECK_AUDIT, CertificateView, HEALTH, STATUS, Trail, WholeStatus};
use weir_console::health::{Health, HealthVerdict, PartHealth};
use weir_mail::delivery::next_hops::NextHopView;
use weir_mail::operations::{MailStatus, Vital};
use weir_tls::time_left;

#[derive(clap::Args)]
#[command(
    after_help = "The exit code is 0 if everything is all right, 3 if something needs your attention, 4 if something \
                        does not work or Weir is not running, and 1 if Weir cannot be asked."
)]
pub(crate) struct Args {
    /// Also show where Weir listens, and what it has counted since its start
    #[arg(long, short)]
    long: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Not all is well. The command itself succeeded and has printed everything, so this only sets the exit code.
#[derive(Debug)]
pub(crate) struct NotWell(pub(crate) u8);

impl fmt::Display for NotWell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not all is well")
    }
}

impl std::error::Error for NotWell {}

#[derive(Serialize)]
struct StatusAndHealth {
    #[serde(flatten)]
    status: WholeStatus,
    health: Health,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let gate = self.asking.reach()?;
        let status = match gate.ask(&STATUS, &()) {
            Ok(status) => status,
            // This happens when its database cannot be reached, for example.
            Err(error) if gate.is_running() => {
                writeln!(out, "NOT WELL: Weir is running, but its state cannot be read: {error:#}")?;
                return Err(NotWell(4).into());
            }
            Err(error) => return Err(error),
        };
        let seen = StatusAndHealth { status, health: gate.ask(&HEALTH, &())? };
        self.asking.answer(out, &seen, |out, seen| print(out, seen, self.long))?;
        match seen.health.verdict {
            HealthVerdict::Well => Ok(()),
            HealthVerdict::Look => Err(NotWell(3).into()),
            HealthVerdict::Failing => Err(NotWell(4).into()),
        }
    }
}

fn print(out: &mut dyn Write, seen: &StatusAndHealth, long: bool) -> anyhow::Result<()> {
    let (status, health) = (&seen.status.status, &seen.health);
    writeln!(out, "{}", head(&seen.status))?;
    writeln!(out)?;
    for PartHealth { part, verdict, says } in &health.parts {
        let word = match verdict {
            HealthVerdict::Well => "",
            HealthVerdict::Look => "LOOK",
            HealthVerdict::Failing => "FAILS",
        };
        // The text may contain words of another server.
        let lines: Vec<String> = says.lines().map(|line| weir_scan::plain::shown(line, usize::MAX)).collect();
        writeln!(out, "  {part:<12} {word:<5} {}", lines.join("\n                     "))?;
    }
    for certificate in &seen.status.certificates {
        print_certificate(out, certificate)?;
    }
    if health.parts.is_empty() || long {
        print_long(out, status)?;
    }
    writeln!(out)?;
    writeln!(out, "{}", health.says)?;
    Ok(())
}

fn head(whole: &WholeStatus) -> String {
    let status = &whole.status;
    let (version, data) = (&status.version, status.data.display());
    match (&status.gate, whole.gates.is_empty()) {
        (Some(gate), _) => {
            let (pid, since) = (gate.pid, time(&gate.since));
            format!("Weir {version} has been running since {since} UTC (pid {pid}) on {data}")
        }
        (None, false) => format!("Weir {version} is running on {data}, without its mail gate"),
        (None, true) => format!("Weir {version} is not running on {data}"),
    }
}

fn print_long(out: &mut dyn Write, status: &MailStatus) -> anyhow::Result<()> {
    if let Some(gate) = &status.gate {
        writeln!(out)?;
        print_gate(out, gate)?;
    }
    for (name, value) in facts(status) {
        writeln!(out, "  {name:<12} {value}")?;
    }
    for damage in &status.spool.damage {
        writeln!(out, "  {:<12} {damage}", "DAMAGED")?;
    }
    Ok(())
}

fn print_certificate(out: &mut dyn Write, certificate: &CertificateView) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let valid = match certificate.until {
        None => "there is none yet".to_owned(),
        Some(until) if until <= now => "HAS EXPIRED".to_owned(),
        Some(until) => format!("valid for {}", time_left(Duration::from_secs(until - now))),
    };
    let problem = certificate.problem.as_ref().map(|why| format!("; the last attempt failed: {why}"));
    writeln!(out, "  {:<12} {}: {valid}{}", "certificate", certificate.name, problem.unwrap_or_default())?;
    Ok(())
}

fn print_gate(out: &mut dyn Write, gate: &Vital) -> anyhow::Result<()> {
    let counted = |counters: &BTreeMap<String, u64>, name: &str| counters.get(name).copied().unwrap_or_default();
    for listener in &gate.listeners {
        writeln!(out, "  {:<12} {:<24} {}", listener.name, listener.address, listener.about)?;
    }
    writeln!(out, "  {:<12} {}", "delivery", gate.delivery)?;
    for hop in &gate.next_hops.hops {
        writeln!(out, "  {:<12} {}: {}", "next hop", hop.name, next_hop(hop))?;
    }
    if gate.next_hops.more > 0 {
        writeln!(out, "  {:<12} {} more", "", gate.next_hops.more)?;
    }
    writeln!(
        out,
        "  {:<12} {} open; {} accepted, {} refused since the start",
        "sessions",
        gate.sessions,
        count(counted(&gate.counters, "messages"), "message"),
        counted(&gate.counters, "messages_refused")
    )?;
    if let Some(inbound) = &gate.inbound {
        writeln!(
            out,
            "  {:<12} {} received; {} and {} refused, {} since the start",
            "inbound",
            count(counted(inbound, "messages"), "message"),
            count(counted(inbound, "recipients_refused"), "recipient"),
            count(counted(inbound, "messages_refused"), "message"),
            count(counted(inbound, "bans"), "ban")
        )?;
    }
    Ok(())
}

fn next_hop(hop: &NextHopView) -> String {
    let at = |when: &Option<String>| when.as_deref().map(time).unwrap_or_default();
    match (&hop.problem, &hop.tried) {
        (_, None) => "not tried yet".to_owned(),
        (None, tried) => format!("answered at {} UTC", at(tried)),
        (Some(problem), tried) => format!(
            "{} since {} UTC, the last one at {} UTC: {}",
            count(hop.failures, "failed attempt"),
            at(&hop.failing_since),
            at(tried),
            weir_scan::plain::shown(problem, usize::MAX)
        ),
    }
}

fn facts(status: &MailStatus) -> [(&'static str, String); 4] {
    let (totals, spool) = (&status.totals, &status.spool);
    let learn = if status.learn_only { "; learn-only: nothing is held" } else { "" };
    let decided = match totals.decided {
        0 => String::new(),
        decided => format!("; {decided} decided and about to be carried out"),
    };
    let held = (count(totals.held_recipients, "recipient"), count(totals.held_messages, "message"));
    let transit = (count(spool.messages, "message"), bytes(spool.body_bytes), bytes(spool.disk_bytes));
    [
        (
            "users",
            format!("{}, {} locked, {} stopped by the throttle{learn}", totals.users, totals.locked, totals.stopped),
        ),
        ("held", format!("{} of {}{decided}", held.0, held.1)),
        ("in transit", format!("{}, {} ({} on the disk)", transit.0, transit.1, transit.2)),
        ("records", format!("{}, relay {}", status.records, status.relay)),
    ]
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    verb: Option<AuditVerb>,
    /// Only what was done to this user, message, address or machine
    #[arg(default_value = "")]
    subject: String,
    /// Only changes by people whose name contains this, such as olga or cli:root
    #[arg(long, value_name = "NAME", default_value = "")]
    who: String,
    /// Only actions whose name begins like this, such as held or held.release
    #[arg(long, value_name = "WORD", default_value = "")]
    what: String,
    /// Only changes since this time (2026-11-17T18:00:00Z, 2026-11-17) or not older than this (90m, 2h, 7d)
    #[arg(long, value_name = "TIME", default_value = "")]
    since: String,
    /// Only changes before this time, or older than this
    #[arg(long, value_name = "TIME", default_value = "")]
    until: String,
    /// Show at most this many lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lines: u32,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Subcommand)]
enum AuditVerb {
    /// Check whether any line of the audit trail was changed or is missing
    Verify {
        #[command(flatten)]
        asking: Asking,
    },
}

impl AuditArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(AuditVerb::Verify { asking }) = &self.verb {
            return verify(out, asking);
        }
        let trail = Trail {
            subject: self.subject.clone(),
            who: self.who.clone(),
            what: self.what.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
            lines: self.lines.into(),
        };
        let lines = self.asking.reach()?.ask(&AUDIT, &trail)?;
        if self.asking.json {
            return print_answer(out, &lines);
        }
        if lines.is_empty() {
            let all =
                [&self.subject, &self.who, &self.what, &self.since, &self.until].iter().all(|asked| asked.is_empty());
            writeln!(out, "{}", if all { "Nothing has been changed yet." } else { "There are no such entries." })?;
            return Ok(());
        }
        let mut table = Table::new(&["WHEN (UTC)", "WHO", "WHAT", "TO", "DETAIL"]);
        for line in lines {
            table.row([time(&line.at), line.actor, line.action, line.subject, line.detail]);
        }
        table.write(out)?;
        Ok(())
    }
}

fn verify(out: &mut dyn Write, asking: &Asking) -> anyhow::Result<()> {
    let check = asking.reach()?.ask(&CHECK_AUDIT, &())?;
    match asking.json {
        true => print_answer(out, &check)?,
        false => {
            writeln!(out, "{} sealed, the newest seal is {}", count(check.sealed, "line"), check.seal)?;
            if check.older > 0 {
                writeln!(out, "{} are older than the seals and cannot be checked", count(check.older, "line"))?;
            }
        }
    }
    anyhow::ensure!(check.whole, "the audit trail has been changed: {}", check.problem);
    Ok(())
}
