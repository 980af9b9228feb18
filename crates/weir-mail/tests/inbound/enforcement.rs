//! What follows from the results over SMTP, with a real name server: who is refused, who is kept, who is put off, who is told.

use super::gate::{Gate, Plan};
use std::time::Duration;
use weir_mail::delivery::resolver::Dns;
use weir_mail::inbound::authenticity::AuthenticitySettings;
use weir_mail::inbound::dnsbl::DnsblSettings;
use weir_mail::inbound::enforcement::{DmarcMode, EnforcementSettings, OwnSenders};
use weir_mail::inbound::rates::RateSettings;
use weir_mail::inbound::{Domains, EvaluatorSettings};
use weir_peers::Knot;

const GOOD: &str = "192.0.2.7";
const BAD: &str = "198.51.100.7";

fn zone() -> Knot {
    Knot::start(
        "bank.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
         _dmarc.bank.example. TXT \"v=DMARC1; p=reject\"
         soft.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
         _dmarc.soft.example. TXT \"v=DMARC1; p=quarantine\"
         never.example. TXT \"v=spf1 -all\"
         _dmarc.never.example. TXT \"v=DMARC1; p=reject; pct=0\"
         twice.example. TXT \"v=spf1 -all\"
         _dmarc.twice.example. TXT \"v=DMARC1; p=reject\"
         _dmarc.twice.example. TXT \"v=DMARC1; p=none\"
         test.example. TXT \"v=spf1 -all\"
         _dmarc.test.example. TXT \"v=DMARC1; p=reject; t=y\"
         evil.example. TXT \"v=spf1 +all\"
         example.org. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
         7.100.51.198.bl.example. A 127.0.0.2
         8.100.51.198.bl.example. A 127.0.0.2
         8.100.51.198.second.example. A 127.0.0.4
         8.100.51.198.trusted.example. A 127.0.0.9
         9.100.51.198.bl.example. A 192.0.2.99
         10.100.51.198.bl.example. A 127.255.255.254
         11.100.51.198.second.example. A 127.0.0.2",
    )
}

async fn gate_with(dns: &Knot, change: impl FnOnce(&mut EnforcementSettings, &mut Plan)) -> Gate {
    let way = Dns::Server(dns.address(), Duration::from_secs(20));
    let mut enforcement = EnforcementSettings {
        ours: Domains::new(["example.org", ".sub.example.net"]),
        ..EnforcementSettings::default()
    };
    let mut plan = Plan { trusted: &["127.0.0.1"], dns: way.clone(), ..Plan::default() };
    change(&mut enforcement, &mut plan);
    let patience = Duration::from_secs(20);
    let hostname = "mx.example.org".to_owned();
    let authenticity = AuthenticitySettings { hostname, dns: way, patience, at_once: 16 };
    plan.evaluation = Some(EvaluatorSettings { authenticity, enforcement });
    Gate::start(plan).await
}

fn text(from: &str) -> String {
    format!("From: {from}\r\nTo: ann@example.org\r\nSubject: x\r\n\r\nhello")
}

async fn send(gate: &Gate, client: &str, sender: &str, from: &str) -> String {
    let mut session = gate.client_from(client, "mail.sender.example").await;
    session.mail(sender, &["ann@example.org"], &text(from)).await
}

/// The last letter that went on, by the subject of nothing but its count.
async fn last(gate: &Gate, count: usize) -> std::sync::Arc<weir_mail::letter::Letter> {
    gate.gone.wait_for(count).await.last().cloned().expect("a letter")
}

