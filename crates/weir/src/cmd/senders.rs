//! `weir senders`: senders that are allowed or blocked.

use crate::answer::time;
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use weir_console::api::senders::{self, SenderName};
use weir_mail::operations::{NewSender, SenderVerdict, SenderView};

#[derive(clap::Subcommand)]
pub(crate) enum Senders {
    /// List senders that are allowed or blocked
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Exempt a sender from spam filters, but not from malware scanners, if SPF, DKIM or DMARC confirms the sender
    Allow(SenderArgs),
    /// Accept no mail from a sender
    Block(SenderArgs),
    /// Remove a sender from the list, so that it is neither allowed nor blocked
    Remove {
        /// The address or domain, as shown by `weir senders list`
        who: String,
        #[command(flatten)]
        asking: Asking,
    },
}

#[derive(clap::Args)]
pub(crate) struct SenderArgs {
    /// An address, or a domain, which includes all domains below it
    who: String,
    /// The reason, shown by `weir senders list`
    #[arg(long, value_name = "TEXT", default_value = "")]
    about: String,
    #[command(flatten)]
    asking: Asking,
}

impl Senders {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Senders::List { asking } => {
                let list = asking.reach()?.ask(&senders::LIST, &())?;
                asking.answer(out, &list, print_list)
            }
            Senders::Allow(args) => args.set(out, SenderVerdict::Allow),
            Senders::Block(args) => args.set(out, SenderVerdict::Block),
            Senders::Remove { who, asking } => {
                let left = asking.reach()?.ask(&senders::REMOVE, &SenderName { who: who.clone() })?;
                asking.answer(out, &left, |out, _: &Vec<SenderView>| {
                    Ok(writeln!(out, "{who} is neither allowed nor blocked any more.")?)
                })
            }
        }
    }
}

impl SenderArgs {
    fn set(&self, out: &mut dyn Write, rule: SenderVerdict) -> anyhow::Result<()> {
        let new = NewSender { who: self.who.clone(), rule, about: self.about.clone() };
        let done = self.asking.reach()?.ask(&senders::SET, &new)?;
        self.asking.answer(out, &done, |out, done: &SenderView| {
            match rule {
                SenderVerdict::Allow => writeln!(out, "{} is allowed if SPF, DKIM or DMARC confirms it.", done.who)?,
                SenderVerdict::Block => writeln!(out, "{} is blocked.", done.who)?,
            }
            Ok(())
        })
    }
}

fn print_list(out: &mut dyn Write, senders: &Vec<SenderView>) -> anyhow::Result<()> {
    if senders.is_empty() {
        writeln!(out, "No sender is allowed or blocked.")?;
        return Ok(());
    }
    let mut table = Table::new(&["RULE", "SENDER", "SINCE (UTC)", "BY", "WHY"]);
    for sender in senders {
        let SenderView { who, rule, about, by, since } = sender;
        table.row([rule.clone(), who.clone(), time(since), by.clone(), about.clone()]);
    }
    Ok(table.write(out)?)
}
