//! Clients request every kind of change and hang up without waiting for the answer. There must be no change without a line in the audit
//! trail.

use super::ask_and_hang_up;
use super::changes::{CHANGES, Change, LEFT_OUT, PASSWORD};
use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, id_in, wait_for};
use base64::Engine;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) type Names = BTreeSet<String>;

/// How many more rounds of clients come if some requests of the earlier ones were not read.
const SPARE_ROUNDS: usize = 8;
/// In each round there is one client for every kind of change. More rounds would not fit into one list of the queue.
const ROUNDS_MAX: usize = 100;
/// Limits are tuned only after this many mails have arrived.
const ARRIVALS: usize = 510;

/// One Weir with everything that can be changed. Only the first mail of a day is sent and all others are held, nothing is delivered, and no
/// web server answers.
const CONFIGURATION: &str = r#"
[submission]
listen = ["127.0.0.1:0"]
listen_tls = ["127.0.0.1:0"]
hostname = "mail.example"
[throttle]
rate = "1/day"
multi_rate = "1/day"
stop_at = 1000
messages_a_day = 0
new_recipients_a_day = 0
[delivery]
retry = ["1h"]
[scan]
enabled = true
[web]
listen = ["127.0.0.1:0"]
backends = ["pages 127.0.0.1:9"]
[lab]
enabled = true
slots = 1
[console]
listen = ["127.0.0.1:0"]
"#;

/// Reads from the records what the API does not show: passwords, second factors, and whether limits were tuned.
const STORED: &str = "
import json, sqlite3, sys
records = sqlite3.connect(sys.argv[1])
kept = dict(records.execute('select name, value from kept'))
accounts = {account['name']: account for account in json.loads(kept['console.accounts'])}
users = dict(records.execute('select name, password from users'))
print(json.dumps({'users': users, 'accounts': accounts, 'limits': 'scan.limits' in kept}))
";

