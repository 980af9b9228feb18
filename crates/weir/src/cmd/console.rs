//! `weir console`: the accounts of the console and their roles.

mod token;

use crate::answer::{print_answer, time};
use crate::control::Asking;
use crate::password::{PasswordSource, WithPassword};
use crate::table::Table;
use serde_json::json;
use std::io::Write;
use token::Token;
use weir_console::api::users::NewPassword;
use weir_console::api::{Operation, accounts, sessions};
use weir_console::session::SessionLine;
use weir_foundation::console_accounts::{AccountView, NewAccount, Role};

#[derive(clap::Subcommand)]
pub(crate) enum Console {
    /// Add an account
    Add(AccountAddArgs),
    /// Give an account a new password, and end all sessions that were begun with the old one
    Passwd(PasswdArgs),
    /// Remove an account
    Remove(NameArgs),
    /// Remove the second factor of somebody who has lost it, so that the password is enough to log in
    CodesOff(NameArgs),
    /// List all accounts
    List(AccountListArgs),
    /// List who is logged in
    Sessions(AccountListArgs),
    /// Log somebody out
    EndSession(EndArgs),
    /// Make, list and revoke API tokens for programs
    #[command(subcommand)]
    Token(Token),
}

impl Console {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Console::Add(args) => args.run(out),
            Console::Passwd(args) => args.run(out),
            Console::Remove(args) => args.ask(&accounts::REMOVE, "can no longer log in", out),
            Console::CodesOff(args) => args.ask(&accounts::CODES_OFF, "no longer needs a code to log in", out),
            Console::List(args) => args.run(out),
            Console::Sessions(args) => logged_in(args, out),
            Console::EndSession(args) => args.run(out),
            Console::Token(token) => token.run(out),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RoleName {
    /// See all gates, decide about held and quarantined mail (except releasing infected mail), lock users, submit
    /// samples
    Operator,
    /// Everything
    Admin,
}

#[derive(clap::Args)]
pub(crate) struct AccountAddArgs {
    /// The login
    name: String,
    /// What the account may do
    #[arg(long, value_enum, default_value = "operator")]
    role: RoleName,
    #[command(flatten)]
    password: PasswordSource,
    #[command(flatten)]
    asking: Asking,
}

impl AccountAddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let password = self.password.read(&self.name)?;
        let role = match self.role {
            RoleName::Operator => Role::Operator,
            RoleName::Admin => Role::Admin,
        };
        let new = NewAccount { name: self.name.clone(), role, password: password.text.clone() };
        let account = control.ask(&accounts::ADD, &new)?;
        if self.asking.json {
            return print_answer(out, &WithPassword::new(&account, Some(&password)));
        }
        writeln!(out, "{} may log in to the console as {}.", self.name, role.as_str())?;
        Ok(password.print(out)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct PasswdArgs {
    /// The login
    name: String,
    #[command(flatten)]
    password: PasswordSource,
    #[command(flatten)]
    asking: Asking,
}

impl PasswdArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let password = self.password.read(&self.name)?;
        let new = NewPassword { password: password.text.clone() };
        let accounts = control.ask_of(&accounts::PASSWORD, &self.name, &new)?;
        if self.asking.json {
            return print_answer(out, &WithPassword::new(&json!({ "accounts": accounts }), Some(&password)));
        }
        writeln!(out, "{} has a new password.", self.name)?;
        Ok(password.print(out)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct NameArgs {
    /// The login
    name: String,
    #[command(flatten)]
    asking: Asking,
}

impl NameArgs {
    /// Does something to the account; `done` says what.
    fn ask(&self, what: &Operation<(), Vec<AccountView>>, done: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let accounts = self.asking.reach()?.ask_of(what, &self.name, &())?;
        if self.asking.json {
            return print_answer(out, &accounts);
        }
        writeln!(out, "{} {done}.", self.name)?;
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct AccountListArgs {
    #[command(flatten)]
    asking: Asking,
}

impl AccountListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let accounts = self.asking.reach()?.ask(&accounts::LIST, &())?;
        if self.asking.json {
            return print_answer(out, &accounts);
        }
        writeln!(out, "Who may log in to the console.\n\n  {:<24} {:<10} {:<8} created", "name", "role", "codes")?;
        for account in accounts {
            writeln!(
                out,
                "  {:<24} {:<10} {:<8} {}",
                account.name,
                account.role.as_str(),
                if account.codes { "required" } else { "no" },
                time(&account.created)
            )?;
        }
        Ok(())
    }
}

fn logged_in(args: &AccountListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let list = args.asking.reach_running("console")?.ask(&sessions::LIST, &())?;
    args.asking.answer(out, &list, print_sessions)
}

fn print_sessions(out: &mut dyn Write, list: &Vec<SessionLine>) -> anyhow::Result<()> {
    if list.is_empty() {
        return Ok(writeln!(out, "Nobody is logged in at the console.")?);
    }
    let mut table = Table::new(&[">NUMBER", "NAME", "ROLE", "FROM", "SINCE (UTC)", ">QUIET FOR (S)"]);
    for line in list {
        table.row([
            line.number.to_string(),
            line.name.clone(),
            line.role.as_str().to_owned(),
            line.from.clone(),
            time(&line.since),
            line.quiet_s.to_string(),
        ]);
    }
    Ok(table.write(out)?)
}

#[derive(clap::Args)]
pub(crate) struct EndArgs {
    /// The number of the session, as shown by `weir console sessions`
    number: u64,
    #[command(flatten)]
    asking: Asking,
}

impl EndArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach_running("console")?;
        let list = control.ask_of(&sessions::END, &self.number.to_string(), &())?;
        self.asking.answer(out, &list, |out, _| Ok(writeln!(out, "Session {} has ended.", self.number)?))
    }
}
