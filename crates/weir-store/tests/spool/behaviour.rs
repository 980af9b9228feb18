//! What callers rely on, one promise a test.

use std::sync::Arc;
use std::time::Duration;

use weir_store::folder::DataFolder;
use weir_store::spool::faults::{Call, Faults};
use weir_store::spool::{MARK_MAX, Options, Spool, SpoolError};

use crate::dice::{Dice, commit, quick_folder, tiny};
use crate::harm;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[tokio::test]
async fn a_second_opener_is_refused() {
    let home = quick_folder();
    let folder = DataFolder::open(home.path().join("data")).unwrap();
    assert!(DataFolder::open(home.path().join("data")).unwrap_err().to_string().starts_with("another weir (pid "));
    let (spool, _) = Spool::open(folder.spool(), Options::default()).unwrap();
    assert!(matches!(Spool::open(folder.spool(), Options::default()), Err(SpoolError::InUse(_))));
    drop(spool);
    Spool::open(folder.spool(), Options::default()).unwrap();
}

#[tokio::test]
async fn ten_thousand_abandoned_drafts_leave_nothing() {
    let home = quick_folder();
    let options = Options { segment_bytes: 1 << 20, ..tiny() };
    let (spool, _) = Spool::open(home.path(), options.clone()).unwrap();
    let (small, large) = ([7; 100], vec![7; 70_000]);
    let kept = commit(&spool, b"stays", b"e").await.unwrap();
    for number in 0..10_000 {
        let mut draft = spool.draft().unwrap();
        draft.write(if number % 50 == 0 { &large } else { &small }).await.unwrap();
    }
    spool.flush().await.unwrap();
    // The last draft is counted until the spool's own thread has let go of it, on a busy machine a moment after the flush.
    let begun = std::time::Instant::now();
    while spool.stats().open_drafts > 0 && begun.elapsed().as_secs() < 60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(spool.stats().open_drafts, 0);
    // The first message alone keeps its segment; what only drafts filled is gone, but for the segment in use.
    assert!(spool.stats().segments <= 2, "{:?}", spool.stats());
    drop(spool);
    let (spool, found) = Spool::open(home.path(), options).unwrap();
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [kept]);
    assert!(spool.damage().is_empty());
}

#[tokio::test]
async fn many_drafts_interleave() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let mut dice = Dice(5);
    let bodies: Vec<Vec<u8>> = (0..8).map(|number| dice.bytes(30_000 * number)).collect();
    let mut drafts: Vec<_> = (0..8).map(|_| spool.draft().unwrap()).collect();
    for step in 0..25 {
        for (draft, body) in drafts.iter_mut().zip(&bodies) {
            let part = body.len() / 25;
            draft.write(&body[step * part..(step + 1) * part]).await.unwrap();
        }
    }
    for (draft, body) in drafts.into_iter().zip(&bodies) {
        let id = draft.commit(&b"e"[..]).await.unwrap();
        assert_eq!(spool.body(id).unwrap().read_all().await.unwrap(), body[..body.len() / 25 * 25]);
    }
}

#[tokio::test]
async fn a_commit_that_nobody_waits_for_leaves_no_message() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    for patience in 0..50 {
        let mut draft = spool.draft().unwrap();
        draft.write(b"body").await.unwrap();
        let mut waiting = Box::pin(draft.commit(&b"e"[..]));
        for _ in 0..=patience {
            tokio::select! {
                biased;
                done = &mut waiting => { spool.finish(done.unwrap()).unwrap(); break }
                () = tokio::task::yield_now() => {}
            }
        }
        drop(waiting);
    }
    spool.flush().await.unwrap();
    spool.flush().await.unwrap();
    assert_eq!(spool.stats().messages, 0);
    drop(spool);
    assert!(Spool::open(home.path(), tiny()).unwrap().1.is_empty());
}

#[tokio::test]
async fn finished_segments_go_and_stats_add_up() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), Options { compact_below: 0.0, ..tiny() }).unwrap();
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(commit(&spool, &[1; 1000], b"envelope").await.unwrap());
    }
    spool.flush().await.unwrap();
    let full = spool.stats();
    assert_eq!((full.messages, full.body_bytes, full.open_drafts), (40, 40_000, 0));
    assert!(full.segments >= 5 && full.live_ratio() > 0.95, "{full:?}");
    for id in ids {
        spool.finish(id).unwrap();
        assert!(matches!(spool.finish(id), Err(SpoolError::Unknown(_))));
        assert!(matches!(spool.body(id), Err(SpoolError::Unknown(_))));
    }
    spool.flush().await.unwrap();
    spool.flush().await.unwrap();
    let empty = spool.stats();
    assert_eq!((empty.messages, empty.body_bytes, empty.live_bytes), (0, 0, 0));
    assert!(empty.segments <= 1, "{empty:?}");
}

