//! One machine of the lab: its election, and what it does while it leads.
//!
//! While this node acts as the leader, it takes in samples from the numbered directories and schedules them; if it is the only machine, or
//! the settings say so, it also analyses. When its leadership ends, all of this ends at once; what was acknowledged is in the database and
//! in the sample store.

use crate::choices::Choices;
use crate::chosen;
use crate::cluster::elector::{Ends, Order, Post, Vacancy};
use crate::cluster::leader_client::LeaderClient;
use crate::cluster::membership::Membership;
use crate::decision::Rules;
use crate::dispatcher::Dispatcher;
use crate::display_name::display_name;
use crate::file_type;
use crate::intake::notices::Notices;
use crate::intake::{DirectoryFile, Ignored, Intake, IntakeSettings, Look, Ready};
use crate::leader::{Leader, LeaderEnd, LeaderHandle, attend_here};
use crate::plugin::Plugin;
use crate::wire::ChildLimits;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Mutex, mpsc, watch};
use weir_core::runq;
use weir_store::records::{Fence, NewSample, Records, RecordsError};
use weir_store::samples::{SampleError, SampleHash, Samples, Stored};

/// How often the directories are examined.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Files whose rows are written with one statement.
const TAKEN_AT_ONCE: usize = 64;
/// How long a process that ends waits for its last messages to the others to be sent.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The longest time for a hand-over.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);
/// How often old samples are searched for.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// How often content is searched for that belongs to no sample.
const SWEEP_EVERY: Duration = Duration::from_secs(6 * 3600);
/// How many samples are forgotten at a time.
const PRUNE_MAX: i64 = 500;
/// A file younger than this may be one whose row is just being written.
const YOUNG: Duration = Duration::from_secs(3600);

/// The settings of a node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// The node's id in the records.
    pub node: String,
    /// The root analysis directory.
    pub analysis: PathBuf,
    /// How files are taken from it.
    pub intake: IntakeSettings,
    /// How samples are scheduled.
    pub scheduling: runq::Settings,
    /// The plugins of the lab: which samples need which.
    pub plugins: Arc<[Plugin]>,
    /// Samples that ended this long ago are forgotten; None for never.
    pub keep: Option<Duration>,
    /// How deeply samples found in samples may be nested.
    pub depth_max: u8,
    /// What may be found in one sample.
    pub children: ChildLimits,
    /// A machine with less free memory gets no samples.
    pub memory_free_min: u64,
}

/// How many samples are in each state, and until when this count may be used.
type Counted = Option<Count>;

/// How many samples were in each state.
#[derive(Debug, Clone)]
pub(crate) struct Count {
    pub(crate) states: Vec<(String, i64)>,
    /// How long the count took.
    pub(crate) took: Duration,
    pub(crate) good_until: Instant,
}

/// One machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Node {
    settings: Arc<NodeSettings>,
    records: Records,
    samples: Samples,
    leader: watch::Sender<Option<LeaderHandle>>,
    /// Set once it takes part in an election.
    orders: Arc<OnceLock<mpsc::Sender<Order>>>,
    /// Set once it takes part in a lab of several machines.
    leader_client: Arc<OnceLock<LeaderClient>>,
    vacancy: Arc<OnceLock<Vacancy>>,
    membership: Option<Membership>,
    /// The dispatcher of this machine, to be stopped in an orderly way.
    dispatcher: Option<Dispatcher>,
    counted: Arc<Mutex<Counted>>,
}

/// A sample that is submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The name it came with.
    pub name: String,
    /// Who submits it.
    pub submitter: String,
    /// The directory, that is the priority.
    pub directory: runq::Directory,
    /// Whether results of the same content do not count.
    pub forced: bool,
    /// Tags that a machine or VM must have to run it.
    pub tags: Vec<String>,
    /// The choices for it.
    pub choices: Choices,
}

