//! The text of a stranger's message on its way into the spool; a witness reads along, for SPF, DKIM and DMARC.

use super::authenticity::Witness;
use crate::intake::Incoming;
use weir_smtp::reception::BodySink;
use weir_smtp::reply::Reply;

/// The text of one message.
#[derive(Debug)]
pub struct InboundBody {
    pub(super) incoming: Incoming,
    /// None where nothing is evaluated before the answer.
    pub(super) witness: Option<Witness>,
}

impl BodySink for InboundBody {
    async fn write(&mut self, text: &[u8]) -> Result<(), Reply> {
        if let Some(witness) = &mut self.witness {
            witness.write(text);
        }
        self.incoming.write(text).await
    }
}
