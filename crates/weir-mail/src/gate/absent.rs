//! The operations of a mail gate that is off or does not start: they know the users and what is in the records, but no mail in transit.
//!
//! Unlike [`super::at_rest`] it opens no spool: one that failed may be started again at any moment, and one that is off has none.

use crate::operations::{Backend, Vital};
use crate::queue::{Dropped, Queue, QueueList, QueueSelection};
use weir_foundation::{OperationError, OperationFuture};
use weir_store::spool::Spool;

/// Stands where a mail gate would.
pub(super) struct Absent;

fn absent() -> OperationError {
    OperationError::Failed("the mail gate does not run; `weir status` says why".to_owned())
}

impl Backend for Absent {
    fn vital(&self) -> Option<Vital> {
        None
    }

    fn wake(&self) {}

    fn end_sessions(&self, _: &str, _: &str) -> usize {
        0
    }

    fn sessions_of(&self, _: &str) -> usize {
        0
    }

    fn keys_changed(&self) {}

    fn has_spool(&self) -> bool {
        false
    }

    fn spool(&self) -> OperationFuture<'_, Spool> {
        Box::pin(async { Err(absent()) })
    }

    fn queue(&self) -> &dyn Queue {
        self
    }
}

impl Queue for Absent {
    fn list<'a>(&'a self, _: &'a QueueSelection, _: usize) -> OperationFuture<'a, QueueList> {
        Box::pin(async { Err(absent()) })
    }

    fn retry<'a>(&'a self, _: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        Box::pin(async { Err(absent()) })
    }

    fn delete<'a>(&'a self, _: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        Box::pin(async { Err(absent()) })
    }
}
