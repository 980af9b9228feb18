//! The scan: the second stage of a letter. Letters wait in feeds by size and load, workers have them inspected, clean mail goes on
//! to the next stage, the rest is quarantined.
//!
//! [`Scanning`] is a stage of the [`Pipeline`], so neither submission nor delivery knows of it. `weir_core::feeds::Dispatch` decides what
//! is scanned when; this is its shell. Nothing goes on without a verdict: a letter without the mark `scan passed` is scanned after a
//! restart, scanners that fail keep mail waiting, and what cannot be scanned ends in a quarantine. After a kill, only scans that were under
//! way are repeated. In memory a waiting letter is its id, size, sender and places; bodies stay in the spool, and so do letters when many
//! wait. docs/scan.md explains the rules.

mod analysis;
mod asked_file;
mod auto_tune;
mod decision;
mod digest;
mod figures;
mod health;
mod hold;
mod inspector;
mod laboratory;
mod made_rules;
mod mark;
mod pending;
mod quarantine;
mod queue;
mod settings;
mod size_weight;
mod state;
mod stored_limits;
mod streams;
#[cfg(test)]
mod tests;
mod tuning;
mod under_way;
mod view;
mod worker;

pub use analysis::{Analysed, StoredMail};
pub use asked_file::{FileAnswer, MailAnswer};
pub use decision::QuarantineQueue;
pub use figures::{Counts, ServiceTimes, Spread};
pub use inspector::{Adopted, Inspector, Opened};
pub use laboratory::{AskedFile, KnownContent, LabAnswer, LabVerdict, LabWay, Laboratory, Opinion, Sample, Taken};
pub(crate) use made_rules::name as rule_name;
pub use made_rules::{AdoptError, adopt_rules};
pub use pending::{PendingCounts, PendingView};
pub use settings::{LabSettings, OnLab, OnLimit, OnSpam, QuarantineSettings, ScanSettings, Settings};
pub use stored_limits::stored_limits;
pub use tuning::{ClassBesideLine, ClassWait, Predicted};
pub use view::{FeedTimes, FeedsStatus, OutageView, TuneView};

use crate::alarms::Alarms;
use crate::letter::{Letter, LetterOrigin};
use crate::pipeline::{BoxFuture, Pipeline, Stage, Transit};
use mark::ScanMark;
use pending::PendingMail;
use quarantine::Quarantine;
use state::{RunningScan, State, WaitingLetter};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use under_way::UnderWay;
use weir_core::feeds::{self, DispatchError, Placed, SenderId};
use weir_core::time::Instant;
use weir_foundation::clock::wall_clock;
use weir_foundation::supervision;
use weir_store::diary::DiaryLine;
use weir_store::records::Records;
use weir_store::spool::{Marks, MessageId, Spool};

/// While more letters than this wait, only their names are in memory.
const LETTERS_MAX: usize = if cfg!(test) { 8 } else { 10_000 };

/// Limits are looked at when mail arrives. While mail waits and none arrives, they are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the scan is started with.
pub struct Setup {
    /// How it behaves.
    pub settings: Settings,
    /// Who looks at mail: one for all feeds, or one for each.
    pub inspectors: Vec<Arc<dyn Inspector>>,
    /// The laboratory; without one nothing waits for it.
    pub lab: Option<LabWay>,
    /// What it stands on.
    pub site: Site,
}

/// What the scan stands on.
#[derive(Debug, Clone)]
pub struct Site {
    /// Mail in transit.
    pub spool: Spool,
    /// Quarantined mail, audit, limits found.
    pub records: Records,
    /// This relay's name.
    pub relay: String,
    /// The data folder.
    pub folder: PathBuf,
    /// The folder of quarantined mail.
    pub quarantine: PathBuf,
}

/// The scan as a stage. Cheap to clone.
#[derive(Clone)]
pub struct Scanning {
    shared: Arc<ScanShared>,
}

impl std::fmt::Debug for Scanning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanning").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

struct ScanShared {
    settings: Settings,
    /// One for all feeds, or one for each.
    inspectors: Vec<Arc<dyn Inspector>>,
    lab: Option<LabWay>,
    pending: PendingMail,
    site: Site,
    next: Pipeline,
    quarantine: Quarantine,
    state: Mutex<State>,
    under_way: UnderWay,
    /// What was under way when the last life ended, until it is taken up.
    interrupted: Mutex<BTreeMap<MessageId, u32>>,
    senders: RandomState,
    begun: (Instant, tokio::time::Instant),
    /// Something is due earlier than the task that looks after deadlines knows.
    stirred: Notify,
    /// A worker became idle.
    idle: Notify,
    tasks: Mutex<Vec<AbortHandle>>,
    /// Disconnected when we stop, because whoever listens may hold a reference to us.
    alarms: Alarms,
}

