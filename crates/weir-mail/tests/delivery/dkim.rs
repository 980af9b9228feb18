//! Signatures, checked by an independent verifier (mail-auth) against keys in a private DNS.

use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use mail_auth::{AuthenticatedMessage, DkimResult, MessageAuthenticator};
use weir_mail::delivery::message::OutgoingMessage;
use weir_smtp::client::approach::Approach;
use weir_smtp::dkim::{Algorithm, Keyring, SigningKey, generate};

use super::dns::{Answer, NameServer, Zone};
use super::memory_ledger::{MemoryLedger, settings, start};
use super::server::{Say, Server, Step};

struct Verifier {
    authenticator: MessageAuthenticator,
    keyring: Keyring,
    _dns: NameServer,
}

impl Verifier {
    /// A domain with a new key, published.
    async fn new(algorithm: Algorithm) -> Verifier {
        let (pem, record) = generate("example.org", "sel1", algorithm).unwrap();
        let zone = Zone::Records(vec![Answer::Txt(record.value.clone())]);
        let dns = NameServer::start(&[(record.name.as_str(), zone)]).await;
        let mut connection = ConnectionConfig::udp();
        connection.port = dns.address.port();
        let server = NameServerConfig::new(dns.address.ip(), true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let authenticator = MessageAuthenticator::new(config, ResolverOpts::default()).unwrap();
        let mut keyring = Keyring::default();
        keyring.add(SigningKey::from_pem(&pem, "example.org", "sel1").unwrap());
        Verifier { authenticator, keyring, _dns: dns }
    }

    /// Whether every signature of the message holds, and there is one.
    async fn holds(&self, text: &[u8]) -> bool {
        let message = AuthenticatedMessage::parse(text).expect("a message");
        let results = self.authenticator.verify_dkim(&message).await;
        !results.is_empty() && results.iter().all(|output| output.result() == &DkimResult::Pass)
    }
}

const HEADER: &str = "Received: from x by y; Sun, 15 Nov 2026 03:04:00 +0000\r\nFrom: \"Ann, B.\" <ann@example.org>\r\nTo: bob@example.net\r\n\
    Subject:   folded\r\n\tsubject \r\nDate: Sun, 15 Nov 2026 03:04:00 +0000\r\nMessage-ID: <1@example.org>\r\n";

/// What arrives at a server when this is sent with signing on.
async fn sent(verifier: &Verifier, text: &str) -> String {
    sent_with(verifier, "", text).await
}

async fn sent_with(verifier: &Verifier, added: &str, text: &str) -> String {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings(server.port, Approach::default());
    settings.keyring = verifier.keyring.clone();
    let delivery = start(settings, &ledger);
    let message = ledger.message("<ann@example.org>", &["<bob@example.net>"], text);
    let message = OutgoingMessage { sign: true, added: added.into(), ..message };
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    delivery.shutdown(Duration::from_secs(5)).await;
    let body = server.log().bodies[0].clone();
    body.replace("\r\n..", "\r\n.")
}

#[tokio::test]
async fn signatures_hold() {
    for algorithm in [Algorithm::Rsa, Algorithm::Ed25519] {
        let verifier = Verifier::new(algorithm).await;
        let long = "a  line\twith   spaces \r\n".repeat(8000);
        for body in [
            "hello\r\n",
            "",
            "\r\n\r\n",
            " leading and trailing \t\r\n\r\n\r\n",
            ".dots\r\n..\r\n",
            "no line end",
            &long,
        ] {
            let text = sent(&verifier, &format!("{HEADER}\r\n{body}")).await;
            assert!(text.starts_with("DKIM-Signature: v=1; a="), "{algorithm:?}");
            assert!(
                verifier.holds(text.as_bytes()).await,
                "{algorithm:?} {:?}\n{}",
                &body[..body.len().min(40)],
                &text[..1500.min(text.len())]
            );
        }
    }
}

#[tokio::test]
async fn what_is_converted_is_signed_as_it_goes_out() {
    let verifier = Verifier::new(Algorithm::Ed25519).await;
    let server = Server::start(|_, step, _| match step {
        Step::Hello => Say::Raw("250 seven.example\r\n".into()),
        _ => Say::Usual,
    });
    let (server, ledger) = (server.await, MemoryLedger::default());
    let mut settings = settings(server.port, Approach::default());
    settings.keyring = verifier.keyring.clone();
    let delivery = start(settings, &ledger);
    let text = format!("{HEADER}\r\n.gr\u{fc}n\r\n{}\r\n", "sch\u{f6}n ".repeat(30_000));
    let message = ledger.message("<ann@example.org> BODY=8BITMIME", &["<bob@example.net>"], &text);
    let message = OutgoingMessage { sign: true, long_lines: true, added: "X-Added: \u{fc}\r\n".into(), ..message };
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    delivery.shutdown(Duration::from_secs(5)).await;
    let sent = server.log().bodies[0].replace("\r\n..", "\r\n.");
    assert!(sent.is_ascii() && sent.contains("\r\n=2Egr=C3=BCn\r\n") && sent.contains("X-Added: =?utf-8?q?=C3=BC?="));
    assert!(verifier.holds(sent.as_bytes()).await, "{}", &sent[..2_000]);
    assert!(!verifier.holds(sent.replacen("=C3=BCn", "=C3=BCx", 1).as_bytes()).await);
}

#[tokio::test]
async fn lines_added_on_the_way_stand_on_top_and_are_signed_with_the_rest() {
    let verifier = Verifier::new(Algorithm::Ed25519).await;
    let long = "a  line\twith   spaces \r\n".repeat(8000);
    for body in ["hello\r\n", &long] {
        let text = sent_with(&verifier, "Reply-To: x@example.org\r\n", &format!("{HEADER}\r\n{body}")).await;
        assert!(verifier.holds(text.as_bytes()).await);
        assert!(
            text.starts_with("DKIM-Signature: ") && text.contains("\r\nReply-To: x@example.org\r\nReceived: from x")
        );
        assert!(!verifier.holds(text.replacen("x@example.org", "y@example.org", 1).as_bytes()).await);
    }
}

#[tokio::test]
async fn a_changed_message_does_not_hold() {
    let verifier = Verifier::new(Algorithm::Ed25519).await;
    let text = sent(&verifier, &format!("{HEADER}\r\npay 10 to Bob\r\n")).await;
    assert!(verifier.holds(text.as_bytes()).await);
    for (from, to) in
        [("pay 10", "pay 99"), ("ann@", "eve@"), ("folded", "changed"), ("bob@example.net\r\n", "eve@example.net\r\n")]
    {
        assert!(!verifier.holds(text.replacen(from, to, 1).as_bytes()).await, "{from} → {to}");
    }
    let added = text.replacen("From:", "From: eve@example.org\r\nFrom:", 1);
    assert!(!verifier.holds(added.as_bytes()).await, "a second From is sealed off");
    // What relays may do: other headers, folding, spaces at line ends.
    let relayed = format!("Received: from a by b\r\n{}", text.replace("pay 10 to Bob", "pay  10\tto Bob  "));
    assert!(verifier.holds(relayed.as_bytes()).await);
}

#[tokio::test]
async fn random_messages_hold() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let verifier = Verifier::new(Algorithm::Ed25519).await;
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]));
    let words = "[a-z \t.:;=]{0,30}";
    let lines = proptest::collection::vec(words, 0..20);
    for _ in 0..60 {
        let mut lines = lines.new_tree(&mut runner).unwrap().current();
        // A last line of nothing but spaces is empty (RFC 6376 section 3.4.4, and dkimpy); this verifier sees it otherwise.
        lines.push("end".into());
        let subject = words.new_tree(&mut runner).unwrap().current();
        let text = format!(
            "{HEADER}X-Other: {subject}\r\nCc: c@example.net,\r\n {}d@example.net\r\n\r\n{}\r\n",
            " ".repeat(lines.len()),
            lines.join("\r\n")
        );
        let mut signing = weir_smtp::dkim::Signing::default();
        signing.write(text.as_bytes());
        let field = signing.finish(&verifier.keyring, 1_794_798_240).unwrap();
        assert!(verifier.holds(format!("{field}{text}").as_bytes()).await, "{text:?}");
    }
}

#[tokio::test]
async fn a_folder_of_keys_is_read() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Keyring::load(&folder.path().join("missing")).unwrap().is_empty());
    let domain = folder.path().join("example.org");
    std::fs::create_dir(&domain).unwrap();
    for selector in ["a2025", "b2026"] {
        let (pem, _) = generate("example.org", selector, Algorithm::Ed25519).unwrap();
        std::fs::write(domain.join(format!("{selector}.pem")), pem).unwrap();
    }
    let keyring = Keyring::load(folder.path()).unwrap();
    assert_eq!(keyring.key_for("sub.Example.org").unwrap().selector(), "b2026");
    assert!(keyring.key_for("org").is_none() && keyring.key_for("notexample.org").is_none());
    std::fs::write(domain.join("c.pem"), "nonsense").unwrap();
    let error = Keyring::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("c.pem") && error.contains("PEM"), "{error}");
}
