//! Tests of the milter door.

use super::{ADMIN, PASSWORD, Way, World};
use crate::control::gate::{Client, wait_for};
use weir_peers::Postgres;
use weir_scan::eicar::eicar;

/// Mail to two strangers is sent, mail to a third is held, and a fourth stops the user; held mail is not sent by itself.
const STRICT: &str = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nmax_multi_slack = 2\nstop_at = 1\n";

fn infected() -> String {
    format!("From: who@sender.example\r\nSubject: infected\r\n\r\n{}\r\n", eicar())
}

#[test]
fn what_would_be_held_is_taken_over_and_drains_by_itself() {
    let world = World::start(Way::Milter, &["ann"], &[], "[throttle]\nrate = \"60/min\"\nmulti_rate = \"60/min\"\n");
    let mut ann = world.login("ann");
    for to in ["one@there.example", "two@there.example"] {
        let said = ann.mail("ann@here.example", &[to], "hello");
        assert!(said.starts_with("250 2.0.0 Ok: queued as"), "{said}");
    }
    let first = world.arrived("one@there.example");
    assert!(!first.contains("(Weir)") && first.contains("X-Weir-Scan: mail.example; clean"), "{first}");
    // The second mail was held by Weir, was sent when its time came, and came back to Postfix.
    let second = world.arrived("two@there.example");
    assert!(second.contains("by mail.example (Weir) with ESMTPA"), "{second}");
    assert_eq!(second.matches("by postfix.example.org (Postfix)").count(), 1, "{second}");
    assert!(second.contains("Subject: hello") && second.contains("\n\nhello"), "{second}");
    assert!(world.postfix.log().contains("milter-discard: END-OF-MESSAGE"), "{}", world.postfix.log());
    // Nobody else is throttled: mail from somebody who is not logged in may only be scanned.
    for n in 0..5 {
        let to = format!("in{n}@here.example");
        let said = Client::greeted(&world.address()).mail("who@sender.example", &[&to], "from outside");
        assert!(said.starts_with("250 "), "{said}");
        assert!(!world.arrived(&to).contains("(Weir)"));
    }
}

#[test]
fn some_recipients_stay_and_some_are_taken_over_and_a_stopped_user_is_refused() {
    let world = World::start(Way::Milter, &["ann", "bob"], &[], STRICT);
    let mut ann = world.login("ann");
    let to = ["a@there.example", "b@there.example", "c@there.example"];
    let said = ann.text("ann@here.example", &to, "From: ann@here.example\r\nSubject: three\r\n\r\nhello\r\n");
    assert!(said.starts_with("250 "), "{said}");
    world.arrived("a@there.example");
    world.arrived("b@there.example");
    let list = wait_for("what is held", || {
        let list = world.site.json(&["held", "list", "--user", "ann"]);
        (list["recipients"] == 1).then_some(list)
    });
    let held = &list["messages"][0];
    assert!(held["subject"] == "three" && held["recipients"][0]["address"] == "c@there.example", "{list}");
    assert!(held["file_missing"] == false && held["stopped"] == false, "{list}");
    let said = ann.mail("ann@here.example", &["d@there.example"], "four");
    assert!(said.starts_with("250 "), "{said}");
    let said = ann.mail("ann@here.example", &["e@there.example"], "five");
    let refused = said.starts_with("250 ").then(|| ann.mail("ann@here.example", &["f@there.example"], "six"));
    let said = refused.unwrap_or(said);
    assert!(said.starts_with("550 5.7.1 ") && said.contains("ann is stopped"), "{said}");
    let list = world.site.json(&["held", "list", "--user", "ann"]);
    assert_eq!(list["messages"][0]["stopped"], true, "{list}");
    // Other users are not affected, and an administrator can release the mail that waits.
    assert!(world.login("bob").mail("bob@here.example", &["g@there.example"], "seven").starts_with("250 "));
    world.arrived("g@there.example");
    world.site.weir(&["held", "release", "--user", "ann"]).ok();
    let third = world.arrived("c@there.example");
    assert!(third.contains("by mail.example (Weir)"), "{third}");
    let copies = |to: &str| world.mail().iter().filter(|(of, _)| of == to).count();
    assert_eq!(to.map(copies), [1, 1, 1]);
}

