//! Tests that a restart refuses nobody: sockets are handed to the next program, come from systemd, and are kept by systemd.

use crate::control::gate::{Client, PATIENCE, Site, Up, wait_for};
use crate::harness::weir;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_peers::free_port;

/// When the mail gate came up, in seconds since the Unix epoch.
fn up_since(site: &Site) -> Option<u64> {
    let answer = site.weir(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&answer.stdout).ok()?;
    let gates = status["gates"].as_array()?;
    let mail = gates.iter().find(|gate| gate["gate"] == "mail" && gate["state"] == "up")?;
    mail["since_unix_s"].as_u64()
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs()
}

/// What the clients observed.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    accepted: AtomicUsize,
    answered: AtomicUsize,
    refused: AtomicUsize,
    unanswered: AtomicUsize,
    /// The longest time that a client waited for a page, or from connecting until a mail was accepted, in milliseconds.
    longest_page_ms: AtomicU64,
    longest_mail_ms: AtomicU64,
}

impl Seen {
    fn count(&self, of: &AtomicUsize) {
        of.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends mail after mail, each over a new connection. The answers 421 and 4xx do not count as refusals: they ask the client to come
    /// again.
    fn send_mail(&self, address: &str, password: &str) {
        let mut begun = Instant::now();
        while !self.over.load(Ordering::Relaxed) {
            if TcpStream::connect(address).is_err() {
                self.count(&self.refused);
            }
            let Some(mut client) = Client::login_now(address, "demo", password) else { continue };
            if client.mail("demo@localhost", &["ann@localhost"], "x").starts_with("250") {
                self.count(&self.accepted);
                waited(&self.longest_mail_ms, std::mem::replace(&mut begun, Instant::now()));
            }
        }
    }

    /// Fetches page after page, each over a new connection. If a connection is closed without a single octet, it is opened once more, as
    /// every HTTP client does (RFC 9112, section 9.3.1). This may happen to a client that connects exactly when the gate stops.
    fn ask(&self, address: &str) {
        while !self.over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match self.page(address) {
                Some(said) if said.starts_with("HTTP/1.1 200") => self.count(&self.answered),
                Some(said) if said.is_empty() && self.page(address).is_some_and(|said| said.contains(" 200 ")) => {
                    self.count(&self.answered);
                }
                Some(_) => self.count(&self.unanswered),
                None => self.count(&self.refused),
            }
            waited(&self.longest_page_ms, begun);
        }
    }

    /// The answer; none if the connection was refused.
    fn page(&self, address: &str) -> Option<String> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut said = String::new();
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = sent.and_then(|()| stream.read_to_string(&mut said));
        Some(said)
    }

    fn numbers(&self) -> [usize; 4] {
        [&self.accepted, &self.answered, &self.refused, &self.unanswered].map(|number| number.load(Ordering::Relaxed))
    }
}

fn waited(longest_ms: &AtomicU64, since: Instant) {
    longest_ms.fetch_max(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Ends the load when it is dropped, so also if the test fails.
struct Over<'a>(&'a Seen);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// A server behind the web gate that keeps running when the gate restarts.
fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

/// A site that accepts mail and serves pages.
fn mail_and_pages() -> Site {
    Site::only(&format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n[delivery]\nretry = [\"200ms\"]\n\
         [web]\nlisten = [\"127.0.0.1:0\"]\nbackends = [\"app {}\"]\n[console]\nlisten = [\"127.0.0.1:0\"]\n",
        backend()
    ))
}

#[test]
fn a_restart_under_load_refuses_nobody_and_loses_nothing() {
    let site = mail_and_pages();
    let up = site.up();
    let (mail, web, password) = (up.plain.clone(), up.listener("web"), up.password());
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _over = Over(&seen);
        for _ in 0..3 {
            scope.spawn(|| seen.send_mail(&mail, &password));
            scope.spawn(|| seen.ask(&web));
        }
        for restart in 0..3 {
            let [accepted, answered, ..] = seen.numbers();
            wait_for("load", || {
                let [more_mail, more_pages, ..] = seen.numbers();
                (more_mail > accepted + 5 && more_pages > answered + 20).then_some(())
            });
            let before = up_since(&site).expect("it is up");
            // Times are given in seconds, and a restart may take less.
            wait_for("the next second", || (unix_s() > before).then_some(()));
            // There are two ways to request a restart; both are used.
            if restart == 0 {
                up.signal("USR2");
            } else {
                assert!(site.weir(&["restart"]).ok().contains("Restarting"));
            }
            wait_for("the next program", || up_since(&site).filter(|since| *since > before));
        }
    });
    let [accepted, answered, refused, unanswered] = seen.numbers();
    assert!(accepted > 15 && answered > 60);
    assert_eq!((refused, unanswered), (0, 0), "{accepted} mails and {answered} pages were served");
    assert_eq!(site.arrived("ann@localhost", accepted).len(), accepted, "each exactly once");
}

