//! The mail programs of users: a connection and a login for each message, to somebody whom that user has written to before.
//!
//! smtp-source cannot log in. This speaks as it does: each command waits for its answer.

use crate::load::Load;
use crate::people::{PASSWORD, USERS, correspondent, user};
use crate::round::Sending;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Any prime that does not divide [`USERS`]: users who come one after the other are not neighbours in the records.
const STEP: u32 = 7_919;

/// Mail of users, each message of the next user. Who has written to all correspondents begins again.
pub(crate) struct UsersMail {
    /// The number of the first message; later loads go on where earlier ones have ended.
    pub(crate) first: u32,
    pub(crate) messages: u32,
    /// Bytes of text each; headers come on top.
    pub(crate) length: usize,
}

impl Sending for UsersMail {
    fn messages(&self) -> u32 {
        self.messages
    }

    fn send(&self, port: u16) -> Duration {
        let (start, next, text) = (Instant::now(), AtomicU32::new(self.first), self.text());
        let send_all = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.first + self.messages {
                    return;
                }
                hand_in(port, number, &text);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..Load::sessions() {
                scope.spawn(send_all);
            }
        });
        start.elapsed()
    }
}

impl UsersMail {
    /// What it is, in words.
    pub(crate) fn about(&self) -> String {
        format!("{} KiB, {} sessions, a connection and a login a message", self.length >> 10, Load::sessions())
    }

    fn text(&self) -> String {
        let line = format!("{}\r\n", "X".repeat(78));
        line.repeat(self.length.div_ceil(line.len()))
    }
}

/// Sends one message. It must go at once: somebody who is not known as a correspondent would wait, for strangers have one slack.
fn hand_in(port: u16, number: u32, text: &str) {
    let from = number.wrapping_mul(STEP) % USERS;
    let to = correspondent(from, number / USERS);
    let (login, address) = (user(from), format!("{}@example.org", user(from)));
    let mut session = Session::open(port);
    session.say("EHLO client.example.com", "250");
    session.say(&format!("AUTH PLAIN {}", STANDARD.encode(format!("\0{login}\0{PASSWORD}"))), "235");
    session.say(&format!("MAIL FROM:<{address}>"), "250");
    session.say(&format!("RCPT TO:<{to}>"), "250");
    session.say("DATA", "354");
    let message = format!(
        "From: <{address}>\r\nTo: <{to}>\r\nDate: Mon, 1 Jun 2026 12:00:00 +0000\r\n\
         Message-ID: <{number}@client.example.com>\r\nSubject: {number}\r\n\r\n{text}."
    );
    let said = session.say(&message, "250");
    assert!(!said.contains("held"), "{login} has written to {to} before: {said}");
    session.say("QUIT", "221");
}

/// A connection to a server.
struct Session {
    stream: BufReader<TcpStream>,
}

impl Session {
    fn open(port: u16) -> Session {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let mut session = Session { stream: BufReader::new(stream) };
        session.answer("220");
        session
    }

    /// Says something, and returns the last line of the answer, which must begin as `expected`.
    fn say(&mut self, said: &str, expected: &str) -> String {
        self.stream.get_mut().write_all(format!("{said}\r\n").as_bytes()).expect("the server reads");
        self.answer(expected)
    }

    fn answer(&mut self, expected: &str) -> String {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("the server answers");
            if line.get(3..4) != Some("-") {
                assert!(line.starts_with(expected), "{expected} was expected: {line:?}");
                return line;
            }
        }
    }
}
