//! One worker: has its letter inspected, does what the verdict says, and takes the next.

use super::decision::{self, Decision, Passed, Queue};
use super::figures::Scanned;
use super::keeper::Kept;
use super::mark::ScanMark;
use super::state::{Begun, State, Waiting};
use super::{Sample, Shared};
use crate::letter::Letter;
use crate::outbound::Outbound;
use crate::smtp::reception::Alarm;
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_scan::content::{Content, ContentDraft};
use weir_scan::inspect::About;
use weir_scan::verdict::Verdict;
use weir_store::spool::SpoolError;

/// Scanners have deadlines of their own; this is for one that forgets it.
const LONGEST_SCAN: Duration = Duration::from_secs(1800);
/// Larger content is a file on the disk.
const IN_MEMORY_MAX: u64 = 4 << 20;
/// Between two attempts at one message.
const WAITS_S: [u64; 5] = [1, 5, 30, 120, 600];

/// How one scan ended.
enum Ended {
    /// There was a verdict, and it was carried out.
    Done { passed: bool, took: Duration },
    /// It is to be tried again, or given up.
    Failed(String),
    /// Its scan was interrupted too often.
    Poison,
    /// Somebody deleted it meanwhile.
    Gone,
}

/// Scans letter after letter until there is none for this worker.
pub(super) async fn work<O: Outbound>(shared: Arc<Shared<O>>, mut begun: Begun) {
    loop {
        let mut guard = Guard { shared: &shared, begun, ended: false };
        let ended = shared.scan(&begun).await;
        guard.ended = true;
        match shared.ended(&begun, ended) {
            Some(next) => begun = next,
            None => return,
        }
    }
}

/// A scan that panics is an attempt that failed; its worker goes on.
struct Guard<'a, O: Outbound> {
    shared: &'a Arc<Shared<O>>,
    begun: Begun,
    ended: bool,
}

impl<O: Outbound> Drop for Guard<'_, O> {
    fn drop(&mut self) {
        if !self.ended && std::thread::panicking() {
            let failed = Ended::Failed("the scanner panicked".to_owned());
            if let Some(next) = self.shared.ended(&self.begun, failed) {
                let mut state = self.shared.state();
                self.shared.begin(&mut state, next);
            }
        }
    }
}

impl<O: Outbound> Shared<O> {
    async fn scan(&self, begun: &Begun) -> Ended {
        let Some(waiting) = self.state().letters.get(&begun.number).cloned() else { return Ended::Gone };
        if waiting.interrupted >= self.settings.attempts {
            return Ended::Poison;
        }
        let looked = match self.look(begun, &waiting).await {
            Ok(looked) => looked,
            Err(NotLooked::Gone) => return Ended::Gone,
            Err(NotLooked::Failed(problem)) => return Ended::Failed(problem),
        };
        let Looked { letter, content, about, verdict, took } = looked;
        if let Some(samples) = self.samples.as_ref().filter(|_| !verdict.suspicious.is_empty()) {
            samples.offer(Sample { content, about, reasons: verdict.suspicious.clone() });
        }
        match decision::decide(&verdict, self.settings.on_spam, self.settings.on_limit) {
            Decision::Retry(problem) => Ended::Failed(problem),
            Decision::Pass(result) => self.pass(&waiting, &letter, &result, took),
            Decision::Quarantine(queue, reason) => {
                tracing::info!(id = %waiting.id, queue = queue.as_str(), reason, "quarantined");
                let detail = serde_json::to_string(&verdict).unwrap_or_default();
                self.keeper.keep(self.kept(&waiting, Some(letter), queue, (reason, detail))).await;
                Ended::Done { passed: false, took }
            }
        }
    }

