//! Alarms: reports an attack to the administrator and the webhook.
//!
//! Somebody who guesses passwords from a thousand addresses must not make us send a thousand mails. So at most one alarm of a kind goes out
//! in [`QUIET`], and says how many it stands for; the log has all of them.

use super::NoticeWriter;
use crate::counted::wait;
use std::time::{Duration, Instant};
use weir_smtp::reception::Alarm;

/// The least time between two alarms.
const QUIET: Duration = Duration::from_secs(600);

/// One bell for each kind of alarm.
#[derive(Debug, Default)]
pub(super) struct Bells([Bell; 10]);

impl Bells {
    fn of(&mut self, alarm: &Alarm) -> &mut Bell {
        let [banned, searching, fails, works, unscannable, ill, full, damaged, lab, door] = &mut self.0;
        match alarm {
            Alarm::Banned { .. } => banned,
            Alarm::Searching { .. } => searching,
            Alarm::ScanFails { .. } => fails,
            Alarm::ScanWorks { .. } => works,
            Alarm::Unscannable { .. } => unscannable,
            Alarm::ScannerIll { .. } => ill,
            Alarm::QuarantineFull { .. } => full,
            Alarm::Damaged { .. } => damaged,
            Alarm::LabSilent { .. } => lab,
            Alarm::DoorFails { .. } => door,
        }
    }
}

/// When it last rang, and what was passed over since.
#[derive(Debug, Default)]
struct Bell {
    rung_at: Option<Instant>,
    silenced: u64,
}

impl Bell {
    /// How many alarms this one stands for besides itself; none if it is too soon for it.
    fn ring(&mut self, now: Instant) -> Option<u64> {
        if self.rung_at.is_some_and(|at| now.saturating_duration_since(at) < QUIET) {
            self.silenced += 1;
            return None;
        }
        self.rung_at = Some(now);
        Some(std::mem::take(&mut self.silenced))
    }
}

impl NoticeWriter {
    pub(super) async fn raise(&self, alarm: &Alarm, bells: &mut Bells) {
        let Some(others) = bells.of(alarm).ring(Instant::now()) else { return };
        let admin = &self.settings.admin;
        if !admin.is_empty()
            && let Err(error) = self.send(admin, &subject(alarm), &body(alarm, others)).await
        {
            tracing::error!(to = %admin, %error, "an alarm could not be written");
        }
        if let Some(calls) = &self.calls {
            calls.add(json(alarm, others));
        }
    }
}

fn subject(alarm: &Alarm) -> String {
    match alarm {
        Alarm::Banned { address, .. } => format!("Somebody at {address} guesses passwords and is banned"),
        Alarm::ScanFails { .. } => "Scans fail: mail waits".to_owned(),
        Alarm::ScanWorks { .. } => "The scanners answer again: mail flows".to_owned(),
        Alarm::ScannerIll { scanner, .. } => format!("A scanner needs attention: {scanner}"),
        Alarm::LabSilent { .. } => "The lab gives no verdict on mail that waits for it".to_owned(),
        Alarm::DoorFails { door, .. } => format!("A mail server asked at [{door}], and there was no decision"),
        Alarm::Unscannable { message, .. } => format!("Mail {message} cannot be scanned and is in quarantine"),
        Alarm::Damaged { user, .. } => format!("A mail of {user} was damaged and could not be saved"),
        Alarm::QuarantineFull { .. } => "Quarantined mail is nearly full: the oldest is dropped when it is".to_owned(),
        Alarm::Searching { address, .. } => format!("Somebody at {address} tries out recipients and is banned"),
    }
}

fn body(alarm: &Alarm, others: u64) -> String {
    let more = match others {
        0 => String::new(),
        others => format!("Since the last such notice there were {others} more; the log names them.\n"),
    };
    let what = match alarm {
        Alarm::Banned { address, user, length, offence } => banned(*address, user, *length, *offence),
        Alarm::Searching { address, length, offence } => searching(*address, *length, *offence),
        Alarm::ScanFails { problem, waiting } => format!(
            "{} for the scan, and every attempt fails: {problem}\n\nNothing goes out unscanned, and nothing is \
             lost: mail is tried again by itself, and what has waited for scan.retry_for goes to the quarantine for errors. `weir \
             feeds status` shows how it is; look at the scanners.\n",
            wait(*waiting, "message")
        ),
        Alarm::ScanWorks { after } => format!(
            "They had not for {} min. What waited is scanned now; `weir quarantine list --queue error` shows what had waited \
             for too long.\n",
            after.as_secs().div_ceil(60)
        ),
        Alarm::ScannerIll { scanner, address, problem } => format!(
            "{scanner} {address}: {problem}\n\nMail goes on as far as the other scanners answer. `weir feeds status` shows how each of \
             them is.\n"
        ),
        Alarm::LabSilent { problem, waiting } => format!(
            "{problem}\n\n{}. What has waited for scan.lab.wait is kept or delivered as scan.lab.on_late says. `weir \
             feeds status` shows what waits, `weir lab status` and `weir lab nodes` how the lab is.\n",
            wait(*waiting, "message")
        ),
        Alarm::DoorFails { door, problem } => format!(
            "{problem}\n\nThe server that asked at [{door}] was told to try again later: it defers the mail, and the client that sent it keeps \
             it. Nothing went out undecided. `weir status` shows what is wrong here.\n"
        ),
        Alarm::Damaged { message, user } => format!(
            "The message {message} of {user:?} was in the spool when Weir started, and its body is not whole. After a power cut that is \
             usual for mail that was coming in: its sender was not told that it was taken, and tries again. If the power was not cut, \
             look after the disk, and ask {user:?} whether a mail of the last moments before the end is missing.\n"
        ),
        Alarm::QuarantineFull { bytes, most } => format!(
            "It takes {} MiB of the {} MiB that it may (quarantine.bytes_max). Above that the oldest mail of the largest quarantine is \
             dropped. What could not be scanned stays for its time and does not count.\n\n`weir quarantine list` shows what there is; \
             delete what nobody wants, or raise the bound.\n",
            bytes >> 20,
            most >> 20
        ),
        Alarm::Unscannable { message, problem } => format!(
            "{problem}\n\n`weir quarantine show {message}` shows it; `weir quarantine release` sends it unscanned, `weir quarantine \
             delete` drops it.\n"
        ),
    };
    let quiet = QUIET.as_secs() / 60;
    format!("{what}{more}\nThe next such notice comes in {quiet} min at the earliest.\n")
}

