//! Decides from the verdict what happens to a letter.

use super::settings::{OnLimit, OnSpam};
use crate::letter::Allowed;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;
use weir_scan::verdict::{Finding, Outcome, Verdict};
use weir_scan::wishes::Wish;

/// What becomes of a letter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// It goes on, with this result in its header.
    Pass(Passed),
    /// It is kept.
    Quarantine(QuarantineQueue, String),
    /// It is tried again.
    Retry(String),
    /// Scanners answered, and one of them wants it later.
    Later(String),
}

/// The result of a letter that goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Passed {
    /// Nobody found anything.
    pub(super) clean: bool,
    /// It is spam, and marked as such.
    pub(super) spam: bool,
    pub(super) words: String,
    /// Lines that a spam filter adds to its header, each with CR LF.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) lines: String,
}

/// The quarantines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineQueue {
    /// Malware.
    Virus,
    /// Against the policy for attachments.
    Ext,
    /// Unwanted mail.
    Spam,
    /// Could not be scanned.
    Error,
    /// Larger or deeper than may be scanned.
    Limit,
}

impl QuarantineQueue {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            QuarantineQueue::Virus => "virus",
            QuarantineQueue::Ext => "ext",
            QuarantineQueue::Spam => "spam",
            QuarantineQueue::Error => "error",
            QuarantineQueue::Limit => "limit",
        }
    }

    /// All of them.
    pub const ALL: [QuarantineQueue; 5] = [
        QuarantineQueue::Virus,
        QuarantineQueue::Ext,
        QuarantineQueue::Spam,
        QuarantineQueue::Error,
        QuarantineQueue::Limit,
    ];
}

/// Decides by the gravest finding, and then by what a spam filter asks for: what it wants later is not kept for good by what others would
/// let pass, and what it adds to the header goes with the letter.
pub(super) fn decide(verdict: &Verdict, on_spam: OnSpam, on_limit: OnLimit) -> Decision {
    let Some(wishes) = &verdict.wishes else { return decide_by_findings(verdict, on_spam, on_limit) };
    let only_its_spam = verdict
        .findings
        .iter()
        .all(|finding| !matches!(finding.outcome, Outcome::Spam { .. }) || finding.scanner == "rspamd");
    let on_spam = match wishes.action {
        Wish::Mark if only_its_spam => OnSpam::Tag,
        Wish::Keep => OnSpam::Quarantine,
        _ => on_spam,
    };
    match decide_by_findings(verdict, on_spam, on_limit) {
        Decision::Pass(_) if wishes.action == Wish::Later => {
            Decision::Later(format!("the spam filter wants it later: {}", wishes.words))
        }
        Decision::Pass(passed) => Decision::Pass(Passed { lines: wishes.lines(), ..passed }),
        decided => decided,
    }
}

/// What a verdict comes to for mail of a sender that people allow and that is who it says: nothing that a spam filter says keeps it.
/// Whatever else was found counts as it does for all.
pub(super) fn excused<'a>(verdict: &'a Verdict, allowed: Option<&Allowed>) -> Cow<'a, Verdict> {
    let Some(allowed) = allowed.filter(|allowed| allowed.confirmed) else { return Cow::Borrowed(verdict) };
    let mut excused = verdict.clone();
    for finding in &mut excused.findings {
        if let Outcome::Spam { score, threshold } = finding.outcome {
            finding.outcome = Outcome::Clean;
            excused.suspicious.push(format!("spam score {score:.1} of {threshold:.1}, and {} is allowed", allowed.by));
        }
    }
    if let Some(wishes) = &mut excused.wishes {
        wishes.action = Wish::Pass;
        // What it writes into the header would call the mail spam.
        if !excused.suspicious.is_empty() {
            (wishes.fields, wishes.subject) = (Vec::new(), None);
        }
    }
    Cow::Owned(excused)
}

