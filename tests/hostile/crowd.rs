//! Many connections at the same time, from many addresses of 127/8; and the memory of a process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

/// One SMTP conversation.
pub(crate) struct Conversation {
    stream: BufReader<TcpStream>,
}

impl Conversation {
    /// Connects from this address.
    pub(crate) async fn open(server: &str, from: Ipv4Addr) -> io::Result<Conversation> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let server = server.parse().map_err(io::Error::other)?;
        Ok(Conversation { stream: BufReader::with_capacity(1024, socket.connect(server).await?) })
    }

    /// Reads the greeting and sends EHLO. Returns the reply.
    pub(crate) async fn greet(&mut self) -> String {
        let greeting = self.reply().await;
        if !greeting.starts_with("220") {
            return greeting;
        }
        self.say("EHLO client.example").await
    }

    /// Sends a line and reads the reply.
    pub(crate) async fn say(&mut self, line: &str) -> String {
        if self.send(format!("{line}\r\n").as_bytes()).await { self.reply().await } else { String::new() }
    }

    /// Sends octets. Returns false if the server has closed the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).await.is_ok()
    }

    /// Reads the next reply and returns its last line; empty if the connection is closed.
    pub(crate) async fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line).await {
                Ok(0) | Err(_) => return String::new(),
                Ok(_) if line.as_bytes().get(3) != Some(&b'-') => return line.trim_end().to_owned(),
                Ok(_) => {}
            }
        }
    }

    /// Reads everything that the server still sends until it closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset counts as an end too.
        let _ = self.stream.read_to_end(&mut rest).await;
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Sends a mail, pipelined. Returns the first reply that is not a success, or else the last one.
    pub(crate) async fn mail(&mut self, from: &str, to: &[String]) -> String {
        let mut commands = format!("MAIL FROM:<{from}>\r\n");
        to.iter().for_each(|to| commands.push_str(&format!("RCPT TO:<{to}>\r\n")));
        commands.push_str("DATA\r\n");
        if !self.send(commands.as_bytes()).await {
            return String::new();
        }
        let mut first_refusal = None;
        for _ in 0..to.len() + 2 {
            let reply = self.reply().await;
            if !reply.starts_with(['2', '3']) {
                first_refusal.get_or_insert(reply);
            }
        }
        if let Some(refusal) = first_refusal {
            return refusal;
        }
        self.say(&format!("From: {from}\r\nSubject: many\r\n\r\nhello\r\n.")).await
    }

    /// The socket, to be written to.
    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// The socket itself.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// The address of stranger `number` in crowd `crowd`: 127.crowd.x.y.
pub(crate) fn loopback(crowd: u8, number: usize) -> Ipv4Addr {
    let [_, _, high, low] = u32::try_from(number + 1).unwrap_or(1).to_be_bytes();
    Ipv4Addr::new(127, crowd, high, low)
}

/// The memory that a process uses now.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// The most memory that it ever used.
pub(crate) fn resident_most_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a field of Linux");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Raises the limit of open files, because every connection is one.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("within the limit");
}

/// A runtime for an attack.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
