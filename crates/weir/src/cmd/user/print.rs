//! Users as people read them.

use crate::answer::{count, number, rate, text, texts, time};
use crate::password::Password;
use crate::table::{Table, shown};
use serde_json::Value;
use std::io::Write;
use weir_core::throttle::{PARAMS, ParamKind};

pub(super) fn added(out: &mut dyn Write, page: &Value, password: Option<&Password>) -> anyhow::Result<()> {
    let addresses = texts(page, "addresses").join(", ");
    let sends = if addresses.is_empty() { "as anybody".to_owned() } else { format!("as {addresses}") };
    writeln!(out, "{} may now send {sends} (profile {}).", text(page, "name"), text(page, "profile"))?;
    if let Some(password) = password {
        password.print(out)?;
    }
    if text(page, "contact").is_empty() {
        writeln!(out, "There is no contact address: notices about held mail go to the administrator alone.")?;
    }
    Ok(())
}

pub(super) fn locked(out: &mut dyn Write, done: &Value, reason: &str) -> anyhow::Result<()> {
    let name = text(done, "name");
    let ended = match number(done, "sessions_ended") {
        0 => "no session was open".to_owned(),
        sessions => format!("{} ended", count(sessions, "session")),
    };
    writeln!(out, "{name} is locked ({reason}); {ended}.")?;
    writeln!(out, "What waits of {name}'s mail stands still: see `weir held list --user {name}`.")?;
    Ok(())
}

pub(super) fn unlocked(out: &mut dyn Write, done: &Value) -> anyhow::Result<()> {
    let name = text(done, "name");
    let is = |field: &str| done[field].as_bool().unwrap_or_default();
    match (is("lock_ended"), is("stop_ended")) {
        (true, true) => writeln!(out, "{name} may send again: the lock and the throttle's stop are ended.")?,
        (true, false) => writeln!(out, "{name} may send again: the lock is ended.")?,
        (false, true) => writeln!(out, "{name} may send again: the throttle's stop is ended.")?,
        (false, false) => writeln!(out, "{name} was neither locked nor stopped.")?,
    }
    match number(done, "held") {
        0 => {}
        held => writeln!(out, "{} still wait and go one by one.", count(held, "recipient"))?,
    }
    Ok(())
}

pub(super) fn list(out: &mut dyn Write, users: &[Value], busy: bool) -> anyhow::Result<()> {
    if users.is_empty() {
        let nobody = if busy {
            "Nobody is locked or stopped, and nothing waits."
        } else {
            "There are no users. `weir user add` makes one."
        };
        writeln!(out, "{nobody}")?;
        return Ok(());
    }
    let mut table = Table::new(&["USER", "STATE", ">HELD", "PROFILE", "CONTACT", "SENDS AS"]);
    for user in users {
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        table.row([
            text(user, "name").to_owned(),
            text(user, "state").to_owned(),
            number(user, "held").to_string(),
            text(user, "profile").to_owned(),
            or_none(text(user, "contact")),
            or_none(&texts(user, "addresses").join(", ")),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\n{}.", count(users.len() as u64, "user"))?;
    Ok(())
}

pub(super) fn page(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    let state = match text(page, "state") {
        "locked" => format!("locked since {} UTC: {}", time(page, "locked_since"), text(page, "locked_reason")),
        other => other.to_owned(),
    };
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let throttle = &page["throttle"];
    writeln!(out, "{}: {state}", shown(text(page, "name")))?;
    let rows = [
        ("sends as", or_none(texts(page, "addresses").join(", "))),
        ("contact", or_none(text(page, "contact").to_owned())),
        ("profile", text(page, "profile").to_owned()),
        ("password", password(page).to_owned()),
        ("made", made(page)),
        ("sessions", format!("{} open", number(page, "sessions"))),
        ("throttle", text(throttle, "in_words").to_owned()),
        ("parameters", parameters(&throttle["params"])),
        ("of which own", or_none(own(page))),
        ("trusted", or_none(trusted(page))),
    ];
    for (name, value) in rows {
        writeln!(out, "  {name:<13} {value}")?;
    }
    Ok(())
}

fn password(page: &Value) -> &'static str {
    if page["has_password"].as_bool().unwrap_or_default() { "set" } else { "none here; logs in through Dovecot" }
}

fn own(page: &Value) -> String {
    let name = |stored: String| {
        let param = PARAMS.iter().find(|param| param.stored == stored);
        param.map(|param| param.name.to_owned()).unwrap_or(stored)
    };
    texts(page, "own_parameters").into_iter().map(name).collect::<Vec<_>>().join(", ")
}

fn trusted(page: &Value) -> String {
    let all = texts(page, "trusted");
    let some = all.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > 5 { format!("{some} and {} more (--json has all)", all.len() - 5) } else { some }
}

fn parameters(params: &Value) -> String {
    let mut all = String::new();
    for param in &PARAMS {
        let value = &params[param.field];
        let said = match param.kind {
            ParamKind::Rate => format!("{} {}", param.short, rate(value.as_f64().unwrap_or_default())),
            ParamKind::Count(_) => format!("{} {}", param.short, value.as_u64().unwrap_or_default()),
            ParamKind::Cap => match value.as_u64() {
                Some(most) => format!("at most {most} {}", param.short),
                None => continue,
            },
            // It is about the parameter before it.
            ParamKind::Choice(_) => {
                all.push_str(&format!(" ({})", value.as_str().unwrap_or_default()));
                continue;
            }
        };
        let between = if all.is_empty() { "" } else { ", " };
        all.extend([between, &said]);
    }
    all
}

fn made(page: &Value) -> String {
    match text(page, "created") {
        "" => "no account here: another system knows this user".to_owned(),
        _ => format!("{} UTC", time(page, "created")),
    }
}
