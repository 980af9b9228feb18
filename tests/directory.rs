//! Tests of people in a real OpenLDAP directory who sign in, to send mail and at the console.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up};
use crate::postfix_doors::recipe;
use weir_peers::{Slapd, TestAuthority};

const PASSWORD: &str = "known to ldap";
const LATER: &str = "454 4.7.0 the login cannot be checked now, try again later";

/// A site that asks this server. People are known by their mail address.
fn site(server: &str, more: &str) -> (Site, Up) {
    // Wrong logins are counted as always; this test makes more of them than one address may.
    let site = Site::new("[limits]\nfailed_logins_per_address = 1000\n");
    let reader = site.home().join("reader");
    std::fs::write(&reader, "reads\n").expect("a file");
    let text = std::fs::read_to_string(site.home().join("weir.toml")).expect("settings");
    // Uses the recipe from docs, with the groups of this directory. Names of entries are compared as directories do.
    let place = [
        ("ldaps://ldap.example.org", server.to_owned()),
        ("/etc/weir/ldap-reader", reader.display().to_string()),
        ("admin cn=weir-admins,ou=groups", "admin CN=admins, ou=groups".to_owned()),
        ("operator cn=helpdesk,", "operator cn=staff,".to_owned()),
    ];
    let recipe = recipe("People of your directory (LDAP)", "toml");
    let ldap = place.iter().fold(recipe, |text, (written, here)| {
        assert!(text.contains(written), "{written} is not in the recipe");
        text.replace(written, here)
    }) + more;
    std::fs::write(site.home().join("weir.toml"), format!("{text}{ldap}")).expect("settings");
    let up = site.up();
    (site, up)
}

fn trusting(authority: &TestAuthority) -> String {
    format!("ca_file = \"{}\"\n", authority.certificate().display())
}

#[track_caller]
fn refusal(up: &Up, user: &str, password: &str) -> String {
    Client::login(&up.plain, user, password).err().unwrap_or_else(|| panic!("{user} was let in"))
}

#[test]
fn people_of_a_directory_send_mail_as_themselves_and_nobody_else_does() {
    let authority = TestAuthority::new();
    let slapd = Slapd::start(Some(&authority));
    let (site, up) = site(&slapd.secure(), &trusting(&authority));
    // However the login is typed, it is the same person with the same throttle.
    for login in ["ann", "ANN", "Ann@LocalHost"] {
        let mut ann = Client::login(&up.plain, login, PASSWORD).expect("a login");
        let reply = ann.mail("ann@localhost", &["friend@localhost"], "hello");
        assert!(reply.contains("accepted, on its way"), "{reply}");
        let forged = ann.mail("bob@localhost", &["friend@localhost"], "forged");
        assert!(forged.starts_with("553 5.7.1 bob@localhost is not an address of the login ann@localhost"), "{forged}");
    }
    site.arrived("friend@localhost", 3);
    let wrong = [
        ("ann", "wrong"),
        ("nobody", PASSWORD),
        // Directories answer a bind with an empty password with success.
        ("ann", ""),
        // Logins that would change a filter or the name of an entry, if they were inserted as they are.
        ("*", PASSWORD),
        ("a*", PASSWORD),
        ("*)(uid=*", PASSWORD),
        ("nobody)(uid=ann", PASSWORD),
        ("nobody)(|(uid=*", PASSWORD),
        ("ann)(&", PASSWORD),
        ("\\61nn", PASSWORD),
        ("uid=ann,ou=people,dc=example,dc=org", PASSWORD),
        ("ann\u{0}", PASSWORD),
        // Entries that are not people.
        ("reader", "reads"),
        ("cn=reader,dc=example,dc=org", "reads"),
    ];
    for (login, password) in wrong {
        let said = refusal(&up, login, password);
        assert!(said.starts_with("535 5.7.8 ") || said.starts_with("501 "), "{login:?}: {said}");
    }
    // A lock in Weir counts, whatever the directory says.
    site.weir_with(&["user", "add", "cat@localhost", "--password-stdin"], "a password of our own\n").ok();
    assert!(refusal(&up, "cat", PASSWORD).starts_with("535 5.7.8 "), "who has a password here is not had by one there");
    assert!(Client::login(&up.plain, "cat@localhost", "a password of our own").is_ok());
    // Nor by somebody in the directory whose name differs only in case.
    site.weir_with(&["user", "add", "Bob@LocalHost", "--password-stdin"], "a password of our own\n").ok();
    assert!(refusal(&up, "bob", PASSWORD).starts_with("535 5.7.8 "), "bob is too much like Bob");
    site.weir(&["user", "lock", "cat@localhost", "--reason", "a leak"]).ok();
    assert_eq!(refusal(&up, "cat@localhost", "a password of our own"), "535 5.7.1 the account is locked: a leak");
}

