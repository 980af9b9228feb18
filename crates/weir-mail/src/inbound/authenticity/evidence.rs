//! The parts of a message that are evaluated: its header, and hashes of its body.
//!
//! A [`Witness`] gathers both while a message comes in, so that a client can be refused before it is told that its message was taken. For a
//! message in the spool both are computed by reading it again. Memory: the header; the body streams through the hashes.

use super::digest::BodyDigests;
use crate::delivery::ledger::{LedgerError, StoredBody};
use crate::intake::header::{HEADER_MAX, end_of_header};
use mail_auth::AuthenticatedMessage;
use weir_smtp::header_field;

/// Bodies above this are hashed on a thread that may take its time.
const LARGE: usize = 256 << 10;

/// What is evaluated of a message.
pub struct Evidence {
    /// As the sender wrote it, without our own trace.
    pub(super) header: Vec<u8>,
    /// The hashes that its signatures want; none if the body could not be read.
    pub(super) digests: Option<BodyDigests>,
}

/// Watches a message come in.
#[derive(Default)]
pub struct Witness {
    header: Vec<u8>,
    /// From the end of the header on.
    digests: Option<BodyDigests>,
}

impl Witness {
    /// The next octets of the message.
    pub fn write(&mut self, text: &[u8]) {
        if let Some(digests) = &mut self.digests {
            return digests.write(text);
        }
        let looked_at = self.header.len();
        self.header.extend_from_slice(text);
        if let Some(end) = end_of_header(&self.header, looked_at) {
            let behind = self.header.split_off(end);
            self.begin_body().write(&behind);
        } else if self.header.len() > HEADER_MAX * 2 {
            // The message is refused for this by the code that accepts it; until then nothing more is kept.
            self.begin_body();
        }
    }

    fn begin_body(&mut self) -> &mut BodyDigests {
        let digests = BodyDigests::wanted(&parsed(&self.header));
        self.digests.insert(digests)
    }

    /// The message is complete.
    pub fn finish(mut self) -> Evidence {
        if self.digests.is_none() {
            self.begin_body();
        }
        Evidence { header: self.header, digests: self.digests }
    }
}

impl Evidence {
    /// Reads a message as it stands in the spool, our own Received field on top.
    pub(super) async fn read<B: StoredBody>(mut body: B) -> Result<Evidence, LedgerError> {
        let mut witness = Witness::default();
        let mut read: Vec<u8> = Vec::new();
        while let Some(piece) = body.next().await? {
            let looked_at = read.len();
            read.extend_from_slice(&piece);
            // Our own trace comes on top of the longest header.
            if end_of_header(&read, looked_at).is_some() || read.len() > HEADER_MAX * 2 {
                break;
            }
        }
        witness.write(read.get(header_field::end(&read)..).unwrap_or_default());
        let mut evidence = witness.finish();
        if let Some(digests) = evidence.digests.take().filter(|digests| !digests.is_empty()) {
            // A body that cannot be read leaves its signatures undecided; delivery will meet the same and say so.
            evidence.digests = hashed(digests, body).await.ok();
        } else {
            evidence.digests = Some(BodyDigests::default());
        }
        Ok(evidence)
    }

    /// The message as mail-auth reads it, with its hashes; whether there are any.
    pub(super) fn parsed(&self) -> AuthenticatedMessage<'_> {
        parsed(&self.header)
    }
}

fn parsed(header: &[u8]) -> AuthenticatedMessage<'_> {
    AuthenticatedMessage::parse_with_opts(header, None, true).unwrap_or_default()
}

/// Hashes the rest of a body.
async fn hashed<B: StoredBody>(mut digests: BodyDigests, mut body: B) -> Result<BodyDigests, LedgerError> {
    let mut length = 0_usize;
    while let Some(piece) = body.next().await? {
        length = length.saturating_add(piece.len());
        if length < LARGE {
            digests.write(&piece);
            continue;
        }
        let hashing = tokio::task::spawn_blocking(move || {
            digests.write(&piece);
            digests
        });
        digests = hashing.await.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
    }
    Ok(digests)
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("header", &self.header.len()).finish_non_exhaustive()
    }
}
