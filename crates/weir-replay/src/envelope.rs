//! Who wrote to whom and when, as the header of a stored mail says it.

use super::wall::Wall;

/// What a header says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) from: Option<String>,
    pub(crate) to: Vec<String>,
    pub(crate) date: Option<Wall>,
    pub(crate) message_id: Option<String>,
}
