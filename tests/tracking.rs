//! Tests of message tracking: every message is found by whatever is known about it, in the terminal and on the page.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, wait_for};
use serde_json::Value;

fn ids(found: &Value) -> Vec<&str> {
    let messages = found["messages"].as_array().expect("a list");
    messages.iter().map(|mail| mail["message"].as_str().expect("an id")).collect()
}

fn id_in(reply: &str) -> String {
    reply.split_whitespace().find(|word| word.len() == 20).expect("an id").to_owned()
}

fn client(up: &Up) -> Client {
    Client::login(&up.plain, "demo", &up.password()).expect("a login")
}

#[test]
fn a_mail_that_was_delivered_is_found_by_everything_that_is_known_of_it() {
    let site = Site::new("");
    let up = site.up();
    let id = id_in(&client(&up).mail("demo@localhost", &["bob@localhost"], "Quarterly figures"));
    // The mail is in the Maildir a moment before its delivery is written down.
    let delivered = || site.json(&["find", "--state", "delivered"]);
    wait_for("its delivery", || (!ids(&delivered()).is_empty()).then_some(()));
    for question in [
        vec!["find", "quarterly"],
        vec!["find", "QUART*", "figures"],
        vec!["find", "bob@localhost"],
        vec!["find", id.as_str()],
        vec!["find", "--from", "demo@localhost"],
        vec!["find", "--from", "demo"],
        vec!["find", "--to", "@localhost"],
        vec!["find", "--subject", "figures quarterly"],
        vec!["find", "--login", "demo"],
        vec!["find", "--client", "127.0.0.1"],
        vec!["find", "--since", "1h"],
    ] {
        let found = site.json(&question);
        assert_eq!(ids(&found), [&id], "{question:?}: {found}");
    }
    for question in [
        vec!["find", "yearly"],
        vec!["find", "--from", "bob@localhost"],
        vec!["find", "--until", "1h"],
        vec!["find", "--verdict", "infected"],
        vec!["find", "--state", "bounced"],
    ] {
        assert!(ids(&site.json(&question)).is_empty(), "{question:?}");
    }
    let mail = &delivered()["messages"][0];
    assert_eq!((mail["subject"].as_str(), mail["recipients"].as_u64()), (Some("Quarterly figures"), Some(1)), "{mail}");
    assert!(mail["size_bytes"].as_u64().is_some_and(|size| size > 0), "{mail}");
    assert!(site.weir(&["find", "quarterly"]).ok().contains("bob@localhost"));
    site.weir(&["find", "--since", "soon"]).refused(&["is no time", "hint"]);
    site.weir(&["find", "--state", "accepted delivered"]).refused(&["there is no state", "one of"]);

    let base = format!("http://{}", up.listener("console"));
    let admin = Visitor::log_in(&base, &[], ("admin", &up.admin_password()));
    let page = admin.get("/search?q=quarterly");
    assert!(page.contains(&format!("href=\"/trace/{id}\"")) && !page.contains("Nothing was found"), "{page}");
    assert!(
        admin.get("/search?q=&to=bob").contains(&id) && admin.get("/search?q=yearly").contains("Nothing was found")
    );
    assert!(admin.get(&format!("/trace/{id}")).contains("to &lt;bob@localhost&gt;"));
}

