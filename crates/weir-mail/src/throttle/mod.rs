//! The throttle at work: many users, one store, decisions in batches.
//!
//! States are always in the records: a decision is one transaction that reads the states of everybody in the batch, runs the core's machine
//! and writes states and held mail back. So a restart changes nothing, several relays on one PostgreSQL are one throttle, and an idle user
//! costs no memory. Requests that arrive while a transaction runs make up the next batch. If the records fail, the caller gets an error and
//! refuses the mail for now: no mail ever passes without the throttle.

mod correspondents;
mod operation;
mod state;
pub(crate) mod stored;
mod throttle_settings;

pub use correspondents::{count as correspondents_in, remember};
pub use operation::{Done, NotDone, NoticeKind, ShownEntries, Submission, SubmitOutcome, ThrottleCommand};
pub use throttle_settings::{ThrottleSettings, usual_person};

pub(crate) use state::{at as machine, overridden};

use correspondents::{KnownCorrespondents, Pending, packs_of};
use operation::{BatchedThrottle, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use weir_core::throttle::{Class, EntryId, RecipientKey, Recipients};
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_foundation::supervision;
use weir_store::records::{Changes, PastMailAsked, Records, RecordsError};

/// Most requests in one transaction.
const BATCH_MAX: usize = 256;
/// Requests that may wait for the next transaction; more senders than that wait in line.
const WAITING_MAX: usize = 4096;

/// A handle to the throttle. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Throttling {
    requests: mpsc::Sender<ThrottleRequest>,
}

impl Throttling {
    /// Starts the task that decides. It ends when the last handle is dropped.
    pub fn start(records: Records, clock: Clock) -> Throttling {
        let (requests, incoming) = mpsc::channel(WAITING_MAX);
        supervision::spawn("throttle", run(records, clock, incoming));
        Throttling { requests }
    }

    /// May this mail go now? What is to be held is durable when this returns.
    pub async fn submit(&self, submission: Submission) -> Result<SubmitOutcome, ThrottlingError> {
        let (reply, answer) = oneshot::channel();
        self.ask(ThrottleRequest::Submit(Box::new(submission), reply), answer).await
    }

    /// Carries out a command on one identity's throttle.
    pub async fn command(&self, identity: &str, command: ThrottleCommand) -> Result<Done, ThrottlingError> {
        let (reply, answer) = oneshot::channel();
        self.ask(ThrottleRequest::Command(identity.to_owned(), command, reply), answer).await
    }

    /// Somebody whose address is confirmed has written to an address of ours, which may answer. Does not wait: if the queue is full, the
    /// letter is not counted.
    pub fn note_letter(&self, to: &str, from: RecipientKey) {
        let _ = self.requests.try_send(ThrottleRequest::Letter(to.to_owned(), from));
    }

    async fn ask<T>(
        &self,
        request: ThrottleRequest,
        answer: oneshot::Receiver<Result<T, ThrottlingError>>,
    ) -> Result<T, ThrottlingError> {
        self.requests.send(request).await.map_err(|_| ThrottlingError::Ended)?;
        answer.await.map_err(|_| ThrottlingError::Ended)?
    }
}

enum ThrottleRequest {
    Submit(Box<Submission>, oneshot::Sender<Result<SubmitOutcome, ThrottlingError>>),
    Command(String, ThrottleCommand, oneshot::Sender<Result<Done, ThrottlingError>>),
    /// To which address of ours, and from whom.
    Letter(String, RecipientKey),
}

impl ThrottleRequest {
    /// Whose throttle it is about; a letter is about nobody's.
    fn identity(&self) -> &str {
        match self {
            ThrottleRequest::Submit(submission, _) => &submission.identity,
            ThrottleRequest::Command(identity, ..) => identity,
            ThrottleRequest::Letter(..) => "",
        }
    }

    /// The address of ours that a mail is sent as, if letters to it count; empty if not.
    fn sent_as(&self) -> &str {
        match self {
            ThrottleRequest::Submit(submission, _) => &submission.sent_as,
            _ => "",
        }
    }

    fn fail(self, error: ThrottlingError) {
        match self {
            ThrottleRequest::Submit(_, reply) => drop(reply.send(Err(error))),
            ThrottleRequest::Command(_, _, reply) => drop(reply.send(Err(error))),
            ThrottleRequest::Letter(..) => {}
        }
    }
}

