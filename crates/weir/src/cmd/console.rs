//! `weir console`: who may log in to the console, and as what.

use crate::answer::{list, print_json, text, time};
use crate::control::{Control, Place, encoded};
use crate::password::PasswordSource;
use serde_json::json;
use std::io::Write;
use weir_mail::desk::{NewAccount, Role};

#[derive(clap::Subcommand)]
pub(crate) enum Console {
    /// Make an account
    Add(AddArgs),
    /// Give an account a new password; whoever is logged in with the old one is not any more
    Passwd(PasswdArgs),
    /// Remove an account
    Remove(NameArgs),
    /// List all accounts
    List(ListArgs),
}

impl Console {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Console::Add(args) => args.run(out),
            Console::Passwd(args) => args.run(out),
            Console::Remove(args) => remove(args, out),
            Console::List(args) => args.run(out),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RoleName {
    /// Sees all gates, decides on held and quarantined mail but for viruses, locks and unlocks
    Operator,
    /// Everything
    Admin,
}

#[derive(clap::Args)]
pub(crate) struct AddArgs {
    /// The login
    name: String,
    /// What it may do
    #[arg(long, value_enum, default_value = "operator")]
    role: RoleName,
    #[command(flatten)]
    password: PasswordSource,
    #[command(flatten)]
    place: Place,
    /// Print the account as JSON
    #[arg(long)]
    json: bool,
}

impl AddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = Control::reach(&self.place)?;
        let password = self.password.read(&self.name)?;
        let role = match self.role {
            RoleName::Operator => Role::Operator,
            RoleName::Admin => Role::Admin,
        };
        let new = NewAccount { name: self.name.clone(), role, password: password.text.clone() };
        let mut account = control.post("/console/accounts", &new)?;
        if self.json {
            password.add_to(&mut account);
            return print_json(out, &account);
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
    place: Place,
}

impl PasswdArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = Control::reach(&self.place)?;
        let password = self.password.read(&self.name)?;
        let path = format!("/console/accounts/{}/password", encoded(&self.name));
        control.post(&path, &json!({ "password": password.text }))?;
        writeln!(out, "{} has a new password.", self.name)?;
        Ok(password.print(out)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct NameArgs {
    /// The login
    name: String,
    #[command(flatten)]
    place: Place,
}

fn remove(args: &NameArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let control = Control::reach(&args.place)?;
    control.post(&format!("/console/accounts/{}/remove", encoded(&args.name)), &json!({}))?;
    writeln!(out, "{} may not log in any more.", args.name)?;
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// Print the accounts as JSON
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let accounts = json!({ "accounts": Control::reach(&self.place)?.get("/console/accounts")? });
        if self.json {
            return print_json(out, &accounts["accounts"]);
        }
        writeln!(out, "Who may log in to the console.\n\n  {:<24} {:<10} made", "name", "role")?;
        for account in list(&accounts, "accounts") {
            writeln!(
                out,
                "  {:<24} {:<10} {}",
                text(account, "name"),
                text(account, "role"),
                time(account, "created")
            )?;
        }
        Ok(())
    }
}
