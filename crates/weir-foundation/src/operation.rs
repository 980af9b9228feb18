//! Why an operation that a person or a program asked for was not carried out: whose fault it is, and what to do next.

use crate::foundation::FoundationError;
use crate::passwords::PasswordError;
use std::pin::Pin;
use weir_store::records::RecordsError;
use weir_store::spool::SpoolError;

/// The future of an operation's answer, for methods of trait objects.
pub type OperationFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, OperationError>> + Send + 'a>>;

/// Why an operation was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The request makes no sense.
    #[error("{what}")]
    Invalid {
        /// How to correct it.
        what: String,
        /// What would be right.
        hint: String,
    },
    /// Nothing has this name.
    #[error("{what}")]
    Unknown {
        /// What does not exist.
        what: String,
        /// Where to look.
        hint: String,
    },
    /// The request conflicts with the present state.
    #[error("{what}")]
    Conflict {
        /// What is in the way.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The store or a gate failed; it may work later.
    #[error("{0}")]
    Failed(String),
}

impl OperationError {
    /// The request makes no sense.
    pub fn invalid(what: impl Into<String>, hint: impl Into<String>) -> OperationError {
        OperationError::Invalid { what: what.into(), hint: hint.into() }
    }

    /// Nothing has this name.
    pub fn unknown(what: impl Into<String>, hint: impl Into<String>) -> OperationError {
        OperationError::Unknown { what: what.into(), hint: hint.into() }
    }

    /// The request conflicts with the present state.
    pub fn conflict(what: impl Into<String>, hint: impl Into<String>) -> OperationError {
        OperationError::Conflict { what: what.into(), hint: hint.into() }
    }

    /// What to do next.
    pub fn hint(&self) -> &str {
        match self {
            OperationError::Invalid { hint, .. }
            | OperationError::Unknown { hint, .. }
            | OperationError::Conflict { hint, .. } => hint,
            OperationError::Failed(_) => "nothing was acknowledged; look at Weir's log, then try again",
        }
    }
}

impl From<RecordsError> for OperationError {
    fn from(error: RecordsError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}

impl From<SpoolError> for OperationError {
    fn from(error: SpoolError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}

impl From<PasswordError> for OperationError {
    fn from(error: PasswordError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}

impl From<FoundationError> for OperationError {
    fn from(error: FoundationError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}
