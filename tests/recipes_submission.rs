//! Tests of the recipes for outgoing mail in docs/operating.md with a real Postfix: Weir in front of it, and behind it as a content filter
//! that knows its users. In both, the answer to a notice comes from outside, to Postfix's port.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::path::PathBuf;
use weir_peers::{Dovecot, Postfix, free_port};

const PASSWORD: &str = "known to dovecot";
/// A user who writes to three new people is stopped, and held mail is not sent by itself.
const THROTTLE: &str = "[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nstop_at = 1\n";

/// Postfix and its ports.
struct Server {
    postfix: Postfix,
    /// The port for mail from outside.
    port: u16,
}

impl Server {
    /// Delivers mail for our domain to Maildirs, and answers to notices to Weir. `main` and `master` are further settings.
    fn start(site: &Site, weir: &str, port: u16, main: &str, master: &str) -> Server {
        let (uid, gid) = Postfix::owner();
        let users = ["ann", "bob", "new1", "new2", "new3", "new4"];
        let boxes: String = users.iter().map(|user| format!("{{ {user}@recipe.example = {user}/ }} ")).collect();
        let (host, weir_port) = weir.rsplit_once(':').expect("an address with a port");
        let orders = site.home().join("weir-orders");
        let known = "/^weir\\+(release|delete)-[a-z2-7]{26}@mail\\.example$/ order\n";
        std::fs::write(&orders, known).expect("a table");
        let main = format!(
            "myhostname = postfix.example.org\nmydestination =\nmynetworks = 127.0.0.0/8\n\
             virtual_mailbox_domains = recipe.example\nvirtual_mailbox_base = FOLDER/mail\n\
             virtual_mailbox_maps = inline:{{ {boxes} }}\n\
             virtual_uid_maps = static:{uid}\nvirtual_gid_maps = static:{gid}\nvirtual_minimum_uid = 1\n\
             relay_domains = mail.example\nrelay_recipient_maps = regexp:{}\n\
             transport_maps = inline:{{ {{ mail.example = smtp:[{host}]:{weir_port} }} }}\n{main}",
            orders.display()
        );
        let master = format!("127.0.0.1:{port} inet n - n - - smtpd\n{master}");
        Server { postfix: Postfix::start(&main, &master, port), port }
    }

    /// Waits for a message in a mailbox that contains these words, and returns the first one.
    #[track_caller]
    fn arrived(&self, mailbox: &str, words: &str) -> String {
        wait_for(&format!("mail for {mailbox} with {words:?}"), || {
            let files: Vec<PathBuf> = self.postfix.maildir(mailbox);
            let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
            // Servers on the way may have folded long lines.
            texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).find(|text| text.contains(words))
        })
    }

    /// The contact gets the notice about the stop, and answers it from outside as it says. Any other mail to that address is refused.
    #[track_caller]
    fn answer_releases(&self) {
        let notice = self.arrived("bob", "was stopped at");
        let order = notice.split_whitespace().find(|word| word.starts_with("weir+release-")).expect("an address");
        let mut outside = Client::greeted(&format!("127.0.0.1:{}", self.port));
        outside.say("MAIL FROM:<bob@private.example>");
        let other = outside.say("RCPT TO:<weir@mail.example>");
        assert!(other.starts_with("550 ") && other.contains("relay recipient table"), "{other}");
        outside.say("RSET");
        let said = outside.mail("bob@private.example", &[order], "yes");
        assert!(said.starts_with("250 "), "{said}");
        let question = self.arrived("bob", "nothing has been sent yet");
        let order = question.split_whitespace().find(|word| word.starts_with("weir+release-")).expect("an address");
        let said = outside.mail("bob@private.example", &[order], "yes, really");
        assert!(said.starts_with("250 "), "{said}");
        self.arrived("new2", "Subject: hello");
        self.arrived("new3", "Subject: hello");
    }
}

/// Waits until this many recipients of a user are held.
#[track_caller]
fn wait_for_held(site: &Site, user: &str, count: u64) {
    wait_for(&format!("{count} held"), || {
        (site.json(&["held", "list", "--user", user])["recipients"] == count).then_some(())
    });
}

