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

/// Keeps mail, web and malware-analysis services fair and available while somebody tries to flood them.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up Weir on this machine: ask a few questions, write a configuration, start Weir and test it
    #[command(subcommand)]
    Quickstart(cmd::quickstart::Quickstart),
    /// Run every enabled gate in one process
    Up(cmd::up::Args),
    /// Show whether everything is all right: a line for each gate, a verdict, and an exit code
    Status(cmd::status::Args),
    /// For health checks: succeed if every gate that is switched on is running
    Ready(cmd::version::ReadyArgs),
    /// Show the version of this program and how it was built
    Version(cmd::version::VersionArgs),
    // Reload, Restart, Replay and Hitserver: their texts are at their arguments. Texts here would hide the long ones
    // there.
    Reload(cmd::reload::Args),
    Restart(cmd::restart::Args),
    /// Show an overview of all gates in the terminal, updated every second
    Top(cmd::top::Args),
    /// Manage the users who may send mail: passwords, addresses, throttle, locks
    #[command(subcommand)]
    User(cmd::user::User),
    /// List, release or delete mail that waits in the throttle's delay queues
    #[command(subcommand)]
    Held(cmd::held::HeldVerb),
    /// List, release or delete mail that the scan has put into quarantine
    #[command(subcommand)]
    Quarantine(cmd::quarantine::Quarantine),
    /// List, retry or delete outgoing mail that waits for delivery
    #[command(subcommand)]
    Queue(cmd::queue::QueueVerb),
    /// List, add or lift bans of client addresses that both mail servers refuse for a while
    #[command(subcommand)]
    Bans(cmd::bans::Bans),
    /// Allow or block senders of mail from outside
    #[command(subcommand)]
    Senders(cmd::senders::Senders),
    /// Show the web gate and its sessions, drain its servers, block networks
    #[command(subcommand)]
    Web(cmd::web::Web),
    /// Manage the accounts, sessions and API tokens of the console
    #[command(subcommand)]
    Console(cmd::console::Console),
    /// Make and list the keys that sign outgoing mail
    #[command(subcommand)]
    Dkim(cmd::dkim::Dkim),
    /// Attack a Weir that was started with `weir up --demo`, and show what each gate does about it
    Demo(cmd::demo::Demo),
    /// List current and past incidents, or tell the story of one
    Incidents(cmd::incidents::Args),
    /// Show who changed what, and when
    Audit(cmd::status::AuditArgs),
    /// Find messages by sender, recipient, subject, client, user, verdict, state or time
    Find(cmd::find::Args),
    /// Show everything that happened to a message or a sample, from SMTP to the lab and back
    Trace(cmd::trace::Args),
    /// Back up Weir's data and configuration to a folder, even while Weir is running
    Backup(cmd::backup::BackupArgs),
    /// Restore a backup into a new data folder
    Restore(cmd::backup::RestoreArgs),
    /// List what is wrong on this machine, most important first, each with what to do next
    Doctor(cmd::doctor::Args),
    /// Check the configuration, and whether its ports, certificates and keys work on this machine
    Check(cmd::check::Args),
    /// Show the settings and where each value comes from
    #[command(subcommand)]
    Config(cmd::config::Config),
    /// Repeat the experiments of the papers, or simulate cases of your own, with plots
    #[command(subcommand)]
    Sim(cmd::sim::Sim),
    Replay(cmd::replay::Args),
    /// Show how the feeds of the scan are doing, and find better size limits for them
    #[command(subcommand)]
    Feeds(cmd::feeds::Feeds),
    /// Show what the scanners say about messages and files
    Scan(cmd::scan::Args),
    /// One of the processes that parse and scan mail; Weir starts them itself
    #[command(hide = true)]
    ScanWorker(cmd::scan::WorkerArgs),
    /// Submit samples to the malware lab, read their reports, and manage the lab's machines
    #[command(subcommand)]
    Lab(cmd::lab::LabVerb),
    /// One of Weir's built-in plugins; the lab starts them itself
    #[command(hide = true)]
    Plugin(cmd::plugin::Args),
    /// The sandbox around a plugin; the lab starts it itself
    #[command(hide = true)]
    Fence(cmd::fence::Args),
    Hitserver(cmd::hitserver::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Print the manual page, or write one page for each command
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
