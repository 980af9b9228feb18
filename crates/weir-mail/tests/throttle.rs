//! The throttle at work on both databases: batches, restarts, people's decisions, two relays as one.
#![allow(missing_docs)]

#[path = "shared/submitted.rs"]
mod submitted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use submitted::Recipients;
use weir_core::throttle::{Params, RecipientKey, Recipients as RecipientClasses, StopReason};
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_mail::throttle::{NoticeKind, Submission, SubmitOutcome, ThrottleCommand, Throttling};
use weir_peers::Postgres;
use weir_store::records::{HeldFilter, Records};

/// A clock that only its test moves.
#[derive(Clone, Default)]
struct Watch(Arc<AtomicU64>);

impl Watch {
    fn clock(&self) -> Clock {
        let now = self.0.clone();
        Arc::new(move || Instant(now.load(Ordering::SeqCst)))
    }

    fn pass(&self, seconds: u64) -> i64 {
        let nanos = seconds * SECOND;
        (self.0.fetch_add(nanos, Ordering::SeqCst) + nanos) as i64
    }
}

const SECOND: u64 = 1_000_000_000;

fn mail(identity: &str, first: u64, recipients: u64, relay: &str) -> Submission {
    submitted::mail(identity, &Recipients { first, count: recipients }, &format!("m{first}"), relay)
}

async fn sqlite() -> (tempfile::TempDir, Records) {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
    (folder, records)
}

