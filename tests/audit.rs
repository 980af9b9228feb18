//! The audit trail: no change without a line, whoever hangs up and whenever Weir is killed, and no line without its seal.

use crate::control::gate::{Site, wait_for};
use crate::kills::disk::SmallDisk;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Asks the API over the control socket, and hangs up without waiting for the answer.
fn ask_and_hang_up(site: &Site, method: &str, path: &str, body: &str) {
    drop(ask(site, method, path, body));
}

/// Asks the API over the control socket; the connection on which the answer would come.
fn ask(site: &Site, method: &str, path: &str, body: &str) -> UnixStream {
    let mut stream = UnixStream::connect(site.data().join("control.sock")).expect("it listens");
    let length = body.len();
    let head = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).expect("it reads");
    stream
}

fn user(number: u32) -> String {
    let (name, password) = (format!("u{number}"), "correct horse");
    serde_json::json!({ "name": name, "password": password, "addresses": [format!("{name}@localhost")] }).to_string()
}

fn subjects(lines: &Value, action: &str) -> BTreeSet<String> {
    let lines = lines.as_array().into_iter().flatten().filter(|line| line["action"] == action);
    lines.map(|line| line["subject"].as_str().expect("a text").to_owned()).collect()
}

fn names(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_client_that_hangs_up_leaves_no_change_without_a_line() {
    let site = Site::new("");
    let _up = site.up();
    let come = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let token = format!(r#"{{"name":"t{number}","scope":"admin","days":1}}"#);
            ask_and_hang_up(&site, "POST", "/console/tokens", &token);
            if number % 10 == 0 {
                ask_and_hang_up(&site, "POST", "/users", &user(number));
            }
        }
    };
    come(0..100);
    // A client may be gone before anybody has read what it wants; that much is not done.
    let done = || {
        let (tokens, users) = (site.json(&["console", "token", "list"]), site.json(&["user", "list"]));
        (names(&tokens), names(&users))
    };
    let told = || {
        let audit = site.json(&["audit", "-n", "10000"]);
        (subjects(&audit, "token.add"), subjects(&audit, "user.add"))
    };
    let mut came = 100;
    wait_for("changes, with a line for each", || {
        let (tokens, users) = done();
        if tokens.len() <= 20 || users.is_empty() {
            // On a starved machine hardly anybody is heard before they are gone: more come.
            come(came..came + 20);
            came += 20;
            return None;
        }
        ((tokens, users) == told()).then_some(())
    });
    let checked = site.json(&["audit", "verify"]);
    assert!(checked["whole"] == true && checked["sealed"].as_u64() > Some(20), "{checked}");
}

