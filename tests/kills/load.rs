//! Clients that never give up: several sessions, single and many recipients, small and large bodies, users whose mail is held.

use super::books::{Answer, Books, Sent, digest};
use super::sink::TOKEN_HEADER;
use base64::Engine;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_sim::rng::Rng;

pub(super) const PASSWORD: &str = "correct horse";

/// A sender of the load: who it is, how many sessions it has, and what they do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    pub(super) user: &'static str,
    pub(super) sessions: usize,
    /// The most recipients of one message.
    pub(super) recipients: u64,
    /// The pause between two messages.
    pub(super) pause: Duration,
    /// Whether a scan would find something in its messages.
    pub(super) infected: bool,
}

/// The load while it runs.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    books: Arc<Books>,
    /// The address of the gate; none while it is down.
    gate: Mutex<Option<SocketAddr>>,
    stop: AtomicBool,
    tokens: AtomicU64,
}

impl Load {
    pub(super) fn start(senders: &[Sender], books: &Arc<Books>, rng: &mut Rng) -> Load {
        let shared = Arc::new(Shared {
            books: Arc::clone(books),
            gate: Mutex::new(None),
            stop: AtomicBool::new(false),
            tokens: AtomicU64::new(1),
        });
        let mut threads = Vec::new();
        for sender in senders {
            for _ in 0..sender.sessions {
                let client = Client { sender: *sender, shared: Arc::clone(&shared), rng: rng.fork() };
                threads.push(std::thread::spawn(move || client.run()));
            }
        }
        Load { shared, threads }
    }

    /// Tells the clients the address of the gate, or that it is down.
    pub(super) fn gate_at(&self, address: Option<SocketAddr>) {
        *self.shared.gate.lock().expect("no panic while held") = address;
    }

    /// Lets every client finish what it is doing.
    pub(super) fn stop(self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no client panics");
        }
    }
}

struct Client {
    sender: Sender,
    shared: Arc<Shared>,
    rng: Rng,
}

impl Client {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            let gate = *self.shared.gate.lock().expect("no panic while held");
            // The connection broke, was refused, or nothing listens: try again in a moment.
            if gate.and_then(|gate| self.session(gate)).is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// One session with some messages; none as soon as it breaks.
    fn session(&mut self, gate: SocketAddr) -> Option<()> {
        let mut wire = Wire::open(gate)?;
        let token = base64::engine::general_purpose::STANDARD.encode(format!("\0{}\0{PASSWORD}", self.sender.user));
        let welcome = wire.ask(&format!("AUTH PLAIN {token}"))?;
        if !welcome.starts_with("235") {
            std::thread::sleep(Duration::from_millis(100));
            return None;
        }
        for _ in 0..self.rng.between(1, 40) {
            if self.shared.stop.load(Ordering::SeqCst) {
                break;
            }
            self.message(&mut wire)?;
            std::thread::sleep(self.sender.pause);
        }
        wire.ask("QUIT").map(drop)
    }

    /// Sends one message and notes the answer; none if the connection broke.
    fn message(&mut self, wire: &mut Wire) -> Option<()> {
        let token = self.shared.tokens.fetch_add(1, Ordering::Relaxed);
        let count = self.rng.between(1, self.sender.recipients);
        let to: Vec<String> = (0..count).map(|n| format!("{}-{token}-{n}@sink.example", self.sender.user)).collect();
        let infected = self.sender.infected;
        let body =
            if infected { weir_scan::eicar::eicar() + "\r\n" } else { String::new() } + &body(token, &mut self.rng);
        let heard = self.transaction(wire, token, &to, &body);
        let answer = match &heard {
            Some(reply) if reply.starts_with("250") => Answer::Taken,
            Some(reply) => Answer::Refused(reply.clone()),
            None => Answer::Silence,
        };
        let refused = matches!(answer, Answer::Refused(_));
        let (user, digest) = (self.sender.user, digest(body.as_bytes()));
        self.shared.books.enter(Sent { token, user, to, digest, answer, infected });
        if refused {
            std::thread::sleep(Duration::from_millis(50));
        }
        heard.map(drop)
    }

    /// Runs one transaction. Returns the last reply, or the first one that refuses.
    fn transaction(&self, wire: &mut Wire, token: u64, to: &[String], body: &str) -> Option<String> {
        let from = format!("{}@sink.example", self.sender.user);
        let mut commands = vec![format!("MAIL FROM:<{from}>")];
        commands.extend(to.iter().map(|to| format!("RCPT TO:<{to}>")));
        for command in commands {
            let reply = wire.ask(&command)?;
            if !reply.starts_with("250") {
                return wire.ask("RSET").map(|_| reply);
            }
        }
        let ready = wire.ask("DATA")?;
        if !ready.starts_with("354") {
            return wire.ask("RSET").map(|_| ready);
        }
        let text = format!("From: {from}\r\nSubject: message {token}\r\n{TOKEN_HEADER}{token}\r\n\r\n{body}");
        wire.ask(&format!("{}.", text.replace("\r\n.", "\r\n..")))
    }
}

/// Mostly a few KiB, sometimes a few hundred. Contains lines that begin with dots, and the end says which message it is.
fn body(token: u64, rng: &mut Rng) -> String {
    let lines = if rng.chance(0.04) { rng.between(900, 4000) } else { rng.between(1, 60) };
    let mut body = String::new();
    for line in 0..lines {
        let dot = if rng.chance(0.1) { "." } else { "" };
        body.push_str(&format!(
            "{dot}line {line} of {token}: {:016x}{:016x}{:016x}\r\n",
            rng.next_u64(),
            rng.next_u64(),
            rng.next_u64()
        ));
    }
    body.push_str(&format!("the end of {token}\r\n"));
    body
}

/// A connection.
struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    fn open(gate: SocketAddr) -> Option<Wire> {
        let stream = TcpStream::connect_timeout(&gate, Duration::from_secs(5)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(40))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(40))).ok()?;
        let mut wire = Wire { stream: BufReader::new(stream) };
        let greeting = wire.reply()?;
        (greeting.starts_with("220") && wire.ask("EHLO load.example")?.starts_with("250")).then_some(wire)
    }

    fn ask(&mut self, line: &str) -> Option<String> {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
        self.reply()
    }

    fn reply(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            let read = self.stream.read_line(&mut line).ok()?;
            // An incomplete line is not an answer.
            if read == 0 || !line.ends_with('\n') {
                return None;
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Some(line.trim_end().to_owned());
            }
        }
    }
}
