//! Tests of quarantined mail: taken in, released, deleted, and found again after a kill.

use super::*;
use crate::letter::{Allowed, Client, LetterPart};
use weir_store::diary::lines_about;
use weir_store::records::Fate;

#[tokio::test]
async fn what_is_released_goes_once_unscanned_and_says_so() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let virus = life.send(submitted(), "virus body").await.to_string();
    life.settle().await;
    life.records.quarantine().decide(&[(virus.clone(), 1)], Fate::Go, "cli:root").await.unwrap();
    life.stage.wake();
    life.until(|life| !life.sink.came().is_empty()).await;
    let (_, letter, places) = life.sink.came()[0].clone();
    assert_eq!((places, letter.to[0].address.as_str()), (vec![0], "to1@example.net"));
    assert!(
        letter.added.starts_with(
            "X-Weir-Scan: localhost; released from quarantine/virus by cli:root (infected: Eicar (plan)); "
        ),
        "{}",
        letter.added
    );
    // The letter as the spool would have it after a kill, while its row is still there.
    let again = life.commit(&letter, "virus body").await;
    let transit = Transit { id: again, letter: Arc::clone(&letter), places: vec![0] };
    life.pipeline.resume(transit, &Marks::default());
    assert_eq!(life.sink.came().len(), 2, "it is not scanned again");
    life.records.quarantine().decide(&[(virus.clone(), 0)], Fate::Drop, "cli:root").await.unwrap();
    life.stage.wake();
    let file = folder.path().join(format!("quarantine/{virus}.eml"));
    life.until(|_| !file.exists()).await;
    assert_eq!((life.rows().await.len(), life.sink.came().len(), life.plan.seen().len()), (0, 2, 1));
    life.pipeline.stop(Duration::from_secs(5)).await;
}

/// Otherwise nobody could tell from the lines whether any of it still waits.
#[tokio::test]
async fn the_diary_is_told_how_many_leave_and_how_many_go_on() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let virus = life.send(letter(LetterOrigin::Submitted, "ann", 3), "virus body").await.to_string();
    life.settle().await;
    let two = [(virus.clone(), 0), (virus.clone(), 1)];
    life.records.quarantine().decide_for(&two, Fate::Go, "cli:root", "boss@example.org").await.unwrap();
    life.stage.wake();
    life.until(|life| life.sink.came().len() == 1).await;
    life.spool.diary().settle();
    let lines = lines_about(&folder.path().join("diary"), &[virus]).unwrap();
    let freed = lines.iter().find(|line| line.event == "freed").and_then(|line| line.facts.as_ref()).unwrap();
    assert_eq!((freed.concerns, freed.recipients), (2, 1));
    life.pipeline.stop(Duration::from_secs(5)).await;
}

