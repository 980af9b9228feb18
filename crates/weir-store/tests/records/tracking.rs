//! Message tracking on both databases.

use std::path::Path;
use std::time::Duration;
use weir_store::diary::{Diary, DiaryLine, Facts};
use weir_store::records::Records;
use weir_store::tracking::{MessageFilter, Tracking, TrackingLimits, TrackingParts};

const IDS: [&str; 4] = ["38exdmxn6hex5qydv000", "38exdmxn6hex5qydv001", "38exdmxn6hex5qydv002", "38exdmxn6hex5qydv003"];
const LIMITS: TrackingLimits = TrackingLimits { bytes_max: 1 << 30, age_max: Duration::from_secs(86_400 * 36_500) };

fn parts(records: &Records, folder: &Path, relay: &str, limits: TrackingLimits) -> TrackingParts {
    let diary_folder = folder.join(relay);
    TrackingParts {
        records: records.clone(),
        file: folder.join("tracking.db"),
        relay: relay.into(),
        diary: Diary::open(&diary_folder, 1 << 20).unwrap(),
        diary_folder,
        limits,
    }
}

fn facts(from: &str, to: &str, subject: &str) -> Facts {
    Facts {
        from: from.into(),
        to: vec![to.into()],
        subject: subject.into(),
        client: "192.0.2.7".into(),
        login: "ann".into(),
        size: 700,
        ..Facts::default()
    }
}

fn accepted(id: &str, subject: &str) -> DiaryLine {
    DiaryLine::new(id, "accepted", "").with(facts("ann@example.org", "bob@example.net", subject))
}

async fn found(tracking: &Tracking, filter: MessageFilter) -> Vec<String> {
    let found = tracking.search(&filter, 100).await.unwrap();
    assert!(!found.behind);
    found.messages.into_iter().map(|message| message.ids[0].clone()).collect()
}

fn words(text: &str) -> MessageFilter {
    MessageFilter { text: text.into(), ..MessageFilter::default() }
}

pub(crate) async fn found_by_all(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(&records, folder.path(), "one", LIMITS);
    let (diary, tracking) = (parts.diary.clone(), Tracking::new(parts.clone()));
    diary.note(accepted(IDS[0], "Größe der Rechnung").about(["<Name@x>"]));
    diary.note(DiaryLine::new(IDS[0], "held", "held: 1 of 1"));
    diary.note(accepted(IDS[1], "another"));
    assert_eq!(found(&tracking, words("held")).await, [IDS[0]]);
    diary.note(DiaryLine::new(IDS[2], "released", "goes").about([IDS[0]]));
    diary.note(
        DiaryLine::new(IDS[2], "scanned", "x").with(Facts { verdict: "infected Eicar".into(), ..Facts::default() }),
    );
    diary.note(DiaryLine::new(IDS[2], "delivered", "to <bob@example.net>: 250 ok"));
    diary.note(DiaryLine::new("", "lost", "3 lines came too fast, or could not be written"));
    let from = |text: &str| MessageFilter { from: text.into(), ..MessageFilter::default() };
    let fits = [
        (words("größe"), 1),
        (words("rech*"), 1),
        (words("example.net"), 2),
        (words("bob ann"), 2),
        (words("192.0.2.7"), 2),
        (words("192.0.*"), 2),
        (words("name@x"), 1),
        (words("held"), 0),
        (words("eicar delivered"), 1),
        (from("ann@example.org"), 2),
        (from("bob@example.net"), 0),
        (from("ann*"), 2),
        (MessageFilter { to: "@example.net".into(), subject: "another".into(), ..MessageFilter::default() }, 1),
        (MessageFilter { until: Some(1_000), ..MessageFilter::default() }, 0),
        (MessageFilter { since: Some(1_000), ..MessageFilter::default() }, 2),
        (MessageFilter { name: "<Name@x>".into(), ..MessageFilter::default() }, 1),
        (words("' | \" & ( ) : * \\ !"), 0),
    ];
    for (filter, count) in fits {
        assert_eq!(found(&tracking, filter.clone()).await.len(), count, "{filter:?}");
    }
    for id in [IDS[0], IDS[2]] {
        let (message, acts) = tracking.message(id).await.unwrap().unwrap();
        assert_eq!(
            (message.ids.as_slice(), message.state.as_str()),
            (&[IDS[0], IDS[2]].map(str::to_owned)[..], "delivered")
        );
        assert_eq!(
            acts.iter().map(|act| act.event.as_str()).collect::<Vec<_>>(),
            ["accepted", "held", "released", "scanned", "delivered"]
        );
        assert!(acts[0].text.contains("<ann@example.org> to <bob@example.net>"), "{}", acts[0].text);
    }
    assert_eq!(tracking.unknown(&IDS.map(str::to_owned)).await.unwrap(), [IDS[3]]);
    // Another process on the same tables goes on where the first was.
    tracking.close().await;
    diary.note(accepted(IDS[3], "after"));
    let again = Tracking::new(parts);
    assert_eq!(found(&again, words("ann")).await, [IDS[3], IDS[1], IDS[0]]);
}

