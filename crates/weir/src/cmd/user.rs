//! `weir user`: the users who may send mail, from which addresses, and under which throttle.

mod print;

use crate::answer::{count, print_answer};
use crate::cmd::throttle_options::{Given, ThrottleOptions};
use crate::control::Asking;
use crate::password::{PasswordSource, WithPassword};
use crate::prompt;
use std::io::Write;
use weir_console::api::users::{self, After, NewPassword, Reason, Secure};
use weir_console::incidents::PastStop;
use weir_mail::operations::{Change, NewUser, OwnThrottle, ParamValue, Profile, UserPage};

#[derive(clap::Subcommand)]
pub(crate) enum User {
    /// Add a user
    Add(UserAddArgs),
    /// Give a user a new password
    Passwd(PasswdArgs),
    /// Change a user's addresses, contact, profile, mailboxes, throttle parameters or trusted recipients
    Set(SetArgs),
    /// Lock an account: logins fail and show the reason, and open sessions are closed
    Lock(LockArgs),
    /// Secure a stolen account: lock it, give it a new password, and delete its mail that is held or waits for delivery
    Secure(SecureArgs),
    /// Unlock an account, and end a stop by the throttle; mail that waits is then sent one by one
    Unlock(NameArgs),
    /// Remove a user who has no held mail
    ///
    /// Weir forgets whom the user has written to at once, and the figures of the throttle after eight days.
    Remove(RemoveArgs),
    /// List all users
    List(UserListArgs),
    /// Show one user with the state of the throttle, failed logins and past stops
    Show(NameArgs),
}

