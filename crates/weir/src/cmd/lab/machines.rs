//! The machines of the lab: `weir lab nodes|drain|remove|priority|init|invite|join`.

use super::reach;
use crate::answer::{bytes, print_answer};
use crate::assembly::{credentials, machine_name};
use crate::control::Asking;
use crate::folder_args::FolderArgs;
use crate::table::{Table, shown};
use anyhow::{Context, bail};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use weir_console::api::lab::{DRAIN, Drain, INVITE, Invite, PRIORITY, REMOVE, Remove, SetPriority};
use weir_core::election::{Priority, Role};
use weir_lab::LabAddress;
use weir_lab::cluster::authority::Issue;
use weir_lab::cluster::credentials::Credentials;
use weir_lab::cluster::enrolment;
use weir_lab::cluster::identity::Identity;
use weir_lab::cluster::local_net::LocalNet;
use weir_lab::operations::NodeLine;
use weir_settings::units::Span;
use weir_store::folder::DataFolder;
use weir_store::records::Records;

#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    /// The name of the machine
    node: String,
    /// Give it samples again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct RemoveArgs {
    /// The name of the machine, which must not be the leader
    node: String,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct PriorityArgs {
    /// The name of the machine, which must be eligible to lead
    node: String,
    /// The new priority; the machine with the lowest number leads
    priority: u8,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// The name of this machine in the lab [default: its host name]
    #[arg(long)]
    name: Option<String>,
    /// The priority of this machine in elections; the lowest number leads
    #[arg(long, default_value_t = 10)]
    priority: u8,
    #[command(flatten)]
    place: FolderArgs,
}

#[derive(clap::Args)]
pub(crate) struct InviteArgs {
    /// The role of the new machine: eligible (it may lead), dispatcher (it never leads), or worker (it has no password
    /// of the database, and can be inside or outside the lab's network; external is the same)
    #[arg(long, default_value = "eligible", value_parser = ["eligible", "dispatcher", "worker", "external"])]
    role: String,
    /// The priority of the new machine in elections; the lowest number leads
    #[arg(long, default_value_t = 10)]
    priority: u8,
    /// How long the code and the token are valid
    #[arg(long, default_value = "1h", value_parser = span)]
    valid: Duration,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct JoinArgs {
    /// The code printed by `weir lab invite`, or its token, which is needed outside the lab's network
    #[arg(value_name = "CODE")]
    token: String,
    /// The name of this machine in the lab [default: its host name]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    place: FolderArgs,
}

fn span(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|Span(span)| span).map_err(|error| error.to_string())
}

impl DrainArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let asked = Drain { node: self.node.clone(), drained: !self.undo };
        let nodes = reach(&self.asking)?.ask(&DRAIN, &asked)?;
        self.asking.answer(out, &nodes, |out, nodes| print(out, nodes))
    }
}

impl RemoveArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let nodes = reach(&self.asking)?.ask(&REMOVE, &Remove { node: self.node.clone() })?;
        self.asking.answer(out, &nodes, |out, nodes| print(out, nodes))
    }
}

impl PriorityArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let asked = SetPriority { node: self.node.clone(), priority: self.priority };
        let nodes = reach(&self.asking)?.ask(&PRIORITY, &asked)?;
        self.asking.answer(out, &nodes, |out, nodes| print(out, nodes))?;
        let taken = nodes.iter().any(|node| node.name == self.node && node.priority == i64::from(self.priority));
        if !taken && !self.asking.json {
            writeln!(out, "\n{} is not running; it gets its new priority when it starts.", self.node)?;
        }
        Ok(())
    }
}

impl InviteArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let asked = Invite { role: self.role.clone(), priority: self.priority, valid_s: self.valid.as_secs() };
        let answer = reach(&self.asking)?.ask(&INVITE, &asked)?;
        if self.asking.json {
            return print_answer(out, &answer);
        }
        writeln!(out, "On the new machine, once, with lab.address in its configuration:\n")?;
        writeln!(out, "  weir lab join {}\n", answer.code)?;
        writeln!(out, "or, if it is in another network:\n")?;
        Ok(writeln!(out, "  weir lab join {}", answer.token)?)
    }
}