#[tokio::test]
async fn a_domain_is_not_forged_against_its_wish() {
    let dns = zone();
    let gate = gate_with(&dns, |_, _| ()).await;
    let said = send(&gate, BAD, "x@evil.example", "Boss <boss@bank.example>").await;
    assert!(said.starts_with("550 5.7.26 bank.example asks"), "{said}");
    let said = send(&gate, BAD, "boss@bank.example", "boss@sub.bank.example").await;
    assert!(said.starts_with("550 5.7.26"), "{said}");
    assert!(send(&gate, GOOD, "boss@bank.example", "boss@bank.example").await.starts_with("250"));
    assert_eq!(last(&gate, 1).await.hold, None);
    // To be kept, not refused; what is outside the percentage, and what is being tested, is a level less.
    for (count, from) in [(2, "who@soft.example"), (3, "who@never.example"), (4, "who@test.example")] {
        let said = send(&gate, BAD, "x@evil.example", from).await;
        assert!(said.starts_with("250"), "{from}: {said}");
        let hold = last(&gate, count).await.hold.clone().expect("a person is to look at it");
        assert!(hold.starts_with("DMARC: neither SPF nor DKIM answers for "), "{hold}");
    }
    // Two records are none.
    assert!(send(&gate, BAD, "x@evil.example", "who@twice.example").await.starts_with("250"));
    let letter = last(&gate, 5).await;
    assert_eq!(letter.hold, None);
    assert!(letter.added.contains("dmarc=none header.from=twice.example"), "{}", letter.added);
}

#[tokio::test]
async fn a_second_author_is_judged_as_the_first() {
    let dns = zone();
    let gate = gate_with(&dns, |_, _| ()).await;
    let two = "me@evil.example\r\nFrom: boss@bank.example";
    let said = send(&gate, BAD, "x@evil.example", two).await;
    assert!(said.starts_with("550 5.6.0 the message has more than one From"), "{said}");
    for both in ["me@evil.example, boss@bank.example", "boss@bank.example, me@evil.example"] {
        let said = send(&gate, BAD, "x@evil.example", both).await;
        assert!(said.starts_with("550 5.7.26 bank.example"), "{both}: {said}");
    }
    // One among so many that not all would be asked about.
    let many: String = (0..20).map(|number| format!("a@d{number}.example, ")).collect();
    let said = send(&gate, BAD, "x@evil.example", &format!("{many}boss@bank.example")).await;
    assert!(said.starts_with("550 5.6.0 From names more domains"), "{said}");
    // An author whom only a lax reader sees.
    let said = send(&gate, BAD, "x@evil.example", "\"boss@bank.example\" (").await;
    assert!(said.starts_with("550 5.7.26 bank.example"), "{said}");
}

#[tokio::test]
async fn settings_and_overrides_soften_what_is_done() {
    let dns = zone();
    let gate = gate_with(&dns, |enforcement, _| {
        enforcement.dmarc = DmarcMode::Quarantine;
        enforcement.overrides =
            vec!["soft.example off".parse().unwrap(), ".bank.example as published".parse().unwrap()];
    })
    .await;
    assert!(send(&gate, BAD, "x@evil.example", "who@bank.example").await.starts_with("250"));
    assert!(last(&gate, 1).await.hold.is_some());
    assert!(send(&gate, BAD, "x@evil.example", "who@soft.example").await.starts_with("250"));
    assert_eq!(last(&gate, 2).await.hold, None);
    assert!(send(&gate, BAD, "x@evil.example", "who@sub.bank.example").await.starts_with("550 5.7.26"));
}

#[tokio::test]
async fn strangers_do_not_use_our_names() {
    let dns = zone();
    let gate = gate_with(&dns, |_, _| ()).await;
    for (sender, from) in [
        ("boss@example.org", "boss@evil.example"),
        ("boss@EXAMPLE.ORG", "boss@example.org"),
        ("x@evil.example", "boss@example.org"),
        ("", "boss@example.org"),
        ("x@evil.example", "boss@a.sub.example.net"),
        ("x@evil.example", "me@evil.example, boss@example.org"),
    ] {
        let said = send(&gate, BAD, sender, from).await;
        assert!(said.starts_with("550 5.7.1 ") && said.contains("a domain of ours"), "{sender} {from}: {said}");
    }
    assert!(send(&gate, GOOD, "boss@example.org", "boss@example.org").await.starts_with("250"));
    assert!(send(&gate, BAD, "x@evil.example", "me@evil.example").await.starts_with("250"));
    let lax = gate_with(&dns, |enforcement, _| enforcement.own_senders = OwnSenders::Envelope).await;
    assert!(send(&lax, BAD, "x@evil.example", "boss@example.org").await.starts_with("250"));
    assert!(send(&lax, BAD, "boss@example.org", "me@evil.example").await.starts_with("550 5.7.1"));
}

