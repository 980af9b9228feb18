//! `weir web`: the state of the web gate, who waits and who gets how much.

mod exchange;
mod learn;

use crate::answer::{bytes, count};
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use weir_console::api::web::{self, BlockedNetwork, Drain, Most, NewBlock, NewWeight};
use weir_web::admission::{SessionView, View};
use weir_web::blocks::BlockView;
use weir_web::view::{BackendView, DoorView, Status};

#[derive(clap::Subcommand)]
pub(crate) enum Web {
    // Its text is at its arguments. A text here would hide the long one there.
    Learn(learn::Args),
    /// Show how the web gate and its backends are doing
    Status(StatusArgs),
    /// List the sessions that have requests at a backend now
    Sessions(SessionsArgs),
    /// Give a server no new requests until a restart, so that it can be taken out of service once it is idle
    Drain(DrainArgs),
    /// Give a server more or fewer requests than the other servers of its backend, until a restart
    Weight(WeightArgs),
    /// List the networks that somebody has blocked
    Blocks(StatusArgs),
    /// Refuse all requests from a network for a while, or until a restart
    Block(BlockArgs),
    /// Accept requests from a blocked network again
    Unblock(UnblockArgs),
}

impl Web {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Web::Learn(args) => args.run(out),
            Web::Status(args) => args.run(out),
            Web::Sessions(args) => args.run(out),
            Web::Drain(args) => args.run(out),
            Web::Weight(args) => args.run(out),
            Web::Blocks(args) => {
                let list = args.asking.reach_running("web gate")?.ask(&web::BLOCKS, &())?;
                args.asking.answer(out, &list, print_blocks)
            }
            Web::Block(args) => args.run(out),
            Web::Unblock(args) => args.run(out),
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
    /// Show at most this many sessions of each backend, those with the most requests first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    most: u32,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    /// The server as it is written in the setting `backends`, such as 10.0.0.1:8080
    server: String,
    /// Give it requests again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    asking: Asking,
}

impl DrainArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let drain = Drain { server: self.server.clone(), draining: !self.undo };
        let status = self.asking.reach_running("web gate")?.ask(&web::DRAIN, &drain)?;
        self.asking.answer(out, &status, |out, status| self.print(out, status))
    }

    fn print(&self, out: &mut dyn Write, status: &Status) -> anyhow::Result<()> {
        let servers = status.backends.iter().flat_map(|backend| &backend.servers);
        let left = servers.filter(|server| server.address == self.server).map(|server| server.in_flight).max();
        let left = count(left.unwrap_or(0), "request");
        let alone = status.only_servers_of(&self.server);
        if self.undo {
            writeln!(out, "{} gets requests again.", self.server)?;
        } else if !alone.is_empty() {
            writeln!(
                out,
                "{} still gets requests, because {} has no other server; as soon as it has one, this one gets no more. \
                 {left} there now.",
                self.server,
                alone.join(", ")
            )?;
        } else {
            writeln!(
                out,
                "{} gets no new requests; {left} still there. `weir web status` shows when it is idle.",
                self.server
            )?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct WeightArgs {
    /// The server as it is written in the setting `backends`, such as 10.0.0.1:8080
    server: String,
    /// How many requests it gets for each request that a server with the weight 1 gets
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    weight: u32,
    #[command(flatten)]
    asking: Asking,
}

impl WeightArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let asked = NewWeight { server: self.server.clone(), weight: self.weight };
        let status = self.asking.reach_running("web gate")?.ask(&web::WEIGHT, &asked)?;
        self.asking.answer(out, &status, |out, _: &Status| {
            Ok(writeln!(out, "{} has the weight {}.", self.server, self.weight)?)
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct BlockArgs {
    /// An address or a network, such as 192.0.2.0/24
    network: String,
    /// How many minutes to block it
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    minutes: u64,
    #[command(flatten)]
    asking: Asking,
}

impl BlockArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let new = NewBlock { network: self.network.clone(), for_s: self.minutes * 60 };
        let list = self.asking.reach_running("web gate")?.ask(&web::BLOCK, &new)?;
        self.asking.answer(out, &list, print_blocks)
    }
}

#[derive(clap::Args)]
pub(crate) struct UnblockArgs {
    /// The network, as shown by `weir web blocks`
    network: String,
    #[command(flatten)]
    asking: Asking,
}

impl UnblockArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let asked = BlockedNetwork { network: self.network.clone() };
        let list = self.asking.reach_running("web gate")?.ask(&web::UNBLOCK, &asked)?;
        self.asking.answer(out, &list, print_blocks)
    }
}

fn print_blocks(out: &mut dyn Write, list: &Vec<BlockView>) -> anyhow::Result<()> {
    if list.is_empty() {
        return Ok(writeln!(out, "No network is blocked by hand.")?);
    }
    let mut table = Table::new(&["NETWORK", ">FOR ANOTHER (S)"]);
    for block in list {
        table.row([block.network.clone(), block.left_s.to_string()]);
    }
    Ok(table.write(out)?)
}

impl StatusArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach_running("web gate")?.ask(&web::STATUS, &())?;
        self.asking.answer(out, &status, print_status)
    }
}

