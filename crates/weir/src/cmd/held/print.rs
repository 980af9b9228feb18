//! Prints held mail for people.

use crate::answer::{bytes, count, time};
use crate::table::{Table, shown};
use std::io::Write;
use weir_mail::operations::{Analysed, HeldDone, HeldList, HeldMessage, HeldPage, LearnedView};

/// At most this many recipients of a message are shown.
const RECIPIENTS_SHOWN: usize = 20;

pub(super) fn list(out: &mut dyn Write, answer: &HeldList) -> anyhow::Result<()> {
    if answer.messages.is_empty() {
        writeln!(out, "Nothing is held.")?;
        return Ok(());
    }
    let mut table = Table::new(&["USER", "MESSAGE", "WAITS FOR", "SINCE (UTC)", "NEXT GOES (UTC)", "SUBJECT"]);
    for held in &answer.messages {
        let wait_for = match held.recipients.as_slice() {
            [one] => one.address.clone(),
            many => count(many.len(), "recipient"),
        };
        table.row([
            held.user.clone(),
            held.message.clone(),
            wait_for,
            time(&held.since),
            next(held),
            held.subject.clone(),
        ]);
    }
    table.write(out)?;
    let verb = if answer.recipients == 1 { "waits" } else { "wait" };
    let (recipients, messages) = (count(answer.recipients, "recipient"), count(answer.messages.len(), "message"));
    writeln!(out, "\n{recipients} of {messages} {verb}.")?;
    if answer.more {
        writeln!(out, "There are more than are shown here; select some of them with --user or --to.")?;
    }
    writeln!(
        out,
        "`weir held show MESSAGE` says why one waits; `weir held release` sends it, `weir held delete` deletes it."
    )?;
    Ok(())
}

fn next(held: &HeldMessage) -> String {
    if held.relay_down {
        return format!("relay {} is down", held.relay);
    }
    if held.file_missing {
        return "its file is missing".to_owned();
    }
    match held.recipients.iter().filter_map(|to| to.expected.as_deref()).min() {
        _ if held.stopped => "stopped".to_owned(),
        Some(at) => time(at),
        None => "now".to_owned(),
    }
}

