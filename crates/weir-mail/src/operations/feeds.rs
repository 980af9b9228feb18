//! The scan's feeds, as a person in charge sees them.

use super::backend::scanning;
use super::{Actor, Backend, OperationError, OperationsParts};
use crate::scan::{FeedsStatus, TuneView};
use std::sync::Arc;

/// What may be done to the feeds. Cheap to clone.
#[derive(Clone)]
pub struct FeedOperations {
    backend: Arc<dyn Backend>,
}

impl FeedOperations {
    pub(super) fn new(parts: &OperationsParts) -> FeedOperations {
        FeedOperations { backend: Arc::clone(&parts.backend) }
    }

    /// How the feeds are doing.
    pub fn status(&self) -> Result<FeedsStatus, OperationError> {
        Ok(scanning(&*self.backend)?.feeds_status())
    }

    /// What better limits would do to the traffic of now; takes them if asked to.
    pub async fn tune(&self, apply: bool, actor: &Actor) -> Result<TuneView, OperationError> {
        scanning(&*self.backend)?.feeds_tune(apply, actor.as_str()).await
    }
}