/// Asks the API over the control socket.
fn look(site: &Site, path: &str) -> Value {
    let mut stream = UnixStream::connect(site.data().join("control.sock")).expect("it listens");
    let head = format!("GET /api/v1{path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    // A long answer comes in pieces, each after a line with its length.
    let pieces = body.find(['[', '{']).zip(body.rfind([']', '}'])).map(|(from, to)| &body[from..=to]);
    let joined: String = pieces.unwrap_or_default().split("\r\n").step_by(2).collect();
    serde_json::from_str(&joined).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Those of a list that fit, by one of their fields.
fn those(list: &Value, field: &str, fit: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten().filter(|entry| fit(entry));
    list.filter_map(|entry| entry[field].as_str().map(str::to_owned)).collect()
}

/// Rounds of clients that come if those before were not all heard.
const SPARE_ROUNDS: u32 = 8;

/// One client a change, and nobody stays for an answer.
fn ten_changes(site: &Site, round: u32) {
    let ask = |method, path: String, body: Value| ask_and_hang_up(site, method, &path, &body.to_string());
    let token = json!({ "name": format!("new{round}"), "scope": "read", "days": 1 });
    ask("POST", "/console/tokens".to_owned(), token);
    ask("POST", format!("/console/tokens/old{round}/revoke"), json!(null));
    let name = format!("made{round}");
    ask("POST", "/users".to_owned(), json!({ "name": name, "addresses": [format!("{name}@localhost")] }));
    ask("POST", format!("/users/lock{round}/lock"), json!({ "reason": "a test" }));
    ask("POST", format!("/users/free{round}/unlock"), json!(null));
    ask("PATCH", format!("/users/set{round}"), json!({ "contact": "elsewhere@example.org" }));
    ask("POST", format!("/users/gone{round}/remove"), json!(null));
    ask("POST", "/bans".to_owned(), json!({ "address": format!("198.51.{}.{}", round / 200, round % 200 + 1) }));
    ask("POST", "/web/blocks".to_owned(), json!({ "network": format!("203.0.113.{}", round % 200 + 1) }));
    ask("POST", "/scan/rules".to_owned(), json!({ "sha256": format!("{round:064x}"), "about": "a test" }));
}

/// What is changed now, by the name of the change.
fn changed(site: &Site, rounds: u32) -> BTreeMap<&'static str, BTreeSet<String>> {
    let tokens = those(&site.json(&["console", "token", "list"]), "name", |_| true);
    let users = site.json(&["user", "list"]);
    let all: BTreeSet<String> = those(&users, "name", |_| true);
    let named = |beginning: &str| (0..rounds).map(|round| format!("{beginning}{round}")).collect::<BTreeSet<_>>();
    let begin =
        |names: &BTreeSet<String>, with: &str| names.iter().filter(|name| name.starts_with(with)).cloned().collect();
    let locked = those(&users, "name", |user| user["state"] == "locked");
    BTreeMap::from([
        ("token.add", begin(&tokens, "new")),
        ("token.revoke", named("old").difference(&tokens).cloned().collect()),
        ("user.add", begin(&all, "made")),
        ("user.lock", begin(&locked, "lock")),
        ("user.unlock", named("free").difference(&locked).cloned().collect()),
        ("user.set", those(&users, "name", |user| user["contact"] == "elsewhere@example.org")),
        ("user.remove", named("gone").difference(&all).cloned().collect()),
        ("ban.add", those(&look(site, "/bans"), "address", |_| true)),
        ("web.block", those(&look(site, "/web/blocks"), "network", |_| true)),
        ("rule.add", those(&look(site, "/scan/rules"), "content", |_| true)),
    ])
}

/// What the trail says of the same changes. A rule is known there by its number.
fn told(site: &Site) -> BTreeMap<&'static str, BTreeSet<String>> {
    let audit = site.json(&["audit", "-n", "10000"]);
    let rules = look(site, "/scan/rules");
    let content = |number: &str| {
        let rule = rules.as_array().into_iter().flatten().find(|rule| format!("rule-{}", rule["rule"]) == number);
        rule.and_then(|rule| rule["content"].as_str()).unwrap_or(number).to_owned()
    };
    let of = |action: &'static str, beginning: &str| {
        let subjects = subjects(&audit, action).into_iter().filter(|subject| subject.starts_with(beginning));
        (action, subjects.map(|subject| if action == "rule.add" { content(&subject) } else { subject }).collect())
    };
    BTreeMap::from([
        of("token.add", "new"),
        of("token.revoke", "old"),
        of("user.add", "made"),
        of("user.lock", "lock"),
        of("user.unlock", "free"),
        of("user.set", "set"),
        of("user.remove", "gone"),
        of("ban.add", ""),
        of("web.block", ""),
        of("rule.add", ""),
    ])
}

