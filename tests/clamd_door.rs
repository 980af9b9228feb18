//! Tests of the door for clients of clamd: the protocol itself, and common programs that use it, unmodified.

use crate::attachment::attached;
use crate::control::gate::{Client as Smtp, Sink, Site, Up, wait_for};
use crate::postfix_doors::recipe;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;
use weir_peers::{Amavis, Clamd, Exim, Rspamd, eicar};

fn site(more: &str) -> (Site, Up) {
    let site = Site::new(&format!(
        "[scan]\nenabled = true\n[scan.clamd_door]\nlisten = [\"127.0.0.1:0\"]\nstream_size = \"1MiB\"\n{more}"
    ));
    let up = site.up();
    (site, up)
}

struct Client(TcpStream);

impl Client {
    fn new(up: &Up) -> Client {
        let stream = TcpStream::connect(up.listener("clamd")).expect("the door is open");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        Client(stream)
    }

    fn send(mut self, octets: &[u8]) -> Client {
        self.0.write_all(octets).expect("it reads");
        self
    }

    fn stream(self, command: &[u8], file: &[u8]) -> Client {
        let length = (file.len() as u32).to_be_bytes();
        self.send(command).send(&length).send(file).send(&[0; 4])
    }

    /// Reads what the server sends until it closes the connection.
    fn rest(mut self) -> String {
        let mut said = Vec::new();
        let _ = self.0.read_to_end(&mut said);
        String::from_utf8(said).expect("text")
    }
}

#[test]
fn a_client_of_clamd_is_answered_by_the_scan() {
    let (_site, up) = site("");
    let ask = |octets: &[u8]| Client::new(&up).send(octets).rest();
    assert_eq!(ask(b"PING\n"), "PONG\n");
    assert_eq!(ask(b"zPING\0"), "PONG\0");
    assert!(ask(b"nVERSION\n").contains("Weir"));
    assert!(ask(b"zVERSIONCOMMANDS\0").contains("INSTREAM"));
    assert_eq!(ask(b"nSHUTDOWN\n"), "UNKNOWN COMMAND\n");
    let path = ask(b"nSCAN /etc/shadow\n");
    assert!(path.starts_with("/etc/shadow: ") && path.ends_with(" ERROR\n"), "{path}");

    let look = |file: &[u8]| Client::new(&up).stream(b"nINSTREAM\n", file).rest();
    assert_eq!(look(b"hello, this is a note\n"), "stream: OK\n");
    assert_eq!(look(b""), "stream: OK\n");
    let found = look(eicar().as_bytes());
    assert!(found.contains("EICAR") && found.ends_with(" FOUND\n"), "{found}");
    // Not only messages: single files too.
    let program = std::fs::read("/bin/true").expect("a program");
    let found = look(&program);
    assert!(found.starts_with("stream: Weir.Forbidden.") && found.ends_with(" FOUND\n"), "{found}");
    let mail = format!(
        "From: a@b.example\r\nContent-Type: application/octet-stream; name=x.exe\r\n\
                        Content-Transfer-Encoding: base64\r\n\r\n{}",
        "TVqQAAMAAAAEAAAA//8AALgAAAA=\r\n"
    );
    let found = look(mail.as_bytes());
    assert!(found.starts_with("stream: Weir.Forbidden."), "{found}");

    let large = Client::new(&up).send(b"zINSTREAM\0").send(&(2u32 << 20).to_be_bytes());
    let mut sink = large.0.try_clone().expect("a copy");
    let _ = sink.write_all(&vec![b'x'; 2 << 20]);
    assert_eq!(large.rest(), "INSTREAM size limit exceeded. ERROR\0");
}

#[test]
fn a_session_has_an_answer_for_each_of_its_files() {
    let (_site, up) = site("");
    let mut client = Client::new(&up).send(b"zIDSESSION\0");
    for file in [&b"a note"[..], eicar().as_bytes(), &[b'x'; 200 << 10]] {
        client = client.stream(b"zINSTREAM\0", file);
    }
    let said = client.send(b"zPING\0zEND\0").rest();
    let mut answers: Vec<&str> = said.split_terminator('\0').collect();
    answers.sort_unstable();
    assert_eq!((answers.len(), answers[0], answers[2], answers[3]), (4, "1: stream: OK", "3: stream: OK", "4: PONG"));
    assert!(answers[1].starts_with("2: stream: ") && answers[1].ends_with(" FOUND"), "{said:?}");
    // A client that sends nonsense is disconnected, and others are not affected.
    assert_eq!(Client::new(&up).send(&[b'x'; 8 << 10]).rest(), "");
    assert_eq!(Client::new(&up).send(b"PING\n").rest(), "PONG\n");
}

