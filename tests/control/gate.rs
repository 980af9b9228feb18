//! A running `weir up` for tests, and a simple mail client.

use super::family::Family;
use crate::harness::Run;
use base64::Engine;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A data folder with a configuration that uses free ports.
pub(crate) struct Site {
    home: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new(more: &str) -> Site {
        Site::with_submission("", more)
    }

    /// With further settings of submission, and further sections.
    pub(crate) fn with_submission(submission: &str, more: &str) -> Site {
        let home = tempfile::tempdir().expect("a folder");
        let ports =
            "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\nhostname = \"mail.example\"\n";
        let soon = "[web]\nlisten = [\"127.0.0.1:0\"]\n[console]\nlisten = [\"127.0.0.1:0\"]\n[delivery]\nretry = [\"200ms\"]\n";
        let configuration = format!("{ports}{submission}{soon}{more}");
        std::fs::write(home.path().join("weir.toml"), configuration).expect("a configuration");
        Site { home }
    }

    /// With this configuration and nothing else.
    pub(crate) fn only(configuration: &str) -> Site {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("weir.toml"), configuration).expect("a configuration");
        Site { home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Runs a command on this data folder.
    pub(crate) fn weir(&self, args: &[&str]) -> Run {
        self.weir_with(args, "")
    }

    /// Runs a command with this standard input.
    pub(crate) fn weir_with(&self, args: &[&str], input: &str) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends").into()
    }

    /// The JSON answer of a command.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let printed = self.weir(&[args, &["--json"]].concat()).ok();
        serde_json::from_str(&printed).expect("one JSON document")
    }

    /// The JSON output of `weir status`, whether all is well or not.
    pub(crate) fn status(&self) -> Value {
        let answer = self.weir(&["status", "--json"]);
        assert!(matches!(answer.code, Some(0 | 3 | 4)), "{:?}: {}", answer.code, answer.stderr);
        serde_json::from_str(&answer.stdout).expect("one JSON document")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        // A soak measures the binary that people use.
        let weir = std::env::var_os("WEIR_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
        let mut command = Command::new(weir);
        command.args(args).arg("--data").arg(self.data());
        // Every command except those that restore accepts a configuration.
        command.arg("--config").arg(self.home.path().join("weir.toml"));
        command
    }

    /// Starts `weir up` with a demo user, and waits until it is up.
    pub(crate) fn up(&self) -> Up {
        self.up_with(&[])
    }

    /// Starts `weir up` without a demo user.
    pub(crate) fn up_alone(&self) -> Up {
        Site::start(self.command(&["up"]))
    }

    /// The same as [`Site::up`], with further arguments.
    pub(crate) fn up_with(&self, args: &[&str]) -> Up {
        Site::start(self.command(&[&["up", "--demo-user"], args].concat()))
    }

    /// Runs this command, which starts `weir up`, and waits until it is up.
    pub(crate) fn start(mut command: Command) -> Up {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut said = String::new();
        while !said.contains("Stop with Ctrl-C") {
            let line = lines.next().unwrap_or_else(|| panic!("it ended early:\n{said}")).expect("text");
            said.push_str(&line);
            said.push('\n');
        }
        let [plain, tls] = submission_listeners(&said);
        Up { child, said, plain, tls }
    }

    /// Waits until the Maildir of an address contains `count` messages, and returns them.
    #[track_caller]
    pub(crate) fn arrived(&self, address: &str, count: usize) -> Vec<PathBuf> {
        let folder = self.data().join("mail").join(address).join("Maildir/new");
        wait_for(&format!("{count} messages for {address}"), || {
            let files: Vec<PathBuf> =
                std::fs::read_dir(&folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
            (files.len() >= count).then_some(files)
        })
    }
}

/// The addresses at which submission listens with STARTTLS and with TLS, from the output of `weir up`; empty if it does not listen that
/// way. Each must be printed only once, because a test could not know which of two it talks to.
#[track_caller]
fn submission_listeners(said: &str) -> [String; 2] {
    let mut found = [String::new(), String::new()];
    for line in said.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("submission") {
            continue;
        }
        let address = words.next().unwrap_or_else(|| panic!("a listener without an address in:\n{said}"));
        let kind = match words.next().map(|word| word.trim_end_matches(',')) {
            Some("STARTTLS") => 0,
            Some("TLS") => 1,
            _ => panic!("a listener of submission that is neither STARTTLS nor TLS in:\n{said}"),
        };
        assert!(found[kind].is_empty(), "two listeners of submission of one kind in:\n{said}");
        found[kind] = address.to_owned();
    }
    found
}

/// A running Weir. It is killed when this is dropped.
pub(crate) struct Up {
    child: Child,
    /// What it printed when it started.
    pub(crate) said: String,
    /// Its address for submission with STARTTLS; empty if there is none.
    pub(crate) plain: String,
    /// Its address for submission with TLS; empty if there is none.
    pub(crate) tls: String,
}

impl Up {
    /// The demo user's password.
    pub(crate) fn password(&self) -> String {
        let (_, rest) = self.said.split_once(", password ").expect("a demo user");
        rest.chars().take_while(|c| *c != ',').collect()
    }