#[tokio::test]
async fn compaction_keeps_messages_marks_and_open_readers() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), Options { keep_bytes: 0, ..tiny() }).unwrap();
    let mut dice = Dice(9);
    let long = dice.bytes(150_000);
    let stays = commit(&spool, &long, b"long").await.unwrap();
    let small = commit(&spool, b"small", b"small").await.unwrap();
    spool.mark(small, &b"first"[..]).unwrap();
    let mut others = Vec::new();
    for _ in 0..60 {
        others.push(commit(&spool, &[1; 1500], b"e").await.unwrap());
    }
    let mut reading = spool.body(stays).unwrap();
    let mut read = reading.next().await.unwrap().unwrap().to_vec();
    for id in others {
        spool.finish(id).unwrap();
    }
    let before = spool.stats().segments;
    for _ in 0..3 {
        spool.compact().await.unwrap();
    }
    spool.flush().await.unwrap();
    assert!(spool.stats().segments < before.min(8), "{before} then {:?}", spool.stats());
    while let Some(piece) = reading.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, long);
    spool.mark(small, &b"second"[..]).unwrap();
    drop((spool, reading));
    let (spool, found) = Spool::open(home.path(), tiny()).unwrap();
    let marks: Vec<&[u8]> = found[1].marks.iter().collect();
    assert_eq!((found.len(), found[1].id, marks), (2, small, vec![&b"first"[..], b"second"]));
    assert_eq!(spool.body(stays).unwrap().read_all().await.unwrap(), long);
}

#[tokio::test]
async fn a_long_message_that_moved_and_ended_does_not_come_back() {
    let home = quick_folder();
    let options = Options { segment_bytes: 256 << 10, compact_below: 0.5, spare_newest: 100, ..tiny() };
    let (spool, _) = Spool::open(home.path(), options.clone()).unwrap();
    let mut draft = spool.draft().unwrap();
    draft.write(&[8; 65_537]).await.unwrap();
    let fill = async |count| {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(commit(&spool, &[1; 60_000], b"filler").await.unwrap());
        }
        ids
    };
    // The message has its first chunk in segment 1 and its commit in segment 2, which another message keeps alive.
    let in_first = fill(4).await;
    let moved = draft.commit(&b"moved"[..]).await.unwrap();
    let stays = commit(&spool, b"stays", b"stays").await.unwrap();
    let in_second = fill(5).await;
    for id in in_first {
        spool.finish(id).unwrap();
    }
    spool.compact().await.unwrap();
    assert!(!home.path().join("00000001.seg").exists(), "segment 1 was emptied");
    let in_third = fill(4).await;
    let in_fourth = commit(&spool, b"next", b"next").await.unwrap();
    for id in in_third.into_iter().chain([moved]) {
        spool.finish(id).unwrap();
    }
    spool.flush().await.unwrap();
    spool.flush().await.unwrap();
    assert!(!home.path().join("00000003.seg").exists(), "segment 3, where it had moved, is done");
    drop(spool);
    let (_, found) = Spool::open(home.path(), options).unwrap();
    let mut left = vec![stays, in_fourth];
    left.extend(in_second);
    left.sort();
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), left);
}

#[tokio::test]
async fn a_damaged_body_is_refused_by_name_and_its_file_kept() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let bad = commit(&spool, &[b'x'; 2000], b"to whom it belongs").await.unwrap();
    let good = commit(&spool, &[b'y'; 2000], b"e").await.unwrap();
    drop(spool);
    let segment = harm::files(home.path(), "seg")[0].clone();
    harm::flip(&segment, 8 * 500);
    let (spool, found) = Spool::open(home.path(), tiny()).unwrap();
    assert_eq!((found[0].id, found[0].intact, &*found[0].envelope), (bad, false, &b"to whom it belongs"[..]));
    assert_eq!((found[1].id, found[1].intact), (good, true));
    let [damage] = spool.damage() else { panic!("{:?}", spool.damage()) };
    assert_eq!((&damage.path, damage.at), (&segment, 32));
    let refused = spool.body(bad).unwrap().read_all().await.unwrap_err().to_string();
    assert!(refused.contains("00000001.seg is damaged at byte 32"), "{refused}");
    assert_eq!(spool.body(good).unwrap().read_all().await.unwrap(), [b'y'; 2000]);
    let kept = harm::files(&home.path().join("broken"), "seg");
    assert_eq!(kept.len(), 1);
    // Once the caller has told the sender, the spool is healthy again and the operator has the file.
    spool.finish(bad).unwrap();
    spool.flush().await.unwrap();
    spool.compact().await.unwrap();
    drop(spool);
    let (spool, found) = Spool::open(home.path(), tiny()).unwrap();
    assert_eq!((found.len(), spool.damage().len()), (1, 0));
    assert!(kept[0].exists() && !segment.exists());
}