/// Why a sample was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It cannot be stored.
    #[error("the sample cannot be stored: {0}")]
    Sample(#[from] SampleError),
    /// It cannot be written to the records.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// No plugin of the lab accepts such a file.
    #[error("no plugin of this lab takes files of the type {0}")]
    NothingToRun(String),
    /// None of the plugins that were chosen accepts such a file.
    #[error("none of the chosen plugins takes files of the type {0}")]
    NothingChosen(String),
    /// Machines outside the lab have no database to which it could be written.
    #[error("this machine is outside the lab: hand the sample in on a machine inside it")]
    Outside,
    /// It changed while it was read.
    #[error("the file changed while it was read")]
    Changed,
}

impl Node {
    /// A node on these records and samples.
    pub fn new(settings: NodeSettings, records: Records, samples: Samples) -> Node {
        let (leader, orders) = (watch::Sender::new(None), Arc::default());
        let (leader_client, vacancy) = (Arc::default(), Arc::default());
        let (settings, counted) = (Arc::new(settings), Arc::default());
        Node {
            settings,
            records,
            samples,
            leader,
            orders,
            leader_client,
            vacancy,
            membership: None,
            dispatcher: None,
            counted,
        }
    }

    /// The same, in a lab of several machines.
    #[must_use]
    pub fn with_membership(self, membership: Membership) -> Node {
        Node { membership: Some(membership), ..self }
    }

    /// The same, with a dispatcher that is stopped in an orderly way when the node is.
    #[must_use]
    pub fn with(self, dispatcher: Dispatcher) -> Node {
        Node { dispatcher: Some(dispatcher), ..self }
    }

    /// Its name in the records.
    pub fn name(&self) -> &str {
        &self.settings.node
    }

