//! What `weir web status` says of the exchange.

use crate::answer::{list, number, text};
use crate::table::{Table, shown};
use serde_json::Value;
use std::io::Write;

/// Alarms first, then how the others are heard.
pub(super) fn print(out: &mut dyn Write, exchange: &Value) -> anyhow::Result<()> {
    let (carriers, peers) = (list(exchange, "carriers"), list(exchange, "peers"));
    writeln!(out)?;
    for alarm in list(exchange, "alarms") {
        writeln!(out, "  ALARM        {}", about(alarm.as_str().unwrap_or_default()))?;
    }
    let version = match number(exchange, "history_version") {
        0 => "none yet: every subnet weighs the same".to_owned(),
        version => format!("version {version}"),
    };
    writeln!(out, "  {:<12} {version}", "history")?;
    if carriers.is_empty() {
        writeln!(out, "  {:<12} alone: no relay and no NATS server is configured", "exchange")?;
        return Ok(());
    }
    for carrier in carriers {
        let state = if carrier["connected"] == true { "connected" } else { "down" };
        let problem = carrier["problem"].as_str().map_or(String::new(), |problem| format!(": {}", shown(problem)));
        writeln!(out, "  {:<12} {:<24} {state}{problem}", "exchange", text(carrier, "name"))?;
    }
    if peers.is_empty() {
        writeln!(out, "  {:<12} nobody else is heard", "front-ends")?;
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&["FRONT-END", ">DELAY ms", ">SILENT s", ">MISSING", ">REPAIRED", ">HISTORY", "TOLD"]);
    for peer in peers {
        table.row([
            text(peer, "front_end").to_owned(),
            format!("{:.1}", peer["delay_ms"].as_f64().unwrap_or(0.0)),
            format!("{:.1}", peer["silent_s"].as_f64().unwrap_or(0.0)),
            number(peer, "missing").to_string(),
            number(peer, "repaired").to_string(),
            number(peer, "history_version").to_string(),
            if peer["whole"] == true { "everything" } else { "not all yet" }.to_owned(),
        ]);
    }
    table.write(out)?;
    Ok(())
}

fn about(alarm: &str) -> String {
    match serde_json::from_value::<weir_web::exchange::Alarm>(Value::from(alarm)) {
        Ok(alarm) => alarm.to_string(),
        Err(_) => shown(alarm),
    }
}
