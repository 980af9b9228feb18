//! Tests of `weir quickstart` and `weir doctor`, as somebody runs them who has just installed Weir.

use crate::harness::{Run, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_peers::{Pebble, PebbleMood, free_port};

const PATIENCE: Duration = Duration::from_secs(240);

/// Each kind with the answers to all its questions, so that a machine without a terminal gets a configuration.
const KINDS: [&[&str]; 4] = [
    &["web", "--host", "www.site.test", "--backend", "127.0.0.1:8080", "--agree", "--contact", "you@site.test"],
    &["relay", "--host", "mail.site.test", "--admin", "you@site.test", "--next", "127.0.0.1:25", "--agree"],
    &["mx", "--host", "mx.site.test", "--domain", "site.test", "--to", "127.0.0.1:2525", "--self-signed"],
    &["lab"],
];

fn quickstart(home: &Path, args: &[&str], more: &[&str]) -> Run {
    let (config, data) = (home.join("weir.toml"), home.join("data"));
    let place = ["--config", config.to_str().unwrap(), "--data", data.to_str().unwrap()];
    weir(&[&["quickstart"], args, &place, more].concat())
}

#[test]
fn every_kind_writes_a_configuration_that_is_valid_and_explained() {
    for kind in KINDS {
        let home = tempfile::tempdir().unwrap();
        let said = quickstart(home.path(), kind, &["--no-start"]).ok();
        assert!(said.contains("Wrote ") && said.contains("What to do next:"), "{said}");
        let file = home.path().join("weir.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Written by `weir quickstart "), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('#')).count() > 2, "{text}");
        assert!(text.contains(&format!("\nfolder = {:?}\n", home.path().join("data"))), "{text}");
        weir(&["check", "--config", file.to_str().unwrap()]).ok();
        let printed = quickstart(home.path(), kind, &["--print"]).ok();
        assert_eq!(printed, text, "the same machine, the same answers, the same text");
    }
}

#[test]
fn a_configuration_that_is_there_is_not_lost() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("weir.toml");
    let lab = &["lab"][..];
    fs::write(&file, "[throttle]\nstop_at = 7\n").unwrap();
    quickstart(home.path(), lab, &["--no-start"]).refused(&["has settings", "--replace"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "[throttle]\nstop_at = 7\n");
    let said = quickstart(home.path(), lab, &["--no-start", "--replace"]).ok();
    assert!(said.contains("weir.toml.before"), "{said}");
    assert_eq!(fs::read_to_string(home.path().join("weir.toml.before")).unwrap(), "[throttle]\nstop_at = 7\n");

    // The configuration of the package contains no settings. It is replaced, and a copy is kept.
    fs::write(&file, "# only a comment\n\n").unwrap();
    quickstart(home.path(), lab, &["--no-start"]).ok();
    assert_eq!(fs::read_to_string(home.path().join("weir.toml.before-2")).unwrap(), "# only a comment\n\n");
}

#[test]
fn what_cannot_be_seen_must_be_said_and_nonsense_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        quickstart(home.path(), args, &["--no-start"]).refused(words);
        assert!(!home.path().join("weir.toml").exists());
    };
    refused(&["mx", "--host", "mx.site.test", "--domain", "site.test", "--self-signed", "--to", ""], &["not a server"]);
    refused(&["web", "--host", "a b", "--backend", "127.0.0.1:1"], &["is not a host name"]);
    refused(&["web", "--host", "x\"]\nevil = [\"", "--backend", "127.0.0.1:1"], &["is not a host name"]);
    refused(&["web", "--host", "a.test", "--backend", "x\"] evil"], &["is not a server"]);
    refused(&["relay", "--host", "a.test", "--admin", "nobody"], &["is not a mail address"]);
}

#[test]
fn a_port_that_somebody_has_is_named_with_what_to_do() {
    let (taken, home) = (TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let port = taken.local_addr().unwrap().port().to_string();
    let args = ["web", "--host", "a.test", "--backend", "127.0.0.1:8080", "--http-port", &port, "--start"];
    let said = quickstart(home.path(), &args, &[]).ok();
    assert!(said.contains(&format!("Weir needs port {port}")) && said.contains("free the ports"), "{said}");
    assert!(!home.path().join("data").exists(), "nothing was started");
}

/// A Weir that quickstart has started, and what was printed.
struct Foreground(Child, String);

impl Foreground {
    fn start(home: &Path, args: &[&str]) -> Foreground {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("quickstart").args(args).arg("--start");
        command.arg("--config").arg(home.join("weir.toml")).arg("--data").arg(home.join("data"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut said, mut lines) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        while !said.contains("weir doctor") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "quickstart ended: {said}");
        }
        Foreground(child, said)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        for child in crate::harness::children(self.0.id()) {
            let _ = Command::new("kill").arg(child.to_string()).status();
        }
        let _ = self.0.wait();
    }
}

/// A site with one page.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nour page.\n");
        }
    });
    at
}

