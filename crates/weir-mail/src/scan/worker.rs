//! A worker of the scan: has a letter inspected, acts on the verdict, and takes the next letter.

use super::ScanShared;
use super::decision::{self, Decision, Passed, QuarantineQueue};
use super::figures::Scanned;
use super::hold;
use super::mark::ScanMark;
use super::quarantine::QuarantinedLetter;
use super::settings::Settings;
use super::state::{RunningScan, State, WaitingLetter};
use crate::intake::trace::own_length;
use crate::letter::Letter;
use crate::pipeline::Transit;
use std::sync::Arc;
use std::time::Duration;
use weir_core::feeds::{AfterFailure, Patience};
use weir_core::time::Instant;
use weir_scan::content::{Content, ContentDraft};
use weir_scan::inspect::About;
use weir_scan::verdict::Verdict;
use weir_smtp::reception::Alarm;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::spool::SpoolError;

/// Scanners have deadlines of their own; this is for one that forgets it.
const LONGEST_SCAN: Duration = Duration::from_secs(1800);
/// Larger content is a file on the disk.
const IN_MEMORY_MAX: u64 = 4 << 20;

/// How one scan ended.
pub(super) enum ScanEnd {
    /// There was a verdict, and it was carried out.
    Done { passed: bool, took: Duration },
    /// It waits for the laboratory.
    Waits { took: Duration },
    /// It was a file that somebody asked about, and the answer is given.
    Answered { size: u64, took: Duration },
    /// It is to be tried again, or given up.
    Failed(Failure),
    /// Its scan was interrupted too often.
    Poison,
    /// Somebody deleted it meanwhile.
    Gone,
}

/// Why there was no verdict.
pub(super) struct Failure {
    pub(super) problem: String,
    fault: Fault,
}

/// What a failure can be laid to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nobody's: all of them answered, and one wants to be asked again later.
    None,
    Unknown,
    /// The scanners: a message that means no harm failed too, and this one was not even shown to them.
    Scanners,
    /// The message: one that means no harm was scanned a moment before.
    Message,
}

impl From<String> for Failure {
    fn from(problem: String) -> Failure {
        Failure { problem, fault: Fault::Unknown }
    }
}

/// Scans letter after letter until there is none for this worker.
pub(super) async fn work(shared: Arc<ScanShared>, mut begun: RunningScan) {
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
struct Guard<'a> {
    shared: &'a Arc<ScanShared>,
    begun: RunningScan,
    ended: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.ended && std::thread::panicking() {
            let failed = ScanEnd::Failed("the scanner panicked".to_owned().into());
            if let Some(next) = self.shared.ended(&self.begun, failed) {
                let mut state = self.shared.state();
                self.shared.begin(&mut state, next);
            }
        }
    }
}

impl ScanShared {
    async fn scan(self: &Arc<Self>, begun: &RunningScan) -> ScanEnd {
        let stream = self.state().streams.remove(&begun.number);
        if let Some(stream) = stream {
            return self.look_at_stream(begun, stream).await;
        }
        let Some(waiting) = self.state().letters.get(&begun.number).cloned() else { return ScanEnd::Gone };
        if waiting.interrupted >= self.settings.attempts {
            return ScanEnd::Poison;
        }
        // Before the scan, so that a scan that ends this process is known.
        if let Err(error) = self.under_way.begin(begun.worker.0, waiting.id, waiting.interrupted + 1) {
            return ScanEnd::Failed(NotLooked::from(error).words().into());
        }
        // A letter that has failed before would fail again while the scanners are down. A harmless message finds that out first.
        let fault = match waiting.attempts {
            0 => Fault::Unknown,
            _ => match self.probe(begun, &waiting).await {
                Ok(()) => Fault::Message,
                Err(problem) => return ScanEnd::Failed(Failure { problem, fault: Fault::Scanners }),
            },
        };
        let looked = match self.look(begun, &waiting).await {
            Ok(looked) => looked,
            Err(NotLooked::Gone) => return ScanEnd::Gone,
            Err(NotLooked::Failed(problem)) => return ScanEnd::Failed(Failure { problem, fault }),
        };
        let Looked { letter, verdict, feed, took } = looked;
        self.note_scan(&waiting, begun, feed, &verdict, took);
        self.measure(waiting.size, feed, &verdict);
        let judged = decision::excused(&verdict, letter.allowed.as_ref());
        let decision = decision::decide(&judged, self.settings.on_spam, self.settings.on_limit);
        match hold::applied(decision, &letter) {
            Decision::Retry(problem) => ScanEnd::Failed(Failure { problem, fault }),
            Decision::Later(problem) => ScanEnd::Failed(Failure { problem, fault: Fault::None }),
            Decision::Pass(result) if self.lab.is_some() && !verdict.samples.is_empty() => {
                self.detain(&waiting, &letter, result, verdict, took).await
            }
            Decision::Pass(result) => self.pass(&waiting, &letter, &result, took),
            Decision::Quarantine(queue, reason) => {
                tracing::info!(id = %waiting.id, queue = queue.as_str(), reason, "quarantined");
                let detail = serde_json::to_string(&verdict).unwrap_or_default();
                let kept = QuarantinedLetter::new(&waiting, Some(letter), queue, reason, self.now());
                self.quarantine.keep(QuarantinedLetter { detail, ..kept }).await;
                ScanEnd::Done { passed: false, took }
            }
        }
    }

