//! End-to-end tests of the web gate: `weir up` serves its small backend, or a real nginx, and reports its state.

mod floods;
mod forward_auth;
mod http2_floods;
mod large;
mod observing;
mod owners;
mod recipes;
mod reload;
mod sharing;
mod signing_in;
mod tokens;
mod waiting;

use crate::harness::Run;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running `weir up` with a web gate on free ports.
struct Up {
    process: Child,
    home: tempfile::TempDir,
    /// The address of the plain listener, then that of the one with TLS.
    at: Vec<SocketAddr>,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Up {
    fn new(web: &str) -> Up {
        let home = tempfile::tempdir().unwrap();
        configure(home.path(), web);
        let (process, said) = spawn(home.path(), &["up", "--demo"]);
        let listeners = said.lines().filter_map(|line| line.trim().strip_prefix("web "));
        let at = listeners.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        Up { process, home, at }
    }

    fn weir(&self, args: &[&str]) -> Run {
        command(self.home.path(), args).output().unwrap().into()
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.at[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.home.path().join("data/control.sock")).unwrap();
        let request = "GET /api/v1/web/metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }
}

/// Writes a configuration. `web` is what `[web]` contains besides its listeners.
fn configure(home: &std::path::Path, web: &str) {
    // The ports for inbound mail and the console are set, because otherwise every demonstration that starts would use the same ones.
    let config = format!(
        "[console]\nlisten = [\"127.0.0.1:0\"]\n[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n[inbound]\nlisten = [\"127.0.0.1:0\"]\n\
         domains = [\"demo.test maildir\"]\nrecipients = \"any\"\n[web]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = \
         [\"127.0.0.1:0\"]\n{web}"
    );
    std::fs::write(home.join("weir.toml"), config).unwrap();
}

fn command(home: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let config = home.join("weir.toml");
    command.args(args).arg("--config").arg(config).arg("--data").arg(home.join("data")).stdin(Stdio::null());
    command
}

/// Starts `weir up`. Returns when it has printed everything.
fn spawn(home: &std::path::Path, args: &[&str]) -> (Child, String) {
    let mut process = command(home, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap());
    while !said.contains("Stop with Ctrl-C") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "weir up ended: {said}{}", stderr(&mut process));
    }
    (process, said)
}