pub(crate) async fn pages(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(&records, folder.path(), "one", LIMITS);
    let (diary, tracking) = (parts.diary.clone(), Tracking::new(parts));
    // More in one millisecond than it has places: nobody takes the place of another.
    let at = 1_794_715_200_000_000_000;
    for number in 0..300 {
        diary.note(accepted(&format!("38exdmxn6hex5qyd0{number:03}"), "many").at(at));
    }
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let filter = MessageFilter { before, ..words("many") };
        let page = tracking.search(&filter, 90).await.unwrap();
        before = page.messages.last().map(|message| message.place);
        all.extend(page.messages.into_iter().map(|message| message.ids[0].clone()));
        if !page.more {
            break;
        }
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 300);
}

pub(crate) async fn forgotten(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let limits = TrackingLimits { age_max: Duration::from_secs(3_600), ..LIMITS };
    let parts = parts(&records, folder.path(), "one", limits);
    let (diary, tracking) = (parts.diary.clone(), Tracking::new(parts));
    let now = DiaryLine::new("x", "y", "").at as u64;
    diary.note(accepted(IDS[0], "old").at(now - 7_200_000_000_000));
    diary.note(accepted(IDS[1], "young").at(now - 60_000_000_000));
    assert_eq!(found(&tracking, words("ann")).await, [IDS[1], IDS[0]]);
    let running = tokio::spawn(tracking.clone().run());
    while found(&tracking, words("ann")).await.len() > 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(found(&tracking, words("old")).await, Vec::<String>::new());
    assert!(tracking.message(IDS[0]).await.unwrap().is_none());
    running.abort();
}

/// A mail to a thousand takes a hundred times as much as one to two, and the bound is one of octets.
pub(crate) async fn mails_to_many_are_bounded(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let limits = TrackingLimits { bytes_max: 2 << 20, ..LIMITS };
    let parts = TrackingParts {
        diary: Diary::open(&folder.path().join("one"), 16 << 20).unwrap(),
        ..parts(&records, folder.path(), "one", limits)
    };
    let (diary, tracking) = (parts.diary.clone(), Tracking::new(parts));
    assert!(tracking.octets().await.unwrap() < 1 << 20);
    for number in 0..120_u64 {
        let to = (0..1_000).map(|to| format!("r{to}.{}@d{number}.example.net", to * 7_919 % 1_000)).collect();
        let facts = Facts { to, recipients: 1_000, ..facts("ann@example.org", "", &format!("subject{number}")) };
        let id = format!("38exdmxn6hex5q{number:06}");
        let line = DiaryLine::new(&id, "accepted", "").with(facts);
        diary.note(line.at(1_794_715_200_000_000_000 + number * 1_000_000));
    }
    diary.settle();
    let newest = ["38exdmxn6hex5q000119"];
    let first = async || tracking.search(&MessageFilter::default(), 1).await.unwrap().messages.remove(0).ids;
    for _ in 0..60 {
        if first().await == newest {
            break;
        }
    }
    let octets = tracking.octets().await.unwrap();
    assert!(octets > limits.bytes_max && octets < 60 << 20, "{octets}");
    let running = tokio::spawn(tracking.clone().run());
    while tracking.octets().await.unwrap() > limits.bytes_max {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.abort();
}

/// The tables are those of one folder; or of all relays, if these share their records.
pub(crate) async fn relays_find_each_other(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|relay| parts(&records, folder.path(), relay, LIMITS));
    one.diary.note(accepted(IDS[0], "first").at(1_794_715_200_000_000_000));
    two.diary.note(accepted(IDS[1], "second").at(1_794_715_200_000_000_000));
    let [one, two] = [one, two].map(Tracking::new);
    assert_eq!(found(&one, words("ann")).await.len(), 1);
    assert_eq!(found(&two, words("ann")).await.len(), 2);
    assert_eq!(found(&one, words("second")).await, [IDS[1]]);
}

#[tokio::test]
async fn the_file_stays_within_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
    let limits = TrackingLimits { bytes_max: 1 << 20, ..LIMITS };
    let parts = TrackingParts {
        diary: Diary::open(&folder.path().join("one"), 16 << 20).unwrap(),
        ..parts(&records, folder.path(), "one", limits)
    };
    let (diary, tracking) = (parts.diary.clone(), Tracking::new(parts));
    for number in 0..4_000_u64 {
        let id = format!("38exdmxn6hex5q{number:06}");
        diary.note(
            accepted(&id, &format!("subject{number} {}", "word ".repeat(20)))
                .at(1_794_715_200_000_000_000 + number * 1_000_000),
        );
        if number % 500 == 0 {
            diary.settle();
        }
    }
    let newest = MessageFilter::default();
    // A search waits two seconds for the diary at most, and a starved machine may need longer to write all this.
    for _ in 0..60 {
        if tracking.search(&newest, 1).await.unwrap().messages[0].ids == ["38exdmxn6hex5q003999"] {
            break;
        }
    }
    assert_eq!(tracking.search(&newest, 1).await.unwrap().messages[0].ids, ["38exdmxn6hex5q003999"]);
    assert!(tracking.octets().await.unwrap() > limits.bytes_max, "the test must have something to do");
    let running = tokio::spawn(tracking.clone().run());
    while tracking.octets().await.unwrap() > limits.bytes_max {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        tracking.search(&newest, 1).await.unwrap().messages[0].ids,
        ["38exdmxn6hex5q003999"],
        "the oldest go first"
    );
    assert!(found(&tracking, words("subject3")).await.is_empty());
    running.abort();
}
