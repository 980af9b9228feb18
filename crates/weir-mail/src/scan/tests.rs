//! Tests of the scan stage with inspectors whose verdicts and times are planned, on a real spool and real records.

mod kept;
mod kills;
mod pending;
mod tuned;

use super::*;
use crate::letter::LetterTo;
use crate::queue::{Queue, QueueSelection};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::samples::{Candidate, sha256};
use weir_scan::verdict::{Finding, Outcome, Verdict};
use weir_smtp::envelope::{Envelope, MailFrom};
use weir_smtp::reception::Alarm;
use weir_store::diary::Diary;
use weir_store::records::{QuarantineFilter, QuarantineRow};
use weir_store::spool::{FoundMessage, Options, SpoolError};

/// What an inspector does with a message, by the first word of its body.
#[derive(Default)]
pub(super) struct Planned {
    /// Every scan fails.
    down: AtomicBool,
    /// Until then too: somebody killed it.
    back_at: Mutex<Option<tokio::time::Instant>>,
    /// Each scan takes t0 and ts a byte.
    t0_ts_s: (f64, f64),
    /// When each message's scan began, by id.
    seen: Mutex<Vec<(String, tokio::time::Instant)>>,
    under_way: AtomicUsize,
    /// The content of each message that was looked at, by its hash.
    contents: Mutex<Vec<[u8; 32]>>,
}

impl Planned {
    fn is_down(&self) -> bool {
        let back_at = *self.back_at.lock().unwrap();
        self.down.load(Ordering::SeqCst) || back_at.is_some_and(|at| at > tokio::time::Instant::now())
    }

    fn seen(&self) -> Vec<(String, tokio::time::Instant)> {
        self.seen.lock().unwrap().clone()
    }
}

/// The inspector itself: the test keeps the plan.
struct Planner(Arc<Planned>);

impl Inspect for Planner {
    async fn inspect(&self, content: &Content, about: &Arc<About>) -> Verdict {
        let plan = &self.0;
        plan.seen.lock().unwrap().push((about.id.clone(), tokio::time::Instant::now()));
        plan.under_way.fetch_add(1, Ordering::SeqCst);
        plan.contents.lock().unwrap().push(*content.hash());
        let mut start = [0; 32];
        let length = content.read_at(&mut start, 0).unwrap();
        let text = String::from_utf8_lossy(&start[..length]).into_owned();
        let (t0, ts) = plan.t0_ts_s;
        let took = Duration::from_secs_f64(t0 + ts * content.length() as f64);
        tokio::time::sleep(took).await;
        let outcome = match text.split_whitespace().next().unwrap_or_default() {
            _ if plan.is_down() => Outcome::Failed { problem: "connection refused".into() },
            "virus" => Outcome::Infected { name: "Eicar".into() },
            "odd" => Outcome::Infected { name: "a\0b\r\nc".into() },
            "spam" => Outcome::Spam { score: 9.0, threshold: 5.0 },
            "poison" => std::future::pending().await,
            "panic" => panic!("planned"),
            "killer" => {
                *plan.back_at.lock().unwrap() = Some(tokio::time::Instant::now() + Duration::from_secs(20));
                Outcome::Failed { problem: "the scanner closed the connection".into() }
            }
            "broken" => Outcome::Failed { problem: "the scanner fell over".into() },
            _ => Outcome::Clean,
        };
        plan.under_way.fetch_sub(1, Ordering::SeqCst);
        let finding = Finding { scanner: "plan".into(), outcome, place: String::new(), took };
        let script = text.starts_with("script");
        let samples = script.then(|| candidate(text.trim_end())).into_iter().collect();
        Verdict { findings: vec![finding], samples, ..Verdict::default() }
    }

    async fn extract(&self, content: &Content, _: &Candidate) -> Result<Option<Vec<u8>>, String> {
        let mut bytes = vec![0; content.length() as usize];
        content.read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        Ok(Some(bytes.trim_ascii_end().to_vec()))
    }
}

/// A file that is all of a body.
fn candidate(body: &str) -> Candidate {
    Candidate {
        sha256: sha256(body.as_bytes()),
        size: body.len() as u64,
        name: "run.sh".to_owned(),
        why: "a script".to_owned(),
        passwords: Vec::new(),
    }
}

