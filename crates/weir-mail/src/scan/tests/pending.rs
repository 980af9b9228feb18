//! Tests of mail that waits for a laboratory whose verdicts are planned.

use super::*;
use crate::queue::QueueEntry;

/// A laboratory that knows what the test says, and takes everything.
#[derive(Default)]
struct PlannedLab {
    known: Mutex<BTreeMap<String, KnownContent>>,
    taken: Mutex<Vec<Sample>>,
    silent: AtomicBool,
}

impl PlannedLab {
    fn taken(&self) -> Vec<Sample> {
        self.taken.lock().unwrap().clone()
    }

    /// The laboratory comes to an end with a content.
    fn ends(&self, body: &str, verdict: LabVerdict) {
        self.ended(body, verdict, wall_clock().0 as i64);
    }

    /// The laboratory came to an end with a content at this time.
    fn ended(&self, body: &str, verdict: LabVerdict, at: i64) {
        let opinion = Opinion { sample: 7, verdict, reasons: vec!["because".to_owned()], at };
        self.known.lock().unwrap().insert(sha256(body.as_bytes()), KnownContent::Ended(opinion));
    }

    fn answer<T>(&self, answer: T) -> Result<T, String> {
        if self.silent.load(Ordering::SeqCst) { Err("nobody is there".to_owned()) } else { Ok(answer) }
    }
}

struct Door(Arc<PlannedLab>);

impl Laboratory for Door {
    fn known<'a>(&'a self, files: &'a [AskedFile]) -> LabAnswer<'a, Vec<KnownContent>> {
        Box::pin(async move {
            let known = self.0.known.lock().unwrap();
            let answer = |file: &AskedFile| known.get(&file.sha256).cloned().unwrap_or(KnownContent::Nothing);
            self.0.answer(files.iter().map(answer).collect())
        })
    }

    fn submit(&self, sample: Sample) -> LabAnswer<'_, Taken> {
        Box::pin(async move {
            let mut taken = self.0.answer(self.0.taken.lock().unwrap())?;
            let number = taken.len() as i64 + 1;
            self.0.known.lock().unwrap().insert(sha256(&sample.content), KnownContent::Open { sample: number });
            taken.push(sample);
            Ok(Taken::Queued(number))
        })
    }

    fn why(&self, _: i64) -> LabAnswer<'_, String> {
        Box::pin(async { Ok("no machine is plugged in".to_owned()) })
    }
}

async fn joined(folder: &TempDir, lab: &Arc<PlannedLab>, settings: LabSettings) -> Life {
    let way = LabWay { settings, laboratory: Arc::new(Door(Arc::clone(lab))) };
    Life::joined(folder, Settings::default(), Planned::default(), Some(way)).await
}

async fn waits(life: &Life) -> Vec<QueueEntry> {
    life.stage.list(&QueueSelection::default(), 100).await.unwrap().messages
}

fn messages(life: &Life) -> usize {
    life.stage.feeds_status().pending.unwrap().messages
}

async fn kept(life: &Life) -> Vec<(String, String)> {
    life.settle().await;
    life.rows().await.into_iter().map(|row: QuarantineRow| (row.queue, row.reason)).collect()
}

#[tokio::test]
async fn a_message_waits_and_the_verdict_decides() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let life = joined(&folder, &lab, LabSettings::default()).await;
    let bad = life.send(submitted(), "script bad").await;
    life.until(|_| lab.taken().len() == 1).await;
    let taken = lab.taken().remove(0);
    assert_eq!((taken.content.as_slice(), taken.name.as_str()), (&b"script bad"[..], "run.sh"));
    assert_eq!((taken.priority, taken.submitter.as_str()), (8, "mail ann"));
    // Nobody else waits for it.
    for number in 0..20 {
        life.send(submitted(), &format!("hello {number}")).await;
    }
    life.until(|life| life.sink.came().len() == 20).await;
    let entries = waits(&life).await;
    assert_eq!((entries.len(), entries[0].message.as_str()), (1, bad.to_string().as_str()));
    let said = &entries[0].recipients[0].last_answer;
    for part in ["waits for the lab's verdict on run.sh since ", " until ", ", then it is quarantined"] {
        assert!(said.contains(part), "{part:?} is missing in {said}");
    }
    lab.ends("script bad", LabVerdict::Malicious);
    let kept = kept(&life).await;
    assert_eq!(kept.len(), 2, "a row for each recipient");
    assert_eq!(kept[0], ("virus".to_owned(), "lab: malicious, run.sh (sample 7): because".to_owned()));
    let counts = life.stage.feeds_status().pending.unwrap().counts;
    assert_eq!((counts.arrived, counts.quarantined, counts.undecided), (1, 1, 0));
}

