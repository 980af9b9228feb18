//! Tests of the recipes in docs/operating.md with real peers: HAProxy in front, several front-ends with a hitserver and with NATS.

use super::{PATIENCE, Up, json, spawn};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when this is dropped.
pub(super) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn start(name: &str, command: &mut Command) -> Process {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Process(child.unwrap_or_else(|error| panic!("{name} does not start ({error}): run `make setup`")))
}

pub(super) fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, weir_peers::free_port()))
}

pub(super) fn until(what: &str, mut met: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !met() {
        assert!(begun.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a request from this address, so that the client and the proxy that names it can be told apart.
fn ask(at: SocketAddr, from: &str, path: &str) -> String {
    let output = Command::new("curl")
        .args(["-s", "--max-time", "20", "--interface", from, &format!("http://{at}{path}")])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn haproxy(folder: &Path, server: &str) -> (Process, SocketAddr) {
    let at = free_address();
    let text = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\nfrontend f\n  bind {at}\n  \
         default_backend b\nbackend b\n  {server}\n"
    );
    std::fs::write(folder.join("haproxy.cfg"), text).unwrap();
    let process = start("haproxy", Command::new("haproxy").arg("-db").arg("-f").arg(folder.join("haproxy.cfg")));
    until("HAProxy", || TcpStream::connect(at).is_ok());
    (process, at)
}

#[test]
fn haproxy_says_who_the_client_is_by_the_proxy_protocol_and_by_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::new("[web.identity]\ntrusted = [\"127.0.0.1/32\"]\nproxy_protocol = true\n");
    let server = format!("http-reuse never\n  server w {} send-proxy-v2 source 127.0.0.1", up.at[0]);
    let (_haproxy, at) = haproxy(folder.path(), &server);
    let said = ask(at, "127.0.3.4", "/echo");
    assert!(said.contains("x-forwarded-for: 127.0.3.4"), "{said}");
    // A client that is not listed may not name another address.
    let mut stream = TcpStream::connect(up.at[0]).unwrap();
    drop(stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert!(!said.contains("200 OK"), "a listed peer must begin with a PROXY header: {said}");

    let up = Up::new("[web.identity]\ntrusted = [\"127.0.0.1/32\"]\n");
    let server = format!("option forwardfor\n  server w {} source 127.0.0.1", up.at[0]);
    let (_haproxy, at) = haproxy(folder.path(), &server);
    ask(at, "127.0.5.6", "/slow?ms=1");
    let said = ask(at, "127.0.5.6", "/echo");
    assert!(said.contains("x-forwarded-for: 127.0.5.6, 127.0.0.1"), "{said}");
}

pub(super) fn key(folder: &Path) -> std::path::PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.join("key");
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.write_all(b"a key that the front-ends share\n").unwrap();
    path
}

fn front_end(name: &str, key: &Path, carrier: &str) -> Up {
    Up::new(&format!(
        "slots = \"1\"\n[web.identity]\nsecret_file = {:?}\n[web.exchange]\nname = \"{name}\"\n{carrier}\n",
        key.display().to_string()
    ))
}

pub(super) fn peers(up: &Up) -> usize {
    let status: Value = json(up.weir(&["web", "status", "--json"]));
    let peers = status["exchange"]["peers"].as_array().map_or(&[][..], Vec::as_slice);
    peers.iter().filter(|peer| peer["whole"] == true).count()
}

fn alarms(up: &Up) -> Value {
    json(up.weir(&["web", "status", "--json"]))["exchange"]["alarms"].clone()
}

#[test]
fn three_front_ends_meet_at_a_hitserver_and_one_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (key, relay) = (key(folder.path()), free_address());
    let hitserver = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["hitserver", "--listen", &relay.to_string(), "--key-file"]).arg(&key);
        start("weir hitserver", &mut command)
    };
    let running = hitserver();
    let carrier = format!("relays = [\"{relay}\"]");
    let mut three: Vec<Up> = ["one", "two", "three"].iter().map(|name| front_end(name, &key, &carrier)).collect();
    until("all to meet", || three.iter().all(|up| peers(up) == 2));
    // A request runs at the third front-end, and the others know its session. Then the third one dies.
    let mut slow = TcpStream::connect(three[2].at[0]).unwrap();
    slow.write_all(b"GET /slow?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let known = |up: &Up| json(up.weir(&["web", "status", "--json"]))["backends"][0]["queue"]["sessions"].clone();
    until("the session to be heard of", || known(&three[0]) != 0);
    let mut dead = three.pop().unwrap();
    dead.process.kill().unwrap();
    until("the dead one to be forgotten", || three.iter().all(|up| peers(up) == 1));
    for up in &three {
        assert!(ask(up.at[0], "127.0.0.1", "/").contains("web gate works"));
    }
    // Without a hitserver there is an alarm, and everybody is served.
    drop(running);
    until("an alarm", || three.iter().all(|up| alarms(up)[0] == "no_carrier"));
    let printed = three[0].weir(&["web", "status"]).ok();
    assert!(printed.contains("ALARM"), "{printed}");
    assert!(ask(three[0].at[0], "127.0.0.1", "/").contains("web gate works"));
    let _again = hitserver();
    until("all to meet again", || three.iter().all(|up| peers(up) == 1 && alarms(up) == serde_json::json!([])));
}

#[test]
fn front_ends_meet_over_nats() {
    let folder = tempfile::tempdir().unwrap();
    let (key, nats) = (key(folder.path()), weir_peers::Nats::start());
    let carrier = format!("nats = [\"nats://{}\"]", nats.address());
    let two: Vec<Up> = ["one", "two"].iter().map(|name| front_end(name, &key, &carrier)).collect();
    until("both to meet", || two.iter().all(|up| peers(up) == 1));
    let metrics = two[0].metrics();
    assert!(metrics.contains("\nweir_web_exchange_peers 1\n"), "{metrics}");
}

/// What the table at the start says if there is nothing to serve.
#[test]
fn without_a_backend_the_gate_is_off() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("weir.toml"), "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n")
        .unwrap();
    let (process, said) = spawn(home.path(), &["up"]);
    let _process = Process(process);
    assert!(said.contains("web          off: no backend in [web]"), "{said}");
}
