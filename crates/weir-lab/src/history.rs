//! What the lab knows about a content, and what happened to a sample. The mail gate uses it while mail waits for a verdict, and `weir
//! trace` to tell how the verdict came about.

use crate::active;
use crate::node::Node;
use crate::operations::{LabError, reasons};
use crate::verdict::{Brief, Verdict};
use serde::Serialize;
use weir_store::records::{OpinionRow, ResultRow, SampleRow};

/// Samples in one history: the one that was asked for, and those found in it.
const PARTS_MAX: usize = 50;
/// How many children of one sample are searched for reasons.
const CHILDREN_MAX: i64 = 100;
/// How many findings of one plugin are listed.
const FINDINGS_MAX: usize = 3;

/// What is known of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// The sample that counts for it.
    pub sample: i64,
    /// The state of its analysis.
    pub standing: Standing,
}

/// The state of the analysis of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It, or something that was found in it, has not ended.
    Open,
    /// It has a verdict.
    Ended {
        /// The verdict on it and everything in it.
        verdict: Verdict,
        /// Why.
        reasons: Vec<String>,
        /// When it ended, in nanoseconds since the Unix epoch.
        at: i64,
    },
    /// It ended without a verdict.
    Failed {
        /// In words.
        why: String,
    },
}

/// Something that happened to a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryLine {
    /// When, in nanoseconds since the Unix epoch.
    pub at: i64,
    pub sample: i64,
    /// SHA-256 of its content.
    pub hash: String,
    /// In a word.
    pub event: &'static str,
    /// In words.
    pub text: String,
}

impl Node {
    /// What is known of files with these hashes and names, one answer each; none for those that nobody submitted. Malware is malware by any name.
    /// Otherwise a sample counts only if a file of this name is opened as that sample was: as a text it may have been harmless, and as a
    /// script it may not be.
    pub async fn opinions(&self, files: &[(String, String)]) -> Result<Vec<Option<Opinion>>, LabError> {
        let hashes: Vec<String> = files.iter().map(|(hash, _)| hash.clone()).collect();
        let rows = self.records().lab_samples().opinions(&hashes).await?;
        let mut opinions = Vec::new();
        for (hash, name) in files {
            let counts = |row: &&OpinionRow| row.stands || active::also_opened_so((&row.file_type, &row.name), name);
            opinions.push(match rows.iter().filter(|row| row.hash == *hash).find(counts) {
                Some(row) => Some(Opinion { sample: row.sample, standing: self.standing(row).await? }),
                None => None,
            });
        }
        Ok(opinions)
    }

    async fn standing(&self, row: &OpinionRow) -> Result<Standing, LabError> {
        let Some(at) = row.ended_at else { return Ok(Standing::Open) };
        if row.state != "done" {
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            return Ok(Standing::Failed { why: format!("it ended as {}{why}", row.state) });
        }
        let verdict = Verdict::numbered(row.verdict);
        let reasons = self.reasons_of(row.sample).await?;
        Ok(Standing::Ended { verdict, reasons, at })
    }

    async fn reasons_of(&self, sample: i64) -> Result<Vec<String>, LabError> {
        let Some(row) = self.records().lab_samples().find(sample).await? else { return Ok(Vec::new()) };
        let children = self.records().lab_samples().children(sample, CHILDREN_MAX).await?;
        // What is bad in it comes first: about a dropper itself there may be only good findings.
        let own: Vec<String> = serde_json::from_str(&row.reasons).unwrap_or_default();
        let mut reasons = reasons(&row, &children);
        let count = own.len().min(reasons.len());
        reasons.rotate_left(count);
        Ok(reasons)
    }

    /// Everything that happened to a sample and to what was found in it, oldest first.
    pub async fn history(&self, which: &str) -> Result<Vec<HistoryLine>, LabError> {
        let first = self.find(which).await?;
        let (mut lines, mut open, mut parts) = (Vec::new(), vec![first], 0);
        while let Some(row) = open.pop() {
            parts += 1;
            if parts > PARTS_MAX {
                break;
            }
            open.extend(self.records().lab_samples().children(row.id, PARTS_MAX as i64).await?.into_iter().rev());
            self.of_one(&row, &mut lines).await?;
        }
        lines.sort_by_key(|line| line.at);
        Ok(lines)
    }

    async fn of_one(&self, row: &SampleRow, lines: &mut Vec<HistoryLine>) -> Result<(), LabError> {
        let mut tell = |at: i64, event: &'static str, text: String| {
            lines.push(HistoryLine { at, sample: row.id, hash: row.given.hash.clone(), event, text });
        };
        tell(row.given.arrived_at, "queued", arrived(row));
        for attempt in self.records().lab_attempts().of_sample(row.id).await? {
            let text =
                format!("machine {}, {} (attempt {}, epoch {})", attempt.node, attempt.vm, attempt.id, attempt.epoch);
            tell(attempt.started_at, "assigned", format!("assigned to {text}"));
            if let Some(at) = attempt.ended_at {
                tell(at, "attempt", format!("attempt {} on {} ended: {}", attempt.id, attempt.vm, attempt.outcome));
            }
        }
        let results = self.records().lab_attempts().results(row.id).await?;
        for result in &results {
            tell(result.at, "result", brought(result));
        }
        for result in self.cached(row, &results).await? {
            let text = format!("known from sample {}: {}", result.sample, brought(&result));
            tell(row.given.arrived_at, "result", text);
        }
        if let Some(at) = row.ended_at {
            let verdict = Verdict::numbered(row.verdict).word();
            let why = match (row.state.as_str(), self.reasons_of(row.id).await?) {
                ("done", reasons) if reasons.is_empty() => String::new(),
                ("done", reasons) => format!(": {}", reasons.join("; ")),
                (state, _) => format!(", for it ended as {state}: {}", row.why),
            };
            tell(at, "verdict", format!("verdict on {}: {verdict}{why}", row.given.name));
        }
        Ok(())
    }
}

fn arrived(row: &SampleRow) -> String {
    let given = &row.given;
    let from = match given.parent {
        Some(parent) => format!("found in sample {parent}"),
        None => format!("handed in by {}", given.submitter),
    };
    let (id, name, size, kind) = (row.id, &given.name, given.size, &given.file_type);
    format!("sample {id}: {name} ({kind}, {size} bytes), {from}, queued with priority {}", given.directory)
}

fn brought(result: &ResultRow) -> String {
    let brief: Brief = serde_json::from_str(&result.brief).unwrap_or_default();
    let mut told: Vec<&str> = brief.findings.iter().take(FINDINGS_MAX).map(|finding| finding.text.as_str()).collect();
    let more = brief.findings.len().saturating_sub(FINDINGS_MAX);
    let (files, counts) = (brief.children.len(), if result.accepted == 0 { " (does not count)" } else { "" });
    let files = format!("{files} file{} found in it", if files == 1 { "" } else { "s" });
    if !brief.children.is_empty() {
        told.push(&files);
    }
    let told = if told.is_empty() { "nothing that decides".to_owned() } else { told.join("; ") };
    let more = if more > 0 { format!("; {more} more") } else { String::new() };
    format!("{} {} {}{counts}: {told}{more}", result.plugin, result.version, result.outcome)
}
