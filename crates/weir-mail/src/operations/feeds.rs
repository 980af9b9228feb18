//! The operations on the scan's feeds: their state, and finding better limits.

use super::backend::scanning;
use super::{Actor, Backend, OperationError, OperationsParts};
use crate::scan::{ClassBesideLine, FeedsStatus, TuneView};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What may be done to the feeds. Cheap to clone.
#[derive(Clone)]
pub struct FeedOperations {
    backend: Arc<dyn Backend>,
    /// What was compared last, for all who look.
    compared: Arc<Mutex<Option<Compared>>>,
}

type Compared = (Instant, Arc<[ClassBesideLine]>);

/// How long a comparison is shown.
const COMPARED_FOR: Duration = Duration::from_secs(10);

impl FeedOperations {
    pub(super) fn new(parts: &OperationsParts) -> FeedOperations {
        FeedOperations { backend: Arc::clone(&parts.backend), compared: Arc::default() }
    }

    /// How the feeds are doing.
    pub fn status(&self) -> Result<FeedsStatus, OperationError> {
        Ok(scanning(&*self.backend)?.feeds_status())
    }

    /// What the newest arrivals wait, and what they would have waited in one line, by class of size; as it was up to `COMPARED_FOR` ago.
    pub async fn beside_one_line(&self) -> Result<Arc<[ClassBesideLine]>, OperationError> {
        let mut kept = self.compared.lock().await;
        if let Some((_, classes)) = kept.as_ref().filter(|(at, _)| at.elapsed() < COMPARED_FOR) {
            return Ok(Arc::clone(classes));
        }
        let scan = scanning(&*self.backend)?.clone();
        let compared = tokio::task::spawn_blocking(move || scan.beside_one_line()).await;
        let classes: Arc<[ClassBesideLine]> =
            compared.map_err(|error| OperationError::Failed(error.to_string()))?.into();
        *kept = Some((Instant::now(), Arc::clone(&classes)));
        Ok(classes)
    }

    /// What better limits would do to the traffic of now; takes them if asked to.
    pub async fn tune(&self, apply: bool, actor: &Actor) -> Result<TuneView, OperationError> {
        scanning(&*self.backend)?.feeds_tune(apply, actor.as_str()).await
    }
}
