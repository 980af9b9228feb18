//! A session with a server: connects, greets, starts TLS and logs in as required; then sends one message after another.
//!
//! Whatever goes wrong before a message is mentioned is an [`OpenError`], and not the fault of any message. A session that broke is not
//! used again. If a session that was reused turns out to be dead before the server heard of the message, that is [`Delivered::stale`], and
//! the message can be sent through a new session at once.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::approach::{Approach, Host, Patience, ServerAddress};
use super::auth;
use super::capabilities::{Capabilities, announced_name};
use super::command::{self, Manner};
use super::content::{BodySource, Content, ContentParts};
use super::proof::{Proof, by_records};
use super::reply::{Reply, ReplyError};
use super::stuffing::Stuffing;
use super::tls::{ClientTls, TlsLevel};
use super::transaction::{Next, Terms, Transaction};
use super::wire::{SmtpStream, Wire, WireError};
use crate::envelope::{MailFrom, RcptTo};
use crate::outcome::{DeliveryOutcome, Fate, Status};

/// How much is gathered before it is written.
const WRITE_BYTES: usize = 64 << 10;

/// The capacity of its buffer that a session keeps between messages.
const OUT_KEPT: usize = 16 << 10;

/// A session that is ready for messages.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    offered: Capabilities,
    peer: Arc<str>,
    lmtp: bool,
    patience: Patience,
    messages: u32,
    opened: Instant,
    /// Whether the server still has an envelope whose message was not sent.
    unclean: bool,
    out: Vec<u8>,
}

/// A message and its recipients, for one session.
#[derive(Debug)]
pub struct Parcel<'a> {
    /// MAIL FROM.
    pub sender: &'a MailFrom,
    /// RCPT TO, in their order.
    pub recipients: &'a [&'a RcptTo],
    /// What MAIL declares.
    pub manner: Manner,
}

/// The result of delivering a message.
#[derive(Debug)]
pub struct Delivered {
    /// One for each recipient, in their order.
    pub outcomes: Vec<DeliveryOutcome>,
    /// Whether the session cannot be used again.
    pub broken: bool,
    /// Whether the session had been idle and was dead, so that the server heard nothing about the message.
    pub stale: bool,
}

impl Session {
    /// Opens a session with a server. `hello` is our own name.
    pub async fn open(host: &Host, approach: &Approach, tls: &ClientTls, hello: &str) -> Result<Session, OpenError> {
        let mut opening = Opening { host, approach, tls, hello, peer: host.to_string().into() };
        opening.open().await
    }

    /// The server's name, as outcomes show it.
    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// What the server offers.
    pub fn offered(&self) -> Capabilities {
        self.offered
    }

