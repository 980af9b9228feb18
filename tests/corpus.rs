//! The corpus of the scanners through the running gate, by SMTP: what hides something is never delivered and has the right reason, and
//! what real mailers write arrives. With a real clamd and without.

#![allow(dead_code, reason = "the scanners' own tests use the rest")]

#[path = "../crates/weir-scan/tests/scan/corpus/bad.rs"]
mod bad;
#[path = "../crates/weir-scan/tests/scan/corpus/carriers.rs"]
mod carriers;
#[path = "../crates/weir-scan/tests/scan/corpus/expected.rs"]
mod expected;
#[path = "../crates/weir-scan/tests/scan/corpus/good.rs"]
mod good;
#[path = "../crates/weir-scan/tests/scan/corpus/pages.rs"]
mod pages;
#[path = "../crates/weir-scan/tests/scan/corpus/relatives.rs"]
mod relatives;
#[path = "../crates/weir-scan/tests/scan/corpus/strange.rs"]
mod strange;
#[path = "../crates/weir-scan/tests/scan/corpus/wrapped.rs"]
mod wrapped;

use crate::control::gate::{Client, Site, wait_for};
use expected::{Bad, End};
use std::collections::BTreeMap;
use weir_peers::Clamd;

/// Sends a message; the reply to its last line. A server that has enough of this session gets another one.
fn sent(client: &mut Client, inbound: &str, to: &str, message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message).replace("\r\n.", "\r\n..");
    for _ in 0..2 {
        let said = client.text("accounts@a.example", &[to], &text);
        if !said.is_empty() && !said.starts_with("421") {
            return said;
        }
        *client = Client::greeted(inbound);
    }
    String::new()
}

/// The queue and the reason of everything that is kept, by recipient.
fn kept(site: &Site) -> BTreeMap<String, (String, String)> {
    let list = site.json(&["quarantine", "list"]);
    let entries = list["entries"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let recipients = |entry: &serde_json::Value| -> Vec<String> {
        entry["recipients"].as_array().into_iter().flatten().map(text).collect()
    };
    let one = |entry: &serde_json::Value| {
        // The gravest finding is the reason; what else was found is in the verdict.
        let verdict = site.data().join("quarantine").join(format!("{}.verdict", text(&entry["message"])));
        let verdict = std::fs::read_to_string(verdict).unwrap_or_default();
        (text(&entry["queue"]), format!("{}; {verdict}", text(&entry["reason"])))
    };
    entries.iter().flat_map(|entry| recipients(entry).into_iter().map(move |to| (to, one(entry)))).collect()
}

fn is_delivered(site: &Site, to: &str) -> bool {
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
    let inbound = up.listener("inbound");
    let mut client = Client::greeted(&inbound);
    let bad: Vec<Bad> =
        bad::all().into_iter().chain(strange::all()).chain(wrapped::all()).chain(relatives::all()).collect();
    let good = good::all();
    let (mut refused, mut taken) = (Vec::new(), Vec::new());
    for (number, Bad { mail, .. }) in bad.iter().enumerate() {
        let to = format!("bad{number}@demo.test");
        let said = sent(&mut client, &inbound, &to, &mail.message);
        if said.starts_with("250") { taken.push(to) } else { refused.push(format!("{}: {said}", mail.name)) }
    }
    for (number, mail) in good.iter().enumerate() {
        let to = format!("good{number}@demo.test");
        let said = sent(&mut client, &inbound, &to, &mail.message);
        assert!(said.starts_with("250"), "{} / {}: {said}", mail.class, mail.name);
        taken.push(to);
    }
    let kept = wait_for("a verdict on everything", || {
        let kept = kept(&site);
        taken.iter().all(|to| kept.contains_key(to) || is_delivered(&site, to)).then_some(kept)
    });
    let mut wrong = Vec::new();
    for (number, Bad { mail, ends, says }) in bad.iter().enumerate() {
        let to = format!("bad{number}@demo.test");
        let right = match kept.get(&to) {
            Some((place, reason)) => ends.iter().any(|end| queue(*end) == place) && reason.contains(says),
            None => !taken.contains(&to),
        };
        if !right || is_delivered(&site, &to) {
            wrong.push(format!(
                "{} / {}: wanted {ends:?} that says {says:?}, got {:?}",
                mail.class,
                mail.name,
                kept.get(&to)
            ));
        }
    }
    let held: Vec<String> = good
        .iter()
        .enumerate()
        .filter_map(|(number, mail)| {
            Some(format!("{}: {:?}", mail.name, kept.get(&format!("good{number}@demo.test"))?))
        })
        .collect();
    eprintln!(
        "{} bad mails: {} kept, {} refused ({refused:?}); {} legitimate ones, {} held",
        bad.len(),
        bad.len() - refused.len(),
        refused.len(),
        good.len(),
        held.len()
    );
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), bad.len(), wrong.join("\n"));
    assert!(refused.len() <= 20, "{refused:?}");
    assert!(held.len() <= 2, "{held:?}");
}

#[test]
fn nothing_bad_comes_through_and_usual_mail_does_without_clamd() {
    through_the_gate(None);
}

#[test]
fn nothing_bad_comes_through_and_usual_mail_does_with_clamd() {
    through_the_gate(Some(&Clamd::start()));
}
