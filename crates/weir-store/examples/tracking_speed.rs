//! A million messages tracked: how long the diary takes to be read, how many octets a message takes, how long a search takes.
//! `tracking_speed [MESSAGES]`. Run it with `--release`.
#![allow(clippy::print_stdout)]

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_store::diary::{Diary, DiaryLine, Facts};
use weir_store::records::Records;
use weir_store::tracking::{MessageFilter, Tracking, TrackingLimits, TrackingParts};

/// Of the first message, in nanoseconds; each comes 30 ms after the one before.
const FIRST: u64 = 1_794_715_200_000_000_000;
const EVERY: u64 = 30_000_000;
const WORDS: [&str; 16] = [
    "invoice",
    "meeting",
    "report",
    "offer",
    "your",
    "order",
    "delivery",
    "re",
    "fwd",
    "minutes",
    "figures",
    "holiday",
    "contract",
    "please",
    "question",
    "newsletter",
];

fn main() {
    let messages = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(measured(messages));
}

async fn measured(messages: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let diary_folder = folder.path().join("diary");
    std::fs::create_dir(&diary_folder).expect("a folder");
    let written = write_diary(&diary_folder, messages);
    println!("figure {messages} messages, {} octets of diary a message", written / messages);

    let tracking = tracking(folder.path(), &diary_folder).await;
    let begun = Instant::now();
    while !tracking.catch_up(Duration::from_secs(3_600)).await.expect("it reads the diary") {}
    let took = begun.elapsed();
    println!("figure read from nothing in {took:.1?}: {:.0} messages/s", messages as f64 / took.as_secs_f64());
    let octets = tracking.octets().await.expect("a database");
    println!("figure {} octets a message, with indexes", octets / messages);

    tracking.close().await;
    drop(tracking);
    let again = self::tracking(folder.path(), &diary_folder).await;
    let begun = Instant::now();
    again.catch_up(Duration::from_secs(3_600)).await.expect("it reads the diary");
    println!("figure found again after a restart in {:.1?}", begun.elapsed());
    for (name, filter) in questions(messages) {
        search(&again, name, filter).await;
    }
}

async fn tracking(folder: &Path, diary_folder: &Path) -> Tracking {
    Tracking::new(TrackingParts {
        records: Records::sqlite(&folder.join("records.db")).await.expect("records"),
        file: folder.join("tracking.db"),
        relay: "here".into(),
        diary: Diary::default(),
        diary_folder: diary_folder.to_owned(),
        limits: TrackingLimits { bytes_max: u64::MAX, age_max: Duration::MAX },
    })
}

/// A hundred searches of one kind.
async fn search(tracking: &Tracking, name: &str, filter: impl Fn(u64) -> MessageFilter) {
    let (mut times, mut found) = (Vec::new(), 0);
    for round in 0..100 {
        let filter = filter(round);
        let begun = Instant::now();
        found += tracking.search(&filter, 50).await.expect("it answers").messages.len();
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "figure search {name:<32} median {:>9.2?}  p95 {:>9.2?}  longest {:>9.2?}  ({found} found)",
        times[50], times[95], times[99]
    );
}

type Asked = Box<dyn Fn(u64) -> MessageFilter>;

