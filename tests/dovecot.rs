//! Tests of users whose passwords a real Dovecot checks: right and wrong passwords, locks, and a Dovecot that is down, restarted or hangs.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::time::{Duration, Instant};
use weir_peers::Dovecot;

const PASSWORD: &str = "known to dovecot";
const LATER: &str = "454 4.7.0 the login cannot be checked now, try again later";

fn gate(dovecot: &Dovecot, more: &str) -> (Site, Up) {
    let submission = format!("dovecot_socket = \"{}\"\n", dovecot.socket().display());
    let site = Site::with_submission(&submission, more);
    let up = site.up();
    assert!(!up.said.contains(", password "), "no demo user where Dovecot has the users:\n{}", up.said);
    (site, up)
}

fn refusal(up: &Up, user: &str, password: &str) -> String {
    Client::login(&up.plain, user, password).err().unwrap_or_else(|| panic!("{user} was let in"))
}

#[test]
fn dovecots_users_log_in_and_send_as_themselves() {
    let dovecot = Dovecot::start(&[("ann@localhost", PASSWORD), ("bob@localhost", PASSWORD)]);
    let (site, up) = gate(&dovecot, "");
    let mut ann = Client::login(&up.plain, "ann@localhost", PASSWORD).expect("a login");
    let reply = ann.mail("ann@localhost", &["friend@localhost"], "hello");
    assert!(reply.contains("accepted, on its way"), "{reply}");
    let mail = std::fs::read_to_string(&site.arrived("friend@localhost", 1)[0]).expect("text");
    assert!(mail.contains("by mail.example (Weir) with ESMTPA id"), "{mail}");
    for (user, password) in [("ann@localhost", "wrong"), ("nobody@localhost", PASSWORD), ("ann@localhost", "")] {
        let said = refusal(&up, user, password);
        assert!(said.starts_with("535 5.7.8 ") || said.starts_with("501 "), "{user}: {said}");
    }
    // Weir has no user ann, but ann must still not send as somebody else.
    let forged = ann.mail("bob@localhost", &["friend@localhost"], "forged");
    assert!(forged.starts_with("553 5.7.1 bob@localhost is not an address of the login ann@localhost"), "{forged}");
    for line in ["MAIL FROM:<ann@localhost>", "RCPT TO:<friend@localhost>", "DATA"] {
        ann.say(line);
    }
    let forged = ann.say("From: bob@localhost\r\n\r\nforged\r\n.");
    assert!(forged.starts_with("553 5.7.1 From names bob@localhost"), "{forged}");
}

#[test]
fn a_name_is_what_dovecot_says_it_is() {
    let dovecot = Dovecot::start(&[("ann@localhost", PASSWORD), ("cat@localhost", PASSWORD)]);
    let (site, up) = gate(&dovecot, "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 2\n");
    // There is one throttle, however the name is typed.
    let mut sent = 0;
    for name in ["ann@localhost", "ANN@localhost", "Ann@LOCALHOST", "anN@localhost"] {
        let mut client = Client::login(&up.plain, name, PASSWORD).expect("a login");
        let reply = client.mail("ann@localhost", &[&format!("new{sent}@localhost")], "hello");
        sent += 1;
        assert_eq!(reply.contains("you are stopped"), sent == 4, "{reply}");
    }
    assert!(refusal(&up, "aNN@localhost", PASSWORD).starts_with("535 5.7.1 the account is stopped"));
    // And there is one lock.
    site.weir(&["user", "add", "cat@localhost", "--password-stdin"]).refused(&["no password on standard input"]);
    site.weir_with(&["user", "add", "cat@localhost", "--password-stdin"], "not used here\n").ok();
    site.weir(&["user", "lock", "cat@localhost", "--reason", "a leak"]).ok();
    for name in ["cat@localhost", "CAT@localhost"] {
        assert_eq!(refusal(&up, name, PASSWORD), "535 5.7.1 the account is locked: a leak");
    }
    site.weir(&["user", "unlock", "cat@localhost"]).ok();
    assert!(Client::login(&up.plain, "Cat@localhost", PASSWORD).is_ok());
    assert!(Client::login(&up.plain, "cat@localhost", "not used here").is_err(), "Dovecot's password counts, not ours");
}

#[test]
fn a_dovecot_that_is_down_restarted_or_hangs_lets_nobody_in_and_loses_nothing() {
    let mut dovecot = Dovecot::start(&[("ann@localhost", PASSWORD)]);
    let (site, up) = gate(&dovecot, "");
    let mut before = Client::login(&up.plain, "ann@localhost", PASSWORD).expect("a login");

    dovecot.stop();
    assert_eq!(refusal(&up, "ann@localhost", PASSWORD), LATER, "down");
    let mut nobody = Client::greeted(&up.plain);
    nobody.say("MAIL FROM:<ann@localhost>");
    assert!(nobody.say("RCPT TO:<friend@localhost>").starts_with("530 5.7.0 log in first"), "nothing passes");
    // A session that is logged in already can go on.
    assert!(before.mail("ann@localhost", &["friend@localhost"], "meanwhile").contains("accepted"));

    dovecot.restart();
    let mut client = Client::login(&up.plain, "ann@localhost", PASSWORD).expect("restarted");
    assert!(client.mail("ann@localhost", &["friend@localhost"], "hello again").contains("accepted"));

    dovecot.freeze();
    let begun = Instant::now();
    assert_eq!(refusal(&up, "ann@localhost", PASSWORD), LATER, "hangs");
    eprintln!("a Dovecot that hangs: answered after {:.1} s", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < Duration::from_secs(25), "the patience is 10 s");
    dovecot.thaw();
    wait_for("Dovecot to answer again", || Client::login_now(&up.plain, "ann@localhost", PASSWORD));
    // None of this was a wrong password, so nobody is banned for Dovecot's problems.
    assert_eq!(site.status()["gate"]["counters"]["logins_failed"], 0);
    site.arrived("friend@localhost", 2);
}