/// An answer that waits for its transaction to commit.
enum PendingAnswer {
    Submit(Result<SubmitOutcome, ThrottlingError>),
    Command(Result<Done, ThrottlingError>),
    /// Nobody waits for one.
    None,
}

async fn run(records: Records, clock: Clock, mut incoming: mpsc::Receiver<ThrottleRequest>) {
    let mut batch = Vec::new();
    let mut pending = Pending::default();
    let mut written = tokio::time::Instant::now();
    loop {
        let received = match pending.is_empty() {
            true => incoming.recv_many(&mut batch, BATCH_MAX).await,
            false => timeout(WRITTEN_EVERY, incoming.recv_many(&mut batch, BATCH_MAX)).await.unwrap_or(NOTHING_YET),
        };
        batch.retain(|request| match request {
            ThrottleRequest::Letter(to, from) => {
                pending.letter(to, *from);
                false
            }
            _ => true,
        });
        decide_batch(&records, clock(), &mut batch, &mut pending).await;
        if !pending.is_empty() && (received == 0 || written.elapsed() >= WRITTEN_EVERY) {
            write_behind(&records, day_of(clock()), &std::mem::take(&mut pending)).await;
            written = tokio::time::Instant::now();
        }
        if received == 0 {
            return;
        }
    }
}

/// New correspondents are written at most so long after the mail was let go.
const WRITTEN_EVERY: Duration = Duration::from_secs(1);
/// Nothing has come yet. 0 would mean that the channel is closed.
const NOTHING_YET: usize = usize::MAX;

async fn decide_batch(records: &Records, now: Instant, batch: &mut Vec<ThrottleRequest>, pending: &mut Pending) {
    if batch.is_empty() {
        return;
    }
    match decide(records, now, batch, pending).await {
        Ok((answers, sent)) => {
            batch.drain(..).zip(answers).for_each(|(request, answer)| reply(request, answer));
            sent.into_iter().for_each(|(owner, to)| pending.sent(&owner, to));
        }
        Err(error) => {
            tracing::error!(%error, requests = batch.len(), "the throttle cannot decide; mail is refused for now");
            let error = if error.is_about_the_disk() {
                ThrottlingError::Disk(error.to_string())
            } else {
                ThrottlingError::Records(error.to_string())
            };
            batch.drain(..).for_each(|request| request.fail(error.clone()));
        }
    }
}

/// Writes down whom users have written to, and who has written to them. If that fails, those are strangers again, and nothing worse.
async fn write_behind(records: &Records, today: u16, pending: &Pending) {
    let memory = records.correspondents();
    let write = async {
        let packs = pending.packs();
        if !packs.is_empty() {
            memory.change(&packs, |found| pending.merged(found, today)).await?;
        }
        let opened = pending.opened();
        if !opened.is_empty() {
            memory.open_letters(&opened).await?;
        }
        for (address, letter) in pending.letters(today) {
            memory.add_letter(address, &letter, correspondents::LETTERS_LENGTH).await?;
        }
        Ok::<_, RecordsError>(())
    };
    if let Err(error) = write.await {
        tracing::warn!(%error, "whom users have written to is not written down; they stay strangers");
    }
}

/// The day of a time, as the memory of correspondents counts days.
pub fn day_of(now: Instant) -> u16 {
    u16::try_from(now.0 / 86_400_000_000_000).unwrap_or(u16::MAX)
}

/// The answers, and whom mail was let go to that has to be remembered.
type Decided = (Vec<PendingAnswer>, Vec<(String, RecipientKey)>);