fn questions(messages: u64) -> Vec<(&'static str, Asked)> {
    let any = move |round: u64| round * 7_919 * 9_973 % messages;
    vec![
        ("one sender", Box::new(move |n| MessageFilter { from: sender(any(n)), ..MessageFilter::default() })),
        ("one recipient", Box::new(move |n| MessageFilter { to: recipient(any(n)), ..MessageFilter::default() })),
        (
            "a recipient's domain",
            Box::new(move |n| MessageFilter { to: format!("@{}", domain(any(n))), ..MessageFilter::default() }),
        ),
        (
            "a word of the subject",
            Box::new(move |n| MessageFilter { subject: WORDS[n as usize % 16].into(), ..MessageFilter::default() }),
        ),
        (
            "a number in the subject",
            Box::new(move |n| MessageFilter { subject: any(n).to_string(), ..MessageFilter::default() }),
        ),
        (
            "the beginning of a number",
            Box::new(move |n| MessageFilter { subject: format!("{}*", any(n) / 1_000), ..MessageFilter::default() }),
        ),
        (
            "sender and word",
            Box::new(move |n| MessageFilter {
                from: sender(any(n)),
                subject: WORDS[n as usize % 16].into(),
                ..MessageFilter::default()
            }),
        ),
        (
            "infected, and a word",
            Box::new(move |n| MessageFilter {
                verdict: "infected".into(),
                subject: WORDS[n as usize % 16].into(),
                ..MessageFilter::default()
            }),
        ),
        ("any field", Box::new(move |n| MessageFilter { text: recipient(any(n)), ..MessageFilter::default() })),
        (
            "any field, a common word",
            Box::new(move |n| MessageFilter { text: WORDS[n as usize % 16].into(), ..MessageFilter::default() }),
        ),
        ("an hour", Box::new(move |n| at(any(n)))),
        (
            "an hour and a common word",
            Box::new(move |n| MessageFilter { text: WORDS[n as usize % 16].into(), ..at(any(n)) }),
        ),
        (
            "nothing fits",
            Box::new(move |n| MessageFilter { text: format!("nobody{n}@nowhere.example"), ..MessageFilter::default() }),
        ),
        (
            "common words that never meet",
            Box::new(move |_| MessageFilter { from: sender(1), to: recipient(2), ..MessageFilter::default() }),
        ),
    ]
}

fn at(number: u64) -> MessageFilter {
    let since = i64::try_from(FIRST + number * EVERY).expect("a time");
    MessageFilter { since: Some(since), until: Some(since + 3_600_000_000_000), ..MessageFilter::default() }
}

fn sender(number: u64) -> String {
    format!("user{}@example.org", number % 2_000)
}

fn domain(number: u64) -> String {
    format!("customer{}.example", number % 5_000)
}

fn recipient(number: u64) -> String {
    format!("person{}@{}", number % 40_000, domain(number))
}

/// The lines of messages as the mail gate writes them, in one file.
fn write_diary(folder: &Path, messages: u64) -> u64 {
    let file = std::fs::File::create(folder.join("0000000001.jsonl")).expect("a file");
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    let mut octets = 0;
    for number in 0..messages {
        for line in lines(number) {
            let mut text = serde_json::to_vec(&line).expect("JSON");
            text.push(b'\n');
            octets += text.len() as u64;
            out.write_all(&text).expect("room");
        }
    }
    out.flush().expect("room");
    octets
}

fn lines(number: u64) -> Vec<DiaryLine> {
    let (id, at) = (format!("38exdmxn6h{number:010}"), FIRST + number * EVERY);
    let word = |step: u64| WORDS[(number / step % 16) as usize];
    let facts = Facts {
        from: sender(number),
        to: vec![recipient(number)],
        recipients: 1,
        subject: format!("{} {} {} {number}", word(1), word(16), word(256)),
        size: 4_000 + number % 9_000,
        client: format!("192.0.2.{}", number % 250),
        login: format!("user{}", number % 2_000),
        gate: "submission".into(),
        ..Facts::default()
    };
    let verdict = if number.is_multiple_of(1_000) { "infected Eicar-Test-Signature" } else { "clean" };
    let scanned = Facts { feed: "1".into(), verdict: verdict.into(), ..Facts::default() };
    let mx = Facts { destination: format!("mx1.{}", domain(number)), ..Facts::default() };
    let said = format!("to <{}>: 250 2.0.0 Ok: queued as 4bN{number:08x} (mx1.{})", recipient(number), domain(number));
    vec![
        DiaryLine::new(&id, "accepted", "").with(facts).about([format!("<{id}.{number}@example.org>")]).at(at),
        DiaryLine::new(&id, "let-go", "accepted, on its way to 1 recipient").at(at + 2_000_000),
        DiaryLine::new(&id, "scanned", "feed 1: waited 0.000 s, scanned in 0.043 s: clean (clamd); clean (yara)")
            .with(scanned)
            .at(at + 45_000_000),
        DiaryLine::new(&id, "delivered", said).with(mx).at(at + 300_000_000),
    ]
}
