//! `weir quickstart`: sets Weir up on a machine after a few questions.
//!
//! It looks at what runs on this machine, asks what it cannot see, and writes a small configuration that passes `weir check`. It says what
//! has to be changed in the DNS and in other programs on this machine (its neighbours), starts Weir, tries it, and prints what to do next.
//! It overwrites nothing without saying so. It changes the configuration of a neighbour only if it is told to; `weir quickstart undo`
//! reverts that.

mod lab;
mod mail;
mod neighbour;
mod plan;
mod questions;
mod replacement;
mod service;
mod trial;
mod web;

use crate::config::check_text;
use crate::folder_args::SYSTEM_DATA;
use crate::machine::Machine;
use anyhow::{Context, bail};
use plan::Plan;
use questions::Questions;
use service::Started;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Path, PathBuf};

#[derive(clap::Subcommand)]
pub(crate) enum Quickstart {
    /// Put Weir in front of a web site: HTTPS with automatic certificates, and a fair queue under load
    Web {
        #[command(flatten)]
        args: web::WebArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Let Weir accept and throttle the mail of your users, in front of your mail server or as the only one
    Relay {
        #[command(flatten)]
        args: mail::RelayArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Make Weir the MX of a domain: it checks and scans mail from outside
    Mx {
        #[command(flatten)]
        args: mail::MxArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Set up a malware lab on this machine alone
    Lab {
        #[command(flatten)]
        args: lab::LabArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Remove what --edit-neighbour put into the configuration of nginx or Postfix
    Undo {
        /// The configuration that quickstart wrote [default: /etc/weir/weir.toml for root, else ./weir.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub(crate) struct Common {
    /// Where to write the configuration [default: /etc/weir/weir.toml for root, else ./weir.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: /var/lib/weir for root, else ./weir-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Ask no questions: use the proposed answers
    #[arg(long)]
    yes: bool,
    /// Replace a configuration that already has settings; a copy of it is kept beside it
    #[arg(long)]
    replace: bool,
    /// Also change the configuration of nginx or Postfix where Weir needs it; `weir quickstart undo` undoes the change
    #[arg(long, conflicts_with = "no_start")]
    edit_neighbour: bool,
    /// Only print the configuration, without writing it
    #[arg(long)]
    print: bool,
    /// Write the configuration, but do not start Weir
    #[arg(long, conflicts_with = "start")]
    no_start: bool,
    /// Start Weir without asking: with systemd, or in the foreground if there is no systemd
    #[arg(long)]
    start: bool,
}

/// The paths of the configuration and of the data folder.
pub(super) struct InstallPaths {
    pub(super) config: PathBuf,
    pub(super) data: PathBuf,
}

const SYSTEM_CONFIG: &str = "/etc/weir/weir.toml";

impl Quickstart {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let machine = Machine::look();
        let (name, common) = match self {
            Quickstart::Web { common, .. } => ("web", common),
            Quickstart::Relay { common, .. } => ("relay", common),
            Quickstart::Mx { common, .. } => ("mx", common),
            Quickstart::Lab { common, .. } => ("lab", common),
            Quickstart::Undo { config } => return neighbour::undo(&config_place(config, &machine), out),
        };
        let ask = Questions::new(common.yes);
        let plan = match self {
            Quickstart::Web { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Relay { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Mx { args, .. } => args.plan(&machine, &ask)?,
            Quickstart::Lab { args, .. } => args.plan(&machine),
            Quickstart::Undo { .. } => Plan::default(),
        };
        common.carry_out(name, &plan, &machine, &ask, out)
    }
}

impl Common {
    fn place(&self, machine: &Machine) -> InstallPaths {
        let data = if machine.root { SYSTEM_DATA } else { "weir-data" };
        InstallPaths {
            config: config_place(&self.config, machine),
            data: self.data.clone().unwrap_or_else(|| PathBuf::from(data)),
        }
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
             # Every setting: `weir config show --all`.\n\n\
             [store]\n# Where Weir keeps its data, so that `weir status` and all other commands find it.\nfolder = {:?}\n\n{}",
            std::path::absolute(&place.data)?,
            plan.config
        );
        check_text(&text, &place.config).context("what quickstart wrote is not valid; please report this")?;
        if self.print {
            return Ok(out.write_all(text.as_bytes())?);
        }
        plan.found.iter().try_for_each(|found| writeln!(out, "Found: {found}."))?;
        self.write(&place.config, &text, out)?;
        tell_needs(out, plan)?;
        out.flush()?;
        let blocked = plan.neighbours.iter().any(|neighbour| neighbour.blocks);
        let possible = !self.no_start && (!blocked || !plan.edits.is_empty());
        let wanted = possible && ask.agreed(self.start || self.yes, "Start Weir now?")?;
        // A neighbour gives up its ports only if Weir will be started.
        let edited = wanted && self.edit_neighbours(plan, &place.config, ask, out)?;
        let blocked = blocked && !edited;
        out.flush()?;
        let started = match wanted && !blocked {
            true => Some(service::start(&place, machine, out).or_else(|error| {
                if edited {
                    neighbour::undo(&place.config, out)?;
                }
                Err(error)
            })?),
            false => None,
        };
        if started.is_some() {
            trial::run(&plan.trial, &place, out)?;
        }
        tell_next(out, plan, &place, started.as_ref(), blocked)?;
        out.flush()?;
        started.map_or(Ok(()), Started::stay)
    }

    /// Changes the configuration of the neighbours, if the user wants that. Returns whether all changes were made.
    fn edit_neighbours(
        &self,
        plan: &Plan,
        config: &Path,
        ask: &Questions,
        out: &mut dyn Write,
    ) -> anyhow::Result<bool> {
        let question =
            "Put these lines in for you? (a copy of each file is kept, and `weir quickstart undo` removes the lines)";
        if plan.edits.is_empty() || !ask.agreed(self.edit_neighbour, question)? {
            return Ok(false);
        }
        writeln!(out)?;
        for edit in &plan.edits {
            let done = match edit {
                Ok(edit) => edit.apply(config, out),
                Err(why) => Err(anyhow::anyhow!("{why:#}")),
            };
            if let Err(error) = done {
                writeln!(out, "This has to be done by hand: {error:#}")?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the configuration. If one exists already, it is replaced only if it contains no settings or the user allows it; then a copy
    /// is kept.
    fn write(&self, file: &Path, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        match fs::read_to_string(file) {
            Ok(before) if before == text => {}
            Ok(before) => {
                if has_settings(&before) && !self.replace {
                    bail!(
                        "{} already exists and has settings; nothing was changed\n  hint: --replace replaces it and \
                         keeps a copy, --config FILE writes elsewhere, --print only shows what would be written",
                        file.display()
                    );
                }
                let copy = free_name(file);
                fs::copy(file, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
                writeln!(out, "The old configuration is now in {}.", copy.display())?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
        }
        write_file(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
        Ok(writeln!(out, "Wrote {}.", file.display())?)
    }
}

fn config_place(given: &Option<PathBuf>, machine: &Machine) -> PathBuf {
    given.clone().unwrap_or_else(|| PathBuf::from(if machine.root { SYSTEM_CONFIG } else { "weir.toml" }))
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

/// The configuration may contain passwords, so only root and the service may read it.
fn write_file(file: &Path, text: &str) -> io::Result<()> {
    replacement::replace(file, text, 0o640, |open| match service::group() {
        Some(group) => {
            fchown(open, None, Some(group))?;
            open.set_permissions(fs::Permissions::from_mode(0o640))
        }
        None => Ok(()),
    })
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
    place: &InstallPaths,
    started: Option<&Started>,
    blocked: bool,
) -> io::Result<()> {
    writeln!(out, "\nWhat to do next:")?;
    let (config, data) = (place.config.display(), place.data.display());
    match started {
        None if blocked => {
            writeln!(out, "  free the ports as described above, then run the same command again")?;
            if plan.edits.iter().any(Result::is_ok) {
                writeln!(out, "  or add --replace --edit-neighbour --start, and quickstart frees the ports for you")?;
            }
        }
        None => {
            writeln!(out, "  systemctl restart weir       (without systemd: weir up --config {config} --data {data})")?;
        }
        Some(_) => {}
    }
    let password = place.data.join("first-password");
    writeln!(out, "  http://127.0.0.1:8025        the console; its first password is in {}", password.display())?;
    plan.next.iter().try_for_each(|line| writeln!(out, "  {line}"))
}
