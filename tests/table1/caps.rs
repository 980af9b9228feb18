//! Tests of daily caps, for each profile. They limit a patient worm.

use crate::control::gate::{Client, Site};

const PASSWORD: &str = "one of many";
const CONFIGURATION: &str = "[throttle]\nmessages_a_day = 4\n[throttle.list]\nnew_recipients_a_day = 6\n\
     [throttle.application]\nmessages_a_day = 3\nnew_recipients_a_day = 100\n";

fn user(site: &Site, name: &str, profile: &str) {
    let address = format!("{name}@localhost");
    let add = ["user", "add", name, "--address", &address, "--profile", profile, "--password-stdin"];
    site.weir_with(&add, &format!("{PASSWORD}\n")).ok();
}

#[test]
fn caps_of_a_day_stop_each_profile() {
    let site = Site::new(CONFIGURATION);
    let up = site.up();
    for (name, profile) in [("ann", "person"), ("lisa", "list"), ("cron", "application"), ("root", "exempt")] {
        user(&site, name, profile);
    }
    let login = |name: &str| Client::login(&up.plain, name, PASSWORD);
    let mail = |client: &mut Client, name: &str, to: &[&str]| client.mail(&format!("{name}@localhost"), to, "hello");

    // A person who always writes to the same friend: the throttle allows it, but the cap does not.
    let mut ann = login("ann").expect("a login");
    for _ in 0..4 {
        assert!(mail(&mut ann, "ann", &["friend@localhost"]).contains("accepted, on its way to 1 recipient"));
    }
    let fifth = mail(&mut ann, "ann", &["friend@localhost"]);
    assert!(fifth.contains("held: 1 of 1 recipient waits for your decision; you are stopped"), "{fifth}");
    assert!(login("ann").err().expect("no login").starts_with("535 5.7.1 the account is stopped"));
    let shown = site.weir(&["user", "show", "ann"]).ok();
    assert!(shown.contains("messages a day") || shown.contains("stopped"), "{shown}");

    // A list: six new recipients a day, in however few mails.
    let mut lisa = login("lisa").expect("a login");
    let five: Vec<String> = (0..5).map(|n| format!("reader{n}@localhost")).collect();
    let five: Vec<&str> = five.iter().map(String::as_str).collect();
    assert!(mail(&mut lisa, "lisa", &five).contains("accepted, on its way to 5 recipients"));
    let more = mail(&mut lisa, "lisa", &["new1@localhost", "new2@localhost"]);
    assert!(more.contains("held: 2 of 2 recipients wait for your decision; you are stopped"), "{more}");

    // A program: stopped by the number of messages, though it has few recipients. After an unlock, the count begins again.
    let mut cron = login("cron").expect("a login");
    for _ in 0..3 {
        assert!(mail(&mut cron, "cron", &["admin@localhost"]).contains("accepted"));
    }
    assert!(mail(&mut cron, "cron", &["admin@localhost"]).contains("you are stopped"));
    site.weir(&["held", "release", "--user", "cron"]).ok();
    site.weir(&["user", "unlock", "cron"]).ok();
    let mut cron = login("cron").expect("a login");
    assert!(mail(&mut cron, "cron", &["admin@localhost"]).contains("accepted"));
    site.arrived("admin@localhost", 5);

    // For exempt users nothing is counted, and a user's own cap takes precedence over the profile's.
    let mut root = login("root").expect("a login");
    for n in 0..20 {
        assert!(mail(&mut root, "root", &[&format!("{n}@elsewhere.localhost")]).contains("accepted"));
    }
    user(&site, "bob", "person");
    site.weir(&["user", "set", "bob", "--messages-per-day", "1"]).ok();
    let mut bob = login("bob").expect("a login");
    assert!(mail(&mut bob, "bob", &["friend@localhost"]).contains("accepted"));
    assert!(mail(&mut bob, "bob", &["friend@localhost"]).contains("you are stopped"));
    assert_eq!(site.json(&["held", "list"])["recipients"], 4);
}
