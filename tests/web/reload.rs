//! Tests of `weir reload` and SIGHUP: what changes while everything runs, and what is refused.

use super::{PATIENCE, Up, configure, json};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts a server that answers everything with its name. Returns its address.
fn server(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream, name));
        }
    });
    address
}

fn answer(mut stream: TcpStream, name: &str) {
    let mut asked = [0; 4_096];
    while stream.read(&mut asked).is_ok_and(|octets| octets > 0) {
        let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends a request on a connection that stays open. Returns the name of the server that answered.
fn ask(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut said = [0; 4_096];
    let read = stream.read(&mut said).unwrap();
    String::from_utf8_lossy(&said[..read]).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_configuration_is_read_again_and_no_connection_is_lost() {
    let (first, second) = (server("the first"), server("the second"));
    let up = Up::new(&format!("backends = [\"app {first}\"]\nslots = \"2\"\n"));
    let mut kept = TcpStream::connect(up.at[0]).unwrap();
    assert_eq!(ask(&mut kept), "the first");

    let other = format!(
        "threads = 3\nbackends = [\"app {second}\", \"more {first} slots=5\"]\nslots = \"7\"\n[web.limits]\nstreams = 9\n[lab]\nkeep = \"9d\"\n"
    );
    configure(up.home.path(), &other);
    let outcome = json(up.weir(&["reload", "--json"]));
    assert_eq!(outcome["web"], json!({ "added": ["more"], "removed": [], "kept": ["app"], "routes": 1 }));
    let restart = outcome["restart"].as_array().unwrap();
    assert!(restart.contains(&json!("web.threads")) && restart.contains(&json!("lab.keep")), "{outcome}");
    assert_eq!(restart.len(), 2, "{outcome}");
    assert_eq!(ask(&mut kept), "the second", "on the same connection");
    let status = json(up.weir(&["web", "status", "--json"]));
    let slots: Vec<_> =
        status["backends"].as_array().unwrap().iter().map(|backend| &backend["queue"]["slots"]).collect();
    assert_eq!(slots, [&json!(7), &json!(5)]);
    assert_eq!(status["backends"][0]["queue"]["counters"]["finished"], 2, "the queue is the same one");
    let printed = up.weir(&["reload"]).ok();
    assert!(printed.contains("kept         app, more") && printed.contains("after a restart: "), "{printed}");

    configure(up.home.path(), "backends = [\"app\"]\nroutes = [\"* nowhere\"]\n");
    up.weir(&["reload"]).refused(&["web.backends", "web.routes", "nothing has changed"]);
    configure(up.home.path(), &format!("backends = [\"app https://{first}\"]\nserver_ca_file = \"/no/such/file\"\n"));
    up.weir(&["reload"]).refused(&["/no/such/file", "nothing has changed"]);
    assert_eq!(ask(&mut kept), "the second");

    configure(up.home.path(), &format!("backends = [\"app {first}\"]\n"));
    let pid = up.process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let begun = Instant::now();
    while ask(&mut kept) != "the first" {
        assert!(begun.elapsed() < PATIENCE, "SIGHUP does nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_not_there_cannot_reload() {
    let home = tempfile::tempdir().unwrap();
    configure(home.path(), "");
    let output = super::command(home.path(), &["reload"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("there is no data folder"), "{said}");
}

/// After a reload, clients get the certificate that is in the file, without a restart.
#[test]
fn certificates_are_changed_by_a_reload() {
    let up = Up::new("");
    let tls = up.at[1];
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    let subject = || {
        let seen = Command::new("sh")
            .arg("-c")
            .arg(format!("openssl s_client -connect {tls} </dev/null 2>/dev/null | openssl x509 -noout -subject"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&seen.stdout).into_owned()
    };
    let before = subject();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=renewed.example", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&chain)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = |chain: &std::path::Path| {
        format!("certificate = {:?}\nkey = {:?}\n", chain.display().to_string(), key.display().to_string())
    };
    configure(up.home.path(), &text(&folder.path().join("none.pem")));
    up.weir(&["reload"]).refused(&["none.pem", "nothing has changed"]);
    assert_eq!(subject(), before);
    configure(up.home.path(), &text(&chain));
    up.weir(&["reload"]).ok();
    assert!(subject().contains("renewed.example") && !before.contains("renewed.example"), "{}", subject());
}