    /// How many messages were sent through it.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// When it was opened.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.wire.is_encrypted()
    }

    /// Returns when the server says something unasked or closes the connection. Then the session is useless.
    pub async fn disturbed(&mut self) {
        self.wire.disturbed().await;
    }

    /// Sends QUIT, without waiting for the answer.
    pub async fn quit(mut self) {
        // The server may be gone already, and that does not matter.
        let _ = self.wire.send(b"QUIT\r\n", std::time::Duration::from_secs(1)).await;
    }

    /// Asks whether the server accepts mail for this recipient, without sending any. The sender is `<>`, as in a bounce: if the server
    /// refused our address as the sender, that would not be the recipient's fault.
    pub async fn would_take(&mut self, to: &RcptTo) -> Result<DeliveryOutcome, DeliveryOutcome> {
        let smtputf8 = to.mailbox.is_international() && self.offered.smtputf8;
        let manner = Manner { smtputf8, ..Manner::default() };
        let plain = Capabilities { size: false, dsn: false, ..self.offered };
        let (mut mail, mut rcpt) = (Vec::new(), Vec::new());
        command::write_mail(&mut mail, &MailFrom::default(), manner, plain);
        command::write_rcpt(&mut rcpt, to, manner, plain);
        let sender = self.exchange(&mail).await?;
        if !sender.is_success() {
            return Err(sender.outcome(&self.peer).softened());
        }
        self.unclean = true;
        let recipient = self.exchange(&rcpt).await?;
        match recipient.outcome(&self.peer) {
            outcome if outcome.fate == Fate::Temporary => Err(outcome),
            outcome => Ok(outcome),
        }
    }

    async fn exchange(&mut self, command: &[u8]) -> Result<Reply, DeliveryOutcome> {
        let within = self.patience.command;
        let exchanged = match self.wire.send(command, within).await {
            Ok(()) => self.wire.reply(within).await,
            Err(error) => Err(error),
        };
        exchanged.map_err(|error| wire_outcome(&error, "when asked about a recipient", &self.peer))
    }

    /// Delivers one message.
    pub async fn deliver<B: BodySource>(&mut self, parcel: &Parcel<'_>, content: Content<B>) -> Delivered {
        let reused = self.messages > 0;
        self.messages = self.messages.saturating_add(1);
        let peer = Arc::clone(&self.peer);
        let terms = Terms {
            sender: parcel.sender,
            recipients: parcel.recipients,
            manner: parcel.manner,
            offered: self.offered,
            lmtp: self.lmtp,
            bdat: self.offered.chunking && self.offered.pipelining && content.is_whole(),
            peer: &peer,
        };
        let mut transaction = Transaction::new(terms);
        let carried = self.carry(&mut transaction, content, terms.bdat).await;
        // If the server heard nothing about the message, or only said that it is closing the connection, a new session can be used.
        let unsaid = transaction.is_unheard() && !matches!(carried, Err(MessageError::Body(_)));
        let (mut broken, stale) = (carried.is_err(), reused && (unsaid || transaction.is_dismissed()));
        self.unclean = transaction.needs_reset();
        let otherwise = carried
            .err()
            .map_or_else(|| DeliveryOutcome::temporary(Status(4, 5, 0), "no answer"), |trouble| trouble.outcome(&peer));
        let outcomes = transaction.into_outcomes(&otherwise);
        broken |= outcomes.iter().any(|outcome| outcome.code == Some(421));
        self.out.clear();
        self.out.shrink_to(OUT_KEPT);
        Delivered { outcomes, broken, stale }
    }

    async fn carry<B: BodySource>(
        &mut self,
        transaction: &mut Transaction<'_>,
        content: Content<B>,
        bdat: bool,
    ) -> Result<(), MessageError> {
        self.reset().await?;
        let mut content = Some(content);
        loop {
            self.out.clear();
            let next = transaction.next(&mut self.out);
            if let Some(Content::Whole(parts)) = content.take_if(|_| bdat) {
                self.append_bdat(&parts);
            }
            match next {
                Next::Reply => {
                    self.flush().await?;
                    let within = if content.is_none() { self.patience.end } else { self.patience.command };
                    let reply = self.wire.reply(within).await?;
                    transaction.reply(&reply);
                }
                Next::Body { wanted } => {
                    let body = content.take().filter(|_| wanted);
                    self.send_body(body, transaction).await?;
                    transaction.body_sent();
                }
                Next::HangUp => return Err(MessageError::Wire(WireError::Nonsense(ReplyError::Senseless))),
                Next::Over => return Ok(()),
            }
        }
    }

    /// Makes the server forget an envelope whose message was not sent.
    async fn reset(&mut self) -> Result<(), MessageError> {
        if !std::mem::take(&mut self.unclean) {
            return Ok(());
        }
        self.wire.send(b"RSET\r\n", self.patience.command).await?;
        let reply = self.wire.reply(self.patience.command).await?;
        if reply.is_success() { Ok(()) } else { Err(MessageError::Refused(reply)) }
    }

    fn append_bdat(&mut self, parts: &ContentParts<impl Deref<Target = [u8]>>) {
        let (mut stuffing, mut text) = (Stuffing::default(), Vec::with_capacity(parts.length() + 64));
        parts.iter().for_each(|part| stuffing.normalise(part, &mut text));
        stuffing.end_line(&mut text);
        self.out.extend_from_slice(format!("BDAT {} LAST\r\n", text.len()).as_bytes());
        self.out.append(&mut text);
    }

    async fn send_body<B: BodySource>(
        &mut self,
        body: Option<Content<B>>,
        transaction: &mut Transaction<'_>,
    ) -> Result<(), MessageError> {
        let mut stuffing = Stuffing::default();
        match body {
            None => {}
            Some(Content::Whole(parts)) => parts.iter().for_each(|part| stuffing.stuff(part, &mut self.out)),
            Some(Content::Stream { head, mut rest, .. }) => {
                stuffing.stuff(&head, &mut self.out);
                while let Some(piece) = rest.next().await.map_err(|error| MessageError::Body(error.into()))? {
                    stuffing.stuff(&piece, &mut self.out);
                    if self.out.len() >= WRITE_BYTES {
                        self.flush_body(transaction).await?;
                    }
                }
            }
        }
        stuffing.finish(&mut self.out);
        self.flush_body(transaction).await
    }

    /// Sends the part of the body that was gathered. If that fails, the server may have given the reason in a reply.
    async fn flush_body(&mut self, transaction: &mut Transaction<'_>) -> Result<(), MessageError> {
        let Err(error) = self.wire.send(&self.out, self.patience.block).await else {
            self.out.clear();
            return Ok(());
        };
        if let Ok(reply) = self.wire.reply(std::time::Duration::from_secs(1)).await
            && !reply.is_success()
        {
            transaction.body_sent();
            transaction.reply(&reply);
        }
        Err(MessageError::Wire(error))
    }

    async fn flush(&mut self) -> Result<(), MessageError> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.wire.send(&self.out, self.patience.block).await.map_err(MessageError::Wire)
    }
}

