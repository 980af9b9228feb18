//! SPF, DKIM and DMARC end to end: a client hands a message in, a name server answers from a table, and the header says what
//! was found.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mail_auth::common::crypto::{RsaKey, Sha256};
use mail_auth::common::headers::HeaderWriter;
use mail_auth::dkim::{Canonicalization, DkimSigner};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use weir_mail::delivery::resolver::Dns;
use weir_mail::inbound::EvaluatorSettings;
use weir_mail::inbound::authenticity::{AuthenticitySettings, SIGNATURES_MAX};
use weir_mail::inbound::enforcement::{DmarcMode, EnforcementSettings};
use weir_mail::letter::Letter;
use weir_mail::pipeline::Transit;
use weir_peers::{Mood, NameServer, Record};
use weir_smtp::dkim::{Algorithm, Keyring, Signing, SigningKey, generate};

use super::gate::{Gate, Plan, no_marks};

const CLIENT: &str = "192.0.2.7";
const HELO: &str = "mail.sender.example";

pub(crate) fn settings(dns: SocketAddr, patience: Duration) -> AuthenticitySettings {
    let dns = Dns::Server(dns, patience);
    AuthenticitySettings { hostname: "mx.example.org".into(), dns, patience, at_once: 16 }
}

/// A gate that asks this name server.
pub(crate) async fn gate(dns: &NameServer) -> Gate {
    gate_with(dns, Duration::from_secs(10)).await
}

async fn gate_with(dns: &NameServer, patience: Duration) -> Gate {
    // What follows from the results is for enforcement.rs; here they are only read.
    let enforcement = EnforcementSettings { dmarc: DmarcMode::Off, ..EnforcementSettings::default() };
    let evaluation = Some(EvaluatorSettings { authenticity: settings(dns.address(), patience), enforcement });
    Gate::start(Plan { trusted: &["127.0.0.1"], evaluation, ..Plan::default() }).await
}

pub(crate) fn text(from: &str) -> String {
    format!(
        "From: {from}\r\nTo: ann@example.org\r\nSubject: x\r\nDate: Sun, 15 Nov 2026 03:04:00 +0000\r\n\r\nhello\r\n"
    )
}

/// The results for a message, unfolded.
pub(crate) async fn results(gate: &Gate, client: &str, sender: &str, text: &str) -> String {
    let before = gate.gone.letters().len();
    let mut session = gate.client_from(client, HELO).await;
    let said = session.mail(sender, &["ann@example.org"], text.trim_end_matches("\r\n")).await;
    assert!(said.starts_with("250"), "{said}");
    let letters = gate.gone.wait_for(before + 1).await;
    added(&letters[before])
}

fn added(letter: &Letter) -> String {
    let field = &letter.added;
    assert!(field.starts_with("Authentication-Results: mx.example.org;") && field.ends_with("\r\n"), "{field:?}");
    field.replace("\r\n\t", " ").trim_end().to_owned()
}

#[track_caller]
pub(crate) fn says(results: &str, parts: &[&str]) {
    for part in parts {
        assert!(results.contains(part), "{part:?} is missing in {results}");
    }
}

