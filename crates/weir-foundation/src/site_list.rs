//! A list that all relays of a site share and that is read and written as a whole: the console's accounts, and the API tokens.
//!
//! It is one document in the records. A change reads it, changes it and writes it back, but only if it is still what was read; otherwise it
//! begins again with what another relay, or another part of this process, has written meanwhile. So no change is lost, and what one
//! has removed is not written back by another.

use crate::{Foundation, OperationError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::Mutex;
use weir_store::records::ValueRecords;

/// The list belongs to the site, not to one relay.
const SITE: &str = "";
/// Each failed try means that somebody else has changed the list, which people do by hand.
const TRIES_MAX: usize = 100;

/// The list. Cheap to clone.
#[derive(Debug)]
pub(crate) struct SiteList<T> {
    values: ValueRecords,
    /// Its name in the records.
    kept: &'static str,
    /// What is in it, for messages.
    what: &'static str,
    /// The name by which an entry is ordered.
    name: fn(&T) -> &str,
    /// Held during a change, so that the changes of one relay need no second try.
    changing: Arc<Mutex<()>>,
}

impl<T> Clone for SiteList<T> {
    fn clone(&self) -> SiteList<T> {
        let SiteList { kept, what, name, .. } = *self;
        SiteList { values: self.values.clone(), kept, what, name, changing: Arc::clone(&self.changing) }
    }
}

impl<T: Serialize + DeserializeOwned + Send> SiteList<T> {
    /// The list of this name in the records.
    pub(crate) fn new(
        foundation: &Foundation,
        kept: &'static str,
        what: &'static str,
        name: fn(&T) -> &str,
    ) -> SiteList<T> {
        SiteList { values: foundation.records.values(), kept, what, name, changing: Arc::default() }
    }

    /// All entries, ordered by name.
    pub(crate) async fn read(&self) -> Result<Vec<T>, OperationError> {
        self.parse(self.values.get(SITE, self.kept).await?.as_deref())
    }

    /// Changes the list. If somebody else changes it at the same time, `change` is called once more, with the list as it is then. If it
    /// returns an error, or changes nothing, nothing is written.
    pub(crate) async fn change<R: Send>(
        &self,
        mut change: impl FnMut(&mut Vec<T>) -> Result<R, OperationError> + Send,
    ) -> Result<R, OperationError> {
        let _changing = self.changing.lock().await;
        for _ in 0..TRIES_MAX {
            let was = self.values.get(SITE, self.kept).await?;
            let mut list = self.parse(was.as_deref())?;
            let done = change(&mut list)?;
            list.sort_by(|a, b| (self.name)(a).cmp((self.name)(b)));
            let text = serde_json::to_string(&list).map_err(|error| OperationError::Failed(error.to_string()))?;
            let same = was.as_ref() == Some(&text);
            if same || self.values.replace(SITE, self.kept, was.as_deref(), &text).await? {
                return Ok(done);
            }
        }
        Err(OperationError::conflict(format!("{} are being changed all the time", self.what), "try again"))
    }

    fn parse(&self, text: Option<&str>) -> Result<Vec<T>, OperationError> {
        let Some(text) = text else { return Ok(Vec::new()) };
        serde_json::from_str(text).map_err(|error| OperationError::Failed(format!("{}: {error}", self.what)))
    }
}
