//! Whose mail it is: addresses of a login, locks and stops, and users behind another server.

use crate::gate::{Gate, TEXT, letter_to};
use std::time::Duration;
use weir_core::throttle::{Params, Recipients};
use weir_mail::submission::{Identity, Settings};
use weir_store::records::{Changes, HeldFilter};

/// Postfix hands on mail of all its users from one address.
fn behind_postfix(settings: &mut Settings) {
    settings.identity = Identity::ClientAddress;
    settings.sender_must_match = false;
    settings.received_from = vec!["127.0.0.1".parse().unwrap()];
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_must_belong_to_the_login_and_headers_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let reply = client.mail("bob@example.org", &letter_to(0), TEXT).await;
    assert!(reply.starts_with("553 5.7.1 bob@example.org is not an address of the login ann"), "{reply}");
    let reply = client.mail("ann@example.org", &letter_to(0), "From: bob@example.org\r\n\r\nx").await;
    assert!(reply.starts_with("553 5.7.1 From names bob@example.org"), "{reply}");
    let reply = client.mail("ann+tag@example.org", &letter_to(0), TEXT).await;
    assert!(reply.starts_with("250 "), "{reply}");
    let id = gate.gone.letters.lock().unwrap()[0].0;
    let path = folder.path().join("m.eml");
    gate.spool.move_out(id, &path).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("Received: by "), "{text}");
    assert!(!text.contains("Authenticated sender") && !text.contains("client.example.org"), "{text}");
    for part in ["with ESMTPA id ", "for <new0@example.net>;", "\r\nDate: ", "\r\nMessage-ID: <"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let circling = format!("{}{TEXT}", "Received: x\r\n".repeat(60));
    assert!(client.mail("ann@example.org", &letter_to(0), &circling).await.starts_with("554 5.4.6 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_from_that_cannot_be_read_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for (header, why) in [
        ("From: ann@example.org\r\nFrom: ann@example.org", "more than one From"),
        ("From: ann@example.org\r\nfrom : ceo@example.net", "From"),
        ("From: The Boss", "From names no address"),
        ("From:", "From names no address"),
    ] {
        let reply = client.mail("ann@example.org", &letter_to(0), &format!("{header}\r\n\r\nx")).await;
        assert!(reply.starts_with("553 5.7.1 ") && reply.contains(why), "{header}: {reply}");
    }
    let reply = client.mail("", &letter_to(0), "Subject: x\r\n\r\nx").await;
    assert!(reply.starts_with("553 5.7.1 the message has no From"), "{reply}");
    // Where there is none, the sender of the envelope is meant.
    let forged = "Authentication-Results: mail.example.org; dkim=pass\r\nX-Weir-Scan: clean\r\nSubject: x\r\n\r\nx";
    assert!(client.mail("ann@example.org", &letter_to(0), forged).await.starts_with("250 "));
    let path = folder.path().join("m.eml");
    let message = gate.gone.letters.lock().unwrap()[0].0;
    gate.spool.move_out(message, &path).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\r\nFrom: <ann@example.org>\r\nSubject: x\r\n"), "{text}");
    assert!(!text.contains("Authentication-Results") && !text.contains("X-Weir-Scan"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_for_sessions_that_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let (mut early, mut late) = (gate.ann().await, gate.ann().await);
    for line in ["MAIL FROM:<ann@example.org>", "RCPT TO:<new0@example.net>", "DATA"] {
        assert!(early.say(line).await.starts_with(['2', '3']));
    }
    let mut user = gate.records.users().find("ann").await.unwrap().unwrap();
    (user.locked_at, user.locked_reason) = (Some(1), "a leak".into());
    gate.records.users().update(&user).await.unwrap();
    let reply = early.say(&format!("{TEXT}\r\n.")).await;
    assert!(reply.starts_with("550 5.7.1 the account ann is locked: a leak"), "{reply}");
    let reply = late.say("MAIL FROM:<ann@example.org>").await;
    assert!(reply.starts_with("550 5.7.1 the account ann is locked: a leak"), "{reply}");
    assert_eq!(gate.gone.recipients(), Vec::<String>::new());
}

/// As at another relay: there nobody ends the sessions of a user who is removed here.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_user_sends_nothing_more_in_sessions_that_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let (mut early, mut late) = (gate.ann().await, gate.ann().await);
    for line in ["MAIL FROM:<ann@example.org>", "RCPT TO:<new0@example.net>"] {
        assert!(early.say(line).await.starts_with('2'));
    }
    assert!(gate.records.users().remove("ann").await.unwrap());
    assert!(early.say("DATA").await.starts_with('3'));
    for sender in ["ann@example.org", "boss@example.org", ""] {
        let reply = late.say(&format!("MAIL FROM:<{sender}>")).await;
        assert!(reply.starts_with("535 5.7.8 the account ann does not exist any more"), "{reply}");
    }
    // Whose addresses are not known cannot be anybody's.
    let forged = TEXT.replace("ann@example.org", "boss@example.org");
    let reply = early.say(&format!("{forged}\r\n.")).await;
    assert!(reply.starts_with("535 5.7.8 the account ann does not exist any more"), "{reply}");
    assert_eq!(gate.gone.recipients(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_counts_for_trusted_recipients_too() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut user = gate.records.users().find("ann").await.unwrap().unwrap();
    user.params = r#"{"trusted":["friend@example.net"]}"#.into();
    gate.records.users().update(&user).await.unwrap();
    let (mut client, friend) = (gate.ann().await, ["friend@example.net".to_owned()]);
    assert!(client.mail("ann@example.org", &friend, TEXT).await.starts_with("250 "));
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(client.mail("ann@example.org", &many, TEXT).await.contains("85 of 100 recipients wait"));
    let refused = client.mail("ann@example.org", &friend, TEXT).await;
    assert!(refused.starts_with("550 5.7.1 ann is stopped"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_named_twice_is_one_recipient() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let twice = ["bob@example.org", "bob@EXAMPLE.org", "bob@example.org", "bob+list@example.org"].map(str::to_owned);
    for why in ["one slack", "known"] {
        let reply = client.mail("ann@example.org", &twice, TEXT).await;
        assert!(reply.contains("accepted, on its way to 2 recipients"), "{why}: {reply}");
    }
    assert_eq!(gate.gone.recipients()[..2], ["bob@example.org", "bob+list@example.org"]);
    let mut many: Vec<String> = (0..14).map(|n| format!("to{n}@example.org")).collect();
    many.extend(["carl@example.org", "dora@example.org", "carl+x@example.org"].map(str::to_owned));
    let reply = client.mail("ann@example.org", &many, TEXT).await;
    assert!(reply.contains("held: 1 of 17 recipients waits"), "{reply}");
    let held = gate.records.held().list(&HeldFilter::default(), 9).await.unwrap();
    assert_eq!(
        held.iter().map(|row| (row.place, row.recipient.as_str())).collect::<Vec<_>>(),
        [(15, "dora@example.org")]
    );
    assert!(gate.gone.recipients().contains(&"carl+x@example.org".to_owned()), "fifteen others went");
}

/// What a plus means at other domains is not known here; where each tag is a mailbox of its own, these are 20 strangers.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_elsewhere_is_a_recipient_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let tags: Vec<String> = (0..20).map(|n| format!("bob+{n}@example.net")).collect();
    let reply = client.mail("ann@example.org", &tags, TEXT).await;
    assert!(reply.contains("held: 5 of 20 recipients wait"), "{reply}");
}

/// Whom Postfix names in the header.
#[tokio::test(flavor = "multi_thread")]
async fn behind_postfix_each_user_has_a_throttle_and_settings_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start_as(folder.path(), None, behind_postfix).await;
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    let by = |user: &str| {
        format!("Received: from x (y [192.0.2.9])\r\n\t(Authenticated sender: {user})\r\n\tby z; now\r\n{TEXT}")
    };
    let mut postfix = gate.client().await;
    // A program on Postfix's own machine, whom nobody vouches for.
    assert!(postfix.mail("cron@example.org", &many, TEXT).await.contains("85 of 100 recipients wait"));
    assert!(postfix.mail("cron@example.org", &letter_to(0), TEXT).await.starts_with("550 5.7.1 127.0.0.1 is stopped"));
    let reply = postfix.mail("bob@example.org", &letter_to(0), &by("bob")).await;
    assert!(reply.contains("accepted, on its way to 1 recipient"), "the stop is not theirs: {reply}");
    let reply = postfix.mail("bob@example.org", &letter_to(1), &by("BOB")).await;
    assert!(reply.contains("waits in the delay queue (1 in all)"), "one user, however it is spelled: {reply}");
    let mut user = gate.records.users().find("ann").await.unwrap().unwrap();
    user.profile = "exempt".into();
    gate.records.users().update(&user).await.unwrap();
    let reply = postfix.mail("ann@example.org", &many, &by("Ann")).await;
    assert!(reply.contains("accepted, on its way to 100 recipients"), "ann's own profile counts: {reply}");
    // An account with capitals, and a throttle that has them without one.
    user.name = "Cora".into();
    assert!(gate.records.users().add(&user).await.unwrap());
    for spelled in ["cora", "Cora", "CORA"] {
        let reply = postfix.mail("cora@example.org", &many, &by(spelled)).await;
        assert!(reply.contains("accepted, on its way to 100 recipients"), "Cora's profile counts: {reply}");
    }
    gate.records.throttles().decide(&["Dora".to_owned()], |_| (Changes::default(), ())).await.unwrap();
    assert!(postfix.mail("dora@example.org", &many, &by("dora")).await.contains("85 of 100 recipients wait"));
    let reply = postfix.mail("dora@example.org", &letter_to(0), &by("DORA")).await;
    assert!(reply.starts_with("550 5.7.1 Dora is stopped"), "{reply}");
}

/// Whom the header names is known only when the mail is here.
#[tokio::test(flavor = "multi_thread")]
async fn behind_postfix_a_user_sends_only_as_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let listed = |settings: &mut Settings| settings.received_from = vec!["127.0.0.1".parse().unwrap()];
    let gate = Gate::start_as(folder.path(), None, listed).await;
    let by = |user: &str, text: &str| {
        format!("Received: from x\r\n\t(Authenticated sender: {user})\r\n\tby z; now\r\n{text}")
    };
    let mut postfix = gate.client().await;
    let reply = postfix.mail("victim@example.net", &letter_to(0), &by("ann", TEXT)).await;
    assert!(reply.starts_with("553 5.7.1 victim@example.net is not an address of the login ann"), "{reply}");
    for (from, text, why) in [
        ("ann@example.org", "From: bob@example.org\r\n\r\nx", "From names bob@example.org"),
        ("ann@example.org", "From: ann@example.org\r\nFrom: ann@example.org\r\n\r\nx", "more than one From"),
        ("", "Subject: x\r\n\r\nx", "the message has no From"),
    ] {
        let reply = postfix.mail(from, &letter_to(0), &by("Ann", text)).await;
        assert!(reply.starts_with("553 5.7.1 ") && reply.contains(why), "{reply}");
    }
    assert_eq!(gate.gone.recipients(), Vec::<String>::new());
    assert!(postfix.mail("ann@example.org", &letter_to(0), &by("ann", TEXT)).await.starts_with("250 "));
    let reply = postfix.mail("bob@example.org", &letter_to(0), &by("bob", "From: bob@example.org\r\n\r\nx")).await;
    assert!(reply.starts_with("250 "), "bob's addresses are Postfix's to know: {reply}");
}

/// Whoever is logged in must not get out of being named by what the server repeats of theirs.
#[tokio::test(flavor = "multi_thread")]
async fn behind_postfix_mail_of_which_it_is_unclear_whose_it_is_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start_as(folder.path(), None, behind_postfix).await;
    let mut postfix = gate.client().await;
    let (ann, says) = ("(Authenticated sender: ann)", "Authenticated sender: x");
    for received in [
        format!(
            "from x (y [192.0.2.9])\r\n\t{ann}\r\n\tby z (Postfix) with ESMTPSA id 4X\r\n\tfor <\"victim+{says}\"@example.net>; now"
        ),
        format!("from x (y [192.0.2.9]) (Authenticated sender: {})\r\n\tby z; now", "x".repeat(321)),
        format!("from x (y [192.0.2.9]) {ann} with words of another server\r\n\tby z; now"),
        format!("from x ({says} (y [192.0.2.9])\r\n\tby z; now"),
    ] {
        let reply = postfix.mail("ann@example.org", &letter_to(0), &format!("Received: {received}\r\n{TEXT}")).await;
        assert!(reply.starts_with("550 5.7.1 the topmost Received field"), "{received}: {reply}");
    }
    assert_eq!(gate.gone.recipients(), Vec::<String>::new());
    // Who is not logged in, but sends from a network of Postfix's own, is not named; nor is what other servers wrote before of interest.
    let own = "Received: from x (y [192.0.2.9])\r\n\tby z (Postfix) with ESMTP id 4X\r\n\tfor <bob@example.net>; now";
    let before = format!("Received: by a; (b {says}\r\n");
    for header in [format!("{own}\r\n"), format!("{own}\r\n{before}"), String::new()] {
        let reply = postfix.mail("cron@example.org", &letter_to(0), &format!("{header}{TEXT}")).await;
        assert!(reply.starts_with("250 "), "{header}: {reply}");
    }
}

/// Postfix hands on all mail from its own address, and writes where the user was into the header.
#[tokio::test(flavor = "multi_thread")]
async fn behind_postfix_a_users_networks_are_those_that_postfix_names() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start_as(folder.path(), None, |settings| {
        settings.sender_must_match = false;
        settings.received_from = vec!["127.0.0.1".parse().unwrap()];
        settings.params =
            Params { recipients: Recipients::Classed, max_slack: 100, new_networks: 6, ..Params::default() };
    })
    .await;
    let by = |user: &str, network: usize| {
        let forged = "(Client CN \"(Authenticated sender: ann) (y [198.51.100.1])\", Issuer \"z\" (verified OK))";
        format!(
            "Received: from x (y [10.0.{network}.9])\r\n\t{forged}\r\n\t(Authenticated sender: {user})\r\n\tby z; now\r\n{TEXT}"
        )
    };
    let mut postfix = gate.client().await;
    for n in 0..20 {
        let reply = postfix.mail("cora@example.org", &letter_to(n), &by("cora", 0)).await;
        assert!(reply.contains("accepted, on its way to 1 recipient"), "always from one network: {reply}");
    }
    let mut held = 0;
    for n in 0..10 {
        let reply = postfix.mail("bob@example.org", &letter_to(n), &by("bob", n)).await;
        held += usize::from(reply.contains("waits in the delay queue"));
    }
    assert_eq!(held, 4, "from the seventh network on");
    let rows = gate.records.held().list(&HeldFilter::default(), 99).await.unwrap();
    assert!(rows.iter().all(|row| row.identity == "bob" && row.source.starts_with("10.0.")), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_host_has_one_throttle() {
    let folder = tempfile::tempdir().unwrap();
    let client_address = |settings: &mut Settings| {
        settings.identity = Identity::ClientAddress;
        settings.clients = vec!["2001:db8::/32".parse().unwrap()];
    };
    let gate = Gate::start_as(folder.path(), None, client_address).await;
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    for (address, expected) in
        [("2001:db8::1", "85 of 100 recipients wait"), ("2001:db8::ffff:2", "2001:db8::/64 is stopped")]
    {
        let mut client = gate.client().await;
        assert!(client.say(&format!("XCLIENT ADDR=IPV6:{address}")).await.starts_with("220 "));
        client.say("EHLO client.example.org").await;
        let reply = client.mail("x@example.org", &many, TEXT).await;
        assert!(reply.contains(expected), "{address}: {reply}");
    }
    // Whoever is not of the named networks hands in nothing, this machine included.
    let mut stranger = gate.client().await;
    let denied = stranger.mail("x@example.org", &many, TEXT).await;
    assert!(denied.starts_with("550 5.7.1 relaying denied"), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_may_have_a_contact_and_parameters_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let client_address = |settings: &mut Settings| settings.identity = Identity::ClientAddress;
    let gate = Gate::start_as(folder.path(), None, client_address).await;
    let mut account = gate.records.users().find("ann").await.unwrap().unwrap();
    (account.name, account.contact) = ("127.0.0.1".into(), "office@elsewhere.example".into());
    account.params = r#"{"max_multi_slack":3}"#.into();
    assert!(gate.records.users().add(&account).await.unwrap());
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    let mut client = gate.client().await;
    let reply = client.mail("x@example.org", &many, TEXT).await;
    assert!(reply.contains("97 of 100 recipients wait"), "{reply}");
    let told = async {
        while !gate.gone.recipients().contains(&"office@elsewhere.example".to_owned()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("a notice");
    assert!(client.mail("x@example.org", &letter_to(0), TEXT).await.starts_with("550 5.7.1 127.0.0.1 is stopped"));
    account.profile = "exempt".into();
    gate.records.users().update(&account).await.unwrap();
    assert!(client.mail("x@example.org", &letter_to(0), TEXT).await.starts_with("250 "));
    (account.locked_at, account.locked_reason) = (Some(1), "moved out".into());
    gate.records.users().update(&account).await.unwrap();
    let reply = client.say("MAIL FROM:<x@example.org>").await;
    assert!(reply.starts_with("550 5.7.1 the account 127.0.0.1 is locked: moved out"), "{reply}");
}
