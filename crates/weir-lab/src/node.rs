//! One machine of the lab: its election, and what it does in office.
//!
//! While this node acts it leads: it takes samples in from the numbered directories, schedules, and (where it is the only
//! machine, by setting) analyses beside that. When its post ends, so does all of it, at once; what was acknowledged is in
//! the database and in the sample store.

use crate::cluster::asking::Asker;
use crate::cluster::elector::{Ends, Order, Post, Vacancy};
use crate::cluster::site::Site;
use crate::dispatcher::Dispatcher;
use crate::file_type;
use crate::intake::{Intake, IntakeSettings, Look, Ready};
use crate::leader::{Leader, LeaderEnd, LeaderHandle, attend_here};
use crate::notices::Notices;
use crate::plugin::Plugin;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use weir_core::runq;
use weir_store::records::{Fence, NewSample, Records, RecordsError};
use weir_store::samples::{SampleError, SampleHash, Samples, Stored};

/// How often the directories are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A process that ends gives its words to the others so long to leave.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// A hand-over takes no longer.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);
/// How often old samples are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Samples that are forgotten at a time.
const PRUNE_MAX: i64 = 500;
/// A file younger than this may be one whose row is just being written.
const YOUNG: Duration = Duration::from_secs(3600);

/// How a node works.
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
    /// Samples that ended so long ago are forgotten; none for never.
    pub keep: Option<Duration>,
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
    asker: Arc<OnceLock<Asker>>,
    vacancy: Arc<OnceLock<Vacancy>>,
    site: Option<Site>,
}

/// A sample that is handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The name it came with.
    pub name: String,
    /// Who hands it in.
    pub submitter: String,
    /// The directory, that is the priority.
    pub directory: runq::Directory,
    /// Whether results of the same content do not count.
    pub forced: bool,
}

