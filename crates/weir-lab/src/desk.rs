//! What people ask of the lab.

use crate::cluster::identity::role_of;
use crate::decision::Figures;
use crate::node::{Handed, Node, NotTaken};
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::Cursor;
use std::time::Duration;
use weir_core::election::Priority;
use weir_core::runq::{Directory, End, Unmet, Why};
use weir_store::records::{AttemptRow, NodeRow, RecordsError, ResultRow, SampleRow};

pub use weir_store::records::SampleFilter;

/// Terms of office that are shown.
const TERMS: i64 = 10;

/// The lab as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabStatus {
    /// Who leads, if anybody does.
    pub leader: Option<String>,
    /// The epoch of the last leader.
    pub epoch: i64,
    /// Whether this node leads.
    pub leads_here: bool,
    /// Samples that have not ended, as the leader counts them; only where it is.
    pub open: Option<usize>,
    /// How many samples are in each state.
    pub states: Vec<StateCount>,
    /// The root analysis directory.
    pub analysis: String,
    /// The plugins of this node.
    pub plugins: Vec<String>,
    /// The last terms of office, the latest first.
    pub terms: Vec<Term>,
    /// Figures of this term; only where the leader is.
    pub figures: Option<Figures>,
    /// For how long nobody was heard to lead before this term, in milliseconds; only where the leader is.
    pub vacant_ms: Option<u64>,
}

/// A term of office.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Term {
    /// Its number.
    pub epoch: i64,
    /// Who led.
    pub leader: String,
    /// When it began, in milliseconds since the Unix epoch, by the database's clock.
    pub began_ms: i64,
}

/// How many samples are in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The state.
    pub state: String,
    /// How many.
    pub samples: i64,
}

/// One machine of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// `eligible`, `dispatcher` or `external`.
    pub role: String,
    /// Its priority in elections: the lowest number leads.
    pub priority: i64,
    /// Its processing index: the highest is the weakest machine.
    pub index: Option<i64>,
    /// Where it is.
    pub address: String,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it gets no new samples.
    pub drained: bool,
    /// When it was last at work, in nanoseconds since the Unix epoch, by the database's clock; 0 for never.
    pub seen_at: i64,
}

/// One sample in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// What has become of it.
    pub state: String,
    /// Why, in words; may be empty.
    pub why: String,
    /// When it came, in nanoseconds since the Unix epoch.
    pub arrived_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
}

/// Everything about one sample.
#[derive(Debug, Clone, Serialize)]
pub struct SamplePage {
    /// The sample.
    #[serde(flatten)]
    pub sample: SampleLine,
    /// Why it is not running, or that it is.
    pub now: String,
    /// Its attempts.
    pub attempts: Vec<AttemptLine>,
    /// What plugins brought.
    pub results: Vec<ResultLine>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub started_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// How; empty while it runs.
    pub outcome: String,
}

/// One result.
#[derive(Debug, Clone, Serialize)]
pub struct ResultLine {
    /// The plugin.
    pub plugin: String,
    /// Its version.
    pub version: String,
    /// Whether it counts.
    pub accepted: bool,
    /// `done` or `failed`.
    pub outcome: String,
    /// The sample that it was brought for, if that is another one of the same content.
    pub of_sample: Option<i64>,
    /// The report.
    pub report: Box<RawValue>,
}

/// A sample was handed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandedIn {
    /// Its number.
    pub sample: i64,
    /// SHA-256 of its content.
    pub hash: String,
}