fn clamdscan(configuration: &std::path::Path, args: &[&str], files: &[&std::path::Path]) -> (Option<i32>, String) {
    let output: Output = Command::new("clamdscan")
        .arg(format!("--config-file={}", configuration.display()))
        .args(args)
        .args(files)
        .output()
        .expect("clamdscan runs: `make setup` installs it");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The value of the first setting for a program in the table of docs/doors.md.
fn setting(program: &str) -> String {
    let page = include_str!("../docs/doors.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| {program} | "))).expect("a row of the page");
    row.split('`').nth(1).expect("a setting").to_owned()
}

#[test]
fn clamdscan_asks_weir_as_it_asks_clamd() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("door");
    // Uses the page's own recipe, with a real clamd behind Weir.
    let clamd = Clamd::start();
    let place = [
        ("127.0.0.1:3311", "127.0.0.1:0".to_owned()),
        ("/run/weir/clamd.ctl", socket.display().to_string()),
        ("/run/clamav/clamd.ctl", clamd.socket().display().to_string()),
    ];
    let recipe = recipe("In place of clamd", "toml");
    let settings = place.iter().fold(recipe, |text, (written, here)| {
        assert!(text.contains(written), "{written} is not in the recipe");
        text.replace(written, here)
    });
    let site = Site::new(&settings);
    let up = site.up();
    let port = up.listener("clamd").rsplit(':').next().expect("a port").to_owned();
    let tcp = folder.path().join("tcp.conf");
    std::fs::write(&tcp, format!("TCPSocket {port}\nTCPAddr 127.0.0.1\n")).expect("a configuration");
    let unix = folder.path().join("unix.conf");
    std::fs::write(&unix, format!("LocalSocket {}\n", socket.display())).expect("a configuration");
    let (good, bad) = (folder.path().join("note.txt"), folder.path().join("bad.txt"));
    std::fs::write(&good, "a note\n").expect("a file");
    std::fs::write(&bad, eicar()).expect("a file");

    for (configuration, args) in [(&tcp, vec!["--stream"]), (&unix, vec!["--stream"]), (&unix, vec!["--fdpass"])] {
        let (code, said) = clamdscan(configuration, &args, &[&good]);
        assert!(code == Some(0) && said.contains("note.txt: OK"), "{args:?}: {said}");
        let (code, said) = clamdscan(configuration, &args, &[&good, &bad]);
        assert!(code == Some(1) && said.contains("FOUND") && said.contains("Infected files: 1"), "{args:?}: {said}");
    }
    let (code, said) = clamdscan(&unix, &["--fdpass", "--multiscan"], &[folder.path()]);
    assert!(code == Some(1) && said.contains("FOUND"), "{said}");
    // If the file cannot be handed over, the program must not call it clean.
    let (code, said) = clamdscan(&unix, &[], &[&bad]);
    assert!(code != Some(0) && !said.contains(": OK"), "{said}");
}

#[test]
fn rspamd_asks_weir_as_it_asks_clamd() {
    let (_site, up) = site("");
    let module = format!(
        "clamav {{ type = \"clamav\"; {} symbol = \"CLAM_VIRUS\"; action = \"reject\"; scan_mime_parts = true; \
         log_clean = true; }}\n",
        setting("Rspamd").replace("127.0.0.1:3311", &up.listener("clamd"))
    );
    let rspamd = Rspamd::start_with(&[("antivirus.conf", &module)]);
    let mail = |content: &str| {
        format!(
            "From: you@example.org\r\nTo: me@example.org\r\nSubject: notes\r\nMIME-Version: 1.0\r\n\
             Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\n\
             Content-Type: application/octet-stream; name=notes.dat\r\n\r\n{content}\r\n--b--\r\n"
        )
    };
    let clean = rspamd.check(&mail("nothing to see here"));
    assert!(clean.contains("\"action\"") && !clean.contains("CLAM_VIRUS"), "{clean}");
    let infected = rspamd.check(&mail(&eicar()));
    assert!(infected.contains("CLAM_VIRUS") && infected.contains("EICAR"), "{infected}");
}

