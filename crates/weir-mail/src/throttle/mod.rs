//! The throttle at work: many users, one store, decisions in batches.
//!
//! States live in the records, always: a decision is one transaction that reads the states of everybody in the
//! batch, runs the core's machine and writes states and held mail back. So a restart changes nothing, several
//! relays on one PostgreSQL are one throttle, and an idle user costs no memory. Requests that arrive while a
//! transaction runs make up the next batch. If the records fail, the caller hears so and refuses the mail for now:
//! nothing ever passes unthrottled.

mod operation;
mod state;
mod steady;
pub(crate) mod stored;
mod throttle_settings;

pub use operation::{Done, NotDone, NoticeKind, Shown, Submission, SubmitOutcome, ThrottleCommand};
pub use throttle_settings::ThrottleSettings;

pub(crate) use state::{at as machine, overridden};
pub(crate) use steady::steady;

use operation::{BatchedThrottle, Operation};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, oneshot};
use weir_core::throttle::EntryId;
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_foundation::supervision;
use weir_store::records::{Changes, Records, RecordsError};

/// Most requests in one transaction.
const BATCH_MAX: usize = 256;
/// Requests that may wait for the next transaction; more senders than that wait in line.
const WAITING_MAX: usize = 4096;

/// A handle to the throttle. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Throttling {
    requests: mpsc::Sender<Request>,
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
        self.ask(Request::Submit(Box::new(submission), reply), answer).await
    }

    /// Carries out a command on one identity's throttle.
    pub async fn command(&self, identity: &str, command: ThrottleCommand) -> Result<Done, ThrottlingError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Command(identity.to_owned(), command, reply), answer).await
    }

    async fn ask<T>(
        &self,
        request: Request,
        answer: oneshot::Receiver<Result<T, ThrottlingError>>,
    ) -> Result<T, ThrottlingError> {
        self.requests.send(request).await.map_err(|_| ThrottlingError::Ended)?;
        answer.await.map_err(|_| ThrottlingError::Ended)?
    }
}

enum Request {
    Submit(Box<Submission>, oneshot::Sender<Result<SubmitOutcome, ThrottlingError>>),
    Command(String, ThrottleCommand, oneshot::Sender<Result<Done, ThrottlingError>>),
}

impl Request {
    fn identity(&self) -> &str {
        match self {
            Request::Submit(submission, _) => &submission.identity,
            Request::Command(identity, ..) => identity,
        }
    }

    fn fail(self, error: ThrottlingError) {
        match self {
            Request::Submit(_, reply) => drop(reply.send(Err(error))),
            Request::Command(_, _, reply) => drop(reply.send(Err(error))),
        }
    }
}

/// An answer that waits for its transaction to commit.
enum PendingAnswer {
    Submit(Result<SubmitOutcome, ThrottlingError>),
    Command(Result<Done, ThrottlingError>),
}

async fn run(records: Records, clock: Clock, mut incoming: mpsc::Receiver<Request>) {
    let mut batch = Vec::new();
    while incoming.recv_many(&mut batch, BATCH_MAX).await > 0 {
        match decide(&records, clock(), &batch).await {
            Ok(answers) => batch.drain(..).zip(answers).for_each(|(request, answer)| reply(request, answer)),
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
}

async fn decide(records: &Records, now: Instant, batch: &[Request]) -> Result<Vec<PendingAnswer>, RecordsError> {
    let mut row_of: BTreeMap<&str, usize> = batch.iter().map(|request| (request.identity(), 0)).collect();
    let identities: Vec<String> = row_of.keys().map(|name| (*name).to_owned()).collect();
    row_of.values_mut().enumerate().for_each(|(index, row)| *row = index);
    let absent = absent_entries(records, now, &identities).await?;
    records
        .throttles()
        .decide(&identities, |rows| {
            let mut changes = Changes::default();
            let absent = (0..rows.len()).map(|row| absent.get(row).map_or(&[][..], Vec::as_slice));
            let mut throttles: Vec<BatchedThrottle<'_>> =
                rows.iter_mut().zip(absent).map(|(row, absent)| BatchedThrottle::new(row, absent)).collect();
            let answers = batch.iter().map(|request| {
                let of = &mut throttles[row_of[request.identity()]];
                let mut operation = Operation { of, changes: &mut changes, now };
                match request {
                    Request::Submit(submission, _) => PendingAnswer::Submit(operation.submit(submission)),
                    Request::Command(_, command, _) => PendingAnswer::Command(operation.command(command)),
                }
            });
            let answers = answers.collect();
            throttles.into_iter().for_each(|throttle| throttle.close(&mut changes));
            (changes, answers)
        })
        .await
}

/// For each identity, the held entries whose relay has fallen silent. Nothing to look up where no relay has.
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

/// A relay that has not been seen for so long is taken to be down.
pub const RELAY_SILENCE_NS: i64 = 15_000_000_000;

fn reply(request: Request, answer: PendingAnswer) {
    match (request, answer) {
        (Request::Submit(_, reply), PendingAnswer::Submit(answer)) => drop(reply.send(answer)),
        (Request::Command(_, _, reply), PendingAnswer::Command(answer)) => drop(reply.send(answer)),
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