#[test]
fn whoever_hangs_up_after_any_change_leaves_a_line_for_it() {
    // A thousand in tools/soak.
    let changes: u32 = std::env::var("WEIR_HANG_UPS").ok().and_then(|number| number.parse().ok()).unwrap_or(40);
    let rounds = changes.div_ceil(10);
    let site = Site::new("");
    let up = site.up_with(&["--demo"]);
    let prepared = rounds + SPARE_ROUNDS;
    for round in 0..prepared {
        site.weir(&["console", "token", "add", &format!("old{round}"), "--scope", "read"]).ok();
        for name in ["lock", "free", "set", "gone"].map(|name| format!("{name}{round}")) {
            site.weir(&["user", "add", &name, "--address", &format!("{name}@localhost"), "--no-password"]).ok();
        }
        site.weir(&["user", "lock", &format!("free{round}"), "--reason", "a test"]).ok();
    }
    (0..rounds).for_each(|round| ten_changes(&site, round));
    // Who is gone before anybody has read what they want changes nothing. Most are read; if a kind of change was not, more clients come.
    let count = |sets: &BTreeMap<&str, BTreeSet<String>>| sets.values().map(BTreeSet::len).sum::<usize>();
    let least = (changes / 2) as usize;
    let (mut last, mut asked, begun) = ((BTreeMap::new(), BTreeMap::new()), rounds, Instant::now());
    loop {
        let now = (changed(&site, prepared), told(&site));
        let settled = now == last && now.0 == now.1;
        let enough = count(&now.0) >= least && now.0.values().all(|subjects| !subjects.is_empty());
        last = now;
        if settled && enough {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "made {:?}, told {:?}", last.0, last.1);
        if settled && asked < prepared {
            ten_changes(&site, asked);
            asked += 1;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{} of {changes} changes were made, each with its line", count(&last.0));
    assert_eq!(site.json(&["audit", "verify"])["whole"], true);
    drop(up);
}

#[test]
fn a_change_that_a_kill_interrupts_has_a_line_after_the_next_start() {
    let site = Site::new("");
    let up = site.up();
    // Hashing is slow enough to be under way when the kill comes. They stay, so that all of them are read.
    let _waiting: Vec<UnixStream> = (0..8).map(|number| ask(&site, "POST", "/users", &user(number))).collect();
    wait_for("the first user", || (names(&site.json(&["user", "list"])).len() > 1).then_some(()));
    up.kill();
    let _up = site.up();
    let audit = site.json(&["audit", "-n", "1000"]);
    let made: BTreeSet<String> =
        names(&site.json(&["user", "list"])).into_iter().filter(|name| name != "demo").collect();
    let told = subjects(&audit, "user.add");
    let interrupted = audit.as_array().expect("lines").iter().filter(|line| line["action"] == "interrupted").count();
    let silent = made.difference(&told).count();
    assert!(silent <= interrupted, "made {made:?}, told {told:?}, {interrupted} interrupted");
    // The kill may come before the last of them have been read; those are not begun.
    assert!(made.len() + interrupted > 1, "made {made:?}, {interrupted} interrupted: {audit}");
}

#[test]
fn a_line_that_somebody_takes_out_is_missed() {
    let site = Site::new("");
    drop(site.up());
    for name in ["one", "two", "three"] {
        site.weir(&["console", "token", "add", name, "--scope", "read"]).ok();
    }
    assert_eq!(site.json(&["audit", "verify"])["whole"], true);
    let sql = |statements: &str| {
        let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(site.data().join("records.db")).arg(statements);
        assert!(python.status().expect("python3 is not installed: run `make setup`").success());
    };
    sql("create table audit_before as select * from audit");
    let cases = [
        ("delete from audit where subject = 'two'", "does not fit"),
        ("update audit set actor = 'nobody' where subject = 'two'", "does not fit"),
        ("delete from audit where subject = 'three'", "missing"),
        ("insert into audit (at, actor, action, subject, detail) values (1, 'x', 'x', 'x', 'x')", "no seal"),
    ];
    for (tampering, found) in cases {
        sql(tampering);
        site.weir(&["audit", "verify"]).refused(&["is not as it was written", found]);
        sql("delete from audit; insert into audit select * from audit_before");
        site.weir(&["audit", "verify"]).ok();
    }
}

#[test]
fn after_a_full_disk_changes_are_made_and_written_down_again() {
    let Some(disk) = SmallDisk::mount(48) else { return };
    let site = Site::new("");
    std::os::unix::fs::symlink(disk.path().join("data"), site.data()).expect("a link");
    fs::create_dir(disk.path().join("data")).expect("a folder");
    let _up = site.up();
    let add =
        |name: &str| site.weir(&["user", "add", name, "--address", &format!("{name}@x.example"), "--no-password"]);
    let filler = disk.fill();
    wait_for("a change that a full disk refuses", || (add("early").code != Some(0)).then_some(()));
    for number in 0..5 {
        assert_ne!(add(&format!("full{number}")).code, Some(0));
    }
    filler.remove();
    wait_for("room on the disk", || (add("late").code == Some(0)).then_some(()));
    let users = site.json(&["user", "list"]);
    let lines = site.json(&["audit"]);
    let about = |name: &str| {
        let says = |line: &&Value| {
            line["subject"] == name
                || line["action"] == "interrupted" && line["subject"].as_str().is_some_and(|s| s.contains("users"))
        };
        lines.as_array().expect("lines").iter().filter(says).count()
    };
    for user in users["users"].as_array().or(users.as_array()).expect("users") {
        let name = user["name"].as_str().expect("a name");
        assert!(about(name) > 0, "nothing says who added {name}: {lines}");
    }
    site.weir(&["audit", "verify"]).ok();
}
