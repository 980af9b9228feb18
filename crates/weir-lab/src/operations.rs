//! The operations of the lab that people use: submit, list, cancel and so on. The API and the console call them.

mod known_results;
mod machines;
mod relatives;

pub use machines::NodeLine;
pub use relatives::Relative;

use crate::choices::{BadChoice, Choices};
use crate::chosen;
use crate::decision::Figures;
use crate::file_type;
use crate::job::Report;
use crate::neutered;
use crate::node::{Count, Node, NotTaken, Submitted};
use crate::report::{Acted, Merged};
use crate::verdict::Verdict;
use crate::wire::is_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Cursor, Read};
use std::time::{Duration, Instant, SystemTime};
use weir_core::runq::Directory;
use weir_store::records::{AttemptRow, QueueRow, RecordsError, ResultRow, SampleRow};

pub use crate::decision::PlaceLine;
pub use crate::sample_page::{AttemptLine, ResultLine, SampleLine, SamplePage};
pub use weir_store::records::SampleFilter;

/// How many terms of office are shown.
const TERMS: i64 = 10;
/// How many children of one sample are shown.
const CHILDREN_SHOWN: i64 = 1_000;
/// If a count of all samples takes no longer than this, the caller waits for it.
const SHORT: Duration = Duration::from_millis(5);
/// How many tags one sample may have.
const TAGS_MAX: usize = 8;
/// How many files that leave a doubt are named among the reasons.
const DOUBTS_SHOWN: usize = 12;
/// How many samples one report may have.
const PARTS_MAX: usize = 200;

/// The lab as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Lab")]
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
    /// For how long no leader was heard before this term, in milliseconds; only where the leader is.
    pub vacant_ms: Option<u64>,
}

/// A term of office.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabTerm")]
pub struct Term {
    /// Its number.
    pub epoch: i64,
    /// Who led.
    pub leader: String,
    /// When it began, in milliseconds since the Unix epoch, by the database's clock.
    pub began_ms: i64,
}

/// How many samples are in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabState")]
pub struct StateCount {
    /// The state.
    pub state: String,
    /// How many.
    pub samples: i64,
}

/// The samples that wait, by priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabQueue")]
pub struct QueuePage {
    /// The most urgent first; those without a sample are left out.
    pub queues: Vec<QueueLine>,
    /// Samples that wait for a machine, in the order of priority and arrival.
    pub next: Vec<SampleLine>,
}

/// One priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabPriority")]
pub struct QueueLine {
    /// The directory, that is the priority.
    pub priority: i64,
    /// Samples that wait for a machine.
    pub waiting: i64,
    /// Samples that a machine has.
    pub running: i64,
    /// How long the oldest has been here, in seconds.
    pub oldest_wait_s: f64,
}

/// A sample in a form that can be passed on: a zip archive with the password `infected`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    /// The name of the archive.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The packets that a sample sent and received in its guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packets {
    /// A name for the file.
    pub name: String,
    /// A pcap file.
    pub bytes: Vec<u8>,
}

/// How a sample should be analysed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// 0 is the most urgent, 127 the least.
    pub priority: u64,
    /// It runs only on machines and VMs that have all of them.
    pub tags: Vec<String>,
    /// The other choices.
    pub choices: Choices,
}

/// A sample was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandedIn {
    /// Its number.
    pub sample: i64,
    /// SHA-256 of its content.
    pub hash: String,
}