/// The spool has the letter as it was accepted. What the stages before the scan have found out since then must not be lost in a flood.
#[tokio::test]
async fn a_letter_that_waits_as_a_name_keeps_what_is_known_of_its_sender() {
    let folder = home();
    let plan = Planned { t0_ts_s: (30.0, 0.0), ..Planned::default() };
    let life = Life::with(&folder, Settings::default(), plan).await;
    for _ in 0..LETTERS_MAX {
        life.send(letter(LetterOrigin::Submitted, "flood", 1), "clean body").await;
    }
    let listed = |confirmed| Some(Allowed { by: "example.org".into(), domain: "example.org".into(), confirmed });
    let relayed = || Letter { allowed: listed(false), ..letter(LetterOrigin::Received, "192.0.2.0/24", 1) };
    let mut sent = Vec::new();
    for found in [listed(true), None] {
        let id = life.commit(&relayed(), "spam body").await;
        life.pipeline.send(Transit::to_all(id, relayed()).allowed(found));
        sent.push(id);
    }
    let of_sent = |waiting: &&WaitingLetter| sent.contains(&waiting.id) && waiting.letter.is_none();
    assert_eq!(life.stage.shared.state().letters.values().filter(of_sent).count(), 2, "they wait as names");
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    in_real_time(life.settle()).await;
    let rows = in_real_time(life.rows()).await;
    assert!(life.sink.came().iter().any(|(id, ..)| *id == sent[0]), "it is who it says: {rows:?}");
    assert_eq!(rows.iter().map(|row| row.message.as_str()).collect::<Vec<_>>(), [sent[1].to_string()]);
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_release_that_a_kill_interrupted_is_not_sent_twice() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let virus = life.send(submitted(), "virus body").await.to_string();
    life.settle().await;
    // The letter is in the spool, and the row still says that it must go there.
    let mut released = letter(LetterOrigin::Released, "ann", 2);
    released.cleared = Some(LetterPart { of: virus.clone(), places: vec![0, 1] });
    life.commit(&released, "virus body").await;
    life.stage.shared.break_off();
    life.records.quarantine().decide(&[(virus.clone(), 0), (virus.clone(), 1)], Fate::Go, "cli:root").await.unwrap();
    life.kill();
    let life = Life::new(&folder, Settings::default()).await;
    // Decisions wait for the letters of the last life, however long these take.
    life.stage.wake();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(life.sink.came().is_empty());
    life.take_up();
    let file = folder.path().join(format!("quarantine/{virus}.eml"));
    life.until(|_| !file.exists()).await;
    assert_eq!(life.sink.came().len(), 1);
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn mail_from_outside_is_still_that_when_it_is_released() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let client = Some(Client { address: "192.0.2.1".parse().unwrap(), helo: "mail.example".into() });
    let received = Letter { client, at: 1, ..letter(LetterOrigin::Received, "192.0.2.0/24", 1) };
    let now = wall_clock().0;
    for letter in [received, Letter { at: 1, ..letter(LetterOrigin::Submitted, "ann", 1) }] {
        let id = life.send(letter, "virus body").await.to_string();
        life.settle().await;
        life.records.quarantine().decide(&[(id, 0)], Fate::Go, "cli:root").await.unwrap();
    }
    life.stage.wake();
    life.until(|life| life.sink.came().len() == 2).await;
    let origins: BTreeMap<String, LetterOrigin> =
        life.sink.came().iter().map(|(_, letter, _)| (letter.owner.clone(), letter.origin)).collect();
    assert_eq!(origins["192.0.2.0/24"], LetterOrigin::Received, "it is not ours to sign");
    assert_eq!(origins["ann"], LetterOrigin::Released);
    let came = life.sink.came();
    assert!(came.iter().all(|(_, letter, _)| letter.client.is_none()), "it is not evaluated a second time");
    assert!(came.iter().all(|(_, letter, _)| letter.at >= now), "its time to be delivered begins now");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn mail_with_rows_leaves_the_spool_and_files_without_are_set_aside_at_start() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let virus = life.send(submitted(), "virus body").await;
    life.settle().await;
    let row = life.rows().await.remove(0);
    // As after a kill between the rows and the last word to the spool.
    let again = life.commit(&submitted(), "virus body").await;
    let store = folder.path().join("quarantine");
    for kind in ["eml", "json"] {
        std::fs::copy(store.join(format!("{virus}.{kind}")), store.join(format!("{again}.{kind}"))).unwrap();
    }
    life.records.quarantine().add(&[QuarantineRow { message: again.to_string(), ..row }]).await.unwrap();
    // And files that nobody knows of.
    let stray = "38exdmxn6hex5qydvved";
    std::fs::write(store.join(format!("{stray}.eml")), "?").unwrap();
    life.kill();
    let life = Life::new(&folder, Settings::default()).await;
    assert!(!life.spool.contains(again));
    life.take_up();
    life.settle().await;
    assert!(life.plan.seen().is_empty() && life.sink.came().is_empty(), "it is not scanned again");
    assert_eq!(life.rows().await.len(), 3);
    assert!(store.join(format!("{again}.eml")).exists() && !store.join(format!("{stray}.eml")).exists());
    assert!(store.join(format!("unclaimed/{stray}.eml")).exists());
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn mail_that_cannot_be_kept_yet_keeps_no_other_waiting() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    // One whose letter nobody can read, one whose file cannot be written yet.
    let mut draft = life.spool.draft().unwrap();
    draft.write(b"virus body").await.unwrap();
    let unreadable = draft.commit(b"no letter".to_vec()).await.unwrap();
    let mut waiting = WaitingLetter::new(Transit::to_all(unreadable, submitted()));
    waiting.forget_letter();
    let (reason, detail, at) = ("why".to_owned(), String::new(), life.stage.shared.now());
    let queue = QuarantineQueue::Error;
    life.stage.shared.quarantine.keep_now(quarantine::QuarantinedLetter {
        waiting,
        queue,
        reason,
        detail,
        at,
        failures: 0,
        _room: None,
    });
    let blocked = life.commit(&submitted(), "virus body").await;
    let in_its_way = folder.path().join(format!("quarantine/{blocked}.eml"));
    std::fs::create_dir_all(in_its_way.join("x")).unwrap();
    life.pipeline.send(Transit::to_all(blocked, submitted()));
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(life.send(submitted(), "virus body").await.to_string());
    }
    let messages = async || life.rows().await.into_iter().map(|row| row.message).collect::<BTreeSet<_>>();
    while messages().await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(messages().await, kept.iter().cloned().collect());
    assert!(life.spool.contains(unreadable) && life.spool.contains(blocked), "they stay in the spool");
    std::fs::remove_dir_all(&in_its_way).unwrap();
    life.until(|life| !life.spool.contains(blocked)).await;
    assert!(messages().await.contains(&blocked.to_string()));
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn many_recipients_and_strange_names_are_written_down() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    for _ in 0..4 {
        life.send(letter(LetterOrigin::Submitted, "ann", 700), "virus body").await;
    }
    let odd = life.send(submitted(), "odd body").await;
    life.settle().await;
    let rows = life.rows().await;
    assert_eq!(rows.len(), 4 * 700 + 2);
    let reason = &rows.iter().find(|row| row.message == odd.to_string()).unwrap().reason;
    assert_eq!(reason, "infected: a?b??c (plan)");
    let trail = life.records.audit().trail(&odd.to_string(), 9).await.unwrap();
    assert!(trail[0].detail.ends_with("infected: a?b??c (plan)"), "{trail:?}");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn each_recipient_of_spam_from_outside_has_one_digest() {
    let folder = home();
    let quarantine =
        QuarantineSettings { link: "https://x.example/q/".into(), digest_every: Duration::ZERO, ..Default::default() };
    // The stage itself writes none: it has no link.
    let life = Life::new(&folder, Settings::default()).await;
    let ScanShared { site, settings, next, .. } = &*life.stage.shared;
    let write = async || digest::write(site, &quarantine, &settings.hostname, next).await.unwrap();
    // The first look only begins the day.
    write().await;
    for _ in 0..2 {
        life.send(letter(LetterOrigin::Received, "192.0.2.0/24", 3), "spam body").await;
    }
    life.send(letter(LetterOrigin::Received, "192.0.2.0/24", 1), "virus body").await;
    life.send(letter(LetterOrigin::Submitted, "ann", 1), "spam body").await;
    life.settle().await;
    write().await;
    let digests: Vec<_> = life.sink.came().iter().map(|(_, letter, _)| letter.clone()).collect();
    let told: Vec<&str> = digests.iter().map(|letter| letter.to[0].address.as_str()).collect();
    assert_eq!(told, ["to0@example.net", "to1@example.net", "to2@example.net"]);
    assert!(digests.iter().all(|letter| letter.subject == "2 messages to you are in quarantine"), "{digests:?}");
    write().await;
    assert_eq!(life.sink.came().len(), 3, "told once");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn old_and_too_much_quarantined_mail_is_forgotten() {
    let folder = home();
    let quarantine = QuarantineSettings { bytes_max: 2_500, ..QuarantineSettings::default() };
    let life = Life::new(&folder, Settings { quarantine, ..Settings::default() }).await;
    for number in 0..5 {
        life.send(submitted(), &format!("virus {number} {}", "x".repeat(990))).await;
        life.settle().await;
    }
    life.stage.shared.quarantine.forget_old().await.unwrap();
    let rows = life.rows().await;
    assert_eq!(rows.len(), 4, "two messages with two recipients each");
    let files = std::fs::read_dir(folder.path().join("quarantine")).unwrap().count();
    assert_eq!(files, 6, "two messages with three files each");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_flood_of_one_kind_pushes_out_its_own_kind_and_is_told() {
    let folder = home();
    let quarantine = QuarantineSettings { bytes_max: 3_500, ..QuarantineSettings::default() };
    let settings = Settings { quarantine, attempts: 1, ..Settings::default() };
    let life = Life::new(&folder, settings).await;
    let alarms = Arc::new(Mutex::new(Vec::new()));
    let rung = Arc::clone(&alarms);
    life.alarms.connect(move |alarm| rung.lock().unwrap().push(alarm));
    let full = || alarms.lock().unwrap().iter().filter(|a| matches!(a, Alarm::QuarantineFull { .. })).count();
    // The oldest: one that could not be scanned, larger than all the room there is, and one virus.
    life.send(submitted(), &format!("broken {}", "x".repeat(5_000))).await;
    life.send(submitted(), &format!("virus {}", "x".repeat(990))).await;
    life.settle().await;
    life.stage.shared.quarantine.forget_old().await.unwrap();
    assert_eq!(full(), 0, "there is room");
    for _ in 0..6 {
        life.send(submitted(), &format!("spam {}", "x".repeat(990))).await;
        life.settle().await;
    }
    life.stage.shared.quarantine.forget_old().await.unwrap();
    life.stage.shared.quarantine.forget_old().await.unwrap();
    assert_eq!(full(), 1, "told once");
    let kept = |queue: &str, rows: &[QuarantineRow]| rows.iter().filter(|row| row.queue == queue).count() / 2;
    let rows = life.rows().await;
    assert_eq!(["error", "virus", "spam"].map(|queue| kept(queue, &rows)), [1, 1, 2]);
    life.pipeline.stop(Duration::from_secs(5)).await;
}