pub(super) fn page(out: &mut dyn Write, page: &HeldPage) -> anyhow::Result<()> {
    let held = &page.held;
    writeln!(out, "{}  {}", held.message, shown(&held.subject))?;
    let size = match page.size_bytes {
        Some(size) => bytes(size),
        None if held.file_missing => "unknown, its file is missing".to_owned(),
        None => "unknown, another relay keeps the file".to_owned(),
    };
    let rows = [
        ("user", held.user.clone()),
        ("from", held.sender.clone()),
        ("came from", held.source.clone()),
        ("held since", format!("{} UTC", time(&held.since))),
        ("size", size),
        ("file", page.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(out, "  {name:<11} {value}")?;
    }
    writeln!(out, "\nWhy: {}.", page.why)?;
    writeln!(out, "\nIt waits for")?;
    let recipients = &held.recipients;
    for to in recipients.iter().take(RECIPIENTS_SHOWN) {
        let goes = match &to.expected {
            None => "waits for a decision".to_owned(),
            Some(at) => format!("goes at {} UTC", time(at)),
        };
        writeln!(out, "  {:<40} {goes}", shown(&to.address))?;
    }
    if recipients.len() > RECIPIENTS_SHOWN {
        writeln!(out, "  and {} more (--json has all)", recipients.len() - RECIPIENTS_SHOWN)?;
    }
    attachments(out, page)?;
    writeln!(out, "\nWhat you can do")?;
    for choice in &page.choices {
        writeln!(out, "  {choice}")?;
    }
    if !page.header.is_empty() {
        writeln!(out, "\nIts header begins with")?;
        for line in page.header.iter().take(RECIPIENTS_SHOWN) {
            writeln!(out, "  | {line}")?;
        }
    }
    Ok(())
}

fn attachments(out: &mut dyn Write, page: &HeldPage) -> anyhow::Result<()> {
    if page.attachments.is_empty() && page.attachments_unseen.is_none() {
        return Ok(());
    }
    writeln!(out, "\nIts attachments")?;
    for one in &page.attachments {
        let name = if one.name.is_empty() { "unnamed".to_owned() } else { shown(&one.name) };
        writeln!(out, "  {name:<40} {}, {}", shown(&one.media_type), bytes(one.size_bytes))?;
    }
    if let Some(why) = &page.attachments_unseen {
        writeln!(out, "  perhaps more: {why}")?;
    }
    Ok(())
}

pub(super) fn released(out: &mut dyn Write, done: &HeldDone, running: bool) -> anyhow::Result<()> {
    let when = if running { "goes now" } else { "goes as soon as Weir runs again" };
    writeln!(out, "{} {when}.", decided(done))?;
    if !done.trusted.is_empty() {
        writeln!(out, "Trusted from now on: {}.", some(&done.trusted))?;
    }
    aftermath(out, done)
}

pub(super) fn deleted(out: &mut dyn Write, done: &HeldDone) -> anyhow::Result<()> {
    writeln!(out, "{} is deleted.", decided(done))?;
    aftermath(out, done)
}

fn decided(done: &HeldDone) -> String {
    let mail = match done.messages.as_slice() {
        [one] => format!("Message {one}"),
        many => format!("Mail in {}", count(many.len(), "message")),
    };
    format!("{mail} to {}", count(done.recipients, "recipient"))
}

fn aftermath(out: &mut dyn Write, done: &HeldDone) -> anyhow::Result<()> {
    if !done.stops_ended.is_empty() {
        writeln!(out, "Nothing is left to decide: {} may send again.", some(&done.stops_ended))?;
    }
    if !done.locked.is_empty() {
        let named = some(&done.locked);
        writeln!(
            out,
            "Locked, because the throttle had stopped it: {named}. A new password (weir user passwd) or weir user \
             unlock ends the lock."
        )?;
    }
    for relay in &done.relays_down {
        writeln!(out, "The relay {relay} is down; it will do its part when it is back.")?;
    }
    Ok(())
}

fn some(names: &[String]) -> String {
    let first = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{first} and {} more", names.len() - 5) } else { first }
}

pub(super) fn analysed(out: &mut dyn Write, done: &Analysed) -> anyhow::Result<()> {
    let samples: Vec<String> = done.samples.iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "{} with {}: {} submitted to the lab, {} already known there.",
        count(done.messages, "held message"),
        count(done.attachments, "attachment"),
        done.submitted,
        done.known
    )?;
    if !samples.is_empty() {
        writeln!(out, "Samples {}; `weir lab report` shows what they are.", some(&samples))?;
    }
    for problem in &done.problems {
        writeln!(out, "Not sent: {problem}")?;
    }
    let left = done.messages_left;
    if left > 0 {
        writeln!(out, "There was not enough time for {}: run the command again.", count(left, "more message"))?;
    }
    Ok(())
}

pub(super) fn learned(out: &mut dyn Write, seen: &[LearnedView], days: i64) -> anyhow::Result<()> {
    if seen.is_empty() {
        writeln!(out, "Nothing was learned in the last {}.", count(days, "day"))?;
        writeln!(out, "Learn-only mode (throttle.learn_only) records what the throttle would have done.")?;
        return Ok(());
    }
    writeln!(out, "What the throttle would have done in the last {}, the worst first.\n", count(days, "day"))?;
    let mut table = Table::new(&["USER", ">MAILS", ">RECIPIENTS", ">WOULD HOLD", ">WOULD STOP", "LAST DAY"]);
    for user in seen {
        table.row([
            user.user.clone(),
            user.mails.to_string(),
            user.recipients.to_string(),
            user.would_hold.to_string(),
            user.would_stop.to_string(),
            user.last_day.clone(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
