//! Incidents on both databases.

use weir_store::records::{IncidentRow, Records};

fn row(relay: &str, scope: &str, subject: &str) -> IncidentRow {
    IncidentRow {
        scope: scope.into(),
        relay: relay.into(),
        kind: "stopped".into(),
        subject: subject.into(),
        title: "Account stopped".into(),
        opened_s: 100,
        seen_s: 100,
        story: "{}".into(),
        ..IncidentRow::default()
    }
}

pub(crate) async fn kept_until_over(records: Records) {
    let incidents = records.incidents();
    let mut ann = row("one", "", "ann<script>'");
    ann.id = incidents.open(&ann).await.unwrap().expect("it is the first");
    assert_eq!(incidents.open(&row("two", "", "ann<script>'")).await.unwrap(), None, "another relay was slower");
    let bob = incidents.open(&row("one", "", "bob")).await.unwrap().expect("another subject");
    assert!(incidents.open(&row("two", "two", "bob")).await.unwrap().is_some(), "of one relay alone");
    assert_eq!(incidents.open_now(2).await.unwrap().1, 3);
    ann.closed_s = Some(150);
    ann.story = "{\"lines\":[]}".into();
    assert!(incidents.save(&ann).await.unwrap());
    assert_eq!(incidents.find(ann.id).await.unwrap().as_ref(), Some(&ann));
    assert!(!incidents.save(&IncidentRow { relay: "two".into(), ..ann.clone() }).await.unwrap(), "it is not theirs");
    let (open, count) = incidents.open_now(10).await.unwrap();
    assert_eq!((open[0].id, count), (bob, 2));
    assert_eq!(incidents.newest(10).await.unwrap().last().map(|row| row.id), Some(ann.id), "open ones come first");
    assert_eq!(incidents.since(151, 10).await.unwrap().len(), 2);
    assert_eq!(incidents.of_relay("one", 140).await.unwrap().len(), 2);
    assert_eq!(incidents.of_relay("one", 151).await.unwrap().len(), 1);
    // When it is over, the same may happen again.
    assert!(incidents.open(&row("two", "", "ann<script>'")).await.unwrap().is_some());
    assert_eq!(incidents.find(999).await.unwrap(), None);
}

pub(crate) async fn bounded(records: Records) {
    let incidents = records.incidents().keeping(20);
    let first = incidents.open(&row("one", "", "stays open")).await.unwrap().unwrap();
    for number in 0..60 {
        let mut row = row("one", "", &format!("s{number}"));
        row.id = incidents.open(&row).await.unwrap().unwrap();
        row.closed_s = Some(200);
        incidents.save(&row).await.unwrap();
    }
    let kept = incidents.newest(10_000).await.unwrap();
    assert!((18..=23).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept[0].id, first, "what is open stays, however old it is");
}

pub(crate) async fn taken_over(records: Records) {
    let incidents = records.incidents();
    let site = incidents.open(&row("one", "", "ann")).await.unwrap().unwrap();
    let own = incidents.open(&row("one", "one", "disk")).await.unwrap().unwrap();
    assert_eq!(incidents.take_over("two", 200, 100).await.unwrap(), 0, "it was written a moment ago");
    assert_eq!(incidents.take_over("two", 500, 300).await.unwrap(), 1);
    assert_eq!(incidents.of_relay("two", 0).await.unwrap()[0].id, site);
    assert_eq!(incidents.of_relay("one", 0).await.unwrap()[0].id, own, "its disk is its own");
    assert_eq!(incidents.end_forgotten("one", 400).await.unwrap(), 0, "it sees by itself whether its own are over");
    assert_eq!(incidents.end_forgotten("two", 400).await.unwrap(), 1);
    assert_eq!(incidents.find(own).await.unwrap().unwrap().closed_s, Some(100), "when it was last seen");
}
