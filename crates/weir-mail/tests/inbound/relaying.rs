//! No open relay: the usual tricks, and what listed peers may.

use super::gate::{Client, Gate, Plan, is_received};

const TEXT: &str = "From: <a@b.example>\r\nSubject: hello\r\n\r\ntext";

#[tokio::test]
async fn nobody_relays_through_us() {
    let gate = Gate::start(Plan::default()).await;
    let mut client = gate.client().await;
    for path in [
        "<victim@evil.example>",
        // The %-hack, the bang path, a route in quotes, all of them at once.
        "<victim%evil.example@example.org>",
        "<evil.example!victim@example.org>",
        "<\"victim@evil.example\"@example.org>",
        "<\"victim%evil.example\"@example.org>",
        "<\"evil.example!victim\"@example.org>",
        "<victim%evil.example%example.org@example.org>",
        // Source routes: we are a hop, or the recipient.
        "<@example.org:victim@evil.example>",
        "<@example.org,@x.example:victim@evil.example>",
        "<@example.org:victim%evil.example@example.org>",
        // Literals of others and of ourselves.
        "<victim@[192.0.2.1]>",
        "<victim@[127.0.0.1]>",
        "<victim@[IPv6:::1]>",
        "<victim@127.0.0.1>",
        // Neighbours of our domains.
        "<ann@example.org.evil.example>",
        "<ann@evil.example.org>",
        "<ann@xexample.org>",
        "<ann@sub.example.net>",
        "<ann@bucher.example>",
        "<ann@bücher.example.evil.example>",
        "<ann@xn--bcher-kva.evil.example>",
        // Names for programs and files of an old next server.
        "<|rm@example.org>",
        "</etc/passwd@example.org>",
        // What is no address at all.
        "<ann@example.org.>",
        "<ann@evil.example,@example.org>",
        "<ann@example.org@evil.example>",
        "<ann@evil.example\\@example.org>",
        "<ann>",
        "<>",
        "<@example.org>",
    ] {
        let mut fresh = gate.client().await;
        let said = fresh.rcpt(path).await;
        assert!(said.starts_with('5'), "{path}: {said}");
    }
    let said = client.mail("a@b.example", &["victim@evil.example"], TEXT).await;
    assert!(said.starts_with("550 5.7.1 relaying denied: evil.example is no domain of ours"), "{said}");
    assert!(gate.gone.letters().is_empty());
}

#[tokio::test]
async fn our_own_recipients_are_taken_in_every_spelling() {
    let gate = Gate::start(Plan::default()).await;
    let mut client = gate.client().await;
    for path in [
        "<ann@example.org>",
        "<Ann@EXAMPLE.Org>",
        "<ann+tag@example.org>",
        "<\"ann\"@example.org>",
        "<\"ann b\"@example.org>",
        "<@evil.example:ann@example.org>",
        "<ann@a.sub.example.net>",
        "<ann@bücher.example>",
        "<ann@BÜCHER.example>",
        "<jürgen@xn--bcher-kva.example>",
        "<postmaster@example.org>",
        "<postmaster>",
    ] {
        let said = client.rcpt(path).await;
        assert!(said.starts_with("250"), "{path}: {said}");
    }
}

#[tokio::test]
async fn logins_and_proxies_open_no_door() {
    let gate = Gate::start(Plan::default()).await;
    let mut client = gate.client().await;
    assert!(!client.say("EHLO x.example").await.contains("AUTH"));
    for command in
        ["AUTH PLAIN AGFubgBzZWNyZXQ=", "XCLIENT ADDR=127.0.0.1", "XFORWARD ADDR=127.0.0.1", "XCLIENT LOGIN=ann"]
    {
        let said = client.say(command).await;
        assert!(said.starts_with('5'), "{command}: {said}");
    }
    // A listed peer vouches for a client; the client is not listed.
    let gate = Gate::start(Plan { trusted: &["127.0.0.1"], ..Plan::default() }).await;
    let mut client = gate.client_from("192.0.2.7", "client.example").await;
    let said = client.rcpt("<victim@evil.example>").await;
    assert!(said.starts_with("550 5.7.1"), "{said}");
    assert!(client.say("XCLIENT ADDR=127.0.0.1").await.starts_with("550"));
    assert!(client.say("XFORWARD ADDR=127.0.0.1").await.starts_with("550"));
}