    async fn look(&self, begun: &Begun, waiting: &Waiting) -> Result<Looked, NotLooked> {
        let letter = match &waiting.letter {
            Some(letter) => Arc::clone(letter),
            None => {
                let read = Letter::read(&self.site.spool.envelope(waiting.id).await?);
                waiting.remembered(read.map_err(|error| NotLooked::Failed(error.to_string()))?)
            }
        };
        // Before the scan, so that a scan that ends this process is known.
        self.under_way.begin(begun.worker.0, waiting.id, waiting.interrupted + 1)?;
        let content = self.content(waiting).await?;
        let about = Arc::new(about(waiting, &letter));
        let feed = self.state().dispatch.feed_of(begun.worker).unwrap_or(0);
        let inspector = &self.inspectors[feed % self.inspectors.len()];
        let started = tokio::time::Instant::now();
        let inspected = tokio::time::timeout(LONGEST_SCAN, inspector.inspect_boxed(&content, &about)).await;
        let verdict = inspected.map_err(|_| NotLooked::Failed("the scan did not end".to_owned()))?;
        Ok(Looked { letter, content, about, verdict, took: started.elapsed() })
    }

    async fn content(&self, waiting: &Waiting) -> Result<Content, NotLooked> {
        let mut body = self.site.spool.body(waiting.id)?;
        let draft = match waiting.size <= IN_MEMORY_MAX {
            true => ContentDraft::in_memory(),
            false => ContentDraft::on_disk(&self.site.quarantine),
        };
        let mut draft = draft?;
        while let Some(piece) = body.next().await? {
            draft.write(&piece)?;
        }
        Ok(draft.seal()?)
    }

    /// It goes on. The mark is not waited for: if it is lost, the scan is repeated.
    fn pass(&self, waiting: &Waiting, letter: &Letter, result: &Passed, took: Duration) -> Ended {
        // What is not clean says so, whatever the settings: that is what it may go on for.
        let said = self.settings.headers || !result.clean;
        let line = if said { decision::header(&self.settings.hostname, result) } else { String::new() };
        match self.site.spool.mark(waiting.id, ScanMark::Passed(line.clone()).write()) {
            Ok(()) => {}
            Err(SpoolError::Unknown(_)) => return Ended::Gone,
            Err(error) => return Ended::Failed(error.to_string()),
        }
        tracing::debug!(id = %waiting.id, result = result.words, "scanned");
        let letter = Letter { added: format!("{line}{}", letter.added), ..letter.clone() };
        self.inner.send(waiting.id, Arc::new(letter), waiting.places.to_vec());
        Ended::Done { passed: true, took }
    }

    fn kept(
        &self,
        waiting: &Waiting,
        letter: Option<Arc<Letter>>,
        queue: Queue,
        (reason, detail): (String, String),
    ) -> Kept {
        Kept {
            waiting: Waiting { letter, ..waiting.clone() },
            queue,
            reason,
            detail,
            at: self.now(),
            failures: 0,
            _room: None,
        }
    }

    /// A scan ended: what the worker scans next.
    fn ended(self: &Arc<Self>, begun: &Begun, ended: Ended) -> Option<Begun> {
        let now = self.now();
        let mut state = self.state();
        match ended {
            Ended::Done { passed, took } => self.done(&mut state, begun, (passed, took), now),
            Ended::Failed(problem) => self.failed(&mut state, begun.number, &problem, now),
            Ended::Poison => {
                let problem =
                    format!("its scan was interrupted {} times: Weir ended each time", self.settings.attempts);
                state.outage.gone(begun.number);
                self.give_up(&mut state, begun.number, &problem);
            }
            Ended::Gone => {
                state.outage.gone(begun.number);
                state.letters.remove(&begun.number);
            }
        }
        let worker = begun.worker;
        let next = if state.stopping { None } else { state.dispatch.free(worker, now) };
        let next = next.map(|next| Begun { worker, number: next.message.id.0, waited: next.waited });
        if let Some(next) = next.filter(|next| state.outage.may_begin(next.number, now)) {
            if let Some((number, _)) = state.running.get_mut(&worker.0) {
                *number = next.number;
            }
            return Some(next);
        }
        state.parked.extend(next);
        state.running.remove(&worker.0);
        let _ = self.under_way.end(worker.0);
        self.stirred.notify_one();
        self.idle.notify_one();
        None
    }