/// Why a query or an order was refused.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is no such sample.
    #[error("there is no sample {0}")]
    Unknown(String),
    /// A priority must be the number of a directory.
    #[error("{0} is no priority: 0 is the most urgent, 32 normal, 127 the least")]
    Priority(u64),
    /// It cannot have such tags.
    #[error("{0}: a tag is letters, digits, `.`, `_` and `-`, and a sample has at most {TAGS_MAX}")]
    Tag(String),
    /// It cannot be analysed as chosen.
    #[error("{0}")]
    Choice(#[from] BadChoice),
    /// It was not accepted.
    #[error("{0}")]
    NotTaken(#[from] NotTaken),
    /// There is no such machine.
    #[error("there is no machine {0} in this lab")]
    NoMachine(String),
    /// The machine that leads cannot be removed.
    #[error("{0} leads the lab: it cannot be taken out of it now")]
    Leads(String),
    /// Its priority cannot be changed.
    #[error("the priority of {0} cannot be changed: {1}")]
    NotPrioritised(String, String),
    /// No machine can be admitted.
    #[error("no machine can be admitted: {0}")]
    NotInvited(String),
    /// Its content is on another machine, or gone.
    #[error("the content of sample {0} is not on this machine: {1}")]
    NoContent(i64, String),
    /// It sent nothing on its network, or it did not run.
    #[error(
        "there are no packets of sample {0}: it did not run in a guest that keeps them, or said nothing on the network"
    )]
    NoPackets(i64),
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
        let (fence, left) = self.records().lab_leader().current().await?;
        let states = self.count_states().await?;
        let terms = self.records().lab_leader().history(TERMS).await?;
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

    /// How many samples are in each state. Many callers ask, and counting takes longer the more samples there are. So at most a twentieth of the
    /// time is spent on it, and if it takes long, callers get the last count while the next is made.
    async fn count_states(&self) -> Result<Vec<(String, i64)>, LabError> {
        let mut counted = self.counted().lock().await;
        let Some(count) = &mut *counted else { return self.count_now(&mut counted).await };
        if Instant::now() < count.good_until {
            return Ok(count.states.clone());
        }
        if count.took < SHORT {
            return self.count_now(&mut counted).await;
        }
        // So that no other count begins meanwhile.
        count.good_until = Instant::now() + 100 * count.took;
        let (node, states) = (self.clone(), count.states.clone());
        tokio::spawn(async move {
            let mut next = None;
            if node.count_now(&mut next).await.is_ok() {
                *node.counted().lock().await = next;
            }
        });
        Ok(states)
    }

    async fn count_now(&self, counted: &mut Option<Count>) -> Result<Vec<(String, i64)>, LabError> {
        let begun = Instant::now();
        let states = self.records().lab_samples().states().await?;
        let took = begun.elapsed();
        *counted = Some(Count { states: states.clone(), took, good_until: Instant::now() + 20 * took });
        Ok(states)
    }

    /// What every VM and slot of every machine does, as the leader sees it; empty if another machine leads.
    pub async fn places(&self) -> Vec<PlaceLine> {
        match self.leader() {
            Some(leader) => leader.places().await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Samples, the newest first.
    pub async fn list(&self, filter: &SampleFilter, most: i64) -> Result<Vec<SampleLine>, LabError> {
        Ok(self.records().lab_samples().list(filter, most).await?.into_iter().map(line).collect())
    }

    /// Everything about a sample, by number or by the beginning of its hash (then the newest).
    pub async fn page(&self, which: &str) -> Result<SamplePage, LabError> {
        let row = self.find(which).await?;
        let attempts = self.records().lab_attempts().of_sample(row.id).await?.into_iter().map(attempt).collect();
        let mut results = self.records().lab_attempts().results(row.id).await?;
        results.extend(self.cached(&row, &results).await?);
        let results: Vec<ResultLine> = results.into_iter().map(|result| result_line(row.id, result)).collect();
        let now = self.why(&row).await;
        let children = self.records().lab_samples().children(row.id, CHILDREN_SHOWN).await?;
        let (left_out, reasons) = (left_out(&results, &children), reasons(&row, &children));
        let children: Vec<SampleLine> = children.into_iter().map(line).collect();
        let choices = Choices::stored(&row.given.choices).told();
        Ok(SamplePage { now, reasons, choices, attempts, results, children, left_out, sample: line(row) })
    }

    /// A sample and everything in it, as one report.
    pub async fn merged(&self, which: &str) -> Result<Merged, LabError> {
        let mut page = self.page(which).await?;
        let (mut parts, mut open): (Vec<SamplePage>, Vec<i64>) = (Vec::new(), numbers(&page));
        while let Some(child) = open.pop() {
            if parts.len() >= PARTS_MAX {
                break;
            }
            // It may have been forgotten meanwhile.
            if let Ok(part) = self.page(&child.to_string()).await {
                open.extend(numbers(&part));
                parts.push(part);
            }
        }
        // A sample is read before the samples in it, and its verdict depends on theirs, which may have ended meanwhile: so its verdict is
        // read once more, the innermost first.
        for part in parts.iter_mut().rev().chain([&mut page]).filter(|part| !part.children.is_empty()) {
            if let Ok(row) = self.find(&part.sample.sample.to_string()).await {
                let children = self.records().lab_samples().children(row.id, CHILDREN_SHOWN).await?;
                part.reasons = reasons(&row, &children);
                // Its state stays as it was first read: "done" must not be shown with results that were not there yet.
                part.sample.verdict = line(row).verdict;
            }
        }
        Ok(Merged::new(page, parts))
    }

    /// Analyses a sample again, as if nothing were known of its content.
    pub async fn rerun(&self, which: &str, submitter: &str) -> Result<HandedIn, LabError> {
        let row = self.find(which).await?;
        let directory = u64::try_from(row.given.directory).unwrap_or(u64::MAX);
        let directory = Directory::new(directory).ok_or(LabError::Priority(directory))?;
        let (name, submitter) = (row.given.name.clone(), submitter.to_owned());
        let content = self.content(&row).await?;
        let tags = serde_json::from_str(&row.given.tags).unwrap_or_default();
        let choices = Choices::stored(&row.given.choices);
        let again = Submitted { name, submitter, directory, forced: true, tags, choices };
        let (sample, hash) = self.submit(content, again).await?;
        Ok(HandedIn { sample, hash: hash.to_string() })
    }

    /// The samples that wait, by priority, and which are next.
    pub async fn queue(&self, most: i64) -> Result<QueuePage, LabError> {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX);
        let line_of = |row: QueueRow| QueueLine {
            priority: row.directory,
            waiting: row.samples - row.running,
            running: row.running,
            oldest_wait_s: now.saturating_sub(row.oldest_at).max(0) as f64 / 1e9,
        };
        let queues = self.records().lab_samples().queue().await?.into_iter().map(line_of).collect();
        let next = self.records().lab_samples().waiting(most).await?.into_iter().map(line).collect();
        Ok(QueuePage { queues, next })
    }

    /// A sample in a form in which it can be taken elsewhere without doing harm on the way.
    pub async fn wrapped(&self, which: &str) -> Result<Wrapped, LabError> {
        let row = self.find(which).await?;
        let mut file = self.content(&row).await?;
        let (id, hash) = (row.id, row.given.hash.clone());
        let name = if row.given.name.is_empty() { hash.clone() } else { row.given.name };
        let wrapped = tokio::task::spawn_blocking(move || {
            let (mut content, mut random) = (Vec::new(), [0; 11]);
            file.read_to_end(&mut content).map_err(|error| error.to_string())?;
            weir_store::random(&mut random).map_err(|error| error.to_string())?;
            neutered::wrapped(&name, &content, random).map_err(|error| error.to_string())
        });
        let bytes = wrapped.await.map_err(|error| error.to_string()).and_then(|wrapped| wrapped);
        let bytes = bytes.map_err(|why| LabError::NoContent(id, why))?;
        Ok(Wrapped { name: format!("{}.zip", hash.get(..16).unwrap_or(&hash)), bytes })
    }

    /// The packets of a sample, as a file.
    pub async fn packets(&self, which: &str) -> Result<Packets, LabError> {
        let page = self.page(which).await?;
        let (sample, hash) = (page.sample.sample, page.sample.hash);
        let found = tokio::task::spawn_blocking(move || {
            page.results.iter().filter(|result| result.accepted).find_map(|result| Acted::packets(&result.report))
        });
        let bytes = found.await.ok().flatten().ok_or(LabError::NoPackets(sample))?;
        Ok(Packets { name: format!("{}.pcap", hash.get(..16).unwrap_or(&hash)), bytes })
    }

    async fn content(&self, row: &SampleRow) -> Result<File, LabError> {
        let gone = |why: String| LabError::NoContent(row.id, why);
        let hash = row.given.hash.parse().map_err(|_| gone("its hash cannot be read".into()))?;
        let samples = self.samples().clone();
        let opened = tokio::task::spawn_blocking(move || samples.open_verified(hash)).await;
        opened.map_err(|error| gone(error.to_string()))?.map_err(|error| gone(error.to_string()))
    }

    /// Samples that ended after this one (given by its time and number), in that order, to notify others of each.
    pub async fn ended_after(&self, after: (i64, i64), most: i64) -> Result<Vec<SampleLine>, LabError> {
        let mut samples = Vec::new();
        for (_, id) in self.records().lab_samples().ended(after, most).await? {
            // One may have been forgotten in between.
            samples.extend(self.records().lab_samples().find(id).await?.map(line));
        }
        Ok(samples)
    }

    /// Submits a sample, to be analysed as requested.
    pub async fn hand_in(
        &self,
        content: Vec<u8>,
        name: &str,
        wishes: Wishes,
        submitter: &str,
    ) -> Result<HandedIn, LabError> {
        let Wishes { priority, tags, choices } = wishes;
        let directory = Directory::new(priority).ok_or(LabError::Priority(priority))?;
        if let Some(tag) = tags.iter().find(|tag| !is_name(tag)) {
            return Err(LabError::Tag(format!("{:?} is no tag", tag.chars().take(64).collect::<String>())));
        }
        if tags.len() > TAGS_MAX {
            return Err(LabError::Tag(format!("{} are too many", tags.len())));
        }
        chosen::check(&choices, &self.settings().plugins, self.settings().scheduling.threshold)?;
        let (name, submitter) = (name.to_owned(), submitter.to_owned());
        let handed = Submitted { name, submitter, directory, forced: false, tags, choices };
        let (sample, hash) = self.submit(Cursor::new(content), handed).await?;
        Ok(HandedIn { sample, hash: hash.to_string() })
    }

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

    pub(crate) async fn find(&self, which: &str) -> Result<SampleRow, LabError> {
        let unknown = || LabError::Unknown(which.to_owned());
        if let Ok(number) = which.parse()
            && let Some(row) = self.records().lab_samples().find(number).await?
        {
            return Ok(row);
        }
        let hash = which.to_ascii_lowercase();
        if hash.len() < 4 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let filter = SampleFilter { hash, ..SampleFilter::default() };
        self.records().lab_samples().list(&filter, 1).await?.pop().ok_or_else(unknown)
    }

    async fn why(&self, row: &SampleRow) -> String {
        if row.ended_at.is_some() {
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            return format!("it has ended as {}{why}", row.state);
        }
        let answer = match self.leader() {
            Some(leader) => leader.why(row.id).await.ok_or_else(|| "nobody leads at the moment".to_owned()),
            None => self.ask_leader(&format!("why {}", row.id)).await,
        };
        match answer {
            Ok(why) => why,
            Err(problem) => format!("{problem}: {}", self.why_nobody_leads().await),
        }
    }

    /// What prevents a leader from acting, as the database sees it.
    async fn why_nobody_leads(&self) -> String {
        match self.records().lab_leader().current().await {
            Err(error) => format!("the database does not answer ({error})"),
            Ok((fence, left_ms)) if left_ms > 0 => {
                format!("{} has the lease for another {:.1} s", fence.holder, left_ms as f64 / 1e3)
            }
            Ok(_) => "nobody has the lease; the machines that may lead elect one, if there are any".into(),
        }
    }
}

