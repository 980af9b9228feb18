//! What somebody may do at the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do. Each may do what those before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See what is their own.
    User,
    /// See all gates, decide on held and quarantined mail but for viruses, lock and unlock.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}