#[test]
fn what_the_scan_finds_is_refused_and_nobody_speaks_in_its_name() {
    let world = World::start(Way::Milter, &[], &[], "");
    let mut outside = Client::greeted(&world.address());
    let said = outside.text("who@sender.example", &["ann@here.example"], &infected());
    assert!(said.starts_with("550 5.7.1 ") && said.contains("EICAR"), "{said}");
    let forged = "From: who@sender.example\r\nX-Weir-Scan: mail.example; clean (forged)\r\nSubject: x\r\n\
                  x-weir-scan: also forged\r\n\r\nhello\r\n";
    let said = outside.text("who@sender.example", &["ann@here.example"], forged);
    assert!(said.starts_with("250 "), "{said}");
    let text = world.arrived("ann@here.example");
    assert_eq!(text.to_lowercase().matches("x-weir-scan").count(), 1, "{text}");
    assert!(
        text.contains("X-Weir-Scan: mail.example; clean (yara, attachments)") && !text.contains("forged"),
        "{text}"
    );
    assert_eq!(world.mail().len(), 1);
}

#[test]
fn what_is_refused_is_found_and_blocked_senders_are_not_taken() {
    let world = World::start(Way::Milter, &["ann"], &[], STRICT);
    let find = |asked: &[&str]| {
        let found = world.site.json(&[&["find", "--state", "refused"], asked].concat());
        found["messages"].as_array().cloned().unwrap_or_default()
    };
    let one = |asked: &[&str]| {
        let found = wait_for("the refused message", || Some(find(asked)).filter(|found| !found.is_empty()));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    let mut outside = Client::greeted(&world.address());
    let said = outside.text("who@sender.example", &["ann@here.example"], &infected());
    assert!(said.starts_with("550 5.7.1 "), "{said}");
    let mail = one(&["--to", "ann@here.example"]);
    assert!(mail["subject"] == "infected" && mail["verdict"].to_string().contains("EICAR"), "{mail}");
    let way = world.site.weir(&["trace", mail["message"].as_str().expect("an id")]).ok();
    assert!(way.contains("by the milter: 550"), "{way}");

    // A person blocks a sender: by the address in the envelope, and by the one in the header.
    world.site.weir(&["senders", "block", "bad.example"]).ok();
    let said = outside.say("MAIL FROM:<x@bad.example>");
    assert!(said.starts_with("550 5.7.1 mail from bad.example is not taken here"), "{said}");
    one(&["--from", "x@bad.example"]);
    outside.say("RSET");
    let text = "From: x@deep.bad.example\r\nSubject: author\r\n\r\nhello\r\n";
    let said = outside.text("who@sender.example", &["bob@here.example"], text);
    assert!(said.starts_with("550 5.7.1 mail from bad.example is not taken here"), "{said}");
    assert_eq!(one(&["--to", "bob@here.example"])["subject"], "author");
    // The block is about strangers. Users of the site may write under any address that their own server allows.
    let mut ann = world.login("ann");
    let said = ann.text("ann@here.example", &["one@there.example"], text);
    assert!(said.starts_with("250 "), "{said}");
    // The refused mail of a user who is stopped is found, too.
    let mut refused = None;
    for number in 0..9 {
        let said = ann.mail("ann@here.example", &[&format!("new{number}@there.example")], "more");
        if said.starts_with("550 ") {
            refused = Some(number);
            break;
        }
    }
    let to = format!("new{}@there.example", refused.expect("she is stopped"));
    let mail = one(&["--login", "ann", "--to", &to]);
    assert!(mail["login"] == "ann" && mail["subject"] == "more", "{mail}");
}

#[test]
fn what_the_scan_finds_is_taken_into_quarantine_or_held_by_postfix() {
    let changed = [("scan = true", "scan = true\non_found = \"quarantine\"")];
    let world = World::start(Way::Milter, &[], &changed, "");
    let mut outside = Client::greeted(&world.address());
    let said = outside.text("who@sender.example", &["ann@here.example", "bob@here.example"], &infected());
    assert!(said.starts_with("250 "), "{said}");
    let entries = wait_for("the quarantine", || {
        let list = world.site.json(&["quarantine", "list"]);
        list["entries"].as_array().filter(|entries| !entries.is_empty()).cloned()
    });
    assert!(entries.len() == 1 && entries[0]["queue"] == "virus", "{entries:?}");
    assert_eq!(entries[0]["recipients"].as_array().map(Vec::len), Some(2), "{entries:?}");
    assert!(world.mail().is_empty());
    drop(world);

    let changed = [("scan = true", "scan = true\non_found = \"hold\"")];
    let world = World::start(Way::Milter, &[], &changed, "");
    let said = Client::greeted(&world.address()).text("who@sender.example", &["ann@here.example"], &infected());
    assert!(said.starts_with("250 "), "{said}");
    let kept = std::fs::read_dir(world.postfix.folder().join("queue/hold")).expect("a queue").count();
    assert!(kept == 1 && world.mail().is_empty(), "{}", world.postfix.log());
}

#[test]
fn without_weir_or_without_its_records_mail_is_deferred_and_somebody_hears_of_it() {
    let postgres = Postgres::start();
    let more = format!("[store]\nrecords = \"{}\"\n", postgres.database());
    let changed = [("scan = true", "scan = false"), (ADMIN, "admin = \"admin@here.example\"")];
    let mut world = World::start(Way::Milter, &["ann"], &changed, &more);
    let send = |world: &World| world.login("ann").mail("ann@here.example", &["one@there.example"], "hello");
    assert!(send(&world).starts_with("250 "));
    world.up.take().expect("it runs").kill();
    // Without Weir, Postfix does not even let people log in.
    let said = Client::login(&world.address(), "ann", PASSWORD).err().unwrap_or_else(|| send(&world));
    assert!(said.starts_with("451 4.") || said.starts_with("454 4.3.0 "), "{said}");
    world.up = Some(world.site.up_alone());
    let said = send(&world);
    assert!(said.starts_with("250 "), "{said}");
    // The door is open, but behind it nothing can be decided.
    postgres.kill();
    let said = send(&world);
    assert!(said.starts_with("451 4.3.0 "), "{said}");
    let alarm = world.arrived("admin@here.example");
    assert!(alarm.contains("A mail server asked at [milter]"), "{alarm}");
}

#[test]
fn without_weir_mail_passes_if_the_operator_wants_that_and_postfix_says_so() {
    let changed = [("milter_default_action = tempfail", "milter_default_action = accept")];
    let mut world = World::start(Way::Milter, &["ann"], &changed, STRICT);
    world.up.take().expect("it runs").kill();
    // More new people than the throttle would allow, and a mail that the scan would refuse.
    let mut ann = world.login("ann");
    for number in 0..5 {
        let to = format!("to{number}@there.example");
        let said = ann.mail("ann@here.example", &[&to], "hello");
        assert!(said.starts_with("250 "), "{said}");
        assert!(!world.arrived(&to).contains("X-Weir-Scan"), "nobody has looked at it");
    }
    let said = Client::greeted(&world.address()).text("who@sender.example", &["ann@here.example"], &infected());
    assert!(said.starts_with("250 "), "{said}");
    let log = world.postfix.log();
    assert!(log.contains("warning: connect to Milter service"), "{log}");
    // As soon as Weir runs again, Postfix asks it again.
    world.up = Some(world.site.up_alone());
    let said = Client::greeted(&world.address()).text("who@sender.example", &["ann@here.example"], &infected());
    assert!(said.starts_with("550 "), "{said}");
}

/// Postfix sends to both spellings if they ask for different notices, and removes a recipient only in the spelling in which it was given.
#[test]
fn a_recipient_in_two_spellings_is_held_under_both() {
    let world = World::start(Way::Milter, &["ann"], &[], STRICT);
    let mut ann = world.login("ann");
    for line in [
        "MAIL FROM:<ann@here.example>",
        "RCPT TO:<a@there.example>",
        "RCPT TO:<b@there.example>",
        "RCPT TO:<dan@there.example> NOTIFY=NEVER",
        "RCPT TO:<DAN@there.example> NOTIFY=FAILURE",
    ] {
        assert!(ann.say(line).starts_with("250"), "{line}");
    }
    assert!(ann.say("DATA").starts_with("354"));
    let said = ann.say("From: ann@here.example\r\nSubject: two ways\r\n\r\nhello\r\n.");
    assert!(said.starts_with("250 "), "{said}");
    world.arrived("a@there.example");
    world.arrived("b@there.example");
    wait_for("what is held", || (world.held("ann") == 1).then_some(()));
    let to_dan = |(to, _): &(String, String)| to.eq_ignore_ascii_case("dan@there.example");
    assert!(!world.mail().iter().any(to_dan), "{}", world.postfix.log());
    world.site.weir(&["held", "release", "--user", "ann"]).ok();
    world.arrived("dan@there.example");
    assert_eq!(world.mail().iter().filter(|mail| to_dan(mail)).count(), 1);
}
