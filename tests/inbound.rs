//! Tests of mail from outside, as another server brings it to the running gate.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc;
use weir_peers::NameServer;

/// A client of the inbound port with this address, as a listed peer says.
fn client_from(up: &Up, address: &str) -> Client {
    let mut client = Client::greeted(&up.listener("inbound"));
    let said = client.say(&format!("XCLIENT ADDR={address}"));
    assert!(said.starts_with("220"), "{said}");
    assert!(client.say("EHLO mail.sender.example").starts_with("250"));
    client
}

#[test]
fn mail_for_a_domain_of_ours_arrives_and_other_mail_does_not_enter() {
    let site = Site::new(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\nlisten_lmtp = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n",
    );
    let up = site.up();
    assert!(up.said.contains("demo.test, any recipient, SPF DKIM DMARC"), "{}", up.said);
    let mut client = Client::greeted(&up.listener("inbound"));
    let said = client.mail("you@example.org", &["Ann+tag@demo.test"], "hello");
    assert!(said.starts_with("250 2.0.0 "), "{said}");
    let files = site.arrived("ann+tag@demo.test", 1);
    let text = std::fs::read_to_string(&files[0]).expect("a message");
    assert!(text.contains("Subject: hello") && text.contains("by mail.example (Weir) with ESMTP id"), "{text}");
    assert!(text.starts_with("Return-Path: <you@example.org>\n"), "{text}");
    assert!(!text.contains("Authentication-Results"), "mail of this machine is not evaluated:\n{text}");

    assert!(client.say("MAIL FROM:<you@example.org>").starts_with("250"));
    let said = client.say("RCPT TO:<somebody@elsewhere.example>");
    assert!(said.starts_with("550 5.7.1 relaying denied"), "{said}");
    assert!(client.say("AUTH PLAIN AGRlbW8AeA==").starts_with("50"), "nobody logs in here");

    let mut lmtp = BufReader::new(std::net::TcpStream::connect(up.listener("lmtp")).expect("it listens"));
    let mut line = String::new();
    lmtp.read_line(&mut line).expect("a greeting");
    assert!(line.contains("LMTP"), "{line}");

    let status = site.json(&["status"]);
    assert_eq!(status["gate"]["inbound"]["messages"], 1, "{status}");
    assert_eq!(status["gate"]["counters"]["messages"], 0, "{status}");
}

#[test]
fn what_spf_says_stands_in_the_delivered_message() {
    let dns = NameServer::start()
        .txt("sender.example", "v=spf1 ip4:192.0.2.0/24 -all")
        .txt("_dmarc.sender.example", "v=DMARC1; p=none");
    let site = Site::new(&format!(
        "dns = [\"{}\"]\n[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         trusted = [\"127.0.0.1\"]\n",
        dns.address()
    ));
    let up = site.up();
    let forged = "x\r\nAuthentication-Results: mail.example; spf=pass (forged)";
    let said = client_from(&up, "192.0.2.7").mail("who@sender.example", &["ann@demo.test"], "genuine");
    assert!(said.starts_with("250"), "{said}");
    let said = client_from(&up, "198.51.100.7").mail("who@sender.example", &["bob@demo.test"], forged);
    assert!(said.starts_with("250"), "{said}");
    let read = |to: &str| std::fs::read_to_string(&site.arrived(to, 1)[0]).expect("a message").replace("\n\t", " ");
    let genuine = read("ann@demo.test");
    assert!(
        genuine.contains("Authentication-Results: mail.example; spf=") && genuine.contains("spf=pass"),
        "{genuine}"
    );
    assert!(genuine.contains("dmarc=pass header.from=sender.example"), "{genuine}");
    let bad = read("bob@demo.test");
    assert!(bad.contains("spf=fail") && bad.contains("dmarc=fail"), "{bad}");
    assert!(!bad.contains("forged"), "{bad}");
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_goes_to_its_next_server() {
    let next = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = next.local_addr().expect("an address").port();
    // The port is reserved, but no server answers on it yet.
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test smtp:127.0.0.1:{port}\"]\nrecipients = \"any\"\n"
    ));
    let up = site.up();
    let mut client = Client::greeted(&up.listener("inbound"));
    for number in 0..20 {
        let said = client.mail("you@example.org", &["ann@demo.test"], &format!("number {number}"));
        assert!(said.starts_with("250"), "{said}");
    }
    up.kill();
    let up = site.up();
    assert!(up.said.contains("from the spool: 20 continue"), "{}", up.said);
    let taken = take_all(next);
    let mut subjects: Vec<String> = (0..20).map(|_| taken.recv().expect("all of them")).collect();
    subjects.sort();
    subjects.dedup();
    assert_eq!(subjects.len(), 20, "{subjects:?}");
    wait_for("an empty queue", || (site.json(&["queue", "list"])["total"] == 0).then_some(()));
}

#[test]
fn the_demonstration_takes_mail_for_a_domain_of_its_own() {
    let site = Site::new("");
    let up = site.up_with(&["--demo"]);
    let address = up.listener("inbound");
    assert!(
        up.said.contains(&format!("swaks --server {address} --from you@example.org --to ann@demo.test")),
        "{}",
        up.said
    );
    // Another Weir on the same machine takes the next port.
    let other = Site::new("");
    let second = other.up_with(&["--demo"]);
    assert_ne!(second.listener("inbound"), address);
    let said = Client::greeted(&address).mail("you@example.org", &["ann@demo.test"], "hello");
    assert!(said.starts_with("250"), "{said}");
    site.arrived("ann@demo.test", 1);
}

#[test]
fn a_list_that_is_not_there_is_refused_at_start() {
    let site = Site::new(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test\"]\nrecipients = \"file\"\nrecipient_file = \"/nonexistent/list\"\n",
    );
    site.weir(&["up"]).refused(&["inbound.recipient_file /nonexistent/list cannot be read"]);
}

/// Accepts messages on this port and reports their subjects.
fn take_all(listener: TcpListener) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || take(BufReader::new(stream), &sender));
        }
    });
    receiver
}

fn take(mut stream: BufReader<std::net::TcpStream>, subjects: &mpsc::Sender<String>) {
    let mut reply = "220 next.example";
    let mut in_message = false;
    loop {
        if !reply.is_empty() && stream.get_mut().write_all(format!("{reply}\r\n").as_bytes()).is_err() {
            return;
        }
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        reply = match (in_message, line.trim_end()) {
            (false, "DATA") => {
                in_message = true;
                "354 go on"
            }
            (false, _) => "250 fine",
            (true, ".") => {
                in_message = false;
                "250 taken"
            }
            (true, line) => {
                if let Some(subject) = line.strip_prefix("Subject: ") {
                    let _ = subjects.send(subject.to_owned());
                }
                ""
            }
        };
    }
}