pub(crate) fn line(row: SampleRow) -> SampleLine {
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
        verdict: Verdict::numbered(row.verdict).word().to_owned(),
        parent: row.given.parent,
        depth: row.given.depth,
    }
}

/// The reasons for its own verdict, and what is bad in it, or why it cannot be called clean because of what is in it.
pub(crate) fn reasons(row: &SampleRow, children: &[SampleRow]) -> Vec<String> {
    let mut reasons: Vec<String> = serde_json::from_str(&row.reasons).unwrap_or_default();
    let told =
        |child: &SampleRow, what: &str| format!("{} (sample {}), found in it, {what}", child.given.name, child.id);
    let bad = |child: &&SampleRow| Verdict::numbered(child.verdict) > Verdict::Clean;
    let is_bad = |child: &SampleRow| told(child, &format!("is {}", Verdict::numbered(child.verdict).word()));
    reasons.extend(children.iter().filter(bad).map(is_bad));
    if Verdict::numbered(row.verdict) == Verdict::Unknown {
        let doubtful = children.iter().filter(|child| !bad(child) && child.ended_at.is_some());
        let doubtful = doubtful.filter_map(|child| match child.state.as_str() {
            // Of a text nothing more may be known than that nothing speaks against it.
            "done" if child.verdict == 0 && !file_type::is_passive(&child.given.file_type) => {
                Some(told(child, "is unknown"))
            }
            "done" => None,
            state => Some(told(child, &format!("ended as {state}"))),
        });
        reasons.extend(doubtful.take(DOUBTS_SHOWN));
    }
    reasons
}

/// Files in accepted reports that are not samples of their own.
fn left_out(results: &[ResultLine], children: &[SampleRow]) -> usize {
    let known: BTreeSet<&str> = children.iter().map(|child| child.given.hash.as_str()).collect();
    let reports = results.iter().filter(|result| result.accepted);
    let reports = reports.filter_map(|result| Report::read(result.report.get().as_bytes()).ok());
    let files: Vec<_> =
        reports.flat_map(|report| report.artifacts).filter(|artifact| artifact.file.is_some()).collect();
    files.iter().filter(|file| !file.sha256.as_deref().is_some_and(|hash| known.contains(hash))).count()
}

fn numbers(page: &SamplePage) -> Vec<i64> {
    page.children.iter().rev().map(|child| child.sample).collect()
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
