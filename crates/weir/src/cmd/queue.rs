//! `weir queue`: outgoing mail that waits for delivery.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::Asking;
use crate::prompt;
use crate::table::Table;
use std::io::Write;
use weir_console::api::queue::{self, Filter};
use weir_mail::operations::{QueueDone, QueueList, QueueSelection};

#[derive(clap::Subcommand)]
pub(crate) enum QueueVerb {
    /// List mail that waits for delivery
    List(QueueListArgs),
    /// Try to deliver mail again now
    Retry(RetryArgs),
    /// Delete mail that waits for delivery; the senders are not told
    Delete(DeleteArgs),
}

impl QueueVerb {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            QueueVerb::List(args) => args.run(out),
            QueueVerb::Retry(args) => args.run(out),
            QueueVerb::Delete(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct QueueListArgs {
    /// Only mail from this user
    #[arg(long, short, value_name = "NAME", default_value = "")]
    user: String,
    /// Only mail to this domain
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    domain: String,
    #[command(flatten)]
    asking: Asking,
}

impl QueueListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let filter = Filter { user: self.user.clone(), domain: self.domain.clone(), ..Filter::default() };
        let answer = self.asking.reach()?.ask(&queue::LIST, &filter)?;
        self.asking.answer(out, &answer, print_list)
    }
}

fn print_list(out: &mut dyn Write, answer: &QueueList) -> anyhow::Result<()> {
    if answer.messages.is_empty() {
        writeln!(out, "Nothing waits for delivery.")?;
        return Ok(());
    }
    let mut table =
        Table::new(&["MESSAGE", "USER", "TO", ">SIZE", "ACCEPTED (UTC)", ">TRIED", "NEXT TRY (UTC)", "LAST ANSWER"]);
    for message in &answer.messages {
        let to = match message.recipients.as_slice() {
            [one] => one.address.clone(),
            many => count(many.len(), "recipient"),
        };
        let said = message.recipients.iter().map(|to| &to.last_answer).find(|said| !said.is_empty());
        let user = match message.user.as_str() {
            "" => "(weir)",
            user => user,
        };
        table.row([
            message.message.clone(),
            user.to_owned(),
            to,
            bytes(message.size_bytes),
            time(&message.accepted),
            message.attempts.to_string(),
            message.next_attempt.as_deref().map_or_else(|| "now".to_owned(), time),
            said.cloned().unwrap_or_default(),
        ]);
    }
    table.write(out)?;
    let (total, shown) = (answer.total, answer.messages.len());
    let verb = if total == 1 { "waits" } else { "wait" };
    writeln!(out, "\n{} {verb} for delivery.", count(total, "message"))?;
    if total > shown {
        writeln!(out, "The oldest {shown} are shown; select others with --user or --domain.")?;
    }
    Ok(())
}

/// Which outgoing mail; everything given must fit.
#[derive(clap::Args)]
struct QueueSelectionArgs {
    /// The ids of messages, as shown by `weir queue list`; with --user or --domain, only those that also match
    #[arg(value_name = "MESSAGE")]
    messages: Vec<String>,
    /// Mail from this user
    #[arg(long, short, value_name = "NAME", default_value = "")]
    user: String,
    /// Mail to this domain
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    domain: String,
    /// All outgoing mail
    #[arg(long, conflicts_with_all = ["messages", "user", "domain"])]
    all: bool,
}

impl QueueSelectionArgs {
    fn selection(&self) -> QueueSelection {
        QueueSelection {
            messages: self.messages.clone(),
            user: self.user.clone(),
            domain: self.domain.clone(),
            all: self.all,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    which: QueueSelectionArgs,
    #[command(flatten)]
    asking: Asking,
}

impl RetryArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let done = control.ask(&queue::RETRY, &self.which.selection())?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        let when = if control.is_running() { "tried again now" } else { "tried when Weir runs again" };
        let (messages, verb) = concerned(&done);
        writeln!(out, "{messages} {verb} {when}.")?;
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: QueueSelectionArgs,
    /// Do not ask before deleting messages that were not named by their ids
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

impl DeleteArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let QueueSelectionArgs { messages, user, domain, .. } = &self.which;
        let nothing_or_named = self.which.selection() == QueueSelection::default() || !messages.is_empty();
        if !nothing_or_named && !self.yes {
            let filter = Filter { user: user.clone(), domain: domain.clone(), ..Filter::default() };
            let total = control.ask(&queue::LIST, &filter)?.total;
            if total > 0 && !prompt::confirmed(&format!("Delete {} permanently?", count(total, "outgoing message")))? {
                writeln!(out, "Nothing was deleted.")?;
                return Ok(());
            }
        }
        let done = control.ask(&queue::DELETE, &self.which.selection())?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        let (messages, verb) = concerned(&done);
        writeln!(out, "{messages} {verb} deleted; the senders are not told.")?;
        Ok(())
    }
}

fn concerned(done: &QueueDone) -> (String, &'static str) {
    match done.messages.as_slice() {
        [one] => (format!("Message {one}"), "is"),
        many => (count(many.len(), "message"), "are"),
    }
}