/// Somebody asks whether the last of many recipients got the mail.
#[test]
fn every_recipient_of_a_mail_is_found_with_all_the_fates_that_it_had() {
    let site = Site::new("[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\n");
    let up = site.up();
    let to: Vec<String> = (0..120).map(|number| format!("r{number}@localhost")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let reply = client(&up).mail("demo@localhost", &to, "to many");
    assert!(reply.contains("held: 105 of 120"), "{reply}");
    let id = id_in(&reply);
    let in_state = |state: &str| ids(&site.json(&["find", "--state", state])).contains(&id.as_str());
    let shown = || site.json(&["find", &id])["messages"][0]["state"].as_str().expect("a state").to_owned();
    wait_for("a delivery", || (in_state("held") && in_state("delivered")).then_some(()));
    wait_for("both fates", || (shown() == "held, delivered").then_some(()));
    for number in [0, 19, 20, 49, 50, 119] {
        let found = site.json(&["find", "--to", &format!("r{number}@localhost")]);
        assert_eq!(ids(&found), [&id], "{number}");
    }
    assert!(ids(&site.json(&["find", "--to", "r120@localhost"])).is_empty());
    site.weir(&["held", "delete", "--user", "demo", "--yes"]).ok();
    wait_for("the deletion", || (shown() == "delivered, deleted").then_some(()));
    assert!(in_state("deleted") && in_state("delivered") && !in_state("held"));
    drop(up);
}

#[test]
fn the_way_of_a_mail_names_each_of_many_recipients() {
    let site = Site::new("[throttle]\nrate = \"1000/s\"\nmulti_rate = \"1000/s\"\nmax_multi_slack = 1000\n");
    let up = site.up();
    let to: Vec<String> = (0..120).map(|number| format!("r{number}@localhost")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let id = id_in(&client(&up).mail("demo@localhost", &to, "to many"));
    let shown = || site.json(&["find", &id])["messages"][0]["state"].as_str().expect("a state").to_owned();
    wait_for("all of them", || (shown() == "delivered").then_some(()));
    let way = site.json(&["trace", &id]);
    let lines = way["lines"].as_array().expect("lines");
    let delivered: Vec<&str> =
        lines.iter().filter(|line| line["event"] == "delivered").filter_map(|line| line["text"].as_str()).collect();
    for one in &to {
        assert!(delivered.iter().any(|line| line.contains(&format!("<{one}>"))), "{one}: {delivered:?}");
    }
    drop(up);
}

#[test]
fn what_was_tracked_is_found_after_a_kill_and_without_its_file() {
    let site = Site::new("");
    let up = site.up();
    let mut client = client(&up);
    let ids_sent: Vec<String> = (0..20)
        .map(|n| id_in(&client.mail("demo@localhost", &["bob@localhost"], &format!("letter number{n}"))))
        .collect();
    site.arrived("bob@localhost", 20);
    assert_eq!(ids(&site.json(&["find", "--subject", "letter"])).len(), 20);
    up.kill();
    let all = |site: &Site| {
        let found = site.json(&["find", "--subject", "letter", "--to", "bob@localhost"]);
        let mut found: Vec<String> = ids(&found).into_iter().map(str::to_owned).collect();
        found.reverse();
        found
    };
    assert_eq!(all(&site), ids_sent, "at rest, in the order of time");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(site.data().join(format!("tracking.db{end}")));
    }
    assert_eq!(all(&site), ids_sent, "made again from the diary");
    std::fs::write(
        site.data().join("tracking.db"),
        "no database at all, but long enough to be taken for one".repeat(99),
    )
    .expect("a file");
    assert_eq!(all(&site), ids_sent, "and where the file is damaged");

    let first = site.json(&["find", "--subject", "letter", "-n", "7"]);
    let next = first["next"].as_i64().expect("there are more").to_string();
    let second = site.json(&["find", "--subject", "letter", "-n", "200", "--after", &next]);
    let both: Vec<&str> = ids(&first).into_iter().chain(ids(&second)).collect();
    assert_eq!((both.len(), second["next"].as_i64()), (20, None));
    assert!(both.iter().rev().eq(&ids_sent), "each once");

    // The diary forgets messages first. Then the trace is made from what tracking has stored.
    std::fs::remove_dir_all(site.data().join("diary")).expect("it was there");
    let way = site.weir(&["trace", &ids_sent[3]]).ok();
    assert!(way.contains("letter number3") && way.contains("to <bob@localhost>"), "{way}");
}

#[test]
fn nothing_that_a_sender_writes_is_obeyed_where_mail_is_found() {
    let site = Site::new("");
    let up = site.up();
    let nasty = "\u{1b}[2J<script>window.ran=1</script> \"quoted\" OR 'x' * NEAR(\u{202e}evil";
    let mut client = client(&up);
    let id = id_in(&client.mail("demo@localhost", &["o'hara+tag@localhost"], nasty));
    for question in [
        vec!["find", "--to", "o'hara+tag@localhost"],
        vec!["find", "window"],
        vec!["find", "quoted"],
        vec!["find", "\"quoted\"", "NEAR("],
        vec!["find", "--subject", "\" OR \"", "script"],
    ] {
        assert_eq!(ids(&site.json(&question)), [&id], "{question:?}");
    }
    let printed = site.weir(&["find", "window"]).ok();
    assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed:?}");
    for bad in ["'", "\"", "*", "(", "^ - : NEAR AND OR NOT", "\\", "''''", "%", "_"] {
        site.weir(&["find", bad]).ok();
        site.weir(&["find", "--from", bad]).ok();
    }
    let base = format!("http://{}", up.listener("console"));
    let admin = Visitor::log_in(&base, &[], ("admin", &up.admin_password()));
    let page = admin.get("/search?q=window");
    assert!(page.contains("&lt;script&gt;window.ran=1") && !page.contains("<script>window"), "{page}");
}
