//! A file or message that another program asks about, and the answer that the program gets.

use std::sync::Arc;
use tokio::sync::oneshot;
use weir_scan::content::Content;
use weir_scan::inspect::About;
use weir_scan::verdict::Verdict;

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

/// What became of a message that another mail server asked about and keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailAnswer {
    /// It may go on, with these lines in its header, each with CR LF.
    Pass(String),
    /// It must not be let through; why, in a line.
    Found(String),
    /// The scanners want it later; why.
    Later(String),
    /// Nobody could look; why.
    Failed(String),
}

/// Something that waits for a worker, and for which somebody waits.
#[derive(Debug)]
pub(super) struct WaitingFile {
    pub(super) content: Content,
    /// Who asks: clients take turns, as senders do.
    pub(super) client: Box<str>,
    pub(super) about: Arc<About>,
    /// The verdict, or why there is none.
    pub(super) answer: oneshot::Sender<Result<Verdict, String>>,
}