/// Adds machines that were in the lab once and are off now.
const MACHINES: &str = "
import sqlite3, sys
records = sqlite3.connect(sys.argv[1])
for number in range(int(sys.argv[2])):
    name = f'former{number}'
    records.execute(\"insert into lab_nodes (node, name, role, priority, address, fingerprint, registered_at, seen_at) \"
                    \"values (?, ?, 'dispatcher', 50, '', ?, 1, 1)\", (name, name, name))
records.commit()
";

/// Runs a Python program on the records.
fn python(site: &Site, program: &str, argument: &str) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(site.data().join("records.db")).arg(argument);
    let output = python.output().expect("python3 is not installed: run `make setup`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn stored(site: &Site) -> Value {
    serde_json::from_str(&python(site, STORED, "")).expect("one JSON document")
}

/// Sends a request to the API over the control socket, and waits for the answer.
#[track_caller]
fn answer_to(site: &Site, method: &str, path: &str, body: &str) -> Value {
    let mut stream = UnixStream::connect(site.data().join("control.sock")).expect("it listens");
    let head = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n");
    let length = body.len();
    let request = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    // A long answer is chunked: each piece comes after a line with its length.
    let pieces = body.find(['[', '{']).zip(body.rfind([']', '}'])).map(|(from, to)| &body[from..=to]);
    let joined: String = pieces.unwrap_or_default().split("\r\n").step_by(2).collect();
    serde_json::from_str(&joined).unwrap_or_else(|error| panic!("{method} {path}: {error}: {answer}"))
}

#[track_caller]
fn look(site: &Site, path: &str) -> Value {
    answer_to(site, "GET", path, "")
}

#[track_caller]
fn change(site: &Site, path: &str, body: &Value) -> Value {
    answer_to(site, "POST", path, &body.to_string())
}

/// One field of those entries of a list that match.
pub(super) fn those(list: &Value, field: &str, fit: impl Fn(&Value) -> bool) -> Names {
    list.as_array().into_iter().flatten().filter(|entry| fit(entry)).map(|entry| text(&entry[field])).collect()
}

/// What was prepared and is no longer in the list.
pub(super) fn gone(prepared: &Prepared, kind: &str, list: &Value, field: &str) -> Names {
    let there = those(list, field, |_| true);
    prepared.of(kind).iter().filter(|name| !there.contains(*name)).cloned().collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The things that are to be changed.
pub(super) struct Prepared {
    /// By kind; one for each round.
    named: BTreeMap<&'static str, Vec<String>>,
    /// The machine of the lab.
    pub(super) machine: String,
    /// The server of the web gate.
    pub(super) server: String,
    /// What the records contain before the clients come.
    pub(super) stored: Value,
    rounds: usize,
    home: PathBuf,
}

impl Prepared {
    /// The things of one kind, one for each round.
    pub(super) fn of(&self, kind: &str) -> &[String] {
        self.named.get(kind).unwrap_or_else(|| panic!("nothing is prepared under {kind}"))
    }

    /// The folder for the backup of a round.
    pub(super) fn backup(&self, round: usize) -> String {
        self.home.join(format!("backup{round}")).display().to_string()
    }

    fn make(site: &Site, up: &Up, rounds: usize) -> Prepared {
        let machine = wait_for("a leader", || site.json(&["lab", "status"])["leader"].as_str().map(str::to_owned));
        let server = text(&look(site, "/web")["backends"][0]["servers"][0]["address"]);
        let mut named = lists(site, rounds);
        named.extend(people(site, up, rounds));
        named.extend(samples(site, rounds));
        named.extend(mails(site, up, rounds));
        let (stored, home) = (stored(site), site.home().to_owned());
        Prepared { named, machine, server, stored, rounds, home }
    }
}

type Kinds = BTreeMap<&'static str, Vec<String>>;

fn each(rounds: usize, make: impl FnMut(usize) -> String) -> Vec<String> {
    (0..rounds).map(make).collect()
}

/// Prepares bans, blocks, tokens, rules and senders, each of which has a list of its own.
fn lists(site: &Site, rounds: usize) -> Kinds {
    let banned =
        each(rounds, |n| text(&change(site, "/bans", &json!({ "address": format!("198.18.0.{n}") }))["address"]));
    let blocked = each(rounds, |n| {
        let network = format!("192.0.2.{n}/32");
        change(site, "/web/blocks", &json!({ "network": network }));
        network
    });
    let old = each(rounds, |n| {
        text(&change(site, "/console/tokens", &json!({ "name": format!("old{n}"), "scope": "read" }))["name"])
    });
    let rule = each(rounds, |n| {
        let rule = json!({ "sha256": format!("{:064x}", 1_000 + n), "about": "old" });
        text(&change(site, "/scan/rules", &rule)["rule"])
    });
    let sender = each(rounds, |n| {
        text(&change(site, "/senders", &json!({ "who": format!("old{n}.example"), "rule": "block" }))["who"])
    });
    BTreeMap::from([("banned", banned), ("blocked", blocked), ("old", old), ("rule", rule), ("sender", sender)])
}

/// Prepares users of the mail gate and accounts of the console, some of them with a session and a second factor.
fn people(site: &Site, up: &Up, rounds: usize) -> Kinds {
    let mut kinds = Kinds::new();
    for kind in ["lock", "free", "set", "gone", "pass", "stolen"] {
        let users = each(rounds, |n| {
            let name = format!("{kind}{n}");
            change(site, "/users", &json!({ "name": name, "addresses": [format!("{name}@localhost")] }));
            name
        });
        kinds.insert(kind, users);
    }
    for name in &kinds["free"] {
        change(site, &format!("/users/{name}/lock"), &json!({ "reason": "a test" }));
    }
    for kind in ["coded", "known", "former"] {
        let accounts = each(rounds, |n| {
            let account = json!({ "name": format!("{kind}{n}"), "role": "operator", "password": PASSWORD });
            text(&change(site, "/console/accounts", &account)["name"])
        });
        kinds.insert(kind, accounts);
    }
    let console = format!("http://{}", up.listener("console"));
    for name in &kinds["coded"] {
        let shown =
            Visitor::log_in(&console, &[], (name.as_str(), PASSWORD)).post("/account", "/account/codes/begin", &[]);
        assert!(shown.contains("otpauth://"), "{shown}");
    }
    kinds.insert("session", those(&look(site, "/console/sessions"), "number", |_| true).into_iter().collect());
    kinds
}

/// Prepares samples of the lab, some of which wait for a machine that never comes, and machines that have gone.
fn samples(site: &Site, rounds: usize) -> Kinds {
    let hand_in = |name: String, more: &str| {
        text(
            &answer_to(site, "POST", &format!("/lab/samples?name={name}.txt{more}"), &format!("the text of {name}"))["sample"],
        )
    };
    let waits = each(rounds, |n| hand_in(format!("waits{n}"), "&tags=elsewhere"));
    let again = each(rounds, |n| hand_in(format!("again{n}"), ""));
    python(site, MACHINES, &rounds.to_string());
    let machine = each(rounds, |n| format!("former{n}"));
    BTreeMap::from([("waits", waits), ("again", again), ("machine", machine)])
}

/// Prepares mail that is held, quarantined, or waiting for delivery.
fn mails(site: &Site, up: &Up, rounds: usize) -> Kinds {
    // With a file in place of the folder of Maildirs, nothing can be delivered.
    fs::write(site.data().join("mail"), "in the way").expect("a file");
    let mut kinds = Kinds::new();
    let user = json!({ "name": "bulk", "password": PASSWORD, "addresses": ["bulk@localhost"], "profile": "exempt" });
    change(site, "/users", &user);
    let mut bulk = Client::login(&up.plain, "bulk", PASSWORD).expect("a login");
    for kind in ["queued", "queued-for-nothing"] {
        kinds.insert(kind, each(rounds, |_| id_in(&bulk.mail("bulk@localhost", &["ann@localhost"], kind))));
    }
    for kind in ["kept", "kept-for-nothing"] {
        let text = with_file("bulk@localhost", "tool.exe", "MZ");
        kinds.insert(kind, each(rounds, |_| id_in(&bulk.text("bulk@localhost", &["ann@localhost"], &text))));
    }
    for number in 0..ARRIVALS {
        id_in(&bulk.mail("bulk@localhost", &["ann@localhost"], &format!("number {number}")));
    }
    let mut slow = Client::login(&up.plain, "demo", &up.password()).expect("the demo user");
    id_in(&slow.mail("demo@localhost", &["first@localhost"], "it goes"));
    let mut held = |kind: &str, text: &dyn Fn(usize) -> String| {
        each(rounds, |n| {
            let said = slow.text("demo@localhost", &[format!("{kind}{n}@localhost").as_str()], &text(n));
            assert!(said.contains("held: 1 of 1"), "{said}");
            id_in(&said)
        })
    };
    let plain = |_: usize| "From: demo@localhost\r\nSubject: it waits\r\n\r\nhello".to_owned();
    kinds.insert("held", held("held", &plain));
    kinds.insert("held-for-nothing", held("held-for-nothing", &plain));
    let script = |n: usize| with_file("demo@localhost", &format!("held{n}.sh"), &format!("#!/bin/sh\necho held {n}\n"));
    kinds.insert("held-with-file", held("held-with-file", &script));
    wait_for("mail in quarantine, and an attempt to deliver the other", || {
        let kept = those(&look(site, "/quarantine")["entries"], "message", |_| true);
        let tried = those(&look(site, "/queue")["messages"], "message", |mail| mail["attempts"].as_u64() > Some(0));
        let all = |kind: &str, there: &Names| kinds[kind].iter().all(|id| there.contains(id));
        let there = all("kept", &kept) && all("kept-for-nothing", &kept);
        (there && all("queued", &tried) && all("queued-for-nothing", &tried)).then_some(())
    });
    kinds
}

fn with_file(from: &str, name: &str, content: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(content);
    format!(
        "From: {from}\r\nSubject: a file\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         --b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\nContent-Type: application/octet-stream; name=\"{name}\"\r\n\
         Content-Disposition: attachment; filename=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--b--"
    )
}

/// The lists of the API in which the changes can be seen.
const LISTS: [&str; 14] = [
    "/bans",
    "/console/accounts",
    "/console/sessions",
    "/console/tokens",
    "/dkim",
    "/held",
    "/lab/nodes",
    "/lab/samples?most=1000",
    "/quarantine",
    "/queue",
    "/scan/rules",
    "/senders",
    "/web",
    "/web/blocks",
];

/// Everything, as it is now.
pub(super) struct Seen {
    lists: BTreeMap<&'static str, Value>,
    /// All users, however many there are.
    pub(super) users: Value,
    /// What the records contain.
    pub(super) stored: Value,
    /// Folders of backups that are complete.
    pub(super) backups: Names,
}

impl Seen {
    fn now(site: &Site, prepared: &Prepared) -> Seen {
        let folders = (0..prepared.rounds).map(|round| prepared.backup(round));
        Seen {
            lists: LISTS.into_iter().map(|path| (path, look(site, path))).collect(),
            users: site.json(&["user", "list"]),
            stored: stored(site),
            backups: folders.filter(|folder| PathBuf::from(folder).join("backup.json").exists()).collect(),
        }
    }

    /// The list at this path.
    pub(super) fn at(&self, path: &str) -> &Value {
        &self.lists[path]
    }
}

/// For each operation: what has been changed by now, and what the trail says about it.
type State = BTreeMap<&'static str, (Names, Names)>;

fn state(site: &Site, prepared: &Prepared) -> State {
    // The trail is read last, so that the line of every change that is seen here has been written by then.
    let seen = Seen::now(site, prepared);
    let audit = site.json(&["audit", "-n", "10000"]);
    let lines = audit.as_array().expect("lines");
    let of = |action: &str| lines.iter().filter(|line| line["action"] == action).collect::<Vec<&Value>>();
    let both = |change: &Change| ((change.changed)(prepared, &seen), (change.told)(&of(change.action)));
    CHANGES.iter().map(|change| (change.operation, both(change))).collect()
}

/// The changes that have no line.
fn silent(state: &State) -> BTreeMap<&'static str, Vec<&String>> {
    let mut missing = BTreeMap::new();
    for (operation, (changed, told)) in state {
        let names: Vec<&String> = changed.difference(told).collect();
        if !names.is_empty() {
            missing.insert(*operation, names);
        }
    }
    missing
}

/// Checks that every change of the API is either requested here or left out for a stated reason.
fn nothing_is_forgotten(site: &Site) {
    let document = look(site, "/openapi.json");
    let known: Names = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().expect("methods").keys().map(move |verb| format!("{verb} {path}"))
        })
        .filter(|operation| !operation.starts_with("get "))
        .collect();
    let asked = CHANGES.iter().map(|change| change.operation);
    let here: Vec<String> = asked.chain(LEFT_OUT.map(|(operation, _)| operation)).map(str::to_owned).collect();
    assert_eq!(
        known,
        here.iter().cloned().collect::<Names>(),
        "the changes of the API, and those of tests/audit/changes.rs"
    );
    assert_eq!(known.len(), here.len(), "one of them is asked for and left out");
}

