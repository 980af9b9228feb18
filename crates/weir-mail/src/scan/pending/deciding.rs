//! Asks the laboratory about all waiting letters together, and decides those that have a verdict or whose time is over. One task does it,
//! so that a letter is decided once.

use super::verdict::{LabDecision, decided};
use super::{Detention, FileProgress, PendingEntry, in_time, note_opinion};
use crate::scan::decision::{Passed, QuarantineQueue};
use crate::scan::laboratory::{AskedFile, KnownContent, LabWay, Opinion};
use crate::scan::quarantine::QuarantinedLetter;
use crate::scan::state::WaitingLetter;
use crate::scan::worker::{Failure, ScanEnd};
use crate::scan::{ScanShared, Site};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use weir_scan::samples::Candidate;
use weir_scan::verdict::{Finding, Outcome, Verdict};
use weir_smtp::reception::Alarm;
use weir_store::diary::DiaryLine;
use weir_store::spool::MessageId;

/// How often the laboratory is asked while something waits.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Contents that are asked about at once.
const ASKED_MAX: usize = 200;
/// What cannot be carried out, because the disk is full say, is tried again after this.
const REST: Duration = Duration::from_secs(10);
/// After this many questions without an answer an alarm is raised.
const SILENCES_MAX: u32 = 10;

/// Asks and decides for as long as the stage lives.
pub(in crate::scan) async fn watch(shared: Arc<ScanShared>) {
    let Some(way) = shared.lab.clone() else { return };
    loop {
        let wait = shared.tend_pending(&way).await;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.pending.stirred.notified() => {}
        }
    }
}

impl ScanShared {
    /// Asks, decides what can be decided; how long until the next look.
    async fn tend_pending(&self, way: &LabWay) -> Duration {
        if self.pending().entries.is_empty() {
            return Duration::from_secs(3600);
        }
        self.ask_lab(way).await;
        for id in self.decidable(way) {
            self.decide(way, id).await;
        }
        ASK_EVERY
    }

    /// Takes what the laboratory has come to.
    async fn ask_lab(&self, way: &LabWay) {
        let awaited: BTreeSet<AskedFile> =
            self.pending().entries.values().flat_map(|entry| entry.awaited().cloned().collect::<Vec<_>>()).collect();
        let awaited: Vec<AskedFile> = awaited.into_iter().collect();
        for files in awaited.chunks(ASKED_MAX) {
            let known = in_time(way.laboratory.known(files)).await;
            self.heard(known.as_ref().err());
            let Ok(known) = known else { return };
            let mut pending = self.pending();
            for (file, known) in files.iter().zip(known) {
                let KnownContent::Ended(opinion) = known else { continue };
                for entry in pending.entries.values_mut() {
                    entry.take(file, &opinion, &self.site);
                }
            }
        }
    }

    /// A laboratory that does not answer is worth an alarm, once.
    pub(super) fn heard(&self, problem: Option<&String>) {
        let mut pending = self.pending();
        let Some(problem) = problem else {
            // That it was silent is over. What else is wrong with a letter is found again at its next attempt.
            if std::mem::take(&mut pending.silences) > 0 {
                pending.entries.values_mut().for_each(|entry| entry.problem.clear());
            }
            return;
        };
        pending.silences = pending.silences.saturating_add(1);
        for entry in pending.entries.values_mut() {
            entry.problem.clone_from(problem);
        }
        let (silences, waiting) = (pending.silences, pending.entries.len());
        drop(pending);
        if silences == SILENCES_MAX {
            tracing::error!(problem, waiting, "the lab does not answer; mail waits for its verdict");
            self.alarms.raise(Alarm::LabSilent { problem: problem.as_str().into(), waiting });
        }
    }

    /// Letters with a verdict, or without time.
    fn decidable(&self, way: &LabWay) -> Vec<MessageId> {
        let now = self.now();
        let pending = self.pending();
        let ready = |entry: &PendingEntry| {
            let verdict = decided(entry.detention.files(), &entry.opinions(), &way.settings);
            entry.rests_until <= now && (verdict.is_some() || entry.detention.until <= now.0)
        };
        pending.entries.iter().filter(|(_, entry)| ready(entry)).map(|(id, _)| *id).collect()
    }

