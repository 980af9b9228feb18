//! A message that is being received: written piece by piece, then committed or dropped.
//!
//! A draft holds at most 64 KiB in memory; the rest goes to the writer and waits there for room, so a fast sender is slowed down to the
//! pace of the disk. Nothing of it is a message before [`Draft::commit`] has returned.

use std::sync::Arc;

use crc32fast::Hasher;
use tokio::sync::oneshot;

use super::error::Limit;
use super::id::MessageId;
use super::queue::{Chunk, Committal, Request};
use super::record::{CHUNK_MAX, check_length};
use super::{SpoolError, SpoolShared};

/// An unfinished message. Dropping it abandons it.
#[derive(Debug)]
pub struct Draft {
    shared: Arc<SpoolShared>,
    id: MessageId,
    buffer: Vec<u8>,
    size: u64,
    /// The checksum of what was sent to the writer.
    crc: Hasher,
    sent: bool,
}

impl Draft {
    pub(super) fn new(shared: Arc<SpoolShared>) -> Draft {
        let id = shared.ids.next();
        Draft { shared, id, buffer: Vec::new(), size: 0, crc: Hasher::new(), sent: false }
    }

    /// The id that the message will have.
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// How many bytes were written.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends to the body. Returns once the spool has taken the bytes, not once they are on the disk. If the future is
    /// dropped before it has returned, some of the bytes may be missing: drop the draft as well.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), SpoolError> {
        check_length(Limit::Body, self.size.saturating_add(bytes.len() as u64))?;
        while !bytes.is_empty() {
            if self.buffer.len() == CHUNK_MAX {
                self.send().await?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_MAX - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            self.size += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Makes the draft a message. Returns once it is durable; after an error it does not exist. If the future is
    /// dropped before it has returned, the message is finished and nobody sees it.
    pub async fn commit(mut self, envelope: impl Into<Vec<u8>>) -> Result<MessageId, SpoolError> {
        let envelope = envelope.into();
        check_length(Limit::Envelope, envelope.len() as u64)?;
        self.shared.room.enter(self.buffer.len() + envelope.len()).await?;
        let last = self.take_chunk();
        let (reply, answer) = oneshot::channel();
        let body_crc = self.crc.clone().finalize();
        let committal = Committal { id: self.id, last, size: self.size, body_crc, envelope, reply };
        self.sent = false;
        self.shared.queue.push(Request::Commit(Box::new(committal)))?;
        answer.await.map_err(|_| SpoolError::Closed)?.map(|receipt| receipt.accept())
    }

    async fn send(&mut self) -> Result<(), SpoolError> {
        self.shared.room.enter(self.buffer.len()).await?;
        let chunk = self.take_chunk();
        self.sent = true;
        self.shared.queue.push(Request::Chunk(self.id, chunk))
    }

    fn take_chunk(&mut self) -> Chunk {
        let bytes = std::mem::take(&mut self.buffer);
        let mut crc = Hasher::new();
        crc.update(&bytes);
        self.crc.combine(&crc);
        Chunk { bytes, crc: crc.finalize() }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.sent {
            // A closed spool has forgotten its drafts already.
            let _ = self.shared.queue.push(Request::Abandon(self.id));
        }
    }
}
