//! Tests that gates that are off open nothing, and that a gate that fails does so without the others and comes back.

use crate::control::gate::{Client, Site, Up, wait_for};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const WEB: &str = "[web]\nlisten = [\"127.0.0.1:0\"]\nbackends = [\"app 127.0.0.1:9\"]\n";
const CONSOLE: &str = "[console]\nlisten = [\"127.0.0.1:0\"]\n";
pub(crate) const LAB: &str = "[lab]\nenabled = true\n";

/// The TCP ports on which a process listens.
fn ports(pid: u32) -> BTreeSet<u16> {
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its files")
        .filter_map(|file| Some(fs::read_link(file.ok()?.path()).ok()?.to_str()?.to_owned()))
        .filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listening = fields.get(3) == Some(&"0A") && sockets.contains(*fields.get(9)?);
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        listening.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    table.iter().flat_map(|lines| lines.lines()).filter_map(listens).collect()
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').expect("a port").1.parse().expect("a number")
}

/// The status code and the body of a page of the console.
pub(crate) fn page(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn console(up: &Up) -> String {
    up.listener("console")
}

pub(crate) fn is_ready(up: &Up) -> bool {
    page(&console(up), "/readyz").0 == 200
}

fn state(site: &Site, gate: &str) -> String {
    let status = site.status();
    let gates = status["gates"].as_array().expect("gates");
    gates.iter().find(|one| one["gate"] == gate).map_or("off".into(), |one| one["state"].as_str().expect("text").into())
}

fn users(site: &Site) -> usize {
    site.json(&["user", "list"]).as_array().expect("a list").len()
}

/// Whether a spool was ever opened here. The folder alone says nothing, because every data folder has it.
fn has_spool(site: &Site) -> bool {
    fs::read_dir(site.data().join("spool")).expect("the data folder's layout").next().is_some()
}

#[test]
fn with_only_the_web_nothing_else_listens() {
    let site = Site::only(&format!("{WEB}{CONSOLE}"));
    let up = site.up_alone();
    let expected = [up.listener("web"), console(&up)].iter().map(|address| port(address)).collect();
    assert_eq!(ports(up.pid()), expected, "{}", up.said);
    assert!(!has_spool(&site) && users(&site) == 0);
    assert!(is_ready(&up));
    let status = site.status();
    let says = |part: &str| {
        let parts = status["health"]["parts"].as_array().expect("parts");
        parts.iter().find(|line| line["part"] == part).expect("a part")["says"].clone()
    };
    assert_eq!((says("mail"), says("scan"), says("lab")), ("off".into(), "off".into(), "off".into()), "{status}");
    assert!(says("web").as_str().is_some_and(|says| says.contains("1 server")), "{status}");
    // The greeting says nothing about mail either.
    assert!(up.said.contains("web status`") && !up.said.contains("held list"), "{}", up.said);
    let configuration = site.home().join("weir.toml");
    let checked = crate::harness::weir(&["check", "--config", configuration.to_str().expect("a path")]).ok();
    assert!(!checked.contains("notices"), "{checked}");
}

#[test]
fn with_only_the_lab_nothing_else_listens() {
    let site = Site::only(&format!("{LAB}{CONSOLE}"));
    let up = site.up_alone();
    assert_eq!(ports(up.pid()), [port(&console(&up))].into());
    assert!(!has_spool(&site) && users(&site) == 0);
    assert!(is_ready(&up));
}

#[test]
fn nobody_is_made_without_being_asked_for() {
    let site = Site::new("");
    let _up = site.up_alone();
    assert_eq!(users(&site), 0);
}

#[test]
fn a_web_gate_whose_port_is_taken_fails_alone_and_comes_back() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let web = format!("[web]\nlisten = [\"{address}\"]\nbackends = [\"app 127.0.0.1:9\"]\n");
    let mail = "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n";
    let site = Site::only(&format!("{mail}{web}{CONSOLE}"));
    let up = site.up();
    assert!(up.said.contains("web          DOES NOT RUN"), "{}", up.said);
    TcpStream::connect(&up.plain).expect("mail is served");
    assert_eq!(state(&site, "mail"), "up");
    // The web gate is tried again and again, so now and then it is starting.
    wait_for("the web to fail", || (state(&site, "web") == "failed").then_some(()));
    let (status, body) = wait_for("a page that says so", || {
        Some(page(&console(&up), "/readyz")).filter(|(_, body)| body.contains("web: failed"))
    });
    assert!(status == 503 && body.contains("web: failed") && body.contains("mail: up"), "{body}");
    assert!(page(&console(&up), "/metrics").1.contains("weir_gate_up{gate=\"web\"} 0"));
    assert_eq!(page(&console(&up), "/healthz").0, 200);
    drop(taken);
    wait_for("the web gate", || is_ready(&up).then_some(()));
    TcpStream::connect(address).expect("the web is served");
    site.weir(&["web", "status"]).ok();
}

