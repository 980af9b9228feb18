//! Tests of mail as people and machines really send it: 8-bit text that is not declared, line ends of other systems, lines without end,
//! hidden recipients. It goes through a real Postfix that accepts only 7-bit text, and a real Dovecot reads it from the mailbox.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, id_in, wait_for};
use std::path::PathBuf;
use weir_peers::{Dovecot, Postfix, free_port};

/// A Postfix that does not offer 8BITMIME, with mailboxes that Dovecot reads.
struct SevenBits {
    postfix: Postfix,
}

impl SevenBits {
    fn start(port: u16) -> SevenBits {
        let (uid, gid) = Postfix::owner();
        let main = format!(
            "myhostname = postfix.example.org\nmydestination =\nmynetworks = 127.0.0.0/8\n\
             smtpd_discard_ehlo_keywords = 8bitmime, smtputf8, chunking\n\
             virtual_mailbox_domains = recipe.example\nvirtual_mailbox_base = FOLDER/mail\n\
             virtual_mailbox_maps = inline:{{ {{ box@recipe.example = box/ }} {{ hidden@recipe.example = hidden/ }} }}\n\
             virtual_uid_maps = static:{uid}\nvirtual_gid_maps = static:{gid}\nvirtual_minimum_uid = 1\n"
        );
        SevenBits { postfix: Postfix::start(&main, &format!("127.0.0.1:{port} inet n - n - - smtpd\n"), port) }
    }

    /// A field of the mail with this Message-ID, as Dovecot reads it.
    #[track_caller]
    fn read(&self, mailbox: &str, id: &str, field: &str) -> String {
        let folder: PathBuf = self.postfix.folder().join("mail").join(mailbox);
        wait_for(&format!("{id} in {mailbox}"), || Dovecot::fetch(&folder, id, field))
    }
}

fn letter(id: &str, rest: &str) -> String {
    format!("From: demo@localhost\r\nTo: box@recipe.example\r\nMessage-ID: <{id}@demo.example>\r\n{rest}")
}

#[test]
fn what_machines_send_arrives_whole_behind_a_server_that_takes_seven_bits() {
    let port = free_port();
    let delivery = format!("way = \"smarthost\"\nhosts = [\"127.0.0.1:{port}\"]\ntls = \"off\"\n");
    // The recipients are colleagues, so that the throttle holds nothing here.
    let site = Site::new(&format!("{delivery}[throttle]\nown_domains = [\"recipe.example\"]\n"));
    let up = site.up();
    let server = SevenBits::start(port);
    let mut demo = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let mut send = |to: &[&str], text: &str| {
        let said = demo.text("demo@localhost", to, text);
        assert!(said.contains("accepted, on its way"), "{said}");
    };
    let to = &["box@recipe.example"];

    // 8-bit text in header and body that is not declared.
    send(to, &letter("eight", "Subject: Gr\u{fc}\u{df}e\r\n\r\nStra\u{df}e nach K\u{f6}ln = \u{20ac} 5 \r\n"));
    assert_eq!(server.read("box", "eight", "hdr.subject.utf8"), "Gr\u{fc}\u{df}e");
    assert_eq!(server.read("box", "eight", "binary.1"), "Stra\u{df}e nach K\u{f6}ln = \u{20ac} 5 ");
    let structure = server.read("box", "eight", "imap.bodystructure");
    assert!(structure.contains("(\"charset\" \"utf-8\")") && structure.contains("\"quoted-printable\""), "{structure}");

    // The same in a multipart message with an attachment.
    let parts = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"x y\"\r\n\r\n--x y\r\n\
        Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\u{e4}\u{f6}\u{fc}\r\n--x y\r\n\
        Content-Type: application/octet-stream; name=raw\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\u{c4}\r\n\u{d6}\r\n--x y--\r\n";
    send(to, &letter("parts", parts));
    assert_eq!(server.read("box", "parts", "binary.1"), "\u{e4}\u{f6}\u{fc}");
    assert_eq!(server.read("box", "parts", "binary.2"), "\u{c4}\n\u{d6}");

    // Line ends of other systems, and a false end of the message.
    let printer = letter("printer", "Subject: scan\r\n\r\nfirst\r\nsecond\r\n..stuffed\r\n").replace("\r\n", "\n");
    send(to, &format!("{printer}\n.\nMAIL FROM:<x@y>\nold\rMac"));
    let text = server.read("box", "printer", "binary.1");
    assert_eq!(text, "first\nsecond\n.stuffed\n\n.\nMAIL FROM:<x@y>\nold\nMac");

    // A whole page in one line.
    let page = "<p>a page = one line</p> ".repeat(2_000);
    send(to, &letter("long", &format!("Content-Type: text/html\r\n\r\n{page}\r\n")));
    assert_eq!(server.read("box", "long", "binary.1"), page);

    // Recipients whom the others must not see, and something about the sender that must not be passed on.
    let hidden =
        letter("hidden", "Bcc: hidden@recipe.example,\r\n another@recipe.example\r\nSubject: secret\r\n\r\nx\r\n");
    send(&["box@recipe.example", "hidden@recipe.example"], &hidden);
    for mailbox in ["box", "hidden"] {
        let header = server.read(mailbox, "hidden", "hdr");
        assert!(header.contains("by mail.example (Weir) with ESMTPA id"), "{header}");
        for told in ["Bcc", "another@", "Authenticated", "client.example"] {
            assert!(!header.contains(told), "{told} in {header}");
        }
    }
}