#[tokio::test]
async fn a_clean_file_passes_and_what_is_known_is_used_at_once() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let lenient = LabSettings { on_unknown: OnLab::Pass, ..LabSettings::default() };
    let life = joined(&folder, &lab, lenient).await;
    lab.ends("script good", LabVerdict::Clean);
    lab.ends("script odd", LabVerdict::Unknown);
    life.send(submitted(), "script good").await;
    life.until(|life| life.sink.came().len() == 1).await;
    life.send(submitted(), "script odd").await;
    life.until(|life| life.sink.came().len() == 2).await;
    let lines: Vec<String> = life.sink.came().iter().map(|(_, letter, _)| letter.added.clone()).collect();
    assert!(lines[0].contains("clean (plan); lab: clean (run.sh)"), "{lines:?}");
    assert!(lines[1].contains("lab: unknown, run.sh (sample 7): because"), "{lines:?}");
    assert!(lab.taken().is_empty(), "nothing was handed in");
    // A verdict of long ago is not used, but for malware.
    let old = Opinion { sample: 3, verdict: LabVerdict::Clean, reasons: Vec::new(), at: 0 };
    let worse = Opinion { verdict: LabVerdict::Malicious, ..old.clone() };
    let opinions =
        [(sha256(b"script old"), KnownContent::Ended(old)), (sha256(b"script worm"), KnownContent::Ended(worse))];
    lab.known.lock().unwrap().extend(opinions);
    life.send(submitted(), "script old").await;
    life.until(|_| lab.taken().len() == 1).await;
    life.send(submitted(), "script worm").await;
    lab.ends("script old", LabVerdict::Clean);
    assert_eq!(kept(&life).await[0].0, "virus");
}

#[tokio::test]
async fn a_kill_loses_nothing_and_hands_nothing_in_twice() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let life = joined(&folder, &lab, LabSettings::default()).await;
    let id = life.send(submitted(), "script slow").await;
    life.until(|_| lab.taken().len() == 1).await;
    life.spool.flush().await.unwrap();
    life.kill();
    let life = joined(&folder, &lab, LabSettings::default()).await;
    life.take_up();
    life.until(|life| messages(life) == 1).await;
    assert!(life.plan.seen().is_empty(), "it is not scanned again");
    lab.ends("script slow", LabVerdict::Clean);
    life.until(|life| life.sink.came().len() == 1).await;
    assert_eq!((life.sink.came()[0].0, life.sink.came()[0].2.clone()), (id, vec![0, 1]));
    assert_eq!(lab.taken().len(), 1);
    life.kill();
    // Where the lab is gone for good, it is scanned like any other.
    let life = joined(&folder, &lab, LabSettings::default()).await;
    life.send(submitted(), "script later").await;
    life.until(|_| lab.taken().len() == 2).await;
    life.spool.flush().await.unwrap();
    life.kill();
    let life = Life::new(&folder, Settings::default()).await;
    life.take_up();
    life.until(|life| life.sink.came().len() == 1).await;
}