#[test]
fn from_nothing_to_a_page_over_https_with_a_certificate() {
    let (pebble, home) = (Pebble::new(), tempfile::tempdir().unwrap());
    let (http, https) = (free_port(), free_port());
    pebble.start(&PebbleMood { http_port: http, ..PebbleMood::default() });
    let (http, https) = (http.to_string(), https.to_string());
    let (directory, ca, backend) = (pebble.directory(), pebble.ca_file(), site());
    let args = ["web", "--host", "www.site.test", "--backend", &backend, "--http-port", &http, "--https-port", &https];
    let authority = ["--agree", "--authority", &directory, "--authority-ca", ca.to_str().unwrap()];
    let running = Foreground::start(home.path(), &[&args[..], &authority].concat());
    let said = &running.1;
    assert!(said.contains("The certificate is here."), "{said}");
    assert!(said.contains("Tried http://www.site.test: HTTP/1.1 30"), "{said}");
    assert!(said.contains("Tried https://www.site.test: HTTP/1.1 200 OK"), "{said}");

    let data = home.path().join("data");
    // The configuration names the data folder, so the command need not. The page is served before the console is up; on a slow machine, a
    // good while before.
    let config = home.path().join("weir.toml");
    let ready = || weir(&["ready", "--config", config.to_str().unwrap()]);
    let begun = Instant::now();
    while ready().code != Some(0) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(200));
    }
    ready().ok();
    let doctor = |more: &[&str]| {
        let config = home.path().join("weir.toml");
        let args = ["doctor", "--config", config.to_str().unwrap(), "--data", data.to_str().unwrap()];
        weir(&[&args, more].concat())
    };
    // Only pebble's name server knows www.site.test.
    let healthy = doctor(&[]).ok();
    assert!(healthy.contains("SOON") && healthy.contains("www.site.test is not in the DNS"), "{healthy}");
    drop(running);
    let begun = Instant::now();
    let ill = loop {
        let ill = doctor(&["--json"]);
        if ill.code == Some(1) || begun.elapsed() > PATIENCE {
            break ill;
        }
    };
    let findings: Value = serde_json::from_str(&ill.stdout).unwrap();
    assert_eq!(findings[0]["grade"], "broken", "the gravest first: {findings}");
    assert!(findings[0]["what"].as_str().unwrap().contains("is not running"), "{findings}");
    assert!(findings[0]["next"].as_str().unwrap().contains("weir"), "{findings}");
}

#[test]
fn the_doctor_finds_a_broken_configuration_and_servers_that_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let (file, data) = (home.path().join("weir.toml"), home.path().join("data"));
    let doctor = || weir(&["doctor", "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    fs::write(&file, "[web]\nlisten = 3\n").unwrap();
    let said = doctor();
    assert!(said.code == Some(1) && said.stdout.contains("BROKEN") && said.stdout.contains("web.listen"), "{said:?}");
    let gone = free_port();
    fs::write(&file, format!("[web]\nbackends = [\"app 127.0.0.1:{gone}\"]\n")).unwrap();
    let said = doctor().stdout;
    assert!(said.contains(&format!("the web server at 127.0.0.1:{gone} cannot be reached")), "{said}");
    assert!(said.find("BROKEN").unwrap() < said.find("SOON").unwrap(), "{said}");
}

#[test]
fn the_doctor_tries_the_next_servers_of_domains() {
    let home = tempfile::tempdir().unwrap();
    let (file, data) = (home.path().join("weir.toml"), home.path().join("data"));
    let (here, gone, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), free_port(), free_port());
    let here = here.local_addr().unwrap().port();
    let text = format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\nrecipients = \"any\"\n\
         domains = [\"a.test smtp:127.0.0.1:{here}\", \"b.test smtp:127.0.0.1:{gone}\", \"c.test smtp:127.0.0.1:{gone}\"]\n\
         [delivery]\nroutes = [\"d.test lmtp:127.0.0.1:{other}\", \"e.test lmtp:unix:/nowhere/lmtp\"]\n"
    );
    fs::write(&file, text).unwrap();
    let said = weir(&["doctor", "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]).stdout;
    let away = |who: &str, at: &str, key: &str| {
        let what = format!("the next server for {who} at {at} cannot be reached: ");
        assert!(said.contains(&what) && said.contains(&format!("start it, or correct {key}")), "{who}: {said}");
    };
    away("b.test", &format!("127.0.0.1:{gone}"), "inbound.domains");
    away("d.test", &format!("127.0.0.1:{other}"), "delivery.routes");
    away("e.test", "unix:/nowhere/lmtp", "delivery.routes");
    assert!(!said.contains("for a.test") && !said.contains("for c.test"), "one answers, one was named already: {said}");
}

#[test]
fn the_program_says_how_it_was_built() {
    let said = weir(&["version"]).ok();
    assert!(
        said.starts_with(&format!("weir {}\n", env!("CARGO_PKG_VERSION"))) && said.contains("data folder"),
        "{said}"
    );
    let facts: Value = serde_json::from_str(&weir(&["version", "--json"]).ok()).unwrap();
    assert_eq!(facts["architecture"], std::env::consts::ARCH);
}