#[test]
fn what_nobody_decides_about_is_returned_and_the_account_stays_closed() {
    let throttle = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 1\n";
    let site = Site::with_submission("keep_stopped = \"2s\"\n", throttle);
    let up = site.up();
    let mut demo = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    for (to, said) in [("one", "accepted, on its way"), ("two", "held: 1 of 1"), ("three", "you are stopped")] {
        let reply = demo.mail("demo@localhost", &[&format!("{to}@localhost")], &format!("about {to}"));
        assert!(reply.contains(said), "{reply}");
    }
    let report = std::fs::read_to_string(&site.arrived("demo@localhost", 1)[0]).expect("text");
    assert!(report.contains("Subject: Mail from demo was not sent"), "{report}");
    for told in ["to two@localhost", "subject: about two", "to three@localhost", "weir user unlock demo"] {
        assert!(report.contains(told), "{told} is missing in {report}");
    }
    wait_for("an empty queue", || (site.json(&["held", "list"])["recipients"] == 0).then_some(()));
    // The program that sent the mail may still be running.
    let refused = Client::login(&up.plain, "demo", &up.password()).err().expect("closed");
    assert!(refused.contains("535 5.7.1 the account is locked: stopped after unusual mail"), "{refused}");
    let audit = site.weir(&["audit"]).ok();
    assert!(audit.contains("held.expire") && audit.contains("2 recipients had waited for 2 seconds"), "{audit}");
    site.weir(&["user", "unlock", "demo"]).ok();
    assert!(Client::login(&up.plain, "demo", &up.password()).is_ok());
}

#[test]
fn a_reload_changes_throttle_notices_and_delivery_and_says_what_needs_a_restart() {
    let site =
        Site::new("[notices]\nadmin = \"admin@localhost\"\n[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\n");
    let up = site.up();
    let password = up.password();
    let file = site.home().join("weir.toml");
    let before = std::fs::read_to_string(&file).expect("a configuration");
    let mut demo = Client::login(&up.plain, "demo", &password).expect("a login");
    for (to, said) in [("one", "accepted, on its way"), ("two", "held: 1 of 1")] {
        let reply = demo.mail("demo@localhost", &[&format!("{to}@localhost")], "hello");
        assert!(reply.contains(said), "{reply}");
    }
    let said = site.weir(&["reload"]).ok();
    assert!(!said.contains("mail gate"), "nothing has changed: {said}");

    // New settings: waiting mail still waits, and the port is the same.
    let changed = before
        .replace("rate = \"1/day\"\nmulti", "rate = \"10/s\"\nmax_slack = 50\nmulti")
        .replace("admin@localhost", "root@localhost")
        .replace("hostname = \"mail.example\"", "hostname = \"other.example\"");
    std::fs::write(&file, &changed).expect("a configuration");
    let said = site.weir(&["reload"]).ok();
    assert!(said.contains("mail gate    restarted"), "{said}");
    assert!(said.contains("only after a restart: submission.hostname"), "{said}");
    let mut demo = Client::login(&up.plain, "demo", &password).expect("a login at the same port");
    for to in ["three", "four", "five"] {
        let reply = demo.mail("demo@localhost", &[&format!("{to}@localhost")], "hello");
        assert!(reply.contains("accepted, on its way") || reply.contains("held: 1 of 1"), "{reply}");
        site.arrived(&format!("{to}@localhost"), 1);
    }
    // Mail that had to wait for a day is sent with the first mail that comes under the new settings.
    site.arrived("two@localhost", 1);

    // A setting that cannot be used changes nothing.
    std::fs::write(&file, changed.replace("max_slack = 50", "max_slack = \"many\"")).expect("a configuration");
    site.weir(&["reload"]).refused(&["max_slack", "nothing has changed"]);
    assert!(Client::login(&up.plain, "demo", &password).is_ok());
}