fn counts(outcome: &SubmitOutcome) -> (usize, usize) {
    match outcome {
        SubmitOutcome::Accepted { at_once, held, .. } => (at_once.len(), *held),
        SubmitOutcome::Refused { .. } => panic!("refused"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worm_is_held_told_of_and_stopped_across_restarts() {
    let (folder, records) = sqlite().await;
    let mut notices = Vec::new();
    let mut refused_after = None;
    for n in 0..30 {
        // A new handle each time: nothing may live in the process.
        let throttling = Throttling::start(records.clone(), Watch::default().clock());
        match throttling.submit(mail("ann", n, 1, "r1")).await.unwrap() {
            SubmitOutcome::Accepted { notice, .. } => notices.extend(notice),
            SubmitOutcome::Refused { queue, .. } => {
                refused_after = Some((n, queue));
                break;
            }
        }
    }
    assert_eq!(refused_after, Some((22, 21)), "one by slack, twenty-one held, then stopped");
    assert_eq!(notices, [NoticeKind::FirstDelay, NoticeKind::HalfFull, NoticeKind::Stopped]);
    let held = records.held().list(&HeldFilter::default(), 99).await.unwrap();
    assert_eq!(held.len(), 21);
    assert_eq!((held[0].recipient.as_str(), held[0].message.as_str()), ("to1@example.org", "m1"));
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let done = throttling.command("ann", ThrottleCommand::Release(vec![0, 1, 77])).await.unwrap();
    assert_eq!((done.going, done.dropped, done.queue), (2, 0, 19));
    let done = throttling.command("ann", ThrottleCommand::Delete((2..19).collect())).await.unwrap();
    assert_eq!((done.going, done.dropped, done.queue), (0, 17, 2));
    let done = throttling.command("ann", ThrottleCommand::Unlock).await.unwrap();
    assert!(done.unlocked);
    assert_eq!(records.held().decided("r1", "", 99).await.unwrap().len(), 19);
    assert_eq!(counts(&throttling.submit(mail("ann", 1, 1, "r1")).await.unwrap()), (1, 0), "released, hence known");
    drop(folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stop_of_an_episode_is_told() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let notice = async |n| match throttling.submit(mail("ann", n, 100, "r1")).await.unwrap() {
        SubmitOutcome::Accepted { notice, .. } => notice,
        SubmitOutcome::Refused { .. } => panic!("refused"),
    };
    assert_eq!(notice(0).await, Some(NoticeKind::Stopped));
    records.throttles().told("ann", NoticeKind::Stopped as i64).await.unwrap();
    throttling.command("ann", ThrottleCommand::Unlock).await.unwrap();
    assert_eq!(notice(500).await, Some(NoticeKind::Stopped), "more than is allowed still waits, and more came");
    assert_eq!(records.throttles().untold(9).await.unwrap(), [("ann".to_owned(), 3)], "a kill would not lose it");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_mail_to_a_hundred_sends_fifteen_and_stops() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let outcome = throttling.submit(mail("ann", 0, 100, "r1")).await.unwrap();
    assert_eq!(counts(&outcome), (15, 85));
    let held = records.held().list(&HeldFilter::default(), 999).await.unwrap();
    assert_eq!((held.len(), held[0].place, held[84].recipient.as_str()), (85, 15, "to99@example.org"));
    assert!(matches!(
        throttling.submit(mail("ann", 500, 1, "r1")).await.unwrap(),
        SubmitOutcome::Refused { queue: 85, .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_one_recipient_count_once_and_wait_each_for_itself() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let tagged = |n: u64, count: usize| Submission {
        recipients: vec![RecipientKey(n); count],
        addresses: (0..count).map(|tag| format!("to{n}+{tag}@example.org")).collect(),
        places: (0..count).collect(),
        ..mail("ann", n, 1, "r1")
    };
    assert_eq!(counts(&throttling.submit(tagged(0, 3)).await.unwrap()), (3, 0), "one slack");
    assert_eq!(counts(&throttling.submit(tagged(0, 3)).await.unwrap()), (3, 0), "known");
    match throttling.submit(tagged(1, 3)).await.unwrap() {
        SubmitOutcome::Accepted { held: 3, queue: 3, expected, stopped: None, .. } => {
            assert_eq!(expected, Some((Instant(60 * SECOND), Instant(180 * SECOND))));
        }
        other => panic!("{other:?}"),
    }
    let held = records.held().list(&HeldFilter::default(), 9).await.unwrap();
    let held: Vec<_> = held.iter().map(|row| (row.entry, row.place, row.recipient.as_str())).collect();
    assert_eq!(held, [(0, 0, "to1+0@example.org"), (1, 1, "to1+1@example.org"), (2, 2, "to1+2@example.org")]);
    assert_eq!(
        counts(&throttling.submit(mail("ann", 50, 15, "r1")).await.unwrap()),
        (15, 0),
        "none was one to several"
    );
    match throttling.submit(tagged(2, 30)).await.unwrap() {
        SubmitOutcome::Accepted { held: 30, expected: None, stopped, notice, .. } => {
            assert_eq!((stopped, notice), (Some(StopReason::DelayQueue), Some(NoticeKind::Stopped)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_users_at_once_are_decided_each_for_itself() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let mut tasks = Vec::new();
    for n in 0..3000u64 {
        let throttling = throttling.clone();
        tasks.push(tokio::spawn(async move { throttling.submit(mail(&format!("u{}", n % 1000), n, 1, "r1")).await }));
    }
    let mut sums = (0, 0);
    for task in tasks {
        let (at_once, held) = counts(&task.await.unwrap().unwrap());
        sums = (sums.0 + at_once, sums.1 + held);
    }
    assert_eq!(sums, (1000, 2000), "each user's first goes by slack, the two others wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn learning_delays_nobody_and_remembers() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    for n in 0..50 {
        let submission = Submission { learn_only: true, ..mail("ann", n, 1, "r1") };
        assert_eq!(counts(&throttling.submit(submission).await.unwrap()), (1, 0));
    }
    let learned = records.throttles().learned(0).await.unwrap();
    assert_eq!((learned[0].mails, learned[0].would_stop), (50, 2));
    assert!(learned[0].would_hold >= 42, "{learned:?}");
    assert_eq!(records.held().list(&HeldFilter::default(), 9).await.unwrap(), []);
    assert_eq!(records.throttles().next_deadline().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_when_learning_begins_still_goes_and_is_decided() {
    let (_folder, records) = sqlite().await;
    let watch = Watch::default();
    let throttling = Throttling::start(records.clone(), watch.clock());
    for n in 0..11 {
        throttling.submit(mail("ann", n, 1, "r1")).await.unwrap();
    }
    assert_eq!(counts(&throttling.submit(mail("bob", 0, 100, "r1")).await.unwrap()), (15, 85));
    for n in 100..130 {
        for who in ["ann", "bob"] {
            let submission = Submission { learn_only: true, ..mail(who, n, 1, "r1") };
            assert_eq!(counts(&throttling.submit(submission).await.unwrap()), (1, 0), "nobody is stopped");
        }
    }
    assert_eq!(records.held().list(&HeldFilter::default(), 99).await.unwrap().len(), 95);
    assert!(records.throttles().next_deadline().await.unwrap().is_some(), "what waits goes by itself");
    watch.pass(61);
    let done = throttling.command("ann", ThrottleCommand::Drain).await.unwrap();
    assert_eq!((done.going, done.queue), (1, 9));
    let done = throttling.command("ann", ThrottleCommand::Release((1..10).collect())).await.unwrap();
    assert_eq!((done.going, done.queue), (9, 0));
    // What waited for a person does not go without one.
    assert_eq!(throttling.command("bob", ThrottleCommand::Drain).await.unwrap().queue, 85);
    assert_eq!(throttling.command("bob", ThrottleCommand::Delete((0..85).collect())).await.unwrap().dropped, 85);
    assert_eq!(records.held().list(&HeldFilter::default(), 99).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_learning_thought_up_does_not_wait_when_it_ends() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    for n in 0..20 {
        throttling.submit(Submission { learn_only: true, ..mail("ann", n, 1, "r1") }).await.unwrap();
    }
    assert_eq!(records.throttles().find("ann").await.unwrap().unwrap().held, 0);
    throttling.command("ann", ThrottleCommand::Stop).await.unwrap();
    assert_eq!(throttling.command("ann", ThrottleCommand::Drain).await.unwrap(), weir_mail::throttle::Done::default());
    match throttling.submit(mail("ann", 50, 1, "r1")).await.unwrap() {
        SubmitOutcome::Accepted { held: 1, queue: 1, expected: Some((at, _)), stopped: None, .. } => {
            assert_eq!(at, Instant(60 * SECOND), "the first in its queue");
        }
        other => panic!("{other:?}"),
    }
    let entry = records.held().list(&HeldFilter::default(), 9).await.unwrap()[0].entry;
    let done = throttling.command("ann", ThrottleCommand::Release(vec![entry])).await.unwrap();
    assert_eq!((done.going, done.queue), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_neither_empties_a_queue_nor_freezes_it() {
    let (_folder, records) = sqlite().await;
    let watch = Watch::default();
    watch.pass(100 * 86_400);
    let throttling = Throttling::start(records.clone(), watch.clock());
    for n in 0..11 {
        throttling.submit(mail("ann", n, 1, "r1")).await.unwrap();
    }
    // Set ahead while nothing ran, which is what a start sees.
    drop(throttling);
    watch.pass(86_400);
    let throttling = Throttling::start(records.clone(), watch.clock());
    let drain = async || {
        let done = throttling.command("ann", ThrottleCommand::Drain).await.unwrap();
        (done.going, done.queue)
    };
    assert_eq!(drain().await, (1, 9), "one entry, as one period may let go");
    watch.pass(30);
    assert_eq!(drain().await, (0, 9));
    watch.pass(30);
    assert_eq!(drain().await, (1, 8));
    watch.pass(3 * 3600);
    assert_eq!(drain().await, (1, 7), "set ahead while it runs");
    // Set back by a month. The records know it, so that the queue is looked at.
    let now = watch.0.fetch_sub(30 * 86_400 * SECOND, Ordering::SeqCst) - 30 * 86_400 * SECOND;
    assert_eq!(records.throttles().ahead(now as i64, 9).await.unwrap(), ["ann"]);
    assert_eq!(drain().await, (0, 7));
    assert_eq!(records.throttles().ahead(now as i64, 9).await.unwrap(), [""; 0]);
    watch.pass(60);
    assert_eq!(drain().await, (1, 6), "it drains on at once, and at its rate");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_are_one_throttle_and_an_absent_one_is_passed_over() {
    let url = Postgres::shared().database();
    let (first, second) = (Records::postgres(&url).await.unwrap(), Records::postgres(&url).await.unwrap());
    let watch = Watch::default();
    let start = |records: &Records| Throttling::start(records.clone(), watch.clock());
    let (one, two) = (start(&first), start(&second));
    let now = watch.pass(3600);
    first.relays().alive("r1", now).await.unwrap();
    second.relays().alive("r2", now).await.unwrap();
    assert_eq!(counts(&one.submit(mail("ann", 0, 1, "r1")).await.unwrap()), (1, 0));
    assert_eq!(counts(&two.submit(mail("ann", 1, 1, "r2")).await.unwrap()), (0, 1), "the slack is spent at the other");
    assert_eq!(counts(&one.submit(mail("ann", 2, 1, "r1")).await.unwrap()), (0, 1));
    // r2 falls silent. Its entry is the head of the queue and must neither go nor block the others.
    let now = watch.pass(61);
    first.relays().alive("r1", now).await.unwrap();
    let done = one.command("ann", ThrottleCommand::Drain).await.unwrap();
    assert_eq!((done.going, done.queue), (1, 1));
    assert_eq!(first.held().decided("r1", "", 9).await.unwrap().len(), 1);
    assert_eq!(first.held().decided("r2", "", 9).await.unwrap(), []);
    // It comes back: its entry goes in the next period.
    let now = watch.pass(60);
    first.relays().alive("r1", now).await.unwrap();
    second.relays().alive("r2", now).await.unwrap();
    assert_eq!(two.command("ann", ThrottleCommand::Drain).await.unwrap().going, 1);
    assert_eq!(second.held().decided("r2", "", 9).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_records_nothing_passes() {
    let postgres = Postgres::start();
    let records = Records::postgres(&postgres.database()).await.unwrap();
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    assert_eq!(counts(&throttling.submit(mail("ann", 0, 1, "r1")).await.unwrap()), (1, 0));
    postgres.kill();
    assert!(throttling.submit(mail("ann", 0, 1, "r1")).await.is_err(), "known or not: no records, no mail");
    postgres.restart();
    assert_eq!(counts(&throttling.submit(mail("ann", 0, 1, "r1")).await.unwrap()), (1, 0), "and on again by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_hang_are_given_up_on() {
    let postgres = Postgres::start();
    let records = Records::postgres(&postgres.database()).await.unwrap();
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    assert_eq!(counts(&throttling.submit(mail("ann", 0, 1, "r1")).await.unwrap()), (1, 0));
    postgres.freeze();
    let asked =
        tokio::time::timeout(std::time::Duration::from_secs(60), throttling.submit(mail("ann", 0, 1, "r1"))).await;
    postgres.thaw();
    assert!(asked.expect("an answer").is_err(), "no records, no mail");
    assert_eq!(counts(&throttling.submit(mail("ann", 0, 1, "r1")).await.unwrap()), (1, 0), "and on again by itself");
}

/// A mail of a user whose recipients have classes.
fn classed(identity: &str, first: u64, recipients: u64, relay: &str) -> Submission {
    let params = Params { recipients: RecipientClasses::Classed, working_set: 0, ..Params::default() };
    let keys = (first..first + recipients).map(hashed).collect();
    Submission { params, recipients: keys, ..mail(identity, first, recipients, relay) }
}

/// As the shell hashes addresses.
fn hashed(number: u64) -> RecipientKey {
    RecipientKey((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Waits until so many correspondents of ann are written down.
async fn remembered(records: &Records, count: i64) {
    let begun = std::time::Instant::now();
    while records.correspondents().octets("ann").await.unwrap() < count * 8 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "nobody wrote them down");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn whoever_was_written_to_is_known_to_every_relay(records: Records) {
    let watch = Watch::default();
    let here = Throttling::start(records.clone(), watch.clock());
    let there = Throttling::start(records.clone(), watch.clock());
    assert_eq!(counts(&here.submit(classed("ann", 1, 1, "r1")).await.unwrap()), (1, 0), "slack");
    assert_eq!(counts(&here.submit(classed("ann", 2, 1, "r1")).await.unwrap()), (0, 1), "waits");
    assert_eq!(counts(&here.submit(classed("ann", 100, 15, "r1")).await.unwrap()), (15, 0), "multi-slack");
    remembered(&records, 16).await;
    assert_eq!(counts(&there.submit(classed("ann", 1, 1, "r2")).await.unwrap()), (1, 0), "known there too");
    assert_eq!(counts(&there.submit(classed("ann", 2, 1, "r2")).await.unwrap()), (0, 1), "not sent, hence not known");
    assert_eq!(counts(&there.submit(classed("ann", 99, 6, "r2")).await.unwrap()), (5, 1), "five of six are known");
    watch.pass(60);
    here.command("ann", ThrottleCommand::Drain).await.unwrap();
    remembered(&records, 17).await;
    assert_eq!(counts(&there.submit(classed("ann", 2, 1, "r2")).await.unwrap()), (1, 0), "sent after its wait");
    // Both relays write at once, and nobody's correspondents are lost.
    let wide = |n: u64| Submission {
        params: Params { max_multi_slack: 1_000_000, stop_at: 100_000, ..classed("bob", 0, 1, "r").params },
        ..classed("bob", n, 50, "r1")
    };
    for n in 0..10 {
        let (a, b) = tokio::join!(here.submit(wide(n * 100)), there.submit(wide(n * 100 + 50)));
        assert_eq!((counts(&a.unwrap()), counts(&b.unwrap())), ((50, 0), (50, 0)));
    }
    let begun = std::time::Instant::now();
    while records.correspondents().octets("bob").await.unwrap() < 1_000 * 8 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "some are missing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_written_to_is_known() {
    let (_folder, records) = sqlite().await;
    whoever_was_written_to_is_known_to_every_relay(records).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_written_to_is_known_to_two_relays_on_postgresql() {
    let postgres = Postgres::start();
    whoever_was_written_to_is_known_to_every_relay(Records::postgres(&postgres.database()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wrote_may_be_answered_by_the_address_written_to_alone() {
    let (_folder, records) = sqlite().await;
    let throttling = Throttling::start(records.clone(), Watch::default().clock());
    let answer = |from: &str, to: u64| Submission { sent_as: from.into(), ..classed("ann", to, 1, "r1") };
    assert_eq!(counts(&throttling.submit(answer("ann@example.org", 1)).await.unwrap()), (1, 0), "slack");
    remembered(&records, 1).await;
    assert_eq!(counts(&throttling.submit(answer("ann@example.org", 7)).await.unwrap()), (0, 1), "a stranger");
    throttling.note_letter("ann@example.org", hashed(7));
    let begun = std::time::Instant::now();
    loop {
        let (at_once, _) = counts(&throttling.submit(answer("ann@example.org", 7)).await.unwrap());
        if at_once == 1 {
            break;
        }
        let held = records.held().list(&HeldFilter::default(), 99).await.unwrap();
        let entries = held.iter().map(|row| row.entry).collect();
        throttling.command("ann", ThrottleCommand::Delete(entries)).await.unwrap();
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "a letter is not noticed");
    }
    assert_eq!(counts(&throttling.submit(answer("bob@example.org", 8)).await.unwrap()), (0, 1));
}

/// It would be due all the time, and be looked at hundreds of times a second, with a line in the log each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_cannot_be_read_is_left_alone_for_a_while() {
    let (_folder, records) = sqlite().await;
    let (throttles, watch) = (records.throttles(), Watch::default());
    let now = watch.pass(1_000);
    let broken = |rows: &mut [weir_store::records::ThrottleRow]| {
        (rows[0].state, rows[0].next_deadline, rows[0].held) = ("nonsense".to_owned(), Some(1), 1);
        rows[0].updated_at = i64::MAX;
        (weir_store::records::Changes::default(), ())
    };
    throttles.decide(&["ann".to_owned()], broken).await.unwrap();
    assert_eq!(throttles.due(now, 9).await.unwrap(), ["ann"]);
    let throttling = Throttling::start(records.clone(), watch.clock());
    let error = throttling.command("ann", ThrottleCommand::Drain).await.unwrap_err();
    assert!(error.to_string().contains("the throttle of \"ann\" cannot be read"), "{error}");
    assert!(throttles.due(now, 9).await.unwrap().is_empty() && throttles.ahead(now, 9).await.unwrap().is_empty());
    let row = throttles.find("ann").await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), row.held), ("nonsense", 1), "whoever can mend it finds it as it was");
    assert_eq!(throttles.due(watch.pass(601), 9).await.unwrap(), ["ann"], "and it is tried again");
}
