//! A disk that is really full: a small file system in memory. Needs the right to mount one.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use weir_store::spool::{MessageId, Options, Spool, SpoolError};

use crate::dice::commit;

const DISK_MIB: usize = 12;

/// A mounted file system that goes with the value.
struct SmallDisk {
    at: TempDir,
}

impl SmallDisk {
    fn mount() -> SmallDisk {
        let at = TempDir::new().unwrap();
        let size = format!("size={DISK_MIB}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "weir-test"]).arg(at.path()).output();
        let mounted = mounted.expect("the command `mount`");
        assert!(
            mounted.status.success(),
            "this test needs root: it mounts a tmpfs of {DISK_MIB} MiB to fill it. mount said: {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        SmallDisk { at }
    }

    fn spool(&self) -> PathBuf {
        self.at.path().join("spool")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

fn options(free_floor_bytes: u64) -> Options {
    Options { segment_bytes: 1 << 20, free_floor_bytes, ..Options::default() }
}

/// Commits until the disk is full.
async fn fill(spool: &Spool, size: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    loop {
        match commit(spool, &vec![(ids.len() % 251) as u8; size], b"envelope").await {
            Ok(id) => ids.push(id),
            Err(SpoolError::Full) => return ids,
            Err(error) => panic!("full is not told from broken: {error}"),
        }
        assert!(ids.len() * size < DISK_MIB << 20, "more was accepted than fits");
    }
}

async fn check_all(spool: &Spool, ids: &[MessageId], size: usize) {
    for (number, id) in ids.iter().enumerate() {
        let body = spool.body(*id).unwrap().read_all().await.unwrap();
        assert!(body.len() == size && body.iter().all(|byte| *byte == (number % 251) as u8), "{id} has changed");
    }
}

fn reopen(spool: Spool, folder: &Path, floor: u64) -> (Spool, Vec<MessageId>) {
    drop(spool);
    let (spool, found) = Spool::open(folder, options(floor)).unwrap();
    assert!(spool.damage().is_empty(), "{:?}", spool.damage());
    (spool, found.iter().map(|found| found.id).collect())
}

#[tokio::test]
async fn below_the_floor_mail_is_refused_and_marks_still_fit() {
    let disk = SmallDisk::mount();
    let (spool, _) = Spool::open(disk.spool(), options(2 << 20)).unwrap();
    let ids = fill(&spool, 5000).await;
    assert!(ids.len() > 1500, "{} messages fit", ids.len());
    assert!(matches!(spool.draft(), Err(SpoolError::Full)));
    for id in &ids {
        spool.mark(*id, &b"decided: goes now"[..]).unwrap();
    }
    spool.flush().await.unwrap();
    check_all(&spool, &ids, 5000).await;
    let (spool, found) = reopen(spool, &disk.spool(), 2 << 20);
    assert_eq!(found, ids);

    for id in &ids[..ids.len() / 2] {
        spool.finish(*id).unwrap();
    }
    spool.flush().await.unwrap();
    spool.flush().await.unwrap();
    let more = fill(&spool, 5000).await;
    assert!(more.len() > ids.len() / 3, "space came back for {} messages only", more.len());
    let (_, found) = reopen(spool, &disk.spool(), 2 << 20);
    assert_eq!(found, [&ids[ids.len() / 2..], &more].concat());
}

#[tokio::test]
async fn a_disk_without_any_space_refuses_and_loses_nothing() {
    let disk = SmallDisk::mount();
    let (spool, _) = Spool::open(disk.spool(), options(0)).unwrap();
    let small = fill(&spool, 3000).await;
    // A long message fails in the middle and leaves room for nothing.
    let long = commit(&spool, &vec![9; 3 << 20], b"e").await;
    assert!(matches!(long, Err(SpoolError::Full)));
    check_all(&spool, &small, 3000).await;
    // Marks cannot be written now; they wait, and nothing is lost by it.
    let last = *small.last().unwrap();
    for _ in 0..2000 {
        spool.mark(last, vec![7; 100]).unwrap();
    }
    assert!(matches!(spool.flush().await, Err(SpoolError::Full)));
    let stats = spool.stats();
    assert_eq!(stats.messages, small.len());

    for id in &small[..small.len() / 2] {
        spool.finish(*id).unwrap();
    }
    // The first flush may find the disk still full; finished segments go between batches.
    let mut tries = 0;
    while spool.flush().await.is_err() {
        tries += 1;
        assert!(tries < 100, "space did not come back");
    }
    let more = fill(&spool, 3000).await;
    assert!(more.len() > small.len() / 4, "space came back for {} messages only", more.len());
    drop(spool);
    let (_, found) = Spool::open(disk.spool(), options(0)).unwrap();
    let ids: Vec<MessageId> = found.iter().map(|found| found.id).collect();
    assert_eq!(ids, [&small[small.len() / 2..], &more].concat());
    let marked = found.iter().find(|found| found.id == last).unwrap();
    assert_eq!(marked.marks.iter().count(), 2000);
}

#[tokio::test]
async fn progress_of_what_was_acknowledged_fits_on_a_disk_without_any_space() {
    let disk = SmallDisk::mount();
    let (spool, _) = Spool::open(disk.spool(), options(0)).unwrap();
    let ids = fill(&spool, 3000).await;
    // Somebody else takes the last byte.
    let mut filler = std::fs::File::create(disk.at.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    for id in &ids {
        spool.mark(*id, &b"decided 0"[..]).unwrap();
        spool.mark(*id, vec![7; 60]).unwrap();
    }
    spool.flush().await.unwrap();
    assert_eq!(spool.unwritten(), 0);
    let (spool, found) = reopen(spool, &disk.spool(), 0);
    assert_eq!(found, ids);
    ids.iter().skip(1).step_by(2).for_each(|id| spool.finish(*id).unwrap());
    spool.flush().await.unwrap();
    let (_, found) = reopen(spool, &disk.spool(), 0);
    assert_eq!(found, ids.iter().copied().step_by(2).collect::<Vec<_>>());
}
