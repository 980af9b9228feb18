//! The way out, as the rest of the gate sees it.

use crate::letter::Letter;
use std::sync::Arc;
use weir_store::spool::{Marks, MessageId};

/// Takes over letters that may go. It finishes them in the spool when the last of their recipients is settled.
pub trait Outbound: Clone + Send + Sync + 'static {
    /// Sends the message to the recipients at these places of the letter. Must not block.
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>);

    /// The same for a letter found in the spool at start, with everything that was marked since: some of the
    /// recipients may have it already.
    fn resume(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>, marks: &Marks) {
        let _ = marks;
        self.send(id, letter, places);
    }
}
