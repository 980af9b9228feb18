//! `weir held`: the throttle's delay queues.

mod print;

use crate::answer::{count, print_answer};
use crate::control::{Asking, Control};
use crate::prompt;
use std::io::Write;
use weir_console::api::held::{self, Days, Filter, Release};
use weir_mail::operations::HeldSelection;

#[derive(clap::Subcommand)]
pub(crate) enum HeldVerb {
    /// List held mail, grouped by message
    List(HeldListArgs),
    /// Show one held message: why it is held, since when, when it will be sent, and what you can do
    Show(ShowArgs),
    /// Send held mail now
    Release(ReleaseArgs),
    /// Delete held mail; the senders are not told
    Delete(DeleteArgs),
    /// Submit the attachments of held mail to the lab, identical ones only once
    Analyse(AnalyseArgs),
    /// Show what the throttle would have held, as recorded in learn-only mode
    Learned(LearnedArgs),
}

impl HeldVerb {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            HeldVerb::List(args) => args.run(out),
            HeldVerb::Show(args) => args.run(out),
            HeldVerb::Release(args) => args.run(out),
            HeldVerb::Delete(args) => args.run(out),
            HeldVerb::Analyse(args) => args.run(out),
            HeldVerb::Learned(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct HeldListArgs {
    /// Only mail from this user
    #[arg(long, short, value_name = "NAME", default_value = "")]
    user: String,
    /// Only mail to this recipient
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    to: String,
    #[command(flatten)]
    asking: Asking,
}

impl HeldListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let filter = Filter { user: self.user.clone(), recipient: self.to.clone(), ..Filter::default() };
        let answer = self.asking.reach()?.ask(&held::LIST, &filter)?;
        self.asking.answer(out, &answer, print::list)
    }
}

#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the message, as shown by `weir held list`
    message: String,
    #[command(flatten)]
    asking: Asking,
}

impl ShowArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let page = self.asking.reach()?.ask_of(&held::SHOW, &self.message, &())?;
        self.asking.answer(out, &page, print::page)
    }
}

/// Which held mail; everything given must fit.
#[derive(clap::Args)]
struct HeldSelectionArgs {
    /// The ids of messages, as shown by `weir held list`; with --user or --to, only those that also match
    #[arg(value_name = "MESSAGE")]
    messages: Vec<String>,
    /// Mail from this user
    #[arg(long, short, value_name = "NAME", default_value = "")]
    user: String,
    /// Mail to this recipient
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    to: String,
    /// All held mail of all users
    #[arg(long, conflicts_with_all = ["messages", "user", "to"])]
    all: bool,
}

impl HeldSelectionArgs {
    fn selection(&self) -> HeldSelection {
        HeldSelection {
            messages: self.messages.clone(),
            user: self.user.clone(),
            recipient: self.to.clone(),
            all: self.all,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: HeldSelectionArgs,
    /// Also trust the recipients: mail from the same user to them will never wait again
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    asking: Asking,
}

impl ReleaseArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let release = Release { selection: self.which.selection(), trust: self.trust };
        let done = control.ask(&held::RELEASE, &release)?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        print::released(out, &done, control.is_running())
    }
}

#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: HeldSelectionArgs,
    /// Do not ask before deleting messages that were not named by their ids
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

impl DeleteArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let nothing_or_named = self.which.selection() == HeldSelection::default() || !self.which.messages.is_empty();
        if !nothing_or_named && !self.yes && !self.confirmed(&control)? {
            writeln!(out, "Nothing was deleted.")?;
            return Ok(());
        }
        let done = control.ask(&held::DELETE, &held::Which { selection: self.which.selection() })?;
        self.asking.answer(out, &done, print::deleted)
    }

    fn confirmed(&self, control: &Control) -> anyhow::Result<bool> {
        let HeldSelectionArgs { user, to, .. } = &self.which;
        let filter = Filter { user: user.clone(), recipient: to.clone(), ..Filter::default() };
        let held = control.ask(&held::LIST, &filter)?;
        if held.recipients == 0 {
            // Nothing is held: the gate's own answer says so.
            return Ok(true);
        }
        let more = if held.more { "at least " } else { "" };
        prompt::confirmed(&format!(
            "Delete {more}{} for {} permanently?",
            count(held.messages.len(), "message"),
            count(held.recipients, "recipient")
        ))
    }
}

#[derive(clap::Args)]
pub(crate) struct AnalyseArgs {
    #[command(flatten)]
    which: HeldSelectionArgs,
    #[command(flatten)]
    asking: Asking,
}

impl AnalyseArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let done = control.ask(&held::ANALYSE, &held::Which { selection: self.which.selection() })?;
        self.asking.answer(out, &done, print::analysed)
    }
}

#[derive(clap::Args)]
pub(crate) struct LearnedArgs {
    /// How many days to look back
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=36_500))]
    days: i64,
    #[command(flatten)]
    asking: Asking,
}

impl LearnedArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let answer = self.asking.reach()?.ask(&held::LEARNED, &Days { days: self.days })?;
        self.asking.answer(out, &answer, |out, answer| print::learned(out, answer, self.days))
    }
}