/// The link to the user's own page in the newest notice to `contact` that contains these words.
#[track_caller]
pub(crate) fn link_in(site: &Site, contact: &str, words: &str) -> String {
    let notice = wait_for(&format!("a notice with {words:?}"), || {
        let mut texts = site.arrived(contact, 1).into_iter().filter_map(|file| std::fs::read_to_string(file).ok());
        texts.rfind(|text| text.contains(words))
    });
    let (_, key) = notice.split_once("/link/").unwrap_or_else(|| panic!("no link in {notice}"));
    key.split_whitespace().next().expect("a key").to_owned()
}

#[test]
fn the_link_of_an_old_notice_releases_nothing_after_a_stop() {
    let notices = "[notices]\ntell_delays_over = \"0s\"\nlink = \"https://console.example.org\"\n";
    let throttle = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 2\n";
    let site = Site::new(&format!("{notices}{throttle}"));
    let up = site.up();
    site.weir(&["user", "set", "demo", "--contact", "contact@localhost"]).ok();
    let base = format!("http://{}", up.listener("console"));
    let mut demo = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let mut send = |to: &str| demo.mail("demo@localhost", &[&format!("{to}@localhost")], &format!("about {to}"));
    assert!(send("one").contains("accepted, on its way"));
    let harmless = id_in(&send("two"));
    let old = link_in(&site, "contact@localhost", "is being delayed");
    let before = Visitor::by_link(&base, &old).expect("a good link");
    assert!(before.get("/me").contains("Release the chosen"));
    // Now the worm sends.
    assert!(send("three").contains("held: 1 of 1") && send("four").contains("you are stopped"));
    assert!(Visitor::by_link(&base, &old).is_none(), "the link was about another situation");
    let page = before.get("/me");
    assert!(!page.contains("Release the chosen") && page.contains("was about another situation"), "{page}");
    let refused = before.post("/me", "/me/release", &[("message", &harmless)]);
    assert!(refused.contains("was about another situation"), "{refused}");
    assert_eq!(site.json(&["held", "list"])["recipients"], 3, "nothing went");
    // After a login with a password, nothing can be released either, whatever the site allows.
    let by_password = Visitor::log_in(&base, &[], ("demo", &up.password()));
    assert!(!by_password.get("/me").contains("Release the chosen"));
    // The notice about the stop has a link of its own.
    let new = link_in(&site, "contact@localhost", "was stopped at");
    let after = Visitor::by_link(&base, &new).expect("a good link");
    after.post("/me", "/me/release", &[("message", &harmless)]);
    site.arrived("two@localhost", 1);
}

#[test]
fn a_site_may_let_users_release_what_is_only_delayed() {
    let throttle = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 2\n";
    let site = Site::with_submission("users_release = true\n", throttle);
    let up = site.up();
    let base = format!("http://{}", up.listener("console"));
    let mut demo = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let mut send = |to: &str| demo.mail("demo@localhost", &[&format!("{to}@localhost")], &format!("about {to}"));
    send("one");
    let delayed = id_in(&send("two"));
    let own = Visitor::log_in(&base, &[], ("demo", &up.password()));
    own.post("/me", "/me/release", &[("message", &delayed)]);
    site.arrived("two@localhost", 1);
    let held: Vec<String> = ["three", "four"].into_iter().map(|to| id_in(&send(to))).collect();
    assert!(send("five").contains("you are stopped"));
    let refused = own.post("/me", "/me/release", &[("message", &held[0])]);
    assert!(refused.contains("A password is not enough to release mail while you are stopped"), "{refused}");
}

