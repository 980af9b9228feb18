//! Whose mail goes first, and what the operator can do about it.

use std::time::Duration;

use weir_mail::delivery::message::OutgoingMessage;
use weir_mail::delivery::queue::Selection;
use weir_smtp::client::approach::Approach;

use super::memory_ledger::{MemoryLedger, settings, start};
use super::server::{Say, Server, Step};

#[tokio::test]
async fn one_users_backlog_does_not_delay_another() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    let delivery = start(settings, &ledger);
    let mail = |owner: &str, number: usize| OutgoingMessage {
        owner: owner.into(),
        ..ledger.message("<a@sender.example>", &["<b@there.example>"], &format!("{owner} {number}\r\n"))
    };
    (0..300).for_each(|number| delivery.enqueue(mail("busy", number)));
    (0..3).for_each(|number| delivery.enqueue(mail("quiet", number)));
    server.until("all arrive", |log| log.bodies.len() == 303).await;
    let bodies = server.log().bodies;
    let first = bodies.iter().position(|body| body.starts_with("quiet 0")).unwrap();
    let last = bodies.iter().position(|body| body.starts_with("quiet 2")).unwrap();
    assert!(last - first <= 5, "they take turns: {first} to {last}");
    // Some of the backlog went before the other user came; no more than that went first.
    assert!(bodies.iter().skip(first).filter(|body| body.starts_with("busy")).count() > 250, "{first}");
}

#[tokio::test]
async fn the_operator_lists_hastens_and_deletes() {
    let server = Server::start(|number, step, _| match step {
        Step::Rcpt if number == 0 => Say::Raw("450 4.2.0 not now\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    settings.queue.retry.waits = [Duration::from_secs(3600)].into();
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    settings.keep.messages_max = 3;
    let delivery = start(settings, &ledger);
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
            let id = message.id;
            delivery.enqueue(message);
            id
        })
        .collect();
    ledger.until("all deferred", |state| (state.progress.len() == 3).then_some(())).await;
    let listed = delivery.list(&Selection::all(), 0, 10).messages;
    assert_eq!(
        listed.iter().map(|one| one.id.clone()).collect::<Vec<_>>(),
        ids.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    let recipient = &listed[0].recipients[0];
    assert_eq!((recipient.state, recipient.attempts), ("deferred", 1));
    assert!(
        recipient.next_attempt_unix_ms.is_some()
            && recipient.last_answer.as_deref().unwrap().contains("450 4.2.0 not now")
    );
    assert_eq!(delivery.stats().queue.deferred, 3);

    assert_eq!(delivery.delete(&Selection::messages([ids[0]])), [(ids[0], 1)]);
    assert!(ledger.state().finished.contains(&ids[0]));
    assert_eq!(delivery.retry(&Selection::messages([ids[1]])), [ids[1]]);
    ledger.finished(ids[1]).await;
    assert_eq!(server.log().bodies.len(), 1);
    assert!(delivery.retry(&Selection::owner("nobody")).is_empty());
    assert_eq!(delivery.delete(&Selection::domain("there.example")), [(ids[2], 1)]);
    assert_eq!(delivery.list(&Selection::all(), 0, 10).total, 0);
    assert!(ledger.state().reports.is_empty());
}

#[tokio::test]
async fn a_message_whose_time_is_over_comes_back() {
    let server =
        Server::start(
            |_, step, _| if step == Step::Rcpt { Say::Raw("450 4.2.2 mailbox full\r\n".into()) } else { Say::Usual },
        )
        .await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    settings.queue.retry.lifetime = Duration::from_millis(400);
    settings.queue.retry.warn_after = Some(Duration::from_millis(100));
    let delivery = start(settings, &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "Subject: x\r\n\r\nx\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let reports = ledger.state().reports.clone();
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[0].contains("Subject: Your mail is delayed") && reports[0].contains("450 4.2.2 mailbox full"));
    assert!(reports[1].contains("Status: 5.4.7") && reports[1].contains("mailbox full"), "{}", reports[1]);
    // Both reports are mail as well, and they may have come to an end by now.
    let notes = ledger.state().notes.clone();
    let last = notes.iter().rfind(|line| line.id == id.to_string() && line.event != "report").unwrap();
    assert!(last.event == "undeliverable" && last.text.contains("not delivered in time"), "{last:?}");
}

#[tokio::test]
async fn nothing_begins_while_progress_cannot_be_written_down() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    ledger.state().behind = true;
    for _ in 0..5 {
        delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n"));
    }
    let queue = delivery.stats().queue;
    assert_eq!((queue.waiting, queue.under_way), (5, 0));
    // Nobody calls: it goes on by itself.
    ledger.state().behind = false;
    server.until("all arrive", |log| log.bodies.len() == 5).await;
}
