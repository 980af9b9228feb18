//! `weir quarantine`: mail that may not pass.

use crate::answer::{bytes, count, list, number, print_json, text, texts, time};
use crate::control::{Asking, Control, encoded, query};
use crate::prompt;
use crate::table::{Table, shown};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write;
use weir_mail::desk::QuarantineSelection;
use weir_scan::verdict::Outcome;
use weir_settings::units::Span;

#[derive(clap::Subcommand)]
pub(crate) enum Quarantine {
    /// List quarantined mail, newest first
    List(ListArgs),
    /// Show one quarantined message: why, what each scanner said, what can be done
    Show(ShowArgs),
    /// Send quarantined mail on as it is
    Release(ReleaseArgs),
    /// Drop quarantined mail; nobody is told
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
struct Filter {
    /// Only in this quarantine: virus, ext, spam, error or limit
    #[arg(long, short, value_name = "QUEUE", default_value = "")]
    queue: String,
    /// Only mail to this recipient
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    to: String,
    /// Only mail from this envelope sender
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    from: String,
    /// Only mail that has been there for so long, such as 7d
    #[arg(long, value_name = "TIME")]
    older_than: Option<Span>,
}

impl Filter {
    fn selection(&self, messages: &[String], all: bool) -> QuarantineSelection {
        QuarantineSelection {
            messages: messages.to_vec(),
            queue: self.queue.clone(),
            recipient: self.to.clone(),
            sender: self.from.clone(),
            older_than_s: self.older_than.as_ref().map_or(0, |span| span.0.as_secs().max(1)),
            all,
            ..QuarantineSelection::default()
        }
    }

    fn query(&self) -> String {
        let older = self.older_than.as_ref().map_or_else(String::new, |span| span.0.as_secs().max(1).to_string());
        query(&[("queue", &self.queue), ("recipient", &self.to), ("sender", &self.from), ("older_than_s", &older)])
    }
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    asking: Asking,
}

impl ListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let answer = self.asking.reach()?.get(&format!("/quarantine{}", self.filter.query()))?;
        self.asking.answer(out, &answer, print_list)
    }
}

fn print_list(out: &mut dyn Write, answer: &Value) -> anyhow::Result<()> {
    let entries = list(answer, "entries");
    if entries.is_empty() {
        writeln!(out, "Nothing of that kind is in quarantine.")?;
        return Ok(());
    }
    let mut table = Table::new(&["QUEUE", "MESSAGE", "FROM", "TO", "SINCE (UTC)", ">SIZE", "WHY"]);
    for entry in entries {
        let to = match list(entry, "recipients") {
            [one] => one.as_str().unwrap_or_default().to_owned(),
            many => count(many.len() as u64, "recipient"),
        };
        table.row([
            text(entry, "queue").to_owned(),
            text(entry, "message").to_owned(),
            sender(entry),
            to,
            time(entry, "since"),
            bytes(number(entry, "size_bytes")),
            text(entry, "reason").to_owned(),
        ]);
    }
    table.write(out)?;
    let total = |total: &Value| {
        let (messages, size) = (count(number(total, "messages"), "message"), bytes(number(total, "bytes")));
        format!("{} {messages} ({size})", text(total, "queue"))
    };
    let totals: Vec<String> = list(answer, "totals").iter().map(total).collect();
    writeln!(out, "\nIn all: {}.", totals.join(", "))?;
    if answer["more"] == true {
        writeln!(out, "There are more than fit here: use --queue, --to, --from or --older-than.")?;
    }
    writeln!(out, "`weir quarantine show MESSAGE` says why; `release` sends, `delete` drops.")?;
    Ok(())
}

fn sender(entry: &Value) -> String {
    match text(entry, "sender") {
        "" => "<>".to_owned(),
        sender => sender.to_owned(),
    }
}

#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    /// The message, by the id that `weir quarantine list` shows
    message: String,
    #[command(flatten)]
    asking: Asking,
}