    async fn decide(&self, way: &LabWay, id: MessageId) {
        let Some(entry) = self.take_pending(id) else { return };
        let decision = decided(entry.detention.files(), &entry.opinions(), &way.settings);
        let in_time = decision.is_some();
        let decision = match decision {
            Some(decision) => decision,
            None => {
                let problem = self.why_late(way, &entry).await;
                tracing::warn!(%id, problem, "the lab gave no verdict in time; the policy decides");
                let waiting = self.pending().entries.len() + 1;
                self.alarms.raise(Alarm::LabSilent { problem: problem.as_str().into(), waiting });
                way.settings.without_verdict(&problem)
            }
        };
        let (now, passed) = (self.now(), matches!(decision, LabDecision::Pass { .. }));
        match self.carry_out(&entry.waiting, &entry.detention, &decision, Duration::ZERO).await {
            ScanEnd::Failed(Failure { problem, .. }) => {
                tracing::error!(%id, problem, "what the lab says cannot be carried out yet; it is tried again");
                let mut pending = self.pending();
                pending.bytes += entry.waiting.size;
                pending.entries.insert(id, PendingEntry { problem, rests_until: now + REST, ..entry });
                return;
            }
            ScanEnd::Gone => return,
            _ => {}
        }
        let hashes = entry.detention.files().iter().map(|file| file.sha256.clone());
        let event = if in_time { "verdict" } else { "late" };
        // Under the time of the decision: what came of it may be written down already.
        self.site.spool.diary().note(DiaryLine::new(id, event, decision.words()).about(hashes).at(now.0));
        let mut pending = self.pending();
        let counts = &mut pending.counts;
        *(match (in_time, passed) {
            (false, _) => &mut counts.undecided,
            (true, true) => &mut counts.passed,
            (true, false) => &mut counts.quarantined,
        }) += 1;
        drop(pending);
        let mut state = self.state();
        let counts = &mut state.figures.counts;
        *(if passed { &mut counts.passed } else { &mut counts.quarantined }) += 1;
    }

    async fn why_late(&self, way: &LabWay, entry: &PendingEntry) -> String {
        let within = Duration::from_nanos(entry.detention.until.saturating_sub(entry.detention.since));
        let known = entry.opinions();
        let open: Vec<&Candidate> =
            entry.detention.files().iter().filter(|file| !known.contains_key(&AskedFile::from(*file))).collect();
        let names: Vec<&str> = open.iter().map(|file| file.name.as_str()).collect();
        let sample = open.iter().find_map(|file| match entry.answers.get(&AskedFile::from(*file)) {
            Some(FileProgress::Awaited(sample)) => Some(*sample),
            _ => None,
        });
        let why = match sample {
            Some(sample) => match in_time(way.laboratory.why(sample)).await {
                Ok(why) => format!("sample {sample}: {why}"),
                Err(problem) => problem,
            },
            None if entry.problem.is_empty() => "it was not handed in".to_owned(),
            None => entry.problem.clone(),
        };
        format!("the lab gave no verdict on {} within {} ({why})", names.join(", "), seconds(within))
    }

    /// What was decided happens.
    pub(super) async fn carry_out(
        &self,
        waiting: &WaitingLetter,
        detention: &Detention,
        decision: &LabDecision,
        took: Duration,
    ) -> ScanEnd {
        let Some(letter) = waiting.letter.clone() else {
            return ScanEnd::Failed("its letter is not here".to_owned().into());
        };
        let passed = &detention.passed;
        match decision {
            LabDecision::Pass { clean, words } => {
                // What the lab does not know to be clean says so, whatever the settings.
                let clean = passed.clean && *clean;
                let words = format!("{}; {words}", passed.words);
                let passed = Passed { clean, words, ..passed.clone() };
                self.pass(waiting, &letter, &passed, took)
            }
            LabDecision::Keep(queue, reason) => {
                tracing::info!(id = %waiting.id, queue = queue.as_str(), reason, "quarantined");
                let detail = serde_json::to_string(&detention.with(*queue, reason)).unwrap_or_default();
                let kept = QuarantinedLetter::new(waiting, Some(letter), *queue, reason.clone(), self.now());
                self.quarantine.keep(QuarantinedLetter { detail, ..kept }).await;
                ScanEnd::Done { passed: false, took }
            }
        }
    }
}

impl Detention {
    /// What the scanners said, and what the laboratory says.
    fn with(&self, queue: QuarantineQueue, reason: &str) -> Verdict {
        let outcome = match queue {
            QuarantineQueue::Virus => Outcome::Infected { name: reason.to_owned() },
            QuarantineQueue::Error => Outcome::NotScanned { limit: reason.to_owned() },
            _ => Outcome::Forbidden { reason: reason.to_owned() },
        };
        let mut verdict = self.verdict.clone();
        let took = Duration::ZERO;
        verdict.findings.push(Finding { scanner: "lab".into(), outcome: outcome.plain(), place: self.names(), took });
        verdict
    }
}

impl PendingEntry {
    /// The laboratory has come to an end with a file.
    fn take(&mut self, file: &AskedFile, opinion: &Opinion, site: &Site) {
        let Some(answer) = self.answers.get_mut(file) else { return };
        if let FileProgress::Awaited(_) = answer {
            *answer = FileProgress::Known(opinion.clone());
            note_opinion(site, self.waiting.id, &file.sha256, opinion);
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds if seconds >= 120 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
