//! Builds the timeline of one id: everything that the mail gate and the lab know of a message, a held or quarantined mail, or a sample.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weir_foundation::OperationError;
use weir_lab::history::HistoryLine;
use weir_lab::node::Node;
use weir_lab::operations::LabError;
use weir_mail::operations::{MailTrace, TraceLine, TraceOperations};

/// For how many samples the history is shown.
const SAMPLES_MAX: usize = 20;
/// The fewest digits of a hash that identify a sample here, because the id of a message could look like fewer digits.
const HASH_MIN: usize = 8;

/// Everything that happened to a message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// What was asked for.
    pub id: String,
    /// What is known.
    #[serde(flatten)]
    pub mail: MailTrace,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

impl Trace {
    /// Everything that is known of `id`.
    pub async fn of(traces: &TraceOperations, lab: Option<&Node>, id: &str) -> Result<Trace, NoTrace> {
        let (mail, unknown) = match traces.find(id).await {
            Ok(mail) => (mail, None),
            Err(error @ OperationError::Unknown { .. }) => (MailTrace::default(), Some(error)),
            Err(error) => return Err(error.into()),
        };
        let mut trace = Trace { id: id.to_owned(), mail, notes: Vec::new() };
        trace.add_samples(lab).await?;
        if let Some(unknown) = unknown {
            let lab = lab.filter(|_| is_hash(id)).ok_or(NoTrace::Mail(unknown))?;
            trace.add_sample(lab, &id.to_ascii_lowercase()).await?;
        }
        trace.mail.lines.sort_by_key(|line| line.at_ns);
        trace.mail.lines.dedup();
        Ok(trace)
    }

    async fn add_samples(&mut self, lab: Option<&Node>) -> Result<(), NoTrace> {
        let samples = self.mail.samples.clone();
        let Some(lab) = lab else {
            if !samples.is_empty() {
                self.notes.push("the lab does not run here, so what it did is not told".to_owned());
            }
            return Ok(());
        };
        if samples.len() > SAMPLES_MAX {
            self.notes.push(format!("{} samples; the first {SAMPLES_MAX} are told", samples.len()));
        }
        for sample in samples.into_iter().take(SAMPLES_MAX) {
            match self.add_sample(lab, &sample.to_string()).await {
                Err(NoTrace::Lab(LabError::Unknown(_))) => {
                    self.notes.push(format!("sample {sample} has been forgotten (lab.keep)"));
                }
                added => added?,
            }
        }
        Ok(())
    }

    async fn add_sample(&mut self, lab: &Node, which: &str) -> Result<(), NoTrace> {
        let history = lab.history(which).await?;
        let samples: BTreeSet<i64> =
            self.mail.samples.iter().copied().chain(history.iter().map(|line| line.sample)).collect();
        self.mail.samples = samples.into_iter().collect();
        let line = |line: HistoryLine| {
            let HistoryLine { at, sample, event, text, .. } = line;
            TraceLine { sample: Some(sample), ..TraceLine::new(at, "lab", event, "", text) }
        };
        self.mail.lines.extend(history.into_iter().map(line));
        Ok(())
    }
}

fn is_hash(id: &str) -> bool {
    (HASH_MIN..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Why this cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum NoTrace {
    /// The mail gate.
    #[error(transparent)]
    Mail(#[from] OperationError),
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
}
