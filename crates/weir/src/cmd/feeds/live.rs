//! `weir feeds status` and `weir feeds tune` against the running gate.

use crate::answer::{count, or_dash, print_answer};
use crate::control::{Asking, Control};
use crate::folder_args::FolderArgs;
use crate::table::Table;
use std::io::Write;
use weir_console::api::feeds::{STATUS, TUNE, Tune};
use weir_mail::scan::{FeedTimes, FeedsStatus, PendingView, Predicted, ServiceTimes, Spread};
use weir_scan::panel::Health;

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    asking: Asking,
}

impl StatusArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach()?.ask(&STATUS, &())?;
        self.asking.answer(out, &status, print_status)
    }
}

fn print_status(out: &mut dyn Write, status: &FeedsStatus) -> anyhow::Result<()> {
    if !status.enabled {
        writeln!(out, "Mail is not scanned (scan.enabled).")?;
        return Ok(());
    }
    let bears = status.lambda_max_per_s.map_or("unknown".to_owned(), |rate| format!("{rate:.3}"));
    writeln!(
        out,
        "Waiting for the scan: {} (the oldest for {}), {} of them to be tried again; being scanned: {}; strategy {}.",
        count(status.unscanned(), "message"),
        seconds(status.oldest_s),
        status.retrying,
        status.under_way,
        status.strategy
    )?;
    if let Some(outage) = &status.outage {
        writeln!(out, "SCANS HAVE FAILED for {}: {}", seconds(outage.for_s), outage.problem)?;
    }
    if let Some(pending) = &status.pending {
        print_pending(out, pending)?;
    }
    writeln!(
        out,
        "{:.3} messages a second arrive, these feeds can handle {bears}; a scan takes {} and {:.3} µs a kB ({} processors).\n",
        finite(status.lambda_per_s),
        seconds(status.t0_s),
        finite(status.ts_s_per_byte) * 1e9,
        status.cpus
    )?;
    if status.open {
        writeln!(
            out,
            "For now every worker takes every size: with the limits, mail would wait as long as without them, or \
             longer.\n"
        )?;
    } else if let Some(saved) = status.saved {
        let what = match status.kept_feeds {
            Some(1) => {
                "For now one feed is reserved for small messages, and all other workers take every size. That saves"
                    .into()
            }
            Some(feeds) => format!(
                "For now {feeds} feeds are reserved for small messages, and the other workers take every size. That saves"
            ),
            None => "The limits save".to_owned(),
        };
        writeln!(out, "{what} {:.0} % of the time that mail would have waited in one line recently.\n", 100.0 * saved)?;
    }
    for (name, rows) in [("FEED", &status.feeds), ("SIZE CLASS", &status.classes)] {
        print_times(out, name, rows)?;
        writeln!(out)?;
    }
    let counts = &status.counts;
    writeln!(
        out,
        "Since the start: {} came, {} passed, {} quarantined, {} attempts failed.",
        counts.arrived, counts.passed, counts.quarantined, counts.failed
    )?;
    print_services(out, &status.services)?;
    print_scanners(out, &status.scanners)
}

