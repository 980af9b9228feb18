//! A trace of outgoing mail: who wrote to whom, and when.

use weir_core::time::Instant;

/// One mail as its sender handed it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// When it was handed in.
    pub at: Instant,
    /// Who sent it.
    pub user: String,
    /// All recipients (To, Cc and Bcc together), in order, each once, in canonical form.
    pub to: Vec<String>,
}