/// A door at a Unix socket: programs that connect while the gate or the program restarts wait a moment, and are not refused.
#[test]
fn a_door_at_a_path_refuses_nobody_during_a_reload_and_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a policy");
    let door = format!("[policy_service]\nlisten_unix = {path:?}\n[notices]\nsilent = true\n");
    let site = Site::new(&door);
    let _up = site.up();
    let (over, asked, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = || {
        let mut client = UnixStream::connect(&path)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(b"request=smtpd_access_policy\nprotocol_state=RCPT\nrecipient=ann@localhost\n\n")?;
        let mut answer = [0; 7];
        client.read_exact(&mut answer).map(|()| answer == *b"action=")
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                match ask() {
                    Err(error)
                        if error.kind() == ErrorKind::ConnectionRefused || error.kind() == ErrorKind::NotFound =>
                    {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // A request that was being served when the program ended is sent again.
                    Err(_) => (),
                    Ok(answered) => {
                        assert!(answered);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let more = |what: &str| {
            let before = asked.load(Ordering::Relaxed);
            wait_for(what, || (asked.load(Ordering::Relaxed) > before + 20).then_some(()));
        };
        more("answers");
        for _ in 0..2 {
            let before = up_since(&site).expect("it is up");
            wait_for("the next second", || (unix_s() > before).then_some(()));
            site.weir(&["restart"]).ok();
            wait_for("the next program", || up_since(&site).filter(|since| *since > before));
            more("answers of the next program");
        }
        let text = fs::read_to_string(site.home().join("weir.toml")).expect("the configuration");
        fs::write(site.home().join("weir.toml"), text.replace("[policy_service]", "[policy_service]\nconnections = 7"))
            .expect("a new one");
        site.weir(&["reload"]).ok();
        more("answers after the reload");
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of {} answered", asked.load(Ordering::Relaxed));
}

/// As docs/upgrade.md describes it. `WEIR_PREVIOUS` names a program built from an older commit (tools/soak builds one); without it, a copy
/// of this program is used.
#[test]
fn a_new_program_takes_the_place_of_the_running_one_under_load() {
    let site = mail_and_pages();
    let new = std::env::var_os("WEIR_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
    let previous = std::env::var_os("WEIR_PREVIOUS").unwrap_or_else(|| new.clone());
    let installed = site.home().join("weir");
    fs::copy(previous, &installed).expect("the previous program");
    let mut command = Command::new(&installed);
    command.args(site.command(&["up", "--demo-user"]).get_args());
    let up = Site::start(command);
    let running = || fs::metadata(format!("/proc/{}/exe", up.pid())).map(|file| file.ino()).expect("it runs");
    let before = running();
    let (mail, web, password) = (up.plain.clone(), up.listener("web"), up.password());
    let seen = Seen::default();
    let more = |mails: usize, pages: usize| {
        let [mail, page, ..] = seen.numbers();
        wait_for("load", || {
            let [more_mail, more_pages, ..] = seen.numbers();
            (more_mail > mail + mails && more_pages > page + pages).then_some(())
        });
    };
    std::thread::scope(|scope| {
        let _over = Over(&seen);
        for _ in 0..3 {
            scope.spawn(|| seen.send_mail(&mail, &password));
            scope.spawn(|| seen.ask(&web));
        }
        more(5, 20);
        let beside = site.home().join("weir.new");
        fs::copy(&new, &beside).and_then(|_| fs::rename(&beside, &installed)).expect("the new program is installed");
        assert!(site.weir(&["restart"]).ok().contains("Restarting"));
        let installed = fs::metadata(&installed).expect("it is there").ino();
        wait_for("the new program", || (running() == installed && up_since(&site).is_some()).then_some(()));
        assert_ne!(before, installed);
        more(5, 20);
    });
    let [accepted, answered, refused, unanswered] = seen.numbers();
    let [page, mail] = [&seen.longest_page_ms, &seen.longest_mail_ms].map(|longest| longest.load(Ordering::Relaxed));
    eprintln!(
        "upgrade: {accepted} mails, {answered} pages; the longest wait for a page {page} ms, between two mails of a client {mail} ms"
    );
    assert_eq!((refused, unanswered), (0, 0), "{accepted} mails and {answered} pages were served");
    assert_eq!(site.arrived("ann@localhost", accepted).len(), accepted, "each exactly once");
}

#[test]
fn a_configuration_with_a_problem_keeps_the_old_program_running() {
    let site = Site::new("");
    let up = site.up();
    let config = site.home().join("weir.toml");
    let text = fs::read_to_string(&config).expect("its configuration");
    fs::write(&config, format!("{text}[nonsense]\n")).expect("a file");
    let before = up_since(&site);
    site.weir(&["restart"]).refused(&["nonsense", "nothing has changed"]);
    fs::write(&config, text).expect("a file");
    assert!(before.is_some() && up_since(&site) == before);
    TcpStream::connect(&up.plain).expect("it serves");
}

#[test]
fn a_restart_that_could_not_succeed_keeps_the_old_program_running() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let site = Site::new("");
    let up = site.up();
    let config = site.home().join("weir.toml");
    let text = fs::read_to_string(&config).expect("its configuration");
    let before = up_since(&site);
    let other = site.home().join("missing.pem").display().to_string();
    let missing = format!("[submission]\ncertificate = \"{other}\"\nkey = \"{other}\"");
    fs::write(&config, text.replacen("[submission]", &missing, 1)).expect("a file");
    let checked = weir(&["check", "--config", config.to_str().expect("a path")]).ok();
    assert!(checked.contains("missing.pem"), "{checked}");
    site.weir(&["restart"]).refused(&["missing.pem", "nothing has changed"]);
    fs::write(
        &config,
        format!("{text}[inbound]\nlisten = [\"{taken}\"]\ndomains = [\"a.example\"]\nrecipients = \"any\"\n"),
    )
    .expect("a file");
    site.weir(&["restart"]).refused(&[&taken.to_string(), "nothing has changed"]);
    fs::write(&config, text).expect("a file");
    assert!(before.is_some() && up_since(&site) == before);
    TcpStream::connect(&up.plain).expect("it serves");
}

/// Listens as the recipes do: `listen = ["0.0.0.0:25", "[::]:25"]`.
#[test]
fn listeners_of_both_versions_of_ip_are_there_after_a_reload_and_a_restart() {
    if TcpListener::bind("[::]:0").is_err() {
        return;
    }
    let ports = [free_port(), free_port()];
    let both = |port: u16| format!("listen = [\"0.0.0.0:{port}\", \"[::]:{port}\"]");
    let site = Site::only(&format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\nhostname = \"mail.example\"\n\
         [inbound]\n{}\ndomains = [\"a.example\"]\nrecipients = \"any\"\n[web]\n{}\nbackends = [\"app {}\"]\n[console]\nlisten = [\"127.0.0.1:0\"]\n",
        both(ports[0]),
        both(ports[1]),
        backend()
    ));
    let up = site.up();
    let greets = |when: &str| {
        for ip in ["127.0.0.1", "[::1]"] {
            let mut client = Client::greeted(&format!("{ip}:{}", ports[0]));
            assert!(client.say("NOOP").starts_with("250"), "{ip} {when}");
            for port in &ports[1..] {
                TcpStream::connect(format!("{ip}:{port}"))
                    .unwrap_or_else(|error| panic!("{ip}:{port} {when}: {error}"));
            }
        }
    };
    greets("at first");
    let config = site.home().join("weir.toml");
    let text = fs::read_to_string(&config).expect("its configuration");
    fs::write(&config, format!("{text}[throttle]\nmax_slack = 50\n")).expect("a file");
    let said = site.weir(&["reload"]).ok();
    assert!(said.contains("mail gate    restarted"), "{said}");
    greets("after a reload");
    for _ in 0..2 {
        let before = up_since(&site).expect("it is up");
        // The time is given in whole seconds.
        wait_for("the next second", || (unix_s() > before).then_some(()));
        assert!(site.weir(&["restart"]).ok().contains("Restarting"));
        wait_for("the next program", || up_since(&site).filter(|since| *since > before));
        greets("after a restart");
    }
    drop(up);
}

#[test]
fn a_reload_that_the_mail_gate_refuses_is_no_success_and_status_says_so() {
    let site = Site::new("");
    let up = site.up();
    let config = site.home().join("weir.toml");
    let text = fs::read_to_string(&config).expect("its configuration");
    let password = site.home().join("password");
    fs::write(&password, "").expect("a file");
    let login = format!(
        "[delivery]\nway = \"smarthost\"\nhosts = [\"127.0.0.1:1\"]\nlogin = \"weir\"\npassword_file = \"{}\"",
        password.display()
    );
    let mail = |site: &Site| {
        let status = site.status();
        let parts = status["health"]["parts"].as_array().expect("parts").clone();
        let mail = parts.into_iter().find(|part| part["part"] == "mail").expect("a line");
        (mail["verdict"].clone(), mail["says"].as_str().expect("words").to_owned())
    };
    let (verdict, _) = mail(&site);
    assert_eq!(verdict, "well");
    fs::write(&config, text.replacen("[delivery]", &login, 1)).expect("a file");
    site.weir(&["reload"]).refused(&["did not accept the new settings", "hint"]);
    let (verdict, says) = mail(&site);
    assert!(verdict == "look" && says.contains("older settings than those in the file"), "{verdict} {says}");
    assert!(site.weir(&["status"]).code == Some(3));
    assert!(Client::login(&up.plain, "demo", &up.password()).is_ok(), "it serves as before");
    fs::write(&config, text).expect("a file");
    site.weir(&["reload"]).ok();
    assert_eq!(mail(&site).0, "well");
}

/// A tool of systemd opens the sockets and passes them.
#[test]
fn sockets_of_systemd_are_used() {
    let ports = [free_port(), free_port(), free_port()];
    let [mail, web, console] = ports.map(|port| format!("127.0.0.1:{port}"));
    let site = Site::only(&format!(
        "[submission]\nlisten = [\"{mail}\"]\nlisten_tls = []\n[web]\nlisten = [\"{web}\"]\nbackends = [\"app {}\"]\n\
         [console]\nlisten = [\"{console}\"]\n",
        backend()
    ));
    let weir = site.command(&["up"]);
    let mut command = Command::new("systemd-socket-activate");
    for address in [&mail, &web, &console] {
        command.arg("-l").arg(address);
    }
    command.arg(weir.get_program()).args(weir.get_args());
    // The tool starts the program when the first client connects; that client must be served.
    let first = std::thread::spawn({
        let address = mail.clone();
        move || wait_for("a socket", || TcpStream::connect(&address).ok())
    });
    let up = Site::start(command);
    let mut greeting = [0; 4];
    first.join().expect("a client").read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"220 ");
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _over = Over(&seen);
        scope.spawn(|| seen.ask(&web));
        wait_for("a page", || (seen.numbers()[1] > 3).then_some(()));
    });
    assert_eq!(seen.numbers()[2..], [0, 0]);
    TcpStream::connect(&console).expect("the console is served");
    drop(up);
}

