//! `weir dkim`: keys that sign outgoing mail.

use crate::answer::print_answer;
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use weir_console::api::whole::{ADD_KEY, KEYS};
use weir_mail::operations::{KeyKind, NewKey};

#[derive(clap::Subcommand)]
pub(crate) enum Dkim {
    /// Make a key for a domain, and print the DNS record to publish
    Add(KeyAddArgs),
    /// List all keys with their DNS records
    List(KeyListArgs),
}

impl Dkim {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Dkim::Add(args) => args.run(out),
            Dkim::List(args) => args.run(out),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum KeyKindArg {
    /// RSA with 2048 bits, which every receiver can check
    Rsa,
    /// Ed25519: shorter, but large receivers do not support it yet
    Ed25519,
}

#[derive(clap::Args)]
pub(crate) struct KeyAddArgs {
    /// The domain of the senders' addresses, such as example.org
    domain: String,
    /// The name under which the key is published [default: weir and the month, such as weir202611]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    selector: String,
    /// The kind of key
    #[arg(long, value_enum, default_value = "rsa")]
    kind: KeyKindArg,
    #[command(flatten)]
    asking: Asking,
}

impl KeyAddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let kind = match self.kind {
            KeyKindArg::Rsa => KeyKind::Rsa,
            KeyKindArg::Ed25519 => KeyKind::Ed25519,
        };
        let new = NewKey { domain: self.domain.clone(), selector: self.selector.clone(), kind };
        let key = self.asking.reach()?.ask(&ADD_KEY, &new)?;
        if self.asking.json {
            return print_answer(out, &key);
        }
        writeln!(out, "Mail from {} is signed from now on. Publish this record in the DNS:\n", key.domain)?;
        writeln!(out, "{}", key.record)?;
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct KeyListArgs {
    #[command(flatten)]
    asking: Asking,
}

impl KeyListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let keys = self.asking.reach()?.ask(&KEYS, &())?;
        if self.asking.json {
            return print_answer(out, &keys);
        }
        if keys.is_empty() {
            writeln!(out, "There are no keys: mail goes out unsigned. `weir dkim add DOMAIN` makes one.")?;
            return Ok(());
        }
        let mut table = Table::new(&["DOMAIN", "SELECTOR", "SIGNS", "RECORD (--json has all of it)"]);
        for key in keys {
            let signs = if key.signs { "yes" } else { "no, older" };
            table.row([key.domain, key.selector, signs.to_owned(), key.record]);
        }
        table.write(out)?;
        Ok(())
    }
}
