//! The corpus in this process: what hides a forbidden or infected file is never delivered and has the right reason, and what real mailers write
//! is. With a real clamd and without.

use crate::corpus::expected::{Bad, End};
use crate::corpus::{BAD_LEAST, HELD_MOST, HONEST_LEAST, bad_mail, by_class, honest_mail};
use crate::mail::{attached, examined, found};
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
    let (mut gate, mut wrong, all) = (Gate::new(clamd).await, Vec::new(), bad_mail());
    for Bad { mail, ends, says } in &all {
        let verdict = gate.verdict(&mail.message).await;
        let said =
            verdict.findings.iter().map(|f| format!("{} in {}", f.outcome, f.place)).collect::<Vec<_>>().join("; ");
        let right = end(&verdict).is_some_and(|end| ends.contains(&end)) && said.contains(says);
        if !right {
            wrong.push(format!("{} / {}: wanted {ends:?} that says {says:?}, got {said}", mail.class, mail.name));
        }
    }
    println!("{} bad mails by class: {:?}", all.len(), by_class(all.iter().map(|bad| &bad.mail)));
    assert!(all.len() >= BAD_LEAST, "{} bad mails", all.len());
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
    let (mut gate, mut held, all) = (Gate::new(Some(&clamd)).await, Vec::new(), honest_mail());
    for mail in &all {
        let verdict = gate.verdict(&mail.message).await;
        if end(&verdict).is_some() {
            let report = weir_scan::examine::Report { findings: verdict.findings, ..Default::default() };
            held.push(format!("{} / {}: {}", mail.class, mail.name, found(&report).join("; ")));
        }
    }
    println!("{} honest mails by class: {:?}; held: {}", all.len(), by_class(all.iter()), held.len());
    assert!(all.len() >= HONEST_LEAST, "{} honest mails", all.len());
    assert!(held.len() <= HELD_MOST, "{} of {} are held:\n{}", held.len(), all.len(), held.join("\n"));
}

#[test]
fn a_script_in_a_pdf_is_told_once() {
    let document = "%PDF-1.7\n1 0 obj\n<</Type/Catalog/OpenAction 5 0 R>>\nendobj\n5 0 obj\n<</S/JavaScript/JS(app.alert(1))>>\nendobj\n";
    let message = attached("a.pdf", document.as_bytes());
    assert_eq!(examined(&message).suspicious, ["a.pdf: a PDF with a script"]);
}
