//! Whom users have written to: packs that several may change, letters that make room for each other, and what they cost on a disk.

use std::collections::BTreeSet;
use weir_store::records::*;

pub(crate) async fn packs(records: Records) {
    let memory = records.correspondents();
    let named = |pack: i64| ("ann".to_owned(), pack);
    memory
        .change(&[named(0)], |found| {
            assert!(found.is_empty());
            Packs::from([(named(0), vec![0, 255, 10]), (named(7), Vec::new())])
        })
        .await
        .unwrap();
    memory
        .change(&[named(0), named(1), named(7)], |mut found| {
            assert_eq!(found.remove(&named(7)), Some(Vec::new()), "an empty pack is there all the same");
            found.get_mut(&named(0)).unwrap().push(99);
            found
        })
        .await
        .unwrap();
    memory.change(&[("bob".to_owned(), 0)], |found| found).await.unwrap();
    assert_eq!((memory.octets("ann").await.unwrap(), memory.octets("bob").await.unwrap()), (4, 0));
    memory.open_letters(&["ann@example.org".to_owned()]).await.unwrap();
    memory.open_letters(&["ann@example.org".to_owned()]).await.unwrap();
    for letter in ["aaaa", "bbbb", "aaaa", "cccc"] {
        memory.add_letter("ann@example.org", letter, 8).await.unwrap();
        memory.add_letter("nobody@example.org", letter, 8).await.unwrap();
    }
    let asked = PastMailAsked {
        packs: vec![named(0), named(1)],
        addresses: vec!["ann@example.org".into(), "nobody@example.org".into()],
    };
    let (throttles, ann) = (records.throttles(), ["ann".to_owned()]);
    let found = throttles.decide_knowing(&ann, &asked, |rows, found| {
        assert_eq!(rows.len(), 1, "rows of other tables are not throttles");
        (Changes::default(), found.clone())
    });
    let found = found.await.unwrap();
    assert_eq!(found.packs, Packs::from([(named(0), vec![0, 255, 10, 99])]));
    assert_eq!(found.letters.into_iter().collect::<Vec<_>>(), [("ann@example.org".to_owned(), "ccccaaaa".to_owned())]);
}

pub(crate) async fn many_relays(records: Records) {
    let names: Vec<String> = vec!["ann".into(), "bob".into()];
    // On PostgreSQL the throttle's row is what is locked.
    records.throttles().decide(&names, |_| (Changes::default(), ())).await.unwrap();
    let tasks: Vec<_> = (0..8u8)
        .map(|relay| {
            let (records, names) = (records.clone(), names.clone());
            tokio::spawn(async move {
                for n in 0..10 {
                    let asked: Vec<PackName> = names.iter().map(|name| (name.clone(), 0)).collect();
                    let push = |mut found: Packs| {
                        asked.iter().for_each(|name| found.entry(name.clone()).or_default().push(relay * 10 + n));
                        found
                    };
                    records.correspondents().change(&asked, push).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let asked = PastMailAsked { packs: vec![("ann".into(), 0), ("bob".into(), 0)], addresses: Vec::new() };
    let throttles = records.throttles();
    let found = throttles.decide_knowing(&names, &asked, |_, found| (Changes::default(), found.clone())).await.unwrap();
    for entries in found.packs.values() {
        assert_eq!(entries.iter().collect::<BTreeSet<_>>().len(), 80, "somebody's change is lost");
    }
}

/// Two thousand correspondents each, as the throttle packs them, who come one after the other as they do in life.
#[tokio::test]
async fn a_correspondent_takes_at_most_sixteen_octets_on_the_disk() {
    const USERS: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.db");
    let records = Records::sqlite(&file).await.unwrap();
    let before = std::fs::metadata(&file).unwrap().len();
    for part in 1..=7 {
        for user in 0..USERS {
            let owner = format!("user{:04}@example.org", user * 7_919 % USERS);
            let packs = (1..=32).map(|pack| ((owner.clone(), pack), vec![part as u8; part * 9 * 8])).collect();
            records.correspondents().change(&[], |_| packs).await.unwrap();
        }
    }
    records.close().await;
    let octets = std::fs::metadata(&file).unwrap().len() - before;
    let each = octets as f64 / (USERS * 32 * 63) as f64;
    eprintln!("{each:.1} octets a correspondent on the disk");
    assert!(each <= 16.0, "{each}");
}
