//! Mail in quarantine: listed, decided, forgotten, and how much of it there may be.

use weir_store::records::*;

fn quarantined_row(message: &str, place: i64, queue: &str, at: i64) -> QuarantineRow {
    QuarantineRow {
        message: message.into(),
        place,
        relay: "r1".into(),
        queue: queue.into(),
        fate: Fate::Held,
        recipient: format!("to{place}@example.org"),
        sender: "eve@example.net".into(),
        subject: "caf\u{e9} \"quoted\" \\ \u{1f600}".into(),
        source: "192.0.2.1".into(),
        owner: String::new(),
        origin: "received".into(),
        size: 100,
        at,
        reason: "Eicar-Test".into(),
        decided_by: String::new(),
        release_to: String::new(),
    }
}

pub(super) async fn quarantined(records: Records) {
    let rows = [
        quarantined_row("m1", 0, "virus", 5),
        quarantined_row("m1", 1, "virus", 5),
        quarantined_row("m2", 0, "spam", 7),
        quarantined_row("m3", 4, "spam", 9),
    ];
    records.quarantine().add(&rows).await.unwrap();
    let again = QuarantineRow { reason: "another".into(), ..rows[0].clone() };
    records.quarantine().add(&[again]).await.unwrap();
    let list = async |filter: QuarantineFilter, most| {
        let list = records.quarantine().list(&filter, most).await.unwrap();
        list.rows.iter().map(|row| format!("{}/{}", row.message, row.place)).collect::<Vec<_>>()
    };
    assert_eq!(list(QuarantineFilter::default(), 9).await, ["m3/4", "m2/0", "m1/0", "m1/1"], "newest first");
    assert_eq!(list(QuarantineFilter::default(), 2).await, ["m3/4", "m2/0"]);
    let virus = QuarantineFilter { queue: "virus".into(), ..QuarantineFilter::default() };
    assert_eq!(list(virus.clone(), 1).await, ["m1/0", "m1/1"], "a message is not cut");
    let whole = records.quarantine().list(&virus, 1).await.unwrap();
    assert!(whole.rows == rows[..2] && !whole.more, "{whole:?}");
    assert!(records.quarantine().list(&QuarantineFilter::default(), 2).await.unwrap().more);
    let to = QuarantineFilter { recipient: "to0@example.org".into(), before: 7, ..QuarantineFilter::default() };
    assert_eq!(list(to, 9).await, ["m1/0"]);
    let with = |text: &str| QuarantineFilter { text: text.into(), ..QuarantineFilter::default() };
    assert_eq!(list(with("TO1@example"), 9).await, ["m1/0", "m1/1"], "one recipient chooses the whole message");
    assert_eq!(list(with("m3"), 9).await, ["m3/4"]);
    for nothing in ["%", "_", "!", "m_", "%m%"] {
        assert_eq!(list(with(nothing), 9).await, Vec::<String>::new(), "{nothing} is no pattern");
    }
    assert_eq!(records.quarantine().oldest("r1", "", 9).await.unwrap()[0], ("m1".to_owned(), 100, 5));
    let totals = records.quarantine().totals("").await.unwrap();
    let counted: Vec<_> = totals.iter().map(|t| (t.queue.as_str(), t.messages, t.bytes, t.oldest_at)).collect();
    assert_eq!(counted, [("spam", 2, 200, 7), ("virus", 1, 100, 5)]);
    let digest = async |relay, until, after| {
        let rows = records.quarantine().digest(relay, (7, until), after, 10).await.unwrap();
        rows.into_iter().map(|row| row.message).collect::<Vec<_>>()
    };
    assert_eq!(digest("r1", 9, "").await, ["m2"]);
    assert_eq!(digest("r1", 10, "to0@example.org").await, ["m3"], "page by page");
    assert!(digest("r2", 10, "").await.is_empty(), "each relay tells of what it keeps");
    let one = [("m1".to_owned(), 1)];
    assert_eq!(records.quarantine().decide(&one, Fate::Go, "cli:root").await.unwrap(), 1);
    assert_eq!(records.quarantine().decide(&one, Fate::Drop, "eve").await.unwrap(), 0, "decided once");
    let decided = records.quarantine().decided("r1", "", 9).await.unwrap();
    assert_eq!(decided.iter().map(|row| (row.place, row.decided_by.as_str())).collect::<Vec<_>>(), [(1, "cli:root")]);
    assert!(records.quarantine().decided("r2", "", 9).await.unwrap().is_empty());
    assert_eq!(records.quarantine().done("m1", &[0, 1]).await.unwrap(), 1, "what is kept stays");
    assert_eq!(list(virus, 9).await, ["m1/0"]);
    let mut messages = records.quarantine().messages("r1").await.unwrap();
    messages.sort();
    assert_eq!(messages, ["m1", "m2", "m3"]);
    let dropped = records.quarantine().remove(&["m1".to_owned(), "m2".to_owned()], "weir").await.unwrap();
    assert_eq!(dropped, 2);
    assert_eq!(list(QuarantineFilter::default(), 9).await, ["m3/4"]);
}

/// Thirty messages to seven hundred each: a list is bounded by its rows too.
pub(super) async fn viruses(records: Records) {
    let quarantine = records.quarantine();
    let row = |message: &str, place, at, reason: &str| QuarantineRow {
        reason: reason.into(),
        ..quarantined_row(message, place, "virus", at)
    };
    let rows = [
        row("m1", 0, 10, "Worm.A"),
        row("m1", 1, 10, "Worm.A"),
        row("m2", 0, 100, "Worm.A in a file.bin (yara)"),
        row("m3", 0, 101, "Worm.A in another in a zip.bin (clamav)"),
        row("m4", 0, 102, "it's <b>"),
        quarantined_row("m5", 0, "spam", 103),
    ];
    quarantine.add(&rows).await.unwrap();
    let counts = quarantine.viruses(100, 5, 5).await.unwrap();
    let counted: Vec<_> = counts.iter().map(|count| (count.name.as_str(), count.lately, count.day)).collect();
    assert_eq!(counted, [("Worm.A", 2, 3), ("it's <b>", 1, 1)]);
    assert_eq!(quarantine.viruses(100, 50, 1).await.unwrap().len(), 1);
    assert_eq!(quarantine.viruses(500, 500, 5).await.unwrap(), []);
}

pub(super) async fn quarantined_crowds(records: Records) {
    for message in 0..30 {
        let row = |place| quarantined_row(&format!("m{message:02}"), place, "virus", 100 - message);
        records.quarantine().add(&(0..700).map(row).collect::<Vec<_>>()).await.unwrap();
    }
    let list = records.quarantine().list(&QuarantineFilter::default(), 1_000).await.unwrap();
    assert_eq!((list.rows.len(), list.more), (28 * 700, true), "a message is not cut");
    let crowd: Vec<_> = (0..21_000).map(|place| quarantined_row("n", place, "spam", 200)).collect();
    records.quarantine().add(&crowd).await.unwrap();
    let list = records.quarantine().list(&QuarantineFilter::default(), 1_000).await.unwrap();
    assert_eq!((list.rows.len(), list.more), (20_000, true), "unless there is no other way");
}