async fn decide(
    records: &Records,
    now: Instant,
    batch: &[ThrottleRequest],
    pending: &mut Pending,
) -> Result<Decided, RecordsError> {
    let mut row_of: BTreeMap<&str, usize> = batch.iter().map(|request| (request.identity(), 0)).collect();
    let identities: Vec<String> = row_of.keys().map(|name| (*name).to_owned()).collect();
    row_of.values_mut().enumerate().for_each(|(index, row)| *row = index);
    let absent = absent_entries(records, now, &identities).await?;
    let (today, alone) = (day_of(now), !records.is_shared());
    let seen = &*pending;
    let (decided, unopened) = records
        .throttles()
        .decide_knowing(&identities, &asked(batch), |rows, found| {
            let (mut changes, mut sent) = (Changes::default(), Vec::new());
            let absent = (0..rows.len()).map(|row| absent.get(row).map_or(&[][..], Vec::as_slice));
            let mut throttles: Vec<BatchedThrottle<'_>> =
                rows.iter_mut().zip(absent).map(|(row, absent)| BatchedThrottle::new(row, absent)).collect();
            let answers = batch.iter().map(|request| {
                let of = &mut throttles[row_of[request.identity()]];
                let address = request.sent_as();
                let known = KnownCorrespondents { owner: request.identity(), address, found, pending: seen, today };
                let mut operation = Operation { of, changes: &mut changes, sent: &mut sent, known, now, alone };
                match request {
                    ThrottleRequest::Submit(submission, _) => PendingAnswer::Submit(operation.submit(submission)),
                    ThrottleRequest::Command(_, command, _) => PendingAnswer::Command(operation.command(command)),
                    ThrottleRequest::Letter(..) => PendingAnswer::None,
                }
            });
            let answers = answers.collect();
            throttles.into_iter().for_each(|throttle| throttle.close(&mut changes));
            let used = batch.iter().map(ThrottleRequest::sent_as).filter(|address| !address.is_empty());
            let unopened: BTreeSet<String> =
                used.filter(|address| !found.letters.contains_key(*address)).map(str::to_owned).collect();
            (changes, ((answers, sent), unopened))
        })
        .await?;
    unopened.iter().for_each(|address| pending.open(address));
    Ok(decided)
}

/// What these requests need to know of past mail.
fn asked(batch: &[ThrottleRequest]) -> PastMailAsked {
    let mut packs = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for request in batch {
        let ThrottleRequest::Submit(submission, _) = request else { continue };
        if submission.params.recipients == Recipients::Alike {
            continue;
        }
        let others =
            submission.recipients.iter().zip(&submission.classes).filter(|(_, class)| **class != Class::Colleague);
        for (key, _) in others {
            packs.extend(packs_of(*key).map(|pack| (submission.identity.clone(), pack)));
        }
        addresses.extend(Some(request.sent_as()).filter(|address| !address.is_empty()).map(str::to_owned));
    }
    PastMailAsked { packs: packs.into_iter().collect(), addresses: addresses.into_iter().collect() }
}

/// For each identity, the held entries whose relay has fallen silent. If no relay is silent, nothing is looked up.
async fn absent_entries(
    records: &Records,
    now: Instant,
    identities: &[String],
) -> Result<Vec<Vec<EntryId>>, RecordsError> {
    if !records.is_shared() {
        return Ok(Vec::new());
    }
    let silent = records.relays().silent_since((now.0 as i64).saturating_sub(RELAY_SILENCE_NS)).await?;
    if silent.is_empty() {
        return Ok(Vec::new());
    }
    let mut absent = Vec::with_capacity(identities.len());
    for identity in identities {
        let entries = records.held().entries_of_relays(identity, &silent).await?;
        absent.push(entries.into_iter().map(|entry| EntryId(entry as u64)).collect());
    }
    Ok(absent)
}

/// A running relay lets go what is due within this time. What is due for longer was due while nobody was there, or the clock was set: then
/// a queue drains on at its rate from now, and is not emptied at once. A minute is far more than a busy machine needs, and no more than
/// one entry's wait at the usual rate.
pub(crate) const LOOKED_AT_WITHIN: Duration = Duration::from_secs(60);

/// A relay that has not been seen for so long is taken to be down.
pub const RELAY_SILENCE_NS: i64 = 15_000_000_000;

fn reply(request: ThrottleRequest, answer: PendingAnswer) {
    match (request, answer) {
        (ThrottleRequest::Submit(_, reply), PendingAnswer::Submit(answer)) => drop(reply.send(answer)),
        (ThrottleRequest::Command(_, _, reply), PendingAnswer::Command(answer)) => drop(reply.send(answer)),
        _ => unreachable!("answers are made in the order of the requests"),
    }
}

/// Why there is no decision. The mail must be refused for now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThrottlingError {
    /// The records could not be read or written.
    #[error("the throttle's records: {0}")]
    Records(String),
    /// The disk under the records is full or fails.
    #[error("the disk under the throttle's records: {0}")]
    Disk(String),
    /// The process is ending.
    #[error("the throttle has ended")]
    Ended,
}
