//! `weir status`: how the whole is doing, and `weir audit`: who did what.

use crate::answer::{bytes, count, list, number, print_json, text, time};
use crate::control::{Asking, query};
use crate::table::Table;
use serde_json::Value;
use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach()?.get("/status")?;
        self.asking.answer(out, &status, print)
    }
}

fn print(out: &mut dyn Write, status: &Value) -> anyhow::Result<()> {
    let gate = &status["gate"];
    let version = text(status, "version");
    match status["running"].as_bool() {
        Some(true) => {
            let (pid, since) = (number(gate, "pid"), time(gate, "since"));
            writeln!(out, "Weir {version} runs since {since} UTC (pid {pid}) on {}", text(status, "data"))?;
        }
        _ => writeln!(out, "Weir {version} does not run on {}", text(status, "data"))?,
    }
    writeln!(out)?;
    for gate in list(status, "gates").iter().filter(|gate| text(gate, "state") != "up") {
        let (name, state, why) = (text(gate, "gate"), text(gate, "state"), text(gate, "last_failure"));
        writeln!(out, "  {name:<12} {}: {}", state.to_uppercase(), why.replace('\n', "\n               "))?;
    }
    for listener in list(gate, "listeners") {
        let (name, address) = (text(listener, "name"), text(listener, "address"));
        writeln!(out, "  {name:<12} {address:<24} {}", text(listener, "about"))?;
    }
    if !gate.is_null() {
        let counted = |field: &str| number(&gate["counters"], field);
        writeln!(out, "  {:<12} {}", "delivery", text(gate, "delivery"))?;
        writeln!(
            out,
            "  {:<12} {} open; {} accepted, {} refused since the start",
            "sessions",
            number(gate, "sessions"),
            count(counted("messages"), "message"),
            counted("messages_refused")
        )?;
        let inbound = &gate["inbound"];
        if inbound.is_object() {
            let counted = |field: &str| number(inbound, field);
            writeln!(
                out,
                "  {:<12} {} received; {} and {} refused, {} since the start",
                "inbound",
                count(counted("messages"), "message"),
                count(counted("recipients_refused"), "recipient"),
                count(counted("messages_refused"), "message"),
                count(counted("bans"), "ban")
            )?;
        }
    }
    for (name, value) in facts(status) {
        writeln!(out, "  {name:<12} {value}")?;
    }
    for damage in list(&status["spool"], "damage") {
        writeln!(out, "  {:<12} {}", "DAMAGED", damage.as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn facts(status: &Value) -> Vec<(&'static str, String)> {
    let (totals, spool) = (&status["totals"], &status["spool"]);
    let learn = if status["learn_only"] == true { "; learn-only: nothing is held" } else { "" };
    vec![
        (
            "users",
            format!(
                "{}, {} locked, {} stopped by the throttle{learn}",
                number(totals, "users"),
                number(totals, "locked"),
                number(totals, "stopped")
            ),
        ),
        (
            "held",
            format!(
                "{} of {}{}",
                count(number(totals, "held_recipients"), "recipient"),
                count(number(totals, "held_messages"), "message"),
                match number(totals, "decided") {
                    0 => String::new(),
                    decided => format!("; {decided} decided and about to be carried out"),
                }
            ),
        ),
        (
            "in transit",
            format!(
                "{}, {} ({} on the disk)",
                count(number(spool, "messages"), "message"),
                bytes(number(spool, "body_bytes")),
                bytes(number(spool, "disk_bytes"))
            ),
        ),
        ("records", format!("{}, relay {}", text(status, "records"), text(status, "relay"))),
    ]
}

#[derive(clap::Args)]
pub(crate) struct AuditArgs {
    /// Only what was done to this user
    #[arg(default_value = "")]
    subject: String,
    /// How many lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lines: u32,
    #[command(flatten)]
    asking: Asking,
}

impl AuditArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let lines = self.lines.to_string();
        let path = format!("/audit{}", query(&[("subject", &self.subject), ("lines", &lines)]));
        let trail = self.asking.reach()?.get(&path)?;
        if self.asking.json {
            return print_json(out, &trail);
        }
        let lines = trail.as_array().map(Vec::as_slice).unwrap_or_default();
        if lines.is_empty() {
            writeln!(out, "Nothing was changed yet.")?;
            return Ok(());
        }
        let mut table = Table::new(&["WHEN (UTC)", "WHO", "WHAT", "TO", "DETAIL"]);
        for line in lines {
            let cell = |field: &str| text(line, field).to_owned();
            table.row([time(line, "at"), cell("actor"), cell("action"), cell("subject"), cell("detail")]);
        }
        table.write(out)?;
        Ok(())
    }
}
