//! Who sends: a number of SMTP sessions that are kept, fed by a plan.
//!
//! A plan says when each message is due. All at once measures throughput; times of a Poisson stream measure time in
//! system, which counts from when a message was due, not from when a session was free for it.

use crate::mix::{Class, Message};
use crate::sink::NUMBER;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use weir_sim::rng::Rng;

/// Sessions at once.
pub(crate) const SESSIONS: usize = 20;

/// Messages, and when each is due after the start.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) messages: Vec<(Duration, Message)>,
}

/// A message on its way.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) class: Class,
    pub(crate) due: std::time::Instant,
}

impl Plan {
    /// Everything is due at once.
    pub(crate) fn burst(messages: Vec<Message>) -> Plan {
        Plan { messages: messages.into_iter().map(|message| (Duration::ZERO, message)).collect() }
    }

    /// A Poisson stream.
    pub(crate) fn stream(messages: Vec<Message>, per_s: f64, seed: u64) -> Plan {
        let (mut rng, mut at) = (Rng::new(seed), 0.0);
        let due = |message| {
            at += rng.exponential(1.0 / per_s);
            (Duration::from_secs_f64(at), message)
        };
        Plan { messages: messages.into_iter().map(due).collect() }
    }

    /// Sends everything to a port of this machine, and returns when all is accepted.
    pub(crate) async fn send(&self, port: u16) -> Vec<Sent> {
        let (give, take) = mpsc::unbounded_channel::<(u64, Message)>();
        let take = Arc::new(Mutex::new(take));
        let sessions: Vec<_> = (0..SESSIONS).map(|_| tokio::spawn(session(port, Arc::clone(&take)))).collect();
        let (start, mut sent) = (Instant::now(), Vec::new());
        for (due, message) in &self.messages {
            tokio::time::sleep_until(start + *due).await;
            static NUMBERS: AtomicU64 = AtomicU64::new(1);
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            sent.push(Sent { number, class: message.class, due: (start + *due).into_std() });
            give.send((number, message.clone())).expect("sessions wait for it");
        }
        drop(give);
        for session in sessions {
            session.await.expect("a session does not panic");
        }
        sent
    }
}

async fn session(port: u16, take: Arc<Mutex<mpsc::UnboundedReceiver<(u64, Message)>>>) {
    let mut stream = None;
    loop {
        let next = take.lock().await.recv().await;
        let Some((number, message)) = next else { break };
        if stream.is_none() {
            stream = Some(open(port).await);
        }
        if let Some(stream) = &mut stream {
            mail(stream, number, &message).await;
        }
    }
    if let Some(mut stream) = stream {
        say(&mut stream, b"QUIT\r\n", 1).await;
    }
}

async fn open(port: u16) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let mut stream = BufReader::new(stream);
    say(&mut stream, b"", 1).await;
    say(&mut stream, b"EHLO client.example.com\r\n", 1).await;
    stream
}

async fn mail(stream: &mut BufReader<TcpStream>, number: u64, message: &Message) {
    let envelope = format!("MAIL FROM:<sender@example.com>\r\nRCPT TO:<to{number}@example.net>\r\nDATA\r\n");
    say(stream, envelope.as_bytes(), 3).await;
    let mut bytes = format!("{NUMBER}{number}\r\n{}", message.head).into_bytes();
    if message.tail.len() > 64 << 10 {
        stream.write_all(&bytes).await.expect("the server takes mail");
        stream.write_all(message.tail.as_bytes()).await.expect("the server takes mail");
        bytes.clear();
    } else {
        bytes.extend_from_slice(message.tail.as_bytes());
    }
    bytes.extend_from_slice(b".\r\n");
    say(stream, &bytes, 1).await;
}

/// Says something and hears so many replies, all of them good.
async fn say(stream: &mut BufReader<TcpStream>, text: &[u8], replies: usize) {
    stream.write_all(text).await.expect("the server is there");
    for _ in 0..replies {
        let mut line = String::new();
        while line.as_bytes().get(3) != Some(&b' ') {
            line.clear();
            let read = stream.read_line(&mut line).await.expect("the server answers");
            assert!(read > 0, "the server hung up");
        }
        assert!(line.starts_with(['2', '3']), "the server says {line}");
    }
}
