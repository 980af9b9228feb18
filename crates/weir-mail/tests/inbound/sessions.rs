//! LMTP, what is written into the header, and what is kept of the message.

use super::gate::{Client, Gate, Plan};

#[tokio::test]
async fn lmtp_answers_for_every_recipient() {
    let gate = Gate::start(Plan::default()).await;
    let mut client = Client::connect(gate.lmtp).await;
    assert!(client.say("EHLO client.example").await.starts_with("503"));
    assert!(client.say("LHLO client.example").await.starts_with("250"));
    assert!(client.say("MAIL FROM:<a@b.example>").await.starts_with("250"));
    assert!(client.say("RCPT TO:<ann@example.org>").await.starts_with("250"));
    assert!(client.say("RCPT TO:<x@evil.example>").await.starts_with("550"));
    assert!(client.say("RCPT TO:<bob@example.org>").await.starts_with("250"));
    assert!(client.say("DATA").await.starts_with("354"));
    let first = client.say("Subject: x\r\n\r\ny\r\n.").await;
    let second = client.reply().await;
    assert!(first.starts_with("250 2.0.0") && second.starts_with("250 2.0.0"), "{first}{second}");
    assert!(client.say("NOOP").await.starts_with("250 2.0.0 ok"));
    assert_eq!(gate.gone.recipients(), ["ann@example.org", "bob@example.org"]);
    let text = gate.text(gate.gone.ids()[0]).await;
    assert!(text.contains("with LMTP id"), "{text}");
}

#[tokio::test]
async fn the_message_stays_as_it_came_but_for_what_claims_to_be_ours() {
    let gate = Gate::start(Plan::default()).await;
    let message = "Authentication-Results: mx.example.org;\r\n spf=pass\r\nReceived: from a by b; now\r\n\
        Authentication-Results: other.example; spf=fail\r\nX-Weir-Scan: clean\r\nFrom: <a@b.example>\r\n\r\nbody\r\n..\r\n";
    let said = gate.client().await.mail("a@b.example", &["ann@example.org"], message).await;
    assert!(said.starts_with("250"), "{said}");
    let text = gate.text(gate.gone.ids()[0]).await;
    let (trace, rest) = text.split_once("Received: from a by b; now\r\n").unwrap();
    assert!(trace.starts_with(
        "Received: from client.example (unknown [127.0.0.1])\r\n\tby mx.example.org (Weir) with ESMTP id "
    ));
    assert!(trace.contains("for <ann@example.org>;") && !trace.contains("Authentication"), "{trace}");
    // Neither Date nor Message-ID is added: the message may be signed without them.
    assert_eq!(rest, "Authentication-Results: other.example; spf=fail\r\nFrom: <a@b.example>\r\n\r\nbody\r\n.\r\n\r\n");
}

#[tokio::test]
async fn strangers_have_no_reports_written_to_others() {
    let gate = Gate::start(Plan { trusted: &["127.0.0.1"], ..Plan::default() }).await;
    let letter = async |client: &mut Client| {
        assert!(client.say("MAIL FROM:<victim@elsewhere.example> RET=FULL").await.starts_with("250"));
        assert!(client.say("RCPT TO:<ann@example.org> NOTIFY=SUCCESS,FAILURE").await.starts_with("250"));
        assert!(client.say("DATA").await.starts_with("354"));
        assert!(client.say("Subject: x\r\n\r\ny\r\n.").await.starts_with("250"));
        let letter = gate.gone.letters().pop().unwrap();
        (letter.ret_full, letter.to[0].notify)
    };
    let mut peer = Client::connect(gate.smtp).await;
    assert!(peer.say("EHLO peer.example").await.contains("DSN"), "a listed peer answers for its own");
    assert_eq!(letter(&mut peer).await, (Some(true), Some((true, true, false))));
    let mut stranger = gate.client_from("192.0.2.7", "x.example").await;
    assert!(!stranger.say("EHLO x.example").await.contains("DSN"));
    // Nobody confirms that the sender is who it says, so it hears nothing.
    assert_eq!(letter(&mut stranger).await, (Some(false), Some((false, false, false))));
}

#[tokio::test]
async fn long_lines_pass_and_large_messages_do_not() {
    let gate = Gate::start(Plan {
        limits: weir_smtp::limits::SmtpLimits { message_bytes: 100_000, body_line_bytes: 0, ..Default::default() },
        ..Plan::default()
    })
    .await;
    let mut client = gate.client().await;
    let long = format!("Subject: x\r\n\r\n{}", "y".repeat(5_000));
    assert!(client.mail("a@b.example", &["ann@example.org"], &long).await.starts_with("250"));
    let large = format!("Subject: x\r\n\r\n{}", "yyyyyyyy\r\n".repeat(20_000));
    assert!(client.mail("a@b.example", &["ann@example.org"], &large).await.starts_with("552 5.3.4"));
    assert!(client.say("MAIL FROM:<a@b.example> SIZE=200000").await.starts_with("552"));
    assert_eq!(gate.gone.letters().len(), 1);
    assert_eq!(gate.gone.letters()[0].owner, "127.0.0.0/24");
}