/// What Weir tells systemd about its state.
#[test]
fn systemd_hears_how_it_is() {
    let site = Site::new("");
    let path = site.home().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut command = site.command(&["up"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
    let up = Site::start(command);
    let mut told = Told { socket, all: String::new() };
    told.hear("FDSTORE=1\nFDNAME=127.0.0.1_");
    told.hear("READY=1");
    told.hear("WATCHDOG=1");
    up.signal("USR2");
    told.hear("RELOADING=1");
    told.hear("READY=1");
    told.hear("WATCHDOG=1");
    up.signal("TERM");
    told.hear("STOPPING=1");
    assert_eq!(Up::ended(up), Some(0));
}

struct Told {
    socket: UnixDatagram,
    all: String,
}

impl Told {
    /// Waits until this text is received from now on.
    #[track_caller]
    fn hear(&mut self, text: &str) {
        let begun = Instant::now();
        let mut octets = [0; 4096];
        loop {
            let length =
                self.socket.recv(&mut octets).unwrap_or_else(|error| panic!("no {text} ({error}) in {}", self.all));
            let said = String::from_utf8_lossy(&octets[..length]).into_owned();
            self.all.push_str(&said);
            if said.contains(text) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE + Duration::from_secs(1), "no {text} in {}", self.all);
        }
    }
}
