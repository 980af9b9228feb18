//! Tests of the audit trail: there is no change without a line, even if clients hang up or Weir is killed, and no line without its seal.

mod changes;
mod hang_ups;

use crate::control::gate::{Site, wait_for};
use crate::kills::disk::SmallDisk;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Sends a request to the API over the control socket, and hangs up without waiting for the answer.
fn ask_and_hang_up(site: &Site, method: &str, path: &str, body: &str) {
    drop(ask(site, method, path, body));
}

/// Sends a request to the API over the control socket. Returns the connection on which the answer would come.
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
    // A client may hang up before Weir has read its request. Such a request changes nothing.
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
            // On a very slow machine, most clients have hung up before their requests are read. Then more clients come.
            come(came..came + 20);
            came += 20;
            return None;
        }
        ((tokens, users) == told()).then_some(())
    });
    let checked = site.json(&["audit", "verify"]);
    assert!(checked["whole"] == true && checked["sealed"].as_u64() > Some(20), "{checked}");
}

#[test]
fn a_change_that_a_kill_interrupts_has_a_line_after_the_next_start() {
    let site = Site::new("");
    let up = site.up();
    // Hashing a password is slow, so it is under way when the kill comes. These clients stay connected, so that all requests are read.
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
    // The kill may come before the last requests were read; those have not begun.
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
        site.weir(&["audit", "verify"]).refused(&["has been changed", found]);
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
