//! A mail server that counts what it accepted: for whom, how often, in which life of the gate, and whether it was complete.
//!
//! Every life of the gate gets a door (a port) of its own, so that what a killed gate still had in its sockets is never mistaken for the
//! work of the next one. The server is slow now and then and refuses a few mails temporarily, so that a kill finds deliveries under way and
//! others that wait for their next attempt.

use super::books::digest;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server that is held answers after this long all the same, before the gate that delivers to it gives up.
const HELD_MOST: Duration = Duration::from_secs(60);

/// The header field that identifies the messages of the load.
pub(super) const TOKEN_HEADER: &str = "X-Kill: ";

/// One transaction that was answered with `250`, or would have been if the gate had still been there.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    /// The life of the gate.
    pub(super) life: u32,
    /// The number of the message.
    pub(super) token: u64,
    /// The recipients.
    pub(super) to: Vec<String>,
    /// The hash of the body.
    pub(super) digest: u64,
    /// Whether the header says that the gate has scanned it and found nothing.
    pub(super) scanned: bool,
}

/// Everything that was accepted, in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Sink {
    taken: Arc<Mutex<Vec<Taken>>>,
    whims: Arc<AtomicU64>,
    /// Whether it answers at once and refuses nothing.
    plain: Arc<AtomicBool>,
    /// Whether it leaves all clients without an answer for now, so that mail piles up.
    held: Arc<AtomicBool>,
}

/// The port to which one life of the gate delivers. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Sink {
    /// Opens a door for one life of the gate.
    pub(super) fn open(&self, life: u32) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::new(AtomicBool::new(false));
        let (sink, end) = (self.clone(), Arc::clone(&closed));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let sink = sink.clone();
                std::thread::spawn(move || drop(sink.serve(stream, life)));
            }
        });
        Door { address, closed }
    }

    /// From now on, accepts everything at once, so that all waiting mail is delivered.
    pub(super) fn be_plain(&self) {
        self.plain.store(true, Ordering::SeqCst);
    }

    /// Sets whether it leaves all clients without an answer.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Everything that was accepted so far.
    pub(super) fn taken(&self) -> Vec<Taken> {
        self.taken.lock().expect("no panic while held").clone()
    }

    fn serve(&self, stream: TcpStream, life: u32) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut peer = Peer { stream: BufReader::new(stream), to: Vec::new(), text: Vec::new() };
        peer.say("220 sink.example")?;
        while let Some(line) = peer.line()? {
            let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" if life.is_multiple_of(2) => peer.say("250-sink.example\r\n250-PIPELINING\r\n250 8BITMIME")?,
                "EHLO" => peer.say("250-sink.example\r\n250-PIPELINING\r\n250-CHUNKING\r\n250 8BITMIME")?,
                "RCPT" if self.whim(60) => peer.say("451 4.2.0 not now")?,
                "RCPT" => {
                    let to = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
                    peer.to.push(to);
                    peer.say("250 2.1.5 fine")?;
                }
                "DATA" if peer.to.is_empty() => peer.say("554 5.5.1 nobody to send it to")?,
                "DATA" => {
                    peer.say("354 go on")?;
                    peer.dotted()?;
                    self.take(&mut peer, life)?;
                }
                "BDAT" => self.chunk(&mut peer, &line, life)?,
                "QUIT" => return peer.say("221 2.0.0 bye"),
                _ => {
                    if matches!(verb.as_str(), "RSET" | "MAIL") {
                        peer.begin();
                    }
                    peer.say("250 2.0.0 fine")?;
                }
            }
        }
        Ok(())
    }

    fn chunk(&self, peer: &mut Peer, line: &str, life: u32) -> std::io::Result<()> {
        let mut words = line.split_whitespace().skip(1);
        let length: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let begun = peer.text.len();
        peer.text.resize(begun + length, 0);
        peer.stream.read_exact(&mut peer.text[begun..])?;
        match words.next() {
            _ if peer.to.is_empty() => peer.say("554 5.5.1 nobody to send it to"),
            Some(_) => self.take(peer, life),
            None => peer.say("250 2.0.0 more"),
        }
    }

    /// Notes a message before it is acknowledged.
    fn take(&self, peer: &mut Peer, life: u32) -> std::io::Result<()> {
        self.wait_while_held();
        if self.whim(80) {
            peer.begin();
            return peer.say("451 4.3.0 not now");
        }
        if let Some((token, digest, scanned)) = read(&peer.text) {
            let to = std::mem::take(&mut peer.to);
            self.taken.lock().expect("no panic while held").push(Taken { life, token, to, digest, scanned });
        }
        if self.whim(3) {
            std::thread::sleep(Duration::from_millis(6));
        }
        peer.begin();
        peer.say("250 2.0.0 taken")
    }

    /// Waits while the server is held, but not for too long.
    fn wait_while_held(&self) {
        let begun = Instant::now();
        while self.held.load(Ordering::SeqCst) && begun.elapsed() < HELD_MOST {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// True once in `often` times, evenly spread.
    fn whim(&self, often: u64) -> bool {
        let count = self.whims.fetch_add(1, Ordering::Relaxed);
        !self.plain.load(Ordering::Relaxed) && (count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(often)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// One client of the sink.
struct Peer {
    stream: BufReader<TcpStream>,
    to: Vec<String>,
    text: Vec<u8>,
}

impl Peer {
    fn say(&mut self, reply: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(format!("{reply}\r\n").as_bytes())
    }

    fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        Ok((self.stream.read_line(&mut line)? > 0).then(|| line.trim_end().to_owned()))
    }

    /// Reads a text that ends with a dot, and removes doubled dots.
    fn dotted(&mut self) -> std::io::Result<()> {
        loop {
            let begun = self.text.len();
            if self.stream.read_until(b'\n', &mut self.text)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match &self.text[begun..] {
                b".\r\n" => {
                    self.text.truncate(begun);
                    return Ok(());
                }
                [b'.', ..] => drop(self.text.remove(begun)),
                _ => {}
            }
        }
    }

    fn begin(&mut self) {
        self.to.clear();
        self.text.clear();
    }
}

/// The number of the message, the hash of its body, and whether it was scanned; none for mail that the gate itself wrote.
fn read(text: &[u8]) -> Option<(u64, u64, bool)> {
    let end = text.windows(4).position(|four| four == b"\r\n\r\n")?;
    let header = String::from_utf8_lossy(&text[..end]);
    let token = header.lines().find_map(|line| line.strip_prefix(TOKEN_HEADER))?;
    let scanned = header.lines().any(|line| line.starts_with("X-Weir-Scan: mail.example; clean ("));
    Some((token.trim().parse().ok()?, digest(&text[end + 4..]), scanned))
}