fn zones() -> NameServer {
    let chain = |number: usize| format!("v=spf1 include:i{}.many.example -all", number + 1);
    let mut dns = NameServer::start()
        .txt("pass.example", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8:7::/48 -all")
        .txt("fail.example", "v=spf1 ip4:198.51.100.0/24 -all")
        .txt("soft.example", "v=spf1 ~all")
        .txt("neutral.example", "v=spf1 ?all")
        .txt("mx.example", "v=spf1 mx -all")
        .with("mx.example", Record::Mx(10, "host.mx.example".into()))
        .address_of("host.mx.example", "192.0.2.7")
        .address_of("host.mx.example", "2001:db8:7::1")
        .txt("broken.example", "v=spf1 ip4:nonsense -all")
        .txt("many.example", "v=spf1 include:i0.many.example -all")
        .txt(HELO, "v=spf1 a -all")
        .address_of(HELO, "192.0.2.7")
        .address_of("nothing.example", "192.0.2.99");
    for number in 0..14 {
        dns = dns.txt(&format!("i{number}.many.example"), &chain(number));
    }
    dns
}

#[tokio::test]
async fn spf_in_all_its_results() {
    let dns = zones();
    let gate = gate(&dns).await;
    for (domain, result) in [
        ("pass.example", "spf=pass"),
        ("fail.example", "spf=fail"),
        ("soft.example", "spf=softfail"),
        ("neutral.example", "spf=neutral"),
        ("mx.example", "spf=pass"),
        ("broken.example", "spf=permerror"),
        ("many.example", "spf=permerror"),
        ("nothing.example", "spf=none"),
        ("nowhere.example", "spf=none"),
    ] {
        let found = results(&gate, CLIENT, &format!("who@{domain}"), &text("who@example.com")).await;
        let (_, from) = found.split_once("smtp.helo=mail.sender.example").expect("HELO is evaluated too");
        says(from, &[result, &format!("smtp.mailfrom=who@{domain}")]);
        assert!(found.contains("spf=pass") && !found.contains("dkim="), "{found}");
    }
    // Not more than ten records of the long chain were looked at.
    assert_eq!((dns.asked("i9.many.example"), dns.asked("i10.many.example")), (1, 0));
}

#[tokio::test]
async fn spf_of_ipv6_and_of_mail_from_nobody() {
    let dns = zones();
    let gate = gate(&dns).await;
    let found = results(&gate, "IPV6:2001:db8:7::1", "who@pass.example", &text("who@pass.example")).await;
    says(&found, &["spf=pass", "2001:db8:7::1", "smtp.mailfrom=who@pass.example", "smtp.helo=mail.sender.example"]);
    says(&results(&gate, "IPV6:2001:db8:8::1", "who@pass.example", &text("who@pass.example")).await, &["spf=fail"]);
    says(&results(&gate, "IPV6:2001:db8:7::1", "who@mx.example", &text("who@mx.example")).await, &["spf=pass"]);
    // A bounce has no sender; HELO stands for it.
    let found = results(&gate, CLIENT, "", &text("mailer-daemon@sender.example")).await;
    says(&found, &["spf=pass", "smtp.helo=mail.sender.example"]);
    assert!(!found.contains("smtp.mailfrom"), "{found}");
}

#[tokio::test]
async fn dmarc_for_mail_from_nobody_goes_by_helo() {
    let dns = zones()
        .txt("_dmarc.sender.example", "v=DMARC1; p=reject")
        .txt("_dmarc.mail.sender.example", "v=DMARC1; p=reject; aspf=s");
    let gate = gate(&dns).await;
    says(&results(&gate, CLIENT, "", &text("mailer-daemon@mail.sender.example")).await, &["dmarc=pass"]);
    says(
        &results(&gate, "192.0.2.8", "", &text("mailer-daemon@mail.sender.example")).await,
        &["spf=fail", "dmarc=fail"],
    );
}

/// A domain with a key of its own.
pub(crate) struct Signer {
    keyring: Keyring,
    pem: String,
    pub(crate) domain: String,
    /// Its key, as the DNS has it.
    pub(crate) record: String,
}

impl Signer {
    pub(crate) fn new(dns: NameServer, domain: &str, algorithm: Algorithm) -> (Signer, NameServer) {
        let (pem, record) = generate(domain, "sel", algorithm).unwrap();
        let mut keyring = Keyring::default();
        keyring.add(SigningKey::from_pem(&pem, domain, "sel").unwrap());
        let signer = Signer { keyring, pem, domain: domain.into(), record: record.value.clone() };
        (signer, dns.txt(&record.name, &record.value))
    }

    /// The message with a signature by its From.
    pub(crate) fn signed(&self, text: &str) -> String {
        let mut signing = Signing::default();
        signing.write(text.as_bytes());
        let field = signing.finish(&self.keyring, 1_700_000_000).expect("From is of the domain");
        format!("{field}{text}")
    }

    /// The message with a signature of this domain whatever its From, header and body in their simple forms.
    pub(crate) fn signed_simply(&self, text: &str) -> String {
        let key = PrivateKeyDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        let signature = DkimSigner::from_key(RsaKey::<Sha256>::from_key_der(key).unwrap())
            .domain(&self.domain)
            .selector("sel")
            .headers(["From", "To", "Subject"])
            .header_canonicalization(Canonicalization::Simple)
            .body_canonicalization(Canonicalization::Simple)
            .sign(text.as_bytes())
            .unwrap();
        format!("{}{text}", signature.to_header())
    }
}

#[tokio::test]
async fn signatures_hold_break_and_are_forged() {
    let (signer, dns) = Signer::new(zones(), "pass.example", Algorithm::Ed25519);
    let (rsa, dns) = Signer::new(dns, "rsa.example", Algorithm::Rsa);
    let gate = gate(&dns).await;
    let whole = signer.signed(&text("who@pass.example"));
    says(&results(&gate, CLIENT, "who@pass.example", &whole).await, &["dkim=pass header.d=pass.example header.s=sel"]);
    let broken = whole.replace("hello", "hullo");
    let found = results(&gate, CLIENT, "who@pass.example", &broken).await;
    says(&found, &["dkim=fail (body hash did not verify) header.d=pass.example"]);
    let altered = whole.replace("Subject: x", "Subject: y");
    says(&results(&gate, CLIENT, "who@pass.example", &altered).await, &["dkim=fail"]);
    let unknown = whole.replace("s=sel;", "s=nokey;");
    says(&results(&gate, CLIENT, "who@pass.example", &unknown).await, &["dkim=permerror"]);
    // Simple forms, empty lines at the end, and a body that does not fit into one piece of the spool.
    let simple = rsa.signed_simply(&format!("{}  a  b \r\n\r\n\r\n", text("who@rsa.example")));
    says(&results(&gate, CLIENT, "who@rsa.example", &simple).await, &["dkim=pass header.d=rsa.example"]);
    let body = "a  line of a long message\t \r\n".repeat(30_000);
    for long in [
        signer.signed(&format!("{}{body}", text("who@pass.example"))),
        rsa.signed_simply(&format!("{}{body}", text("who@rsa.example"))),
    ] {
        let found = results(&gate, CLIENT, "who@pass.example", &long).await;
        says(&found, &["dkim=pass"]);
        let broken = long.replacen("a long message", "a Long message", 1);
        says(&results(&gate, CLIENT, "who@pass.example", &broken).await, &["dkim=fail"]);
    }
}

#[tokio::test]
async fn dmarc_aligns_relaxed_and_strict() {
    let (signer, dns) = Signer::new(zones(), "org.example", Algorithm::Rsa);
    let dns = dns
        .txt("org.example", "v=spf1 -all")
        .txt("_dmarc.org.example", "v=DMARC1; p=reject; adkim=r; aspf=r")
        .txt("_dmarc.strict.org.example", "v=DMARC1; p=quarantine; adkim=s; aspf=s")
        .txt("bounce.org.example", "v=spf1 ip4:192.0.2.0/24 -all")
        .txt("strict.org.example", "v=spf1 ip4:192.0.2.0/24 -all");
    let gate = gate(&dns).await;
    // SPF of a subdomain aligns if relaxed.
    let found = results(&gate, CLIENT, "x@bounce.org.example", &text("who@org.example")).await;
    says(&found, &["spf=pass", "dmarc=pass header.from=org.example policy.dmarc=reject"]);
    let found = results(&gate, CLIENT, "x@bounce.org.example", &text("who@strict.org.example")).await;
    says(&found, &["spf=pass", "dmarc=fail", "header.from=strict.org.example policy.dmarc=quarantine"]);
    let found = results(&gate, CLIENT, "x@strict.org.example", &text("who@strict.org.example")).await;
    says(&found, &["dmarc=pass"]);
    // So does a signature.
    let signed = |from: &str| signer.signed_simply(&text(from));
    let found = results(&gate, CLIENT, "x@fail.example", &signed("who@sub.org.example")).await;
    says(&found, &["spf=fail", "dkim=pass", "dmarc=pass header.from=sub.org.example"]);
    let found = results(&gate, CLIENT, "x@fail.example", &signed("who@strict.org.example")).await;
    says(&found, &["dkim=pass", "dmarc=fail"]);
    // What passes for another domain proves nothing for this one.
    let found = results(&gate, CLIENT, "who@pass.example", &text("boss@org.example")).await;
    says(
        &found,
        &["spf=pass", "dmarc=fail header.from=org.example policy.dmarc=reject"]
            .map(|part| part.split(" header").next().unwrap()),
    );
    let found = results(&gate, CLIENT, "who@pass.example", &text("who@pass.example")).await;
    says(&found, &["dmarc=none header.from=pass.example"]);
}

#[tokio::test]
async fn a_silent_name_server_delays_mail_by_its_patience_and_no_more() {
    let (signer, dns) = Signer::new(zones(), "pass.example", Algorithm::Ed25519);
    let gate = gate_with(&dns, Duration::from_millis(600)).await;
    let whole = signer.signed(&text("who@pass.example"));
    dns.be(Mood::Silent);
    let begun = Instant::now();
    let found = results(&gate, CLIENT, "who@pass.example", &whole).await;
    let took = begun.elapsed();
    says(&found, &["spf=temperror", "dkim=temperror", "dmarc=temperror"]);
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
    // One that fails is as good as silent, and one that is back is believed at once.
    dns.be(Mood::Failing);
    let found = results(&gate, CLIENT, "who@pass.example", &whole).await;
    says(&found, &["spf=temperror", "dkim=temperror", "dmarc=temperror"]);
    dns.be(Mood::Well);
    says(&results(&gate, CLIENT, "who@pass.example", &whole).await, &["spf=pass", "dkim=pass"]);
}

#[tokio::test]
async fn silence_about_one_signature_is_not_silence_about_the_other() {
    let (signer, dns) = Signer::new(zones(), "pass.example", Algorithm::Ed25519);
    let (other, dns) = Signer::new(dns, "other.example", Algorithm::Rsa);
    dns.be_about("sel._domainkey.other.example", Mood::Failing);
    let gate = gate(&dns).await;
    let twice = other.signed_simply(&signer.signed(&text("who@pass.example")));
    let found = results(&gate, CLIENT, "who@pass.example", &twice).await;
    says(&found, &["dkim=temperror", "header.d=other.example", "dkim=pass header.d=pass.example"]);
}

#[tokio::test]
async fn floods_of_signatures_and_strange_headers_are_bounded() {
    let dns = zones();
    let gate = gate(&dns).await;
    let signature = |number: usize| {
        format!("DKIM-Signature: v=1; a=rsa-sha256; d=d{number}.example; s=s; h=from; bh=AAAA; b=AAAA\r\n")
    };
    let many: String = (0..200).map(signature).collect();
    let found = results(&gate, CLIENT, "who@pass.example", &format!("{many}{}", text("who@pass.example"))).await;
    assert_eq!(found.matches("dkim=").count(), SIGNATURES_MAX, "{found}");
    let broken = "DKIM-Signature: nonsense\r\n".repeat(200);
    let found = results(&gate, CLIENT, "who@pass.example", &format!("{broken}{}", text("who@pass.example"))).await;
    assert!(found.matches("dkim=").count() <= SIGNATURES_MAX, "{found}");
    // A signature over more names than there is time for, with names too long to be repeated.
    let names = (0..20_000).map(|number| format!("n{number}")).collect::<Vec<_>>().join(":");
    let wide =
        format!("DKIM-Signature: v=1; a=rsa-sha256; d=pass.example; s=s;\r\n h={names};\r\n bh=AAAA; b=AAAA\r\n");
    let fields = "A: b\r\n".repeat(5_000);
    let begun = Instant::now();
    let found =
        results(&gate, CLIENT, "who@pass.example", &format!("{wide}{fields}{}", text("who@pass.example"))).await;
    says(&found, &["dkim=permerror", "spf=pass"]);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let long = format!("{}.example", "a".repeat(5_000));
    let found = results(&gate, CLIENT, "who@pass.example", &text(&format!("who@{long}"))).await;
    assert!(found.len() < 2_000 && !found.contains("aaaaaaaaaa"), "{found}");
    for from in ["", "who", "<<<>>>", "a@b.example, c@d.example", "\"x\\\r\n y\" <who@pass.example>"] {
        let found = results(&gate, CLIENT, "who@pass.example", &text(from)).await;
        says(&found, &["spf=pass"]);
    }
    // A message without a header.
    says(&results(&gate, CLIENT, "who@pass.example", "\r\nhello\r\n").await, &["spf=pass"]);
}

/// Name servers of a sender's own that do not answer hide nothing of the domain that it forges.
#[tokio::test]
async fn silence_about_other_names_does_not_hide_a_policy() {
    let dns = zones().txt("_dmarc.bank.example", "v=DMARC1; p=reject");
    for name in ["_dmarc.slow.example", "slow.example", "sel._domainkey.slow.example", "helo.slow.example"] {
        dns.be_about(name, Mood::Silent);
    }
    let gate = gate_with(&dns, Duration::from_millis(600)).await;
    let signature =
        "DKIM-Signature: v=1; a=rsa-sha256; d=slow.example; s=sel; h=from; bh=AAAA; b=AAAA\r\n".repeat(SIGNATURES_MAX);
    let message = format!("{signature}{}", text("me@slow.example, boss@bank.example"));
    let found = results(&gate, CLIENT, "x@slow.example", &message).await;
    says(&found, &["dkim=temperror", "dmarc=temperror header.from=slow.example"]);
    says(&found, &["dmarc=fail header.from=bank.example policy.dmarc=reject"]);
}

/// Four messages at once about which the DNS says nothing, because the name servers of their sender are silent.
async fn four_unanswered(gate: &Gate) {
    let before = gate.gone.letters().len();
    let send = async |client: &str| {
        let mut session = gate.client_from(client, "helo.slow.example").await;
        let text = text("me@slow.example");
        session.mail("x@slow.example", &["ann@example.org"], text.trim_end_matches("\r\n")).await
    };
    let said = tokio::join!(send("192.0.2.7"), send("198.51.100.7"), send("203.0.113.7"), send("192.88.99.7"));
    for said in [said.0, said.1, said.2, said.3] {
        assert!(said.starts_with("250"), "{said}");
    }
    gate.gone.wait_for(before + 4).await;
}

/// Who sends with a domain whose name servers are silent must not shorten the time in which the policies of others are found.
#[tokio::test]
async fn silence_about_some_messages_shortens_the_time_of_no_other() {
    let dns = zones()
        .txt("_dmarc.bank.example", "v=DMARC1; p=reject")
        .txt("_dmarc.late.example", "v=DMARC1; p=reject; psd=n");
    for name in ["_dmarc.slow.example", "slow.example", "helo.slow.example"] {
        dns.be_about(name, Mood::Silent);
    }
    for name in ["_dmarc.bank.example", "_dmarc.late.example"] {
        dns.be_about(name, Mood::Slow(Duration::from_secs(2)));
    }
    let gate = gate_with(&dns, Duration::from_secs(4)).await;
    four_unanswered(&gate).await;
    let found = results(&gate, CLIENT, "who@pass.example", &text("boss@bank.example")).await;
    says(&found, &["dmarc=fail header.from=bank.example policy.dmarc=reject"]);
    // If it answers nobody, it is not waited for so long.
    four_unanswered(&gate).await;
    dns.be(Mood::Silent);
    let found = results(&gate, CLIENT, "who@pass.example", &text("boss@late.example")).await;
    says(&found, &["dmarc=temperror header.from=late.example"]);
}

#[tokio::test]
async fn sha1_proves_nothing() {
    let (signer, dns) = Signer::new(zones(), "pass.example", Algorithm::Rsa);
    let gate = gate(&dns).await;
    let old = signer.signed(&text("who@pass.example")).replace("a=rsa-sha256", "a=rsa-sha1");
    let found = results(&gate, CLIENT, "who@pass.example", &old).await;
    says(&found, &["dkim=permerror"]);
}

/// A listed peer brings a message of a client that it names: it is taken first and evaluated after.
async fn relayed(gate: &Gate, sender: &str) {
    let mut peer = gate.client().await;
    assert!(peer.say(&format!("XFORWARD ADDR={CLIENT} HELO={HELO} SOURCE=REMOTE")).await.starts_with("250"));
    assert!(peer.mail(sender, &["ann@example.org"], &text(sender)).await.starts_with("250"));
}

#[tokio::test]
async fn what_was_found_survives_in_a_mark() {
    let dns = zones();
    let gate = gate(&dns).await;
    relayed(&gate, "who@pass.example").await;
    gate.gone.wait_for(1).await;
    let (id, letter) = (gate.gone.ids()[0], Arc::clone(&gate.gone.letters()[0]));
    let plain = Arc::new(Letter { added: String::new(), ..Letter::clone(&letter) });
    gate.spool.flush().await.unwrap();
    let marks = {
        // As a restart would find them.
        let copy = tempfile::tempdir().unwrap();
        let folder = copy.path().join("spool");
        gate.spool.snapshot(&folder).await.unwrap();
        let options = weir_store::spool::Options { free_floor_bytes: 0, ..Default::default() };
        let (_spool, found) = weir_store::spool::Spool::open(folder, options).unwrap();
        found.into_iter().find(|found| found.id == id).expect("it stands in the spool").marks
    };
    let questions = dns.questions();
    let transit = Transit { id, letter: plain, places: vec![0] };
    gate.pipeline.resume(transit.clone(), &marks);
    assert_eq!(gate.gone.wait_for(2).await[1].added, letter.added, "with its line, at once");
    assert_eq!(dns.questions(), questions, "and nobody was asked");
    // Without the mark it is evaluated again.
    gate.pipeline.resume(transit, &no_marks());
    assert_eq!(gate.gone.wait_for(3).await[2].added, letter.added);
}

#[tokio::test]
async fn what_is_stopped_stays_for_the_next_start_and_local_mail_is_not_asked_about() {
    let dns = zones();
    let gate = gate(&dns).await;
    // The peer itself, on this machine.
    assert!(
        gate.client()
            .await
            .mail("who@pass.example", &["ann@example.org"], &text("who@pass.example"))
            .await
            .starts_with("250")
    );
    assert_eq!(gate.gone.wait_for(1).await[0].added, "");
    assert_eq!(dns.questions(), 0);
    dns.be(Mood::Silent);
    relayed(&gate, "who@pass.example").await;
    gate.pipeline.stop(Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(gate.gone.letters().len(), 1);
    assert!(gate.folder.path().exists());
}

/// Names in signatures are the sender's to choose; however long, what the domains say stands in the field.
#[tokio::test]
async fn long_signatures_do_not_push_out_the_rest() {
    let dns = zones();
    let gate = gate(&dns).await;
    let long = format!("{}.example", vec!["a".repeat(60); 4].join(".").split_at(240).0);
    let signature = format!(
        "DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d={long}; s={long}; i=@{long};\r\n h=from;\r\n bh=YWJj; b=YWJj\r\n"
    );
    let found = results(
        &gate,
        CLIENT,
        "who@fail.example",
        &format!("{}{}", signature.repeat(SIGNATURES_MAX), text("who@fail.example")),
    )
    .await;
    says(&found, &["spf=fail", "smtp.mailfrom=who@fail.example"]);
    assert!(found.len() < 4 << 10 && !found.contains("dkim="), "{found}");
}
