//! Sessions are kept, bounded, and replaced when they have died.

use std::time::Duration;

use weir_smtp::client::approach::Approach;

use super::memory_ledger::{MemoryLedger, settings, start};
use super::server::{Say, Server, Step};

#[tokio::test]
async fn one_session_carries_many_messages() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    let delivery = start(settings, &ledger);
    let ids: Vec<_> = (0..20)
        .map(|number| {
            let message = ledger.message("<a@sender.example>", &["<b@there.example>"], &format!("{number}\r\n"));
            let id = message.id;
            delivery.enqueue(message);
            id
        })
        .collect();
    for id in ids {
        ledger.finished(id).await;
    }
    let log = server.log();
    assert_eq!((log.bodies.len(), log.connections), (20, 1));
    assert_eq!(log.bodies, (0..20).map(|number| format!("{number}\r\n")).collect::<Vec<_>>(), "in order");
    assert_eq!(delivery.stats().sessions_opened, 1);
}

#[tokio::test]
async fn a_session_is_kept_when_nothing_waits() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    for _ in 0..5 {
        let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
    }
    assert_eq!((server.log().bodies.len(), delivery.stats().sessions_opened), (5, 1));
}

#[tokio::test]
async fn a_session_serves_a_bounded_number_of_messages() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most, settings.keep.messages_max) = (1, 1, 5);
    let delivery = start(settings, &ledger);
    (0..20).for_each(|_| delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n")));
    server.until("all arrive", |log| log.bodies.len() == 20).await;
    assert_eq!(server.log().connections, 4);
}

#[tokio::test]
async fn an_idle_session_says_goodbye() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    settings.keep.idle = Duration::from_millis(50);
    let delivery = start(settings, &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n"));
    server.until("goodbye", |log| log.lines.iter().any(|(_, line)| line == "QUIT")).await;
    server.until("gone", |log| log.open == 0).await;
    assert_eq!(delivery.stats().sessions_idle, 0);
}

#[tokio::test]
async fn a_session_that_died_while_idle_costs_no_attempt() {
    // Each connection takes one message and hangs up in the middle of the next one's envelope.
    let server = Server::start(|_, step, line| match step {
        Step::Mail if line.contains("second") => Say::Usual,
        Step::End => Say::RawThenClose("250 2.0.0 taken, and goodbye\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    for number in 0..5 {
        let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
        server.until("it is closed", |log| log.open == 0 && log.bodies.len() == number + 1).await;
    }
    assert_eq!(ledger.deferred(), 0);
    assert_eq!(server.log().connections, 5);
}

#[tokio::test]
async fn a_session_that_was_dismissed_while_idle_costs_no_attempt() {
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    let server = Server::start(move |number, step, _| match step {
        Step::Mail if !seen.lock().unwrap().insert(number) => Say::RawThenClose("421 4.4.2 too late\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    for _ in 0..4 {
        let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
    }
    assert_eq!(ledger.deferred(), 0);
    assert_eq!((server.log().bodies.len(), server.log().connections), (4, 4));
}

#[tokio::test]
async fn an_envelope_that_came_to_nothing_is_reset() {
    let server = Server::start(|_, step, line| match step {
        Step::Hello => Say::Raw("250 no-pipelining.example\r\n".into()),
        Step::Rcpt if line.contains("<bad@") => Say::Raw("550 5.1.1 no\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    let delivery = start(settings, &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<bad@x.example>"], "x\r\n"));
    let good = ledger.message("<a@sender.example>", &["<good@x.example>"], "x\r\n");
    let id = good.id;
    delivery.enqueue(good);
    ledger.finished(id).await;
    let verbs: Vec<_> =
        server.commands().iter().map(|line| line.split([' ', ':']).next().unwrap().to_owned()).collect();
    assert_eq!(verbs[..7], ["EHLO", "MAIL", "RCPT", "RSET", "MAIL", "RCPT", "DATA"]);
    assert_eq!(server.log().connections, 1);
}

/// With BDAT the message is sent before it is known that nobody is to get it, and the server still has its envelope then: the next message
/// would go out in it.
#[tokio::test]
async fn an_envelope_is_reset_although_its_message_was_sent_for_nobody() {
    let server = Server::start(|_, step, line| match step {
        Step::Hello => Say::Raw("250-x\r\n250-PIPELINING\r\n250 CHUNKING\r\n".into()),
        Step::Rcpt if line.contains("<bad@") => Say::Raw("550 5.1.1 no\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    let delivery = start(settings, &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<bad@x.example>"], "for nobody\r\n"));
    let good = ledger.message("<other@sender.example>", &["<good@x.example>"], "for one\r\n");
    let id = good.id;
    delivery.enqueue(good);
    ledger.finished(id).await;
    let verbs: Vec<_> =
        server.commands().iter().map(|line| line.split([' ', ':']).next().unwrap().to_owned()).collect();
    assert_eq!(verbs[..8], ["EHLO", "MAIL", "RCPT", "BDAT", "RSET", "MAIL", "RCPT", "BDAT"]);
    assert_eq!((server.log().bodies, server.log().connections), (vec!["for one\r\n".to_owned()], 1));
}

#[tokio::test]
async fn no_more_connections_than_the_window_allows() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    (settings.queue.window.initial, settings.queue.window.most) = (2, 7);
    let delivery = start(settings, &ledger);
    (0..500).for_each(|_| delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n")));
    server.until("all arrive", |log| log.bodies.len() == 500).await;
    let most = server.log().open_most;
    assert!((2..=7).contains(&most), "{most} connections at once");
}

#[tokio::test]
async fn the_next_host_is_tried_when_one_is_down() {
    use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Smarthost};
    let server = Server::start(|_, _, _| Say::Usual).await;
    let dead = weir_peers::free_port();
    for order in [HostOrder::Failover, HostOrder::RoundRobin] {
        let ledger = MemoryLedger::default();
        let hosts = vec![Endpoint::Host("127.0.0.1".into(), dead), Endpoint::Host("127.0.0.1".into(), server.port)];
        let route = Route::Smarthost(Smarthost { hosts, order, approach: Approach::default() });
        let delivery = start(super::memory_ledger::settings_for(route), &ledger);
        for _ in 0..3 {
            let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
            let id = message.id;
            delivery.enqueue(message);
            ledger.finished(id).await;
        }
        assert_eq!(ledger.deferred(), 0);
        delivery.shutdown(super::memory_ledger::PATIENCE).await;
    }
}

#[tokio::test]
async fn shutdown_waits_for_what_is_under_way_and_keeps_the_rest() {
    let server = Server::start(|_, step, _| if step == Step::End { Say::Silence } else { Say::Usual }).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    (0..10).for_each(|_| delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n")));
    server.until("a body is sent", |log| log.lines.iter().any(|(_, line)| line == "DATA")).await;
    assert!(!delivery.shutdown(Duration::from_millis(50)).await, "it does not end by itself");
    assert!(ledger.state().finished.is_empty());
    server.until("all connections end", |log| log.open == 0).await;

    let server = Server::start(|_, _, _| Say::Usual).await;
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n"));
    server.until("it arrives", |log| log.bodies.len() == 1).await;
    assert!(delivery.shutdown(super::memory_ledger::PATIENCE).await, "idle sessions end at once");
}
