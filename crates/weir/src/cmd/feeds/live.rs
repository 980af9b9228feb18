//! `weir feeds status` and `weir feeds tune` against the running gate.

use crate::answer::{count, list, number, print_json, text};
use crate::control::{Asking, Control, Place};
use crate::table::Table;
use serde_json::{Value, json};
use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    asking: Asking,
}

impl StatusArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach()?.get("/feeds")?;
        self.asking.answer(out, &status, print_status)
    }
}

fn print_status(out: &mut dyn Write, status: &Value) -> anyhow::Result<()> {
    if status["enabled"] != true {
        writeln!(out, "Mail is not scanned (scan.enabled).")?;
        return Ok(());
    }
    let bears = status["lambda_max_per_s"].as_f64().map_or("unknown".to_owned(), |rate| format!("{rate:.3}"));
    writeln!(
        out,
        "Waiting for the scan: {} (the oldest for {}); {} under way, {} tried again later; strategy {}.",
        count(number(status, "waiting"), "message"),
        seconds(&status["oldest_s"]),
        number(status, "under_way"),
        number(status, "retrying"),
        text(status, "strategy")
    )?;
    if let Some(problem) = status["outage"]["problem"].as_str() {
        let since = seconds(&status["outage"]["for_s"]);
        writeln!(out, "NO SCANNER ANSWERS for {since}: {problem}")?;
    }
    print_pending(out, &status["pending"])?;
    writeln!(
        out,
        "{:.3} messages a second come, these feeds bear {bears}; a scan takes {} and {:.3} µs a kB ({} processors).\n",
        status["lambda_per_s"].as_f64().unwrap_or(0.0),
        seconds(&status["t0_s"]),
        status["ts_s_per_byte"].as_f64().unwrap_or(0.0) * 1e9,
        number(status, "cpus")
    )?;
    for (name, field) in [("FEED", "feeds"), ("SIZE CLASS", "classes")] {
        print_times(out, name, list(status, field))?;
        writeln!(out)?;
    }
    let counts = &status["counts"];
    writeln!(
        out,
        "Since the start: {} came, {} passed, {} quarantined, {} attempts failed.",
        number(counts, "arrived"),
        number(counts, "passed"),
        number(counts, "quarantined"),
        number(counts, "failed")
    )?;
    print_services(out, list(status, "services"))?;
    print_scanners(out, list(status, "scanners"))
}

