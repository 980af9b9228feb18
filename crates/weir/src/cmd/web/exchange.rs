//! The part of `weir web status` about the exchange between front-ends.

use crate::table::{Table, shown};
use std::io::Write;
use weir_web::exchange::Status;

/// Prints alarms first, then how well each of the other front-ends is heard.
pub(super) fn print(out: &mut dyn Write, exchange: &Status) -> anyhow::Result<()> {
    let Status { carriers, peers, .. } = exchange;
    writeln!(out)?;
    for alarm in &exchange.alarms {
        writeln!(out, "  ALARM        {alarm}")?;
    }
    let version = match exchange.history_version {
        0 => "none yet: every subnet has the same weight".to_owned(),
        version => format!("version {version}"),
    };
    writeln!(out, "  {:<12} {version}", "history")?;
    if carriers.is_empty() {
        writeln!(out, "  {:<12} not used: no relay and no NATS server is configured", "exchange")?;
        return Ok(());
    }
    for carrier in carriers {
        let state = if carrier.connected { "connected" } else { "down" };
        let problem = carrier.problem.as_ref().map_or(String::new(), |problem| format!(": {}", shown(problem)));
        writeln!(out, "  {:<12} {:<24} {state}{problem}", "exchange", carrier.name)?;
    }
    if peers.is_empty() {
        writeln!(out, "  {:<12} no other front-end is heard", "front-ends")?;
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&["FRONT-END", ">DELAY ms", ">SILENT s", ">MISSING", ">REPAIRED", ">HISTORY", "TOLD"]);
    for peer in peers {
        table.row([
            peer.front_end.clone(),
            format!("{:.1}", peer.delay_ms),
            format!("{:.1}", peer.silent_s),
            peer.missing.to_string(),
            peer.repaired.to_string(),
            peer.history_version.to_string(),
            if peer.whole { "everything" } else { "not all yet" }.to_owned(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
