//! The spool as ledger: a process that ends in the middle loses nothing and repeats at most what was under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_mail::delivery::Delivery;
use weir_mail::delivery::message::{Job, OutgoingMessage, Recipient};
use weir_mail::delivery::spool_ledger::SpoolLedger;
use weir_smtp::client::approach::Approach;
use weir_smtp::envelope::{MailFrom, RcptTo};
use weir_store::spool::{FoundMessage, Options, Spool};

use super::memory_ledger::{now, settings};
use super::server::{Say, Server, Step};

async fn accept(spool: &Spool, number: usize, to: &[&str]) -> OutgoingMessage {
    let text = format!("Subject: {number}\r\n\r\nmessage {number}\r\n");
    let mut draft = spool.draft().unwrap();
    draft.write(text.as_bytes()).await.unwrap();
    let to = to
        .iter()
        .enumerate()
        .map(|(index, to)| Recipient { index: index as u32, to: RcptTo::parse(to, false).unwrap() });
    let message = OutgoingMessage {
        id: draft.id(),
        owner: "ann".into(),
        sender: MailFrom::parse("<a@sender.example>").unwrap(),
        recipients: to.collect(),
        size_bytes: text.len() as u64,
        accepted_at: now(),
        sign: false,
        added: "".into(),
        hand_back: false,
        long_lines: false,
    };
    draft.commit(message.to_bytes()).await.unwrap();
    message
}

/// What is left to do after a restart.
fn resume(found: &[FoundMessage]) -> Vec<Job> {
    let job = |found: &FoundMessage| {
        Job::resumed(OutgoingMessage::from_bytes(found.id, &found.envelope).unwrap(), found.marks.iter())
    };
    found.iter().filter_map(job).collect()
}

#[tokio::test]
async fn a_process_that_ends_in_the_middle_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options { free_floor_bytes: 0, ..Options::default() };
    // The server gets slow after a while: some are done, some under way, some not begun.
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let slow = Server::start(move |_, step, _| match step {
        Step::End if count.fetch_add(1, Ordering::Relaxed) >= 30 => Say::Silence,
        _ => Say::Usual,
    })
    .await;
    let (spool, found) = Spool::open(folder.path(), options()).unwrap();
    assert!(found.is_empty());
    let delivery =
        Delivery::start(settings(slow.port, Approach::default()), SpoolLedger::new(spool.clone()), Arc::new(now))
            .unwrap();
    for number in 0..60 {
        delivery.enqueue(accept(&spool, number, &["<b@there.example>"]).await);
    }
    slow.until("some are under way", |log| {
        log.bodies.len() == 30 && log.lines.iter().filter(|(_, line)| line == "DATA").count() > 30
    })
    .await;
    delivery.shutdown(Duration::ZERO).await;
    drop((delivery, spool));

    let (spool, found) = loop {
        // The writer's thread ends when its last handle goes, which aborted tasks may still hold for a moment.
        match Spool::open(folder.path(), options()) {
            Ok(opened) => break opened,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let jobs = resume(&found);
    assert!((30..=30 + 20).contains(&jobs.len()), "{} left", jobs.len());
    let healthy = Server::start(|_, _, _| Say::Usual).await;
    let delivery =
        Delivery::start(settings(healthy.port, Approach::default()), SpoolLedger::new(spool.clone()), Arc::new(now))
            .unwrap();
    delivery.enqueue_all(jobs);
    healthy.until("the rest arrives", |log| log.bodies.len() >= 30).await;
    delivery.shutdown(Duration::from_secs(10)).await;
    let mut all: Vec<_> = slow.log().bodies.into_iter().chain(healthy.log().bodies).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 60, "every message arrived");
}

#[tokio::test]
async fn recipients_that_are_done_are_not_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options { free_floor_bytes: 0, ..Options::default() };
    let server = Server::start(|_, step, line| match step {
        Step::Rcpt if line.contains("<late@") => Say::Raw("450 4.2.0 later\r\n".into()),
        Step::Rcpt if line.contains("<never@") => Say::Raw("550 5.1.1 never\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let (spool, _) = Spool::open(folder.path(), options()).unwrap();
    let mut slow = settings(server.port, Approach::default());
    slow.queue.retry.waits = [Duration::from_secs(3600)].into();
    let delivery = Delivery::start(slow, SpoolLedger::new(spool.clone()), Arc::new(now)).unwrap();
    let message = accept(&spool, 1, &["<now@x.example>", "<late@x.example>", "<never@x.example>"]).await;
    let id = message.id;
    delivery.enqueue(message);
    // The report for sender.example is refused by its route and so it is over with it, too.
    let told = async {
        while delivery.stats().queue.totals.finished < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::memory_ledger::PATIENCE, told).await.unwrap();
    delivery.shutdown(Duration::from_secs(5)).await;
    spool.flush().await.unwrap();
    drop((delivery, spool));

    let (_spool, found) = loop {
        match Spool::open(folder.path(), options()) {
            Ok(opened) => break opened,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let jobs = resume(&found);
    assert_eq!(jobs.len(), 1);
    let deferral = jobs[0].deferral(&jobs[0].message.recipients);
    assert_eq!((jobs[0].message.id, deferral.attempts), (id, 1));
    let left: Vec<_> = jobs[0].message.recipients.iter().map(|recipient| recipient.to.mailbox.to_string()).collect();
    assert_eq!(left, ["late@x.example"]);
    assert!(deferral.not_before > now());
}