fn banned(address: std::net::IpAddr, user: &str, length: Duration, offence: u32) -> String {
    format!(
        "Too many logins from {address} failed, the last one as {user:?}. {}\n\nNothing needs to be done. If the address is yours, such \
         as a webmail server's, list it in submission.trusted: then it is not banned for the wrong passwords of its users.\n",
        for_so_long(length, offence)
    )
}

fn searching(address: std::net::IpAddr, length: Duration, offence: u32) -> String {
    format!(
        "Mail from {address} was for too many recipients that do not exist. {}\n\nNothing needs to be done. If the address is a server \
         of yours, list it in inbound.trusted: then it is not banned for what it relays, and it may relay to anywhere.\n",
        for_so_long(length, offence)
    )
}

fn for_so_long(length: Duration, offence: u32) -> String {
    let minutes = length.as_secs().div_ceil(60);
    format!(
        "The address is banned for {minutes} min (ban {offence} of this address; each further one is twice as long)."
    )
}

fn json(alarm: &Alarm, others: u64) -> serde_json::Value {
    match alarm {
        Alarm::Banned { address, user, length, offence } => serde_json::json!({
            "event": "login.banned",
            "address": address.to_string(),
            "user": &**user,
            "seconds": length.as_secs(),
            "offence": offence,
            "others": others,
        }),
        Alarm::Searching { address, length, offence } => serde_json::json!({
            "event": "recipients.banned",
            "address": address.to_string(),
            "seconds": length.as_secs(),
            "offence": offence,
            "others": others,
        }),
        Alarm::ScanFails { problem, waiting } => {
            serde_json::json!({ "event": "scan.fails", "problem": &**problem, "waiting": waiting, "others": others })
        }
        Alarm::ScanWorks { after } => {
            serde_json::json!({ "event": "scan.works", "after_s": after.as_secs(), "others": others })
        }
        Alarm::ScannerIll { scanner, address, problem } => serde_json::json!({
            "event": "scan.scanner",
            "scanner": scanner,
            "address": &**address,
            "problem": &**problem,
            "others": others,
        }),
        Alarm::LabSilent { problem, waiting } => {
            serde_json::json!({ "event": "scan.lab", "problem": &**problem, "waiting": waiting, "others": others })
        }
        Alarm::DoorFails { door, problem } => {
            serde_json::json!({ "event": "door.fails", "door": &**door, "problem": &**problem, "others": others })
        }
        Alarm::Damaged { message, user } => serde_json::json!({
            "event": "spool.damaged",
            "message": &**message,
            "user": &**user,
            "others": others,
        }),
        Alarm::QuarantineFull { bytes, most } => {
            serde_json::json!({ "event": "quarantine.full", "bytes": bytes, "most": most, "others": others })
        }
        Alarm::Unscannable { message, problem } => serde_json::json!({
            "event": "scan.unscannable",
            "message": &**message,
            "problem": &**problem,
            "others": others,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_alarms_is_one_alarm() {
        let (mut bell, now) = (Bell::default(), Instant::now());
        assert_eq!(bell.ring(now), Some(0));
        assert!((0..50).all(|_| bell.ring(now + QUIET / 2).is_none()));
        assert_eq!(bell.ring(now + QUIET), Some(50));
    }

    #[test]
    fn an_alarm_says_who_and_what_to_do() {
        let alarm = Alarm::Banned {
            address: "192.0.2.7".parse().unwrap(),
            user: "a\r\nBcc: x".into(),
            length: Duration::from_secs(300),
            offence: 1,
        };
        assert_eq!(subject(&alarm), "Somebody at 192.0.2.7 guesses passwords and is banned");
        let text = body(&alarm, 3);
        assert!(text.contains("banned for 5 min (ban 1") && text.contains("there were 3 more"), "{text}");
        assert!(text.contains("\\r\\nBcc") && text.contains("submission.trusted"), "{text}");
        let address = "192.0.2.7".parse().unwrap();
        let searching = Alarm::Searching { address, length: Duration::from_secs(300), offence: 1 };
        assert!(body(&searching, 0).contains("inbound.trusted") && subject(&searching).contains("192.0.2.7"));
        assert_eq!(json(&searching, 0)["event"], "recipients.banned");
        let full = Alarm::QuarantineFull { bytes: 900 << 20, most: 1 << 30 };
        assert!(body(&full, 0).contains("It takes 900 MiB of the 1024 MiB"), "{}", body(&full, 0));
        let damaged = Alarm::Damaged { message: "m1".into(), user: "ann".into() };
        assert!(subject(&damaged).contains("ann") && body(&damaged, 0).contains("m1"));
    }
}