/// What can go wrong while a message is sent.
#[derive(Debug)]
enum MessageError {
    Wire(WireError),
    /// The body cannot be read.
    Body(DeliveryOutcome),
    Refused(Reply),
}

impl From<WireError> for MessageError {
    fn from(error: WireError) -> MessageError {
        MessageError::Wire(error)
    }
}

impl MessageError {
    fn outcome(&self, peer: &Arc<str>) -> DeliveryOutcome {
        match self {
            MessageError::Wire(error) => wire_outcome(error, "in the middle of the message", peer),
            MessageError::Body(outcome) => outcome.clone(),
            MessageError::Refused(reply) => reply.outcome(peer).softened(),
        }
    }
}

fn wire_outcome(error: &WireError, when: &str, peer: &Arc<str>) -> DeliveryOutcome {
    let status = match error {
        WireError::Silent | WireError::Slow => Status(4, 4, 1),
        WireError::Broke(_) | WireError::Ended => Status(4, 4, 2),
        WireError::Nonsense(_) => Status(4, 5, 0),
    };
    DeliveryOutcome::temporary(status, &format!("{error} {when}")).by(peer)
}

/// A session that is being opened.
struct Opening<'a> {
    host: &'a Host,
    approach: &'a Approach,
    tls: &'a ClientTls,
    hello: &'a str,
    peer: Arc<str>,
}

