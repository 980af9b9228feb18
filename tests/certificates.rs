//! Tests of obtaining certificates from a real authority: Debian's pebble, with the faults that it makes on demand.

use crate::harness::{Run, weir};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_peers::{Pebble, PebbleMood, Postgres};

/// A machine may be slow, and an authority may have to be asked several times.
const PATIENCE: Duration = Duration::from_secs(240);

/// A running Weir with a web gate, and a mail gate if the test needs one.
struct Site {
    home: tempfile::TempDir,
    process: Child,
    /// The address for plain HTTP, then the one for HTTPS.
    web: Vec<SocketAddr>,
    smtp: Option<SocketAddr>,
}

impl Site {
    fn start(certificates: &str, more: &str) -> Site {
        Site::start_in(tempfile::tempdir().unwrap(), certificates, more)
    }

    fn start_in(home: tempfile::TempDir, certificates: &str, more: &str) -> Site {
        let config = format!(
            "[console]\nlisten = [\"127.0.0.1:0\"]\n[web]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n\
             redirect_port = 443\nbackends = [\"app 127.0.0.1:9\"]\n[certificates]\naccept_terms = true\n{certificates}\n{more}"
        );
        fs::write(home.path().join("weir.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .arg("up")
            .arg("--config")
            .arg(home.path().join("weir.toml"))
            .arg("--data")
            .arg(home.path().join("data"));
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut said, mut lines) = (String::new(), BufReader::new(process.stdout.take().unwrap()));
        while !said.contains("Stop with Ctrl-C") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "weir up ended: {said}");
        }
        let of = |name: &str| {
            let lines = said.lines().filter(|line| line.split_whitespace().next() == Some(name));
            let at = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
            at.collect::<Vec<SocketAddr>>()
        };
        let (web, smtp) = (of("web"), of("submission").first().copied());
        Site { home, process, web, smtp }
    }

    fn weir(&self, args: &[&str]) -> Run {
        let data = self.home.path().join("data");
        let mut all = args.to_vec();
        all.extend(["--data", data.to_str().unwrap()]);
        weir(&all)
    }

    /// The certificate that a client gets if it asks for this name: serial number, issuer and names.
    fn shown(&self, name: &str) -> String {
        shown(&format!("-connect {} -servername {name}", self.web[1]))
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.home.path().join("data/tls/acme").join(name)
    }

    fn stop(mut self) -> tempfile::TempDir {
        let _ = self.process.kill();
        let _ = self.process.wait();
        std::mem::replace(&mut self.home, tempfile::tempdir().unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn shown(options: &str) -> String {
    let look = "openssl x509 -noout -serial -issuer -ext subjectAltName 2>&1";
    let script = format!("openssl s_client {options} </dev/null 2>/dev/null | {look}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn wait_for(what: &str, mut seen: impl FnMut() -> String, wanted: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let now = seen();
        if wanted(&now) {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {now}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn is_from_pebble(shown: &str) -> bool {
    shown.contains("Pebble Intermediate CA")
}

fn section(pebble: &Pebble, names: &str, more: &str) -> String {
    let (directory, ca) = (pebble.directory(), pebble.ca_file());
    format!("names = [{names}]\ndirectory = \"{directory}\"\nca_file = {ca:?}\n{more}")
}

/// The authority refuses good nonces and is slow, its certificates are valid only for seconds, it dies, and it comes back without knowing
/// our account.
#[test]
fn a_site_gets_a_certificate_and_renews_it_whatever_the_authority_does() {
    let pebble = Pebble::new();
    let site = Site::start(&section(&pebble, "\"www.site.test\"", ""), "");
    let before = site.shown("www.site.test");
    assert!(before.contains("serial=") && !is_from_pebble(&before), "one of our own until then: {before}");
    let mood =
        PebbleMood { http_port: site.web[0].port(), valid_s: 24, bad_nonces: 10, sleep_s: 1, ..PebbleMood::default() };
    pebble.start(&mood);
    let first = wait_for("a certificate", || site.shown("www.site.test"), is_from_pebble);
    assert!(first.contains("DNS:www.site.test"), "{first}");
    let other = site.shown("other.test");
    assert!(!is_from_pebble(&other) && !other.contains("other.test"), "nobody asked for this name: {other}");
    for file in ["account.json", "www.site.test.pem"] {
        assert_eq!(fs::metadata(site.kept(file)).unwrap().mode() & 0o777, 0o600, "{file}");
    }
    wait_for("a renewal", || site.shown("www.site.test"), |now| is_from_pebble(now) && now != first);

    pebble.stop();
    let failing = |now: &str| now.contains("the last attempt failed");
    let status = wait_for("the failure", || site.weir(&["status"]).stdout, failing);
    assert!(status.contains("certificate  www.site.test:"), "{status}");
    // On a slow machine this may be a third certificate, which came while the authority was stopping.
    let last = site.shown("www.site.test");
    assert!(is_from_pebble(&last) && last != first, "the last one stays, even if it has run out: {last}");

    // A pebble that is started again has other roots, and no account of ours.
    pebble.start(&PebbleMood { valid_s: 0, ..mood });
    let third = wait_for("another", || site.shown("www.site.test"), |now| is_from_pebble(now) && now != last);
    assert!(third.contains("DNS:www.site.test"), "{third}");
    wait_for("no more failure", || site.weir(&["status"]).stdout, |now| !failing(now));
}

#[test]
fn mail_shows_the_certificate_that_was_proved_at_the_https_port_also_after_a_restart() {
    let pebble = Pebble::new();
    let certificates = section(&pebble, "\"mail.site.test\"", "challenge = \"tls-alpn-01\"");
    let mail = "[submission]\nhostname = \"mail.site.test\"\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n";
    let site = Site::start(&certificates, mail);
    pebble.start(&PebbleMood { tls_port: site.web[1].port(), ..PebbleMood::default() });
    let smtp = |site: &Site| shown(&format!("-connect {} -starttls smtp -noservername", site.smtp.unwrap()));
    let first = wait_for("a certificate", || smtp(&site), is_from_pebble);
    assert!(first.contains("DNS:mail.site.test"), "{first}");
    assert_eq!(site.shown("mail.site.test"), first, "the web gate has the same");

    // A stranger that offers the authority's protocol gets no certificate.
    let stranger = format!("-connect {} -servername mail.site.test -alpn acme-tls/1", site.web[1]);
    assert!(!shown(&stranger).contains("serial="));

    pebble.stop();
    let again = Site::start_in(site.stop(), &certificates, mail);
    assert_eq!(smtp(&again), first);
}

#[test]
fn a_hook_proves_a_wildcard_with_a_dns_record() {
    let pebble = Pebble::new();
    let (_, management) = pebble.name_server();
    let folder = tempfile::tempdir().unwrap();
    let hook = folder.path().join("hook");
    let script = format!(
        "#!/bin/sh\necho \"$1 $2\" >> {}/calls\n[ \"$1\" = set ] || exit 0\n\
         exec curl -sf -d '{{\"host\": \"'\"$2\"'.\", \"value\": \"'\"$3\"'\"}}' http://127.0.0.1:{management}/set-txt\n",
        folder.path().display()
    );
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let more = format!("challenge = \"dns-01\"\nhook = {hook:?}\nhook_wait = \"0s\"");
    let site = Site::start(&section(&pebble, "\"*.site.test\"", &more), "");
    pebble.start(&PebbleMood::default());
    let got = wait_for("a certificate", || site.shown("any.site.test"), is_from_pebble);
    assert!(got.contains("DNS:*.site.test"), "{got}");
    assert!(!is_from_pebble(&site.shown("site.test")) && !is_from_pebble(&site.shown("a.b.site.test")));
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    assert!(calls.contains("set _acme-challenge.site.test") && calls.contains("unset _acme-challenge.site.test"));
}

/// The authority asks the machine that did not request anything.
#[test]
fn of_two_machines_with_the_same_records_one_asks_and_both_answer_and_serve() {
    let pebble = Pebble::new();
    let records = format!("[store]\nrecords = \"{}\"\n", Postgres::shared().database());
    let certificates = section(&pebble, "\"www.site.test\"", "");
    let first = Site::start(&certificates, &records);
    // The first machine must hold the lease and have tried once before there is a second one.
    wait_for("an attempt", || first.weir(&["status"]).stdout, |now| now.contains("no certificate for www.site.test"));
    let second = Site::start(&certificates, &records);
    pebble.start(&PebbleMood { http_port: second.web[0].port(), ..PebbleMood::default() });
    let got = wait_for("a certificate", || first.shown("www.site.test"), is_from_pebble);
    wait_for("the same", || second.shown("www.site.test"), |now| now == got);
    assert!(second.kept("www.site.test.pem").exists() && !second.kept("account.json").exists());
}

#[test]
fn a_configuration_with_which_nobody_could_answer_the_authority_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let file = folder.path().join("weir.toml");
        fs::write(&file, text).unwrap();
        weir(&["check", "--config", file.to_str().unwrap()])
    };
    let names = "[certificates]\nnames = [\"www.site.test\"]\n";
    check(names).refused(&["accept_terms", "nobody would answer the authority"]);
    let agreed = format!("{names}accept_terms = true\n");
    check(&agreed).refused(&["certificates.listen"]);
    check(&format!("{agreed}listen = [\"0.0.0.0:80\"]\n")).ok();
    check(&format!("{agreed}challenge = \"tls-alpn-01\"\n")).refused(&["web.listen_tls"]);
    check(&format!("{agreed}challenge = \"dns-01\"\n")).refused(&["hook"]);
    check(&agreed.replace("www.site", "*")).refused(&["can only be proved with"]);
    check(&format!("{agreed}listen = [\"0.0.0.0:80\"]\ndirectory = \"http://ca.test/\"\n")).refused(&["directory"]);
}