/// A plugin for the lab that decides by one word in the file.
fn judge(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let home = folder.join("judge");
    std::fs::create_dir(&home).expect("a folder");
    let program = r#"#!/bin/sh
level=safe
for word in malicious suspicious unknown; do if grep -q "is $word" input/attachment; then level=$word; fi; done
printf '{"success":true,"summary":{"taxonomies":[{"level":"%s","namespace":"judge","predicate":"word","value":"%s"}]}}' \
  "$level" "$level" > output/output.json
"#;
    std::fs::write(home.join("run"), program).expect("a plugin");
    std::fs::set_permissions(home.join("run"), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let manifest = "name = \"judge\"\nversion = \"1\"\nexec = [\"./run\"]\n";
    std::fs::write(home.join("plugin.toml"), manifest).expect("a manifest");
}

#[test]
fn what_the_lab_knows_is_told_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    judge(folder.path());
    let (site, up) = site(&format!("[lab]\nenabled = true\nslots = 2\nplugins = {:?}\n", folder.path()));
    let look = |file: &[u8]| Client::new(&up).stream(b"nINSTREAM\n", file).rest();
    let script = |word: &str| format!("#!/bin/sh\n# This one is {word}.\necho {word}\n");
    for (word, told) in [
        ("malicious", "Weir.Lab.Malicious FOUND"),
        ("suspicious", "Weir.Lab.Suspicious FOUND"),
        ("unknown", "Weir.Lab.Unknown FOUND"),
        ("harmless", "OK"),
    ] {
        let text = script(word);
        assert_eq!(look(text.as_bytes()), "stream: OK\n", "the lab has never seen {word}");
        let file = site.home().join(word);
        std::fs::write(&file, &text).expect("a file");
        let sample = site.json(&["lab", "submit", file.to_str().expect("UTF-8")])[0]["sample"].to_string();
        wait_for("the lab to know it", || {
            (!site.json(&["lab", "report", &sample])["ended_at"].is_null()).then_some(())
        });
        assert_eq!(look(text.as_bytes()), format!("stream: {told}\n"), "{word}");
        // The same file in a mail, as mail programs send it.
        let mail = format!("From: a@b.example\r\n{}", attached("run.sh", text.as_bytes()));
        assert_eq!(look(mail.as_bytes()), format!("stream: {told}\n"), "{word} in a mail");
    }
}

/// While large files take up everything that the scan may use, a small file is answered before them.
#[test]
fn one_large_stream_delays_no_small_one() {
    let (_site, up) = site("");
    let large = |number: u8| {
        let mut client = Client::new(&up).send(b"zINSTREAM\0");
        // As large as the door accepts but not complete, so the file is still being transmitted.
        for _ in 0..15 {
            client = client.send(&(64u32 << 10).to_be_bytes()).send(&vec![number; 64 << 10]);
        }
        client
    };
    let streams: Vec<Client> = (1..=32).map(large).collect();
    for _ in 0..10 {
        assert_eq!(Client::new(&up).stream(b"nINSTREAM\n", b"a note").rest(), "stream: OK\n");
    }
    for stream in streams {
        assert_eq!(stream.send(&[0; 4]).rest(), "stream: OK\0", "it was patient");
    }
}

/// Sends a mail with this text. Returns the last reply.
fn mail(address: &str, text: &str) -> String {
    let text = format!("From: you@example.org\r\nSubject: notes\r\n\r\n{text}\r\n");
    Smtp::greeted(address).text("you@example.org", &["me@example.org"], &text)
}

#[test]
fn amavis_asks_weir_as_it_asks_clamd() {
    let (_site, up) = site("");
    let next = Sink::new();
    assert_eq!(setting("Amavis"), "'clamd:127.0.0.1:3311'", "as below, with the port of this test");
    let amavis = Amavis::start(&up.listener("clamd"), &next.address);
    let said = mail(&amavis.address(), &eicar());
    assert!(said.starts_with("554 5.7.0 ") && said.contains("INFECTED: EICAR"), "{said}\n{}", amavis.log());
    let said = mail(&amavis.address(), "nothing to see here");
    assert!(said.starts_with("250 "), "{said}\n{}", amavis.log());
    assert!(next.text().contains("nothing to see here"));
}

#[test]
fn exim_asks_weir_as_it_asks_clamd() {
    let (_site, up) = site("");
    assert_eq!(setting("Exim"), "av_scanner = clamd:127.0.0.1 3311", "as below, with the port of this test");
    let exim = Exim::start(&up.listener("clamd"));
    let said = mail(&exim.address(), &eicar());
    assert!(said.starts_with("550 infected: EICAR"), "{said}");
    let said = mail(&exim.address(), "nothing to see here");
    assert!(said.starts_with("250 OK id="), "{said}");
    // Without an answer from Weir, Exim must not accept the mail.
    up.kill();
    let said = mail(&exim.address(), "nothing to see here");
    assert!(said.starts_with("451 "), "{said}");
}
