//! Tests of whom the throttle knows: colleagues, people to whom a user wrote before, people who wrote to the user, and the networks that
//! the user's mail comes from.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::collections::BTreeSet;
use std::time::Duration;
use weir_peers::Knot;

const PASSWORD: &str = "correct horse battery";

fn add_user(site: &Site, name: &str, address: &str) {
    site.weir_with(&["user", "add", name, "--address", address, "--password-stdin"], &format!("{PASSWORD}\n")).ok();
}

fn login(up: &Up, name: &str) -> Client {
    Client::login(&up.plain, name, PASSWORD).expect("a login")
}

/// How many people outside the site a user has written to, as the site remembers it.
fn known(site: &Site, name: &str) -> i64 {
    site.json(&["user", "show", name])["correspondents"].as_i64().expect("a number")
}

/// Lets a worm send one mail to each of these people, as fast as it can, until it is stopped. Returns how many of them it reached.
#[track_caller]
fn reached(client: &mut Client, from: &str, victims: impl Iterator<Item = String>) -> usize {
    let mut reached = 0;
    for victim in victims {
        let said = client.mail(from, &[&victim], "a worm");
        assert!(said.starts_with("250"), "{said}");
        if said.contains("you are stopped") {
            return reached;
        }
        reached += usize::from(said.contains("accepted, on its way"));
    }
    panic!("the worm was not stopped; it reached {reached}");
}

#[test]
fn colleagues_are_not_strangers_and_a_pattern_is_not_trusted() {
    let site = Site::new("[throttle]\nown_domains = [\"example.org\"]\npartner_domains = [\"partner.example\"]\n");
    let up = site.up();
    add_user(&site, "ann", "ann@example.org");
    let mut ann = login(&up, "ann");
    for n in 0..10 {
        for domain in ["example.org", "partner.example"] {
            let said = ann.mail("ann@example.org", &[&format!("c{n}@{domain}")], "to a colleague");
            assert!(said.contains("accepted, on its way to 1 recipient"), "{said}");
        }
    }
    let said = ann.mail("ann@example.org", &["s1@elsewhere.example"], "to a stranger");
    assert!(said.contains("accepted"), "{said}");
    let said =
        ann.mail("ann@example.org", &["s2@elsewhere.example", "s3@elsewhere.example", "c99@example.org"], "to both");
    assert!(said.contains("accepted, on its way to 3 recipients"), "{said}");
    let said = ann.mail("ann@example.org", &["s4@elsewhere.example"], "to another stranger");
    assert!(said.contains("held: 1 of 1"), "{said}");
    let refused = site.weir(&["user", "set", "ann", "--trust", "*@example.org"]);
    refused.refused(&["*@example.org cannot be trusted", "throttle.own_domains"]);
}

#[test]
fn a_worm_that_mails_only_colleagues_is_stopped() {
    let site = Site::new("[throttle]\nown_domains = [\"example.org\"]\n");
    let up = site.up();
    add_user(&site, "eve", "eve@example.org");
    let reached = reached(&mut login(&up, "eve"), "eve@example.org", (0..200).map(|n| format!("c{n}@example.org")));
    assert!((20..=60).contains(&reached), "{reached} colleagues");
    let shown = site.weir(&["user", "show", "eve"]).ok();
    assert!(shown.contains("colleagues waited"), "{shown}");
    assert!(Client::login(&up.plain, "eve", PASSWORD).is_err(), "one stop is for everybody");
}

#[test]
fn an_address_of_ours_that_names_a_way_elsewhere_is_a_strangers() {
    let site = Site::new("[throttle]\nown_domains = [\"example.org\"]\n");
    let up = site.up();
    let ways: [fn(usize) -> String; 3] = [
        |n| format!("info+%far{n}.example@example.org"),
        |n| format!("victim{n}%far.example@example.org"),
        |n| format!("far.example!victim{n}@example.org"),
    ];
    for (name, way) in ["ann", "bob", "cat"].into_iter().zip(ways) {
        let address = format!("{name}@example.org");
        add_user(&site, name, &address);
        let reached = reached(&mut login(&up, name), &address, (0..200).map(way));
        assert!(reached <= 10, "{name} reached {reached} through a server that reads such addresses");
    }
}

#[test]
fn old_correspondents_are_known_also_after_a_kill_and_a_worm_that_mails_only_them_is_stopped() {
    let site = Site::new("[throttle]\nworking_set = 0\nmax_multi_slack = 200\n");
    let up = site.up();
    add_user(&site, "ann", "ann@example.org");
    let friends: Vec<String> = (0..90).map(|n| format!("f{n}@friends{}.example", n % 7)).collect();
    let all: Vec<&str> = friends.iter().map(String::as_str).collect();
    let mut ann = login(&up, "ann");
    assert!(ann.mail("ann@example.org", &all, "a party").contains("accepted, on its way to 90 recipients"));
    assert!(ann.mail("ann@example.org", &["one@stranger.example"], "hello").contains("accepted"));
    let said = ann.mail("ann@example.org", &["held@stranger.example"], "hello");
    assert!(said.contains("held: 1 of 1"), "{said}");
    wait_for("91 people to be remembered", || (known(&site, "ann") == 91).then_some(()));
    up.kill();
    let up = site.up_alone();
    assert_eq!(known(&site, "ann"), 91, "those whose mail only waits are not among them");
    let mut ann = login(&up, "ann");
    let said = ann.mail("ann@example.org", &["another@stranger.example"], "hello");
    assert!(said.contains("held: 1 of 1"), "the slack is spent: {said}");
    let reached = reached(&mut ann, "ann@example.org", friends.iter().cloned());
    assert!((20..=60).contains(&reached), "{reached} friends");
    let shown = site.weir(&["user", "show", "ann"]).ok();
    assert!(shown.contains("people waited who were written to before"), "{shown}");
}