/// What each scanner takes; nothing while none was measured.
fn print_services(out: &mut dyn Write, services: &[Value]) -> anyhow::Result<()> {
    if services.is_empty() {
        return Ok(());
    }
    let others = if services.iter().any(|service| service["feed"].is_u64()) { "others" } else { "all" };
    let mut table = Table::new(&["TIME OF", ">FEED", ">A MESSAGE", ">AND A KB"]);
    for service in services {
        let scanner = Some(text(service, "scanner")).filter(|scanner| !scanner.is_empty());
        table.row([
            scanner.unwrap_or("a scan").to_owned(),
            service["feed"].as_u64().map_or(others.to_owned(), |feed| feed.to_string()),
            seconds(&service["t0_s"]),
            format!("{:.3} µs", service["ts_s_per_byte"].as_f64().unwrap_or(0.0) * 1e9),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    Ok(())
}

/// What waits for the lab's verdict; nothing if the gates are not joined.
fn print_pending(out: &mut dyn Write, pending: &Value) -> anyhow::Result<()> {
    if pending.is_null() {
        return Ok(());
    }
    let then = if text(pending, "then") == "pass" { "delivered with a mark" } else { "quarantined" };
    writeln!(
        out,
        "Waiting for the lab's verdict: {} (the oldest for {}); without one after {} it is {then}.{}",
        count(number(pending, "messages"), "message"),
        seconds(&pending["oldest_s"]),
        seconds(&pending["wait_s"]),
        if pending["answers"] == false { " THE LAB DOES NOT ANSWER." } else { "" }
    )?;
    let counts = &pending["counts"];
    writeln!(
        out,
        "  since the start: {} came, {} passed, {} quarantined, {} without a verdict in time.",
        number(counts, "arrived"),
        number(counts, "passed"),
        number(counts, "quarantined"),
        number(counts, "undecided")
    )?;
    Ok(())
}

fn print_scanners(out: &mut dyn Write, scanners: &[Value]) -> anyhow::Result<()> {
    if scanners.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["SCANNER", "WHERE", "STATE", ">SIGNATURES", "VERSION", "REMARK"]);
    for scanner in scanners {
        let age = scanner["signature_age_s"].as_u64().map_or("-".to_owned(), |age| count(age / 86_400, "day"));
        let given = |key: &str| Some(text(scanner, key)).filter(|text| !text.is_empty());
        let or_dash = |key: &str| given(key).unwrap_or("-").to_owned();
        table.row([
            or_dash("scanner"),
            or_dash("address"),
            if scanner["up"] == true { "up".to_owned() } else { "DOWN".to_owned() },
            age,
            or_dash("version"),
            given("problem").or(given("advice")).unwrap_or("-").to_owned(),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    Ok(())
}

fn print_times(out: &mut dyn Write, name: &'static str, rows: &[Value]) -> anyhow::Result<()> {
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
        let spread = |of: &str| ["p50_s", "p95_s", "p99_s"].map(|part| seconds(&row[of][part]));
        let cells = [
            (at + 1).to_string(),
            row["up_to"].as_u64().map_or("∞".to_owned(), |bytes| bytes.to_string()),
            row["waiting"].as_u64().map_or("-".to_owned(), |waiting| waiting.to_string()),
            if row["oldest_s"].is_null() { "-".to_owned() } else { seconds(&row["oldest_s"]) },
            number(row, "scanned").to_string(),
        ];
        table.row(cells.into_iter().chain(spread("wait")).chain(spread("scan")));
    }
    table.write(out)?;
    Ok(())
}

/// A time as people read it.
fn seconds(value: &Value) -> String {
    match value.as_f64().unwrap_or(0.0) {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 600.0 => format!("{s:.2} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Asks the running gate for better limits, and takes them if `apply` says so.
pub(super) fn tune(out: &mut dyn Write, place: &Place, apply: bool, as_json: bool) -> anyhow::Result<()> {
    let control = Control::reach(place)?;
    let tuned = control.post("/feeds/tune", &json!({ "apply": apply }))?;
    if as_json {
        return print_json(out, &tuned);
    }
    writeln!(
        out,
        "The last {} messages ({:.3} a second now; a scan takes {} and {:.3} µs a kB), replayed by {}:\n",
        number(&tuned, "arrivals"),
        tuned["lambda_per_s"].as_f64().unwrap_or(0.0),
        seconds(&tuned["t0_s"]),
        tuned["ts_s_per_byte"].as_f64().unwrap_or(0.0) * 1e9,
        text(&tuned, "strategy")
    )?;
    for (name, field) in [("today's limits", "today"), ("limits found", "proposed")] {
        print_predicted(out, name, &tuned[field])?;
    }
    match (tuned["applied"] == true, tuned["better"] == true) {
        (true, _) => writeln!(out, "The limits found are in force, also after a restart.")?,
        (_, true) => writeln!(out, "Nothing was changed: `weir feeds tune --apply` takes the limits found.")?,
        (_, false) => writeln!(out, "Nothing was changed: today's limits are about as good.")?,
    }
    Ok(())
}

fn print_predicted(out: &mut dyn Write, name: &str, predicted: &Value) -> anyhow::Result<()> {
    let limits: Vec<String> = list(predicted, "limits").iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "{name}: {}\n  predicted mean wait {}, 95 % within {}; at most {:.3} messages a second",
        limits.join(" / "),
        seconds(&predicted["mean_wait_s"]),
        seconds(&predicted["p95_wait_s"]),
        predicted["lambda_max_per_s"].as_f64().unwrap_or(0.0)
    )?;
    let mut table = Table::new(&["  SIZE CLASS", ">UP TO (B)", ">SHARE", ">MEAN WAIT", ">P95"]);
    for (at, class) in list(predicted, "classes").iter().enumerate() {
        table.row([
            format!("  {}", at + 1),
            class["up_to"].as_u64().map_or("∞".to_owned(), |bytes| bytes.to_string()),
            format!("{:.1} %", class["share"].as_f64().unwrap_or(0.0) * 100.0),
            seconds(&class["mean_wait_s"]),
            seconds(&class["p95_wait_s"]),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    Ok(())
}
