//! Tests of senders that people allow and block, and of mail of one campaign that is decided on as a whole, with a real spam filter and a
//! real name server.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, wait_for};
use serde_json::Value;
use weir_peers::{Knot, Rspamd, eicar};

const ZONE: &str = "good.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
    news.good.example. TXT \"v=spf1 ip4:192.0.2.0/24 -all\"
    any.example. TXT \"v=spf1 +all\"";

/// A site that asks this name server, and a spam filter that calls every message spam that asks for it.
fn site(dns: &Knot, rspamd: &Rspamd) -> Site {
    Site::new(&format!(
        "dns = [\"{}\"]\n[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         trusted = [\"127.0.0.1\"]\n[scan]\nenabled = true\n[scan.rspamd]\naddress = [\"unix:{}\"]\n",
        dns.address(),
        rspamd.socket().display()
    ))
}

fn stranger(up: &Up, address: &str) -> Client {
    let mut client = Client::greeted(&up.listener("inbound"));
    assert!(client.say(&format!("XCLIENT ADDR={address}")).starts_with("220"));
    assert!(client.say("EHLO mail.sender.example").starts_with("250"));
    client
}

fn spam(client: &mut Client, sender: &str, author: &str, (to, subject): (&str, &str)) -> String {
    let text = format!("From: {author}\r\nSubject: {subject}\r\nX-Wish: reject\r\n\r\nbuy this\r\n");
    client.text(sender, &[to], &text)
}

fn kept(site: &Site) -> Vec<Value> {
    site.json(&["quarantine", "list"])["entries"].as_array().cloned().unwrap_or_default()
}

#[test]
fn an_allowed_sender_is_excused_from_spam_if_it_is_who_it_says_and_a_blocked_one_is_refused() {
    let (dns, rspamd) = (Knot::start(ZONE), Rspamd::start());
    let site = site(&dns, &rspamd);
    let up = site.up();
    let mut good = stranger(&up, "192.0.2.7");
    assert!(spam(&mut good, "ann@good.example", "ann@good.example", ("ann@demo.test", "before")).starts_with("250"));
    wait_for("the quarantine", || (kept(&site).len() == 1).then_some(()));

    assert!(
        site.weir(&["senders", "allow", "Good.Example", "--about", "our paper mill"])
            .ok()
            .contains("good.example is allowed")
    );
    assert!(spam(&mut good, "ann@news.good.example", "ann@good.example", ("bob@demo.test", "now")).starts_with("250"));
    let text = std::fs::read_to_string(&site.arrived("bob@demo.test", 1)[0]).expect("a message");
    assert!(text.contains("good.example is allowed") && !text.contains("X-Spam-Flag"), "{text}");
    // The name alone is not enough, because anybody can write it.
    let mut forger = stranger(&up, "198.51.100.7");
    let forged = spam(&mut forger, "x@any.example", "ann@good.example", ("eve@demo.test", "forged"));
    assert!(forged.starts_with("250"), "{forged}");
    wait_for("what was forged", || (kept(&site).len() == 2).then_some(()));
    // Malware is quarantined, whoever sends it.
    let worm = format!("From: ann@good.example\r\nSubject: worm\r\n\r\n{}\r\n", eicar());
    assert!(good.text("ann@good.example", &["dan@demo.test"], &worm).starts_with("250"));
    let infected = wait_for("the worm", || kept(&site).into_iter().find(|entry| entry["queue"] == "virus"));
    assert!(infected["recipients"].to_string().contains("dan@demo.test"), "{infected}");

    site.weir(&["senders", "block", "any.example"]).ok();
    assert!(forger.say("MAIL FROM:<x@any.example>").starts_with("550 5.7.1 mail from any.example is not taken here"));
    let mut other = stranger(&up, "198.51.100.8");
    let said =
        other.text("y@elsewhere.example", &["eve@demo.test"], "From: z@deep.any.example\r\nSubject: x\r\n\r\nx\r\n");
    assert!(said.starts_with("550 5.7.1 mail from any.example"), "{said}");
    // Mail that a listed peer has accepted already is kept for a person.
    let mut peer = Client::greeted(&up.listener("inbound"));
    assert!(peer.mail("y@any.example", &["fay@demo.test"], "relayed").starts_with("250"));
    wait_for("what the peer brought", || {
        kept(&site)
            .into_iter()
            .find(|entry| entry["reason"].as_str().is_some_and(|why| why.starts_with("blocked: mail from any.example")))
    });

    // After a restart the senders are still known, and they can be removed.
    drop(up);
    let list = site.json(&["senders", "list"]);
    assert_eq!(
        (&list[0]["who"], &list[0]["rule"], &list[1]["rule"]),
        (&"any.example".into(), &"block".into(), &"allow".into())
    );
    let up = site.up();
    let mut other = stranger(&up, "198.51.100.8");
    assert!(other.say("MAIL FROM:<x@any.example>").starts_with("550"));
    site.weir(&["senders", "remove", "any.example"]).ok();
    assert!(other.say("MAIL FROM:<x@any.example>").starts_with("250"));
    site.weir(&["senders", "remove", "any.example"]).refused(&["neither allowed nor blocked"]);
    site.weir(&["senders", "allow", "com"]).refused(&["top-level"]);
    let audit = site.weir(&["audit"]).ok();
    for action in ["sender.allow", "sender.block", "sender.remove"] {
        assert!(audit.contains(action), "{action} in\n{audit}");
    }
}

