//! The files of one letter on their way to the laboratory: verdicts that are already known are used; the other files are extracted from the
//! message by a worker and handed in. What fails is tried again until the letter's deadline.

use super::{FileProgress, PendingEntry, in_time, note_opinion, sample_name, still_counts};
use crate::scan::ScanShared;
use crate::scan::laboratory::{AskedFile, KnownContent, LabVerdict, LabWay, Opinion, Sample, Taken};
use crate::scan::worker::NotLooked;
use std::sync::Arc;
use std::time::Duration;
use weir_scan::samples::Candidate;
use weir_store::diary::DiaryLine;
use weir_store::spool::MessageId;

/// Between two attempts; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LONGEST: Duration = Duration::from_secs(30);

/// Hands in what a letter waits for.
pub(super) async fn run(shared: Arc<ScanShared>, id: MessageId) {
    let Some(way) = shared.lab.clone() else { return };
    let mut wait = WAIT_FIRST;
    loop {
        match shared.hand_in(&way, id).await {
            Ok(()) => break shared.pending.stirred.notify_one(),
            Err(problem) => {
                tracing::warn!(%id, problem, "files cannot be handed to the lab yet; it is tried again");
                shared.with_pending(id, |entry| entry.problem = problem);
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_LONGEST);
    }
}

impl ScanShared {
    /// Does something with a letter that still waits.
    fn with_pending<T>(&self, id: MessageId, change: impl FnOnce(&mut PendingEntry) -> T) -> Option<T> {
        self.pending().entries.get_mut(&id).map(change)
    }

    /// One attempt at all files of a letter that nothing is known of; done too if the letter is gone.
    async fn hand_in(&self, way: &LabWay, id: MessageId) -> Result<(), String> {
        let unasked = self.with_pending(id, |entry| entry.unasked()).unwrap_or_default();
        let asked: Vec<AskedFile> = unasked.iter().map(AskedFile::from).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let known = in_time(way.laboratory.known(&asked)).await;
        self.heard(known.as_ref().err());
        let mut new = Vec::new();
        for (file, known) in unasked.into_iter().zip(known?) {
            match known {
                KnownContent::Ended(opinion) if still_counts(&opinion, &way.settings, self.now()) => {
                    note_opinion(&self.site, id, &file.sha256, &opinion);
                    let malicious = opinion.verdict == LabVerdict::Malicious;
                    self.answered(id, &file, FileProgress::Known(opinion));
                    if malicious {
                        return Ok(());
                    }
                }
                KnownContent::Open { sample } => self.answered(id, &file, FileProgress::Awaited(sample)),
                KnownContent::Ended(_) | KnownContent::Nothing => new.push(file),
            }
        }
        self.pending.stirred.notify_one();
        if new.is_empty() { Ok(()) } else { self.send_to_lab(way, id, &new).await }
    }

    async fn send_to_lab(&self, way: &LabWay, id: MessageId, files: &[Candidate]) -> Result<(), String> {
        let Ok(_hand) = self.pending.hands.acquire().await else { return Ok(()) };
        let Some(waiting) = self.with_pending(id, |entry| entry.waiting.clone()) else { return Ok(()) };
        let content = match self.content(&waiting).await {
            Ok(content) => content,
            // Somebody deleted it meanwhile.
            Err(NotLooked::Gone) => {
                drop(self.take_pending(id));
                return Ok(());
            }
            Err(NotLooked::Failed(problem)) => return Err(problem),
        };
        let Some(inspector) = self.inspectors.first() else { return Err("nobody here opens mail".to_owned()) };
        for file in files {
            let bytes = inspector.extract_boxed(&content, file).await?;
            let bytes = bytes.ok_or_else(|| format!("{} is not in the message any more", file.name))?;
            let sample = Sample {
                content: bytes,
                name: file.name.clone(),
                priority: way.settings.priority,
                submitter: format!("mail {}", waiting.sender),
                passwords: file.passwords.clone(),
            };
            let answer = match in_time(way.laboratory.submit(sample)).await? {
                Taken::Queued(sample) => FileProgress::Awaited(sample),
                Taken::NotForUs(why) => {
                    let at = self.now().0 as i64;
                    FileProgress::Known(Opinion { sample: 0, verdict: LabVerdict::Unknown, reasons: vec![why], at })
                }
            };
            self.answered(id, file, answer);
        }
        Ok(())
    }

    fn answered(&self, id: MessageId, file: &Candidate, answer: FileProgress) {
        if let FileProgress::Awaited(sample) = &answer {
            let text = format!("{} ({}, {} bytes) is with the lab as sample {sample}", file.name, file.why, file.size);
            let about = [file.sha256.clone(), sample_name(*sample)];
            self.note(DiaryLine::new(id, "sample", text).about(about));
        }
        self.with_pending(id, |entry| {
            entry.answers.insert(file.into(), answer);
            entry.problem.clear();
        });
    }
}