impl InitArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let newcomer = Newcomer::of(&self.place, self.name.as_deref())?;
        let Some(identity) = Identity::new(&newcomer.name, Role::Eligible, Priority(self.priority)) else {
            bail!(
                "{:?} is not a valid name for a machine\n  hint: letters, digits, `.`, `_` and `-`, at most 64",
                newcomer.name
            )
        };
        let Some(url) = &newcomer.records else {
            bail!(
                "a lab of several machines needs PostgreSQL\n  hint: set lab.records, or store.records, on all of them"
            )
        };
        let found = newcomer.runtime()?.block_on(async {
            let records = Records::postgres(url).await?;
            let issue = Issue { now: SystemTime::now(), life: newcomer.life };
            let found = enrolment::found(&records, &identity, newcomer.network.address, issue).await;
            records.close().await;
            anyhow::Ok(found?)
        });
        found?.write(&newcomer.folder)?;
        writeln!(out, "This machine, {}, is the first of a new lab.", newcomer.name)?;
        Ok(writeln!(out, "Start Weir with `weir up`; then `weir lab invite` makes a code for the next machine.")?)
    }
}

impl JoinArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let newcomer = Newcomer::of(&self.place, self.name.as_deref())?;
        let LabAddress { address, prefix, port, .. } = newcomer.network;
        let net = LocalNet { address, prefix, port };
        let join = enrolment::join_by(&self.token, &newcomer.name, &net);
        let credentials = newcomer.runtime()?.block_on(join)?;
        credentials.write(&newcomer.folder)?;
        Ok(writeln!(out, "This machine, {}, is in the lab. Start Weir with `weir up`.", newcomer.name)?)
    }
}

/// A machine that belongs to no lab yet. Its data folder stays locked while this exists.
struct Newcomer {
    name: String,
    network: LabAddress,
    life: Duration,
    records: Option<String>,
    folder: PathBuf,
    _data: DataFolder,
}

impl Newcomer {
    fn of(place: &FolderArgs, name: Option<&str>) -> anyhow::Result<Newcomer> {
        let config = place.load()?.config;
        let Some(network) = config.lab.network else {
            bail!("this machine has no address in the lab's network\n  hint: set lab.address, such as \"10.7.0.3/24\"")
        };
        let data = DataFolder::open(std::path::absolute(place.existing_folder()?)?)?;
        let folder = credentials(&data.path().join("lab"));
        if Credentials::are_in(&folder) {
            bail!("this machine is already in a lab\n  hint: its credentials are in {}", folder.display());
        }
        let name = name.map_or_else(machine_name, str::to_owned);
        let life = config.lab.certificate_life;
        let records = config.lab.records.or(config.store.records);
        Ok(Newcomer { name, network, life, records, folder, _data: data })
    }

    fn runtime(&self) -> anyhow::Result<tokio::runtime::Runtime> {
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")
    }
}

/// Prints the machines as a table.
pub(super) fn print(out: &mut dyn Write, nodes: &[NodeLine]) -> anyhow::Result<()> {
    if nodes.is_empty() {
        return Ok(writeln!(out, "This is a lab of one machine; no others are registered.")?);
    }
    let mut table = Table::new(&[
        "machine",
        "role",
        ">priority",
        ">index",
        "address",
        ">cores",
        ">load",
        ">memory",
        ">free",
        ">slots",
        "last at work",
        "state",
    ]);
    for node in nodes {
        let state = match (node.leads, node.drained) {
            (true, true) => "leads, drained",
            (true, false) => "leads",
            (false, true) => "drained",
            (false, false) => "",
        };
        // Only the leader knows what a machine has.
        let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
        table.row([
            shown(&node.name),
            node.role.clone(),
            node.priority.to_string(),
            node.index.map_or_else(|| "-".to_owned(), |index| index.to_string()),
            shown(&node.address),
            number(node.cores),
            node.load.map_or_else(|| "-".to_owned(), |load| format!("{load:.1}")),
            size(node.memory),
            size(node.memory_free),
            number(node.slots),
            ago(u64::try_from(node.seen_at).unwrap_or(0)),
            state.to_owned(),
        ]);
    }
    Ok(table.write(out)?)
}

fn ago(nanos: u64) -> String {
    if nanos == 0 {
        return "never".into();
    }
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{} s ago", wall.saturating_sub(Duration::from_nanos(nanos)).as_secs())
}