fn stderr(process: &mut Child) -> String {
    let mut said = String::new();
    let _ = process.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
    said
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json(run: Run) -> Value {
    serde_json::from_str(&run.ok()).unwrap()
}

#[test]
fn the_built_in_backend_is_served_and_the_gate_says_how_it_is_doing() {
    let up = Up::new("");
    let said = up.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("web gate works"), "{said}");
    assert!(said.contains("set-cookie: weir="), "{said}");
    let said = up.ask("GET /slow?ms=30 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(said.ends_with("That took 30 ms.\n"), "{said}");

    let status = json(up.weir(&["web", "status", "--json"]));
    assert_eq!(status["responses"][1], 2);
    assert_eq!(status["backends"][0]["queue"]["backend"], "builtin");
    assert_eq!(status["backends"][0]["queue"]["counters"]["finished"], 2);
    assert_eq!(status["backends"][0]["servers"][0]["up"], true);
    let printed = up.weir(&["web", "status"]).ok();
    assert!(printed.contains("BACKEND") && printed.contains("builtin") && printed.contains("HTTPS"), "{printed}");

    let mut slow = TcpStream::connect(up.at[0]).unwrap();
    slow.write_all(b"GET /slow?ms=9000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begun = std::time::Instant::now();
    let sessions = loop {
        let sessions = json(up.weir(&["web", "sessions", "--json"]));
        if sessions[0]["running"] == 1 || begun.elapsed() > PATIENCE {
            break sessions;
        }
    };
    assert_eq!((&sessions[0]["client"], &sessions[0]["running"]), (&"127.0.0.1".into(), &1.into()), "{sessions}");
    let printed = up.weir(&["web", "sessions"]).ok();
    assert!(printed.contains("SESSION") && printed.contains("127.0.0.1"), "{printed}");
    let metrics = up.metrics();
    assert!(metrics.contains("weir_web_dispatched_total{backend=\"builtin\"} 3"), "{metrics}");
}

#[test]
fn curl_works_over_tls_and_http2_and_plain() {
    let up = Up::new("redirect_port = 443\n");
    let tls = up.at[1];
    let curl = |args: &[&str]| {
        let output = Command::new("curl").args(["-sk", "--max-time", "20"]).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let page = curl(&["-w", "%{http_version} %{http_code}", &format!("https://{tls}/")]);
    assert!(page.contains("web gate works") && page.ends_with("2 200"), "{page}");
    let said = curl(&["--http1.1", "-w", "%{http_version}", &format!("https://{tls}/echo")]);
    assert!(said.contains("x-forwarded-proto: https") && said.ends_with("1.1"), "{said}");
    let there = curl(&["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", &format!("http://{}/x", up.at[0])]);
    assert_eq!(there, "301 https://127.0.0.1/x");
}

#[test]
fn a_second_gate_on_the_same_port_is_refused() {
    let up = Up::new("");
    let home = tempfile::tempdir().unwrap();
    // Beside another gate this would only raise an alarm (tests/gates.rs); alone it ends the program.
    let config = format!(
        "[submission]\nenabled = false\n[web]\nlisten = [\"{}\"]\nbackends = [\"app 127.0.0.1:9\"]\n",
        up.at[0]
    );
    std::fs::write(home.path().join("weir.toml"), config).unwrap();
    let output = command(home.path(), &["up"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot listen on"), "{said}");
}

#[test]
fn without_a_running_gate_there_is_nothing_to_ask() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("weir.toml"), "").unwrap();
    std::fs::create_dir(home.path().join("data")).unwrap();
    let output = command(home.path(), &["web", "status"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && !said.contains("panicked"), "{said}");
}

#[test]
fn wrong_settings_are_refused_with_their_place() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("weir.toml");
    let text = "[web]\nbackends = [\"app\"]\nroutes = [\"* nowhere\"]\nslots = \"many\"\n[web.limits]\nheader = \"0s\"\n[web.identity]\n\
                groups = [\"g 1.2.3.4/40\"]\n";
    std::fs::write(&file, text).unwrap();
    let args = ["check", "--config", file.to_str().unwrap()];
    crate::harness::weir(&args).refused(&["web.backends", "web.slots", "web.limits.header", "web.identity.groups"]);
}

/// A key can be changed without losing sessions: the same id comes back, signed with the new key.
#[test]
fn cookies_of_the_previous_key_are_still_good() {
    use std::os::unix::fs::PermissionsExt;
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, format!("the key that is called {name}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        format!("{:?}", path.display().to_string())
    };
    let (secret, old, new) = (key("secret"), key("old"), key("new"));
    let identity = format!("[web.identity]\nsecret_file = {secret}\n");
    let offered = |up: &Up, cookie: &str| {
        let said = up.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{cookie}Connection: close\r\n\r\n"));
        let (_, rest) = said.split_once("set-cookie: weir=").unwrap_or_else(|| panic!("none is offered: {said}"));
        rest.split(';').next().unwrap().to_owned()
    };
    let first = offered(&Up::new(&format!("{identity}cookie_key_file = {old}\n")), "");
    let brought = format!("Cookie: weir={first}\r\n");
    let turned = format!("{identity}cookie_key_file = {new}\nprevious_cookie_key_file = {old}\n");
    let renewed = offered(&Up::new(&turned), &brought);
    let id = |cookie: &str| cookie[7..17].to_owned();
    assert!(id(&renewed) == id(&first) && renewed != first, "{first} became {renewed}");
    let other = offered(&Up::new(&format!("{identity}cookie_key_file = {new}\n")), &brought);
    assert_ne!(id(&other), id(&first), "without the previous key it is nobody's");
}

/// A real, unmodified server behind the gate.
#[test]
fn nginx_is_served_through_the_gate() {
    let home = tempfile::tempdir().unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(home.path().join("page.html"), "a page of nginx").unwrap();
    let port = weir_peers::free_port();
    let root = home.path().display();
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{}} http {{ access_log off; client_body_temp_path t1; proxy_temp_path \
         t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; server {{ listen 127.0.0.1:{port}; root {root}; location = /ip {{ \
         return 200 $http_x_forwarded_for; }} }} }}"
    );
    std::fs::write(home.path().join("nginx.conf"), config).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(home.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
    let Ok(mut nginx) = nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        panic!("nginx is needed: run `make setup`");
    };
    let begun = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "nginx does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = home.path().join("access.log");
    let up = Up::new(&format!(
        "backends = [\"app 127.0.0.1:{port} slots=2 health=/page.html\"]\nroutes = [\"www.example app\"]\naccess_log = {:?}\n",
        log.display().to_string()
    ));
    let ask =
        |host: &str, path: &str| up.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert!(ask("www.example", "/page.html").ends_with("a page of nginx"));
    assert!(ask("www.example", "/ip").ends_with("127.0.0.1"));
    assert!(ask("www.example", "/none").starts_with("HTTP/1.1 404"));
    assert!(ask("other.example", "/").starts_with("HTTP/1.1 404"));
    let _ = nginx.kill();
    let _ = nginx.wait();
    assert!(ask("www.example", "/page.html").starts_with("HTTP/1.1 502"));
    let begun = std::time::Instant::now();
    let mut lines = String::new();
    while lines.lines().count() < 5 && begun.elapsed() < PATIENCE {
        lines = std::fs::read_to_string(&log).unwrap_or_default();
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each thread of the gate writes by itself, so the order is not that of the requests.
    let served =
        |line: &str| line.starts_with("127.0.0.1 - - [") && line.contains("\"GET /page.html HTTP/1.1\" 200 15 ");
    assert!(lines.lines().count() >= 5 && lines.lines().any(served), "{lines}");
}
