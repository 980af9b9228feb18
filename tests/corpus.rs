//! Sends the scanners' corpus through the running gate by SMTP. Mail that hides something must never be delivered, and must be kept for the
//! right reason; mail as real mailers write it must arrive. Tested with a real clamd and without.

#![allow(dead_code, reason = "the scanners' own tests use the rest")]

#[path = "../crates/weir-scan/tests/scan/corpus/mod.rs"]
mod mails;

use crate::control::gate::{Client, Site, wait_for};
use mails::expected::{Bad, End, Mail};
use mails::{BAD_LEAST, HELD_MOST, HONEST_LEAST, bad_mail, by_class, honest_mail};
use std::collections::BTreeMap;
use weir_peers::Clamd;

/// How many sessions send at the same time, because a single one would wait for the disk after each message.
const SENDERS: usize = 4;
/// How many messages our SMTP server may refuse at once, because of a NUL or a bare CR or LF.
const REFUSED_MOST: usize = 20;

/// Doubles the dot at the beginning of lines.
fn stuffed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for line in message.split_inclusive(|octet| *octet == b'\n') {
        if line.starts_with(b".") && (out.is_empty() || out.ends_with(b"\r\n")) {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    out
}

/// Sends a message. Returns the reply to its last line. If the server ends the session, a new one is opened.
pub(crate) fn sent(client: &mut Client, inbound: &str, to: &str, message: &[u8]) -> String {
    let text = stuffed(message);
    for _ in 0..2 {
        let said = client.octets("accounts@a.example", &[to], &text);
        if !said.is_empty() && !said.starts_with("421") {
            return said;
        }
        *client = Client::greeted(inbound);
    }
    String::new()
}

/// Sends each message to its recipient, in one session. Returns the replies in the same order.
fn sent_in_turn(inbound: &str, mails: &[(String, &Mail)]) -> Vec<String> {
    let mut client = Client::greeted(inbound);
    mails.iter().map(|(to, mail)| sent(&mut client, inbound, to, &mail.message)).collect()
}

/// The same, in several sessions at the same time.
fn all_sent(inbound: &str, mails: &[(String, &Mail)]) -> Vec<String> {
    std::thread::scope(|scope| {
        let shares = mails.chunks(mails.len().div_ceil(SENDERS));
        let senders: Vec<_> = shares.map(|share| scope.spawn(move || sent_in_turn(inbound, share))).collect();
        senders.into_iter().flat_map(|sender| sender.join().expect("it sends")).collect()
    })
}

/// The quarantined mail: queue, message and reason, by recipient. A list has at most a thousand rows, so each queue is listed by itself.
fn kept(site: &Site) -> BTreeMap<String, [String; 3]> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut kept = BTreeMap::new();
    for queue in ["ext", "virus", "limit", "error", "spam"] {
        let list = site.json(&["quarantine", "list", "--queue", queue]);
        assert_eq!(list["more"], false, "more than one list of {queue} has");
        for entry in list["entries"].as_array().into_iter().flatten() {
            for to in entry["recipients"].as_array().into_iter().flatten() {
                kept.insert(text(to), [queue.to_owned(), text(&entry["message"]), text(&entry["reason"])]);
            }
        }
    }
    kept
}

/// The place where a message is kept, and everything that was found: the worst finding is the reason, and the rest is in the verdict.
fn end(site: &Site, [queue, message, reason]: &[String; 3]) -> (String, String) {
    let verdict = site.data().join("quarantine").join(format!("{message}.verdict"));
    (queue.clone(), format!("{reason}; {}", std::fs::read_to_string(verdict).unwrap_or_default()))
}

pub(crate) fn is_delivered(site: &Site, to: &str) -> bool {
    let folder = site.data().join("mail").join(to).join("Maildir/new");
    std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some())
}

fn queue(end: End) -> &'static str {
    match end {
        End::Forbidden => "ext",
        End::Infected => "virus",
        End::NotOpened => "limit",
    }
}

fn through_the_gate(clamd: Option<&Clamd>) {
    let clamav = clamd.map_or_else(String::new, |clamd| {
        format!("[scan.clamav]\naddresses = [\"unix:{}\"]\n", clamd.socket().display())
    });
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\nauthenticate = false\n\
         network_burst = 0\n[scan]\nenabled = true\n{clamav}"
    ));
    let up = site.up();
    let (bad, honest) = (bad_mail(), honest_mail());
    let bad_mails = bad.iter().enumerate().map(|(number, bad)| (format!("bad{number}@demo.test"), &bad.mail));
    let honest_mails = honest.iter().enumerate().map(|(number, mail)| (format!("good{number}@demo.test"), mail));
    let mails: Vec<(String, &Mail)> = bad_mails.chain(honest_mails).collect();
    let said = all_sent(&up.listener("inbound"), &mails);
    assert_eq!(said.len(), mails.len());
    let replies = mails.iter().zip(said).filter(|(_, said)| !said.starts_with("250"));
    let refused: BTreeMap<&str, String> = replies.map(|((to, _), said)| (to.as_str(), said)).collect();
    let kept = wait_for("a verdict on everything", || {
        let kept = kept(&site);
        let decided = |to: &str| refused.contains_key(to) || kept.contains_key(to) || is_delivered(&site, to);
        mails.iter().all(|(to, _)| decided(to)).then_some(kept)
    });
    let (bad_mails, honest_mails) = mails.split_at(bad.len());
    let mut wrong = Vec::new();
    for ((to, mail), Bad { ends, says, .. }) in bad_mails.iter().zip(&bad) {
        let got = kept.get(to).map(|entry| end(&site, entry));
        let right = match &got {
            Some((place, reason)) => ends.iter().any(|end| queue(*end) == place) && reason.contains(says),
            // A temporary refusal does not count as a refusal.
            None => refused.get(to.as_str()).is_some_and(|said| said.starts_with('5')),
        };
        if !right || is_delivered(&site, to) {
            wrong.push(format!("{} / {}: wanted {ends:?} that says {says:?}, got {got:?}", mail.class, mail.name));
        }
    }
    let mut held = Vec::new();
    for (to, mail) in honest_mails {
        let why = refused.get(to.as_str()).cloned();
        let why = why.or_else(|| kept.get(to).map(|entry| format!("{:?}", end(&site, entry))));
        held.extend(why.map(|why| format!("{} / {}: {why}", mail.class, mail.name)));
    }
    eprintln!("{} bad mails by class: {:?}", bad.len(), by_class(bad_mails.iter().map(|(_, mail)| *mail)));
    eprintln!("{} honest mails by class: {:?}", honest.len(), by_class(honest.iter()));
    eprintln!("{} refused at once, {} honest ones held: {refused:?}", refused.len(), held.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), bad.len(), wrong.join("\n"));
    assert!(refused.len() <= REFUSED_MOST, "{refused:?}");
    assert!(bad.len() - refused.len() >= BAD_LEAST && honest.len() >= HONEST_LEAST, "too small a corpus");
    assert!(held.len() <= HELD_MOST, "{held:?}");
}

#[test]
fn nothing_bad_comes_through_and_usual_mail_does_without_clamd() {
    through_the_gate(None);
}

#[test]
fn nothing_bad_comes_through_and_usual_mail_does_with_clamd() {
    through_the_gate(Some(&Clamd::start()));
}