impl ShowArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let page = self.asking.reach()?.get(&format!("/quarantine/messages/{}", encoded(&self.message)))?;
        self.asking.answer(out, &page, print_page)
    }
}

fn print_page(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    writeln!(out, "{}  {}", text(page, "message"), shown(text(page, "subject")))?;
    writeln!(out, "  {:<11} quarantine/{}: {}", "why", text(page, "queue"), shown_long(text(page, "reason")))?;
    writeln!(out, "  {:<11} {} UTC, {}", "since", time(page, "since"), bytes(number(page, "size_bytes")))?;
    let user = match text(page, "user") {
        "" => String::new(),
        user => format!(", user {user}"),
    };
    writeln!(out, "  {:<11} {}, handed in by {}{user}", "from", shown(&sender(page)), shown(text(page, "source")))?;
    writeln!(out, "  {:<11} {}", "to", shown_long(&texts(page, "recipients").join(", ")))?;
    for finding in list(&page["verdict"], "findings") {
        let outcome = &finding["outcome"];
        let what = Outcome::deserialize(outcome).map_or_else(|_| outcome.to_string(), |outcome| outcome.to_string());
        let place = text(finding, "place");
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        writeln!(out, "  {:<11} {}{}", text(finding, "scanner"), shown_long(&what), shown_long(&place))?;
    }
    if let Some(file) = page["file"].as_str() {
        writeln!(out, "  {:<11} {file}", "file")?;
    }
    writeln!(out)?;
    for line in texts(page, "header") {
        writeln!(out, "  | {}", shown_long(&line))?;
    }
    writeln!(out, "\nWhat can be done:")?;
    for choice in texts(page, "choices") {
        writeln!(out, "  {choice}")?;
    }
    Ok(())
}

/// Text of strangers in a line of its own.
fn shown_long(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).take(400).collect()
}

/// Which mail is decided on.
#[derive(clap::Args)]
struct Which {
    /// Messages, by the ids that `weir quarantine list` shows
    #[arg(value_name = "MESSAGE")]
    messages: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// All quarantined mail
    #[arg(long, conflicts_with_all = ["messages", "queue", "to", "from", "older_than"])]
    all: bool,
    /// Do not ask before deciding on more than single messages
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    asking: Asking,
}

impl Which {
    fn decide(&self, out: &mut dyn Write, verb: &str) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let selection = self.filter.selection(&self.messages, self.all);
        let bulk = self.messages.is_empty() && selection != QuarantineSelection::default();
        if bulk && !self.yes && !self.confirmed(&control, verb)? {
            writeln!(out, "Nothing was decided.")?;
            return Ok(());
        }
        let done = control.post(&format!("/quarantine/{verb}"), &json!({ "selection": selection }))?;
        if self.asking.json {
            return print_json(out, &done);
        }
        let (messages, recipients) = (list(&done, "messages").len() as u64, number(&done, "recipients"));
        let (messages, recipients) = (count(messages, "message"), count(recipients, "recipient"));
        match (verb, control.is_running()) {
            ("release", true) => writeln!(out, "{messages} for {recipients} go now, as they are.")?,
            ("release", false) => writeln!(out, "{messages} for {recipients} go when Weir runs.")?,
            _ => writeln!(out, "{messages} for {recipients} are deleted.")?,
        }
        Ok(())
    }

    fn confirmed(&self, control: &Control, verb: &str) -> anyhow::Result<bool> {
        let found = control.get(&format!("/quarantine{}", self.filter.query()))?;
        let messages = list(&found, "entries").len() as u64;
        if messages == 0 {
            // The gate says so, in its own words.
            return Ok(true);
        }
        let more = if found["more"] == true { "at least " } else { "" };
        let what = if verb == "release" { "Send" } else { "Delete" };
        prompt::confirmed(&format!("{what} {more}{} from quarantine?", count(messages, "message")))
    }
}

#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: Which,
}

impl ReleaseArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.which.decide(out, "release")
    }
}

#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
}

impl DeleteArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.which.decide(out, "delete")
    }
}
