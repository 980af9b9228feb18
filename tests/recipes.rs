//! Tests of the recipes in docs/operating.md with a real Postfix: Weir as its content filter, and as the MX in front of it.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::path::PathBuf;
use weir_peers::{NameServer, Postfix, free_port};

/// Postfix's settings for final delivery: a Maildir for our domain, in which ann has a mailbox.
fn final_delivery() -> String {
    let (uid, gid) = Postfix::owner();
    format!(
        "myhostname = postfix.example.org\nmydestination =\nmynetworks = 127.0.0.0/8\n\
         virtual_mailbox_domains = recipe.example\nvirtual_mailbox_base = FOLDER/mail\n\
         virtual_mailbox_maps = inline:{{ {{ ann@recipe.example = ann/ }} {{ bob@recipe.example = bob/ }} }}\n\
         virtual_uid_maps = static:{uid}\nvirtual_gid_maps = static:{gid}\nvirtual_minimum_uid = 1\n\
         smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\n"
    )
}

/// Postfix with Weir as its content filter, set up as the recipe says.
struct Filtered {
    postfix: Postfix,
    port: u16,
    site: Site,
    _weir: Up,
}

impl Filtered {
    /// `protocol` is Postfix's name for its client. `back` chooses the port to which Weir hands mail back, from the two ports of Postfix.
    fn start(protocol: &str, dns: &NameServer, back: impl Fn(u16, u16) -> u16) -> Filtered {
        let (port, reinjection, weir) = (free_port(), free_port(), free_port());
        let listen = if protocol == "lmtp" { "listen_lmtp" } else { "listen" };
        let site = Site::new(&format!(
            "dns = [\"{}\"]\n[inbound]\n{listen} = [\"127.0.0.1:{weir}\"]\ndomains = [\"recipe.example\"]\ntrusted = [\"127.0.0.1\"]\n\
             hand_back = [\"127.0.0.1:{}\"]\n[scan]\nenabled = true\n",
            dns.address(),
            back(port, reinjection)
        ));
        let up = site.up();
        let main = format!(
            "{}content_filter = {protocol}:[127.0.0.1]:{weir}\nreceive_override_options = no_address_mappings\n\
             smtp_send_xforward_command = yes\nlmtp_send_xforward_command = yes\nsmtpd_authorized_xclient_hosts = 127.0.0.0/8\n\
             local_header_rewrite_clients =\n",
            final_delivery()
        );
        let master = format!(
            "127.0.0.1:{port} inet n - n - - smtpd\n127.0.0.1:{reinjection} inet n - n - - smtpd\n  -o content_filter=\n  \
             -o receive_override_options=no_unknown_recipient_checks,no_header_body_checks,no_milters\n  \
             -o mynetworks=127.0.0.0/8\n  -o smtpd_recipient_restrictions=permit_mynetworks,reject\n  \
             -o smtpd_relay_restrictions=permit_mynetworks,reject\n"
        );
        Filtered { postfix: Postfix::start(&main, &master, port), port, site, _weir: up }
    }

    /// A client of Postfix with this address. (Postfix decides by the connection and not by XCLIENT whether mail comes from its own
    /// network; hence `local_header_rewrite_clients`.)
    fn client(&self, address: &str) -> Client {
        let mut client = Client::greeted(&format!("127.0.0.1:{}", self.port));
        let said = client.say(&format!("XCLIENT ADDR={address} NAME=mail.sender.example"));
        assert!(said.starts_with("220"), "{said}");
        assert!(client.say("EHLO mail.sender.example").starts_with("250"));
        client
    }

    #[track_caller]
    fn arrived(&self, mailbox: &str) -> String {
        let files: Vec<PathBuf> = wait_for(&format!("mail for {mailbox}"), || {
            let files = self.postfix.maildir(mailbox);
            (!files.is_empty()).then_some(files)
        });
        std::fs::read_to_string(&files[0]).expect("a message").replace("\n\t", " ")
    }
}

/// A message with the test file.
fn infected() -> String {
    format!("From: who@sender.example\r\nSubject: infected\r\n\r\n{}\r\n", weir_scan::eicar::eicar())
}

/// Waits until the only mail in quarantine is for this recipient, and infected.
#[track_caller]
fn quarantined(site: &Site, to: &str) {
    let kept = wait_for("the quarantine", || {
        let list = site.json(&["quarantine", "list"]);
        list["entries"].as_array().filter(|entries| !entries.is_empty()).cloned()
    });
    let [entry] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(entry["queue"] == "virus" && entry["recipients"][0] == to, "{entry}");
    assert!(entry["reason"].as_str().is_some_and(|reason| reason.contains("EICAR_test_file")), "{entry}");
}