    fn done(self: &Arc<Self>, state: &mut State, begun: &Begun, (passed, took): (bool, Duration), now: Instant) {
        let Some(waiting) = state.letters.remove(&begun.number) else { return };
        let class = state.dispatch.plan().limits.class_of(waiting.size);
        let feed = state.dispatch.feed_of(begun.worker).unwrap_or(0);
        let stretch = state.running.len() as f64 / self.settings.cpus.max(1) as f64;
        let scan = Scanned { size: waiting.size, class, feed, waited: begun.waited, took, stretch };
        state.figures.scanned(&scan, now);
        let counts = &mut state.figures.counts;
        *(if passed { &mut counts.passed } else { &mut counts.quarantined }) += 1;
        if let Some(after) = state.outage.worked(now) {
            tracing::warn!(?after, "the scanners answer again; what waited is scanned");
            state.retry_all(now);
            self.stirred.notify_one();
            self.raise(Alarm::ScanWorks { after });
        }
    }

    fn failed(self: &Arc<Self>, state: &mut State, number: u64, problem: &str, now: Instant) {
        state.figures.counts.failed += 1;
        let waiting_now = state.letters.len();
        if state.outage.failed(number, problem, now) {
            tracing::error!(problem, waiting = waiting_now, "no scanner answers; mail waits");
            self.raise(Alarm::ScanFails { problem: problem.into(), waiting: waiting_now });
        }
        let out = state.outage.now().is_some();
        let Some(waiting) = state.letters.get_mut(&number) else { return };
        waiting.attempts = waiting.attempts.saturating_add(1);
        let attempts = waiting.attempts;
        tracing::warn!(id = %waiting.id, attempts, problem, "a scan failed; it is tried again");
        let _ = self.site.spool.mark(waiting.id, ScanMark::Tried(attempts).write());
        let too_late = Instant(now.0.saturating_sub(self.settings.retry_for.as_nanos() as u64));
        // While we were down nobody could scan: patience begins anew with each start.
        let patient = self.begun.0 > too_late;
        if (attempts >= self.settings.attempts && !out) || (waiting.at <= too_late && !patient) {
            self.give_up(state, number, problem);
        } else {
            let wait = WAITS_S[(attempts as usize - 1).min(WAITS_S.len() - 1)];
            state.retry.insert((now + Duration::from_secs(wait), number));
            self.stirred.notify_one();
        }
        if out && !patient {
            for late in state.accepted_before(too_late) {
                if let Some(waiting) = state.withdraw(late) {
                    self.keep_as_error(state, &waiting, &format!("it waited for too long: {problem}"));
                }
            }
        }
    }

    /// It goes to the quarantine for errors.
    fn give_up(&self, state: &mut State, number: u64, problem: &str) {
        if let Some(waiting) = state.letters.remove(&number) {
            self.keep_as_error(state, &waiting, problem);
        }
    }

    fn keep_as_error(&self, state: &mut State, waiting: &Waiting, problem: &str) {
        tracing::error!(id = %waiting.id, problem, "a message cannot be scanned; it is in the quarantine for errors");
        state.figures.counts.quarantined += 1;
        let detail = serde_json::to_string(&Verdict::default()).unwrap_or_default();
        let (letter, reason) = (waiting.letter.clone(), format!("could not be scanned: {problem}"));
        self.keeper.keep_now(self.kept(waiting, letter, Queue::Error, (reason, detail)));
        self.raise(Alarm::Unscannable { message: waiting.id.to_string().into(), problem: problem.into() });
    }
}

/// What an inspection gave.
struct Looked {
    letter: Arc<Letter>,
    content: Content,
    about: Arc<About>,
    verdict: Verdict,
    took: Duration,
}

fn about(waiting: &Waiting, letter: &Letter) -> About {
    let to = waiting.places.iter().filter_map(|place| letter.to.get(*place)).map(|to| to.address.clone());
    About {
        id: waiting.id.to_string(),
        client: letter.source.parse().ok(),
        helo: String::new(),
        login: letter.user().map(str::to_owned),
        from: letter.from.clone(),
        to: to.collect(),
    }
}

/// Why there is no verdict.
enum NotLooked {
    /// Somebody deleted it meanwhile.
    Gone,
    /// It may work later.
    Failed(String),
}

impl From<SpoolError> for NotLooked {
    fn from(error: SpoolError) -> NotLooked {
        match error {
            SpoolError::Unknown(_) => NotLooked::Gone,
            error => NotLooked::Failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for NotLooked {
    fn from(error: std::io::Error) -> NotLooked {
        NotLooked::Failed(format!("the message could not be prepared for the scan: {error}"))
    }
}
