//! Tests of the policy service.

use super::{Way, World};
use crate::control::gate::{Client, wait_for};

/// What Postfix answers to a recipient.
fn recipient(client: &mut Client, from: &str, to: &str) -> String {
    client.say("RSET");
    assert!(client.say(&format!("MAIL FROM:<{from}>")).starts_with("250"));
    client.say(&format!("RCPT TO:<{to}>"))
}

#[test]
fn a_recipient_has_to_wait_and_coming_again_counts_once() {
    let world = World::start(Way::Policy, &["ann"], &[], "[throttle]\nrate = \"1/day\"\n");
    let mut ann = world.login("ann");
    assert!(ann.mail("ann@here.example", &["one@there.example"], "hello").starts_with("250 "));
    world.arrived("one@there.example");
    let said = recipient(&mut ann, "ann@here.example", "two@there.example");
    assert!(said.starts_with("450 4.7.1 ") && said.contains("it may go at "), "{said}");
    for _ in 0..3 {
        let again = recipient(&mut ann, "ann@here.example", "Two@there.example");
        assert!(again.starts_with("450 4.7.1 "), "{again}");
    }
    assert_eq!(world.held("ann"), 1);
    // When its turn comes, it is sent.
    world.site.weir(&["user", "add", "ann", "--no-password", "--address", "ann@here.example"]).ok();
    world.site.weir(&["user", "set", "ann", "--rate", "60/min"]).ok();
    wait_for("its turn", || (world.held("ann") == 0).then_some(()));
    ann.say("RSET");
    let said = ann.mail("ann@here.example", &["two@there.example"], "hello");
    assert!(said.starts_with("250 "), "{said}");
    world.arrived("two@there.example");
}

#[test]
fn a_stopped_user_is_refused_and_a_person_decides() {
    let world = World::start(Way::Policy, &["ann", "bob"], &[], "[throttle]\nrate = \"1/day\"\nstop_at = 2\n");
    let mut ann = world.login("ann");
    let mut ask = |to: &str| recipient(&mut ann, "ann@here.example", to);
    assert!(ask("one@there.example").starts_with("250"));
    for to in ["two@there.example", "three@there.example"] {
        assert!(ask(to).starts_with("450 4.7.1 "));
    }
    assert_eq!(world.held("ann"), 2);
    // A person releases one mail and deletes another.
    world.site.weir(&["held", "release", "--to", "two@there.example"]).ok();
    world.site.weir(&["held", "delete", "--to", "three@there.example", "--yes"]).ok();
    assert!(ask("two@there.example").starts_with("250"));
    let said = ask("three@there.example");
    assert!(said.starts_with("554 5.7.1 ") || said.starts_with("550 5.7.1 "), "{said}");
    for to in ["four@there.example", "five@there.example"] {
        assert!(ask(to).starts_with("450 4.7.1 "));
    }
    for to in ["six@there.example", "seven@there.example", "one@there.example"] {
        let said = ask(to);
        assert!(said.contains(" 5.7.1 ") && said.contains("ann is stopped"), "{to}: {said}");
    }
    for (state, to) in [("refused", "six@there.example"), ("deferred", "four@there.example")] {
        let found = wait_for("what was refused", || {
            let found = world.site.json(&["find", "--state", state, "--login", "ann", "--to", to]);
            found["messages"].as_array().filter(|found| !found.is_empty()).cloned()
        });
        assert_eq!(found[0]["from"], "ann@here.example", "{found:?}");
    }
    let list = world.site.json(&["held", "list", "--user", "ann"]);
    assert!(list["recipients"] == 3 && list["messages"][0]["stopped"] == true, "{list}");
    let mut bob = world.login("bob");
    assert!(recipient(&mut bob, "bob@here.example", "two@there.example").starts_with("250"));
    // Clients that are not logged in are not throttled.
    let mut outside = Client::greeted(&world.address());
    for n in 0..4 {
        assert!(recipient(&mut outside, "who@sender.example", &format!("in{n}@here.example")).starts_with("250"));
    }
}

#[test]
fn mail_that_has_to_wait_is_put_on_postfix_hold_queue_if_that_is_wanted() {
    let changed = [("[policy_service]", "[policy_service]\non_held = \"hold\"")];
    let mut world = World::start(Way::Policy, &["ann"], &changed, "[throttle]\nrate = \"1/day\"\n");
    let mut ann = world.login("ann");
    for to in ["one@there.example", "two@there.example"] {
        assert!(ann.mail("ann@here.example", &[to], "hello").starts_with("250 "));
    }
    world.arrived("one@there.example");
    let hold = world.postfix.folder().join("queue/hold");
    wait_for("the hold queue", || (std::fs::read_dir(&hold).expect("a queue").count() == 1).then_some(()));
    assert_eq!(world.held("ann"), 1);
    // Without Weir, nothing is accepted.
    world.up.take().expect("it runs").kill();
    let said = recipient(&mut world.login("ann"), "ann@here.example", "three@there.example");
    assert!(said.starts_with("451 4.3.5 "), "{said}");
}

#[test]
fn without_weir_mail_passes_if_the_operator_wants_that() {
    let changed = [("451 4.3.5 the throttle does not answer, try again later", "DUNNO")];
    let mut world = World::start(Way::Policy, &["ann"], &changed, "[throttle]\nrate = \"1/day\"\n");
    let mut ann = world.login("ann");
    assert!(ann.mail("ann@here.example", &["one@there.example"], "hello").starts_with("250 "));
    let said = recipient(&mut ann, "ann@here.example", "two@there.example");
    assert!(said.starts_with("450 4.7.1 "), "{said}");
    world.up.take().expect("it runs").kill();
    let mut ann = world.login("ann");
    for to in ["two@there.example", "three@there.example"] {
        assert!(ann.mail("ann@here.example", &[to], "hello").starts_with("250 "), "{to}");
        world.arrived(to);
    }
    let log = world.postfix.log();
    assert!(log.contains("problem talking to server"), "{log}");
}
