//! `weir quarantine`: mail that the scan keeps, and decisions about it.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::{Asking, Control};
use crate::prompt;
use crate::table::{Table, shown};
use serde::Deserialize;
use std::io::Write;
use weir_console::api::Operation;
use weir_console::api::quarantine;
use weir_mail::operations::{QuarantineDone, QuarantineEntry, QuarantineList, QuarantinePage, QuarantineSelection};
use weir_scan::verdict::Outcome;
use weir_settings::units::Span;

#[derive(clap::Subcommand)]
pub(crate) enum Quarantine {
    /// List quarantined mail, newest first
    List(QuarantineListArgs),
    /// Show one quarantined message: why it is kept, what each scanner said, and what you can do
    Show(ShowArgs),
    /// Deliver quarantined mail unchanged
    Release(ReleaseArgs),
    /// Delete quarantined mail; nobody is told
    Delete(DeleteArgs),
}

impl Quarantine {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Quarantine::List(args) => args.run(out),
            Quarantine::Show(args) => args.run(out),
            Quarantine::Release(args) => args.run(out),
            Quarantine::Delete(args) => args.run(out),
        }
    }
}

/// Which mail; everything given must fit.
#[derive(clap::Args)]
struct QuarantineFilterArgs {
    /// Only in this quarantine: virus, ext, spam, error or limit
    #[arg(long, short, value_name = "QUEUE", default_value = "")]
    queue: String,
    /// Only mail to this recipient
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    to: String,
    /// Only mail from this envelope sender
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    from: String,
    /// Only mail that has been there for at least this long, such as 7d
    #[arg(long, value_name = "TIME")]
    older_than: Option<Span>,
    /// Only mail like this message: with the same quarantine, subject and reason, apart from numbers, file names and
    /// "Re:"
    #[arg(long, value_name = "MESSAGE", default_value = "")]
    like: String,
}

impl QuarantineFilterArgs {
    fn selection(&self, messages: &[String], all: bool) -> QuarantineSelection {
        QuarantineSelection {
            messages: messages.to_vec(),
            queue: self.queue.clone(),
            recipient: self.to.clone(),
            sender: self.from.clone(),
            older_than_s: self.older_than_s(),
            like: self.like.clone(),
            all,
            ..QuarantineSelection::default()
        }
    }

    fn of_list(&self) -> quarantine::Filter {
        quarantine::Filter {
            queue: self.queue.clone(),
            recipient: self.to.clone(),
            sender: self.from.clone(),
            older_than_s: self.older_than_s(),
            like: self.like.clone(),
            ..quarantine::Filter::default()
        }
    }

    fn older_than_s(&self) -> u64 {
        self.older_than.as_ref().map_or(0, |span| span.0.as_secs().max(1))
    }
}

#[derive(clap::Args)]
pub(crate) struct QuarantineListArgs {
    #[command(flatten)]
    filter: QuarantineFilterArgs,
    #[command(flatten)]
    asking: Asking,
}

impl QuarantineListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let answer = self.asking.reach()?.ask(&quarantine::LIST, &self.filter.of_list())?;
        self.asking.answer(out, &answer, print_list)
    }
}

fn print_list(out: &mut dyn Write, answer: &QuarantineList) -> anyhow::Result<()> {
    if answer.entries.is_empty() {
        writeln!(out, "There is no such mail in quarantine.")?;
        return Ok(());
    }
    let mut table = Table::new(&["QUEUE", "MESSAGE", "FROM", "TO", "SINCE (UTC)", ">SIZE", "WHY"]);
    for entry in &answer.entries {
        let to = match entry.recipients.as_slice() {
            [one] => one.clone(),
            many => count(many.len(), "recipient"),
        };
        table.row([
            entry.queue.clone(),
            entry.message.clone(),
            sender(entry),
            to,
            time(&entry.since),
            bytes(entry.size_bytes),
            entry.reason.clone(),
        ]);
    }
    table.write(out)?;
    let totals = answer.totals.iter().map(|total| {
        let (messages, size) = (count(total.messages, "message"), bytes(total.bytes));
        format!("{} {messages} ({size})", total.queue)
    });
    writeln!(out, "\nTotal: {}.", totals.collect::<Vec<_>>().join(", "))?;
    if answer.more {
        writeln!(
            out,
            "There are more than are shown here; select some of them with --queue, --to, --from or --older-than."
        )?;
    }
    writeln!(out, "`weir quarantine show MESSAGE` says why one is kept; `release` delivers it, `delete` deletes it.")?;
    Ok(())
}

fn sender(entry: &QuarantineEntry) -> String {
    match entry.sender.as_str() {
        "" => "<>".to_owned(),
        sender => sender.to_owned(),
    }
}

#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the message, as shown by `weir quarantine list`
    message: String,
    #[command(flatten)]
    asking: Asking,
}

impl ShowArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let page = self.asking.reach()?.ask_of(&quarantine::SHOW, &self.message, &())?;
        self.asking.answer(out, &page, print_page)
    }
}