impl Scanning {
    /// Starts the stage before those that follow. Must be called within a tokio runtime.
    pub fn start(setup: Setup, next: Pipeline, alarms: Alarms) -> Result<Scanning, ScanError> {
        let Setup { settings, inspectors, lab, site } = setup;
        if settings.enabled && inspectors.is_empty() {
            return Err(ScanError::NoInspector);
        }
        let begun = (wall_clock(), tokio::time::Instant::now());
        let state = State::new(&settings, begun.0)?;
        let (under_way, interrupted) = UnderWay::open(&site.folder.join("scan.under-way")).map_err(ScanError::File)?;
        let quarantine = Quarantine::new(site.clone(), &settings, next.clone(), alarms.clone());
        let shared = Arc::new(ScanShared {
            settings,
            inspectors,
            lab,
            pending: PendingMail::default(),
            quarantine: quarantine.clone(),
            state: Mutex::new(state),
            under_way,
            interrupted: Mutex::new(interrupted),
            senders: RandomState::new(),
            begun,
            stirred: Notify::new(),
            idle: Notify::new(),
            tasks: Mutex::default(),
            alarms,
            site,
            next,
        });
        let tasks = vec![
            supervision::spawn_until_done("scan-minder", mind(Arc::clone(&shared))).abort_handle(),
            supervision::spawn_until_done("scan-tuning", auto_tune::run(Arc::clone(&shared))).abort_handle(),
            supervision::spawn_until_done("scan-health", health::watch(Arc::clone(&shared))).abort_handle(),
            supervision::spawn_until_done("scan-pending", pending::watch(Arc::clone(&shared))).abort_handle(),
            supervision::spawn_until_done("scan-rules", made_rules::follow(Arc::clone(&shared))).abort_handle(),
            supervision::spawn_until_done("scan-intake", quarantine.clone().take_in()).abort_handle(),
            supervision::spawn_until_done("scan-keeper", quarantine.run()).abort_handle(),
        ];
        shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
        Ok(Scanning { shared })
    }
}

impl Stage for Scanning {
    fn take(&self, transit: Transit) -> Option<Transit> {
        if self.shared.is_exempt(&transit.letter) {
            return self.let_go(transit);
        }
        self.shared.take(WaitingLetter::new(transit));
        None
    }

    fn resume(&self, transit: Transit, marks: &Marks) -> Option<Transit> {
        let id = transit.id;
        let interrupted = self.shared.interrupted_before(id);
        if let Some(part) = &transit.letter.cleared {
            self.shared.quarantine.found(part);
        }
        if self.shared.is_exempt(&transit.letter) {
            return self.let_go(transit);
        }
        let (mut attempts, mut interruptions, mut pending) = (0, 0, None);
        for mark in marks.iter().filter_map(ScanMark::read) {
            match mark {
                ScanMark::Tried(times) => attempts = times,
                ScanMark::Interrupted(times) => interruptions = times,
                ScanMark::Pending(detention) => pending = Some(detention),
                ScanMark::Passed(lines) => return Some(transit.with_lines(&lines)),
            }
        }
        let mut waiting = WaitingLetter { attempts, interrupted: interruptions, ..WaitingLetter::new(transit) };
        if let Some(detention) = pending {
            self.shared.resume_pending(waiting, &detention);
            return None;
        }
        if interrupted > waiting.interrupted {
            waiting.interrupted = interrupted;
            let _ = self.shared.site.spool.mark(id, ScanMark::Interrupted(interrupted).write());
        }
        self.shared.take(waiting);
        None
    }

    fn prepare(&self) -> BoxFuture<'_> {
        Box::pin(self.shared.quarantine.prepare())
    }

    fn taken_up(&self) {
        self.shared.quarantine.taken_up();
    }

    fn stop(&self, patience: Duration) -> BoxFuture<'_> {
        Box::pin(self.shared.stop(patience))
    }
}

