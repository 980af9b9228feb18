//! A sample as people see it: as a row in a list, and with everything that is known of it.

use crate::choices::Choices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_foundation::date::{as_rfc3339, as_rfc3339_or_null};

/// One sample in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sample")]
pub struct SampleLine {
    /// Its number.
    pub sample: i64,
    /// SHA-256 of its content.
    pub hash: String,
    /// The name it came with.
    pub name: String,
    /// Its size in bytes.
    pub size: i64,
    /// Its type by content.
    pub file_type: String,
    /// Who handed it in.
    pub submitter: String,
    /// The directory, that is the priority.
    pub priority: i64,
    /// The state of its analysis.
    pub state: String,
    /// Why, in words; may be empty.
    pub why: String,
    /// When it came.
    #[serde(with = "as_rfc3339")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub arrived_at: i64,
    /// When it ended.
    #[serde(with = "as_rfc3339_or_null")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub ended_at: Option<i64>,
    /// `malicious`, `suspicious`, `clean` or `unknown`: the verdict on the sample and everything that was found in it.
    pub verdict: String,
    /// The sample that it was found in.
    pub parent: Option<i64>,
    /// In how many samples it was found, one inside the other.
    pub depth: i64,
}

/// Everything about one sample.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SamplePage {
    /// The sample.
    #[serde(flatten)]
    pub sample: SampleLine,
    /// Why it is not running, or that it is.
    pub now: String,
    /// Why the verdict is what it is.
    pub reasons: Vec<String>,
    /// The choices that were made when it was submitted.
    #[serde(default)]
    pub choices: Choices,
    /// Its attempts.
    pub attempts: Vec<AttemptLine>,
    /// The results of plugins.
    pub results: Vec<ResultLine>,
    /// Samples that were found in it.
    pub children: Vec<SampleLine>,
    /// Files that were found in it and are not samples, because they are too many, too large or too deep.
    pub left_out: usize,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub struct AttemptLine {
    /// Its number.
    pub attempt: i64,
    /// The epoch in which it was assigned.
    pub epoch: i64,
    /// The machine.
    pub node: String,
    /// The VM.
    pub vm: String,
    /// When it was assigned.
    #[serde(with = "as_rfc3339")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: i64,
    /// When it ended.
    #[serde(with = "as_rfc3339_or_null")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub ended_at: Option<i64>,
    /// How it ended; empty while it runs.
    pub outcome: String,
}

/// One result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PluginResult")]
pub struct ResultLine {
    /// The plugin.
    pub plugin: String,
    /// Its version.
    pub version: String,
    /// Whether it is the one that counts.
    pub accepted: bool,
    /// `done` or `failed`.
    pub outcome: String,
    /// The sample for which it was made, if that is another one of the same content.
    pub of_sample: Option<i64>,
    /// The report.
    pub report: Box<RawValue>,
}
