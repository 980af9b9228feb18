//! The errors of the spool, and what a caller should do about each.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::id::MessageId;

/// Why the spool could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpoolError {
    /// No space: nothing was accepted, try again later (SMTP 452 4.3.1).
    #[error("the disk under the spool is full; free some space and mail is accepted again by itself")]
    Full,
    /// The disk failed: nothing was accepted, try again later (SMTP 452 4.3.1).
    #[error("the spool cannot {doing} {}: {source}", path.display())]
    Failed {
        /// What was attempted.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// There is no such message, or it is finished.
    #[error("there is no message {0} in the spool")]
    Unknown(MessageId),
    /// The content of the disk is not what was written there.
    #[error("{} is damaged at byte {at}: {what}; see broken/ beside it and your backup", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An envelope, body or mark over its limit.
    #[error("the {what} has {length} bytes; at most {most} are possible")]
    TooLong {
        /// Which of them.
        what: Limit,
        /// Its length.
        length: u64,
        /// The limit.
        most: u64,
    },
    /// Another spool is open on the same folder.
    #[error("another process uses the spool in {}", .0.display())]
    InUse(PathBuf),
    /// The spool was closed.
    #[error("the spool is closed")]
    Closed,
}

impl SpoolError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> SpoolError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SpoolError::Full,
            _ => SpoolError::Failed { doing, path: path.to_owned(), source: Arc::new(source) },
        }
    }

    /// Whether the same call may succeed later: the disk is full or failing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, SpoolError::Full | SpoolError::Failed { .. } | SpoolError::Closed)
    }
}

/// Things whose length is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The envelope that comes with a commit.
    Envelope,
    /// The body of a draft.
    Body,
    /// One mark.
    Mark,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Envelope => "envelope",
            Limit::Body => "body",
            Limit::Mark => "mark",
        })
    }
}

/// A place in a file where recovery found something other than what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The segment or sidecar.
    pub path: PathBuf,
    /// Its first bad byte.
    pub at: u64,
    /// How many bytes cannot be read.
    pub length: u64,
    /// What that means.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes at {}: {}", self.path.display(), self.length, self.at, self.what)
    }
}