    /// The root analysis directory.
    pub fn analysis(&self) -> &std::path::Path {
        &self.settings.analysis
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    pub(crate) fn counted(&self) -> &Mutex<Counted> {
        &self.counted
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    pub(crate) fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// From now on the present leader is asked about what this machine does not know.
    pub(crate) fn set_leader_client(&self, leader_client: LeaderClient) {
        let _ = self.leader_client.set(leader_client);
    }

    /// The leader's answer to a line, whichever machine leads; or why there is none, in words.
    pub(crate) async fn ask_leader(&self, question: &str) -> Result<String, String> {
        match self.leader_client.get() {
            Some(leader_client) => leader_client.ask(question).await,
            None => Err("nobody leads at the moment".into()),
        }
    }

    /// The leader for which a machine outside the lab works; such a machine has no database to ask.
    pub(crate) fn leader_seen_from_outside(&self) -> Option<String> {
        self.membership.as_ref().filter(|membership| membership.is_outside()).and(self.leader_client.get())?.leader()
    }

    /// How long there was no leader before this node's last term; none if it led the first, or never.
    pub(crate) fn vacancy(&self) -> Option<Duration> {
        self.vacancy.get()?.last()
    }

    /// The leader, while this node leads.
    pub fn leader(&self) -> Option<LeaderHandle> {
        self.leader.borrow().clone()
    }

    /// Ends the work of this machine and hands the leadership over before this process ends: returns when another machine can take the lease, or after
    /// a short time.
    pub async fn resign(&self) {
        if self.dispatcher.as_ref().is_some_and(|dispatcher| dispatcher.stop() > 0) {
            tokio::time::sleep(LAST_WORDS).await;
        }
        let Some(orders) = self.orders.get().filter(|_| self.leader().is_some()) else { return };
        let handed_over = async {
            orders.send(Order::Resign).await.ok()?;
            loop {
                let (fence, left) = self.records.lab_leader().current().await.ok()?;
                if left == 0 || fence.holder != self.settings.node {
                    // The others are told after that.
                    tokio::time::sleep(LAST_WORDS).await;
                    return Some(());
                }
                tokio::time::sleep(LAST_WORDS / 10).await;
            }
        };
        let _ = tokio::time::timeout(HAND_OVER_MAX, handed_over).await;
    }

    /// Stores a sample and queues it; returns its number and its hash. It is durable when this returns.
    pub async fn submit(
        &self,
        content: impl Read + Seek + Send + 'static,
        handed: Submitted,
    ) -> Result<(i64, SampleHash), NotTaken> {
        if self.membership.as_ref().is_some_and(Membership::is_outside) {
            return Err(NotTaken::Outside);
        }
        let (stored, file_type) = self.store(content, &handed.name, Some(handed.choices.clone())).await?;
        let sample = self.row(&handed, &stored, file_type)?;
        let numbers = self.records.lab_samples().submit(&[sample]).await?;
        if let Some(leader) = self.leader() {
            leader.new_samples();
        }
        Ok((numbers.first().copied().unwrap_or_default(), stored.hash))
    }

    /// Stores content, and returns its hash and size. If choices are given, content that no plugin accepts under them is not stored, because it would have no
    /// row and never be removed. Without choices everything is stored.
    async fn store(
        &self,
        mut content: impl Read + Seek + Send + 'static,
        name: &str,
        choices: Option<Choices>,
    ) -> Result<(Stored, &'static str), NotTaken> {
        let (samples, most) = (self.samples.clone(), self.settings.intake.size_max);
        let (plugins, name) = (self.settings.plugins.clone(), name.to_owned());
        let stored = tokio::task::spawn_blocking(move || {
            let file_type = file_type::named(file_type::of_source(&mut content).map_err(SampleError::Io)?, &name);
            match choices {
                Some(choices) if chosen::needs(&choices, &plugins, file_type) != "[]" => {}
                Some(choices) if choices.restrict() => return Err(NotTaken::NothingChosen(file_type.to_owned())),
                Some(_) => return Err(NotTaken::NothingToRun(file_type.to_owned())),
                None => {}
            }
            Ok((samples.put(&mut content, most)?, file_type))
        });
        stored.await.map_err(|error| SampleError::Io(std::io::Error::other(error)))?
    }

    /// Leads whenever the election says so, and passes work to `dispatcher` at the same time; returns when the election has ended. Whichever
    /// machine leads, this machine removes content that belongs to no sample from its own store.
    pub async fn serve(self, ends: Ends, dispatcher: Option<Dispatcher>) {
        let _ = self.orders.set(ends.orders.clone());
        let _ = self.vacancy.set(ends.vacancy.clone());
        tokio::select! {
            () = self.terms(ends, dispatcher) => {}
            () = self.sweep() => {}
        }
    }

    /// One term of office after the other.
    async fn terms(&self, mut ends: Ends, dispatcher: Option<Dispatcher>) {
        let (mut over, mut first) = (None, None);
        loop {
            let post = ends.post.borrow_and_update().clone();
            let Post::Acting(fence) = post.clone() else {
                if ends.post.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if over == Some(fence.epoch) {
                // This term ended by itself, and the election does not know that yet.
                if ends.post.wait_for(|now| *now != post).await.is_err() {
                    return;
                }
                continue;
            }
            tracing::info!(epoch = fence.epoch, "this node leads the lab");
            let since = *first.get_or_insert(fence.epoch);
            let end = self.hold_office((&fence, since), &mut ends, dispatcher.as_ref()).await;
            self.leader.send_replace(None);
            over = Some(fence.epoch);
            tracing::info!(epoch = fence.epoch, ?end, "this node leads no longer");
            if end.is_some() {
                // Whatever the reason, this term is over: the lease is released, so that the election can ask for a new one at once.
                let _ = tokio::time::timeout(HAND_OVER_MAX, self.records.lab_leader().release(&fence)).await;
                let _ = ends.orders.send(Order::FencedOut(fence.epoch)).await;
            }
        }
    }

    /// Why it ended by itself; None if the election ended it.
    async fn hold_office(
        &self,
        (fence, since): (&Fence, i64),
        ends: &mut Ends,
        dispatcher: Option<&Dispatcher>,
    ) -> Option<LeaderEnd> {
        let NodeSettings { plugins, depth_max, children, scheduling, memory_free_min, .. } = (*self.settings).clone();
        let rules = Rules { plugins, depth_max, children, memory_free_min };
        let (leader, handle) = Leader::new(scheduling, rules, self.records.clone(), fence.clone());
        self.leader.send_replace(Some(handle.clone()));
        let term = fence.clone();
        tokio::select! {
            end = leader.since(since).run() => end.err(),
            () = self.take_in(&handle) => None,
            () = self.prune(fence) => None,
            () = beside(&self.settings.node, fence, dispatcher, &handle) => None,
            _ = ends.post.wait_for(|post| !matches!(post, Post::Acting(now) if *now == term)) => None,
        }
    }

    /// Forgets samples that ended long ago, until it is stopped.
    async fn prune(&self, fence: &Fence) {
        let Some(keep) = self.settings.keep else { return std::future::pending().await };
        loop {
            let mut more = false;
            match self.records.lab_samples().prune(fence, keep, PRUNE_MAX).await {
                Ok(Some(pruned)) => {
                    more = pruned.samples as i64 >= PRUNE_MAX;
                    self.remove(pruned.hashes).await;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "old samples cannot be forgotten"),
            }
            if !more {
                tokio::time::sleep(PRUNE_EVERY).await;
            }
        }
    }

    /// Removes old content that belongs to no sample, until it is stopped: the process that stored it was killed before it wrote the row,
    /// or a leader on another machine has forgotten its sample.
    async fn sweep(&self) {
        let Some(keep) = self.settings.keep else { return std::future::pending().await };
        loop {
            for shelf in 0..=u8::MAX {
                let samples = self.samples.clone();
                let old = tokio::task::spawn_blocking(move || samples.old(shelf, keep.max(YOUNG))).await;
                let old: Vec<String> = old.into_iter().flatten().flatten().map(|hash| hash.to_string()).collect();
                for some in old.chunks(PRUNE_MAX as usize) {
                    match self.records.lab_samples().strays(some).await {
                        Ok(strays) => self.remove(strays).await,
                        Err(error) => tracing::warn!(%error, "content without a sample cannot be searched for"),
                    }
                }
            }
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    async fn remove(&self, hashes: Vec<String>) {
        let samples = self.samples.clone();
        let removed = tokio::task::spawn_blocking(move || {
            for hash in hashes.iter().filter_map(|hash| hash.parse().ok()) {
                if let Err(error) = samples.remove(hash, YOUNG) {
                    tracing::warn!(%error, %hash, "an old sample cannot be removed");
                }
            }
        });
        let _ = removed.await;
    }

    /// Takes samples from the directories, until it is stopped.
    async fn take_in(&self, leader: &LeaderHandle) {
        let mut intake = None;
        let mut notices = Notices::open(&self.settings.analysis);
        loop {
            let (root, settings) = (self.settings.analysis.clone(), self.settings.intake);
            let heard = notices.watch();
            let looked = tokio::task::spawn_blocking(move || {
                let mut intake = match intake {
                    Some(intake) => intake,
                    None => Intake::open(&root, settings)?,
                };
                let now = crate::cluster::elector::now();
                intake.hear(heard, now);
                let look = intake.look(now, SystemTime::now());
                Ok::<(Intake, Look), std::io::Error>((intake, look))
            });
            let mut wait = LOOK_EVERY;
            let more = match looked.await {
                Ok(Ok((mut again, look))) => {
                    if look.soon {
                        wait = LOOK_EVERY / 4;
                    }
                    let (more, stay) = self.take_all(look, leader).await;
                    for (place, error) in stay {
                        again.leave_alone(place, crate::cluster::elector::now(), &error);
                    }
                    intake = Some(again);
                    more
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the analysis directory cannot be opened");
                    intake = None;
                    false
                }
                Err(error) => {
                    tracing::error!(%error, "examining the analysis directory failed");
                    intake = None;
                    false
                }
            };
            if !more {
                // Notices are only a hint: they make the next pass come sooner.
                let _ = tokio::time::timeout(wait, notices.come()).await;
            }
        }
    }

    /// Whether there may be more at once, and which files were taken but still exist.
    async fn take_all(&self, look: Look, leader: &LeaderHandle) -> (bool, Vec<(DirectoryFile, std::io::Error)>) {
        for (place, why) in &look.refused {
            tracing::warn!(directory = place.directory, name = ?place.name, %why, "moved to refused");
        }
        for Ignored { path, why } in &look.ignored {
            tracing::info!(?path, why, "ignored in the analysis directory");
        }
        for (directory, error) in &look.troubles {
            tracing::warn!(directory, %error, "a directory cannot be read");
        }
        let (mut taken, mut stay) = (0, Vec::new());
        let mut ready = look.ready.into_iter();
        loop {
            let some: Vec<Ready> = ready.by_ref().take(TAKEN_AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let (gone, still_there) = self.take_some(some).await;
            taken += gone;
            stay.extend(still_there);
        }
        if taken > 0 || !stay.is_empty() {
            leader.new_samples();
        }
        (look.more && taken > 0, stay)
    }

    /// How many files were taken, and which are in the records but still exist. Files that are neither stay as they were.
    async fn take_some(&self, files: Vec<Ready>) -> (usize, Vec<(DirectoryFile, std::io::Error)>) {
        let (mut rows, mut stored) = (Vec::new(), Vec::new());
        for file in files {
            match self.row_of(&file).await {
                Ok(row) => {
                    rows.extend(row);
                    stored.push(file);
                }
                Err(error) => tracing::warn!(%error, name = ?file.place.name, "a sample stays in its directory"),
            }
        }
        if let Err(error) = self.records.lab_samples().submit(&rows).await {
            tracing::warn!(%error, "samples stay in their directories");
            return (0, Vec::new());
        }
        let (mut taken, mut stay) = (0, Vec::new());
        for file in stored {
            let place = file.place.clone();
            match file.taken() {
                Ok(()) => taken += 1,
                Err(error) => stay.push((place, error)),
            }
        }
        (taken, stay)
    }

    /// Stores a file; returns the row of its sample.
    async fn row_of(&self, file: &Ready) -> Result<Option<NewSample>, NotTaken> {
        let (stored, file_type) =
            self.store(file.file.try_clone().map_err(SampleError::Io)?, &file.name(), None).await?;
        if !file.is_unchanged() {
            return Err(NotTaken::Changed);
        }
        let Some(directory) = file.priority() else { return Ok(None) };
        let (name, submitter, tags) = (file.name(), "directory".into(), Vec::new());
        let handed = Submitted { name, submitter, directory, forced: false, tags, choices: Choices::default() };
        Ok(Some(NewSample { ticket: file.ticket(), ..self.row(&handed, &stored, file_type)? }))
    }

    /// A file that no plugin accepts gets a row too: the leader ends it with the reason, and the file leaves its directory.
    fn row(&self, handed: &Submitted, stored: &Stored, file_type: &str) -> Result<NewSample, NotTaken> {
        let mut ticket = [0; 16];
        weir_store::random(&mut ticket).map_err(SampleError::Io)?;
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(NewSample {
            ticket: weir_store::hex(&ticket),
            hash: stored.hash.to_string(),
            size: i64::try_from(stored.size).unwrap_or(i64::MAX),
            name: display_name(&handed.name),
            submitter: display_name(&handed.submitter),
            directory: handed.directory.number().into(),
            file_type: file_type.to_owned(),
            needs: chosen::needs(&handed.choices, &self.settings.plugins, file_type),
            tags: serde_json::json!(handed.tags).to_string(),
            parent: None,
            root: None,
            depth: 0,
            forced: i64::from(handed.forced),
            arrived_at: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
            choices: handed.choices.text(),
            partial: i64::from(handed.choices.are_partial()),
        })
    }
}

/// Serves the machine in the leader's own process, until it is stopped; if there is none, it waits for ever.
async fn beside(node: &str, fence: &Fence, dispatcher: Option<&Dispatcher>, leader: &LeaderHandle) {
    let Some(dispatcher) = dispatcher else { return std::future::pending().await };
    loop {
        attend_here(node, fence, dispatcher, leader).await;
        // It did not introduce itself in time, or is drained.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests;
