//! The scan's feeds, as a person in charge sees them.

use super::{Actor, Analysed, Answer, Desk, OperationError, StoredMail};
use crate::scan::{FeedsStatus, TuneView};

/// The scan behind the desk.
pub trait ScanDesk: Send + Sync {
    /// How the feeds are doing.
    fn feeds_status(&self) -> FeedsStatus;

    /// What better limits would do; takes them if asked to.
    fn feeds_tune<'a>(&'a self, apply: bool, by: &'a str) -> Answer<'a, TuneView>;

    /// Quarantined mail was decided: carry it out now.
    fn wake(&self);

    /// Attachments of stored mail become samples of the lab.
    fn analyse<'a>(&'a self, mails: &'a [StoredMail], by: &'a str) -> Answer<'a, Analysed>;

    /// Rules that people make were changed: they are in force when this returns.
    fn adopt_rules(&self) -> Answer<'_, ()>;
}

impl Desk {
    /// How the feeds are doing.
    pub fn feeds_status(&self) -> Result<FeedsStatus, OperationError> {
        Ok(self.scanning()?.feeds_status())
    }

    /// What better limits would do to the traffic of now; takes them if asked to.
    pub async fn feeds_tune(&self, apply: bool, actor: &Actor) -> Result<TuneView, OperationError> {
        self.scanning()?.feeds_tune(apply, actor.as_str()).await
    }

    pub(super) fn scanning(&self) -> Result<&dyn ScanDesk, OperationError> {
        let nothing =
            || OperationError::conflict("nothing is scanned here", "start the gate with `weir up`, and scan.enabled");
        self.parts.backend.scanning().ok_or_else(nothing)
    }
}
