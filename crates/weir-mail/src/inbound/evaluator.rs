//! Evaluates received messages (SPF, DKIM, DMARC), a bounded number at a time, and decides what to do with each.
//!
//! A stranger's message is evaluated while its client waits for the answer; that of a listed peer afterwards, as a stage
//! ([`super::Authenticating`]). A stranger's message that gets no place in time is not accepted unchecked; the client is asked to try again
//! later. One network gets at most an eighth of the places, because a sender can make the DNS of its own domain as slow as it likes.

use super::authenticity::{Authenticity, AuthenticitySettings, Evaluation, Evidence};
use super::enforcement::{Case, EnforcementSettings, Judgement};
use super::senders;
use crate::delivery::ledger::StoredBody;
use crate::delivery::resolver::ResolverError;
use crate::letter::{Allowed, Letter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_smtp::reply::{Reply, Status};
use weir_store::spool::MessageId;

/// How long a message waits for a place: the line stays as short as the time is, whatever comes in and however slow the DNS is.
pub(super) const PLACE_WAIT: Duration = Duration::from_secs(10);

/// How received mail is evaluated, and what follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvaluatorSettings {
    /// How it is evaluated.
    pub authenticity: AuthenticitySettings,
    /// What follows from it.
    pub enforcement: EnforcementSettings,
}

/// Evaluates received messages.
#[derive(Debug)]
pub struct Evaluator {
    authenticity: Authenticity,
    enforcement: EnforcementSettings,
    pub(super) places: Semaphore,
    /// Places that one network may have.
    share: usize,
    /// How many each network has, of those that have any.
    taken: Mutex<HashMap<String, usize>>,
    /// The last message that wanted a place got none.
    crowded: AtomicBool,
}

impl Evaluator {
    /// One that asks the DNS as the settings say.
    pub fn new(settings: &EvaluatorSettings) -> Result<Evaluator, ResolverError> {
        Ok(Evaluator {
            authenticity: Authenticity::new(&settings.authenticity)?,
            enforcement: settings.enforcement.clone(),
            places: Semaphore::new(settings.authenticity.at_once.max(1)),
            share: (settings.authenticity.at_once / 8).max(1),
            taken: Mutex::default(),
            crowded: AtomicBool::new(false),
        })
    }

    /// A place out of a network's share; nothing if it has all of it.
    fn share_of(&self, network: &str) -> Option<Share<'_>> {
        let mut taken = self.taken();
        let count = taken.entry(network.to_owned()).or_default();
        if *count >= self.share {
            return None;
        }
        *count += 1;
        Some(Share { evaluator: self, network: network.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stranger's message that is not taken yet: what was found, and what becomes of it.
    pub(super) async fn judge(
        self: &Arc<Self>,
        id: MessageId,
        letter: &Arc<Letter>,
        evidence: Evidence,
    ) -> Result<(Evaluation, Judgement), Reply> {
        let Some(_share) = self.share_of(&letter.owner) else {
            let text = format!("{} brings too many messages at once, try again later", letter.owner);
            return Err(Reply::new(451, Status(4, 7, 1), text));
        };
        let Some(_place) = self.place().await else {
            return Err(Reply::new(451, Status(4, 3, 2), "too much mail comes in at once, try again later"));
        };
        let (evaluator, asked) = (Arc::clone(self), Arc::clone(letter));
        // A task of its own: should a message bring the evaluation down, its session goes on.
        let evaluated = tokio::spawn(async move {
            match &asked.client {
                Some(client) => evaluator.authenticity.evaluate(&asked, client, evidence).await,
                None => evaluator.authenticity.nothing(),
            }
        });
        let evaluation = evaluated.await.map_err(|error| {
            tracing::error!(%id, %error, "a message brought its evaluation down; it is not taken");
            Reply::new(451, Status(4, 3, 0), "the message could not be evaluated, try again later")
        })?;
        let case = Case { sender: &letter.from, evaluation: &evaluation, number: number(id) };
        let judgement = self.enforcement.judge(case);
        Ok((evaluation, judgement))
    }

    /// A message that has been taken: what was found about it.
    pub(super) async fn look_at<B: StoredBody + Send + 'static>(
        self: &Arc<Self>,
        id: MessageId,
        letter: &Arc<Letter>,
        body: B,
    ) -> Option<Found> {
        let Some(_place) = self.place().await else {
            return Some(Found { field: self.authenticity.nothing().field, ..Found::default() });
        };
        let (evaluator, asked) = (Arc::clone(self), Arc::clone(letter));
        let evaluated = tokio::spawn(async move { evaluator.authenticity.authenticate(&asked, body).await });
        let evaluation = match evaluated.await {
            Ok(evaluation) => evaluation,
            Err(error) => {
                tracing::error!(%id, %error, "a message brought its evaluation down; it goes on without");
                return None;
            }
        };
        let case = Case { sender: &letter.from, evaluation: &evaluation, number: number(id) };
        let hold = self.enforcement.hold_of_relayed(case);
        let allowed = senders::confirmed(letter.allowed.as_ref(), &evaluation);
        Some(Found { field: evaluation.field, hold, allowed })
    }

    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        let place = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await.ok().and_then(Result::ok);
        if place.is_none() && !self.crowded.swap(true, Ordering::Relaxed) {
            tracing::warn!("more mail comes from outside than can be evaluated");
        } else if place.is_some() {
            self.crowded.store(false, Ordering::Relaxed);
        }
        place
    }
}

/// What was found about a message that has been taken.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its header field.
    pub(super) field: String,
    /// Why it is kept, if it is.
    pub(super) hold: Option<String>,
    /// Its sender is allowed, and is who it says.
    pub(super) allowed: Option<Allowed>,
}

/// Part of a network's share, given back when it is dropped.
#[derive(Debug)]
struct Share<'a> {
    evaluator: &'a Evaluator,
    network: String,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut taken = self.evaluator.taken();
        if let Some(count) = taken.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.network);
            }
        }
    }
}

/// Which of a hundred messages one is. Nobody outside chooses its name.
fn number(id: MessageId) -> u8 {
    let sum = id.to_string().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    (sum % 100) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::resolver::Dns;

    #[tokio::test]
    async fn one_network_does_not_take_all_places() {
        let dns = Dns::Server("127.0.0.1:9".parse().unwrap(), Duration::from_secs(1));
        let authenticity = AuthenticitySettings { dns, at_once: 16, ..AuthenticitySettings::default() };
        let evaluator = Evaluator::new(&EvaluatorSettings { authenticity, ..EvaluatorSettings::default() }).unwrap();
        let first = evaluator.share_of("192.0.2.0/24");
        let second = evaluator.share_of("192.0.2.0/24");
        assert!(first.is_some() && second.is_some() && evaluator.share_of("192.0.2.0/24").is_none());
        assert!(evaluator.share_of("198.51.100.0/24").is_some());
        drop(first);
        assert!(evaluator.share_of("192.0.2.0/24").is_some());
        drop(second);
        assert!(evaluator.taken().is_empty());
    }
}
