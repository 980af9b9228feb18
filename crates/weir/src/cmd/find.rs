//! `weir find`: finds messages by sender, recipient, subject and the like.

use crate::answer::{bytes, count, time};
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use weir_console::api::find::FIND;
use weir_mail::operations::{FoundMail, MailFilter, MailFound};

/// Longer subjects and addresses are cut off in a line.
const SUBJECT_MAX: usize = 50;
const ADDRESS_MAX: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Words that a message must all contain, in any field, or the id of a message; a word may end in *
    text: Vec<String>,
    /// Only mail from this envelope sender: an address, the part before the @, or a domain
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    from: String,
    /// Only mail to this recipient: an address, the part before the @, or a domain
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    to: String,
    /// Only mail with these words in its subject
    #[arg(long, short, value_name = "WORDS", default_value = "")]
    subject: String,
    /// Only mail from the client with this address
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    client: String,
    /// Only mail sent by this user
    #[arg(long, short, value_name = "NAME", default_value = "")]
    login: String,
    /// Only mail with this verdict of the scan: clean, infected, spam, suspicious, forbidden, failed, or a word from
    /// the name of a virus
    #[arg(long, value_name = "WORD", default_value = "")]
    verdict: String,
    /// Only mail in this state: accepted, held, scanned, "waits for the scan", "waits for the lab", quarantined,
    /// released, deleted, delivered, deferred, bounced or refused; it is enough if some of the recipients are in it
    #[arg(long, value_name = "WORD", default_value = "")]
    state: String,
    /// Only mail since this time (2026-11-17T18:00:00Z, 2026-11-17) or not older than this (90m, 2h, 7d)
    #[arg(long, value_name = "TIME", default_value = "")]
    since: String,
    /// Only mail before this time, or older than this
    #[arg(long, value_name = "TIME", default_value = "")]
    until: String,
    /// Show at most this many messages (up to 200)
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 50)]
    most: usize,
    /// Show the page after another one: the number that was printed at the end of that one
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    after: Option<i64>,
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let filter = MailFilter {
            text: self.text.join(" "),
            from: self.from.clone(),
            to: self.to.clone(),
            subject: self.subject.clone(),
            client: self.client.clone(),
            login: self.login.clone(),
            verdict: self.verdict.clone(),
            state: self.state.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
            after: self.after,
            most: Some(self.most),
        };
        let found = self.asking.reach()?.ask(&FIND, &filter)?;
        self.asking.answer(out, &found, print)
    }
}

fn print(out: &mut dyn Write, found: &MailFound) -> anyhow::Result<()> {
    if found.messages.is_empty() {
        writeln!(out, "No message matches.")?;
    } else {
        let mut table = Table::new(&["MESSAGE", "CAME (UTC)", "FROM", "TO", ">SIZE", "STATE", "VERDICT", "SUBJECT"]);
        for mail in &found.messages {
            table.row([
                mail.message.clone(),
                time(&mail.at),
                tame(if mail.from.is_empty() { "<>" } else { &mail.from }, ADDRESS_MAX),
                to(mail),
                if mail.size_bytes > 0 { bytes(mail.size_bytes) } else { String::new() },
                mail.state.clone(),
                tame(&mail.verdict, ADDRESS_MAX),
                tame(&mail.subject, SUBJECT_MAX),
            ]);
        }
        table.write(out)?;
        writeln!(
            out,
            "\n{}; `weir trace MESSAGE` shows what happened to one of them.",
            count(found.messages.len(), "message")
        )?;
    }
    if let Some(next) = found.next {
        writeln!(out, "There are older ones; to see them, add --after {next}")?;
    }
    for note in &found.notes {
        writeln!(out, "Note: {note}")?;
    }
    Ok(())
}

fn to(mail: &FoundMail) -> String {
    match (mail.to.first(), mail.recipients) {
        (Some(one), 0 | 1) => tame(one, ADDRESS_MAX),
        (Some(one), many) => format!("{} and {} more", tame(one, ADDRESS_MAX), many - 1),
        (None, _) => String::new(),
    }
}

/// Makes text of strangers safe for the terminal, which could otherwise obey control characters in it.
fn tame(text: &str, most: usize) -> String {
    weir_scan::plain::shown(text, most)
}