#[test]
fn whoever_hangs_up_after_any_change_leaves_a_line_for_it() {
    // `tools/soak` makes a thousand.
    let changes: usize = std::env::var("WEIR_HANG_UPS").ok().and_then(|number| number.parse().ok()).unwrap_or(40);
    let rounds = changes.div_ceil(CHANGES.len());
    let most = rounds + SPARE_ROUNDS;
    assert!(most <= ROUNDS_MAX, "at most {} clients", (ROUNDS_MAX - SPARE_ROUNDS) * CHANGES.len());
    let site = Site::only(CONFIGURATION);
    let up = site.up();
    nothing_is_forgotten(&site);
    let prepared = Prepared::make(&site, &up, most);
    let come = |round: usize| {
        for change in CHANGES {
            let (path, body) = (change.ask)(&prepared, round);
            let method = if change.operation.starts_with("patch ") { "PATCH" } else { "POST" };
            ask_and_hang_up(&site, method, &path, &body.to_string());
        }
    };
    (0..rounds).for_each(come);
    // A client that hangs up before its request was read changes nothing. Most requests are read; if none of some kind was, more clients
    // come.
    let count = |state: &State| state.values().map(|(changed, _)| changed.len()).sum::<usize>();
    let (mut last, mut asked, begun) = (State::new(), rounds, Instant::now());
    loop {
        let now = state(&site, &prepared);
        let settled = now == last;
        last = now;
        let (silent, idle) = (silent(&last), last.iter().filter(|(_, (changed, _))| changed.is_empty()));
        let idle: Vec<_> = idle.map(|(operation, _)| *operation).collect();
        if settled && silent.is_empty() && idle.is_empty() && count(&last) >= changes / 2 {
            break;
        }
        let late = begun.elapsed() > Duration::from_secs(180);
        assert!(!late, "changed without a line: {silent:?}; never changed: {idle:?}; all: {last:?}");
        if settled && asked < most {
            come(asked);
            asked += 1;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{} changes of {} kinds were made, each with its line", count(&last), CHANGES.len());
    assert_eq!(site.json(&["audit", "verify"])["whole"], true);
}
