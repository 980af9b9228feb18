//! The spool as the ledger of delivery.

use std::fmt;
use std::sync::Arc;

use weir_store::spool::{Body, MessageId, Piece, Spool, SpoolError};

use super::ledger::{BodySource, Ledger, LedgerError, OwnMail, Progress};
use super::message::{Job, Message};

/// More progress than this is never lost to a kill, however long the disk stands still.
const UNWRITTEN_MAX: usize = 256;

/// How an envelope stands in the spool.
type WriteEnvelope = dyn Fn(&Message) -> Vec<u8> + Send + Sync;

/// The spool as the ledger of delivery. Cheap to clone.
#[derive(Clone)]
pub struct SpoolLedger {
    spool: Spool,
    write: Arc<WriteEnvelope>,
}

impl SpoolLedger {
    /// A ledger whose own mail has its envelope written as [`Message::to_bytes`].
    pub fn new(spool: Spool) -> SpoolLedger {
        SpoolLedger::with_envelopes(spool, Message::to_bytes)
    }

    /// A ledger whose own mail has its envelope written this way.
    pub fn with_envelopes(spool: Spool, write: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> SpoolLedger {
        SpoolLedger { spool, write: Arc::new(write) }
    }
}

impl Ledger for SpoolLedger {
    type Body = Body;

    fn body(&self, id: MessageId) -> Result<Body, LedgerError> {
        Ok(self.spool.body(id)?)
    }

    fn record(&self, id: MessageId, progress: &Progress) -> Result<(), LedgerError> {
        progress.to_marks().into_iter().try_for_each(|mark| Ok(self.spool.mark(id, mark)?))
    }

    fn finish(&self, id: MessageId, _recipients: &[u32]) -> Result<(), LedgerError> {
        Ok(self.spool.finish(id)?)
    }

    fn keeps_up(&self) -> bool {
        self.spool.unwritten() < UNWRITTEN_MAX
    }

    async fn post(&self, mail: OwnMail) -> Result<Job, LedgerError> {
        let mut draft = self.spool.draft()?;
        draft.write(&mail.text).await?;
        let mut message = Message { id: draft.id(), ..mail.envelope };
        message.size_bytes = mail.text.len() as u64;
        draft.commit((self.write)(&message)).await?;
        Ok(message.into())
    }
}

impl BodySource for Body {
    async fn next(&mut self) -> Result<Option<Piece>, LedgerError> {
        Ok(Body::next(self).await?)
    }
}

impl From<SpoolError> for LedgerError {
    fn from(error: SpoolError) -> LedgerError {
        match error {
            SpoolError::Unknown(_) => LedgerError::Unknown,
            SpoolError::Damaged { .. } => LedgerError::Damaged(error.to_string()),
            _ => LedgerError::Unavailable(error.to_string()),
        }
    }
}

impl fmt::Debug for SpoolLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolLedger").field("spool", &self.spool).finish_non_exhaustive()
    }
}
