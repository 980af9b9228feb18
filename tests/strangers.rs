//! Tests of mail from strangers at the running gate, with a real name server: forged mail, listed senders, and clients that send too much.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_peers::Knot;

const ZONE: &str = "bank.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
    _dmarc.bank.example. TXT \"v=DMARC1; p=reject\"
    soft.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
    _dmarc.soft.example. TXT \"v=DMARC1; p=quarantine\"
    any.example. TXT \"v=spf1 +all\"
    66.100.51.198.bl.example. A 127.0.0.2
    67.100.51.198.bl.example. A 192.0.2.1";

/// A site that asks this name server, and delivers mail from outside to Maildirs.
fn site(dns: &Knot, inbound: &str, more: &str) -> Site {
    Site::new(&format!(
        "dns = [\"{}\"]\n[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         trusted = [\"127.0.0.1\"]\n{inbound}{more}",
        dns.address()
    ))
}

/// A stranger with this address, as a listed peer says.
fn stranger(up: &Up, address: &str) -> Client {
    let mut client = Client::greeted(&up.listener("inbound"));
    let said = client.say(&format!("XCLIENT ADDR={address}"));
    assert!(said.starts_with("220"), "{said}");
    assert!(client.say("EHLO mail.sender.example").starts_with("250"));
    client
}

/// Sends a message with this author, and any envelope sender.
fn by(client: &mut Client, sender: &str, author: &str) -> String {
    client.text(sender, &["ann@demo.test"], &format!("From: {author}\r\nSubject: of {author}\r\n\r\nhello"))
}

#[test]
fn what_is_forged_is_refused_or_kept_as_its_domain_asks() {
    let dns = Knot::start(ZONE);
    let site = site(&dns, "", "[scan]\nenabled = true\n");
    let up = site.up();
    let mut bad = stranger(&up, "198.51.100.7");
    let said = by(&mut bad, "x@any.example", "boss@bank.example");
    assert!(said.starts_with("550 5.7.26 bank.example asks"), "{said}");
    let said = by(&mut bad, "boss@demo.test", "x@any.example");
    assert!(said.starts_with("550 5.7.1 demo.test is a domain of ours"), "{said}");
    let said = by(&mut bad, "x@any.example", "boss@demo.test");
    assert!(said.starts_with("550 5.7.1 demo.test is a domain of ours"), "{said}");
    let said = by(&mut bad, "x@any.example", "x@any.example\r\nFrom: boss@bank.example");
    assert!(said.starts_with("550 5.6.0"), "{said}");
    assert!(by(&mut bad, "x@any.example", "who@soft.example").starts_with("250"));
    assert!(by(&mut bad, "x@any.example", "x@any.example").starts_with("250"));
    assert!(by(&mut stranger(&up, "192.0.2.7"), "boss@bank.example", "boss@bank.example").starts_with("250"));
    let files = site.arrived("ann@demo.test", 2);
    let texts: String = files.iter().map(|file| std::fs::read_to_string(file).expect("a message")).collect();
    assert!(texts.contains("Subject: of x@any.example") && texts.contains("Subject: of boss@bank.example"), "{texts}");
    assert!(texts.contains("dmarc=pass header.from=bank.example policy.dmarc=reject"), "{texts}");
    let kept = wait_for("the quarantine", || {
        let list = site.json(&["quarantine", "list"]);
        (list["entries"].as_array().map(Vec::len) == Some(1)).then_some(list)
    });
    let row = kept.to_string();
    assert!(row.contains("neither SPF nor DKIM answers for soft.example"), "{row}");
    // A person may release it all the same.
    site.weir(&["quarantine", "release", "--queue", "spam", "--yes"]).ok();
    site.arrived("ann@demo.test", 3);
}

#[test]
fn mail_that_fails_is_kept_where_nothing_is_scanned() {
    let dns = Knot::start(ZONE);
    let site = site(&dns, "dmarc = \"quarantine\"\ndmarc_overrides = [\"soft.example off\"]\n", "");
    let up = site.up();
    let mut bad = stranger(&up, "198.51.100.7");
    assert!(by(&mut bad, "x@any.example", "boss@bank.example").starts_with("250"));
    assert!(by(&mut bad, "x@any.example", "who@soft.example").starts_with("250"));
    let files = site.arrived("ann@demo.test", 1);
    let text = std::fs::read_to_string(&files[0]).expect("a message");
    assert!(text.contains("Subject: of who@soft.example"), "{text}");
    let kept = || site.json(&["quarantine", "list"])["entries"].as_array().map(Vec::len);
    wait_for("the quarantine", || (kept() == Some(1)).then_some(()));
}