    /// Has a message inspected that is like no other and means no harm; why that fails, if it does.
    async fn probe(&self, begun: &RunningScan, waiting: &WaitingLetter) -> Result<(), String> {
        // With a text of its own: nobody may know the answer already.
        let text = format!("Subject: Do the scanners answer?\r\n\r\n{} at {}\r\n", waiting.id, self.now().0);
        let content = Content::of(text.as_bytes()).map_err(|error| NotLooked::from(error).words())?;
        let (_, verdict) = self.inspect(begun, &content, &Arc::default()).await.map_err(NotLooked::words)?;
        match decision::decide(&verdict, self.settings.on_spam, self.settings.on_limit) {
            Decision::Retry(problem) => Err(problem),
            _ => Ok(()),
        }
    }

    async fn look(&self, begun: &RunningScan, waiting: &WaitingLetter) -> Result<Looked, NotLooked> {
        let letter = match &waiting.letter {
            Some(letter) => Arc::clone(letter),
            None => {
                let read = Letter::read(&self.site.spool.envelope(waiting.id).await?);
                waiting.remembered(read.map_err(|error| NotLooked::Failed(error.to_string()))?)
            }
        };
        let content = self.content(waiting).await?;
        let about = Arc::new(about(waiting, &letter));
        let started = tokio::time::Instant::now();
        let (feed, verdict) = self.inspect(begun, &content, &about).await?;
        Ok(Looked { letter, verdict, feed, took: started.elapsed() })
    }

    /// Asks the inspector of the worker's feed; which feed that is, and the verdict.
    pub(super) async fn inspect(
        &self,
        begun: &RunningScan,
        content: &Content,
        about: &Arc<About>,
    ) -> Result<(usize, Verdict), NotLooked> {
        let feed = self.state().dispatch.feed_of(begun.worker).unwrap_or(0);
        let inspector = &self.inspectors[feed % self.inspectors.len()];
        let inspected = tokio::time::timeout(LONGEST_SCAN, inspector.inspect_boxed(content, about)).await;
        let verdict = inspected.map_err(|_| NotLooked::Failed("the scan did not end".to_owned()))?;
        Ok((feed, verdict))
    }

    /// For whoever asks later what each scanner said.
    fn note_scan(&self, waiting: &WaitingLetter, begun: &RunningScan, feed: usize, verdict: &Verdict, took: Duration) {
        let text = format!(
            "feed {}: waited {:.3} s, scanned in {:.3} s: {}",
            feed + 1,
            begun.waited.as_secs_f64(),
            took.as_secs_f64(),
            decision::all_said(verdict)
        );
        let facts = Facts { feed: (feed + 1).to_string(), verdict: decision::in_a_word(verdict), ..Facts::default() };
        self.note(DiaryLine::new(waiting.id, "scanned", text).with(facts));
    }

    pub(super) fn measure(&self, size: u64, feed: usize, verdict: &Verdict) {
        let mut state = self.state();
        let stretch = self.stretch(&state);
        state.figures.looked(size, feed, &verdict.findings, stretch);
    }

    /// By how much scans slow each other down.
    fn stretch(&self, state: &State) -> f64 {
        state.running.len() as f64 / self.settings.cpus.max(1) as f64
    }

    /// What scanners see. Unless they want all of it, without the line that we wrote on top: it is another one on each
    /// message, and the same mail to many would never be the same to them.
    pub(super) async fn content(&self, waiting: &WaitingLetter) -> Result<Content, NotLooked> {
        let mut body = self.site.spool.body(waiting.id)?;
        let draft = match waiting.size <= IN_MEMORY_MAX {
            true => ContentDraft::in_memory(),
            false => ContentDraft::on_disk(&self.site.quarantine),
        };
        let mut draft = draft?;
        let mut own = !self.settings.whole;
        while let Some(piece) = body.next().await? {
            let from = if std::mem::take(&mut own) { own_length(&self.settings.hostname, &piece) } else { 0 };
            draft.write(&piece[from..])?;
        }
        Ok(draft.seal()?)
    }

