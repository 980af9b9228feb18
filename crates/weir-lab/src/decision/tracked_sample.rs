//! A sample that the leader is scheduling: its row in the records, and what is known of it so far.

use super::PluginName;
use crate::choices::Choices;
use crate::job::Level;
use crate::verdict::{Finding, judged};
use std::sync::Arc;
use weir_core::runq::{Deferrals, Tags};
use weir_store::records::{SampleChange, SampleRow};
use weir_store::samples::SampleHash;

/// How many signs of trouble are remembered.
const TROUBLE_MAX: usize = 4;

/// A sample that has not ended.
#[derive(Debug, Clone)]
pub(super) struct TrackedSample {
    pub(super) row: i64,
    pub(super) hash: SampleHash,
    pub(super) size: u64,
    pub(super) name: String,
    pub(super) submitter: Arc<str>,
    pub(super) tags: Tags,
    /// The sample that was submitted, of which this is a part; its own number if it was submitted itself.
    pub(super) root: i64,
    pub(super) directory: u8,
    pub(super) depth: u8,
    pub(super) forced: bool,
    pub(super) deferrals: Deferrals,
    /// What kind of program it is, if it is one and no plugin of this lab runs it.
    pub(super) unrun: Option<&'static str>,
    /// What its name makes of it elsewhere, if a plugin of this lab runs it as something else.
    pub(super) otherwise: Option<&'static str>,
    /// Most samples have none.
    choices: Option<Arc<Choices>>,
    /// Most samples have nothing of this while they wait.
    progress: Option<Box<SampleProgress>>,
}

#[derive(Debug, Clone, Default)]
struct SampleProgress {
    findings: Vec<Finding>,
    /// A plugin that can judge files that did not run calls it safe.
    vouched_for: bool,
    /// Signs from attempts that failed.
    trouble: Vec<Finding>,
    /// Plugins whose turn comes when the running ones have succeeded.
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
            unrun: None,
            otherwise: None,
            choices: Some(Choices::stored(&row.given.choices)).filter(|choices| !choices.is_none()).map(Arc::new),
            progress: None,
        }
    }

    /// The choices for it, and for what is found in it.
    pub(super) fn choices(&self) -> &Choices {
        static NONE: Choices = Choices::NONE;
        self.choices.as_deref().unwrap_or(&NONE)
    }

    /// Whether it shares no results with other samples of the same content, as far as results are remembered without their version.
    pub(super) fn is_of_its_own(&self) -> bool {
        self.forced || self.choices.is_some()
    }

    /// Adds what a plugin has found; `vouches` says whether it can call a file safe that did not run.
    pub(super) fn learn(&mut self, findings: &[Finding], vouches: bool) {
        if !findings.is_empty() {
            let progress = self.progress.get_or_insert_default();
            progress.findings.extend_from_slice(findings);
            progress.vouched_for |= vouches && findings.iter().any(|finding| finding.level == Level::Safe);
        }
    }

    /// An attempt failed, with these signs.
    pub(super) fn suffer(&mut self, findings: &[Finding]) {
        for finding in findings {
            let trouble = &mut self.progress.get_or_insert_default().trouble;
            if trouble.len() < TROUBLE_MAX && !trouble.contains(finding) {
                trouble.push(finding.clone());
            }
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

    /// Everything that is known of it. Signs from failed attempts count in full if no attempt succeeded, and are only a doubt if one did:
    /// a sample that crashes its guest only now and then is not clean, but a busy machine makes no sample suspicious.
    fn findings(&self, ended_well: bool) -> Vec<Finding> {
        let none = SampleProgress::default();
        let progress = self.progress.as_deref().unwrap_or(&none);
        let doubt = |finding: &Finding| match ended_well {
            true => Finding { level: Level::Unknown, ..finding.clone() },
            false => finding.clone(),
        };
        let trouble = progress.trouble.iter().map(doubt);
        let doubts = self.not_run(progress).into_iter().chain(self.run_otherwise(progress));
        progress.findings.iter().cloned().chain(trouble).chain(doubts).collect()
    }

    /// The doubt about a file that would run elsewhere and did not run here. That clamd has no signature does not remove it; a plugin of
    /// the site's own that calls the file safe does.
    fn not_run(&self, progress: &SampleProgress) -> Option<Finding> {
        let what = self.unrun.filter(|_| !progress.vouched_for)?;
        let why = match self.choices().restrict() {
            true => "it was not run, as whoever handed it in chose",
            false => "no guest runs such files",
        };
        Some(Finding { level: Level::Unknown, text: format!("{why}: {what}") })
    }

    /// The doubt about a file that was run as what its bytes say, and that another program would open because of its name.
    fn run_otherwise(&self, progress: &SampleProgress) -> Option<Finding> {
        let what = self.otherwise.filter(|_| !progress.vouched_for)?;
        let why = "it was run as what its bytes say, and by its name something else opens it";
        Some(Finding { level: Level::Unknown, text: format!("{why}: {what}") })
    }

    /// The change for the database when it ends in this way.
    pub(super) fn ended(&self, state: &str, why: &str, at: i64) -> SampleChange {
        let (verdict, reasons) = judged(&self.findings(state == "done"), state == "done");
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