#[test]
fn mail_whose_port_is_taken_fails_alone_and_comes_back() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let mail = format!("[submission]\nlisten = [\"{address}\"]\nlisten_tls = [\"127.0.0.1:0\"]\n");
    let site = Site::only(&format!("{mail}{WEB}{CONSOLE}"));
    let up = site.up_alone();
    assert!(up.said.contains("mail         DOES NOT RUN"), "{}", up.said);
    TcpStream::connect(up.listener("web")).expect("the web is served");
    assert_eq!(state(&site, "mail"), "failed");
    drop(taken);
    wait_for("the mail gate", || is_ready(&up).then_some(()));
    TcpStream::connect(address).expect("mail is served");
    site.weir(&["queue", "list"]).ok();
}

#[test]
fn a_reload_calls_no_mail_gate_restarted_that_does_not_run() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let mail = format!("[submission]\nlisten = [\"{address}\"]\nlisten_tls = [\"127.0.0.1:0\"]\n");
    let site = Site::only(&format!("{mail}{WEB}{CONSOLE}"));
    let up = site.up_alone();
    let change = |more: &str| {
        fs::write(site.home().join("weir.toml"), format!("{mail}{WEB}{CONSOLE}{more}")).expect("a file");
        site.weir(&["reload"])
    };
    let said = change("[throttle]\nlearn_only = true\n").ok();
    assert!(said.contains("does not run") && said.contains("with the new settings"), "{said}");
    assert!(!said.contains("restarted"), "{said}");
    let password = site.home().join("password");
    fs::write(&password, "").expect("a file");
    let login = "[delivery]\nway = \"smarthost\"\nhosts = [\"127.0.0.1:1\"]\nlogin = \"weir\"\npassword_file = ";
    let refused = change(&format!("{login}\"{}\"\n", password.display()));
    assert!(refused.stdout.contains("refuses the new settings"), "{refused:?}");
    assert!(refused.stdout.contains("does not run") && !refused.stdout.contains("as before"), "{refused:?}");
    drop(taken);
    wait_for("the mail gate", || is_ready(&up).then_some(()));
}

#[test]
fn a_lab_without_its_programs_fails_alone() {
    let lab = "[lab]\nenabled = true\nvms = [\"vm1 kernel=/x initrd=/y\"]\n";
    let site = Site::new(lab);
    let mut command = site.command(&["up"]);
    command.env("PATH", "/nowhere");
    let up = Site::start(command);
    assert!(up.said.contains("lab          DOES NOT RUN"), "{}", up.said);
    TcpStream::connect(&up.plain).expect("mail is served");
    assert_eq!(state(&site, "lab"), "failed");
}

/// If a scanner is missing, mail is accepted all the same, and the other gates serve.
#[test]
fn a_scanner_that_is_away_keeps_nothing_from_starting() {
    let scan = "[scan]\nenabled = true\n[scan.clamav]\naddresses = [\"127.0.0.1:9\"]\n";
    let site = Site::new(scan);
    let up = site.up();
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    assert!(client.mail("demo@localhost", &["ann@localhost"], "x").starts_with("250"));
    assert_eq!(state(&site, "mail"), "up");
    let feeds = site.weir(&["feeds", "status"]).ok();
    assert!(feeds.contains("127.0.0.1:9"), "{feeds}");
    let printed = wait_for("a verdict", || {
        let status = site.weir(&["status"]);
        (status.code == Some(4)).then_some(status.stdout)
    });
    assert!(printed.contains("scan         FAILS scans have failed"), "{printed}");
    assert!(printed.contains("NOT WELL") && printed.lines().count() <= 12, "{printed}");
}

/// Mail and the console need the records, but the web gate does not.
#[test]
fn a_database_that_is_away_keeps_the_web_from_nothing() {
    let postgres = weir_peers::Postgres::start();
    let records = format!("[store]\nrecords = \"{}\"\n", postgres.database());
    postgres.stop();
    let mail = "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n";
    let site = Site::only(&format!("{mail}{WEB}{LAB}{CONSOLE}{records}"));
    let up = site.up_alone();
    for gate in ["mail", "lab", "console"] {
        assert!(up.said.contains(&format!("{gate:<12} DOES NOT RUN")), "{}", up.said);
    }
    TcpStream::connect(up.listener("web")).expect("the web is served");
    let said = site.weir(&["status"]);
    assert_eq!(said.code, Some(4), "{}", said.stdout);
    for word in ["NOT WELL", "the records are not open", "mail: the records cannot be opened"] {
        assert!(said.stdout.contains(word), "{word} in {}", said.stdout);
    }
    postgres.restart();
    let status = wait_for("the others", || {
        let status: serde_json::Value = serde_json::from_str(&site.weir(&["status", "--json"]).stdout).ok()?;
        let up = status["gates"].as_array()?.iter().all(|gate| gate["state"] == "up");
        up.then_some(status)
    });
    assert_eq!(status["gates"].as_array().expect("gates").len(), 4);
}