impl Opening<'_> {
    async fn open(&mut self) -> Result<Session, OpenError> {
        let mut wire = self.connect().await?;
        let greeting = self.heard(wire.reply(self.approach.patience.greeting).await, "before its greeting")?;
        self.expect(&greeting, greeting.is_success())?;
        let mut offered = self.say_hello(&mut wire).await?;
        if !wire.is_encrypted() && self.level() != TlsLevel::Off && !matches!(self.host.place, ServerAddress::Unix(_)) {
            (wire, offered) = self.encrypt(wire, offered).await?;
        }
        if let Some(login) = &self.approach.login {
            let safe = wire.is_encrypted() || wire.is_local();
            auth::log_in(&mut wire, login, offered, safe, self.approach.patience.command)
                .await
                .map_err(|error| OpenError::new(OpenFault::Login, error.outcome(&self.peer)))?;
        }
        let (lmtp, patience, peer) = (self.approach.lmtp, self.approach.patience, Arc::clone(&self.peer));
        let out = Vec::with_capacity(8 << 10);
        Ok(Session { wire, offered, peer, lmtp, patience, messages: 0, opened: Instant::now(), unclean: false, out })
    }

    async fn connect(&self) -> Result<Wire, OpenError> {
        let within = self.approach.patience.connect;
        let stream = match &self.host.place {
            ServerAddress::Tcp(address) => {
                timeout(within, TcpStream::connect(address)).await.map(|tcp| tcp.map(SmtpStream::Tcp))
            }
            ServerAddress::Unix(path) => {
                timeout(within, UnixStream::connect(path)).await.map(|unix| unix.map(SmtpStream::Unix))
            }
        };
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.unreachable(&format!("cannot connect: {error}"))),
            Err(_) => return Err(self.unreachable("cannot connect: no answer in time")),
        };
        if let SmtpStream::Tcp(tcp) = &stream {
            // Without this, small writes wait for the peer's acknowledgement. If it fails, delivery only takes longer.
            let _ = tcp.set_nodelay(true);
        }
        match stream {
            SmtpStream::Tcp(tcp) if self.approach.implicit_tls => self.handshake(tcp).await,
            stream => Ok(Wire::new(stream)),
        }
    }

    /// Sends EHLO, or HELO if an old server does not know EHLO.
    async fn say_hello(&self, wire: &mut Wire) -> Result<Capabilities, OpenError> {
        let verb = if self.approach.lmtp { "LHLO" } else { "EHLO" };
        let reply = self.ask(wire, &format!("{verb} {}\r\n", self.hello)).await?;
        if reply.is_success() {
            self.not_ourselves(&reply)?;
            return Ok(Capabilities::parse(&reply));
        }
        let old = !self.approach.lmtp && matches!(reply.code, 500..=504);
        if !old {
            return Err(self.refused(&reply));
        }
        let reply = self.ask(wire, &format!("HELO {}\r\n", self.hello)).await?;
        self.expect(&reply, reply.is_success())?;
        self.not_ourselves(&reply)?;
        Ok(Capabilities::default())
    }

    /// A server with our own name is ourselves, and the mail would go round in circles.
    fn not_ourselves(&self, reply: &Reply) -> Result<(), OpenError> {
        if !self.host.by_dns || !announced_name(reply).eq_ignore_ascii_case(self.hello) {
            return Ok(());
        }
        let outcome =
            DeliveryOutcome::permanent(Status(5, 4, 6), "the server bears our own name: the mail loops back to us");
        Err(OpenError::new(OpenFault::Loop, outcome.by(&self.peer)))
    }

    async fn encrypt(&self, mut wire: Wire, offered: Capabilities) -> Result<(Wire, Capabilities), OpenError> {
        let optional = self.level() == TlsLevel::Opportunistic;
        if !offered.starttls {
            return if optional { Ok((wire, offered)) } else { Err(self.tls_error("the server does not offer TLS")) };
        }
        let reply = self.ask(&mut wire, "STARTTLS\r\n").await?;
        if !reply.is_success() {
            let text = format!("the server offers TLS and refuses it: {} {}", reply.code, reply.text);
            return if optional { Ok((wire, offered)) } else { Err(self.tls_error(&text)) };
        }
        if wire.has_unread() {
            // Somebody in between sent this before the handshake, so that it would be taken for the server's words later.
            return Err(self.tls_error("there was more before the TLS handshake than the server's reply"));
        }
        let tcp = wire.into_tcp().ok_or_else(|| self.tls_error("TLS is possible on TCP only"))?;
        let mut wire = self.handshake(tcp).await?;
        let offered = self.say_hello(&mut wire).await?;
        Ok((wire, offered))
    }

    async fn handshake(&self, tcp: TcpStream) -> Result<Wire, OpenError> {
        let name = ServerName::try_from(self.host.name.to_string());
        let name = name.map_err(|_| self.tls_error("the host's name cannot be used for TLS"))?;
        let config = match &self.host.proof {
            Proof::Dane(records) => by_records(records).map_err(|error| self.tls_error(&error.to_string()))?,
            _ => self.tls.config(self.level()),
        };
        let connector = TlsConnector::from(config);
        match timeout(self.approach.patience.handshake, connector.connect(name, tcp)).await {
            Ok(Ok(stream)) => Ok(Wire::new(SmtpStream::Tls(Box::new(stream)))),
            Ok(Err(error)) => Err(self.tls_error(&format!("the TLS handshake failed: {error}"))),
            Err(_) => Err(self.tls_error("the TLS handshake took too long")),
        }
    }

    /// How much TLS is required for this server.
    fn level(&self) -> TlsLevel {
        match (&self.host.proof, self.approach.tls) {
            (Proof::AsAsked, level) => level,
            (_, TlsLevel::Verified) | (Proof::Name, _) => TlsLevel::Verified,
            (Proof::Encryption | Proof::Dane(_), _) => TlsLevel::Required,
        }
    }

    async fn ask(&self, wire: &mut Wire, command: &str) -> Result<Reply, OpenError> {
        let within = self.approach.patience.command;
        self.heard(wire.send(command.as_bytes(), within).await, "before the first message")?;
        self.heard(wire.reply(within).await, "before the first message")
    }

    fn heard<T>(&self, result: Result<T, WireError>, when: &str) -> Result<T, OpenError> {
        result.map_err(|error| OpenError::new(OpenFault::Unreachable, wire_outcome(&error, when, &self.peer)))
    }

    fn expect(&self, reply: &Reply, right: bool) -> Result<(), OpenError> {
        if right { Ok(()) } else { Err(self.refused(reply)) }
    }

    fn refused(&self, reply: &Reply) -> OpenError {
        OpenError::new(OpenFault::Refused, reply.outcome(&self.peer).softened())
    }

    fn unreachable(&self, text: &str) -> OpenError {
        OpenError::new(OpenFault::Unreachable, DeliveryOutcome::temporary(Status(4, 4, 1), text).by(&self.peer))
    }

    fn tls_error(&self, text: &str) -> OpenError {
        OpenError::new(OpenFault::Tls, DeliveryOutcome::temporary(Status(4, 7, 5), text).by(&self.peer))
    }
}

/// Why a session could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{outcome}")]
pub struct OpenError {
    /// What kind of failure it was.
    pub fault: OpenFault,
    /// The outcome for the mail that waits.
    pub outcome: DeliveryOutcome,
}

/// What kind of failure it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFault {
    /// There is no connection, or it broke.
    Unreachable,
    /// The server refuses us.
    Refused,
    /// TLS is required but could not be set up.
    Tls,
    /// The login failed.
    Login,
    /// The server is this server itself.
    Loop,
}

impl OpenError {
    fn new(fault: OpenFault, outcome: DeliveryOutcome) -> OpenError {
        OpenError { fault, outcome }
    }
}
