//! How the scanners are, for status pages and alarms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one scanner is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Scanner")]
pub struct Health {
    /// Its name, as in findings.
    pub scanner: String,
    /// Where it is; empty for workers of our own.
    pub address: String,
    /// Whether it can look at mail.
    pub up: bool,
    /// Its version, or that of its rules.
    pub version: String,
    /// How old its signatures are, in seconds, where they have a date.
    pub signature_age_s: Option<u64>,
    /// What the operator should look at; empty if nothing.
    pub problem: String,
    /// What could be better, without being urgent; empty if nothing.
    pub advice: String,
}