fn print_page(out: &mut dyn Write, page: &QuarantinePage) -> anyhow::Result<()> {
    let entry = &page.entry;
    writeln!(out, "{}  {}", entry.message, shown(&entry.subject))?;
    writeln!(out, "  {:<11} quarantine/{}: {}", "why", entry.queue, shown_long(&entry.reason))?;
    writeln!(out, "  {:<11} {} UTC, {}", "since", time(&entry.since), bytes(entry.size_bytes))?;
    if let Some(until) = &entry.until {
        writeln!(out, "  {:<11} {} UTC, then it is deleted; earlier if the quarantine is full", "until", time(until))?;
    }
    let user = match entry.user.as_str() {
        "" => String::new(),
        user => format!(", user {user}"),
    };
    writeln!(out, "  {:<11} {}, received from {}{user}", "from", shown(&sender(entry)), shown(&entry.source))?;
    writeln!(out, "  {:<11} {}", "to", shown_long(&entry.recipients.join(", ")))?;
    // The verdict was stored together with the mail, perhaps by an older version.
    for finding in page.verdict["findings"].as_array().into_iter().flatten() {
        let outcome = &finding["outcome"];
        let what = Outcome::deserialize(outcome).map_or_else(|_| outcome.to_string(), |outcome| outcome.to_string());
        let [scanner, place] = ["scanner", "place"].map(|field| finding[field].as_str().unwrap_or_default());
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        writeln!(out, "  {scanner:<11} {}{}", shown_long(&what), shown_long(&place))?;
    }
    if let Some(file) = &page.file {
        writeln!(out, "  {:<11} {}", "file", file.display())?;
    }
    writeln!(out)?;
    for line in &page.header {
        writeln!(out, "  | {}", shown_long(line))?;
    }
    writeln!(out, "\nWhat can be done:")?;
    for choice in &page.choices {
        writeln!(out, "  {choice}")?;
    }
    Ok(())
}

/// Makes text of strangers safe for the terminal, for a line of its own.
fn shown_long(text: &str) -> String {
    weir_scan::plain::shown(text, 400)
}

/// Which mail is decided on.
#[derive(clap::Args)]
struct QuarantineSelectionArgs {
    /// The ids of messages, as shown by `weir quarantine list`; with other options, only those that also match
    #[arg(value_name = "MESSAGE")]
    messages: Vec<String>,
    #[command(flatten)]
    filter: QuarantineFilterArgs,
    /// All quarantined mail
    #[arg(long, conflicts_with_all = ["messages", "queue", "to", "from", "older_than", "like"])]
    all: bool,
    /// Do not ask before releasing or deleting messages that were not named by their ids
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

/// The decision about the mail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseOrDelete {
    Release,
    Delete,
}

impl ReleaseOrDelete {
    fn operation(self) -> &'static Operation<quarantine::Which, QuarantineDone> {
        match self {
            ReleaseOrDelete::Release => &quarantine::RELEASE,
            ReleaseOrDelete::Delete => &quarantine::DELETE,
        }
    }
}

impl QuarantineSelectionArgs {
    fn decide(&self, out: &mut dyn Write, decision: ReleaseOrDelete, (reason, to): (&str, &str)) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let selection = self.filter.selection(&self.messages, self.all);
        let bulk = self.messages.is_empty() && selection != QuarantineSelection::default();
        if bulk && !self.yes && !self.confirmed(&control, decision)? {
            writeln!(out, "Nothing was changed.")?;
            return Ok(());
        }
        let done = control.ask(
            decision.operation(),
            &quarantine::Which { selection, reason: reason.to_owned(), to: to.to_owned() },
        )?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        let (messages, recipients) = (count(done.messages.len(), "message"), count(done.recipients, "recipient"));
        match (decision, control.is_running()) {
            (ReleaseOrDelete::Release, _) if !to.is_empty() => {
                writeln!(out, "Released to {to} instead, unchanged: {messages} for {recipients}.")?;
            }
            (ReleaseOrDelete::Release, true) => writeln!(out, "Released unchanged: {messages} for {recipients}.")?,
            (ReleaseOrDelete::Release, false) => {
                writeln!(out, "Released, and delivered when Weir runs: {messages} for {recipients}.")?;
            }
            (ReleaseOrDelete::Delete, _) => writeln!(out, "Deleted: {messages} for {recipients}.")?,
        }
        Ok(())
    }

    fn confirmed(&self, control: &Control, decision: ReleaseOrDelete) -> anyhow::Result<bool> {
        let found = control.ask(&quarantine::LIST, &self.filter.of_list())?;
        if found.entries.is_empty() {
            // Nothing was found: the gate's own answer says so.
            return Ok(true);
        }
        let more = if found.more { "at least " } else { "" };
        let what = if decision == ReleaseOrDelete::Release { "Release" } else { "Delete" };
        prompt::confirmed(&format!("{what} {more}{} from quarantine?", count(found.entries.len(), "message")))
    }
}

#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: QuarantineSelectionArgs,
    /// The reason; infected mail is released only with a reason, and one message at a time
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Send the mail to this address instead of its recipients
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    send_to: String,
}

impl ReleaseArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.which.decide(out, ReleaseOrDelete::Release, (&self.reason, &self.send_to))
    }
}

#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: QuarantineSelectionArgs,
}

impl DeleteArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.which.decide(out, ReleaseOrDelete::Delete, ("", ""))
    }
}