/// Decides by the gravest finding. Where a limit lets mail pass, the gravest of the others counts.
fn decide_by_findings(verdict: &Verdict, on_spam: OnSpam, on_limit: OnLimit) -> Decision {
    let Some(gravest) = verdict.gravest() else { return Decision::Retry("no scanner looked at it".to_owned()) };
    let scanners = scanners(verdict);
    match &gravest.outcome {
        Outcome::Clean => Decision::Pass(passed(verdict, &scanners)),
        Outcome::Spam { score, threshold } => match on_spam {
            OnSpam::Quarantine => Decision::Quarantine(QuarantineQueue::Spam, said(gravest)),
            OnSpam::Tag => {
                let words = format!("spam; score={score:.1}; threshold={threshold:.1} ({scanners})");
                Decision::Pass(Passed { clean: false, spam: true, words, ..Passed::default() })
            }
        },
        Outcome::NotScanned { .. } => match on_limit {
            OnLimit::Quarantine => Decision::Quarantine(QuarantineQueue::Limit, said(gravest)),
            OnLimit::Pass => {
                let words = format!("not scanned; {} ({scanners})", said(gravest));
                match decide_by_findings(&without_limits(verdict), on_spam, on_limit) {
                    Decision::Pass(Passed { spam: true, words: spam, .. }) => {
                        let words = format!("{spam}; {words}");
                        Decision::Pass(Passed { clean: false, spam: true, words, ..Passed::default() })
                    }
                    kept @ Decision::Quarantine(..) => kept,
                    _ => Decision::Pass(Passed { words, ..Passed::default() }),
                }
            }
        },
        Outcome::Failed { problem } => Decision::Retry(format!("{}: {problem}", gravest.scanner)),
        Outcome::Forbidden { .. } => Decision::Quarantine(QuarantineQueue::Ext, said(gravest)),
        Outcome::Infected { .. } => Decision::Quarantine(QuarantineQueue::Virus, said(gravest)),
    }
}

/// Nothing that decides was found. What is suspicious is told, and not called clean.
fn passed(verdict: &Verdict, scanners: &str) -> Passed {
    match verdict.suspicious.as_slice() {
        [] => Passed { clean: true, words: format!("clean ({scanners})"), ..Passed::default() },
        [why, more @ ..] => {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            Passed { words: format!("suspicious; {why}{more} ({scanners})"), ..Passed::default() }
        }
    }
}

/// What those say who looked at all of it.
fn without_limits(verdict: &Verdict) -> Verdict {
    let mut rest = verdict.clone();
    rest.findings.retain(|finding| !matches!(finding.outcome, Outcome::NotScanned { .. }));
    rest
}

/// A finding in a line.
fn said(finding: &Finding) -> String {
    let mut line = finding.outcome.to_string();
    if !finding.place.is_empty() {
        let _ = write!(line, " in {}", finding.place);
    }
    let _ = write!(line, " ({})", finding.scanner);
    line
}

/// What every scanner said, in a line.
pub(super) fn all_said(verdict: &Verdict) -> String {
    verdict.findings.iter().map(said).collect::<Vec<_>>().join("; ")
}

/// What was found, for whoever looks for mail by it.
pub(super) fn in_a_word(verdict: &Verdict) -> String {
    let Some(gravest) = verdict.gravest() else { return String::new() };
    match &gravest.outcome {
        Outcome::Clean if verdict.suspicious.is_empty() => "clean".to_owned(),
        Outcome::Clean => "suspicious".to_owned(),
        Outcome::Spam { .. } => "spam".to_owned(),
        Outcome::NotScanned { .. } => "not scanned".to_owned(),
        Outcome::Failed { .. } => "failed".to_owned(),
        Outcome::Forbidden { .. } => "forbidden".to_owned(),
        Outcome::Infected { name } => format!("infected {name}"),
    }
}