#[tokio::test]
async fn a_failed_sync_refuses_its_batch_and_the_next_one_works() {
    let home = quick_folder();
    let faults = Arc::new(Faults::default());
    let options = Options { faults: Some(Arc::clone(&faults)), marks_every: Duration::from_secs(60), ..tiny() };
    let (spool, _) = Spool::open(home.path(), options).unwrap();
    let before = commit(&spool, b"before", b"e").await.unwrap();
    // The new sidecar is synced behind the answer: that sync must not be the one that fails.
    spool.flush().await.unwrap();
    faults.fail(Call::Sync, 0, EIO);
    let refused = commit(&spool, b"refused", b"e").await.unwrap_err();
    assert!(matches!(refused, SpoolError::Failed { doing: "sync", .. }) && refused.is_temporary(), "{refused}");
    let after = commit(&spool, b"after", b"e").await.unwrap();
    assert_eq!(spool.stats().messages, 2);
    assert_eq!(harm::files(home.path(), "seg").len(), 2, "the segment of the failed sync is not used again");
    drop(spool);
    let (_, found) = Spool::open(home.path(), tiny()).unwrap();
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [before, after]);
}

#[tokio::test]
async fn where_only_a_sync_says_that_the_disk_is_full_no_zeros_are_written_ahead() {
    let home = quick_folder();
    let faults = Arc::new(Faults::default());
    let options =
        Options { faults: Some(Arc::clone(&faults)), marks_every: Duration::from_secs(60), ..Options::default() };
    let (spool, _) = Spool::open(home.path(), options).unwrap();
    commit(&spool, b"before", b"e").await.unwrap();
    spool.flush().await.unwrap();
    faults.fail(Call::Sync, 0, ENOSPC);
    let refused = commit(&spool, b"refused", b"e").await.unwrap_err();
    assert!(matches!(refused, SpoolError::Full), "{refused}");
    commit(&spool, b"after", b"e").await.unwrap();
    let lengths: Vec<u64> =
        harm::files(home.path(), "seg").iter().map(|file| std::fs::metadata(file).unwrap().len()).collect();
    assert!(lengths.len() == 2 && lengths.iter().all(|length| *length < 4096), "{lengths:?}");
}

#[tokio::test]
async fn a_draft_that_lost_a_chunk_cannot_be_committed() {
    let home = quick_folder();
    let faults = Arc::new(Faults::default());
    let options = Options { faults: Some(Arc::clone(&faults)), marks_every: Duration::from_secs(60), ..tiny() };
    let (spool, _) = Spool::open(home.path(), options).unwrap();
    let mut draft = spool.draft().unwrap();
    // Three chunks go to the writer, two of them fail, and then the disk works again.
    for failing in [true, true, false] {
        draft.write(&[1; 65_536]).await.unwrap();
        if failing {
            faults.fail(Call::Write, 0, ENOSPC);
        }
        draft.write(&[1; 1]).await.unwrap();
        spool.flush().await.unwrap();
    }
    faults.heal();
    let refused = draft.commit(&b"e"[..]).await.unwrap_err();
    assert!(matches!(refused, SpoolError::Full), "{refused}");
    commit(&spool, b"next", b"e").await.unwrap();
    assert_eq!(spool.stats().messages, 1);
}