    /// The lines for the header of what goes on. What is not clean says so, whatever the settings: that is what it may go on for.
    pub(super) fn lines_for(&self, result: &Passed) -> String {
        match self.settings.headers || !result.clean {
            true => decision::header(&self.settings.hostname, result),
            false => result.lines.clone(),
        }
    }

    /// It goes on. The mark is not waited for: if it is lost, the scan is repeated.
    pub(super) fn pass(
        &self,
        waiting: &WaitingLetter,
        letter: &Arc<Letter>,
        result: &Passed,
        took: Duration,
    ) -> ScanEnd {
        let line = self.lines_for(result);
        match self.site.spool.mark(waiting.id, ScanMark::Passed(line.clone()).write()) {
            Ok(()) => {}
            Err(SpoolError::Unknown(_)) => return ScanEnd::Gone,
            Err(error) => return ScanEnd::Failed(error.to_string().into()),
        }
        tracing::debug!(id = %waiting.id, result = result.words, "scanned");
        let transit = Transit { id: waiting.id, letter: Arc::clone(letter), places: waiting.places.to_vec() };
        self.next.send(transit.with_lines(&line));
        ScanEnd::Done { passed: true, took }
    }

    /// A scan ended: what the worker scans next.
    fn ended(self: &Arc<Self>, begun: &RunningScan, ended: ScanEnd) -> Option<RunningScan> {
        let now = self.now();
        let mut state = self.state();
        match ended {
            ScanEnd::Done { passed, took } => self.done(&mut state, begun, Some(passed), took, now),
            ScanEnd::Waits { took } => self.done(&mut state, begun, None, took, now),
            ScanEnd::Answered { size, took } => self.scanned(&mut state, begun, size, took, now),
            ScanEnd::Failed(failure) => self.failed(&mut state, begun.number, &failure, now),
            ScanEnd::Poison => {
                let problem =
                    format!("its scan was interrupted {} times: Weir ended each time", self.settings.attempts);
                state.outage.gone(begun.number);
                self.give_up(&mut state, begun.number, &problem);
            }
            ScanEnd::Gone => {
                state.outage.gone(begun.number);
                state.letters.remove(&begun.number);
            }
        }
        let worker = begun.worker;
        let next = if state.stopping { None } else { state.dispatch.free(worker, now) };
        let next = next.map(|next| RunningScan { worker, number: next.message.id.0, waited: next.waited });
        if let Some(next) = next.filter(|next| state.may_begin(next.number, now)) {
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

    /// Whether it passed is not known yet of what waits for the laboratory.
    fn done(
        self: &Arc<Self>,
        state: &mut State,
        begun: &RunningScan,
        passed: Option<bool>,
        took: Duration,
        now: Instant,
    ) {
        let Some(waiting) = state.letters.remove(&begun.number) else { return };
        self.scanned(state, begun, waiting.size, took, now);
        let counts = &mut state.figures.counts;
        match passed {
            Some(true) => counts.passed += 1,
            Some(false) => counts.quarantined += 1,
            None => {}
        }
        if let Some(after) = state.outage.worked(now) {
            self.works_again(state, after, now);
        }
    }

    /// What a scan took is counted.
    fn scanned(&self, state: &mut State, begun: &RunningScan, size: u64, took: Duration, now: Instant) {
        let class = state.dispatch.plan().limits.class_of(size);
        let feed = state.dispatch.feed_of(begun.worker).unwrap_or(0);
        let stretch = self.stretch(state);
        state.figures.scanned(&Scanned { size, class, feed, waited: begun.waited, took, stretch }, now);
    }

    /// An outage is over.
    fn works_again(&self, state: &mut State, after: Duration, now: Instant) {
        tracing::warn!(?after, "the scanners answer again; what waited is scanned");
        state.retry_all(now);
        self.stirred.notify_one();
        self.alarms.raise(Alarm::ScanWorks { after });
    }

    fn failed(self: &Arc<Self>, state: &mut State, number: u64, failure: &Failure, now: Instant) {
        let (problem, fault) = (failure.problem.as_str(), failure.fault);
        state.figures.counts.failed += 1;
        if matches!(fault, Fault::Message | Fault::None)
            && let Some(after) = state.outage.answered(now)
        {
            self.works_again(state, after, now);
        }
        let waiting_now = state.letters.len();
        let begins = match fault {
            Fault::None => false,
            Fault::Scanners => state.outage.silent(number, problem, now),
            Fault::Unknown | Fault::Message => state.outage.failed(number, problem, now),
        };
        if begins {
            tracing::error!(problem, waiting = waiting_now, "no scanner answers; mail waits");
            self.alarms.raise(Alarm::ScanFails { problem: problem.into(), waiting: waiting_now });
        }
        let out = state.outage.now().is_some();
        let Some(waiting) = state.letters.get_mut(&number) else { return };
        let line = if fault == Fault::Scanners {
            tracing::warn!(id = %waiting.id, problem, "no scanner answers; it is tried again");
            format!("no scanner answers, it waits: {problem}")
        } else {
            waiting.attempts = waiting.attempts.saturating_add(1);
            tracing::warn!(id = %waiting.id, attempts = waiting.attempts, problem, "a scan failed; it is tried again");
            let _ = self.site.spool.mark(waiting.id, ScanMark::Tried(waiting.attempts).write());
            format!("scan attempt {} failed: {problem}", waiting.attempts)
        };
        let attempts = waiting.attempts;
        self.note(DiaryLine::new(waiting.id, "failed", line));
        let patience = self.patience();
        match patience.after_failure(attempts, waiting.at, out, now) {
            AfterFailure::GiveUp => self.give_up(state, number, problem),
            AfterFailure::TryAt(at) => {
                // If only the scanners fail, it is tried when they are.
                let at = state.outage.next_try().filter(|_| fault == Fault::Scanners).unwrap_or(at);
                state.retry.insert((at, number));
                self.stirred.notify_one();
            }
        }
        if let Some(too_late) = patience.too_late(now).filter(|_| out) {
            for late in state.accepted_before(too_late) {
                if let Some(waiting) = state.withdraw(late) {
                    self.keep_as_error(state, &waiting, &format!("it waited for too long: {problem}"));
                }
            }
        }
    }

    fn patience(&self) -> Patience {
        let Settings { attempts, retry_for, .. } = self.settings;
        Patience { attempts, retry_for, begun: self.begun.0 }
    }

    /// It goes to the quarantine for errors.
    fn give_up(&self, state: &mut State, number: u64, problem: &str) {
        if let Some(waiting) = state.letters.remove(&number) {
            self.keep_as_error(state, &waiting, problem);
        }
    }

    fn keep_as_error(&self, state: &mut State, waiting: &WaitingLetter, problem: &str) {
        tracing::error!(id = %waiting.id, problem, "a message cannot be scanned; it is in the quarantine for errors");
        state.figures.counts.quarantined += 1;
        let detail = serde_json::to_string(&Verdict::default()).unwrap_or_default();
        let (letter, reason) = (waiting.letter.clone(), format!("could not be scanned: {problem}"));
        let kept = QuarantinedLetter::new(waiting, letter, QuarantineQueue::Error, reason, self.now());
        self.quarantine.keep_now(QuarantinedLetter { detail, ..kept });
        self.alarms.raise(Alarm::Unscannable { message: waiting.id.to_string().into(), problem: problem.into() });
    }
}

/// What an inspection gave.
struct Looked {
    letter: Arc<Letter>,
    verdict: Verdict,
    feed: usize,
    took: Duration,
}

fn about(waiting: &WaitingLetter, letter: &Letter) -> About {
    let to = waiting.places.iter().filter_map(|place| letter.to.get(*place)).map(|to| to.address.clone());
    About {
        id: waiting.id.to_string(),
        client: letter.source.parse().ok(),
        helo: letter.client.as_ref().map(|client| client.helo.clone()).unwrap_or_default(),
        login: letter.user().map(str::to_owned),
        from: letter.from.clone(),
        to: to.collect(),
        is_file: false,
    }
}

/// Why there is no verdict.
pub(super) enum NotLooked {
    /// Somebody deleted it meanwhile.
    Gone,
    /// It may work later.
    Failed(String),
}

impl NotLooked {
    pub(super) fn words(self) -> String {
        match self {
            NotLooked::Gone => "it is gone".to_owned(),
            NotLooked::Failed(problem) => problem,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::tests::letter;
    use super::*;
    use crate::letter::{Client, LetterOrigin};

    #[test]
    fn spam_scanners_hear_what_the_client_called_itself() {
        let client = Client { address: "192.0.2.1".parse().unwrap(), helo: "mail.sender.example".to_owned() };
        let letter = Letter { client: Some(client), ..letter(LetterOrigin::Received, "192.0.2.0/24", 2) };
        let id = "38exdmxn6hex5qydvved".parse().unwrap();
        let about =
            about(&WaitingLetter::new(Transit { id, letter: Arc::new(letter.clone()), places: vec![1] }), &letter);
        assert_eq!((about.helo.as_str(), about.to), ("mail.sender.example", vec!["to1@example.net".to_owned()]));
    }
}
