//! The trait for the store that delivery needs: it reads bodies, records progress, and stores mail that Weir writes itself.
//!
//! The spool implements it ([`super::spool_ledger`]); a gate may wrap that. [`Ledger::record`] and [`Ledger::finish`] do
//! not wait for the disk. Progress that was not yet written when the process was killed is lost, and after the restart these
//! deliveries are made again.

use std::future::Future;

use weir_core::time::Instant;
use weir_store::diary::DiaryLine;
use weir_store::spool::{MessageId, Piece};

use weir_smtp::client::content::BodySource;
use weir_smtp::outcome::{DeliveryOutcome, Status};

use super::message::{Job, OutgoingMessage};

/// The store behind delivery.
pub trait Ledger: Send + Sync + 'static {
    /// The body of a message.
    type Body: StoredBody;

    /// Opens the body of a message, from its beginning.
    fn body(&self, id: MessageId) -> Result<Self::Body, LedgerError>;

    /// Writes down what became of some recipients.
    fn record(&self, id: MessageId, progress: &DeliveryProgress) -> Result<(), LedgerError>;

    /// Delivery is done with these recipients of the message. If nobody else needs the message, it can be removed.
    fn finish(&self, id: MessageId, recipients: &[u32]) -> Result<(), LedgerError>;

    /// Whether the disk keeps up with the progress that is recorded. While it does not, no delivery begins, because after a kill too
    /// many would be repeated.
    fn keeps_up(&self) -> bool {
        true
    }

    /// Writes down for people what happened. Does not wait.
    fn note(&self, line: DiaryLine) {
        drop(line);
    }

    /// Accepts mail of our own (a report). It is durable when this returns; the job is then enqueued. There is no job if another part of
    /// the gate takes care of this mail.
    fn post(&self, mail: OwnMail) -> impl Future<Output = Result<Option<Job>, LedgerError>> + Send;
}

/// A body that comes from the store.
pub trait StoredBody: BodySource<Piece = Piece, Error = LedgerError> {}

impl<B: BodySource<Piece = Piece, Error = LedgerError>> StoredBody for B {}

/// What happened to a message. Recipients go by their index in the envelope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryProgress {
    /// It was delivered to these recipients.
    Delivered(Box<[u32]>),
    /// It will never be delivered to these; their sender was told, if that was necessary.
    Failed(Box<[u32]>),
    /// These are tried again; all that are left, if none is named.
    Deferred {
        /// Which.
        recipients: Box<[u32]>,
        /// How often they have been tried.
        attempts: u32,
        /// When the next attempt is due.
        until: Instant,
    },
    /// The sender was told of the delay.
    Warned,
}

/// Mail of our own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnMail {
    /// Sender (null), recipient and so on; id and owner are those of the message it is about, and there is no owner if that came
    /// from outside.
    pub envelope: OutgoingMessage,
    /// The whole text.
    pub text: Vec<u8>,
}

/// Why the store could not do it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LedgerError {
    /// It may work later.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The message cannot be read, now or ever.
    #[error("the message cannot be read: {0}")]
    Damaged(String),
    /// There is no such message.
    #[error("there is no such message in the store")]
    Unknown,
}

/// What a body that cannot be read means for its recipients.
impl From<LedgerError> for DeliveryOutcome {
    fn from(error: LedgerError) -> DeliveryOutcome {
        match error {
            LedgerError::Unavailable(_) => DeliveryOutcome::temporary(Status(4, 3, 0), &error.to_string()),
            LedgerError::Damaged(_) | LedgerError::Unknown => {
                DeliveryOutcome::permanent(Status(5, 3, 0), &error.to_string())
            }
        }
    }
}