#[test]
fn who_wrote_may_be_answered_and_a_worm_that_answers_the_inbox_is_stopped() {
    let dns = Knot::start("any.example. TXT \"v=spf1 +all\"\n    none.example. TXT \"no policy\"");
    let site = Site::new(&format!(
        "dns = [\"{}\"]\n[throttle]\nworking_set = 0\n[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\n\
         recipients = \"any\"\ntrusted = [\"127.0.0.1\"]\n",
        dns.address()
    ));
    let up = site.up();
    add_user(&site, "ann", "ann@demo.test");
    // Ann has sent nothing yet: even a new user may answer people who wrote to her.
    let mut outside = Client::greeted(&up.listener("inbound"));
    assert!(outside.say("XCLIENT ADDR=198.51.100.7").starts_with("220"));
    assert!(outside.say("EHLO mail.any.example").starts_with("250"));
    for n in 0..60 {
        let from = format!("w{n}@any.example");
        let said =
            outside.text(&from, &["ann@demo.test"], &format!("From: {from}\r\nSubject: a question\r\n\r\nhello"));
        assert!(said.starts_with("250"), "{said}");
    }
    let forged = "w@none.example";
    let said = outside.text(forged, &["ann@demo.test"], &format!("From: {forged}\r\nSubject: x\r\n\r\nhello"));
    assert!(said.starts_with("250"), "{said}");
    // An answer to a mail that never came is a mail to a stranger, and too many of these would stop the account.
    site.arrived("ann@demo.test", 61);
    let mut ann = login(&up, "ann");
    assert!(ann.mail("ann@demo.test", &["first@stranger.example"], "hello").contains("accepted"), "the slack is spent");
    let mut answer = |to: &str| ann.mail("ann@demo.test", &[to], "an answer");
    assert!(answer(forged).contains("held: 1 of 1"), "an address that nobody confirms stays a stranger's");
    // It takes a moment until somebody who wrote is remembered, and that happens only if the DNS confirmed in time that the mail was
    // theirs.
    let mut said = String::new();
    let goes = (0..60).rev().any(|n| {
        std::thread::sleep(Duration::from_millis(100));
        said = answer(&format!("w{n}@any.example"));
        said.contains("accepted, on its way")
    });
    assert!(goes, "{said}");
    let reached = reached(&mut ann, "ann@demo.test", (0..60).rev().map(|n| format!("w{n}@any.example")));
    assert!((15..=60).contains(&reached), "{reached} who wrote");
}

/// A session that comes from this address, as a listed peer says.
fn from_address(up: &Up, address: &str) -> Client {
    let mut client = Client::greeted(&up.plain);
    let said = client.say(&format!("XCLIENT ADDR={address} LOGIN=eve"));
    assert!(said.starts_with("220"), "{said}");
    assert!(client.say("EHLO somewhere.example").starts_with("250"));
    client
}

#[test]
fn a_patient_hijacker_with_a_hundred_networks_is_slowed_and_stopped() {
    let site = Site::with_submission("trusted = [\"127.0.0.1\"]\n", "");
    let up = site.up();
    add_user(&site, "eve", "eve@example.org");
    // The rates allow far more strangers than are written to here. What slows this account down is the number of networks from which it is
    // used.
    site.weir(&["user", "set", "eve", "--rate", "1000/s", "--multi-rate", "1000/s", "--max-slack", "100"]).ok();
    let (mut slowed, mut stopped, mut waiting) = (None, None, BTreeSet::new());
    for n in 0..125 {
        let mut client = from_address(&up, &format!("198.51.{n}.7"));
        let said = client.mail("eve@example.org", &[&format!("s{n}@elsewhere.example")], "a lottery");
        assert!(said.starts_with("250"), "{said}");
        if !said.contains("accepted, on its way") {
            slowed = slowed.or(Some(n + 1));
            waiting.insert(n);
        }
        if said.contains("you are stopped") {
            stopped = Some(n + 1);
            break;
        }
        // A network that was used before does not count again.
        if waiting.is_empty() {
            let mut again = from_address(&up, &format!("198.51.{n}.99"));
            let said = again.mail("eve@example.org", &[&format!("t{n}@elsewhere.example")], "a lottery");
            assert!(said.contains("accepted, on its way"), "{said}");
        }
    }
    assert!(slowed.is_some_and(|n| (4..=10).contains(&n)), "slowed at mail {slowed:?}");
    assert!(stopped.is_some_and(|n| n <= 30), "stopped at mail {stopped:?}");
    let shown = site.weir(&["user", "show", "eve"]).ok();
    assert!(shown.contains("networks that are new to the account"), "{shown}");
}
