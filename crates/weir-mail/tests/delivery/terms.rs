//! What is said to a server depends on what it offers.

use weir_mail::delivery::message::OutgoingMessage;
use weir_smtp::client::approach::{Approach, Credentials};

use super::memory_ledger::{MemoryLedger, settings, start};
use super::server::{OFFER, Say, Server, Step};

async fn deliver(offer: &'static str, sender: &str, to: &[&str], body: &str) -> (Server, MemoryLedger) {
    let server =
        Server::start(move |_, step, _| if step == Step::Hello { Say::Raw(offer.into()) } else { Say::Usual }).await;
    let ledger = MemoryLedger::default();
    let delivery = start(settings(server.port, Approach::default()), &ledger);
    let message = ledger.message(sender, to, body);
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    (server, ledger)
}

const NOTHING: &str = "250 server.example\r\n";

#[tokio::test]
async fn dsn_parameters_are_passed_on_where_offered() {
    let sender = "<a@sender.example> RET=HDRS ENVID=QQ";
    let to = ["<b@there.example> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;b@old.example"];
    let (server, ledger) = deliver(OFFER, sender, &to, "x\r\n").await;
    let commands = server.commands();
    assert!(commands.contains(&"MAIL FROM:<a@sender.example> SIZE=3 RET=HDRS ENVID=QQ".into()), "{commands:?}");
    assert!(
        commands.contains(&"RCPT TO:<b@there.example> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;b@old.example".into()),
        "{commands:?}"
    );
    assert!(ledger.state().reports.is_empty(), "the next server reports");

    let (server, ledger) = deliver(NOTHING, sender, &to, "x\r\n").await;
    assert!(server.commands().contains(&"RCPT TO:<b@there.example>".into()));
    let report = ledger.report().await;
    assert!(
        report.contains("Action: relayed") && report.contains("Original-Recipient: rfc822; b@old.example"),
        "{report}"
    );
}

#[tokio::test]
async fn eight_bit_text_goes_only_where_it_is_taken() {
    let sender = "<a@sender.example> BODY=8BITMIME";
    let (server, _) = deliver(OFFER, sender, &["<b@there.example>"], "Subject: x\r\n\r\nü\r\n").await;
    assert!(server.commands()[1].ends_with("BODY=8BITMIME"), "{:?}", server.commands());

    let (server, ledger) =
        deliver(NOTHING, sender, &["<b@there.example>"], "Subject: x\r\n\r\nplain after all\r\n").await;
    assert_eq!(server.log().bodies.len(), 1);
    assert!(ledger.state().reports.is_empty());

    let (server, ledger) = deliver(NOTHING, sender, &["<b@there.example>"], "Subject: x\r\n\r\nü\r\n").await;
    let body = server.log().bodies[0].clone();
    assert!(body.contains("Content-Transfer-Encoding: quoted-printable\r\n\r\n=C3=BC\r\n"), "{body}");
    assert!(ledger.state().reports.is_empty());

    let signed = "Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\nü\r\n--b\r\n\r\nseal\r\n--b--\r\n";
    let (server, ledger) = deliver(NOTHING, sender, &["<b@there.example>"], signed).await;
    assert_eq!(server.log().bodies.len(), 0);
    let report = ledger.report().await;
    assert!(report.contains("Status: 5.6.3") && report.contains("signature would no longer be right"), "{report}");
}

/// What tells people of spam must not be one of two subjects, of which their program may show the other.
#[tokio::test]
async fn a_message_has_one_subject_however_it_is_sent() {
    let text = "From: a@sender.example\r\nSubject: cheap\r\n watches\r\nTo: b@there.example\r\n\r\nü\r\n";
    for (offer, sent) in [(OFFER, "\r\n\r\nü\r\n"), (NOTHING, "\r\n\r\n=C3=BC\r\n")] {
        let server =
            Server::start(move |_, step, _| if step == Step::Hello { Say::Raw(offer.into()) } else { Say::Usual })
                .await;
        let ledger = MemoryLedger::default();
        let delivery = start(settings(server.port, Approach::default()), &ledger);
        let message = ledger.message("<a@sender.example> BODY=8BITMIME", &["<b@there.example>"], text);
        let message = OutgoingMessage { added: "Subject: [SPAM] cheap watches\r\n".into(), ..message };
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
        let body = server.log().bodies[0].clone();
        assert!(body.starts_with("Subject: [SPAM] cheap watches\r\nFrom: a@sender.example\r\n"), "{body}");
        assert!(body.matches("Subject:").count() == 1 && !body.contains("\r\n watches"), "{body}");
        assert!(body.ends_with(sent), "{body}");
    }
}

#[tokio::test]
async fn international_mail_goes_only_where_it_is_taken() {
    let sender = "<a@sender.example> SMTPUTF8";
    let to = ["<jürgen@there.example>", "<b@bücher.example>"];
    let (server, _) = deliver(OFFER, sender, &to, "Subject: x\r\n\r\nx\r\n").await;
    assert!(server.commands().contains(&"RCPT TO:<jürgen@there.example>".into()), "{:?}", server.commands());

    // Who can be reached in ASCII is; the other comes back.
    let (server, ledger) = deliver(NOTHING, sender, &to, "Subject: x\r\n\r\nx\r\n").await;
    assert!(server.commands().contains(&"RCPT TO:<b@xn--bcher-kva.example>".into()), "{:?}", server.commands());
    assert_eq!(server.log().bodies.len(), 1);
    let report = ledger.report().await;
    assert!(
        report.contains("Final-Recipient: utf-8; jürgen@there.example") && report.contains("Status: 5.6.7"),
        "{report}"
    );
}

