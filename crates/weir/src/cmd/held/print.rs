//! Held mail as people read it.

use crate::answer::{bytes, count, list as items, number, text, texts, time};
use crate::table::{Table, shown};
use serde_json::Value;
use std::io::Write;

/// Recipients shown of one message.
const RECIPIENTS_SHOWN: usize = 20;

pub(super) fn list(out: &mut dyn Write, answer: &Value) -> anyhow::Result<()> {
    let messages = items(answer, "messages");
    if messages.is_empty() {
        writeln!(out, "Nothing is held.")?;
        return Ok(());
    }
    let mut table = Table::new(&["USER", "MESSAGE", "WAITS FOR", "SINCE (UTC)", "NEXT GOES (UTC)", "SUBJECT"]);
    for held in messages {
        let recipients = items(held, "recipients");
        let wait_for = match recipients {
            [one] => text(one, "address").to_owned(),
            many => count(many.len() as u64, "recipient"),
        };
        table.row([
            text(held, "user").to_owned(),
            text(held, "message").to_owned(),
            wait_for,
            time(held, "since"),
            next(held, recipients),
            text(held, "subject").to_owned(),
        ]);
    }
    table.write(out)?;
    let (recipients, shown) = (number(answer, "recipients"), messages.len() as u64);
    let verb = if recipients == 1 { "waits" } else { "wait" };
    writeln!(out, "\n{} of {} {verb}.", count(recipients, "recipient"), count(shown, "message"))?;
    if answer["more"] == true {
        writeln!(out, "There are more than fit here: use --user or --to.")?;
    }
    writeln!(out, "`weir held show MESSAGE` says why; `weir held release` sends, `weir held delete` drops.")?;
    Ok(())
}

fn next(held: &Value, recipients: &[Value]) -> String {
    if held["relay_down"] == true {
        return format!("relay {} is down", text(held, "relay"));
    }
    if held["file_missing"] == true {
        return "its file is missing".to_owned();
    }
    match recipients.iter().map(|to| text(to, "expected")).filter(|at| !at.is_empty()).min() {
        _ if held["stopped"] == true => "stopped".to_owned(),
        Some(at) => at.replace('T', " ").trim_end_matches('Z').to_owned(),
        None => "now".to_owned(),
    }
}

pub(super) fn page(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    writeln!(out, "{}  {}", text(page, "message"), shown(text(page, "subject")))?;
    let size = match page["size_bytes"].as_u64() {
        Some(size) => bytes(size),
        None if page["file_missing"] == true => "unknown, its file is missing".to_owned(),
        None => "kept by another relay".to_owned(),
    };
    let rows = [
        ("user", text(page, "user").to_owned()),
        ("from", text(page, "sender").to_owned()),
        ("came from", text(page, "source").to_owned()),
        ("held since", format!("{} UTC", time(page, "since"))),
        ("size", size),
        ("file", text(page, "file").to_owned()),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(out, "  {name:<11} {value}")?;
    }
    writeln!(out, "\nWhy: {}.", text(page, "why"))?;
    writeln!(out, "\nIt waits for")?;
    let recipients = items(page, "recipients");
    for to in recipients.iter().take(RECIPIENTS_SHOWN) {
        let goes = match text(to, "expected") {
            "" => "waits for a decision".to_owned(),
            _ => format!("goes at {} UTC", time(to, "expected")),
        };
        writeln!(out, "  {:<40} {goes}", shown(text(to, "address")))?;
    }
    if recipients.len() > RECIPIENTS_SHOWN {
        writeln!(out, "  and {} more (--json has all)", recipients.len() - RECIPIENTS_SHOWN)?;
    }
    writeln!(out, "\nWhat you can do")?;
    for choice in texts(page, "choices") {
        writeln!(out, "  {choice}")?;
    }
    let header = texts(page, "header");
    if !header.is_empty() {
        writeln!(out, "\nIts header begins")?;
        for line in header.iter().take(RECIPIENTS_SHOWN) {
            writeln!(out, "  | {line}")?;
        }
    }
    Ok(())
}

pub(super) fn released(out: &mut dyn Write, done: &Value, running: bool) -> anyhow::Result<()> {
    let when = if running { "goes now" } else { "goes as soon as Weir runs again" };
    writeln!(out, "{} {when}.", decided(done))?;
    let trusted = texts(done, "trusted");
    if !trusted.is_empty() {
        writeln!(out, "Trusted from now on: {}.", some(&trusted))?;
    }
    aftermath(out, done)
}

pub(super) fn deleted(out: &mut dyn Write, done: &Value) -> anyhow::Result<()> {
    writeln!(out, "{} is deleted.", decided(done))?;
    aftermath(out, done)
}

fn decided(done: &Value) -> String {
    let messages = texts(done, "messages");
    let mail = match messages.as_slice() {
        [one] => format!("Message {one}"),
        many => format!("Mail in {}", count(many.len() as u64, "message")),
    };
    format!("{mail} to {}", count(number(done, "recipients"), "recipient"))
}

fn aftermath(out: &mut dyn Write, done: &Value) -> anyhow::Result<()> {
    let stops_ended = texts(done, "stops_ended");
    if !stops_ended.is_empty() {
        writeln!(out, "Nothing is left to decide: {} may send again.", some(&stops_ended))?;
    }
    for relay in texts(done, "relays_down") {
        writeln!(out, "The relay {relay} is down; it carries out its part when it is back.")?;
    }
    Ok(())
}

fn some(names: &[String]) -> String {
    let first = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{first} and {} more", names.len() - 5) } else { first }
}

pub(super) fn analysed(out: &mut dyn Write, done: &Value) -> anyhow::Result<()> {
    let samples: Vec<String> = items(done, "samples").iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "{} with {}: {} new for the lab, {} known to it.",
        count(number(done, "messages"), "held message"),
        count(number(done, "attachments"), "attachment"),
        number(done, "submitted"),
        number(done, "known")
    )?;
    if !samples.is_empty() {
        writeln!(out, "Samples {}; `weir lab report` shows what they are.", some(&samples))?;
    }
    for problem in texts(done, "problems") {
        writeln!(out, "Not sent: {problem}")?;
    }
    let left = number(done, "messages_left");
    if left > 0 {
        writeln!(out, "There was no time for {}: ask again.", count(left, "more message"))?;
    }
    Ok(())
}

pub(super) fn learned(out: &mut dyn Write, answer: &Value, days: i64) -> anyhow::Result<()> {
    let seen = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    if seen.is_empty() {
        writeln!(out, "Nothing was learned in the last {}.", count(days as u64, "day"))?;
        writeln!(out, "Learn-only mode (throttle.learn_only) records what the throttle would have done.")?;
        return Ok(());
    }
    writeln!(out, "What the throttle would have done in the last {}, the worst first.\n", count(days as u64, "day"))?;
    let mut table = Table::new(&["USER", ">MAILS", ">RECIPIENTS", ">WOULD HOLD", ">WOULD STOP", "LAST DAY"]);
    for user in seen {
        let cell = |field: &str| number(user, field).to_string();
        table.row([
            text(user, "user").to_owned(),
            cell("mails"),
            cell("recipients"),
            cell("would_hold"),
            cell("would_stop"),
            text(user, "last_day").to_owned(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