impl User {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            User::Add(args) => args.run(out),
            User::Passwd(args) => args.run(out),
            User::Set(args) => args.run(out),
            User::Lock(args) => args.run(out),
            User::Unlock(args) => unlock(args, out),
            User::Remove(args) => args.run(out),
            User::Secure(args) => args.run(out),
            User::List(args) => args.run(out),
            User::Show(args) => show(args, out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct NameArgs {
    /// The login
    name: String,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ProfileName {
    /// A person, with the parameters of [throttle]
    Person,
    /// Somebody who writes to many people at once, with the parameters of [throttle.list]
    List,
    /// A program, with the parameters of [throttle.application]
    Application,
    /// Never throttled
    Exempt,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Profile {
        match name {
            ProfileName::Person => Profile::Person,
            ProfileName::List => Profile::List,
            ProfileName::Application => Profile::Application,
            ProfileName::Exempt => Profile::Exempt,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct UserAddArgs {
    /// The login; if users are known by their client address, that address, such as 192.0.2.7 or 2001:db8::/64
    name: String,
    /// An address that the user may send from, or @example.org for a whole domain; may be given several times [default:
    /// the login, if it is an address]
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The address for notices; it should be outside this mail system
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    contact: String,
    /// What kind of sender this is
    #[arg(long, value_enum, default_value = "person")]
    profile: ProfileName,
    /// A mailbox whose quarantined spam the user may see, besides that of the login; may be given several times. Being
    /// allowed to send from an address does not include this
    #[arg(long, value_name = "ADDRESS")]
    reads: Vec<String>,
    #[command(flatten)]
    password: PasswordSource,
    /// Set no password here: the user logs in through Dovecot, or not at all
    #[arg(long, conflicts_with_all = ["password_stdin", "generate"])]
    no_password: bool,
    #[command(flatten)]
    asking: Asking,
}

impl UserAddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let password = if self.no_password { None } else { Some(self.password.read(&self.name)?) };
        let new = NewUser {
            name: self.name.clone(),
            password: password.as_ref().map(|password| password.text.clone()),
            addresses: self.addresses.clone(),
            contact: self.contact.clone(),
            profile: self.profile.into(),
            reads: self.reads.clone(),
        };
        let page = control.ask(&users::ADD, &new)?;
        if self.asking.json {
            return print_answer(out, &WithPassword::new(&page, password.as_ref()));
        }
        print::added(out, &page, password.as_ref())
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
        // This reports an unknown user before it asks for a password.
        control.ask_of(&users::SHOW, &self.name, &())?;
        let password = self.password.read(&self.name)?;
        let new = NewPassword { password: password.text.clone() };
        let page = control.ask_of(&users::PASSWORD, &self.name, &new)?;
        if self.asking.json {
            return print_answer(out, &WithPassword::new(&page, Some(&password)));
        }
        writeln!(out, "{} has a new password.", self.name)?;
        Ok(password.print(out)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct SetArgs {
    /// The login
    name: String,
    /// An address that the user may send from; may be given several times. The old addresses are replaced
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The address for notices; "" for none
    #[arg(long, value_name = "ADDRESS")]
    contact: Option<String>,
    /// What kind of sender this is
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// A recipient to trust: mail from this user to them never waits; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    trust: Vec<String>,
    /// A recipient to trust no longer; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    distrust: Vec<String>,
    /// A mailbox whose quarantined spam the user may see, besides that of the login; may be given several times. The
    /// old ones are replaced; "" for none
    #[arg(long, value_name = "ADDRESS")]
    reads: Option<Vec<String>>,
    #[command(flatten)]
    throttle: ThrottleArgs,
    #[command(flatten)]
    asking: Asking,
}

/// Throttle parameters of one user.
#[derive(clap::Args)]
#[command(next_help_heading = "Throttle parameters for this user alone, instead of those of the profile")]
struct ThrottleArgs {
    /// First drop all throttle parameters that were set for this user alone
    #[arg(long)]
    reset_throttle: bool,
    #[command(flatten)]
    options: ThrottleOptions,
}

impl ThrottleArgs {
    fn own(&self) -> OwnThrottle {
        let own = OwnThrottle::default().resetting(self.reset_throttle);
        self.options.given().iter().fold(own, |own, (param, given)| own.with(param.name, asked(*given)))
    }
}

fn asked(given: Given) -> ParamValue {
    match given {
        Given::Rate(rate) => ParamValue::PerMin(rate.count * 60.0 / rate.per.as_secs_f64()),
        Given::Number(number) => ParamValue::Number(number),
        Given::Word(second) => ParamValue::Second(second),
    }
}

impl SetArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let change = Change {
            addresses: (!self.addresses.is_empty()).then(|| self.addresses.clone()),
            contact: self.contact.clone(),
            profile: self.profile.map(Into::into),
            throttle: self.throttle.own(),
            trust: self.trust.clone(),
            distrust: self.distrust.clone(),
            reads: self.reads.as_ref().map(|reads| reads.iter().filter(|one| !one.is_empty()).cloned().collect()),
        };
        let page = self.asking.reach()?.ask_of(&users::SET, &self.name, &change)?;
        self.asking.answer(out, &page, print::page)
    }
}

#[derive(clap::Args)]
pub(crate) struct LockArgs {
    /// The login
    name: String,
    /// The reason, which the user is shown when a login fails
    #[arg(long, value_name = "TEXT", default_value = "locked by the administrator")]
    reason: String,
    #[command(flatten)]
    asking: Asking,
}

impl LockArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let why = Reason { reason: self.reason.clone() };
        let done = self.asking.reach()?.ask_of(&users::LOCK, &self.name, &why)?;
        self.asking.answer(out, &done, |out, done| print::locked(out, done, &self.reason))
    }
}

#[derive(clap::Args)]
pub(crate) struct SecureArgs {
    /// The login
    name: String,
    #[command(flatten)]
    password: PasswordSource,
    /// Delete the mail without asking
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

impl SecureArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let page = control.ask_of(&users::SHOW, &self.name, &())?;
        let held = count(page.throttle.held, "held recipient");
        let question =
            format!("Lock {}, and permanently delete {held} and all mail that waits for delivery?", self.name);
        if !self.yes && !prompt::confirmed(&question)? {
            writeln!(out, "Nothing was done.")?;
            return Ok(());
        }
        // If another system checks the password, a new one here would have no effect, so none is asked for.
        let password = match &page.password_elsewhere {
            Some(_) => None,
            None => Some(self.password.read(&self.name)?),
        };
        let with = Secure { password: password.as_ref().map(|password| password.text.clone()) };
        let done = control.ask_of(&users::SECURE, &self.name, &with)?;
        let password = password.filter(|_| done.new_password);
        if self.asking.json {
            return print_answer(out, &WithPassword::new(&done, password.as_ref()));
        }
        writeln!(
            out,
            "{} is locked{}; deleted: {} of {}, and {} that waited for delivery.",
            done.name,
            if done.new_password { " and has a new password" } else { "" },
            count(done.recipients_deleted, "held recipient"),
            count(done.messages_deleted, "message"),
            count(done.queued_deleted, "message")
        )?;
        if let Some(problem) = &done.queue_problem {
            writeln!(out, "NOT DONE: mail that waits for delivery could not be deleted, and may still go: {problem}")?;
        }
        match &done.password_elsewhere {
            Some(who) if done.new_password => writeln!(out, "NOT DONE: change the password elsewhere as well: {who}.")?,
            Some(who) => writeln!(out, "NOT DONE: the password is the old one: {who}. Change it there first.")?,
            None => {}
        }
        writeln!(out, "`weir user unlock {}` lets them send again.", done.name)?;
        if let Some(password) = password {
            password.print(out)?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct RemoveArgs {
    /// The login
    name: String,
    /// Remove the user without asking
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

impl RemoveArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        // This reports an unknown user before it asks for confirmation.
        control.ask_of(&users::SHOW, &self.name, &())?;
        if !self.yes && !prompt::confirmed(&format!("Remove the user {} permanently?", self.name))? {
            writeln!(out, "Nothing was removed.")?;
            return Ok(());
        }
        let done = control.ask_of(&users::REMOVE, &self.name, &())?;
        self.asking.answer(out, &done, |out, done| Ok(writeln!(out, "The user {} was removed.", done.name)?))
    }
}

fn unlock(args: &NameArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let done = args.asking.reach()?.ask_of(&users::UNLOCK, &args.name, &())?;
    args.asking.answer(out, &done, print::unlocked)
}

fn show(args: &NameArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let control = args.asking.reach()?;
    let page = control.ask_of(&users::SHOW, &args.name, &())?;
    let stops = control.ask_of(&users::STOPS, &args.name, &())?;
    args.asking.answer(out, &UserWithStops { page, stops }, |out, shown| {
        print::page(out, &shown.page)?;
        print::stops(out, &shown.stops)
    })
}

/// A user, with the times when the throttle stopped them.
#[derive(serde::Serialize)]
struct UserWithStops {
    #[serde(flatten)]
    page: UserPage,
    stops: Vec<PastStop>,
}

#[derive(clap::Args)]
pub(crate) struct UserListArgs {
    /// Only users who are locked or stopped, or who have held mail
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    asking: Asking,
}

impl UserListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let mut users = Vec::new();
        let mut after = String::new();
        loop {
            let answer = control.ask(&users::LIST, &After { after })?;
            users.extend(answer.users);
            match answer.next {
                Some(next) => after = next,
                None => break,
            }
        }
        if self.busy {
            users.retain(|user| user.state != "active" || user.held != 0);
        }
        if self.asking.json { print_answer(out, &users) } else { print::list(out, &users, self.busy) }
    }
}