/// Prints the time that each scanner takes; nothing before any was measured.
fn print_services(out: &mut dyn Write, services: &[ServiceTimes]) -> anyhow::Result<()> {
    if services.is_empty() {
        return Ok(());
    }
    let others = if services.iter().any(|service| service.feed.is_some()) { "others" } else { "all" };
    let mut table = Table::new(&["TIME OF", ">FEED", ">A MESSAGE", ">AND A KB"]);
    for service in services {
        table.row([
            if service.scanner.is_empty() { "a scan".to_owned() } else { service.scanner.clone() },
            service.feed.map_or(others.to_owned(), |feed| feed.to_string()),
            seconds(service.t0_s),
            format!("{:.3} µs", finite(service.ts_s_per_byte) * 1e9),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    Ok(())
}

/// Prints how much mail waits for the lab's verdict.
fn print_pending(out: &mut dyn Write, pending: &PendingView) -> anyhow::Result<()> {
    let then = if pending.then == "pass" { "delivered with a mark" } else { "quarantined" };
    writeln!(
        out,
        "Waiting for the lab's verdict: {} (the oldest for {}); without one after {} it is {then}.{}",
        count(pending.messages, "message"),
        seconds(pending.oldest_s),
        seconds(pending.wait_s as f64),
        if pending.answers { "" } else { " THE LAB DOES NOT ANSWER." }
    )?;
    let counts = &pending.counts;
    writeln!(
        out,
        "  since the start: {} came, {} passed, {} quarantined, {} without a verdict in time.",
        counts.arrived, counts.passed, counts.quarantined, counts.undecided
    )?;
    Ok(())
}

fn print_scanners(out: &mut dyn Write, scanners: &[Health]) -> anyhow::Result<()> {
    if scanners.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["SCANNER", "WHERE", "STATE", ">SIGNATURES", "VERSION", "REMARK"]);
    for scanner in scanners {
        let age = scanner.signature_age_s.map_or("-".to_owned(), |age| count(age / 86_400, "day"));
        let remark = if scanner.problem.is_empty() { &scanner.advice } else { &scanner.problem };
        table.row([
            or_dash(&scanner.scanner),
            or_dash(&scanner.address),
            if scanner.up { "up".to_owned() } else { "DOWN".to_owned() },
            age,
            or_dash(&scanner.version),
            or_dash(remark),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    Ok(())
}

fn print_times(out: &mut dyn Write, name: &'static str, rows: &[FeedTimes]) -> anyhow::Result<()> {
    let heads = [
        name,
        ">UP TO (B)",
        ">WAITING",
        ">OLDEST",
        ">SCANNED",
        ">WAIT P50",
        ">P95",
        ">P99",
        ">SCAN P50",
        ">P95",
        ">P99",
    ];
    let mut table = Table::new(&heads);
    for (at, row) in rows.iter().enumerate() {
        let spread = |of: &Spread| [of.p50_s, of.p95_s, of.p99_s].map(seconds);
        let cells = [
            (at + 1).to_string(),
            row.up_to.map_or("∞".to_owned(), |bytes| bytes.to_string()),
            row.waiting.map_or("-".to_owned(), |waiting| waiting.to_string()),
            row.oldest_s.map_or("-".to_owned(), seconds),
            row.scanned.to_string(),
        ];
        table.row(cells.into_iter().chain(spread(&row.wait)).chain(spread(&row.scan)));
    }
    table.write(out)?;
    Ok(())
}

/// A time for people.
fn seconds(value: f64) -> String {
    match finite(value) {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 600.0 => format!("{s:.2} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// A number that is not known yet is shown as zero.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Asks the running gate for better limits. With `apply`, the gate adopts them.
pub(super) fn tune(out: &mut dyn Write, place: &FolderArgs, apply: bool, as_json: bool) -> anyhow::Result<()> {
    let control = Control::reach(place)?;
    let tuned = control.ask(&TUNE, &Tune { apply })?;
    if as_json {
        return print_answer(out, &tuned);
    }
    writeln!(
        out,
        "The last {} messages ({:.3} a second now; a scan takes {} and {:.3} µs a kB), replayed by {}:\n",
        tuned.arrivals,
        finite(tuned.lambda_per_s),
        seconds(tuned.t0_s),
        finite(tuned.ts_s_per_byte) * 1e9,
        tuned.strategy
    )?;
    for (name, predicted) in [("today's limits", &tuned.today), ("limits found", &tuned.proposed)] {
        print_predicted(out, name, predicted)?;
    }
    writeln!(out, "one line without limits: predicted mean wait {}\n", seconds(tuned.line_wait_s))?;
    match (tuned.applied, tuned.better) {
        (true, _) => writeln!(out, "The limits found are in force, also after a restart.")?,
        (_, true) => writeln!(out, "Nothing was changed: `weir feeds tune --apply` uses the limits found.")?,
        (_, false) => writeln!(out, "Nothing was changed: today's limits are about as good.")?,
    }
    Ok(())
}

fn print_predicted(out: &mut dyn Write, name: &str, predicted: &Predicted) -> anyhow::Result<()> {
    writeln!(
        out,
        "{name}: {}\n  predicted mean wait {}, 95 % within {}; at most {:.3} messages a second",
        super::bytes(&predicted.limits),
        seconds(predicted.mean_wait_s),
        seconds(predicted.p95_wait_s),
        finite(predicted.lambda_max_per_s)
    )?;
    let mut table = Table::new(&["  SIZE CLASS", ">UP TO (B)", ">SHARE", ">MEAN WAIT", ">P95"]);
    for (at, class) in predicted.classes.iter().enumerate() {
        table.row([
            format!("  {}", at + 1),
            class.up_to.map_or("∞".to_owned(), |bytes| bytes.to_string()),
            format!("{:.1} %", finite(class.share) * 100.0),
            seconds(class.mean_wait_s),
            seconds(class.p95_wait_s),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    Ok(())
}
