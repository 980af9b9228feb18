//! Implements the ledger of delivery with the spool.

use std::fmt;
use std::sync::{Arc, OnceLock};

use weir_store::diary::DiaryLine;
use weir_store::spool::{Body, MessageId, Piece, Spool, SpoolError};

use weir_smtp::client::content::BodySource;

use super::ledger::{DeliveryProgress, Ledger, LedgerError, OwnMail};
use super::message::{Job, OutgoingMessage};

/// More progress than this is never lost to a kill, however long the disk stands still.
const UNWRITTEN_MAX: usize = 256;

/// How an envelope stands in the spool.
type WriteEnvelope = dyn Fn(&OutgoingMessage) -> Vec<u8> + Send + Sync;

/// Takes over a report that is in the spool, because its owner caused it; does not wait.
type Charge = dyn Fn(&OutgoingMessage) + Send + Sync;

/// The spool as the ledger of delivery. Cheap to clone.
#[derive(Clone)]
pub struct SpoolLedger {
    spool: Spool,
    write: Arc<WriteEnvelope>,
    charge: Arc<OnceLock<Box<Charge>>>,
}

impl SpoolLedger {
    /// A ledger whose own mail has its envelope written as [`OutgoingMessage::to_bytes`].
    pub fn new(spool: Spool) -> SpoolLedger {
        SpoolLedger::with_envelopes(spool, OutgoingMessage::to_bytes)
    }

    /// A ledger whose own mail has its envelope written this way.
    pub fn with_envelopes(
        spool: Spool,
        write: impl Fn(&OutgoingMessage) -> Vec<u8> + Send + Sync + 'static,
    ) -> SpoolLedger {
        SpoolLedger { spool, write: Arc::new(write), charge: Arc::default() }
    }

    /// From now on reports with an owner are the owner's mail, and `charge` takes them over.
    pub fn charge_reports(&self, charge: impl Fn(&OutgoingMessage) + Send + Sync + 'static) {
        let _ = self.charge.set(Box::new(charge));
    }
}

impl Ledger for SpoolLedger {
    type Body = SpoolBody;

    fn body(&self, id: MessageId) -> Result<SpoolBody, LedgerError> {
        Ok(SpoolBody(self.spool.body(id)?))
    }

    fn record(&self, id: MessageId, progress: &DeliveryProgress) -> Result<(), LedgerError> {
        progress.to_marks().into_iter().try_for_each(|mark| Ok(self.spool.mark(id, mark)?))
    }

    fn finish(&self, id: MessageId, _recipients: &[u32]) -> Result<(), LedgerError> {
        Ok(self.spool.finish(id)?)
    }

    fn note(&self, line: DiaryLine) {
        self.spool.diary().note(line);
    }

    fn keeps_up(&self) -> bool {
        self.spool.unwritten() < UNWRITTEN_MAX
    }

    async fn post(&self, mail: OwnMail) -> Result<Option<Job>, LedgerError> {
        let mut draft = self.spool.draft()?;
        draft.write(&mail.text).await?;
        let charge = self.charge.get().filter(|_| !mail.envelope.owner.is_empty());
        let mut message = OutgoingMessage { id: draft.id(), ..mail.envelope };
        message.size_bytes = mail.text.len() as u64;
        if charge.is_none() {
            message.owner = "".into();
        }
        draft.commit((self.write)(&message)).await?;
        Ok(match charge {
            Some(charge) => {
                charge(&message);
                None
            }
            None => Some(message.into()),
        })
    }
}

/// The body of a message in the spool.
#[derive(Debug)]
pub struct SpoolBody(pub Body);

impl BodySource for SpoolBody {
    type Piece = Piece;
    type Error = LedgerError;

    async fn next(&mut self) -> Result<Option<Piece>, LedgerError> {
        Ok(self.0.next().await?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::Recipient;
    use std::sync::Mutex;
    use weir_core::time::Instant;
    use weir_smtp::envelope::{MailFrom, RcptTo};
    use weir_store::spool::Options;

    fn report(owner: &str) -> OwnMail {
        let to = RcptTo::parse("<victim@elsewhere.example>", false).unwrap();
        let envelope = OutgoingMessage {
            id: "0dh3k9w2m1c8t0qzx4pn".parse().unwrap(),
            owner: owner.into(),
            sender: MailFrom::default(),
            recipients: Box::new([Recipient { index: 0, to }]),
            size_bytes: 0,
            accepted_at: Instant::ZERO,
            sign: true,
            added: "".into(),
            hand_back: false,
            long_lines: false,
        };
        OwnMail { envelope, text: b"Subject: x\r\n\r\nx\r\n".to_vec() }
    }

    #[tokio::test]
    async fn reports_are_our_own_or_are_charged_to_who_caused_them() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = Spool::open(folder.path(), Options { free_floor_bytes: 0, ..Options::default() }).unwrap();
        let ledger = SpoolLedger::new(spool.clone());
        let job = ledger.post(report("ann")).await.unwrap().expect("our own");
        assert_eq!(&*job.message.owner, "");
        let charged = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&charged);
        ledger.charge_reports(move |message| taken.lock().unwrap().push((message.id, message.owner.to_string())));
        assert_eq!(ledger.post(report("ann")).await.unwrap(), None);
        let (id, owner) = charged.lock().unwrap()[0].clone();
        let written = OutgoingMessage::from_bytes(id, &spool.envelope(id).await.unwrap()).unwrap();
        assert_eq!((owner.as_str(), &*written.owner), ("ann", "ann"));
        assert!(ledger.post(report("")).await.unwrap().is_some(), "mail from outside is nobody's");
    }
}