/// The next stage: remembers what came, and finishes it.
#[derive(Clone, Default)]
pub(super) struct Sink {
    spool: Arc<OnceLock<Spool>>,
    came: Arc<Mutex<Vec<Came>>>,
}

/// A letter that came to the next stage, and for which places.
type Came = (MessageId, Arc<Letter>, Vec<usize>);

impl Sink {
    fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }
}

impl Stage for Sink {
    fn take(&self, letter: Transit) -> Option<Transit> {
        let Transit { id, letter, places } = letter;
        self.came.lock().unwrap().push((id, letter, places));
        if let Some(spool) = self.spool.get() {
            spool.finish(id).unwrap();
        }
        None
    }
}

/// One life of a stage.
pub(super) struct Life {
    stage: Scanning,
    pipeline: Pipeline,
    alarms: Alarms,
    spool: Spool,
    records: Records,
    sink: Sink,
    plan: Arc<Planned>,
    found: Vec<FoundMessage>,
}

impl Life {
    async fn new(folder: &TempDir, settings: Settings) -> Life {
        Life::with(folder, settings, Planned::default()).await
    }

    async fn with(folder: &TempDir, settings: Settings, plan: Planned) -> Life {
        Life::joined(folder, settings, plan, None).await
    }

    async fn joined(folder: &TempDir, settings: Settings, plan: Planned, lab: Option<LabWay>) -> Life {
        let quarantine = folder.path().join("quarantine");
        std::fs::create_dir_all(&quarantine).unwrap();
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        // The tasks of a life before may not have ended yet.
        let (spool, found) = loop {
            match Spool::open(folder.path().join("spool"), options.clone()) {
                Err(SpoolError::InUse(_)) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        };
        let spool = spool.with_diary(Diary::open(&folder.path().join("diary"), 1 << 20).unwrap());
        let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
        let (sink, plan) = (Sink::default(), Arc::new(plan));
        let _ = sink.spool.set(spool.clone());
        let site = Site {
            spool: spool.clone(),
            records: records.clone(),
            relay: "r1".into(),
            folder: folder.path().to_owned(),
            quarantine,
        };
        let inspectors: Vec<Arc<dyn Inspector>> = vec![Arc::new(Planner(Arc::clone(&plan)))];
        let (setup, alarms) = (Setup { settings, inspectors, lab, site }, Alarms::default());
        let next = Pipeline::ending_in(sink.clone());
        let stage = Scanning::start(setup, next.clone(), alarms.clone()).unwrap();
        let pipeline = next.preceded_by(stage.clone());
        pipeline.prepare().await;
        if found.is_empty() {
            pipeline.taken_up();
        }
        Life { stage, pipeline, alarms, spool, records, sink, plan, found }
    }

    async fn commit(&self, letter: &Letter, body: &str) -> MessageId {
        let mut draft = self.spool.draft().unwrap();
        draft.write(body.as_bytes()).await.unwrap();
        draft.commit(letter.write()).await.unwrap()
    }

    async fn send(&self, letter: Letter, body: &str) -> MessageId {
        let id = self.commit(&letter, body).await;
        self.pipeline.send(Transit::to_all(id, letter));
        id
    }

    /// Takes up what the spool held at start, as the gate does.
    fn take_up(&self) {
        for found in self.found.iter().filter(|found| self.spool.contains(found.id)) {
            let letter = Letter::read(&found.envelope).unwrap();
            self.pipeline.resume(Transit::to_all(found.id, letter), &found.marks);
        }
        self.pipeline.taken_up();
    }

    async fn rows(&self) -> Vec<QuarantineRow> {
        self.records.quarantine().list(&QuarantineFilter::default(), 10_000).await.unwrap().rows
    }

    /// Waits until the spool is empty.
    async fn settle(&self) {
        while self.spool.stats().messages > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until(&self, what: impl Fn(&Life) -> bool) {
        while !what(self) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends as by a kill: no task does anything any more.
    fn kill(self) {
        self.stage.shared.break_off();
    }
}

/// Disks and databases have clocks of their own: while they work, so does ours.
pub(super) async fn in_real_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::resume();
    let done = work.await;
    tokio::time::pause();
    done
}

pub(super) fn letter(origin: LetterOrigin, owner: &str, to: usize) -> Letter {
    let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), ..Envelope::default() };
    let mut letter = Letter::new(&envelope, origin, owner, "192.0.2.1", wall_clock().0);
    letter.from = format!("{owner}@example.org");
    letter.to =
        (0..to).map(|to| LetterTo { address: format!("to{to}@example.net"), notify: None, orcpt: None }).collect();
    letter
}