impl ScanShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the epoch by a clock that does not jump.
    fn now(&self) -> Instant {
        self.begun.0 + self.begun.1.elapsed()
    }

    /// Our own mail, what a person released, and everything if the scan is off.
    fn is_exempt(&self, letter: &Letter) -> bool {
        !self.settings.enabled || letter.origin == LetterOrigin::Own || letter.cleared.is_some()
    }

    fn interrupted_before(&self, id: MessageId) -> u32 {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner).remove(&id).unwrap_or(0)
    }

    /// A letter joins the feeds.
    fn take(self: &Arc<Self>, mut waiting: WaitingLetter) {
        match self.site.spool.body(waiting.id) {
            Ok(body) => waiting.size = body.size(),
            Err(error) => {
                tracing::error!(id = %waiting.id, %error, "a letter without a body cannot be scanned");
                return;
            }
        }
        let now = self.now();
        let mut state = self.state();
        if state.letters.len() >= LETTERS_MAX {
            waiting.forget_letter();
        }
        state.figures.arrived(waiting.size, now);
        let number = state.number();
        state.letters.insert(number, waiting);
        self.arrive(&mut state, number, now);
    }

    /// A letter that is known asks for a worker, for the first time or again.
    fn arrive(self: &Arc<Self>, state: &mut State, number: u64, now: Instant) {
        let Some((size, sender)) = state.asking(number) else { return };
        let sender = SenderId(self.senders.hash_one(sender));
        // It is noted in the feed for its size: if other feeds may take it too, nobody knows yet which will.
        let feed = state.dispatch.plan().limits.class_of(size);
        let expected = Duration::from_nanos(state.figures.service_of(feed).time_ns(size));
        let message = feeds::Message { id: feeds::MessageId(number), size, expected };
        if let Some(opening) = &mut state.opening {
            opening.arrive(message, now);
        }
        self.weigh_limits(state, now);
        if let Placed::Started(worker) = state.dispatch.arrive_from(sender, message, now) {
            self.begin(state, RunningScan { worker, number, waited: Duration::ZERO });
        } else {
            // Limits are looked at while something waits.
            self.stirred.notify_one();
        }
    }

    /// Limits give way while one line would serve better.
    fn weigh_limits(self: &Arc<Self>, state: &mut State, now: Instant) {
        for begun in state.weigh_limits(now) {
            self.begin(state, begun);
        }
    }

    /// A worker has a letter: its scan begins, unless no scanner answers or we are stopping.
    fn begin(self: &Arc<Self>, state: &mut State, begun: RunningScan) {
        if state.stopping {
            return;
        }
        if !state.may_begin(begun.number, self.now()) {
            state.parked.push(begun);
            self.stirred.notify_one();
            return;
        }
        let task = tokio::spawn(worker::work(Arc::clone(self), begun)).abort_handle();
        state.running.insert(begun.worker.0, (begun.number, task));
    }

    /// Carries out what is due; how long until the next thing is.
    fn tend(self: &Arc<Self>) -> Duration {
        let now = self.now();
        let mut state = self.state();
        while let Some(number) = state.due(now) {
            self.arrive(&mut state, number, now);
        }
        let out = state.outage.now().is_some();
        let tries = if out { usize::from(state.outage.next_try().is_some_and(|at| at <= now)) } else { usize::MAX };
        let count = tries.min(state.parked.len());
        for begun in state.parked.drain(..count).collect::<Vec<_>>() {
            self.begin(&mut state, begun);
        }
        self.weigh_limits(&mut state, now);
        let next_try = state.outage.next_try().filter(|_| !state.parked.is_empty());
        let look = (state.opening.is_some() && state.dispatch.waiting() > 0).then(|| now + LOOK_EVERY);
        let next = [state.retry.first().map(|(at, _)| *at), next_try, look].into_iter().flatten().min();
        next.map_or(Duration::from_secs(3600), |at| at.since(now))
    }

    /// Writes down for people what happens now, by the clock that everything here goes by.
    fn note(&self, line: DiaryLine) {
        self.site.spool.diary().note(line.at(self.now().0));
    }

    async fn stop(&self, patience: Duration) {
        self.state().stopping = true;
        let ended = async {
            while !self.state().running.is_empty() {
                self.idle.notified().await;
            }
            self.quarantine.settled().await;
        };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::info!("some scans were broken off; they begin again at the next start");
        }
        self.break_off();
        self.alarms.disconnect();
        if let Err(error) = self.under_way.clear() {
            tracing::warn!(%error, "scans that were broken off count as attempts");
        }
    }

    /// Ends every task.
    fn break_off(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
        let mut state = self.state();
        state.stopping = true;
        state.running.values().for_each(|(_, task)| task.abort());
        state.running.clear();
        state.streams.clear();
        drop(state);
        self.break_off_pending();
    }
}

/// Carries out what is due when it is due.
async fn mind(shared: Arc<ScanShared>) {
    loop {
        let wait = shared.tend();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.stirred.notified() => {}
        }
    }
}

/// Why the scan cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Nobody would look.
    #[error("the scan is on and no scanner is configured; nothing could pass")]
    NoInspector,
    /// Feeds and workers do not fit.
    #[error("{0}")]
    Feeds(#[from] DispatchError),
    /// The file of what is under way.
    #[error("the file scan.under-way in the data folder: {0}")]
    File(io::Error),
}
