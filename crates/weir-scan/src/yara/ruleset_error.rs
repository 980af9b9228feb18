//! Why rules cannot be put into use.

use super::RulesError;
use super::folder::FolderError;

/// Rules that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesetError {
    /// The folder.
    #[error("the folder of rules: {0}")]
    Folder(#[from] FolderError),
    /// The rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The setup in force.
    #[error("the rules in force cannot be changed: {0}")]
    System(#[from] std::io::Error),
    /// The compiler itself.
    #[error("the compiler of rules crashed")]
    Crashed,
}
