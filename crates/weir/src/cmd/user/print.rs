//! Prints users for people.

use crate::answer::{count, or_dash, rate, time, time_or_dash};
use crate::password::Password;
use crate::table::{Table, shown};
use std::io::Write;
use std::time::Duration;
use weir_console::incidents::PastStop;
use weir_core::throttle::{PARAMS, ParamKind, Params};
use weir_mail::operations::{LockDone, OWN_CONTACT, UnlockDone, UserPage, UserView};

pub(super) fn added(out: &mut dyn Write, page: &UserPage, password: Option<&Password>) -> anyhow::Result<()> {
    let user = &page.user;
    let addresses = user.addresses.join(", ");
    let sends = if addresses.is_empty() { "as anybody".to_owned() } else { format!("as {addresses}") };
    writeln!(out, "{} may now send {sends} (profile {}).", user.name, user.profile)?;
    if let Some(password) = password {
        password.print(out)?;
    }
    if user.contact.is_empty() {
        writeln!(out, "There is no contact address: only the administrator gets notices about held mail.")?;
    }
    Ok(())
}

pub(super) fn locked(out: &mut dyn Write, done: &LockDone, reason: &str) -> anyhow::Result<()> {
    let name = &done.name;
    let ended = match done.sessions_ended {
        0 => "no session was open".to_owned(),
        sessions => format!("{} ended", count(sessions, "session")),
    };
    writeln!(out, "{name} is locked ({reason}); {ended}.")?;
    writeln!(out, "Held mail of {name} is not sent: see `weir held list --user {name}`.")?;
    Ok(())
}

pub(super) fn unlocked(out: &mut dyn Write, done: &UnlockDone) -> anyhow::Result<()> {
    let name = &done.name;
    match (done.lock_ended, done.stop_ended) {
        (true, true) => writeln!(out, "{name} may send again: the lock and the throttle's stop are ended.")?,
        (true, false) => writeln!(out, "{name} may send again: the lock is ended.")?,
        (false, true) => writeln!(out, "{name} may send again: the throttle's stop is ended.")?,
        (false, false) => writeln!(out, "{name} was neither locked nor stopped.")?,
    }
    match done.held {
        0 => {}
        held => writeln!(out, "Still waiting, and sent one by one: mail to {}.", count(held, "recipient"))?,
    }
    Ok(())
}

pub(super) fn list(out: &mut dyn Write, users: &[UserView], busy: bool) -> anyhow::Result<()> {
    if users.is_empty() {
        let nobody = if busy {
            "Nobody is locked or stopped, and nothing waits."
        } else {
            "There are no users. `weir user add` adds one."
        };
        writeln!(out, "{nobody}")?;
        return Ok(());
    }
    let mut table = Table::new(&["USER", "STATE", ">HELD", "PROFILE", "CONTACT", "SENDS AS"]);
    for user in users {
        table.row([
            user.name.clone(),
            user.state.clone(),
            user.held.to_string(),
            user.profile.clone(),
            or_dash(&user.contact),
            or_dash(&user.addresses.join(", ")),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\n{}.", count(users.len(), "user"))?;
    Ok(())
}

pub(super) fn page(out: &mut dyn Write, page: &UserPage) -> anyhow::Result<()> {
    let user = &page.user;
    let state = match user.state.as_str() {
        "locked" => {
            format!("locked since {} UTC: {}", time_or_dash(user.locked_since.as_deref()), user.locked_reason)
        }
        other => other.to_owned(),
    };
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    writeln!(out, "{}: {state}", shown(&user.name))?;
    let rows = [
        ("sends as", or_none(user.addresses.join(", "))),
        ("contact", or_none(user.contact.clone())),
        ("", own_contact(user)),
        ("profile", user.profile.clone()),
        ("password", password(page)),
        ("made", made(user)),
        ("sessions", format!("{} open", page.sessions)),
        ("throttle", page.throttle.in_words.clone()),
        ("parameters", parameters(&page.throttle.params.0)),
        ("of which own", or_none(own(page))),
        ("trusted", or_none(trusted(page))),
        ("written to", format!("{} outside the site", count(page.correspondents as usize, "correspondent"))),
    ];
    for (name, value) in rows.iter().filter(|(name, value)| !name.is_empty() || !value.is_empty()) {
        writeln!(out, "  {name:<13} {value}")?;
    }
    let wrong = &page.wrong_logins;
    if wrong.count > 0 {
        let (failed, networks) =
            (count(wrong.count as usize, "failed login"), count(wrong.networks as usize, "network"));
        let slowed = if wrong.slowed { "; logins from other networks are slowed" } else { "" };
        writeln!(
            out,
            "  {:<13} {failed} (SMTP and console) in 24 h from {networks}, the latest {}{slowed}",
            "logins",
            wrong.from.join(", ")
        )?;
    }
    Ok(())
}

/// A warning, if the contact address is a mailbox of the account itself.
fn own_contact(user: &UserView) -> String {
    match user.contact_is_own {
        true => format!("WARNING: it {OWN_CONTACT}; weir user set {} --contact ADDRESS", shown(&user.name)),
        false => String::new(),
    }
}

pub(super) fn stops(out: &mut dyn Write, stops: &[PastStop]) -> anyhow::Result<()> {
    for (n, stop) in stops.iter().enumerate() {
        let name = if n == 0 { "stops" } else { "" };
        let until = stop.ended.as_deref().map_or_else(|| "now".to_owned(), |ended| format!("{} UTC", time(ended)));
        let held = count(stop.held as usize, "recipient");
        let outcome = shown(&stop.outcome);
        writeln!(
            out,
            "  {name:<13} {} UTC to {until}, {held} held; {outcome} (incident {})",
            time(&stop.began),
            stop.incident
        )?;
    }
    Ok(())
}

fn password(page: &UserPage) -> String {
    match (page.has_password, &page.password_elsewhere) {
        (true, None) => "set".to_owned(),
        (true, Some(who)) => format!("set, for the console; for mail, {who}"),
        (false, Some(who)) => format!("none here: {who}"),
        (false, None) => "none".to_owned(),
    }
}

fn own(page: &UserPage) -> String {
    let name = |stored: &String| {
        let param = PARAMS.iter().find(|param| param.stored == stored);
        param.map_or_else(|| stored.clone(), |param| param.name.to_owned())
    };
    page.own_parameters.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn trusted(page: &UserPage) -> String {
    let all = &page.trusted;
    let some = all.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > 5 { format!("{some} and {} more (--json has all)", all.len() - 5) } else { some }
}

fn parameters(params: &Params) -> String {
    let mut all = String::new();
    for param in &PARAMS {
        let value = param.value(params);
        let said = match param.kind {
            ParamKind::Rate => {
                format!("{} {}", param.short, rate(60.0 / Duration::from_nanos(value).as_secs_f64()))
            }
            ParamKind::Count(_) => format!("{} {value}", param.short),
            ParamKind::Cap if value == 0 => continue,
            ParamKind::Cap => format!("at most {value} {}", param.short),
            // This value qualifies the parameter before it.
            ParamKind::Choice([first, second]) => {
                all.push_str(&format!(" ({})", if value == 0 { first } else { second }));
                continue;
            }
        };
        let between = if all.is_empty() { "" } else { ", " };
        all.extend([between, &said]);
    }
    all
}

fn made(user: &UserView) -> String {
    match user.created.as_str() {
        "" => "no account here: another system knows this user".to_owned(),
        created => format!("{} UTC", time(created)),
    }
}