    /// The first administrator's password, which is printed with `--demo` and otherwise written to a file.
    pub(crate) fn admin_password(&self) -> String {
        if let Some((_, shown)) = self.said.split_once("log in as admin; the password is shown only once: ") {
            return shown.split_whitespace().next().expect("a password").to_owned();
        }
        let (_, file) = self.said.split_once("log in as admin; the password is in ").expect("an administrator");
        let file = file.lines().next().expect("a path");
        let mode = std::fs::metadata(file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
        std::fs::read_to_string(file).expect("a password").trim().to_owned()
    }

    /// The address of the listener with this name, such as `inbound`.
    #[track_caller]
    pub(crate) fn listener(&self, name: &str) -> String {
        let line = self.said.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in:\n{}", self.said));
        line.split_whitespace().nth(1).expect("an address").to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Kills the process without warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it is gone");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Up {
    /// Nothing that it started may outlive it, however it ends.
    fn drop(&mut self) {
        // If it has ended already, its number may belong to another process.
        let family = matches!(self.child.try_wait(), Ok(None)).then(|| Family::of(self.child.id()));
        let _ = self.child.kill();
        let _ = self.child.wait();
        family.inspect(Family::is_gone);
    }
}

/// How long to wait for something that takes seconds on a quiet machine. A very slow one takes minutes, and only a test that fails waits
/// for the whole time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Calls `look` again and again until it returns something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An SMTP session with a server on this machine.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects and sends EHLO.
    pub(crate) fn greeted(address: &str) -> Client {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let mut client = Client { stream: BufReader::new(stream) };
        client.reply();
        client.say("EHLO client.example");
        client
    }

    /// Connects and logs in. Returns the refusal if there is one.
    pub(crate) fn login(address: &str, user: &str, password: &str) -> Result<Client, String> {
        let mut client = Client::greeted(address);
        let token = base64::engine::general_purpose::STANDARD.encode(format!("\0{user}\0{password}"));
        match client.say(&format!("AUTH PLAIN {token}")) {
            welcome if welcome.starts_with("235") => Ok(client),
            refused => Err(refused),
        }
    }

    /// The same, but none if there is no connection, or the reply begins with 4 ("not now").
    #[track_caller]
    pub(crate) fn login_now(address: &str, user: &str, password: &str) -> Option<Client> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let mut client = Client { stream: BufReader::new(stream) };
        if !client.reply().starts_with("220") || !client.say("EHLO client.example").starts_with("250") {
            return None;
        }
        let token = base64::engine::general_purpose::STANDARD.encode(format!("\0{user}\0{password}"));
        let said = client.say(&format!("AUTH PLAIN {token}"));
        assert!(said.is_empty() || said.starts_with(['2', '4']), "{said}");
        said.starts_with("235").then_some(client)
    }

    /// Sends one mail. Returns the last reply.
    pub(crate) fn mail(&mut self, from: &str, to: &[&str], subject: &str) -> String {
        self.text(from, to, &format!("From: {from}\r\nSubject: {subject}\r\n\r\nhello"))
    }

    /// Sends one mail with this text, in which no line begins with a dot. Returns the last reply.
    pub(crate) fn text(&mut self, from: &str, to: &[&str], text: &str) -> String {
        self.octets(from, to, text.as_bytes())
    }

    /// The same, with a text in any charset.
    pub(crate) fn octets(&mut self, from: &str, to: &[&str], mut text: &[u8]) -> String {
        let opened = self.say(&format!("MAIL FROM:<{from}>"));
        if !opened.starts_with("250") {
            return opened;
        }
        for to in to {
            self.say(&format!("RCPT TO:<{to}>"));
        }
        let ready = self.say("DATA");
        if !ready.starts_with("354") {
            return ready;
        }
        while let Some(shorter) = text.strip_suffix(b"\r\n") {
            text = shorter;
        }
        let sent = self.stream.get_mut().write_all(&[text, b"\r\n.\r\n"].concat());
        if sent.is_err() { String::new() } else { self.reply() }
    }

    /// Sends a line. Returns the reply.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let sent = self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes());
        if sent.is_err() { String::new() } else { self.reply() }
    }

    /// Reads the next reply; empty if the connection is closed.
    pub(crate) fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line) {
                Ok(0) | Err(_) => return String::new(),
                Ok(_) if line.as_bytes().get(3) != Some(&b'-') => return line.trim_end().to_owned(),
                Ok(_) => {}
            }
        }
    }
}

/// The id in a reply such as `250 2.0.0 38exjmr5c8wmgwtgr3zn accepted, …`.
pub(crate) fn id_in(reply: &str) -> String {
    assert!(reply.starts_with("250 2.0.0 "), "{reply}");
    reply.split(' ').nth(2).expect("an id").to_owned()
}

/// A mail server that accepts one message and keeps its text.
pub(crate) struct Sink {
    pub(crate) address: String,
    taken: std::thread::JoinHandle<String>,
}

impl Sink {
    pub(crate) fn new() -> Sink {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let taken = std::thread::spawn(move || take_one(listener.accept().expect("a connection").0));
        Sink { address, taken }
    }

    /// Waits for the message, and returns its text.
    pub(crate) fn text(self) -> String {
        self.taken.join().expect("it took one")
    }
}

fn take_one(stream: TcpStream) -> String {
    let mut stream = BufReader::new(stream);
    let say = |stream: &mut BufReader<TcpStream>, line: &str| {
        stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it listens");
    };
    say(&mut stream, "220 sink.example");
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a command");
        if !line.starts_with("DATA") {
            say(&mut stream, "250 fine");
            continue;
        }
        say(&mut stream, "354 go on");
        let mut text = String::new();
        while !text.ends_with("\r\n.\r\n") {
            stream.read_line(&mut text).expect("text");
        }
        say(&mut stream, "250 taken");
        return text;
    }
}
