//! A sample that the leader has in its hands: where it belongs, and what is known of it so far.

use super::PluginName;
use crate::verdict::{Finding, judged};
use std::sync::Arc;
use weir_core::runq::{Deferrals, Tags};
use weir_store::records::{SampleChange, SampleRow};
use weir_store::samples::SampleHash;

/// A sample that has not ended.
#[derive(Debug, Clone)]
pub(super) struct TrackedSample {
    pub(super) row: i64,
    pub(super) hash: SampleHash,
    pub(super) size: u64,
    pub(super) name: String,
    pub(super) submitter: Arc<str>,
    pub(super) tags: Tags,
    /// The sample that was handed in, of which this is a part; itself, if it was.
    pub(super) root: i64,
    pub(super) directory: u8,
    pub(super) depth: u8,
    pub(super) forced: bool,
    pub(super) deferrals: Deferrals,
    /// Most samples have nothing of this while they wait.
    progress: Option<Box<Progress>>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    findings: Vec<Finding>,
    /// Plugins whose turn comes when those at work have ended well.
    later: Vec<PluginName>,
}

impl TrackedSample {
    pub(super) fn new(row: &SampleRow, hash: SampleHash, directory: u8, submitter: Arc<str>) -> TrackedSample {
        TrackedSample {
            row: row.id,
            hash,
            size: u64::try_from(row.given.size).unwrap_or(0),
            name: row.given.name.clone(),
            submitter,
            tags: Tags::NONE,
            root: row.given.root.unwrap_or(row.id),
            directory,
            depth: u8::try_from(row.given.depth).unwrap_or(u8::MAX),
            forced: row.given.forced != 0,
            deferrals: Deferrals::default(),
            progress: None,
        }
    }

    pub(super) fn learn(&mut self, findings: &[Finding]) {
        if !findings.is_empty() {
            self.progress.get_or_insert_default().findings.extend_from_slice(findings);
        }
    }

    pub(super) fn put_off(&mut self, later: Vec<PluginName>) {
        if !later.is_empty() {
            self.progress.get_or_insert_default().later = later;
        }
    }

    /// The plugins whose turn is next.
    pub(super) fn later(&mut self) -> Vec<PluginName> {
        self.progress.as_mut().map(|progress| std::mem::take(&mut progress.later)).unwrap_or_default()
    }

    /// What is written down when it ends so.
    pub(super) fn ended(&self, state: &str, why: &str, at: i64) -> SampleChange {
        let findings = self.progress.as_ref().map(|progress| progress.findings.as_slice()).unwrap_or_default();
        let (verdict, reasons) = judged(findings, state == "done");
        SampleChange {
            id: self.row,
            state: state.to_owned(),
            why: why.to_owned(),
            ended_at: Some(at),
            verdict: verdict.number(),
            reasons: serde_json::json!(reasons).to_string(),
        }
    }
}