/// Why a sample was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It cannot be stored.
    #[error("the sample cannot be stored: {0}")]
    Sample(#[from] SampleError),
    /// It cannot be written down.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// No plugin of the lab takes such a file.
    #[error("no plugin of this lab takes files of the type {0}")]
    NothingToRun(String),
    /// Machines outside the lab have no database to write it down in.
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
        let (asker, vacancy) = (Arc::default(), Arc::default());
        Node { settings: Arc::new(settings), records, samples, leader, orders, asker, vacancy, site: None }
    }

    /// The same, in a lab of several machines.
    #[must_use]
    pub fn at(self, site: Site) -> Node {
        Node { site: Some(site), ..self }
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

    pub(crate) fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    pub(crate) fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// From now on the leader of the day is asked what this machine does not know.
    pub(crate) fn ask_by(&self, asker: Asker) {
        let _ = self.asker.set(asker);
    }

    /// The leader's answer to a line, from wherever it is; or why there is none, in words.
    pub(crate) async fn ask_leader(&self, question: &str) -> Result<String, String> {
        match self.asker.get() {
            Some(asker) => asker.ask(question).await,
            None => Err("nobody leads at the moment".into()),
        }
    }

    /// The leader that a machine outside the lab works for: it has no database to ask.
    pub(crate) fn leader_seen_from_outside(&self) -> Option<String> {
        self.site.as_ref().filter(|site| site.is_outside()).and(self.asker.get())?.leader()
    }

    /// How long there was no leader before this node's last term; none if it led the first, or never.
    pub(crate) fn vacancy(&self) -> Option<Duration> {
        self.vacancy.get()?.last()
    }

    /// The leader, while this node is it.
    pub fn leader(&self) -> Option<LeaderHandle> {
        self.leader.borrow().clone()
    }

    /// Hands the lab over before this process ends: returns when another can take the lease, or soon.
    pub async fn resign(&self) {
        let Some(orders) = self.orders.get().filter(|_| self.leader().is_some()) else { return };
        let handed_over = async {
            orders.send(Order::Resign).await.ok()?;
            loop {
                let (fence, left) = self.records.lab_leader().await.ok()?;
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

    /// Stores a sample and queues it; its number and its hash. Durable when it returns.
    pub async fn submit(
        &self,
        content: impl Read + Seek + Send + 'static,
        handed: Handed,
    ) -> Result<(i64, SampleHash), NotTaken> {
        if self.site.as_ref().is_some_and(Site::is_outside) {
            return Err(NotTaken::Outside);
        }
        let (stored, file_type) = self.store(content).await?;
        let sample = self.row(&handed, &stored, file_type)?;
        if sample.needs == "[]" {
            return Err(NotTaken::NothingToRun(file_type.to_owned()));
        }
        let numbers = self.records.lab_submit(&[sample]).await?;
        if let Some(leader) = self.leader() {
            leader.new_samples();
        }
        Ok((numbers.first().copied().unwrap_or_default(), stored.hash))
    }

    /// Stores content, and says what it is.
    async fn store(
        &self,
        mut content: impl Read + Seek + Send + 'static,
    ) -> Result<(Stored, &'static str), SampleError> {
        let (samples, most) = (self.samples.clone(), self.settings.intake.size_max);
        let stored = tokio::task::spawn_blocking(move || {
            let file_type = file_type::of_source(&mut content)?;
            Ok((samples.put(&mut content, most)?, file_type))
        });
        stored.await.map_err(|error| SampleError::Io(std::io::Error::other(error)))?
    }

    /// Holds office whenever the election says so, with the machines that `dispatchers` brings; returns when the election
    /// has ended.
    pub async fn serve(self, mut ends: Ends, dispatcher: Option<Dispatcher>) {
        let _ = self.orders.set(ends.orders.clone());
        let _ = self.vacancy.set(ends.vacancy.clone());
        let mut over = None;
        loop {
            let post = ends.post.borrow_and_update().clone();
            let Post::Acting(fence) = post.clone() else {
                if ends.post.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if over == Some(fence.epoch) {
                // This term ended by itself, and the election does not know of it yet.
                if ends.post.wait_for(|now| *now != post).await.is_err() {
                    return;
                }
                continue;
            }
            tracing::info!(epoch = fence.epoch, "this node leads the lab");
            let end = self.hold_office(&fence, &mut ends, dispatcher.as_ref()).await;
            self.leader.send_replace(None);
            over = Some(fence.epoch);
            tracing::info!(epoch = fence.epoch, ?end, "this node leads no longer");
            if end.is_some() {
                // Whatever ended it, this term is over: the election must ask for another.
                let _ = ends.orders.send(Order::FencedOut(fence.epoch)).await;
            }
        }
    }

    /// Why it ended by itself; none if the election ended it.
    async fn hold_office(&self, fence: &Fence, ends: &mut Ends, dispatcher: Option<&Dispatcher>) -> Option<LeaderEnd> {
        let never = self.settings.plugins.iter().filter(|plugin| !plugin.cache);
        let never_cached = never.map(|plugin| (plugin.name.clone(), plugin.version.clone())).collect();
        let scheduling = self.settings.scheduling.clone();
        let (leader, handle) = Leader::new(scheduling, never_cached, self.records.clone(), fence.clone());
        self.leader.send_replace(Some(handle.clone()));
        let term = fence.clone();
        tokio::select! {
            end = leader.run() => end.err(),
            () = self.take_in(&handle) => None,
            () = self.prune() => None,
            () = beside(&self.settings.node, fence, dispatcher, &handle) => None,
            _ = ends.post.wait_for(|post| !matches!(post, Post::Acting(now) if *now == term)) => None,
        }
    }

    /// Forgets samples that ended long ago for as long as it is let.
    async fn prune(&self) {
        let Some(keep) = self.settings.keep else { return std::future::pending().await };
        loop {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let before = i64::try_from(wall.saturating_sub(keep).as_nanos()).unwrap_or(i64::MAX);
            match self.records.lab_prune(before, PRUNE_MAX).await {
                Ok(gone) if gone.is_empty() => {}
                Ok(gone) => self.remove(gone).await,
                Err(error) => tracing::warn!(%error, "old samples cannot be forgotten"),
            }
            tokio::time::sleep(PRUNE_EVERY).await;
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

    /// Takes samples from the directories for as long as it is let.
    async fn take_in(&self, leader: &LeaderHandle) {
        let mut intake = None;
        let mut notices = Notices::open(&self.settings.analysis);
        loop {
            let (root, settings) = (self.settings.analysis.clone(), self.settings.intake);
            let closed = notices.watch();
            let looked = tokio::task::spawn_blocking(move || {
                let mut intake = match intake {
                    Some(intake) => intake,
                    None => Intake::open(&root, settings)?,
                };
                let now = crate::cluster::elector::now();
                intake.closed(closed, now);
                let look = intake.look(now, SystemTime::now());
                Ok::<(Intake, Look), std::io::Error>((intake, look))
            });
            let mut wait = LOOK_EVERY;
            let more = match looked.await {
                Ok(Ok((again, look))) => {
                    intake = Some(again);
                    if look.soon {
                        wait = LOOK_EVERY / 4;
                    }
                    self.take_all(look, leader).await
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the analysis directory cannot be opened");
                    intake = None;
                    false
                }
                Err(error) => {
                    tracing::error!(%error, "looking through the analysis directory failed");
                    intake = None;
                    false
                }
            };
            if !more {
                // Notices are a hint: they only make the next look come sooner.
                let _ = tokio::time::timeout(wait, notices.come()).await;
            }
        }
    }

    /// Whether there may be more at once.
    async fn take_all(&self, look: Look, leader: &LeaderHandle) -> bool {
        for (place, why) in &look.refused {
            tracing::warn!(directory = place.directory, name = ?place.name, %why, "moved to refused");
        }
        for (directory, error) in &look.troubles {
            tracing::warn!(directory, %error, "a directory cannot be read");
        }
        let mut taken = 0;
        for ready in look.ready {
            match self.take_file(ready).await {
                Ok(()) => taken += 1,
                Err(error) => tracing::warn!(%error, "a sample stays in its directory"),
            }
        }
        if taken > 0 {
            leader.new_samples();
        }
        look.more && taken > 0
    }

    async fn take_file(&self, ready: Ready) -> Result<(), NotTaken> {
        let (stored, file_type) = self.store(ready.file.try_clone().map_err(SampleError::Io)?).await?;
        if !ready.is_unchanged() {
            return Err(NotTaken::Changed);
        }
        let Some(directory) = ready.priority() else { return Ok(()) };
        let handed = Handed { name: ready.name(), submitter: "directory".into(), directory, forced: false };
        let sample = self.row(&handed, &stored, file_type)?;
        self.records.lab_submit(&[sample]).await?;
        ready.taken().map_err(|error| NotTaken::Sample(error.into()))
    }

    /// A file that no plugin takes gets a row too: the leader ends it with the reason, and its directory is free of it.
    fn row(&self, handed: &Handed, stored: &Stored, file_type: &str) -> Result<NewSample, NotTaken> {
        let takes = self.settings.plugins.iter().filter(|plugin| plugin.taste.takes(file_type));
        let needs: Vec<_> = takes.map(|plugin| (&plugin.name, &plugin.version)).collect();
        let mut ticket = [0; 16];
        weir_store::random(&mut ticket).map_err(SampleError::Io)?;
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(NewSample {
            ticket: ticket.iter().map(|byte| format!("{byte:02x}")).collect(),
            hash: stored.hash.to_string(),
            size: i64::try_from(stored.size).unwrap_or(i64::MAX),
            name: fit_name(&handed.name),
            submitter: handed.submitter.clone(),
            directory: handed.directory.number().into(),
            file_type: file_type.to_owned(),
            needs: serde_json::json!(needs).to_string(),
            tags: "[]".into(),
            parent: None,
            depth: 0,
            forced: i64::from(handed.forced),
            arrived_at: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
        })
    }
}

/// The name that a sample came with, fit for people: no control characters, none that turn the text around, not too long.
fn fit_name(name: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    name.chars().take(255).map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// The machine in the leader's own process, for as long as it is let; waits for ever if there is none.
async fn beside(node: &str, fence: &Fence, dispatcher: Option<&Dispatcher>, leader: &LeaderHandle) {
    let Some(dispatcher) = dispatcher else { return std::future::pending().await };
    loop {
        attend_here(node, fence, dispatcher, leader).await;
        // It did not introduce itself in time, or is drained.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::elector::alone;
    use crate::dispatcher::DispatcherSettings;
    use std::os::unix::fs::PermissionsExt;
    use weir_core::election::{ProcessingIndex, Settings};

    const SCRIPT: &str =
        "#!/bin/sh\nprintf '{\"success\":true,\"full\":\"%s\"}' \"$(cat input/attachment)\" > output/output.json\n";

    fn plugin(home: &std::path::Path) -> Plugin {
        let folder = home.join("plugins/echo");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("run"), SCRIPT).unwrap();
        std::fs::set_permissions(folder.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = "name = \"echo\"\nversion = \"1\"\nexec = [\"./run\"]\naccepts = [\"text/*\"]";
        std::fs::write(folder.join("plugin.toml"), manifest).unwrap();
        Plugin::read(&folder).unwrap()
    }

    async fn node(home: &std::path::Path) -> (Node, Records) {
        let records = Records::sqlite(&home.join("records.db")).await.unwrap();
        let samples = Samples::open(&home.join("samples")).unwrap();
        let settings = NodeSettings {
            node: "n1".into(),
            analysis: home.join("analysis"),
            intake: IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() },
            scheduling: runq::Settings::default(),
            plugins: vec![plugin(home)].into(),
            keep: None,
        };
        (Node::new(settings, records.clone(), samples), records)
    }

    fn start(node: &Node, home: &std::path::Path) -> tokio::task::JoinHandle<()> {
        let (elector, ends) = alone("n1", ProcessingIndex(1), Settings::default(), node.records.clone());
        let plugins = node.settings.plugins.to_vec();
        let dispatcher =
            DispatcherSettings { jobs: home.join("jobs"), plugins, slots: 2, tags: Vec::new(), processing_index: 1 };
        let dispatcher = Dispatcher::new(dispatcher, node.samples.clone(), None).unwrap();
        let serve = node.clone().serve(ends, Some(dispatcher));
        tokio::spawn(async move { tokio::join!(elector.run(), serve).1 })
    }

    async fn done(records: &Records, wanted: usize) -> Vec<weir_store::records::SampleRow> {
        loop {
            let filter = weir_store::records::SampleFilter { state: "done".into(), ..Default::default() };
            let rows = records.lab_samples(&filter, 100).await.unwrap();
            if rows.len() >= wanted {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_in_a_directory_and_one_handed_in_are_analysed() {
        let home = tempfile::tempdir().unwrap();
        let (node, records) = node(home.path()).await;
        let _task = start(&node, home.path());
        std::fs::create_dir_all(home.path().join("analysis/32")).unwrap();
        std::fs::write(home.path().join("analysis/32/dropped"), "one").unwrap();
        let directory = runq::Directory::new(3).unwrap();
        let handed = Handed { name: "two.txt".into(), submitter: "ann".into(), directory, forced: false };
        let (number, _) = node.submit(std::io::Cursor::new(b"two".to_vec()), handed.clone()).await.unwrap();
        let rows = done(&records, 2).await;
        let mut names: Vec<_> = rows.iter().map(|row| (row.given.name.as_str(), row.given.directory)).collect();
        names.sort_unstable();
        assert_eq!(names, [("dropped", 32), ("two.txt", 3)]);
        assert!(records.lab_results(number).await.unwrap()[0].report.contains("two"));
        assert!(!home.path().join("analysis/32/dropped").exists());
        let refused = node.submit(std::io::Cursor::new(b"PK\x03\x04....".to_vec()), handed).await.unwrap_err();
        assert_eq!(refused.to_string(), "no plugin of this lab takes files of the type application/zip");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_handed_in_before_a_restart_is_analysed_after_it() {
        let home = tempfile::tempdir().unwrap();
        let (node, records) = node(home.path()).await;
        let directory = runq::Directory::new(32).unwrap();
        let handed = Handed { name: "a".into(), submitter: "ann".into(), directory, forced: false };
        node.submit(std::io::Cursor::new(b"x".to_vec()), handed).await.unwrap();
        let task = start(&node, home.path());
        done(&records, 1).await;
        task.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_that_ends_by_itself_holds_office_again() {
        let home = tempfile::tempdir().unwrap();
        let (node, records) = node(home.path()).await;
        let (post, posted) = watch::channel(Post::Leaderless);
        let (frames, _frames) = mpsc::channel(1);
        let (orders, mut ordered) = mpsc::channel(4);
        let serving =
            tokio::spawn(node.clone().serve(Ends { frames, orders, post: posted, vacancy: Vacancy::default() }, None));
        let weir_store::records::LeaseReply::Granted { epoch } = records.lab_acquire("n1", 60_000).await.unwrap()
        else {
            panic!("no lease")
        };
        // An epoch that the database does not know: the first commit finds that out.
        let directory = runq::Directory::new(32).unwrap();
        let handed = Handed { name: "a\u{202e}b\n".into(), submitter: "ann".into(), directory, forced: false };
        let handed_in = node.submit(std::io::Cursor::new(b"PK\x03\x04".to_vec()), handed.clone()).await;
        assert!(handed_in.is_err(), "nothing takes a zip file");
        std::fs::create_dir_all(home.path().join("analysis/32")).unwrap();
        std::fs::write(home.path().join("analysis/32/a\u{202e}b\n"), b"PK\x03\x04").unwrap();
        post.send_replace(Post::Acting(Fence { epoch: epoch + 7, holder: "n1".into() }));
        assert_eq!(ordered.recv().await, Some(Order::FencedOut(epoch + 7)), "it has a sample to end and may not");
        // The next term follows at once, while nobody looks.
        post.send_replace(Post::Acting(Fence { epoch, holder: "n1".into() }));
        let row = loop {
            if let [row] = &records.lab_samples(&Default::default(), 1).await.unwrap()[..]
                && row.state == "unserviceable"
            {
                break row.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(row.given.name, "a\u{fffd}b\u{fffd}");
        post.send_replace(Post::Leaderless);
        drop(post);
        serving.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn old_samples_are_forgotten_and_their_content_too() {
        let home = tempfile::tempdir().unwrap();
        let (node, records) = node(home.path()).await;
        let settings = NodeSettings { keep: Some(Duration::ZERO), ..(*node.settings).clone() };
        let node = Node { settings: settings.into(), ..node };
        let directory = runq::Directory::new(32).unwrap();
        let handed = Handed { name: "a".into(), submitter: "ann".into(), directory, forced: false };
        let (number, hash) = node.submit(std::io::Cursor::new(b"x".to_vec()), handed).await.unwrap();
        let hours_ago = SystemTime::now() - 2 * YOUNG;
        std::fs::File::open(node.samples.path(hash)).unwrap().set_modified(hours_ago).unwrap();
        let fence = match records.lab_acquire("n1", 60_000).await.unwrap() {
            weir_store::records::LeaseReply::Granted { epoch } => Fence { epoch, holder: "n1".into() },
            refused => panic!("{refused:?}"),
        };
        let (state, why, ended_at) = ("done".into(), String::new(), Some(1));
        let changes = vec![weir_store::records::SampleChange { id: number, state, why, ended_at }];
        assert!(
            records.lab_commit(&fence, &weir_store::records::LabBatch { changes, ..Default::default() }).await.unwrap()
        );
        let pruning = tokio::spawn(async move { node.prune().await });
        while records.lab_sample(number).await.unwrap().is_some()
            || home.path().join("samples").join(&hash.to_string()[..2]).join(hash.to_string()).exists()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        pruning.abort();
    }
}