#[tokio::test]
async fn the_deadline_passes_and_the_policy_decides() {
    for (on_late, silent) in [(OnLab::Quarantine, false), (OnLab::Pass, true)] {
        let (folder, lab) = (home(), Arc::<PlannedLab>::default());
        lab.silent.store(silent, Ordering::SeqCst);
        let settings = LabSettings { wait: Duration::from_millis(300), on_late, ..LabSettings::default() };
        let life = joined(&folder, &lab, settings).await;
        let alarms = Arc::<Mutex<Vec<Alarm>>>::default();
        let rung = Arc::clone(&alarms);
        life.alarms.connect(move |alarm| rung.lock().unwrap().push(alarm));
        life.send(submitted(), "script slow").await;
        let kept = kept(&life).await;
        match on_late {
            OnLab::Quarantine => {
                let (queue, reason) = &kept[0];
                assert_eq!(queue, "error");
                assert!(
                    reason.contains("no verdict on run.sh within 300 ms (sample 1: no machine is plugged in)"),
                    "{reason}"
                );
            }
            OnLab::Pass => {
                let added = life.sink.came()[0].1.added.clone();
                assert!(added.contains("lab: no verdict") && added.contains("nobody is there"), "{added}");
            }
        }
        let rung = alarms.lock().unwrap();
        assert!(rung.iter().any(|alarm| matches!(alarm, Alarm::LabSilent { waiting: 1, .. })), "{rung:?}");
        assert_eq!(life.stage.feeds_status().pending.unwrap().counts.undecided, 1);
    }
}

#[tokio::test]
async fn a_silence_that_is_over_is_not_told_any_more() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let life = joined(&folder, &lab, LabSettings::default()).await;
    life.send(submitted(), "script slow").await;
    life.until(|_| lab.taken().len() == 1).await;
    for silent in [true, false] {
        lab.silent.store(silent, Ordering::SeqCst);
        life.until(|life| life.stage.feeds_status().pending.unwrap().answers != silent).await;
        let said = waits(&life).await[0].recipients[0].last_answer.clone();
        assert_eq!(said.contains("(at the moment: nobody is there)"), silent, "{said}");
    }
}

#[tokio::test]
async fn what_is_too_much_does_not_wait() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let settings = LabSettings { messages_max: 1, sample_bytes_max: 15, ..LabSettings::default() };
    let life = joined(&folder, &lab, settings).await;
    let first = life.send(submitted(), "script one").await;
    life.until(|_| lab.taken().len() == 1).await;
    life.send(submitted(), "script two").await;
    life.send(submitted(), "script that is long").await;
    life.until(|life| life.spool.stats().messages == 1).await;
    let reasons: Vec<String> =
        life.rows().await.into_iter().map(|row| format!("{} {}", row.queue, row.reason)).collect();
    assert!(
        reasons.contains(&"error no verdict of the lab: 1 messages wait for the lab already".to_owned()),
        "{reasons:?}"
    );
    // What somebody deletes is gone, and there is room again.
    let selection = QueueSelection { messages: vec![first.to_string()], ..QueueSelection::default() };
    assert_eq!(life.stage.retry(&selection).await.unwrap(), [first.to_string()]);
    assert_eq!(life.stage.delete(&selection).await.unwrap().messages[0].message, first.to_string());
    assert_eq!((messages(&life), life.stage.feeds_status().pending.unwrap().bytes), (0, 0));
    life.settle().await;
    lab.ends("script three", LabVerdict::Clean);
    life.send(submitted(), "script three").await;
    life.until(|life| life.sink.came().len() == 1).await;
}

#[tokio::test]
async fn what_the_lab_once_said_is_told_to_who_asks_however_long_ago_it_was() {
    let (folder, lab) = (home(), Arc::<PlannedLab>::default());
    let settings = LabSettings { on_suspicious: OnLab::Quarantine, ..LabSettings::default() };
    let life = joined(&folder, &lab, settings).await;
    let cases = [
        (LabVerdict::Malicious, FileAnswer::Found("Weir.Lab.Malicious".to_owned())),
        (LabVerdict::Suspicious, FileAnswer::Found("Weir.Lab.Suspicious".to_owned())),
        (LabVerdict::Clean, FileAnswer::Clean),
    ];
    for (verdict, expected) in cases {
        let body = format!("script {verdict:?}");
        lab.ended(&body, verdict, 0);
        let content = Content::of(body.as_bytes()).unwrap();
        assert_eq!(life.stage.look_at(content, "postfix").await, expected);
    }
    assert!(lab.taken().is_empty(), "nothing is handed in for those who ask");
}
