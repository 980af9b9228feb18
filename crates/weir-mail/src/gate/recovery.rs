//! Letters found in the spool at start: what was acknowledged goes on, what was not is decided now.

use crate::decided::Decided;
use crate::letter::{Letter, Origin};
use crate::outbound::Outbound;
use crate::submission::Submission;
use std::sync::Arc;
use weir_store::spool::{Found, Spool};

/// What became of the letters that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// They go on to delivery.
    pub going: usize,
    /// They had no decision and have one now.
    pub decided: usize,
    /// Never acknowledged, and refused now: their senders still have them.
    pub dropped: usize,
    /// They stay in the spool, unread or undecided; the log says why.
    pub left: usize,
}

/// Takes up every letter where it was left.
pub(super) async fn recover<O: Outbound>(
    found: Vec<Found>,
    spool: &Spool,
    submission: &Submission<O>,
    outbound: &O,
) -> Recovered {
    let mut recovered = Recovered::default();
    for found in found {
        let counter = match Letter::read(&found.envelope) {
            Ok(letter) => take_up(&found, letter, spool, (submission, outbound)).await,
            Err(error) => {
                tracing::error!(id = %found.id, %error, "a message in the spool has an envelope that cannot be read");
                Fate::Left
            }
        };
        match counter {
            Fate::Going => recovered.going += 1,
            Fate::Decided => recovered.decided += 1,
            Fate::Dropped => recovered.dropped += 1,
            Fate::Left => recovered.left += 1,
        }
    }
    recovered
}

enum Fate {
    Going,
    Decided,
    Dropped,
    Left,
}

async fn take_up<O: Outbound>(
    found: &Found,
    letter: Letter,
    spool: &Spool,
    (submission, outbound): (&Submission<O>, &O),
) -> Fate {
    let id = found.id;
    let places = match letter.origin {
        Origin::Released | Origin::Own => (0..letter.to.len()).collect(),
        Origin::Submitted => match found.marks.iter().find_map(Decided::read) {
            Some(decided) => decided.places,
            None => return decide(found, letter, spool, submission).await,
        },
    };
    if places.is_empty() {
        // All of it is held, in files of its own.
        let _ = spool.finish(id);
        return Fate::Decided;
    }
    outbound.resume(id, Arc::new(letter), places, &found.marks);
    Fate::Going
}

/// Nobody heard `250` for this letter, or nobody wrote down that they did.
async fn decide<O: Outbound>(found: &Found, letter: Letter, spool: &Spool, submission: &Submission<O>) -> Fate {
    let id = found.id;
    if !found.intact {
        tracing::warn!(%id, "a message that was never acknowledged is damaged; it is dropped, its sender still has it");
        let _ = spool.finish(id);
        return Fate::Dropped;
    }
    match submission.resume(id, letter).await {
        Ok(()) => Fate::Decided,
        Err(reply) if reply.is_temporary() => {
            tracing::error!(%id, reply = reply.text(), "a message in the spool cannot be decided now; it stays until the next start");
            Fate::Left
        }
        Err(reply) => {
            tracing::info!(%id, reply = reply.text(), "a message that was never acknowledged is refused");
            let _ = spool.finish(id);
            Fate::Dropped
        }
    }
}
