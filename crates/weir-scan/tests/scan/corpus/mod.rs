//! A corpus of mail, made here: what hides a forbidden or infected file is never delivered and has the right reason, and what real
//! mailers write is. With a real clamd and without.

mod bad;
pub(crate) mod carriers;
mod expected;
mod good;
mod locked_pdf;
mod misread;
mod overlooked;
mod pages;
mod relatives;
mod saved;
mod strange;
pub(crate) mod unopened;
mod wrapped;

use crate::mail::found;
use expected::{Bad, End};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_peers::Clamd;
use weir_scan::address::Address;
use weir_scan::clamd;
use weir_scan::content::Content;
use weir_scan::examine::{Examiner, Setup};
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{self, Panel};
use weir_scan::verdict::{Outcome, Verdict};

fn end(verdict: &Verdict) -> Option<End> {
    match &verdict.gravest()?.outcome {
        Outcome::Forbidden { .. } => Some(End::Forbidden),
        Outcome::Infected { .. } => Some(End::Infected),
        Outcome::NotScanned { .. } => Some(End::NotOpened),
        _ => None,
    }
}

/// Our own walk first, as the panel does it, and then clamd if there is one.
struct Gate {
    examiner: Examiner,
    clamd: Option<Panel>,
}

impl Gate {
    async fn new(clamd: Option<&Clamd>) -> Gate {
        let panel = match clamd {
            Some(clamd) => {
                let addresses = vec![Address::Socket(clamd.socket())];
                let settings = clamd::Settings { addresses, ..clamd::Settings::default() };
                Some(Panel::start(panel::Settings::default().with(settings)).await.unwrap())
            }
            None => None,
        };
        Gate { examiner: Examiner::new(Setup::default()).unwrap(), clamd: panel }
    }

    async fn verdict(&mut self, message: &[u8]) -> Verdict {
        let report = self.examiner.examine(message);
        let mut verdict = Verdict { findings: report.findings, suspicious: report.suspicious, ..Verdict::default() };
        if let (None, Some(clamd)) = (end(&verdict), &self.clamd) {
            let said = clamd.inspect(&Content::of(message).unwrap(), &Arc::new(About::default())).await;
            verdict.findings.extend(said.findings);
        }
        verdict
    }
}

async fn nothing_bad_is_delivered(clamd: Option<&Clamd>) {
    let (mut gate, mut wrong, mut classes) = (Gate::new(clamd).await, Vec::new(), BTreeMap::new());
    let all: Vec<Bad> = [
        bad::all(),
        strange::all(),
        wrapped::all(),
        relatives::all(),
        misread::all(),
        overlooked::all(),
        unopened::all(),
        saved::all(),
    ]
    .into_iter()
    .flatten()
    .collect();
    for Bad { mail, ends, says } in &all {
        *classes.entry(mail.class).or_insert(0) += 1;
        let verdict = gate.verdict(&mail.message).await;
        let said =
            verdict.findings.iter().map(|f| format!("{} in {}", f.outcome, f.place)).collect::<Vec<_>>().join("; ");
        let right = end(&verdict).is_some_and(|end| ends.contains(&end)) && said.contains(says);
        if !right {
            wrong.push(format!("{} / {}: wanted {ends:?} that says {says:?}, got {said}", mail.class, mail.name));
        }
    }
    println!("bad mail by class: {classes:?}");
    assert!(all.len() >= 300, "{} bad mails", all.len());
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

#[tokio::test]
async fn bad_mail_is_never_delivered_without_clamd() {
    nothing_bad_is_delivered(None).await;
}

#[tokio::test]
async fn bad_mail_is_never_delivered_with_clamd() {
    nothing_bad_is_delivered(Some(&Clamd::start())).await;
}

#[tokio::test]
async fn mail_of_real_mailers_is_delivered() {
    let clamd = Clamd::start();
    let mut gate = Gate::new(Some(&clamd)).await;
    let (mut held, mut classes, all) = (
        Vec::new(),
        BTreeMap::new(),
        [good::all(), misread::twins(), overlooked::twins(), unopened::twins(), saved::twins()].concat(),
    );
    for mail in &all {
        *classes.entry(mail.class).or_insert(0) += 1;
        let verdict = gate.verdict(&mail.message).await;
        if end(&verdict).is_some() {
            let report = weir_scan::examine::Report { findings: verdict.findings, ..Default::default() };
            held.push(format!("{} / {}: {}", mail.class, mail.name, found(&report).join("; ")));
        }
    }
    println!("legitimate mail by class: {classes:?}; held: {}\n{}", held.len(), held.join("\n"));
    assert!(all.len() >= 200, "{} legitimate mails", all.len());
    assert!(held.len() <= 2, "{} of {} are held:\n{}", held.len(), all.len(), held.join("\n"));
}