#[test]
fn a_stolen_password_ends_no_stop_and_takes_no_account_over() {
    let throttle = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 2\n";
    let site = Site::with_submission("users_release = true\n", throttle);
    let up = site.up();
    let base = format!("http://{}", up.listener("console"));
    let mut thief = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let mut send = |to: &str| thief.mail("demo@localhost", &[&format!("{to}@localhost")], &format!("about {to}"));
    let held: Vec<String> = ["one", "two", "three", "four"].into_iter().map(|to| id_in(&send(to))).collect();
    let thief = Visitor::log_in(&base, &[], ("demo", &up.password()));
    let page = thief.get("/me");
    assert!(!page.contains("Delete the chosen") && !page.contains("New password"), "{page}");
    let all: Vec<(&str, &str)> = held.iter().map(|message| ("message", message.as_str())).collect();
    let not_enough = "A password is not enough while your account is stopped or locked";
    for try_it in [
        thief.post("/me", "/me/delete", &all),
        thief.post("/me", "/me/password", &[("old", &up.password()), ("new", "another password")]),
    ] {
        assert!(try_it.contains(not_enough), "{try_it}");
    }
    assert_eq!(site.json(&["held", "list"])["recipients"], 3, "nothing was deleted");
    // A lock by a person has the same effect, even after an administrator has ended the stop.
    site.weir(&["user", "unlock", "demo"]).ok();
    site.weir(&["user", "lock", "demo", "--reason", "the password was stolen"]).ok();
    assert!(thief.post("/me", "/me/delete", &all).contains(not_enough));
    assert!(Client::login(&up.plain, "demo", "another password").is_err());
}

#[test]
fn a_new_password_ends_the_sessions_of_the_old_one() {
    let site = Site::new("");
    let up = site.up();
    let mut open = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    assert!(open.mail("demo@localhost", &["one@localhost"], "before").starts_with("250"));
    site.weir_with(&["user", "passwd", "demo", "--password-stdin"], "a password of their own\n").ok();
    let said = open.say("NOOP");
    assert!(said.is_empty() || said.starts_with("421"), "{said}");
    assert!(Client::login(&up.plain, "demo", "a password of their own").is_ok());
}

#[test]
fn an_order_by_mail_lets_one_mail_go_and_leaves_the_others() {
    let notices = "[notices]\ntell_delays_over = \"0s\"\n";
    let throttle = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 3\n";
    let site = Site::new(&format!("{notices}{throttle}"));
    let up = site.up();
    site.weir(&["user", "set", "demo", "--contact", "contact@localhost"]).ok();
    let mut demo = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    for to in ["one", "two", "three"] {
        demo.mail("demo@localhost", &[&format!("{to}@localhost")], &format!("about {to}"));
    }
    let notice = wait_for("a notice about two mails", || {
        let mut texts =
            site.arrived("contact@localhost", 1).into_iter().filter_map(|file| std::fs::read_to_string(file).ok());
        texts.rfind(|text| text.contains("is piling up"))
    });
    let (_, single) = notice.split_once("\"about three\" to three@localhost:").unwrap_or_else(|| panic!("{notice}"));
    let address = single.split_whitespace().next().expect("an address");
    let mut anybody = Client::greeted(&up.plain);
    let said = anybody.mail("contact@localhost", &[address], "this one");
    assert!(said.contains("done for demo: 1 go, 0 deleted"), "{said}");
    site.arrived("three@localhost", 1);
    let held = site.json(&["held", "list"]);
    assert_eq!((&held["recipients"], &held["messages"][0]["subject"]), (&1.into(), &"about two".into()), "{held}");
    anybody.say("MAIL FROM:<contact@localhost>");
    let again = anybody.say(&format!("RCPT TO:<{address}>"));
    assert!(again.starts_with("550 5.7.1 this address has been used"), "{again}");
}