fn print_status(out: &mut dyn Write, status: &Status) -> anyhow::Result<()> {
    writeln!(out, "The web gate: what waits for each backend, and what was done since the start.\n")?;
    for listener in &status.listeners {
        writeln!(out, "  {:<12} {:<24} {}", "listens", listener.address, listener.about)?;
    }
    if let Some(door) = &status.forward_auth {
        print_door(out, door)?;
    }
    let said: Vec<String> = status.responses.iter().enumerate().map(|(at, n)| format!("{n} × {}xx", at + 1)).collect();
    writeln!(
        out,
        "  {:<12} {} open, {} refused; {} given up by their clients",
        "connections",
        status.connections,
        status.connections_refused,
        count(status.given_up, "request")
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
    for backend in &status.backends {
        table.row(backend_row(backend));
    }
    table.write(out)?;
    for backend in &status.backends {
        print_change(out, &backend.queue)?;
        print_pressure(out, &backend.queue)?;
    }
    exchange::print(out, &status.exchange.clone().unwrap_or_default())
}

/// Prints the state of the door for other proxies.
fn print_door(out: &mut dyn Write, door: &DoorView) -> anyhow::Result<()> {
    writeln!(
        out,
        "  {:<12} {:<24} {} held; {} ended by the log, {} by time",
        "proxies ask",
        door.listeners.join(", "),
        count(door.held, "slot"),
        door.ended_by_log,
        door.ended_by_time
    )?;
    if let Some(trouble) = &door.trouble {
        writeln!(out, "  {:<12} {trouble}", "ALARM")?;
    }
    Ok(())
}

fn backend_row(backend: &BackendView) -> [String; 12] {
    let (queue, counters) = (&backend.queue, &backend.queue.counters);
    let mean_ms = if counters.waited == 0 { 0.0 } else { counters.wait_s * 1e3 / counters.waited as f64 };
    let servers = backend.servers.iter().map(|server| {
        let mark = match (server.up, server.trouble.as_deref()) {
            (true, _) if server.draining => format!(" (draining, {} there)", server.in_flight),
            (true, _) if server.broken => " (answers with errors)".to_owned(),
            (true, _) => String::new(),
            (false, Some(why)) if !why.is_empty() => format!(" (down: {why})"),
            (false, _) => " (down)".to_owned(),
        };
        format!("{}{mark}", server.address)
    });
    let auto = if queue.slots_auto { " auto" } else { "" };
    [
        format!("{}{}", queue.backend, if queue.observe { " (observed)" } else { "" }),
        queue.waiting.to_string(),
        queue.running.to_string(),
        format!("{}{auto}", queue.slots),
        queue.streams.to_string(),
        queue.sessions.to_string(),
        format!("{:.1}", queue.mean_cost_ms),
        counters.finished.to_string(),
        counters.waited.to_string(),
        format!("{mean_ms:.1}"),
        counters.refused.iter().sum::<u64>().to_string(),
        servers.collect::<Vec<_>>().join(" "),
    ]
}

/// Prints where most requests come from, who has to wait because of them, and which settings might help.
fn print_pressure(out: &mut dyn Write, queue: &View) -> anyhow::Result<()> {
    let said = queue.pressure.sentences();
    if !said.is_empty() {
        writeln!(out, "\n{}: {}", queue.backend, said.join(" "))?;
    }
    let room = &queue.room;
    if room.visitors > 0 {
        writeln!(
            out,
            "{}: {} of {} {} for their turn; a new visitor waits about {:.0} s.",
            queue.backend,
            count(room.visitors as u64, "newcomer"),
            count(room.networks as u64, "network"),
            if room.visitors == 1 { "waits" } else { "wait" },
            room.wait_s
        )?;
    }
    for advice in &queue.pressure.advice {
        writeln!(out, "{}: {advice}.", queue.backend)?;
    }
    Ok(())
}

/// Prints what fair queueing changed, compared with first come, first served.
fn print_change(out: &mut dyn Write, queue: &View) -> anyhow::Result<()> {
    let counters = &queue.counters;
    if counters.sooner + counters.later == 0 {
        return Ok(());
    }
    let mean_ms = |total_s: f64, number: u64| total_s * 1e3 / number.max(1) as f64;
    writeln!(
        out,
        "\n{}: compared with first come, first served, {} went {:.0} ms sooner on average and {} {:.0} ms later; {} \
         wait in {}.",
        queue.backend,
        count(counters.sooner, "request"),
        mean_ms(counters.sooner_s, counters.sooner),
        count(counters.later, "request"),
        mean_ms(counters.later_s, counters.later),
        queue.waiting,
        bytes(queue.waiting_bytes),
    )?;
    Ok(())
}

impl SessionsArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let most = Most { most: self.most as usize };
        let sessions = self.asking.reach_running("web gate")?.ask(&web::SESSIONS, &most)?;
        self.asking.answer(out, &sessions, |out, sessions| print_sessions(out, sessions))
    }
}

fn print_sessions(out: &mut dyn Write, sessions: &[SessionView]) -> anyhow::Result<()> {
    if sessions.is_empty() {
        writeln!(out, "No session has a request at a backend at the moment.")?;
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
        table.row([
            session.session.clone(),
            session.client.to_string(),
            session.backend.clone(),
            session.waiting.to_string(),
            session.running.to_string(),
            format!("{:.1}", session.oldest_wait_s),
            format!("{:.3}", session.weight),
            format!("{:.2}", session.debt_s),
            format!("{:.1}", session.served_s),
            session.active_at.to_string(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