/// What a listed peer has taken is kept instead of refused, and our own users write from everywhere through it.
#[tokio::test]
async fn mail_of_a_listed_peer_is_kept_and_not_refused() {
    let dns = zone();
    let gate = gate_with(&dns, |_, _| ()).await;
    let mut peer = gate.client().await;
    let forward = format!("XFORWARD ADDR={BAD} HELO=mail.sender.example SOURCE=REMOTE");
    for (count, from, kept) in [(1, "boss@bank.example", true), (2, "boss@example.org", false)] {
        assert!(peer.say(&forward).await.starts_with("250"));
        assert!(peer.mail("x@evil.example", &["ann@example.org"], &text(from)).await.starts_with("250"));
        let letter = last(&gate, count).await;
        assert_eq!(letter.hold.is_some(), kept, "{from}");
        assert!(letter.added.contains("Authentication-Results"), "{}", letter.added);
    }
}

#[tokio::test]
async fn only_senders_that_spf_confirms_hear_of_failures() {
    let dns = zone();
    let gate = gate_with(&dns, |_, _| ()).await;
    for (count, client, sender, told) in
        [(1, GOOD, "x@bank.example", true), (2, BAD, "x@never.example", false), (3, BAD, "x@nobody.example", false)]
    {
        assert!(send(&gate, client, sender, "me@evil.example").await.starts_with("250"));
        let never = Some((false, false, false));
        assert_eq!(last(&gate, count).await.to[0].notify != never, told, "{sender}");
    }
}

#[tokio::test]
async fn lists_weigh_and_silence_does_not() {
    let dns = zone();
    let gate = gate_with(&dns, |_, plan| {
        let lists = ["bl.example 2", "second.example 1", "trusted.example -5"].map(|list| list.parse().unwrap());
        plan.dnsbl = DnsblSettings { lists: lists.to_vec(), threshold: 2, patience: Duration::from_secs(20) };
    })
    .await;
    let rcpt = async |client: &str, to: &str| {
        let mut session = gate.client_from(client, "mail.sender.example").await;
        assert!(session.say("MAIL FROM:<x@evil.example>").await.starts_with("250"));
        session.say(&format!("RCPT TO:<{to}>")).await
    };
    let said = rcpt(BAD, "ann@example.org").await;
    assert!(said.starts_with("554 5.7.1 198.51.100.7 is listed by bl.example"), "{said}");
    // The postmaster hears of mistakes.
    assert!(rcpt(BAD, "postmaster@example.org").await.starts_with("250"));
    // On two lists, and on one of those who are trusted; a list that has died; a list that does not answer us; too little weight.
    for client in ["198.51.100.8", "198.51.100.9", "198.51.100.10", "198.51.100.11", GOOD] {
        let said = rcpt(client, "ann@example.org").await;
        assert!(said.starts_with("250"), "{client}: {said}");
    }
    assert!(send(&gate, "198.51.100.11", "x@evil.example", "me@evil.example").await.starts_with("250"));
    let letter = last(&gate, 1).await;
    assert!(letter.added.ends_with("\r\nX-Weir-Listed: second.example=1; sum=1\r\n"), "{}", letter.added);
    // A listed peer is not looked up, and neither is this machine.
    assert!(gate.client().await.rcpt("<ann@example.org>").await.starts_with("250"));
}

#[tokio::test]
async fn a_dead_list_keeps_nobody_out() {
    let dns = zone();
    let gate = gate_with(&dns, |_, plan| {
        // Nobody listens there.
        plan.dns = Dns::Server("127.0.0.1:9".parse().unwrap(), Duration::from_millis(200));
        let lists = vec!["bl.example 5".parse().unwrap()];
        plan.dnsbl = DnsblSettings { lists, threshold: 1, patience: Duration::from_millis(500) };
    })
    .await;
    assert!(send(&gate, BAD, "x@evil.example", "me@evil.example").await.starts_with("250"));
}

