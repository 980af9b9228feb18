//! The trait for a laboratory, as the scan needs it: it says what it knows about a content, and accepts samples.
//!
//! The scan does not depend on weir-lab; the binary, which connects the gates, provides the implementation. Answers come later or not at
//! all, and the scan has its own deadline.

use super::settings::LabSettings;
use std::pin::Pin;
use std::sync::Arc;
use weir_scan::samples::Candidate;

/// A laboratory's answer, later.
pub type LabAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Analyses what is handed in.
pub trait Laboratory: Send + Sync + 'static {
    /// What is known of these files: one answer each, in the same order.
    fn known<'a>(&'a self, files: &'a [AskedFile]) -> LabAnswer<'a, Vec<KnownContent>>;

    /// Takes a sample in; it is durable when this is answered.
    fn submit(&self, sample: Sample) -> LabAnswer<'_, Taken>;

    /// Why a sample has no verdict yet, in words.
    fn why(&self, sample: i64) -> LabAnswer<'_, String>;
}

/// A laboratory, and what it is asked.
#[derive(Clone)]
pub struct LabWay {
    /// The policy.
    pub settings: LabSettings,
    /// Who analyses.
    pub laboratory: Arc<dyn Laboratory>,
}

/// A file that is asked about. The name belongs to it: it says what opens the content, and so what the content does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedFile {
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// The name it came with.
    pub name: String,
}

impl From<&Candidate> for AskedFile {
    fn from(file: &Candidate) -> AskedFile {
        AskedFile { sha256: file.sha256.clone(), name: file.name.clone() }
    }
}

/// Something to analyse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its bytes.
    pub content: Vec<u8>,
    /// The name it came with.
    pub name: String,
    /// How urgent it is; 0 is the most.
    pub priority: u64,
    /// Whose mail it came with: senders take turns in the laboratory too.
    pub submitter: String,
    /// Words that may open it, if it is an archive.
    pub passwords: Vec<String>,
}

/// What is known of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownContent {
    /// Nothing.
    Nothing,
    /// It is being analysed.
    Open {
        /// The number of the sample.
        sample: i64,
    },
    /// It was analysed.
    Ended(Opinion),
}

/// A laboratory took a sample, or has nothing to do for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is queued under this number.
    Queued(i64),
    /// Nobody there analyses such files; why, in words.
    NotForUs(String),
}

/// What a laboratory thinks of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// The number of the sample; 0 if it was none.
    pub sample: i64,
    /// How bad it is.
    pub verdict: LabVerdict,
    /// Why.
    pub reasons: Vec<String>,
    /// When the analysis ended, in nanoseconds since the Unix epoch.
    pub at: i64,
}

/// How bad a content is. The worse is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabVerdict {
    /// Somebody knows it to be harmless.
    Clean,
    /// Nobody found anything that decides.
    Unknown,
    /// Something speaks against it.
    Suspicious,
    /// The analysis failed: nobody knows.
    Failed,
    /// It is malware.
    Malicious,
}

impl LabVerdict {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            LabVerdict::Clean => "clean",
            LabVerdict::Unknown => "unknown",
            LabVerdict::Suspicious => "suspicious",
            LabVerdict::Failed => "no verdict",
            LabVerdict::Malicious => "malicious",
        }
    }
}
