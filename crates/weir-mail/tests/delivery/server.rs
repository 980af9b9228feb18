//! A server that does as it is told: well, badly, or not at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Where in a conversation we are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Greeting,
    Hello,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// After the body.
    End,
    Rset,
    Quit,
    Other,
}

/// What the server does at a step.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    /// The usual.
    Usual,
    /// This, as it stands.
    Raw(String),
    /// Nothing, for ever.
    Silence,
    /// Hangs up.
    Close,
    /// This first, then hangs up.
    RawThenClose(String),
    /// One octet at a time, for ever.
    Drip,
    /// Octets without a line end, for ever.
    Flood,
    /// This, and then it reads no more.
    Deaf(String),
}

/// One connection's number (from 0), step and command line.
pub(crate) type Script = dyn Fn(usize, Step, &str) -> Say + Send + Sync;

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    log: Arc<Mutex<Log>>,
    changed: watch::Sender<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Lines of all connections, each with the connection's number.
    pub(crate) lines: Vec<(usize, String)>,
    /// Bodies that were accepted, as they came, without the last dot.
    pub(crate) bodies: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) open: usize,
    pub(crate) open_most: usize,
}

/// What a good server offers.
pub(crate) const OFFER: &str =
    "250-server.example\r\n250-PIPELINING\r\n250-SIZE 100000000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 DSN\r\n";

impl Server {
    pub(crate) async fn start(script: impl Fn(usize, Step, &str) -> Say + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { port, log: Arc::default(), changed: watch::Sender::new(0) };
        let shared = server.clone();
        let script: Arc<Script> = Arc::new(script);
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let conversation = Conversation {
                    server: shared.clone(),
                    script: Arc::clone(&script),
                    stream,
                    number,
                    buffer: Vec::new(),
                    mail: false,
                    rcpts: 0,
                };
                tokio::spawn(conversation.run());
            }
        });
        server
    }

    pub(crate) fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn commands(&self) -> Vec<String> {
        self.log().lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Log) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !so(&self.log()) {
                changed.changed().await.unwrap();
            }
        };
        assert!(tokio::time::timeout(super::memory_ledger::PATIENCE, wait).await.is_ok(), "{what}: {:?}", self.log());
    }

    fn change(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.lock().unwrap());
        self.changed.send_modify(|version| *version += 1);
    }
}

struct Conversation {
    server: Server,
    script: Arc<Script>,
    stream: TcpStream,
    number: usize,
    buffer: Vec<u8>,
    /// MAIL was accepted; so many RCPT were.
    mail: bool,
    rcpts: usize,
}

impl Conversation {
    async fn run(mut self) {
        self.server.change(|log| {
            log.connections += 1;
            log.open += 1;
            log.open_most = log.open_most.max(log.open);
        });
        // A client that hangs up ends the conversation.
        let _ = self.talk().await;
        self.server.change(|log| log.open -= 1);
    }

    async fn talk(&mut self) -> std::io::Result<()> {
        self.say(Step::Greeting, "", "220 server.example ready\r\n").await?;
        loop {
            let line = self.line().await?;
            self.server.change(|log| log.lines.push((self.number, line.clone())));
            let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" | "LHLO" | "HELO" => drop(self.say(Step::Hello, &line, OFFER).await?),
                "STARTTLS" => drop(self.say(Step::StartTls, &line, "220 go ahead\r\n").await?),
                "AUTH" => drop(self.say(Step::Auth, &line, "235 2.7.0 welcome\r\n").await?),
                "MAIL" if self.mail => self.act(Say::Usual, "503 5.5.1 nested MAIL\r\n").await?,
                "MAIL" => self.mail = self.say(Step::Mail, &line, "250 2.1.0 ok\r\n").await?,
                "RCPT" if !self.mail => self.act(Say::Usual, "503 5.5.1 MAIL first\r\n").await?,
                "RCPT" => self.rcpts += usize::from(self.say(Step::Rcpt, &line, "250 2.1.5 ok\r\n").await?),
                "RSET" => {
                    (self.mail, self.rcpts) = (false, 0);
                    self.say(Step::Rset, &line, "250 2.0.0 ok\r\n").await?;
                }
                "DATA" => self.data(&line).await?,
                "BDAT" => self.bdat(&line).await?,
                "QUIT" => return self.say(Step::Quit, &line, "221 2.0.0 bye\r\n").await.map(drop),
                _ => drop(self.say(Step::Other, &line, "500 5.5.1 what?\r\n").await?),
            }
        }
    }

    async fn data(&mut self, line: &str) -> std::io::Result<()> {
        let asked = (self.script)(self.number, Step::Data, line);
        if self.rcpts == 0 && matches!(asked, Say::Usual) {
            return self.act(asked, "503 5.5.1 RCPT first\r\n").await;
        }
        self.act(asked.clone(), "354 go ahead\r\n").await?;
        let refused = matches!(&asked, Say::Raw(text) if !text.starts_with('3'));
        if refused {
            return Ok(());
        }
        let mut body = String::new();
        loop {
            let line = self.line().await?;
            if line == "." {
                break;
            }
            body.push_str(&format!("{line}\r\n"));
        }
        self.end(&body).await
    }

    async fn bdat(&mut self, line: &str) -> std::io::Result<()> {
        let length: usize = line.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        while self.buffer.len() < length {
            self.fill().await?;
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        if self.rcpts == 0 {
            // The transaction stays open, as at servers that take this for a command out of turn.
            return self.act(Say::Usual, "503 5.5.1 RCPT first\r\n").await;
        }
        self.end(&String::from_utf8_lossy(&body)).await
    }

    async fn end(&mut self, body: &str) -> std::io::Result<()> {
        let says = (self.script)(self.number, Step::End, body);
        let taken = is_yes(&says);
        (self.mail, self.rcpts) = (false, 0);
        if taken {
            self.server.change(|log| log.bodies.push(body.to_owned()));
        }
        self.act(says, "250 2.0.0 taken\r\n").await
    }

    /// Whether it said yes.
    async fn say(&mut self, step: Step, line: &str, usual: &str) -> std::io::Result<bool> {
        let says = (self.script)(self.number, step, line);
        let yes = is_yes(&says);
        self.act(says, usual).await.map(|()| yes)
    }

    async fn act(&mut self, says: Say, usual: &str) -> std::io::Result<()> {
        let gone = || Err(std::io::ErrorKind::ConnectionAborted.into());
        match says {
            Say::Usual => self.stream.write_all(usual.as_bytes()).await,
            Say::Raw(text) => self.stream.write_all(text.as_bytes()).await,
            Say::RawThenClose(text) => {
                self.stream.write_all(text.as_bytes()).await?;
                gone()
            }
            Say::Close => gone(),
            Say::Silence => loop {
                // The client goes away in the end.
                self.fill().await?;
            },
            Say::Drip => loop {
                self.stream.write_all(b"2").await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            Say::Deaf(text) => {
                self.stream.write_all(text.as_bytes()).await?;
                std::future::pending().await
            }
            Say::Flood => loop {
                self.stream.write_all(&[b'2'; 4096]).await?;
            },
        }
    }

    async fn line(&mut self) -> std::io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.buffer.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

fn is_yes(says: &Say) -> bool {
    match says {
        Say::Usual => true,
        Say::Raw(text) | Say::RawThenClose(text) => text.starts_with("250 "),
        _ => false,
    }
}