#[test]
fn the_name_of_an_entry_may_be_made_of_the_login() {
    let authority = TestAuthority::new();
    let slapd = Slapd::start(Some(&authority));
    let more = format!("entry = \"uid={{login}},ou=people,dc=example,dc=org\"\n{}", trusting(&authority));
    let (_site, up) = site(&slapd.plain(), &more);
    let mut ann = Client::login(&up.plain, "ann", PASSWORD).expect("a login, with StartTLS");
    assert!(ann.mail("ann@localhost", &["friend@localhost"], "hello").contains("accepted"));
    for (login, password) in
        [("ann", ""), ("ann", "x"), ("ann,ou=people", PASSWORD), ("ann+cn=ann", PASSWORD), ("*", PASSWORD)]
    {
        let said = refusal(&up, login, password);
        assert!(said.starts_with("535 5.7.8 ") || said.starts_with("501 "), "{login:?}: {said}");
    }
}

#[test]
fn no_password_goes_to_a_directory_that_does_not_prove_who_it_is() {
    let authority = TestAuthority::new();
    let with_tls = Slapd::start(Some(&authority));
    let without = Slapd::start(None);
    let other = TestAuthority::new();
    for (server, more) in [
        (with_tls.secure(), trusting(&other)),
        (with_tls.plain(), trusting(&other)),
        (without.plain(), trusting(&authority)),
        (with_tls.secure().replace("localhost", "127.0.0.1"), trusting(&authority)),
    ] {
        let (_site, up) = site(&server, &more);
        assert_eq!(refusal(&up, "ann", PASSWORD), LATER, "{server}");
    }
    let (_site, up) = site(&without.plain(), "without_encryption = true\n");
    assert!(Client::login(&up.plain, "ann", PASSWORD).is_ok(), "it was said on purpose");
}

#[test]
fn groups_give_roles_and_local_accounts_stay_for_the_day_when_the_directory_is_down() {
    let authority = TestAuthority::new();
    let mut slapd = Slapd::start(Some(&authority));
    let (site, up) = site(&slapd.secure(), &format!("timeout = \"1s\"\n{}", trusting(&authority)));
    let base = format!("http://{}", up.listener("console"));
    let ann = Visitor::log_in(&base, &[], ("ann", PASSWORD));
    assert!(ann.get("/settings").contains("sign_in.ldap"), "an administrator sees the settings");
    let bob = Visitor::log_in(&base, &[], ("bob", PASSWORD));
    assert!(bob.get("/held").contains("Log out") && !bob.get("/settings").contains("sign_in.ldap"), "an operator");
    let cat = Visitor::log_in(&base, &[], ("cat", PASSWORD));
    assert!(!cat.get("/audit").contains("console.login"), "a user sees what is their own");
    for (name, password) in [("ann", ""), ("ann", "wrong"), ("*", PASSWORD), ("admin", PASSWORD)] {
        let said = Visitor::refused(&base, (name, password));
        assert!(said.contains("The name or the password is wrong"), "{name}: {said}");
    }
    let audit = site.weir(&["audit"]).ok();
    assert!(audit.contains("console:ann@localhost"), "{audit}");

    let admin = up.admin_password();
    slapd.freeze();
    assert_eq!(refusal(&up, "ann", PASSWORD), LATER, "it hangs");
    slapd.thaw();
    slapd.stop();
    assert_eq!(refusal(&up, "ann", PASSWORD), LATER, "it is down");
    let said = Visitor::refused(&base, ("bob", PASSWORD));
    assert!(!said.contains("is wrong"), "what cannot be checked is not a wrong password: {said}");
    let local = Visitor::log_in(&base, &[], ("admin", &admin));
    assert!(local.get("/settings").contains("sign_in.ldap"));
    assert!(ann.get("/settings").contains("sign_in.ldap"), "who is signed in stays so for a while");
    slapd.restart();
    assert!(Client::login(&up.plain, "ann", PASSWORD).is_ok());
}

#[test]
fn who_came_from_a_directory_stays_logged_in_when_the_mail_gate_is_restarted() {
    let authority = TestAuthority::new();
    let slapd = Slapd::start(Some(&authority));
    let (site, up) = site(&slapd.secure(), &trusting(&authority));
    let base = format!("http://{}", up.listener("console"));
    let ann = Visitor::log_in(&base, &[], ("ann", PASSWORD));
    let config = site.home().join("weir.toml");
    let text = std::fs::read_to_string(&config).expect("settings");
    std::fs::write(&config, format!("{text}\n[throttle]\nlearn_only = true\n")).expect("a file");
    let said = site.weir(&["reload"]).ok();
    assert!(said.contains("restarted with the new settings"), "{said}");
    assert!(ann.get("/settings").contains("sign_in.ldap"), "her session goes on");
}
