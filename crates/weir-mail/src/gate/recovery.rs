//! Letters found in the spool at start: those that were decided on go on, the others are decided now.
//!
//! A letter without a decision may have been acknowledged: the mark of the decision is written after the sync of the body, and a power cut
//! can lose it. So the letter is not dropped, and if it cannot be decided now, that is tried again until it works. The exception is a
//! letter with an incomplete body. After a power cut it was never acknowledged, and its sender still has it; but a failing disk can do the
//! same to an acknowledged one. It is dropped, and the administrator is told whose it was.

use super::delivering::Delivering;
use crate::decided::Decided;
use crate::held::HeldMail;
use crate::letter::{Letter, LetterOrigin};
use crate::pipeline::{Pipeline, Transit};
use crate::submission::Submission;
use std::sync::Arc;
use std::time::Duration;
use weir_foundation::supervision;
use weir_smtp::reception::{Alarm, Reception};
use weir_store::spool::{FoundMessage, MailLocation, MessageId, Spool};

/// Between two attempts at what could not be decided; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LONGEST: Duration = Duration::from_secs(60);

/// What became of the letters that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// They go on to delivery.
    pub going: usize,
    /// They had no decision and have one now.
    pub decided: usize,
    /// Damaged and never decided: nothing can be sent.
    pub dropped: usize,
    /// They stay in the spool, unread or undecided; the log says why.
    pub left: usize,
}

/// Who takes letters up.
pub(super) struct Recovery<'a> {
    pub(super) spool: &'a Spool,
    pub(super) submission: &'a Submission,
    pub(super) held: &'a HeldMail,
    pub(super) pipeline: &'a Pipeline,
}

impl Recovery<'_> {
    /// Takes up every letter where it was left.
    pub(super) async fn recover(&self, found: Vec<FoundMessage>) -> Recovered {
        let mut recovered = Recovered::default();
        let mut undecided = Vec::new();
        // What a stage has finished since is gone.
        for found in found.into_iter().filter(|found| self.spool.contains(found.id)) {
            match Letter::read(&found.envelope) {
                Ok(letter) => match self.take_up(&found, letter).await {
                    Fate::Going => recovered.going += 1,
                    Fate::Decided => recovered.decided += 1,
                    Fate::Dropped => recovered.dropped += 1,
                    Fate::Undecided(letter) => undecided.push((found.id, letter)),
                },
                Err(error) => {
                    tracing::error!(id = %found.id, %error, "a message in the spool has an envelope that cannot be read");
                    recovered.left += 1;
                }
            }
        }
        recovered.left += undecided.len();
        if !undecided.is_empty() {
            tracing::error!(
                messages = undecided.len(),
                "messages in the spool cannot be decided now; they are tried again"
            );
            supervision::spawn_until_done("late decisions", decide_later(undecided, self.submission.clone()));
        }
        recovered
    }

    async fn take_up(&self, found: &FoundMessage, letter: Letter) -> Fate {
        let id = found.id;
        if let Some(part) = &letter.part {
            self.held.found(part);
        }
        if matches!(letter.origin, LetterOrigin::Submitted | LetterOrigin::Released) {
            self.spool.shares().add(id, MailLocation::Spool, &letter.owner, found.size);
        }
        let places = match letter.origin {
            LetterOrigin::Released | LetterOrigin::Own | LetterOrigin::Received => (0..letter.to.len()).collect(),
            LetterOrigin::Submitted => match found.marks.iter().find_map(Decided::read) {
                Some(decided) => decided.places,
                None => return self.decide(found, letter).await,
            },
        };
        if places.is_empty() {
            // All of it is held, in files of its own.
            let _ = self.spool.finish(id);
            return Fate::Decided;
        }
        self.pipeline.resume(Transit { id, letter: Arc::new(letter), places }, &found.marks);
        Fate::Going
    }

    /// Nobody heard `250` for this letter, or nobody wrote down that they did.
    async fn decide(&self, found: &FoundMessage, letter: Letter) -> Fate {
        let id = found.id;
        if !found.intact {
            tracing::error!(%id, user = letter.owner, "a message is damaged and was not decided yet; it is dropped");
            self.submission.alarm(&Alarm::Damaged { message: id.to_string().into(), user: letter.owner.into() });
            let _ = self.spool.finish(id);
            return Fate::Dropped;
        }
        match self.submission.resume(id, letter.clone()).await {
            Ok(()) => Fate::Decided,
            Err(reply) => {
                tracing::warn!(%id, reply = reply.text(), "a message in the spool cannot be decided now");
                Fate::Undecided(Box::new(letter))
            }
        }
    }
}

enum Fate {
    Going,
    Decided,
    Dropped,
    Undecided(Box<Letter>),
}

/// From now on reports on users' mail count against their throttles. Delivery does not keep submission alive.
pub(super) fn charge_reports(submission: &Submission, delivery: &Delivering) {
    let submission = submission.weakly();
    delivery.charge_reports(move |id, letter| {
        // If the gate has ended, the next start finds the letter.
        if let Some(submission) = submission() {
            tokio::spawn(decide_soon(id, letter, submission));
        }
    });
}

/// Decides a letter that is in the spool, now or as soon as that can be done.
async fn decide_soon(id: MessageId, letter: Letter, submission: Submission) {
    if submission.resume(id, letter.clone()).await.is_err() {
        decide_later(vec![(id, Box::new(letter))], submission).await;
    }
}

/// Tries again until the last one is decided.
async fn decide_later(mut undecided: Vec<(MessageId, Box<Letter>)>, submission: Submission) {
    let mut wait = WAIT_FIRST;
    while !undecided.is_empty() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_LONGEST);
        let mut still = Vec::new();
        for (id, letter) in undecided {
            match submission.resume(id, Letter::clone(&letter)).await {
                Ok(()) => tracing::info!(%id, "a message of the former life is decided"),
                Err(_) => still.push((id, letter)),
            }
        }
        undecided = still;
    }
}