#[tokio::test]
async fn a_snapshot_under_load_holds_what_was_acknowledged_before_it() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path().join("spool"), tiny()).unwrap();
    let load = {
        let spool = spool.clone();
        tokio::spawn(async move {
            loop {
                let id = commit(&spool, &[3; 900], b"load").await.unwrap();
                spool.finish(id).unwrap();
            }
        })
    };
    let mut kept = Vec::new();
    for round in 0..5 {
        for _ in 0..20 {
            kept.push(commit(&spool, &[4; 700], b"kept").await.unwrap());
        }
        let copy = home.path().join(format!("copy-{round}"));
        spool.snapshot(&copy).await.unwrap();
        let (copied, found) = Spool::open(&copy, tiny()).unwrap();
        assert!(copied.damage().is_empty());
        for id in &kept {
            assert!(found.iter().any(|found| found.id == *id && found.intact));
        }
        assert!(matches!(spool.snapshot(&copy).await, Err(SpoolError::Failed { .. })), "the folder is not empty");
    }
    load.abort();
    let left = std::fs::read_dir(home.path().join("spool")).unwrap();
    assert!(left.into_iter().all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with(".snapshot")));
}

#[tokio::test]
async fn a_message_moved_out_is_a_plain_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path().join("spool"), tiny()).unwrap();
    let body = Dice(3).bytes(200_000);
    let id = commit(&spool, &body, b"e").await.unwrap();
    let path = home.path().join("held.eml");
    spool.move_out(id, &path).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), body);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(spool.contains(id));
    assert!(spool.move_out(id, home.path().join("no/such/folder.eml")).await.is_err());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "nothing unfinished stays behind");
}

#[tokio::test]
async fn what_is_too_long_is_refused() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let id = commit(&spool, b"", b"").await.unwrap();
    let long = spool.mark(id, vec![0; MARK_MAX + 1]).unwrap_err().to_string();
    assert_eq!(long, "the mark has 65537 bytes; at most 65536 are possible");
    let refused = spool.draft().unwrap().commit(vec![0; 5 << 20]).await;
    assert!(matches!(refused, Err(SpoolError::TooLong { .. })));
    assert!(spool.body(id).unwrap().read_all().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_closed_spool_answers_everybody() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let mut draft = spool.draft().unwrap();
    draft.write(b"late").await.unwrap();
    drop(spool);
    assert!(matches!(draft.commit(&b"e"[..]).await, Err(SpoolError::Closed)));
}

#[tokio::test]
async fn a_sidecar_that_somebody_removed_is_made_anew() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let id = commit(&spool, b"body", b"e").await.unwrap();
    drop(spool);
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    spool.flush().await.unwrap();
    std::fs::remove_file(&harm::files(home.path(), "marks")[0]).unwrap();
    spool.mark(id, &b"later"[..]).unwrap();
    spool.flush().await.unwrap();
    drop(spool);
    let (_, found) = Spool::open(home.path(), tiny()).unwrap();
    assert_eq!(found[0].marks.iter().collect::<Vec<_>>(), [b"later"]);
}

#[tokio::test]
async fn marks_that_the_disk_does_not_take_are_counted() {
    let home = quick_folder();
    let faults = Arc::new(Faults::default());
    let options = Options { faults: Some(Arc::clone(&faults)), marks_every: Duration::from_millis(1), ..tiny() };
    let (spool, _) = Spool::open(home.path(), options).unwrap();
    let id = commit(&spool, b"body", b"e").await.unwrap();
    spool.flush().await.unwrap();
    assert_eq!(spool.unwritten(), 0);
    (0..1000).for_each(|_| faults.fail(Call::Write, 0, EIO));
    (0..10).for_each(|_| spool.mark(id, &b"progress"[..]).unwrap());
    spool.flush().await.unwrap_err();
    assert_eq!(spool.unwritten(), 10);
    faults.heal();
    // The writer tries again by itself.
    let written = async {
        while spool.unwritten() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), written).await.expect("they are written");
}

#[tokio::test]
async fn a_closed_spool_can_be_opened_though_somebody_has_a_copy() {
    let home = quick_folder();
    let (spool, _) = Spool::open(home.path(), tiny()).unwrap();
    let id = commit(&spool, b"body", b"e").await.unwrap();
    spool.mark(id, &b"seen"[..]).unwrap();
    let copy = spool.clone();
    spool.close().await;
    copy.close().await;
    let (_again, found) = Spool::open(home.path(), tiny()).unwrap();
    assert_eq!(found[0].marks.iter().collect::<Vec<_>>(), [b"seen"], "what was asked for was written");
    assert!(matches!(copy.mark(id, &b"late"[..]), Err(SpoolError::Closed)));
    commit(&copy, b"late", b"e").await.unwrap_err();
}
