//! Servers that fail, lie, stall and babble, at every step. Whatever they do: the mail is not lost, not sent twice to
//! a server that took it, and gone to a healthy server in the end; what was refused for good comes back.

use std::time::Duration;
use weir_smtp::client::approach::{Approach, Patience};
use weir_smtp::client::tls::TlsLevel;

use super::memory_ledger::{MemoryLedger, impatient, settings, start};
use super::server::{OFFER, Say, Server, Step};

const STEPS: [Step; 6] = [Step::Greeting, Step::Hello, Step::Mail, Step::Rcpt, Step::Data, Step::End];

fn approach() -> Approach {
    Approach { patience: impatient(), ..Approach::default() }
}

/// The first connection goes wrong at a step; all others are fine. The mail must arrive, once.
async fn survives(step: Step, wrong: Say) {
    let evil = wrong.clone();
    let server =
        Server::start(move |number, at, _| if number == 0 && at == step { evil.clone() } else { Say::Usual }).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, approach()), &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "Subject: x\r\n\r\nhello\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let log = server.log();
    assert_eq!(log.bodies.len(), 1, "{step:?} {wrong:?}: {log:?}");
    assert!(ledger.state().reports.is_empty(), "{step:?} {wrong:?}");
    assert!(log.connections >= 2, "{step:?} {wrong:?}: the first connection is of no use");
    delivery.shutdown(super::memory_ledger::PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left_in_time() {
    for step in STEPS {
        survives(step, Say::Silence).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_is_tried_again() {
    for step in STEPS {
        survives(step, Say::Close).await;
    }
}

#[tokio::test]
async fn a_server_that_goes_away_with_421_is_tried_again() {
    for step in STEPS {
        survives(step, Say::RawThenClose("421 4.3.2 closing\r\n".into())).await;
    }
}

#[tokio::test]
async fn nonsense_is_no_answer() {
    for step in STEPS {
        for nonsense in ["hello\r\n", "999 x\r\n", "250-a\r\n550 b\r\n", "\r\n", "250\u{7f}x\r\n"] {
            survives(step, Say::Raw(nonsense.into())).await;
        }
    }
}

#[tokio::test]
async fn endless_lines_and_endless_replies_end() {
    for step in STEPS {
        survives(step, Say::Flood).await;
        survives(step, Say::Raw("250-again\r\n".repeat(300))).await;
    }
}

#[tokio::test]
async fn slow_octets_gain_no_time() {
    for step in STEPS {
        survives(step, Say::Drip).await;
    }
}

/// A mail that fills every buffer on the way.
fn large() -> String {
    format!("Subject: x\r\n\r\n{}", "a line of a large mail\r\n".repeat(500_000))
}

#[tokio::test]
async fn a_server_that_stops_reading_is_left_in_time() {
    let server = Server::start(|number, step, _| match step {
        Step::Data if number == 0 => Say::Deaf("354 go ahead\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    // It is left for what it does not read. That the next one takes a while for so large a mail is no reason to send it again.
    let patience = Patience { end: Duration::from_secs(60), ..impatient() };
    let mut settings = settings(server.port, Approach { patience, ..Approach::default() });
    (settings.queue.window.initial, settings.queue.window.most) = (1, 1);
    let delivery = start(settings, &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@there.example>"], &large());
    let id = message.id;
    delivery.enqueue(message);
    ledger.until("it is deferred", |state| (!state.progress.is_empty()).then_some(())).await;
    ledger.finished(id).await;
    assert_eq!(server.log().bodies.len(), 1);
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_the_body_is_heard() {
    let text = "354 go ahead\r\n552 5.3.4 that is too much\r\n";
    let server =
        Server::start(move |_, step, _| if step == Step::Data { Say::Deaf(text.into()) } else { Say::Usual }).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, approach()), &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], &large()));
    let report = ledger.report().await;
    assert!(report.contains("552 5.3.4 that is too much"), "{report}");
}

/// Refused at a step on every connection: `after` refusals it gets better, if it does.
async fn refused(step: Step, text: &'static str, after: usize) -> (Server, MemoryLedger) {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_, at, _| {
        let refuse = at == step && count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < after;
        if refuse { Say::Raw(text.into()) } else { Say::Usual }
    })
    .await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, approach()), &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "Subject: x\r\n\r\nhello\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    delivery.shutdown(super::memory_ledger::PATIENCE).await;
    (server, ledger)
}

#[tokio::test]
async fn refused_for_now_is_tried_again() {
    for step in STEPS {
        let (server, ledger) = refused(step, "450 4.2.0 not now\r\n", 2).await;
        assert_eq!(server.log().bodies.len(), 1, "{step:?}");
        assert!(ledger.state().reports.is_empty(), "{step:?}");
    }
}

#[tokio::test]
async fn refused_for_good_comes_back_with_the_servers_words() {
    for step in [Step::Mail, Step::Rcpt, Step::Data, Step::End] {
        let (server, ledger) = refused(step, "554 5.7.1 we do not like you\r\n", 1).await;
        assert_eq!(server.log().bodies.len(), 0, "{step:?}");
        let report = ledger.report().await;
        assert!(report.contains("Diagnostic-Code: smtp; 554 5.7.1 we do not like you"), "{step:?}: {report}");
        assert!(report.contains("Final-Recipient: rfc822; b@there.example"), "{report}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_body_from_a_refused_sender_gets_none() {
    let server = Server::start(|_, step, _| match step {
        Step::Mail => Say::Raw("550 5.7.1 not from you\r\n".into()),
        Step::Data => Say::Raw("354 but go ahead\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, approach()), &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "Subject: x\r\n\r\nhello\r\n"));
    let report = ledger.report().await;
    assert!(report.contains("550 5.7.1 not from you"), "{report}");
    server.until("the connection is given up", |log| log.open == 0).await;
    assert!(server.log().bodies.is_empty() && !server.commands().contains(&".".into()));
}

#[tokio::test]
async fn a_refusal_before_the_first_message_is_no_messages_fault() {
    for step in [Step::Greeting, Step::Hello] {
        let (server, ledger) = refused(step, "554 5.7.1 go away\r\n", 3).await;
        assert_eq!(server.log().bodies.len(), 1, "{step:?}");
        assert!(ledger.state().reports.is_empty(), "{step:?}");
    }
}

#[tokio::test]
async fn a_server_of_the_last_century_is_greeted_with_helo() {
    let server = Server::start(|_, step, line| match step {
        Step::Hello if line.starts_with("EHLO") => Say::Raw("502 what is EHLO?\r\n".into()),
        Step::Hello => Say::Raw("250 old.example\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, approach()), &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@there.example>", "<c@there.example>"], "x\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let verbs: Vec<_> =
        server.commands().iter().map(|line| line.split([' ', ':']).next().unwrap().to_owned()).collect();
    assert_eq!(verbs[..6], ["EHLO", "HELO", "MAIL", "RCPT", "RCPT", "DATA"]);
}

fn with_starttls() -> Say {
    Say::Raw(OFFER.replace("250-PIPELINING", "250-STARTTLS\r\n250-PIPELINING"))
}

/// Says yes to STARTTLS and then something that is no handshake.
async fn liar(after: &'static str) -> Server {
    Server::start(move |_, step, _| match step {
        Step::Hello => with_starttls(),
        Step::StartTls => Say::Raw(format!("220 go ahead\r\n{after}")),
        _ => Say::Usual,
    })
    .await
}

#[tokio::test]
async fn a_lie_about_tls_costs_the_encryption_where_that_is_allowed() {
    for after in ["", "250 injected\r\n", "not a handshake at all, but long enough to be looked at\r\n"] {
        let server = liar(after).await;
        let ledger = MemoryLedger::default();
        let delivery = start(settings(server.port, approach()), &ledger);
        let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
        assert_eq!(server.log().bodies.len(), 1, "{after:?}");
        assert_eq!(server.log().connections, 2, "one with TLS that failed, one without: {after:?}");
    }
}

#[tokio::test]
async fn a_lie_about_tls_costs_the_delivery_where_tls_is_required() {
    for (offers, tls) in [(true, TlsLevel::Required), (true, TlsLevel::Verified), (false, TlsLevel::Required)] {
        let server = if offers { liar("").await } else { Server::start(|_, _, _| Say::Usual).await };
        let ledger = MemoryLedger::default();
        let delivery = start(settings(server.port, Approach { tls, ..approach() }), &ledger);
        delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n"));
        server.until("a second try", |log| log.connections >= 2).await;
        delivery.shutdown(super::memory_ledger::PATIENCE).await;
        assert!(server.commands().iter().all(|line| !line.starts_with("MAIL")), "{:?}", server.commands());
        assert!(ledger.state().finished.is_empty());
        let stats = delivery.stats();
        let trouble = stats.queue.destinations[0].trouble.clone().unwrap();
        assert!(trouble.contains("4.7.5"), "{trouble}");
    }
}
