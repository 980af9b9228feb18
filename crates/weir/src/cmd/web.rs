//! `weir web`: the fair front-end, who waits and who gets what.

mod exchange;
mod learn;

use crate::answer::{bytes, count, list, number, text};
use crate::control::{Asking, query};
use crate::table::Table;
use serde_json::Value;
use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Web {
    /// Make the history profile from access logs
    Learn(learn::Args),
    /// How the web gate and its backends are doing
    Status(StatusArgs),
    /// The sessions that have requests at a backend now
    Sessions(SessionsArgs),
}

impl Web {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Web::Learn(args) => args.run(out),
            Web::Status(args) => args.run(out),
            Web::Sessions(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct SessionsArgs {
    /// How many sessions of each backend, those with the most requests first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    most: u32,
    #[command(flatten)]
    asking: Asking,
}

impl StatusArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach_running("web gate")?.get("/web")?;
        self.asking.answer(out, &status, print_status)
    }
}

fn print_status(out: &mut dyn Write, status: &Value) -> anyhow::Result<()> {
    writeln!(out, "The web gate: what waits for each backend, and what was done since the start.\n")?;
    for listener in list(status, "listeners") {
        writeln!(out, "  {:<12} {:<24} {}", "listens", text(listener, "address"), text(listener, "about"))?;
    }
    let responses: Vec<u64> = list(status, "responses").iter().map(|n| n.as_u64().unwrap_or(0)).collect();
    let said: Vec<String> = responses.iter().enumerate().map(|(at, n)| format!("{n} × {}xx", at + 1)).collect();
    writeln!(
        out,
        "  {:<12} {} open, {} refused; {} given up by their clients",
        "connections",
        number(status, "connections"),
        number(status, "connections_refused"),
        count(number(status, "given_up"), "request")
    )?;
    writeln!(out, "  {:<12} {}\n", "responses", said.join(", "))?;
    let mut table = Table::new(&[
        "BACKEND",
        ">WAITING",
        ">RUNNING",
        ">SLOTS",
        ">STREAMS",
        ">SESSIONS",
        ">COST ms",
        ">SERVED",
        ">WAITED",
        ">MEAN WAIT ms",
        ">REFUSED",
        "SERVERS",
    ]);
    for backend in list(status, "backends") {
        table.row(backend_row(backend));
    }
    table.write(out)?;
    for backend in list(status, "backends") {
        print_change(out, &backend["queue"])?;
    }
    exchange::print(out, &status["exchange"])
}

fn backend_row(backend: &Value) -> [String; 12] {
    let (queue, counters) = (&backend["queue"], &backend["queue"]["counters"]);
    let (waited, wait_s) = (number(counters, "waited"), counters["wait_s"].as_f64().unwrap_or(0.0));
    let mean_ms = if waited == 0 { 0.0 } else { wait_s * 1e3 / waited as f64 };
    let refused: u64 = list(counters, "refused").iter().filter_map(Value::as_u64).sum();
    let servers = list(backend, "servers").iter().map(|server| {
        let mark = match (server["up"] == true, server["trouble"].as_str()) {
            (true, _) => String::new(),
            (false, Some(why)) if !why.is_empty() => format!(" (down: {why})"),
            (false, _) => " (down)".to_owned(),
        };
        format!("{}{mark}", text(server, "address"))
    });
    let auto = if queue["slots_auto"] == true { " auto" } else { "" };
    [
        format!("{}{}", text(queue, "backend"), if queue["observe"] == true { " (observed)" } else { "" }),
        number(queue, "waiting").to_string(),
        number(queue, "running").to_string(),
        format!("{}{auto}", number(queue, "slots")),
        number(queue, "streams").to_string(),
        number(queue, "sessions").to_string(),
        format!("{:.1}", queue["mean_cost_ms"].as_f64().unwrap_or(0.0)),
        number(counters, "finished").to_string(),
        waited.to_string(),
        format!("{mean_ms:.1}"),
        refused.to_string(),
        servers.collect::<Vec<_>>().join(" "),
    ]
}

/// What fairness changed against first come, first served.
fn print_change(out: &mut dyn Write, queue: &Value) -> anyhow::Result<()> {
    let counters = &queue["counters"];
    let (sooner, later) = (number(counters, "sooner"), number(counters, "later"));
    if sooner + later == 0 {
        return Ok(());
    }
    let mean = |total: &str, number: u64| counters[total].as_f64().unwrap_or(0.0) * 1e3 / number.max(1) as f64;
    writeln!(
        out,
        "\n{}: against first come, first served, {} went {:.0} ms sooner on average and {} {:.0} ms later; {} wait in {}.",
        text(queue, "backend"),
        count(sooner, "request"),
        mean("sooner_s", sooner),
        count(later, "request"),
        mean("later_s", later),
        number(queue, "waiting"),
        bytes(number(queue, "waiting_bytes")),
    )?;
    Ok(())
}

impl SessionsArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let most = self.most.to_string();
        let path = format!("/web/sessions{}", query(&[("most", &most)]));
        let sessions = self.asking.reach_running("web gate")?.get(&path)?;
        self.asking.answer(out, &sessions, print_sessions)
    }
}

fn print_sessions(out: &mut dyn Write, sessions: &Value) -> anyhow::Result<()> {
    let sessions = sessions.as_array().map(Vec::as_slice).unwrap_or_default();
    if sessions.is_empty() {
        writeln!(out, "No session has a request at a backend just now.")?;
        return Ok(());
    }
    writeln!(out, "Sessions with requests at a backend now; debt and service are seconds of slot time.\n")?;
    let mut table = Table::new(&[
        "SESSION",
        "CLIENT",
        "BACKEND",
        ">WAITING",
        ">RUNNING",
        ">OLDEST s",
        ">WEIGHT",
        ">DEBT s",
        ">SERVED s",
        ">FRONT-ENDS",
    ]);
    for session in sessions {
        let float = |field: &str| session[field].as_f64().unwrap_or(0.0);
        table.row([
            text(session, "session").to_owned(),
            text(session, "client").to_owned(),
            text(session, "backend").to_owned(),
            number(session, "waiting").to_string(),
            number(session, "running").to_string(),
            format!("{:.1}", float("oldest_wait_s")),
            format!("{:.3}", float("weight")),
            format!("{:.2}", float("debt_s")),
            format!("{:.1}", float("served_s")),
            number(session, "active_at").to_string(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
