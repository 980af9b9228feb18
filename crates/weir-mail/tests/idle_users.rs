//! What the correspondents of users who do nothing cost: octets on the disk, and no memory.
//!
//! Memory is counted at the allocator, so the result does not depend on the machine. What SQLite allocates for itself is not in it:
//! its page cache has a bound of its own, and `make bench-mail` looks at the whole process.
#![allow(missing_docs)]
// The trait of an allocator is unsafe. This one passes everything on and counts.
#![allow(unsafe_code)]

#[path = "shared/submitted.rs"]
mod submitted;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use submitted::Recipients;
use weir_core::throttle::{Params, RecipientKey, Recipients as RecipientClasses};
use weir_core::time::Instant;
use weir_mail::throttle::{Submission, SubmitOutcome, Throttling, correspondents_in, remember};
use weir_store::records::Records;

/// Users who know many and send nothing.
const IDLE: u64 = 250;
/// Correspondents of each of them.
const EACH: u64 = 2_000;
/// One correspondent in a pack.
const ENTRY: isize = 8;
/// Mails of the one user who is not idle.
const MAILS: u64 = 40;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
/// Octets that are allocated now.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn key(number: u64) -> RecipientKey {
    RecipientKey((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Mail of a user with classes of recipients and no slack for strangers.
fn mail(identity: &str, to: u64) -> Submission {
    let params = Params { recipients: RecipientClasses::Classed, working_set: 0, max_slack: 0, ..Params::default() };
    let one = Recipients { first: to, count: 1 };
    Submission { params, recipients: vec![key(to)], ..submitted::mail(identity, &one, &format!("m{to}"), "r1") }
}

async fn goes(throttling: &Throttling, mail: Submission) -> bool {
    match throttling.submit(mail).await.unwrap() {
        SubmitOutcome::Accepted { held, .. } => held == 0,
        SubmitOutcome::Refused { .. } => panic!("refused"),
    }
}

/// The octets that a throttle keeps after mail of one user, beside what a process without it has.
async fn kept_by_a_throttle(file: &Path) -> isize {
    let before = LIVE.load(Ordering::Relaxed);
    let records = Records::sqlite(file).await.unwrap();
    let throttling = Throttling::start(records.clone(), Arc::new(|| Instant(20_000 * 86_400_000_000_000)));
    for mails in 0..MAILS {
        assert!(goes(&throttling, mail("ann", mails % 4)).await, "ann has written to them before");
    }
    let kept = LIVE.load(Ordering::Relaxed) - before;
    drop(throttling);
    records.close().await;
    kept
}

/// Writes that users have written to these people, a few users at a time.
async fn write(file: &Path, users: &[(String, BTreeSet<RecipientKey>)]) {
    let records = Records::sqlite(file).await.unwrap();
    for some in users.chunks(25) {
        remember(&records.correspondents(), some.iter().cloned(), 20_000).await.unwrap();
    }
    records.close().await;
}

#[tokio::test]
async fn correspondents_of_idle_users_are_on_the_disk_alone_in_sixteen_octets_each() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.db");
    write(&file, &[("ann".to_owned(), (0..4).map(key).collect())]).await;
    // The first start pays for what is made once in a process.
    kept_by_a_throttle(&file).await;
    let alone = kept_by_a_throttle(&file).await;
    let before = std::fs::metadata(&file).unwrap().len();
    // In an order of their own, and in two halves, so that packs grow as they do in life.
    for half in [0..EACH / 2, EACH / 2..EACH] {
        let known =
            |user: u64| -> BTreeSet<RecipientKey> { half.clone().map(|n| key(1_000_000 + user * EACH + n)).collect() };
        let users: Vec<(String, BTreeSet<RecipientKey>)> =
            (0..IDLE).map(|n| n * 7 % IDLE).map(|user| (format!("idle{user:04}@example.org"), known(user))).collect();
        write(&file, &users).await;
    }
    let records = Records::sqlite(&file).await.unwrap();
    let mut remembered = 0;
    for user in 0..IDLE {
        let octets = records.correspondents().octets(&format!("idle{user:04}@example.org")).await.unwrap();
        remembered += correspondents_in(octets);
    }
    records.close().await;
    assert!(remembered > (IDLE * EACH) as i64 * 97 / 100, "{remembered} are remembered");
    let each = (std::fs::metadata(&file).unwrap().len() - before) as f64 / remembered as f64;
    assert!(each <= 16.0, "{each:.1} octets a correspondent on the disk");

    let among_idle = kept_by_a_throttle(&file).await;
    let more = among_idle - alone;
    let all = remembered as isize * ENTRY;
    eprintln!("{each:.1} octets a correspondent on the disk; {alone} octets kept alone, {more} more of {all} known");
    assert!(more < all / 50, "{more} octets more are kept than without {IDLE} idle users, who know {all} octets");

    // They are known all the same once they write.
    let records = Records::sqlite(&file).await.unwrap();
    let throttling = Throttling::start(records.clone(), Arc::new(|| Instant(20_000 * 86_400_000_000_000)));
    let idle = |user: u64, n: u64| {
        let number = 1_000_000 + user * EACH + n;
        mail(&format!("idle{user:04}@example.org"), number)
    };
    let mut known = 0;
    for n in 0..15 {
        known += usize::from(goes(&throttling, idle(n, n * 100)).await);
    }
    assert!(known >= 13, "{known} of 15 are known");
    assert!(!goes(&throttling, idle(20, EACH * 1_000)).await, "a stranger");
}
