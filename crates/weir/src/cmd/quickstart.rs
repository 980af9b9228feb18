//! `weir quickstart`: from a machine to a protected site in a few questions.
//!
//! It looks at what runs here, asks what it cannot see, writes a small configuration that passes `weir check`, says what the DNS and the
//! neighbours need, starts Weir, tries it, and prints what to do next. It changes no file but its own, and overwrites nothing without saying so.

mod lab;
mod mail;
mod plan;
mod questions;
mod service;
mod trial;
mod web;

use crate::config::check_text;
use crate::machine::Machine;
use anyhow::{Context, bail};
use plan::Plan;
use questions::Questions;
use service::Started;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

#[derive(clap::Subcommand)]
pub(crate) enum Quickstart {
    /// Before a web site: HTTPS with certificates that come by themselves, and fair turns under load
    Web {
        #[command(flatten)]
        args: web::WebArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Where your users hand in mail: a throttle before your mail server, or before the world
    Relay {
        #[command(flatten)]
        args: mail::RelayArgs,
        #[command(flatten)]
        common: Common,
    },
    /// As the MX of a domain: mail from outside is judged and scanned
    Mx {
        #[command(flatten)]
        args: mail::MxArgs,
        #[command(flatten)]
        common: Common,
    },
    /// A malware lab of this machine alone
    Lab {
        #[command(flatten)]
        args: lab::LabArgs,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
pub(crate) struct Common {
    /// Where the configuration is written [default: /etc/weir/weir.toml for root, else ./weir.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: /var/lib/weir for root, else ./weir-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Ask nothing: take the proposals
    #[arg(long)]
    yes: bool,
    /// Replace a configuration that has settings; a copy stays beside it
    #[arg(long)]
    replace: bool,
    /// Only print the configuration
    #[arg(long)]
    print: bool,
    /// Write the configuration and start nothing
    #[arg(long, conflicts_with = "start")]
    no_start: bool,
    /// Start Weir without asking: by systemd, or here in the foreground where there is none
    #[arg(long)]
    start: bool,
}

/// Where Weir is on this machine.
pub(super) struct Place {
    pub(super) config: PathBuf,
    pub(super) data: PathBuf,
}

const SYSTEM_CONFIG: &str = "/etc/weir/weir.toml";
const SYSTEM_DATA: &str = "/var/lib/weir";

impl Quickstart {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let machine = Machine::look();
        let (name, common) = match self {
            Quickstart::Web { common, .. } => ("web", common),
            Quickstart::Relay { common, .. } => ("relay", common),
            Quickstart::Mx { common, .. } => ("mx", common),
            Quickstart::Lab { common, .. } => ("lab", common),
        };
        let ask = Questions::new(common.yes);
        let plan = match self {
            Quickstart::Web { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Relay { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Mx { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Lab { args, .. } => args.plan(&machine),
        };
        common.carry_out(name, &plan, &machine, &ask, out)
    }
}

impl Common {
    fn place(&self, machine: &Machine) -> Place {
        let of = |given: &Option<PathBuf>, system: &str, own: &str| {
            given.clone().unwrap_or_else(|| PathBuf::from(if machine.root { system } else { own }))
        };
        Place { config: of(&self.config, SYSTEM_CONFIG, "weir.toml"), data: of(&self.data, SYSTEM_DATA, "weir-data") }
    }

    fn carry_out(
        &self,
        name: &str,
        plan: &Plan,
        machine: &Machine,
        ask: &Questions,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let place = self.place(machine);
        let text = format!(
            "# Written by `weir quickstart {name}`. Change it as you like: `weir check`, then `weir reload`.\n\
             # Every setting: `weir config show --all`.\n\n{}",
            plan.config
        );
        check_text(&text, &place.config).context("what quickstart wrote is not valid; please report this")?;
        if self.print {
            return Ok(out.write_all(text.as_bytes())?);
        }
        plan.found.iter().try_for_each(|found| writeln!(out, "Found: {found}."))?;
        self.write(&place.config, &text, out)?;
        tell_needs(out, plan)?;
        let blocked = plan.neighbours.iter().any(|neighbour| neighbour.blocks);
        let starts = !blocked && !self.no_start && ask.agreed(self.start || self.yes, "Start Weir now?")?;
        out.flush()?;
        let started = if starts { Some(service::start(&place, machine, out)?) } else { None };
        if started.is_some() {
            trial::run(&plan.trial, &place, out)?;
        }
        tell_next(out, plan, &place, started.as_ref(), blocked)?;
        out.flush()?;
        started.map_or(Ok(()), Started::stay)
    }

    /// Writes the configuration. One that is there stays, unless it says nothing or may be replaced; then a copy stays.
    fn write(&self, file: &Path, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        match fs::read_to_string(file) {
            Ok(before) if before == text => {}
            Ok(before) => {
                if has_settings(&before) && !self.replace {
                    bail!(
                        "{} is there already and has settings; nothing was changed\n  hint: --replace replaces it and keeps a copy, \
                         --config FILE writes elsewhere, --print only shows what would be written",
                        file.display()
                    );
                }
                let copy = free_name(file);
                fs::copy(file, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
                writeln!(out, "The configuration that was there is now {}.", copy.display())?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        }
        write_file(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
        Ok(writeln!(out, "Wrote {}.", file.display())?)
    }
}

fn has_settings(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

fn free_name(file: &Path) -> PathBuf {
    let name = |number: u32| {
        let suffix = if number == 1 { ".before".to_owned() } else { format!(".before-{number}") };
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1))
}

/// Passwords may come into it, so only root and the service may read it.
fn write_file(file: &Path, text: &str) -> io::Result<()> {
    let beside = file.with_extension("toml.new");
    let mut options = fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(0o640).open(&beside)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    if let Some(group) = service::group() {
        chown(&beside, None, Some(group))?;
    }
    fs::rename(&beside, file)
}

fn tell_needs(out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
    if !plan.dns.is_empty() {
        writeln!(out, "\nThe DNS needs:")?;
        plan.dns.iter().try_for_each(|record| writeln!(out, "  {record}"))?;
    }
    for neighbour in &plan.neighbours {
        writeln!(out, "\n{}", neighbour.why)?;
        neighbour.lines.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

fn tell_next(
    out: &mut dyn Write,
    plan: &Plan,
    place: &Place,
    started: Option<&Started>,
    blocked: bool,
) -> io::Result<()> {
    writeln!(out, "\nWhat to do next:")?;
    let (config, data) = (place.config.display(), place.data.display());
    match started {
        None if blocked => writeln!(out, "  make room as said above, then: weir up --config {config} --data {data}")?,
        None => writeln!(out, "  weir up --config {config} --data {data}      (or: systemctl restart weir)")?,
        Some(_) => {}
    }
    let password = place.data.join("first-password");
    writeln!(out, "  http://127.0.0.1:8025        the console; its first password is in {}", password.display())?;
    plan.next.iter().try_for_each(|line| writeln!(out, "  {line}"))
}
