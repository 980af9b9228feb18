//! The roles at the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do. Each role may also do what the roles above it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See their own mail and nothing else.
    User,
    /// See all gates, decide about held and quarantined mail except viruses, lock and unlock users.
    Operator,
    /// Do everything.
    Admin,
}

impl Role {
    /// The role as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}