#[tokio::test]
async fn listed_peers_relay_and_have_it_handed_back() {
    let gate = Gate::start(Plan { trusted: &["127.0.0.1"], hand_back: true, ..Plan::default() }).await;
    let mut client = gate.client().await;
    let said =
        client.say("XFORWARD NAME=mail.sender.example ADDR=192.0.2.99 HELO=helo.sender.example PROTO=ESMTP").await;
    assert!(said.starts_with("250"), "{said}");
    let said = client.mail("a@b.example", &["x@anywhere.example", "y%z@else.example"], TEXT).await;
    assert!(said.starts_with("250 2.0.0 "), "{said}");
    let letter = &gate.gone.letters()[0];
    assert!(is_received(letter) && letter.hand_back);
    assert_eq!((letter.source.as_str(), letter.owner.as_str()), ("192.0.2.99", "192.0.2.0/24"));
    assert_eq!(letter.subject, "hello");
    // What it sends out is its own users' mail: there is nothing to evaluate.
    assert_eq!(letter.client, None);

    client.say("XFORWARD ADDR=IPV6:2001:db8:7::1 HELO=helo.sender.example").await;
    assert!(client.mail("a@b.example", &["ann@example.org"], TEXT).await.starts_with("250"));
    let letter = &gate.gone.letters()[1];
    let seen = letter.client.as_ref().expect("for a domain of ours");
    assert_eq!((seen.address.to_string().as_str(), seen.helo.as_str()), ("2001:db8:7::1", "helo.sender.example"));
    assert_eq!(letter.owner, "2001:db8:7::/48");

    // Of its own mail, and of clients that it does not name, nothing is known.
    client.say("XFORWARD ADDR=192.0.2.99 SOURCE=LOCAL").await;
    assert!(client.mail("a@b.example", &["ann@example.org"], TEXT).await.starts_with("250"));
    assert!(client.mail("a@b.example", &["ann@example.org"], TEXT).await.starts_with("250"));
    assert!(gate.gone.letters()[2..].iter().all(|letter| letter.client.is_none() && letter.hand_back));
}

#[tokio::test]
async fn a_message_that_goes_in_circles_is_stopped() {
    let gate = Gate::start(Plan { trusted: &["127.0.0.1"], hand_back: true, ..Plan::default() }).await;
    let mut text = TEXT.to_owned();
    for pass in 1..=6 {
        let said = gate.client().await.mail("a@b.example", &["x@anywhere.example"], &text).await;
        if pass == 6 {
            assert!(said.starts_with("554 5.4.6"), "{said}");
            break;
        }
        assert!(said.starts_with("250"), "pass {pass}: {said}");
        text = gate.text(*gate.gone.ids().last().unwrap()).await;
        text.truncate(text.trim_end().len());
    }
    // And one that has been everywhere.
    let everywhere = format!("{}{TEXT}", "Received: from a by b; now\r\n".repeat(51));
    let said = gate.client().await.mail("a@b.example", &["ann@example.org"], &everywhere).await;
    assert!(said.starts_with("554 5.4.6"), "{said}");
}

#[tokio::test]
async fn the_postmaster_is_always_there_and_has_a_domain() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recipients");
    std::fs::write(&file, "ann@example.org\n").unwrap();
    let recipients = weir_mail::inbound::RecipientRule::File(file);
    let gate = Gate::start(Plan { recipients, ..Plan::default() }).await;
    let mut client = gate.client().await;
    assert!(client.rcpt("<bob@example.org>").await.starts_with("550 5.1.1"));
    let to = ["PostMaster", "POSTMASTER@Example.org", "postmaster@x.sub.example.net"];
    assert!(client.mail("", &to, TEXT).await.starts_with("250"));
    assert_eq!(
        gate.gone.recipients(),
        ["postmaster@example.org", "POSTMASTER@Example.org", "postmaster@x.sub.example.net"]
    );
    assert_eq!(gate.gone.letters()[0].from, "", "mail from nobody is mail");
    assert!(Client::connect(gate.smtp).await.say("RCPT TO:<postmaster>").await.starts_with("503"));
}