fn scanners(verdict: &Verdict) -> String {
    let mut names: Vec<&str> = verdict.findings.iter().map(|finding| finding.scanner.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// The header line for a result. What scanners say is text of strangers: one line, printable ASCII, cut.
pub(super) fn header(hostname: &str, result: &Passed) -> String {
    let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let words: String = result.words.chars().map(plain).take(400).collect();
    let spam = if result.spam { "X-Spam-Flag: YES\r\n" } else { "" };
    format!("X-Weir-Scan: {hostname}; {words}\r\n{spam}{}", result.lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn verdict(outcomes: &[Outcome]) -> Verdict {
        let finding = |outcome: &Outcome| Finding {
            scanner: "yara".into(),
            outcome: outcome.clone(),
            place: "a.zip > b.exe".into(),
            took: Duration::ZERO,
        };
        Verdict { findings: outcomes.iter().map(finding).collect(), ..Verdict::default() }
    }

    fn usual(outcomes: &[Outcome]) -> Decision {
        decide(&verdict(outcomes), OnSpam::Quarantine, OnLimit::Quarantine)
    }

    #[test]
    fn only_clean_mail_passes() {
        let failed = Outcome::Failed { problem: "hangs".into() };
        let infected = Outcome::Infected { name: "Eicar".into() };
        let clean = Passed { clean: true, words: "clean (yara)".into(), ..Passed::default() };
        assert_eq!(usual(&[Outcome::Clean]), Decision::Pass(clean));
        assert!(matches!(usual(&[]), Decision::Retry(_)), "nobody looked");
        assert!(matches!(usual(&[Outcome::Clean, failed.clone()]), Decision::Retry(_)));
        let reason = "infected: Eicar in a.zip > b.exe (yara)".to_owned();
        assert_eq!(usual(&[failed, infected]), Decision::Quarantine(QuarantineQueue::Virus, reason));
        let forbidden = Outcome::Forbidden { reason: "exe".into() };
        assert!(matches!(usual(&[Outcome::Clean, forbidden]), Decision::Quarantine(QuarantineQueue::Ext, _)));
        let limit = Outcome::NotScanned { limit: "25 MB".into() };
        assert!(matches!(usual(std::slice::from_ref(&limit)), Decision::Quarantine(QuarantineQueue::Limit, _)));
        let passed = decide(&verdict(&[limit]), OnSpam::Quarantine, OnLimit::Pass);
        assert!(matches!(passed, Decision::Pass(why) if !why.clean && why.words.contains("25 MB")));
    }

    #[test]
    fn suspicious_mail_goes_on_and_is_not_called_clean() {
        let suspicious = vec!["a.pdf: a PDF with a script".to_owned(), "b".to_owned()];
        let verdict = Verdict { suspicious, ..verdict(&[Outcome::Clean]) };
        let words = "suspicious; a.pdf: a PDF with a script and 1 more (yara)".to_owned();
        let passed = Passed { words, ..Passed::default() };
        assert_eq!(decide(&verdict, OnSpam::Quarantine, OnLimit::Quarantine), Decision::Pass(passed));
    }

    #[test]
    fn spam_is_kept_or_marked() {
        let spam = verdict(&[Outcome::Spam { score: 17.2, threshold: 15.0 }]);
        let quarantined = decide(&spam, OnSpam::Quarantine, OnLimit::Quarantine);
        assert!(matches!(quarantined, Decision::Quarantine(QuarantineQueue::Spam, _)));
        let Decision::Pass(result) = decide(&spam, OnSpam::Tag, OnLimit::Quarantine) else { panic!() };
        assert!(header("mx", &result).ends_with("\r\nX-Spam-Flag: YES\r\n"), "{result:?}");
    }

    #[test]
    fn what_a_spam_filter_asks_for_is_done() {
        use weir_scan::wishes::Wishes;
        let asked = |action: Wish, outcomes: &[Outcome], on_spam: OnSpam| {
            let fields = vec![("X-Spamd-Bar".to_owned(), "+++".to_owned())];
            let wishes = Wishes { action, words: "try later".into(), fields, subject: Some("[SPAM] hi".into()) };
            let mut verdict = Verdict { wishes: Some(wishes), ..verdict(outcomes) };
            verdict.findings.iter_mut().for_each(|finding| finding.scanner = "rspamd".into());
            decide(&verdict, on_spam, OnLimit::Quarantine)
        };
        let spam = [Outcome::Spam { score: 7.0, threshold: 15.0 }];
        let Decision::Pass(marked) = asked(Wish::Mark, &spam, OnSpam::Quarantine) else { panic!() };
        let lines = "X-Spam-Flag: YES\r\nX-Spamd-Bar: +++\r\nSubject: [SPAM] hi\r\n";
        assert!(header("mx", &marked).ends_with(lines), "{marked:?}");
        let kept = asked(Wish::Keep, &spam, OnSpam::Tag);
        assert!(matches!(kept, Decision::Quarantine(QuarantineQueue::Spam, _)), "{kept:?}");
        let later = asked(Wish::Later, &[Outcome::Clean], OnSpam::Tag);
        assert!(matches!(&later, Decision::Later(why) if why.contains("try later")), "{later:?}");
        let Decision::Pass(passed) = asked(Wish::Pass, &[Outcome::Clean], OnSpam::Tag) else { panic!() };
        assert!(passed.clean && passed.lines.starts_with("X-Spamd-Bar"), "{passed:?}");
        // What is infected stays infected, whatever a spam filter wants.
        let infected = Outcome::Infected { name: "Eicar".into() };
        for action in [Wish::Pass, Wish::Mark, Wish::Later] {
            let kept = asked(action, std::slice::from_ref(&infected), OnSpam::Tag);
            assert!(matches!(kept, Decision::Quarantine(QuarantineQueue::Virus, _)), "{kept:?}");
        }
    }

    #[test]
    fn an_allowed_sender_is_excused_from_spam_and_from_nothing_else() {
        let allowed = |confirmed| Allowed { by: "example.org".into(), domain: "example.org".into(), confirmed };
        let decided = |outcomes: &[Outcome], confirmed: bool| {
            let verdict = verdict(outcomes);
            decide(&excused(&verdict, Some(&allowed(confirmed))), OnSpam::Quarantine, OnLimit::Quarantine)
        };
        let spam = Outcome::Spam { score: 17.2, threshold: 15.0 };
        let Decision::Pass(passed) = decided(std::slice::from_ref(&spam), true) else { panic!() };
        assert!(!passed.spam && passed.words.contains("example.org is allowed"), "{passed:?}");
        let kept = decided(std::slice::from_ref(&spam), false);
        assert!(matches!(kept, Decision::Quarantine(QuarantineQueue::Spam, _)), "nobody confirms the name: {kept:?}");
        for (outcome, queue) in [
            (Outcome::Infected { name: "Eicar".into() }, QuarantineQueue::Virus),
            (Outcome::Forbidden { reason: "exe".into() }, QuarantineQueue::Ext),
            (Outcome::NotScanned { limit: "25 MB".into() }, QuarantineQueue::Limit),
        ] {
            let decision = decided(&[spam.clone(), outcome], true);
            assert!(matches!(&decision, Decision::Quarantine(at, _) if *at == queue), "{decision:?}");
        }
        let failed = Outcome::Failed { problem: "hangs".into() };
        assert!(matches!(decided(&[spam, failed], true), Decision::Retry(_)));
    }

    #[test]
    fn a_limit_does_not_let_spam_pass() {
        let spam = Outcome::Spam { score: 17.2, threshold: 15.0 };
        let both = verdict(&[Outcome::NotScanned { limit: "it has a password".into() }, Outcome::Clean, spam]);
        let kept = decide(&both, OnSpam::Quarantine, OnLimit::Pass);
        assert!(matches!(kept, Decision::Quarantine(QuarantineQueue::Spam, _)), "{kept:?}");
        let Decision::Pass(tagged) = decide(&both, OnSpam::Tag, OnLimit::Pass) else { panic!() };
        assert!(tagged.spam && !tagged.clean && tagged.words.contains("it has a password"), "{tagged:?}");
        assert!(matches!(
            decide(&both, OnSpam::Tag, OnLimit::Quarantine),
            Decision::Quarantine(QuarantineQueue::Limit, _)
        ));
    }

    #[test]
    fn a_header_is_one_line() {
        let words = format!("clean (a\r\nBcc: x, ü{})", "y".repeat(1000));
        let header = header("mx.example", &Passed { clean: true, words, ..Passed::default() });
        assert_eq!(header.matches("\r\n").count(), 1);
        assert!(header.starts_with("X-Weir-Scan: mx.example; clean (a??Bcc: x, ?y") && header.len() < 500);
    }
}
