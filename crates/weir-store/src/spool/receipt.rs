//! The writer's confirmation that a message is durable, and what happens if the receiver of the confirmation has gone away.

use std::sync::Arc;

use super::SpoolShared;
use super::id::MessageId;

/// A committed message on its way to the caller. If it is dropped on the way (because the caller stopped waiting), it
/// finishes the message: if the sender was not told that it was accepted, nothing may be delivered.
#[derive(Debug)]
pub(super) struct Receipt {
    shared: Option<Arc<SpoolShared>>,
    id: MessageId,
}

impl Receipt {
    pub(super) fn new(shared: &Arc<SpoolShared>, id: MessageId) -> Receipt {
        Receipt { shared: Some(Arc::clone(shared)), id }
    }

    pub(super) fn accept(mut self) -> MessageId {
        self.shared = None;
        self.id
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            // The message may have been finished in another way, or the spool closed: then recovery decides.
            let _ = shared.finish(self.id);
        }
    }
}