fn submitted() -> Letter {
    letter(LetterOrigin::Submitted, "ann", 2)
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn clean_mail_goes_on_with_a_header_and_the_rest_is_kept() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let clean = life.send(Letter { added: "A-R: x\r\n".into(), ..submitted() }, "clean body").await;
    let virus = life.send(submitted(), "virus body").await;
    let spam = life.send(submitted(), "spam body").await;
    let own = life.send(letter(LetterOrigin::Own, "", 1), "virus in a report").await;
    life.settle().await;
    let came = life.sink.came();
    assert_eq!(came.iter().map(|(id, ..)| *id).collect::<BTreeSet<_>>(), [clean, own].into());
    let (_, letter, places) = came.iter().find(|(id, ..)| *id == clean).unwrap();
    assert_eq!(letter.added, "X-Weir-Scan: localhost; clean (plan)\r\nA-R: x\r\n");
    assert_eq!(places, &[0, 1]);
    let rows = life.rows().await;
    let kept: BTreeSet<_> = rows.iter().map(|row| (row.message.clone(), row.queue.as_str(), row.place)).collect();
    let expected = [(virus, "virus"), (spam, "spam")].map(|(id, queue)| [0, 1].map(|at| (id.to_string(), queue, at)));
    assert_eq!(kept, expected.into_iter().flatten().collect());
    assert!(rows.iter().any(|row| row.reason == "infected: Eicar (plan)" && row.owner == "ann"));
    let verdict = std::fs::read_to_string(folder.path().join(format!("quarantine/{virus}.verdict"))).unwrap();
    assert!(verdict.contains("Eicar"), "{verdict}");
    let text = std::fs::read_to_string(folder.path().join(format!("quarantine/{virus}.eml"))).unwrap();
    assert_eq!(text, "virus body");
    let trail = life.records.audit().trail(&virus.to_string(), 9).await.unwrap();
    assert_eq!(trail.iter().map(|line| line.action.as_str()).collect::<Vec<_>>(), ["quarantine.virus"]);
    assert_eq!(life.stage.shared.state().figures.counts, Counts { arrived: 3, passed: 1, quarantined: 2, failed: 0 });
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn one_message_that_breaks_the_scanner_ends_in_the_error_queue_and_others_flow() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let broken = life.send(submitted(), "broken body").await;
    let panics = life.send(submitted(), "panic body").await;
    tokio::time::pause();
    for _ in 0..20 {
        life.send(submitted(), "clean body").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    life.settle().await;
    assert_eq!(life.sink.came().len(), 20);
    let rows = in_real_time(life.rows()).await;
    let kept: BTreeSet<_> = rows.iter().map(|row| (row.message.clone(), row.queue.as_str())).collect();
    assert_eq!(kept, [broken, panics].map(|id| (id.to_string(), "error")).into());
    let tries = life.plan.seen().iter().filter(|(id, _)| *id == broken.to_string()).count();
    assert_eq!(tries, 5);
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn scanners_that_are_down_keep_all_mail_and_it_flows_again_by_itself() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let alarms = Arc::new(Mutex::new(Vec::new()));
    let rung = Arc::clone(&alarms);
    life.alarms.connect(move |alarm| rung.lock().unwrap().push(alarm));
    life.plan.down.store(true, Ordering::SeqCst);
    for _ in 0..50 {
        life.send(submitted(), "clean body").await;
    }
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(life.sink.came().is_empty() && in_real_time(life.rows()).await.is_empty());
    let status = life.stage.feeds_status();
    assert!(status.outage.is_some_and(|outage| outage.problem.contains("connection refused")));
    assert!(life.plan.seen().len() < 150, "{} tries", life.plan.seen().len());
    life.plan.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(life.sink.came().len(), 50);
    let kinds: Vec<bool> = alarms.lock().unwrap().iter().map(|a| matches!(a, Alarm::ScanFails { .. })).collect();
    assert_eq!(kinds, [true, false], "once that it fails, once that it works");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn on_a_quiet_site_one_message_waits_for_the_scanners_and_flows_again_by_itself() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    life.plan.down.store(true, Ordering::SeqCst);
    life.send(submitted(), "clean body").await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    assert!(life.sink.came().is_empty() && in_real_time(life.rows()).await.is_empty(), "it waits");
    assert!(life.stage.feeds_status().outage.is_some_and(|outage| outage.problem.contains("connection refused")));
    life.plan.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(life.sink.came().len(), 1);
    assert!(life.stage.feeds_status().outage.is_none());
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_message_that_kills_the_scanner_each_time_is_given_up_and_others_flow() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let killer = life.send(submitted(), "killer body").await;
    let innocent = life.send(submitted(), "clean body").await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    in_real_time(life.settle()).await;
    let rows = in_real_time(life.rows()).await;
    let kept: BTreeSet<_> = rows.iter().map(|row| (row.message.clone(), row.queue.as_str())).collect();
    assert_eq!(kept, [(killer.to_string(), "error")].into());
    assert_eq!(life.plan.seen().iter().filter(|(id, _)| *id == killer.to_string()).count(), 5);
    assert_eq!(life.sink.came().iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [innocent]);
    assert!(life.stage.feeds_status().outage.is_none());
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_outage_ends_though_the_mail_that_was_to_be_tried_is_deleted() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    life.plan.down.store(true, Ordering::SeqCst);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(life.send(submitted(), "clean body").await);
    }
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(life.stage.feeds_status().outage.is_some());
    let survivor = ids.pop().unwrap();
    ids.into_iter().for_each(|id| life.spool.finish(id).unwrap());
    life.plan.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(life.sink.came().iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [survivor]);
    assert!(life.stage.feeds_status().outage.is_none());
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_waits_for_too_long_goes_to_the_error_queue_and_never_out() {
    let folder = home();
    let settings = Settings { retry_for: Duration::from_secs(3600), ..Settings::default() };
    let life = Life::new(&folder, settings).await;
    life.plan.down.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        life.send(submitted(), "clean body").await;
    }
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    in_real_time(life.settle()).await;
    assert!(life.sink.came().is_empty());
    let rows = in_real_time(life.rows()).await;
    assert_eq!(rows.len(), 40);
    assert!(rows.iter().all(|row| row.queue == "error" && row.reason.contains("connection refused")));
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_time_while_we_were_down_is_not_waited_time() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    life.plan.down.store(true, Ordering::SeqCst);
    // Accepted two days ago; the scanner is slow to come up after the start.
    for _ in 0..5 {
        let old = Letter { at: wall_clock().0 - 2 * 86_400_000_000_000, ..submitted() };
        life.send(old, "clean body").await;
    }
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(in_real_time(life.rows()).await.is_empty(), "nothing is given up");
    life.plan.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    in_real_time(life.settle()).await;
    assert_eq!(life.sink.came().len(), 5);
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_passed_letter_is_not_scanned_again() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let id = life.commit(&submitted(), "clean body").await;
    life.spool.mark(id, ScanMark::Tried(2).write()).unwrap();
    life.spool.mark(id, ScanMark::Passed("X-Weir-Scan: before\r\n".into()).write()).unwrap();
    life.kill();
    let life = Life::new(&folder, Settings::default()).await;
    life.take_up();
    let came = life.sink.came();
    assert_eq!((came.len(), came[0].1.added.as_str()), (1, "X-Weir-Scan: before\r\n"));
    assert!(life.plan.seen().is_empty());
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn without_the_scan_everything_passes_and_without_an_inspector_nothing_starts() {
    let folder = home();
    let life = Life::new(&folder, Settings { enabled: false, ..Settings::default() }).await;
    life.send(submitted(), "virus body").await;
    assert_eq!(life.sink.came().len(), 1);
    let site = life.stage.shared.site.clone();
    let setup = Setup { settings: Settings::default(), inspectors: Vec::new(), lab: None, site };
    let refused = Scanning::start(setup, life.pipeline.clone(), Alarms::default());
    assert!(matches!(refused, Err(ScanError::NoInspector)));
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn letters_wait_as_names_and_a_sender_waits_for_one_turn_of_another() {
    flooded(|_| letter(LetterOrigin::Submitted, "flood", 1), letter(LetterOrigin::Submitted, "quiet", 1)).await;
    // Whoever writes a new sender into each message has no turn more.
    let forged =
        |number| Letter { from: format!("f{number}@x.example"), ..letter(LetterOrigin::Received, "192.0.2.0/24", 1) };
    flooded(forged, letter(LetterOrigin::Received, "198.51.100.0/24", 1)).await;
}

async fn flooded(flood: impl Fn(usize) -> Letter, quiet: Letter) {
    let folder = home();
    let plan = Planned { t0_ts_s: (1.0, 0.0), ..Planned::default() };
    let life = Life::with(&folder, Settings::default(), plan).await;
    for number in 0..400 {
        life.send(flood(number), "clean body").await;
    }
    let quiet = life.send(Letter { added: "A-R: y\r\n".into(), ..quiet }, "clean body").await;
    let in_memory = life.stage.shared.state().letters.values().filter(|waiting| waiting.letter.is_some()).count();
    assert!(in_memory <= LETTERS_MAX, "{in_memory}");
    tokio::time::pause();
    life.settle().await;
    let seen = life.plan.seen();
    let place = seen.iter().position(|(id, _)| *id == quiet.to_string()).unwrap();
    assert!(place < 40, "{place}");
    let came = life.sink.came();
    let (_, letter, _) = came.iter().find(|(id, ..)| *id == quiet).unwrap();
    assert!(letter.added.ends_with("\r\nA-R: y\r\n"), "what was added before is not lost: {}", letter.added);
    life.pipeline.stop(Duration::from_secs(5)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn the_same_mail_twice_is_the_same_to_the_scanners_unless_they_want_to_know_the_client() {
    for whole in [false, true] {
        let folder = home();
        let life = Life::new(&folder, Settings { whole, ..Settings::default() }).await;
        for number in 0..2 {
            let ours = format!(
                "Received: from c.example (unknown [192.0.2.{number}])\r\n\tby localhost (Weir) with ESMTP id {number};\r\n\tMon\r\n"
            );
            life.send(submitted(), &format!("{ours}Subject: to all\r\n\r\nhello\r\n")).await;
        }
        life.settle().await;
        let seen: BTreeSet<_> = life.plan.contents.lock().unwrap().iter().copied().collect();
        assert_eq!(seen.len(), if whole { 2 } else { 1 });
        let alone = Content::of(b"Subject: to all\r\n\r\nhello\r\n").unwrap();
        assert_eq!(seen.contains(alone.hash()), !whole);
        life.pipeline.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn what_goes_on_unclean_says_so_even_without_headers() {
    let folder = home();
    let settings = Settings { headers: false, on_spam: OnSpam::Tag, ..Settings::default() };
    let life = Life::new(&folder, settings).await;
    let clean = life.send(submitted(), "clean body").await;
    let spam = life.send(submitted(), "spam body").await;
    life.settle().await;
    let added: BTreeMap<_, _> =
        life.sink.came().into_iter().map(|(id, letter, _)| (id, letter.added.clone())).collect();
    assert_eq!(added[&clean], "");
    assert!(added[&spam].contains("\r\nX-Spam-Flag: YES\r\n"), "{added:?}");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn of_all_that_waits_a_selection_is_listed_and_deleted_to_the_last() {
    let folder = home();
    let plan = Planned { t0_ts_s: (1e6, 0.0), ..Planned::default() };
    let life = Life::with(&folder, Settings::default(), plan).await;
    for number in 0..60 {
        let who = if number % 4 == 3 { "ann" } else { "bob" };
        life.send(letter(LetterOrigin::Submitted, who, 1), "clean body").await;
    }
    let of = |user: &str, domain: &str| QueueSelection {
        user: user.to_owned(),
        domain: domain.to_owned(),
        ..QueueSelection::default()
    };
    let waiting = life.stage.list(&of("ann", ""), 100).await.unwrap();
    assert_eq!(waiting.total, 15, "more than are looked at for one list");
    let dropped = life.stage.delete(&of("ann", "example.net")).await.unwrap();
    assert!(dropped.problem.is_none() && dropped.messages.iter().all(|one| one.recipients == 1), "{dropped:?}");
    let gone = dropped.messages;
    let under_way = life.plan.under_way.load(Ordering::SeqCst);
    assert!(gone.len() >= 15 - under_way && gone.len() <= 15, "{} of 15", gone.len());
    assert_eq!(life.stage.list(&of("bob", ""), 100).await.unwrap().total, 45);
    assert!(life.stage.delete(&of("", "elsewhere.example")).await.unwrap().messages.is_empty());
    life.pipeline.stop(Duration::ZERO).await;
}
