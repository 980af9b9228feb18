//! One scanner of the panel: its deadline is kept, its answers are remembered, and what it says becomes findings.

use crate::content::Content;
use crate::examine::Report;
use crate::inspect::About;
use crate::memo::{ContentKey, Memo, MemoAnswer, Remembered};
use crate::memory_bounds::Bounds;
use crate::samples::Candidate;
use crate::scanner::{Answer, MemoKey, Scanner};
use crate::verdict::{Finding, Outcome};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) scanner: Arc<dyn Scanner>,
    memo: Arc<Memo<Report>>,
}

impl Member {
    pub(super) fn new(scanner: Arc<dyn Scanner>, memory: Bounds) -> Arc<Member> {
        Arc::new(Member { scanner, memo: Memo::new(memory) })
    }

    /// Asks it. None if it is not shown such content, or if it failed and mail goes on without it.
    pub(super) async fn ask(&self, content: &Content, about: &Arc<About>) -> Option<Report> {
        if !self.scanner.looks_at(content.length()) {
            return None;
        }
        let report = match self.scanner.memo_key() {
            Some(key) => self.ask_memo(key, content, about).await,
            None => self.ask_now(content, about).await,
        };
        match report.findings.iter().find_map(problem) {
            Some(problem) if self.scanner.is_optional() => {
                tracing::warn!(scanner = self.scanner.name(), problem, "mail goes on without this scanner");
                None
            }
            _ => Some(report),
        }
    }

    async fn ask_now(&self, content: &Content, about: &About) -> Report {
        let (wait, begun) = (self.scanner.deadline(content.length()), Instant::now());
        let answer = match tokio::time::timeout(wait, self.scanner.scan(content, about)).await {
            Ok(answer) => answer,
            Err(_) => Answer::Failed { problem: self.scanner.gave_up(wait) },
        };
        self.report(answer, begun)
    }

    async fn ask_memo(&self, key: MemoKey, content: &Content, about: &Arc<About>) -> Report {
        let wait = self.scanner.deadline(content.length());
        let begun = Instant::now();
        let (scanner, content, about) = (self.scanner.clone(), content.clone(), about.clone());
        let named = ContentKey { hash: *content.hash(), version: key.version, is_file: about.is_file };
        let scan = || async move {
            let answer = scanner.scan(&content, &about).await;
            answer.report(&scanner.reports_as(), begun.elapsed())
        };
        match self.memo.ask(named, key.keep, wait, scan).await {
            MemoAnswer::Found(report) => report,
            MemoAnswer::Known(report) => at_once(report),
            MemoAnswer::TooLong => self.report(Answer::Failed { problem: self.scanner.gave_up(wait) }, begun),
            MemoAnswer::TooMany => {
                at_once(self.report(Answer::Failed { problem: "too many scans are under way".into() }, begun))
            }
        }
    }

    fn report(&self, answer: Answer, begun: Instant) -> Report {
        answer.report(&self.scanner.reports_as(), begun.elapsed())
    }
}

impl Remembered for Report {
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.findings.iter().map(|finding| &finding.outcome)
    }

    fn weight(&self) -> usize {
        let finding = |f: &Finding| size_of::<Finding>() + f.scanner.len() + f.place.len() + f.outcome.weight();
        let Report { findings, suspicious, samples, .. } = self;
        findings.iter().map(finding).sum::<usize>()
            + suspicious.iter().map(|why| why.len() + 24).sum::<usize>()
            + samples.iter().map(Candidate::weight).sum::<usize>()
    }
}

/// What went wrong, if this scanner failed.
pub(super) fn problem(finding: &Finding) -> Option<&str> {
    match &finding.outcome {
        Outcome::Failed { problem } => Some(problem),
        _ => None,
    }
}

/// An answer that was known took no time.
fn at_once(mut report: Report) -> Report {
    report.findings.iter_mut().for_each(|finding| finding.took = Duration::ZERO);
    report
}
