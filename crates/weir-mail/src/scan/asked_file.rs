//! A file that another program asks about, and what it is told.

use tokio::sync::oneshot;
use weir_scan::content::Content;

/// What became of a file that somebody asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAnswer {
    /// All scanners looked, and nothing was found.
    Clean,
    /// It must not be let through; the name of why, without blanks.
    Found(String),
    /// Nobody could look; why.
    Failed(String),
}

/// A file that waits for a worker.
#[derive(Debug)]
pub(super) struct WaitingFile {
    pub(super) content: Content,
    /// Who asks: clients take turns, as senders do.
    pub(super) client: Box<str>,
    pub(super) answer: oneshot::Sender<FileAnswer>,
}