#[tokio::test]
async fn a_message_that_is_too_large_is_not_sent() {
    let (server, ledger) =
        deliver("250-x\r\n250 SIZE 100\r\n", "<a@sender.example>", &["<b@there.example>"], &"x".repeat(200)).await;
    assert!(server.commands().iter().all(|line| !line.starts_with("MAIL")));
    assert!(ledger.report().await.contains("Status: 5.3.4"));
}

#[tokio::test]
async fn a_short_message_goes_in_one_write_with_chunking() {
    let offer = "250-x\r\n250-PIPELINING\r\n250 CHUNKING\r\n";
    let body = "Subject: x\r\n\r\n.dot\r\n..\r\nlast";
    let (server, _) = deliver(offer, "<a@sender.example>", &["<b@there.example>"], body).await;
    assert_eq!(server.log().bodies, [format!("{body}\r\n")]);
    assert!(
        server.commands().iter().any(|line| line.starts_with("BDAT ") && line.ends_with(" LAST")),
        "{:?}",
        server.commands()
    );
    assert!(server.commands().iter().all(|line| line != "DATA"));
}

#[tokio::test]
async fn a_long_message_is_streamed_with_its_dots() {
    let body = format!("Subject: x\r\n\r\n{}", ".a line that begins with a dot\r\n".repeat(20_000));
    let (server, _) = deliver("250-x\r\n250 PIPELINING\r\n", "<a@sender.example>", &["<b@there.example>"], &body).await;
    let came = server.log().bodies[0].clone();
    assert_eq!(came.len(), body.len() + 20_000);
    assert_eq!(came.replace("\r\n..", "\r\n."), body);
}

#[tokio::test]
async fn some_recipients_may_be_refused() {
    let server = Server::start(|_, step, line| match step {
        Step::Rcpt if line.contains("<never") => Say::Raw("550 5.1.1 who?\r\n".into()),
        Step::Rcpt if line.contains("<later") => Say::Raw("450 4.2.2 full\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    settings.queue.retry.waits = [std::time::Duration::from_secs(3600)].into();
    let delivery = start(settings, &ledger);
    delivery.enqueue(ledger.message(
        "<a@sender.example>",
        &["<ok@x.example>", "<never@x.example>", "<later@x.example>"],
        "x\r\n",
    ));
    let report = ledger.report().await;
    assert!(
        report.contains("never@x.example") && !report.contains("later@x.example") && !report.contains("ok@x.example"),
        "{report}"
    );
    let listed = delivery.list(&weir_mail::delivery::queue::Selection::all(), 0, 10).messages;
    let waiting: Vec<_> =
        listed.iter().filter(|listed| !listed.sender.is_empty()).flat_map(|listed| &listed.recipients).collect();
    assert_eq!(waiting.iter().map(|recipient| recipient.address.as_str()).collect::<Vec<_>>(), ["later@x.example"]);
    assert_eq!(waiting[0].last_answer.as_deref().map(|text| text.ends_with("450 4.2.2 full")), Some(true));
    assert_eq!(server.log().bodies.len(), 1);
}

#[tokio::test]
async fn a_smarthost_may_want_a_login() {
    for (mechanisms, expected) in [("PLAIN LOGIN", "AUTH PLAIN AGFubgBzZWNyZXQ="), ("LOGIN", "AUTH LOGIN")] {
        let server = Server::start(move |_, step, line| match step {
            Step::Hello => Say::Raw(format!("250-x\r\n250 AUTH {mechanisms}\r\n")),
            Step::Auth if line == "AUTH LOGIN" => Say::Raw("334 VXNlcm5hbWU6\r\n".into()),
            // The answers to LOGIN's questions come as lines of their own.
            Step::Other if line == "YW5u" => Say::Raw("334 UGFzc3dvcmQ6\r\n".into()),
            Step::Other if line == "c2VjcmV0" => Say::Raw("235 2.7.0 ok\r\n".into()),
            _ => Say::Usual,
        })
        .await;
        let ledger = MemoryLedger::default();
        let login = Some(Credentials { user: "ann".into(), password: "secret".into() });
        let delivery = start(settings(server.port, Approach { login, ..Approach::default() }), &ledger);
        let message = ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n");
        let id = message.id;
        delivery.enqueue(message);
        ledger.finished(id).await;
        assert_eq!(server.log().bodies.len(), 1);
        assert!(server.commands().contains(&expected.into()), "{:?}", server.commands());
    }
}

#[tokio::test]
async fn a_refused_login_keeps_the_mail() {
    let server = Server::start(|_, step, _| match step {
        Step::Hello => Say::Raw("250-x\r\n250 AUTH PLAIN\r\n".into()),
        Step::Auth => Say::Raw("535 5.7.8 no\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let login = Some(Credentials { user: "ann".into(), password: "wrong".into() });
    let delivery = start(settings(server.port, Approach { login, ..Approach::default() }), &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@there.example>"], "x\r\n"));
    server.until("a second try", |log| log.connections >= 2).await;
    assert!(ledger.state().reports.is_empty() && ledger.state().finished.is_empty());
    let trouble = delivery.stats().queue.destinations[0].trouble.clone().unwrap_or_default();
    assert!(trouble.contains("the login was refused: 535"), "{trouble}");
}
