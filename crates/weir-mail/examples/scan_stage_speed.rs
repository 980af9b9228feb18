//! How fast letters pass the scan stage with a scanner that costs nothing, and what waiting letters take in memory.
//!
//! `cargo run --release -p weir-mail --example scan_stage_speed -- [MESSAGES] [OCTETS]`. Spooling is done before the clock starts;
//! reading, hashing, marks, passing on and finishing count.
#![allow(clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant as Moment};
use weir_mail::alarms::Alarms;
use weir_mail::letter::{Letter, LetterOrigin, LetterTo};
use weir_mail::pipeline::{Pipeline, Stage, Transit};
use weir_mail::scan::{Inspector, Scanning, Settings, Setup, Site};
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::verdict::{Finding, Outcome, Verdict};
use weir_smtp::envelope::{Envelope, MailFrom};
use weir_store::records::Records;
use weir_store::spool::{MessageId, Options, Spool};

struct Free;

impl Inspect for Free {
    async fn inspect(&self, _: &Content, _: &Arc<About>) -> Verdict {
        let finding =
            Finding { scanner: "free".into(), outcome: Outcome::Clean, place: String::new(), took: Duration::ZERO };
        Verdict { findings: vec![finding], ..Verdict::default() }
    }
}

struct Sink(Spool);

impl Stage for Sink {
    fn take(&self, letter: Transit) -> Option<Transit> {
        let _ = self.0.finish(letter.id);
        None
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let (messages, octets) = (numbers.next().unwrap_or(50_000), numbers.next().unwrap_or(4096));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(messages, octets));
}

async fn run(messages: usize, octets: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (spool, _) = Spool::open(folder.path().join("spool"), Options::default()).expect("the spool opens");
    let records = Records::sqlite(&folder.path().join("records.db")).await.expect("records");
    let quarantine = folder.path().join("quarantine");
    std::fs::create_dir(&quarantine).expect("a folder");
    let site = Site { spool: spool.clone(), records, relay: "r1".into(), folder: folder.path().to_owned(), quarantine };
    let inspectors: Vec<Arc<dyn Inspector>> = vec![Arc::new(Free)];
    let settings = Settings { auto_tune: false, ..Settings::default() };
    let next = Pipeline::ending_in(Sink(spool.clone()));
    let setup = Setup { settings, inspectors, lab: None, site };
    let stage = Scanning::start(setup, next.clone(), Alarms::default()).expect("the stage starts");
    let pipeline = next.preceded_by(stage);
    let letters = spooled(&spool, messages, octets).await;
    let (before, start) = (resident_kib(), Moment::now());
    for (id, letter) in letters {
        pipeline.send(Transit { id, letter, places: vec![0] });
    }
    let (sent, waiting, most) = (start.elapsed(), spool.stats().messages, resident_kib());
    while spool.stats().messages > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = start.elapsed().as_secs_f64();
    println!("{messages} letters of {octets} octets: {:.0} a second", messages as f64 / took);
    println!(
        "handed in within {sent:?}; {waiting} waited then, with {} KiB more than before",
        most.saturating_sub(before)
    );
    pipeline.stop(Duration::from_secs(5)).await;
}

async fn spooled(spool: &Spool, messages: usize, octets: usize) -> Vec<(MessageId, Arc<Letter>)> {
    let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), ..Envelope::default() };
    let body: Arc<[u8]> = vec![b'x'; octets].into();
    let mut letters = Vec::new();
    for bunch in 0..messages.div_ceil(100) {
        let mut writing = tokio::task::JoinSet::new();
        for number in bunch * 100..messages.min(bunch * 100 + 100) {
            let mut letter =
                Letter::new(&envelope, LetterOrigin::Submitted, &format!("user{}", number % 50), "192.0.2.1", 1);
            letter.to = vec![LetterTo { address: "bob@example.org".into(), notify: None, orcpt: None }];
            let (spool, body) = (spool.clone(), Arc::clone(&body));
            writing.spawn(async move {
                let mut draft = spool.draft().expect("a draft");
                draft.write(&body).await.expect("it is written");
                (draft.commit(letter.write()).await.expect("it is durable"), Arc::new(letter))
            });
        }
        letters.extend(writing.join_all().await);
    }
    letters
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