fn zones() -> NameServer {
    NameServer::start()
        .txt("sender.example", "v=spf1 ip4:192.0.2.0/24 -all")
        .txt("_dmarc.sender.example", "v=DMARC1; p=none")
}

#[test]
fn postfix_has_its_mail_filtered_by_smtp_and_by_lmtp() {
    for protocol in ["smtp", "lmtp"] {
        let dns = zones();
        let filtered = Filtered::start(protocol, &dns, |_, reinjection| reinjection);
        let said = filtered.client("192.0.2.7").mail("who@sender.example", &["ann@recipe.example"], "filtered");
        assert!(said.starts_with("250"), "{said}");
        let text = filtered.arrived("ann");
        // The mail passed Postfix, Weir, and Postfix again.
        assert!(text.contains("by mail.example (Weir) with"), "{text}");
        assert_eq!(text.matches("by postfix.example.org (Postfix)").count(), 2, "{text}");
        // The true client was evaluated, and not Postfix.
        assert!(
            text.contains("Authentication-Results: mail.example;") && text.contains("spf=pass"),
            "{protocol}: {text}"
        );
        assert!(text.contains("192.0.2.7") && text.contains("dmarc=pass"), "{text}");
        assert!(text.contains("X-Weir-Scan: mail.example; clean (yara, attachments)"), "{text}");
        // An infected mail does not come back.
        let said = filtered.client("192.0.2.7").text("who@sender.example", &["bob@recipe.example"], &infected());
        assert!(said.starts_with("250"), "{said}");
        quarantined(&filtered.site, "bob@recipe.example");
        assert!(filtered.postfix.maildir("bob").is_empty());
    }
}

#[test]
fn a_content_filter_that_hands_back_to_the_wrong_port_ends_its_circles() {
    let dns = zones();
    let filtered = Filtered::start("smtp", &dns, |port, _| port);
    let said = filtered.client("192.0.2.7").mail("", &["ann@recipe.example"], "round and round");
    assert!(said.starts_with("250"), "{said}");
    wait_for("the end of the circle", || filtered.postfix.log().contains("it goes in circles").then_some(()));
    assert!(filtered.postfix.maildir("ann").is_empty());
}

#[test]
fn weir_is_the_mx_before_postfix() {
    let (port, dns) = (free_port(), zones());
    let master = format!("127.0.0.1:{port} inet n - n - - smtpd\n");
    let postfix = Postfix::start(&final_delivery(), &master, port);
    let site = Site::new(&format!(
        "dns = [\"{}\"]\n[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"recipe.example smtp:127.0.0.1:{port}\"]\n\
         recipients = \"callout\"\ncallout_patience = \"5s\"\n[scan]\nenabled = true\n",
        dns.address()
    ));
    let up = site.up();
    let mut client = Client::greeted(&up.listener("inbound"));
    let said = client.mail("who@sender.example", &["ann@recipe.example"], "for ann");
    assert!(said.starts_with("250 2.0.0 "), "{said}");
    let files = wait_for("mail for ann", || Some(postfix.maildir("ann")).filter(|files| !files.is_empty()));
    let text = std::fs::read_to_string(&files[0]).expect("a message");
    assert!(text.contains("Subject: for ann") && text.contains("X-Weir-Scan: mail.example; clean"), "{text}");
    let said = client.text("who@sender.example", &["ann@recipe.example"], &infected());
    assert!(said.starts_with("250 2.0.0 "), "{said}");
    quarantined(&site, "ann@recipe.example");
    assert_eq!(postfix.maildir("ann").len(), 1);
    // A recipient that Postfix does not know is refused here, with Postfix's words.
    client.say("MAIL FROM:<who@sender.example>");
    let said = client.say("RCPT TO:<nobody@recipe.example>");
    assert!(said.starts_with("550 5.1.1 the next server refuses this recipient") && said.contains("unknown"), "{said}");
    // Without Postfix, nobody can be asked about bob. For ann, the answer from a moment ago is used.
    drop(postfix);
    let said = client.say("RCPT TO:<bob@recipe.example>");
    assert!(said.starts_with("451 4.4.3"), "{said}");
    assert!(client.say("RCPT TO:<ann@recipe.example>").starts_with("250"));
}