#[test]
fn weir_stands_before_postfix() {
    let port = free_port();
    let delivery = format!("way = \"smarthost\"\nhosts = [\"127.0.0.1:{port}\"]\ntls = \"off\"\n");
    let dovecot = Dovecot::start(&[("ann@recipe.example", PASSWORD)]);
    let submission = format!("dovecot_socket = \"{}\"\n", dovecot.socket().display());
    let site = Site::with_submission(&submission, &format!("{delivery}{THROTTLE}"));
    let up = site.up();
    site.weir(&["user", "add", "ann@recipe.example", "--no-password", "--contact", "bob@recipe.example"]).ok();
    let server = Server::start(&site, &up.plain, port, "", "");
    let mut ann = Client::login(&up.plain, "ann@recipe.example", PASSWORD).expect("a login");
    let said = ann.mail("ann@recipe.example", &["new1@recipe.example"], "hello");
    assert!(said.contains("accepted, on its way"), "{said}");
    let text = server.arrived("new1", "Subject: hello");
    assert!(text.contains("by mail.example (Weir) with"), "{text}");
    assert_eq!(text.matches("by postfix.example.org (Postfix)").count(), 1, "{text}");
    for to in ["new2@recipe.example", "new3@recipe.example"] {
        let said = ann.mail("ann@recipe.example", &[to], "hello");
        assert!(said.contains("held: 1 of 1 recipient waits"), "{said}");
    }
    wait_for_held(&site, "ann@recipe.example", 2);
    server.answer_releases();
    assert!(Client::login(&up.plain, "ann@recipe.example", PASSWORD).is_ok(), "the stop ended with the answer");
}

/// Postfix with its own users, whose submitted mail passes through Weir.
struct Behind {
    site: Site,
    _up: Up,
    _dovecot: Dovecot,
    server: Server,
    submission: String,
}

impl Behind {
    fn start() -> Behind {
        let [port, submission, reinjection] = std::array::from_fn(|_| free_port());
        let delivery = format!("way = \"smarthost\"\nhosts = [\"127.0.0.1:{reinjection}\"]\ntls = \"off\"\n");
        let identity = "identity = \"client-address\"\nreceived_from = [\"127.0.0.1/32\"]\nsender_must_match = false\n";
        let site = Site::with_submission(identity, &format!("{delivery}{THROTTLE}[notices]\nsilent = true\n"));
        let up = site.up();
        site.weir(&["user", "add", "ann@recipe.example", "--no-password", "--contact", "bob@recipe.example"]).ok();
        let dovecot = Dovecot::start(&[("ann@recipe.example", PASSWORD), ("bob@recipe.example", PASSWORD)]);
        let main = format!(
            "smtpd_sasl_authenticated_header = yes\nsmtpd_sasl_type = dovecot\nsmtpd_sasl_path = {}\n",
            dovecot.socket().display()
        );
        let (weir_host, weir_port) = up.plain.rsplit_once(':').expect("an address with a port");
        // The test's client cannot use TLS; apart from that, the two ports are set up as in the recipe.
        let master = format!(
            "127.0.0.1:{submission} inet n - n - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n  \
             -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n  \
             -o content_filter=smtp:[{weir_host}]:{weir_port}\n\
             127.0.0.1:{reinjection} inet n - n - - smtpd\n  -o content_filter=\n  -o mynetworks=127.0.0.0/8\n  \
             -o smtpd_client_restrictions=permit_mynetworks,reject\n  \
             -o smtpd_recipient_restrictions=permit_mynetworks,reject\n  \
             -o smtpd_relay_restrictions=permit_mynetworks,reject\n  -o smtpd_sasl_auth_enable=no\n  \
             -o receive_override_options=no_unknown_recipient_checks,no_header_body_checks,no_milters\n"
        );
        let server = Server::start(&site, &up.plain, port, &main, &master);
        Behind { site, _up: up, _dovecot: dovecot, server, submission: format!("127.0.0.1:{submission}") }
    }

    /// A user submits a mail to Postfix, which accepts everything.
    #[track_caller]
    fn send(&self, user: &str, to: &str) {
        let mut client = Client::login(&self.submission, user, PASSWORD).expect("a login at Postfix");
        let said = client.mail(user, &[to], "hello");
        assert!(said.starts_with("250 "), "{said}");
    }
}

#[test]
fn postfix_has_the_mail_of_its_users_throttled() {
    let behind = Behind::start();
    let (site, server) = (&behind.site, &behind.server);
    behind.send("ann@recipe.example", "new1@recipe.example");
    let text = server.arrived("new1", "Subject: hello");
    // The mail passed Postfix, Weir, and Postfix again.
    assert!(text.contains("by mail.example (Weir) with"), "{text}");
    assert!(text.contains("(Authenticated sender: ann@recipe.example)"), "{text}");
    assert_eq!(text.matches("by postfix.example.org (Postfix)").count(), 2, "{text}");
    for (count, to) in [(1, "new2@recipe.example"), (2, "new3@recipe.example")] {
        behind.send("ann@recipe.example", to);
        wait_for_held(site, "ann@recipe.example", count);
    }
    // A user who is stopped gets a bounce from Postfix; others are not affected.
    behind.send("ann@recipe.example", "new4@recipe.example");
    server.arrived("ann", "ann@recipe.example is stopped after unusual mail");
    behind.send("bob@recipe.example", "new4@recipe.example");
    assert!(server.arrived("new4", "Subject: hello").contains("From: bob@recipe.example"));
    server.answer_releases();
    behind.send("ann@recipe.example", "new1@recipe.example");
    wait_for("ann's next mail", || (server.postfix.maildir("new1").len() == 2).then_some(()));
}
