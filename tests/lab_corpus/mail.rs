//! Sends the corpus by SMTP from outside to the machine whose lab has just analysed it. No bad sample may be delivered, and `weir trace`
//! must say why. Samples that the lab knows are not run again.

use super::{Judged, PATIENCE};
use crate::attachment::attached;
use crate::control::gate::{Client, Site, Up};
use crate::corpus::{is_delivered, sent};
use crate::lab_vm::Lab;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Further settings of the lab for this. Normally no program is accepted at all, but here the lab is to decide about programs, too.
pub(super) const SETTINGS: &str = "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
     authenticate = false\nnetwork_burst = 0\n[scan]\nenabled = true\n[scan.attachments]\nprograms = \"suspicious\"\n[scan.lab]\nwait = \"1h\"\n";

/// The outcome for all mails.
#[derive(Default)]
pub(super) struct Delivery {
    /// Bad samples that were delivered, or whose trace does not say why they were not.
    pub(super) wrong: Vec<String>,
    /// How many bad samples were kept because of the lab's verdict.
    pub(super) by_lab: usize,
    /// How many clean samples were delivered, and which were not, with the reason.
    pub(super) arrived: usize,
    pub(super) held: Vec<String>,
}

/// Each sample has a recipient of its own.
fn recipient(number: usize) -> String {
    format!("user{number}@demo.test")
}

/// Sends each sample as a mail of its own, and waits until each is delivered or kept.
pub(super) fn sent_to_us(lab: &Lab, up: &Up, judged: &[Judged]) -> Delivery {
    let inbound = up.listener("inbound");
    let mut client = Client::greeted(&inbound);
    for (number, one) in judged.iter().enumerate() {
        let head = format!(
            "From: accounts@a.example\r\nSubject: your file\r\nMessage-ID: <corpus-{number}@client.example>\r\n"
        );
        let mail = format!("{head}{}", attached(&one.name, &one.content));
        let said = sent(&mut client, &inbound, &recipient(number), mail.as_bytes());
        assert!(said.starts_with("250"), "{}: {said}", one.name);
    }
    let kept = decided(&lab.site, judged);
    let mut delivery = Delivery::default();
    for (number, one) in judged.iter().enumerate() {
        let (to, is_clean) = (recipient(number), !one.is_bad && one.verdict == "clean");
        let (entry, is_delivered) = (kept.get(&to), is_delivered(&lab.site, &to));
        let reason = entry.and_then(|entry| entry["reason"].as_str()).unwrap_or_default();
        if one.is_bad {
            let untold = entry.is_none_or(|entry| !is_told(&lab.site, entry));
            if is_delivered || untold {
                delivery.wrong.push(format!("{}: delivered: {is_delivered}, kept: {entry:?}", one.name));
            }
            delivery.by_lab += usize::from(reason.starts_with("lab: "));
        } else if is_clean && is_delivered {
            delivery.arrived += 1;
        } else if is_clean {
            delivery.held.push(format!("{}: {reason}", one.name));
        }
    }
    delivery
}

/// The quarantined mail by recipient, when everything is decided.
fn decided(site: &Site, judged: &[Judged]) -> BTreeMap<String, Value> {
    let begun = Instant::now();
    loop {
        let kept = kept(site);
        let is_open = |number: &usize| {
            let to = recipient(*number);
            !kept.contains_key(&to) && !is_delivered(site, &to)
        };
        let open: Vec<&str> = (0..judged.len()).filter(is_open).map(|number| judged[number].name.as_str()).collect();
        if open.is_empty() {
            return kept;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is decided on the mails with {open:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn kept(site: &Site) -> BTreeMap<String, Value> {
    let list = site.json(&["quarantine", "list"]);
    let entries = list["entries"].as_array().cloned().unwrap_or_default();
    let to = |entry: &Value| entry["recipients"][0].as_str().unwrap_or_default().to_owned();
    entries.into_iter().map(|entry| (to(&entry), entry)).collect()
}

/// Whether the trace of a message ends in quarantine, with the same reason.
fn is_told(site: &Site, entry: &Value) -> bool {
    let (Some(message), Some(reason)) = (entry["message"].as_str(), entry["reason"].as_str()) else { return false };
    let trace = site.json(&["trace", message]);
    let says =
        |line: &Value| line["stage"] == "quarantine" && line["text"].as_str().is_some_and(|text| text.contains(reason));
    !reason.is_empty() && trace["lines"].as_array().is_some_and(|lines| lines.iter().any(says))
}
