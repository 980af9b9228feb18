//! `weir bans`: addresses that the mail servers refuse for a while.

use crate::answer::{time, time_or_dash};
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use std::time::Duration;
use weir_console::api::bans::{self, Address, NewBan};
use weir_mail::operations::{BanDone, BanView};

#[derive(clap::Subcommand)]
pub(crate) enum Bans {
    /// List banned addresses, and those whose ban has ended but is still remembered
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Lift the ban of an address, and forget what it did
    Lift(LiftArgs),
    /// Ban an address from both mail servers for a while
    Add(BanArgs),
}

#[derive(clap::Args)]
pub(crate) struct LiftArgs {
    /// An address such as 192.0.2.7, or a network as shown by `weir bans list`
    address: String,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct BanArgs {
    /// An address such as 192.0.2.7; for an IPv6 address, its whole network is banned
    address: String,
    /// How many minutes the ban lasts, up to `ban_longest`
    #[arg(long = "minutes", value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=525_600))]
    minutes: u64,
    #[command(flatten)]
    asking: Asking,
}

impl Bans {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Bans::List { asking } => {
                let list = asking.reach_running("mail server")?.ask(&bans::LIST, &())?;
                asking.answer(out, &list, print_list)
            }
            Bans::Lift(args) => {
                let who = Address { address: args.address.clone() };
                let done = args.asking.reach_running("mail server")?.ask(&bans::LIFT, &who)?;
                args.asking.answer(out, &done, |out, done: &BanDone| {
                    Ok(writeln!(out, "{} may connect again ({}).", done.address, done.servers.join(", "))?)
                })
            }
            Bans::Add(args) => {
                let new = NewBan {
                    address: args.address.clone(),
                    for_s: Duration::from_secs(60).as_secs().saturating_mul(args.minutes),
                };
                let done = args.asking.reach_running("mail server")?.ask(&bans::ADD, &new)?;
                args.asking.answer(out, &done, |out, done: &BanDone| {
                    let until = time_or_dash(done.until.as_deref());
                    Ok(writeln!(out, "{} is banned until {until} UTC ({}).", done.address, done.servers.join(", "))?)
                })
            }
        }
    }
}

fn print_list(out: &mut dyn Write, bans: &Vec<BanView>) -> anyhow::Result<()> {
    if bans.is_empty() {
        writeln!(out, "No address is banned, or was banned recently.")?;
        return Ok(());
    }
    let mut table = Table::new(&["ADDRESS", "SERVER", "BANNED UNTIL (UTC)", ">TIMES", "REMEMBERED UNTIL (UTC)"]);
    for ban in bans {
        let until = ban.until.as_deref().map_or_else(|| "(over)".to_owned(), time);
        table.row([ban.address.clone(), ban.server.clone(), until, ban.offences.to_string(), time(&ban.remembered)]);
    }
    Ok(table.write(out)?)
}
