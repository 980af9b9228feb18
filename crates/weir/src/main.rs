//! `weir`: one binary, verbs grouped by noun.
//!
//! This file lists all verbs. Each has a file under `cmd/` with its arguments as a clap struct and a `run`
//! that writes to the given output. Only this crate reads arguments and the environment.

mod allocator;
mod answer;
mod assembly;
mod cmd;
mod config;
mod control;
mod folder_args;
#[cfg(test)]
mod guide;
mod machine;
mod memory;
mod orchestrator;
mod password;
mod prompt;
mod restart;
mod service_manager;
mod table;

use clap::{Parser, Subcommand};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Keeps mail, web and malware-analysis services fair and alive while somebody tries to drown them.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set Weir up on this machine: looks, asks, writes a configuration, starts it and tries it
    #[command(subcommand)]
    Quickstart(cmd::quickstart::Quickstart),
    /// Run every enabled gate in one process
    Up(cmd::up::Args),
    /// Is all well? Every gate in a line, one verdict, and an exit code
    Status(cmd::status::Args),
    /// For health checks: whether every gate that should run does
    Ready(cmd::version::ReadyArgs),
    /// What this program is, and how it was built
    Version(cmd::version::VersionArgs),
    // Reload, Restart, Replay and Hitserver: their texts are at their arguments. Texts here would hide the long ones
    // there.
    Reload(cmd::reload::Args),
    Restart(cmd::restart::Args),
    /// The overview in a terminal, drawn again every second
    Top(cmd::top::Args),
    /// Who may send, as whom, under which throttle
    #[command(subcommand)]
    User(cmd::user::User),
    /// The throttle's delay queues
    #[command(subcommand)]
    Held(cmd::held::HeldVerb),
    /// Mail that the scan keeps
    #[command(subcommand)]
    Quarantine(cmd::quarantine::Quarantine),
    /// Outgoing mail that waits for delivery
    #[command(subcommand)]
    Queue(cmd::queue::QueueVerb),
    /// Addresses that the mail servers keep out for a while
    #[command(subcommand)]
    Bans(cmd::bans::Bans),
    /// Senders of mail from outside that are allowed or blocked
    #[command(subcommand)]
    Senders(cmd::senders::Senders),
    /// The web gate: who waits, who gets what
    #[command(subcommand)]
    Web(cmd::web::Web),
    /// Who may log in to the console, and as what
    #[command(subcommand)]
    Console(cmd::console::Console),
    /// Keys that sign outgoing mail
    #[command(subcommand)]
    Dkim(cmd::dkim::Dkim),
    /// Attacks on a running Weir, to be watched
    Demo(cmd::demo::Demo),
    /// What goes wrong now and what went wrong, each with its story
    Incidents(cmd::incidents::Args),
    /// Who changed what, and when
    Audit(cmd::status::AuditArgs),
    /// Messages by sender, recipient, subject, client, user, verdict or time
    Find(cmd::find::Args),
    /// The whole way of a message or a sample, from SMTP to the lab and back
    Trace(cmd::trace::Args),
    /// Copy everything that must survive to a folder, while Weir runs
    Backup(cmd::backup::BackupArgs),
    /// Bring a backup back into a new data folder
    Restore(cmd::backup::RestoreArgs),
    /// What is wrong on this machine, the most important first, each with the next step
    Doctor(cmd::doctor::Args),
    /// Validate the configuration, and try its ports, certificates and keys on this machine
    Check(cmd::check::Args),
    /// Print the configuration in force
    #[command(subcommand)]
    Config(cmd::config::Config),
    /// The papers' experiments and your own what-ifs, with plots
    #[command(subcommand)]
    Sim(cmd::sim::Sim),
    Replay(cmd::replay::Args),
    /// Scan feeds: how they are doing, and better limits
    #[command(subcommand)]
    Feeds(cmd::feeds::Feeds),
    /// What the scanners say about messages and files
    Scan(cmd::scan::Args),
    /// One of the processes that open mail; Weir starts them itself
    #[command(hide = true)]
    ScanWorker(cmd::scan::WorkerArgs),
    /// The malware lab: samples, what became of them, and why
    #[command(subcommand)]
    Lab(cmd::lab::LabVerb),
    /// One of the plugins that Weir brings; the lab starts them itself
    #[command(hide = true)]
    Plugin(cmd::plugin::Args),
    /// What is around a plugin; the lab starts it itself
    #[command(hide = true)]
    Fence(cmd::fence::Args),
    Hitserver(cmd::hitserver::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Print the manual page
    Man(cmd::completions::ManArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = dispatch(&cli.command, &mut out);
    match result.and(out.flush().map_err(Into::into)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough (`weir … | head`). That is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<cmd::status::NotWell>() => {
            ExitCode::from(error.downcast::<cmd::status::NotWell>().map_or(1, |cmd::status::NotWell(code)| code))
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Quickstart(quickstart) => quickstart.run(out),
        Command::Up(args) => args.run(out),
        Command::Status(args) => args.run(out),
        Command::Ready(args) => args.run(out),
        Command::Version(args) => args.run(out),
        Command::Reload(args) => args.run(out),
        Command::Restart(args) => args.run(out),
        Command::Top(args) => args.run(out),
        Command::User(user) => user.run(out),
        Command::Held(held) => held.run(out),
        Command::Quarantine(quarantine) => quarantine.run(out),
        Command::Queue(queue) => queue.run(out),
        Command::Bans(bans) => bans.run(out),
        Command::Senders(senders) => senders.run(out),
        Command::Web(web) => web.run(out),
        Command::Console(console) => console.run(out),
        Command::Dkim(dkim) => dkim.run(out),
        Command::Demo(demo) => demo.run(out),
        Command::Incidents(args) => args.run(out),
        Command::Audit(args) => args.run(out),
        Command::Find(args) => args.run(out),
        Command::Trace(args) => args.run(out),
        Command::Backup(args) => args.run(out),
        Command::Restore(args) => args.run(out),
        Command::Doctor(args) => args.run(out),
        Command::Check(args) => args.run(out),
        Command::Config(config) => config.run(out),
        Command::Sim(sim) => sim.run(out),
        Command::Replay(args) => args.run(out),
        Command::Feeds(feeds) => feeds.run(out),
        Command::Scan(args) => args.run(out),
        Command::ScanWorker(args) => args.run(),
        Command::Lab(lab) => lab.run(out),
        Command::Plugin(args) => args.run(),
        Command::Fence(args) => args.run(),
        Command::Hitserver(args) => args.run(out),
        Command::Completions(args) => args.run(out),
        Command::Man(args) => args.run(out),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