#[tokio::test]
async fn a_network_and_a_name_have_their_limits_and_others_have_theirs() {
    let dns = zone();
    let gate = gate_with(&dns, |_, plan| {
        plan.rates = RateSettings { network_burst: 20, network_rate: 1, domain_burst: 5, domain_rate: 1 };
    })
    .await;
    let mut answers = Vec::new();
    for number in 0..40 {
        answers.push(send(&gate, &format!("203.0.113.{number}"), "x@nobody.example", "me@evil.example").await);
    }
    assert_eq!(answers.iter().filter(|said| said.starts_with("250")).count(), 20, "{answers:?}");
    assert!(answers[39].starts_with("451 4.7.1 too much mail from 203.0.113.0/24, try again in "), "{}", answers[39]);
    // Another network is not concerned, and the name that was claimed is still its owner's.
    assert!(send(&gate, BAD, "x@evil.example", "me@evil.example").await.starts_with("250"));
    for _ in 0..5 {
        assert!(send(&gate, GOOD, "who@bank.example", "who@bank.example").await.starts_with("250"));
    }
    let said = send(&gate, GOOD, "who@bank.example", "who@bank.example").await;
    assert!(said.starts_with("451 4.7.1 too much mail from bank.example, try again in "), "{said}");
    // Listed peers and this machine bring what they like.
    for _ in 0..30 {
        assert!(
            gate.client()
                .await
                .mail("a@b.example", &["ann@example.org"], &text("a@b.example"))
                .await
                .starts_with("250")
        );
    }
}

#[tokio::test]
async fn what_is_refused_is_written_down_where_people_look_for_it() {
    let dns = zone();
    let gate = gate_with(&dns, |_, plan| {
        let lists = vec!["bl.example 1".parse().unwrap()];
        plan.dnsbl = DnsblSettings { lists, threshold: 1, patience: Duration::from_secs(20) };
        plan.rates = RateSettings { network_burst: 1, network_rate: 1, ..RateSettings::default() };
        plan.recipients = weir_mail::inbound::RecipientRule::Store;
        plan.users = vec![("ann", vec!["ann@example.org"])];
    })
    .await;
    let said = |client: &str| {
        let lines = gate.lines_about(client);
        assert!(lines.iter().all(|line| line.event == "refused"), "{lines:?}");
        lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>().join("\n")
    };
    let listed = send(&gate, BAD, "a@evil.example", "a@evil.example").await;
    assert!(listed.starts_with("554"), "on a list: {listed}");
    assert!(
        said(BAD).contains("by the port for mail from outside: 554") && said(BAD).contains("bl.example"),
        "{}",
        said(BAD)
    );
    let forger = "203.0.113.7";
    assert!(send(&gate, forger, "ceo@bank.example", "ceo@bank.example").await.starts_with("550"), "DMARC");
    let lines = gate.lines_about(forger);
    let facts = lines[0].facts.clone().unwrap_or_default();
    assert_eq!(
        (facts.from.as_str(), facts.to.as_slice(), facts.gate.as_str()),
        ("ceo@bank.example", &["ann@example.org".to_owned()][..], "inbound")
    );
    assert!(lines[0].text.contains("DMARC"), "{lines:?}");
    let twice = send(&gate, forger, "ceo@bank.example", "ceo@bank.example").await;
    assert!(
        twice.starts_with('4') && said(forger).contains("too much mail"),
        "a client's limit: {twice} {}",
        said(forger)
    );
    let mut stranger = gate.client_from("203.0.114.8", "mail.sender.example").await;
    assert!(stranger.mail("a@evil.example", &["nobody@example.org"], "x").await.starts_with("550"));
    let lines = gate.lines_about("203.0.114.8");
    assert_eq!(lines[0].facts.as_ref().map(|facts| facts.to.clone()), Some(vec!["nobody@example.org".to_owned()]));
}