#[test]
fn who_is_listed_is_refused_and_a_dead_list_keeps_nobody_out() {
    let dns = Knot::start(ZONE);
    let site = site(&dns, "dnsbl = [\"bl.example 3\", \"gone.example 3\"]\ndnsbl_threshold = 3\n", "");
    let up = site.up();
    let mut listed = stranger(&up, "198.51.100.66");
    assert!(listed.say("MAIL FROM:<x@any.example>").starts_with("250"));
    let said = listed.say("RCPT TO:<ann@demo.test>");
    assert!(said.starts_with("554 5.7.1 198.51.100.66 is listed by bl.example"), "{said}");
    assert!(listed.say("RCPT TO:<postmaster@demo.test>").starts_with("250"), "somebody must hear of mistakes");
    for other in ["198.51.100.67", "198.51.100.68", "192.0.2.7"] {
        assert!(by(&mut stranger(&up, other), "x@any.example", "x@any.example").starts_with("250"), "{other}");
    }
    site.arrived("ann@demo.test", 3);
    let wrong = Site::new("[inbound]\ndnsbl = [\"bl.example 3 4\"]\n");
    wrong.weir(&["up"]).refused(&["bl.example 3 4", "is not a list"]);
}

/// One network sends as much as it can, over several connections, while another sends its normal mail. With `WEIR_STRANGER_SECONDS`, this
/// goes on for that long and prints how much was offered.
#[test]
fn a_stranger_that_brings_too_much_is_put_off_and_others_are_not() {
    let dns = Knot::start(ZONE);
    let site = site(&dns, "network_burst = 100\nnetwork_rate = 60\n", "");
    let up = site.up();
    let seconds = std::env::var("WEIR_STRANGER_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let (taken, put_off, others) = std::thread::scope(|scope| {
        let flood = |number: usize| {
            let (up, over) = (&up, &over);
            scope.spawn(move || {
                let mut client = stranger(up, &format!("203.0.113.{}", number + 1));
                let (mut taken, mut put_off) = (0_usize, 0_usize);
                while !over.load(Ordering::Relaxed) || taken + put_off < 200 {
                    let said = client.text("x@any.example", &["bob@demo.test"], "From: x@any.example\r\n\r\nbuy");
                    match said.split(' ').next() {
                        Some("250") => taken += 1,
                        Some("451") => {
                            assert!(
                                said.starts_with("451 4.7.1 too much mail from 203.0.113.0/24, try again in "),
                                "{said}"
                            );
                            put_off += 1;
                        }
                        // A session that is refused too often is ended, and the stranger connects again.
                        _ => client = stranger(up, &format!("203.0.113.{}", number + 1)),
                    }
                }
                (taken, put_off)
            })
        };
        let floods: Vec<_> = (0..4).map(flood).collect();
        let mut honest = stranger(&up, "192.0.2.7");
        let mut others = Others::default();
        while others.sent < 20 || begun.elapsed().as_secs() < seconds {
            others.send(|| by(&mut honest, "boss@bank.example", "boss@bank.example"));
            // The others have the same limit, and keep to it.
            if others.sent >= 20 {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        over.store(true, Ordering::Relaxed);
        let counts = floods.into_iter().map(|flood| flood.join().expect("it ends"));
        let (taken, put_off) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (taken, put_off, others)
    });
    let took = begun.elapsed();
    let allowed = 100 + took.as_secs() as usize + 2;
    eprintln!(
        "a stranger offered {:.0} messages a second for {:.0} s: {taken} taken, {put_off} put off; others sent {}, the slowest reply took {:?}",
        (taken + put_off) as f64 / took.as_secs_f64(),
        took.as_secs_f64(),
        others.sent,
        others.slowest
    );
    assert_eq!(others.taken, others.sent);
    assert!(taken <= allowed && taken >= 100, "{taken} of {allowed} were taken");
    assert!(put_off >= 600 - taken.min(600), "{put_off}");
    site.arrived("ann@demo.test", others.sent);
}

/// The results for honest mail.
#[derive(Default)]
struct Others {
    sent: usize,
    taken: usize,
    slowest: Duration,
}

impl Others {
    fn send(&mut self, send: impl FnOnce() -> String) {
        let begun = Instant::now();
        self.sent += 1;
        self.taken += usize::from(send().starts_with("250"));
        self.slowest = self.slowest.max(begun.elapsed());
    }
}