/// Why a question or an order was refused.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is no such sample.
    #[error("there is no sample {0}")]
    Unknown(String),
    /// Priorities are the numbers of directories.
    #[error("{0} is no priority: 0 is the most urgent, 32 normal, 127 the least")]
    Priority(u64),
    /// It was not taken in.
    #[error("{0}")]
    NotTaken(#[from] NotTaken),
    /// There is no such machine.
    #[error("there is no machine {0} in this lab")]
    NoMachine(String),
    /// Whoever leads cannot be taken out.
    #[error("{0} leads the lab: it cannot be taken out of it now")]
    Leads(String),
    /// No machine can be admitted.
    #[error("no machine can be admitted: {0}")]
    NotInvited(String),
    /// It has ended.
    #[error("sample {0} cannot be taken back: it has ended")]
    TooLate(i64),
    /// The leader did not answer.
    #[error("sample {0} cannot be taken back: {1}")]
    NotAsked(i64, String),
    /// The records cannot be read.
    #[error("{0}")]
    Records(#[from] RecordsError),
}

impl Node {
    /// The lab as a whole.
    pub async fn status(&self) -> Result<LabStatus, LabError> {
        let (fence, left) = self.records().lab_leader().await?;
        let states = self.records().lab_states().await?;
        let terms = self.records().lab_history(TERMS).await?;
        let leader = self.leader();
        let figures = match &leader {
            Some(leader) => leader.figures().await,
            None => None,
        };
        let vacant = leader.as_ref().and_then(|_| self.vacancy());
        Ok(LabStatus {
            leader: (left > 0).then_some(fence.holder).or_else(|| self.leader_seen_from_outside()),
            epoch: fence.epoch,
            leads_here: leader.is_some(),
            open: match leader {
                Some(leader) => leader.open().await,
                None => None,
            },
            states: states.into_iter().map(|(state, samples)| StateCount { state, samples }).collect(),
            analysis: self.settings().analysis.display().to_string(),
            plugins: self
                .settings()
                .plugins
                .iter()
                .map(|plugin| format!("{} {}", plugin.name, plugin.version))
                .collect(),
            terms: terms.into_iter().map(|(epoch, leader, began_ms)| Term { epoch, leader, began_ms }).collect(),
            figures,
            vacant_ms: vacant.map(|vacant| u64::try_from(vacant.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// The machines of the lab.
    pub async fn nodes(&self) -> Result<Vec<NodeLine>, LabError> {
        let (fence, left) = self.records().lab_leader().await?;
        let line = |row: NodeRow| NodeLine {
            leads: left > 0 && fence.holder == row.node,
            name: row.node,
            role: row.role,
            priority: row.priority,
            index: row.processing_index,
            address: row.address,
            drained: row.drained,
            seen_at: row.seen_at,
        };
        Ok(self.records().lab_nodes().await?.into_iter().map(line).collect())
    }

    /// A machine gets no new samples from now on, or gets some again.
    pub async fn drain(&self, name: &str, drained: bool) -> Result<(), LabError> {
        match self.records().lab_drain(name, drained).await? {
            true => Ok(()),
            false => Err(LabError::NoMachine(name.to_owned())),
        }
    }

    /// Takes a machine out of the lab: its certificate counts no more.
    pub async fn take_out(&self, name: &str) -> Result<(), LabError> {
        let known = self.records().lab_nodes().await?.iter().any(|node| node.node == name);
        match (known, known && self.records().lab_remove(name).await?) {
            (_, true) => Ok(()),
            (true, false) => Err(LabError::Leads(name.to_owned())),
            (false, false) => Err(LabError::NoMachine(name.to_owned())),
        }
    }

    /// A token that admits one machine.
    pub async fn invite(&self, role: &str, priority: u8, valid: Duration) -> Result<String, LabError> {
        let refused = |why: &str| LabError::NotInvited(why.to_owned());
        let role = role_of(role).ok_or_else(|| refused("the role is eligible, dispatcher or external"))?;
        let site = self.site().ok_or_else(|| refused("this is a lab of one machine; set lab.address"))?;
        site.invite(self.records(), (role, Priority(priority)), valid).await.map_err(LabError::NotInvited)
    }

    /// Samples, the newest first.
    pub async fn list(&self, filter: &SampleFilter, most: i64) -> Result<Vec<SampleLine>, LabError> {
        Ok(self.records().lab_samples(filter, most).await?.into_iter().map(line).collect())
    }

    /// Everything about a sample, by number or by the beginning of its hash (then the newest).
    pub async fn page(&self, which: &str) -> Result<SamplePage, LabError> {
        let row = self.find(which).await?;
        let attempts = self.records().lab_attempts(row.id).await?.into_iter().map(attempt).collect();
        let mut results = self.records().lab_results(row.id).await?;
        results.extend(self.cached(&row, &results).await?);
        let results = results.into_iter().map(|result| result_line(row.id, result)).collect();
        let now = self.why(&row).await;
        Ok(SamplePage { now, attempts, results, sample: line(row) })
    }

    /// Results of the same content that stand for those that the sample has not.
    async fn cached(&self, row: &SampleRow, own: &[ResultRow]) -> Result<Vec<ResultRow>, LabError> {
        let needs: Vec<(String, String)> = serde_json::from_str(&row.given.needs).unwrap_or_default();
        let has = |plugin: &(String, String)| {
            own.iter().any(|result| result.accepted == 1 && (&result.plugin, &result.version) == (&plugin.0, &plugin.1))
        };
        let missing: Vec<_> = needs.into_iter().filter(|plugin| !has(plugin)).collect();
        if missing.is_empty() || row.given.forced != 0 {
            return Ok(Vec::new());
        }
        let mut cached = self.records().lab_cached(std::slice::from_ref(&row.given.hash)).await?;
        cached.retain(|result| {
            missing.iter().any(|(name, version)| (name, version) == (&result.plugin, &result.version))
        });
        Ok(cached)
    }

    /// Hands in a sample.
    pub async fn hand_in(
        &self,
        content: Vec<u8>,
        name: &str,
        priority: u64,
        submitter: &str,
    ) -> Result<HandedIn, LabError> {
        let directory = Directory::new(priority).ok_or(LabError::Priority(priority))?;
        let handed = Handed { name: name.to_owned(), submitter: submitter.to_owned(), directory, forced: false };
        let (sample, hash) = self.submit(Cursor::new(content), handed).await?;
        Ok(HandedIn { sample, hash: hash.to_string() })
    }

    /// Takes a sample back.
    pub async fn take_back(&self, which: &str) -> Result<SampleLine, LabError> {
        let row = self.find(which).await?;
        let taken = match self.leader() {
            Some(leader) => leader.cancel(row.id).await,
            None if row.ended_at.is_some() => false,
            None => {
                let answer = self.ask_leader(&format!("cancel {}", row.id)).await;
                answer.map_err(|why| LabError::NotAsked(row.id, why))? == "taken back"
            }
        };
        if taken { Ok(line(row)) } else { Err(LabError::TooLate(row.id)) }
    }

    async fn find(&self, which: &str) -> Result<SampleRow, LabError> {
        let unknown = || LabError::Unknown(which.to_owned());
        if let Ok(number) = which.parse()
            && let Some(row) = self.records().lab_sample(number).await?
        {
            return Ok(row);
        }
        let hash = which.to_ascii_lowercase();
        if hash.len() < 4 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let filter = SampleFilter { hash, ..SampleFilter::default() };
        self.records().lab_samples(&filter, 1).await?.pop().ok_or_else(unknown)
    }

    async fn why(&self, row: &SampleRow) -> String {
        if row.ended_at.is_some() {
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            return format!("it has ended as {}{why}", row.state);
        }
        let Some(leader) = self.leader() else {
            return self.ask_leader(&format!("why {}", row.id)).await.unwrap_or_else(|why| why);
        };
        match leader.why(row.id).await {
            Some(why) => in_words(&why),
            None => "nobody leads at the moment".into(),
        }
    }
}

pub(crate) fn in_words(why: &Why) -> String {
    match why {
        Why::Unknown => "the leader has not read it from the database yet".into(),
        Why::Ended(end) => format!("it has ended as {}", ended(*end)),
        Why::Running { .. } => "it runs".into(),
        Why::NoMachine { unmet: Unmet::AnyMachine, .. } => "no machine is plugged in".into(),
        Why::NoMachine { unmet: Unmet::Plugins(_), .. } => "no machine has any of the plugins that it needs".into(),
        Why::NoMachine { unmet: Unmet::Tags(_), .. } => "no VM with the plugin has the tags that it needs".into(),
        Why::Busy { vms, on_revert, behind, .. } => {
            format!("all {vms} VMs that could run it are in use ({on_revert} on revert), and {behind} samples go first")
        }
        Why::HeldBack { behind, .. } => {
            format!("it is of the idle class, and its machines have other work; {behind} samples go first")
        }
    }
}

fn ended(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Quarantined => "quarantined",
        End::Unserviceable => "unserviceable",
        End::Cancelled => "cancelled",
    }
}

fn line(row: SampleRow) -> SampleLine {
    SampleLine {
        sample: row.id,
        hash: row.given.hash,
        name: row.given.name,
        size: row.given.size,
        file_type: row.given.file_type,
        submitter: row.given.submitter,
        priority: row.given.directory,
        state: row.state,
        why: row.why,
        arrived_at: row.given.arrived_at,
        ended_at: row.ended_at,
    }
}

fn result_line(sample: i64, result: ResultRow) -> ResultLine {
    ResultLine {
        plugin: result.plugin,
        version: result.version,
        accepted: result.accepted != 0,
        outcome: result.outcome,
        of_sample: (result.sample != sample).then_some(result.sample),
        report: RawValue::from_string(result.report).unwrap_or_default(),
    }
}

fn attempt(row: AttemptRow) -> AttemptLine {
    AttemptLine {
        attempt: row.id,
        epoch: row.epoch,
        node: row.node,
        vm: row.vm,
        started_at: row.started_at,
        ended_at: row.ended_at,
        outcome: row.outcome,
    }
}