#[test]
fn a_campaign_is_one_row_that_is_decided_on_as_a_whole_and_a_mail_goes_to_somebody_else() {
    let (dns, rspamd) = (Knot::start(ZONE), Rspamd::start());
    let site = site(&dns, &rspamd);
    let up = site.up();
    site.weir_with(&["console", "add", "olga", "--role", "operator", "--password-stdin"], "correct horse battery\n")
        .ok();
    let mut client = stranger(&up, "198.51.100.7");
    for number in 0..5 {
        let (sender, to) = (format!("x{number}@any.example"), format!("to{number}@demo.test"));
        let said = spam(&mut client, &sender, &sender, (&to, &format!("Invoice {number}7 for you")));
        assert!(said.starts_with("250"), "{said}");
    }
    assert!(spam(&mut client, "x@any.example", "x@any.example", ("ann@demo.test", "A parcel")).starts_with("250"));
    wait_for("the quarantine", || (kept(&site).len() == 6).then_some(()));
    let console = format!("http://{}", up.listener("console"));
    let olga = Visitor::log_in(&console, &[], ("olga", "correct horse battery"));
    let page = olga.get("/quarantine");
    assert!(page.contains("4 more mails like it") && page.matches("name=\"message\"").count() == 2, "{page}");
    let box_of =
        page.split("aria-label=\"Choose these 5 mails\"").next().and_then(|before| before.rsplit("value=\"").next());
    let ids = box_of.and_then(|rest| rest.split('"').next()).expect("a box for all of them");
    assert_eq!(ids.split(',').count(), 5);

    // One of them is sent to somebody who examines it, and to nobody else.
    let first = ids.split(',').next().expect("one");
    let done = olga.post(
        "/quarantine",
        "/quarantine/decide",
        &[("message", first), ("action", "release"), ("to", "team@demo.test")],
    );
    assert!(done.contains("on the way to team@demo.test"), "{done}");
    let text = std::fs::read_to_string(&site.arrived("team@demo.test", 1)[0]).expect("a message");
    assert!(text.contains("released from quarantine/spam by"), "{text}");
    let wrong =
        olga.post("/quarantine", "/quarantine/decide", &[("message", ids), ("action", "release"), ("to", "nobody")]);
    assert!(wrong.contains("is no address"), "{wrong}");
    let rest = ids.split_once(',').map(|(_, rest)| rest).expect("the others");
    let one = rest.split(',').next().expect("one of them");
    assert_eq!(site.json(&["quarantine", "list", "--like", one])["entries"].as_array().map(Vec::len), Some(4));
    let done = site.json(&["quarantine", "delete", "--like", one, "--yes"]);
    assert_eq!(done["messages"].as_array().map(Vec::len), Some(4), "{done}");
    let left = kept(&site);
    assert_eq!((left.len(), &left[0]["subject"]), (1, &"A parcel".into()));

    // The sender can be blocked on the page of its mail.
    let mail = format!("/quarantine/{}", left[0]["message"].as_str().expect("an id"));
    assert!(olga.get(&mail).contains("Block all of any.example"));
    let done = olga.post(&mail, "/senders/set", &[("rule", "block"), ("who", "any.example"), ("about", "spam")]);
    assert!(done.contains("any.example is blocked"), "{done}");
    assert!(client.say("MAIL FROM:<x@any.example>").starts_with("550"));
    assert!(olga.get("/senders").contains("any.example"));
    let audit = site.weir(&["audit"]).ok();
    assert!(audit.contains("to <team@demo.test> instead"), "{audit}");
}
