//! An error in something that the user provided: where it is, what is wrong, and what to do about it.

/// A problem in a file or an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}\n  hint: {hint}")]
pub struct InputError {
    /// Where: a file with a line, or a key path.
    pub place: String,
    /// What is wrong there, quoting the offending value.
    pub problem: String,
    /// What would be right.
    pub hint: String,
}

impl InputError {
    /// A problem at `place`.
    pub fn new(place: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into(), hint: hint.into() }
    }

    /// A file that could not be read.
    pub fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(path.display().to_string(), format!("cannot be read: {error}"), "check the path and its permissions")
    }
}
