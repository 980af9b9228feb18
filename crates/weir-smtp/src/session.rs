//! One SMTP or LMTP session as a state machine without I/O.
//!
//! The code around it, called the shell, feeds input to [`Session::poll`] and carries out what that returns: it sends
//! [`Session::replies`] whenever more input is needed, asks its [`super::reception::Reception`] if there is a question, and answers by the
//! method that is named at the question. `now` is passed in; [`Session::deadline`] says when to call [`Session::timeout`].
//!
//! Invariants: it does not matter how the input was cut into pieces. Message text is handed on as slices of the input and never stored.
//! Memory is bounded by [`SmtpLimits`](super::limits::SmtpLimits): one command line, the replies to one input, and the envelope. Input
//! after STARTTLS is dropped until the handshake is done. After [`Output::Close`] nothing is carried out. Sources: RFC 5321, 2033 (LMTP),
//! 2920, 3030, 3207, 3461, 4954, 6531.

mod greeting;
mod login;
mod message;
mod transaction;

use std::fmt;
use std::sync::Arc;

use weir_core::time::Instant;

use super::command::Command;
use super::envelope::{Envelope, MailFrom, RcptTo};
use super::line::{Line, LineReader};
use super::peer::{Dialect, Forwarded, SmtpPeer, TlsFacts};
use super::reply::{Reply, Status};
use super::sasl::{Exchange, Login};
use super::settings::{Protocol, Settings};
use message::{Body, Chunk};

pub use message::MessageAnswer;

/// A session.
pub struct Session {
    settings: Arc<Settings>,
    peer: SmtpPeer,
    state: State,
    transaction: Option<Envelope>,
    body: Option<Body>,
    forwarded: Option<Box<Forwarded>>,
    lines: LineReader,
    replies: Vec<u8>,
    tally: SessionCounts,
    started: Instant,
    /// When the present wait for the client began.
    since: Instant,
    /// If set, the session ends with this reply instead of reading the next command.
    ending: Option<Reply>,
}

/// What the shell has to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// The input is used up: send the replies, then read.
    NeedInput,
    /// A question has not been answered yet.
    Waiting,
    /// Send the replies, drop all input, shake hands; then [`Session::tls_started`].
    StartTls,
    /// A question that must be answered before anything else happens.
    Ask(Question),
    /// A part of the message's text.
    Body(&'a [u8]),
    /// The message is refused: drop the part that came in. No answer is expected.
    BodyAborted,
    /// Send the replies and close.
    Close(CloseReason),
}

/// A question to the shell.
#[derive(Debug, PartialEq, Eq)]
pub enum Question {
    /// Is the login right? Answer with [`Session::login_answered`].
    Login(Login),
    /// A listed peer named the true client (see [`Session::peer`]), and perhaps a user. Answer with [`Session::client_answered`].
    Client(Option<Login>),
    /// May this sender send? Answer with [`Session::sender_answered`].
    Sender(MailFrom),
    /// May it write to this recipient? Answer with [`Session::recipient_answered`].
    Recipient(RcptTo),
    /// A message is about to come. Answer with [`Session::body_opened`].
    BodyBegin,
    /// The message is complete: [`Session::take_envelope`], make it safe, answer with [`Session::finished`].
    BodyEnd,
}

/// The shell's answer about a sender, a recipient or a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyVerdict {
    /// Go on.
    Accept,
    /// Refuse with this reply.
    Refuse(Reply),
}

/// The shell's answer about a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoginVerdict {
    /// The client is this user.
    Accept(Arc<str>),
    /// Wrong, locked or unknown. This counts as a failed login.
    Refuse(Reply),
    /// It cannot be decided now (4xx). This does not count.
    Unavailable(Reply),
    /// Refuse and end the session, for example because the address has been banned.
    RefuseAndClose(Reply),
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// The client said QUIT.
    Quit,
    /// The client was too slow.
    Timeout,
    /// Too many wrong commands, or refused recipients.
    Errors,
    /// Too many commands, or too many that bring no mail.
    Commands,
    /// Too many failed logins.
    Logins,
    /// A line, or a refused message, that does not end.
    Endless,
    /// It was not SMTP, or could no longer be understood.
    NotSmtp,
    /// The server ended it: shutdown, or the user was locked.
    Ended,
    /// The shell refused the client.
    Refused,
    /// The client closed the connection without QUIT. Only the server reports this, never the session.
    Gone,
}

/// When to end a session that the server no longer wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Now, even inside a message.
    AtOnce,
    /// After the message that is coming in has been answered.
    AfterMessage,
}

/// What the session waits for.
///
/// ```text
/// Command → Sasl → Asked → Command              AUTH
/// Command → Handshake → Command                 STARTTLS
/// Command → Asked → Command                     MAIL, RCPT, XCLIENT
/// Command → Asked → Data → Asked → Command      DATA
/// Command → (Asked →) Chunk → (Asked →) Command BDAT
/// any → Closed
/// ```
#[derive(Debug)]
enum State {
    /// The next command line.
    Command,
    /// The next line of the login exchange.
    Sasl(Exchange),
    /// The end of the TLS handshake, which the shell does.
    Handshake,
    /// Message text, up to the final dot.
    Data,
    /// The octets of a BDAT chunk.
    Chunk(Chunk),
    /// The shell's answer.
    Asked(Pending),
    /// Nothing any more.
    Closed(CloseReason),
}

/// What the shell was asked, and what the session needs to go on afterwards.
#[derive(Debug)]
enum Pending {
    Login,
    Client {
        peer: Box<SmtpPeer>,
    },
    Sender,
    Recipient,
    /// Afterwards comes the text in the form of DATA, or this chunk.
    Open(Option<Chunk>),
    /// How many replies are due.
    Finish {
        recipients: usize,
    },
}

#[derive(Debug, Default)]
struct SessionCounts {
    commands: u32,
    errors: u32,
    junk: u32,
    refused_recipients: u32,
    failed_logins: u32,
}

/// If this many octets of replies wait, they are sent before more input is read.
const REPLIES_MAX: usize = 4_096;

impl Session {
    /// A session with its greeting ready to send.
    pub fn new(settings: Arc<Settings>, peer: SmtpPeer, now: Instant) -> Session {
        let mut session = Session {
            settings,
            peer,
            state: State::Command,
            transaction: None,
            body: None,
            forwarded: None,
            lines: LineReader::default(),
            replies: Vec::new(),
            tally: SessionCounts::default(),
            started: now,
            since: now,
            ending: None,
        };
        session.greet();
        session
    }

    /// The next thing to do with `input`, which is advanced past the part that was used.
    pub fn poll<'a>(&mut self, input: &mut &'a [u8], now: Instant) -> Output<'a> {
        loop {
            let output = match &self.state {
                State::Closed(reason) => {
                    *input = &[];
                    Some(Output::Close(*reason))
                }
                State::Handshake => {
                    *input = &[];
                    Some(Output::Waiting)
                }
                State::Asked(_) => Some(Output::Waiting),
                _ if input.is_empty() && !self.chunk_is_complete() => Some(Output::NeedInput),
                State::Command | State::Sasl(_) => self.poll_line(input, now),
                State::Data => self.poll_data(input, now),
                State::Chunk(_) => self.poll_chunk(input, now),
            };
            if let Some(output) = output {
                return output;
            }
        }
    }

    /// Replies that were not sent yet. The shell empties this.
    pub fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }

    /// Whether so many replies wait that they should be sent before going on.
    pub fn replies_pressing(&self) -> bool {
        self.replies.len() >= REPLIES_MAX
    }

    /// The client at the other end.
    pub fn peer(&self) -> &SmtpPeer {
        &self.peer
    }

    /// The settings of the session.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The envelope so far, between MAIL and the end of the message.
    pub fn envelope(&self) -> Option<&Envelope> {
        self.transaction.as_ref()
    }

    /// When to call [`Session::timeout`]. While the shell owes an answer, the session does not time out.
    pub fn deadline(&self) -> Instant {
        let limits = &self.settings.limits;
        match &self.state {
            State::Command | State::Sasl(_) => {
                let first = self.tally.commands == 0;
                let wait = if first { limits.first_command } else { limits.command };
                (self.since + wait).min(self.started + limits.session_total)
            }
            State::Data | State::Chunk(_) => {
                let begun = self.body.as_ref().map_or(self.since, |body| body.started);
                (self.since + limits.data_block).min(begun + limits.data_total)
            }
            State::Handshake | State::Asked(_) | State::Closed(_) => Instant::NEVER,
        }
    }

    /// Checks whether the deadline has passed. If so, replies 421 and closes.
    pub fn timeout(&mut self, now: Instant) {
        if now < self.deadline() {
            return;
        }
        let reply = match self.state {
            State::Data | State::Chunk(_) => Reply::fixed(421, Status(4, 4, 2), "the message came too slowly; closing"),
            _ if now >= self.started + self.settings.limits.session_total => {
                Reply::fixed(421, Status(4, 4, 2), "this session has lasted too long; please connect again")
            }
            _ => Reply::fixed(421, Status(4, 4, 2), "no command for too long; closing"),
        };
        self.close(&reply, CloseReason::Timeout);
    }

    /// Ends the session because the server wants that. `reply` gives the reason.
    pub fn end(&mut self, reply: Reply, when: Ending) {
        match self.state {
            State::Closed(_) => {}
            State::Asked(_) => self.ending = Some(reply),
            State::Data | State::Chunk(_) if when == Ending::AfterMessage => self.ending = Some(reply),
            _ if when == Ending::AfterMessage && self.body.is_some() => self.ending = Some(reply),
            _ => self.close(&reply, CloseReason::Ended),
        }
    }

    /// Notes that a handshake is done. After STARTTLS the client must greet again; under implicit TLS the session begins.
    pub fn tls_started(&mut self, facts: TlsFacts, now: Instant) {
        match self.state {
            State::Handshake => {
                self.peer.forget_greeting();
                self.reset();
                self.lines.clear();
            }
            State::Command if self.peer.tls.is_none() && self.tally.commands == 0 => {}
            _ => return,
        }
        self.peer.tls = Some(facts);
        self.back_to_commands(now);
    }

    /// How many octets of memory are held. For tests of the bounds.
    pub fn buffered(&self) -> usize {
        let recipients = self.transaction.as_ref().map_or(0, |envelope| envelope.recipients.len());
        self.lines.buffered() + self.replies.len() + recipients * size_of::<RcptTo>()
    }

    fn poll_line<'a>(&mut self, input: &mut &'a [u8], now: Instant) -> Option<Output<'a>> {
        let limits = &self.settings.limits;
        let (max, discard_max) = (limits.command_line_bytes as usize, limits.discard_bytes);
        match self.lines.next(input, max, discard_max) {
            Line::More => Some(Output::NeedInput),
            Line::Whole(line) => self.line(line, now),
            Line::Joined => {
                let line = self.lines.take();
                let output = self.line(&line, now);
                self.lines.put_back(line);
                output
            }
            Line::Bad => self.unusable_line(&BAD_LINE, now),
            Line::TooLong if matches!(self.state, State::Sasl(_)) => self.unusable_line(&LONG_SASL, now),
            Line::TooLong => self.unusable_line(&LONG_LINE, now),
            Line::Endless => self.close_with(&LONG_LINE, CloseReason::Endless),
        }
    }

    fn line(&mut self, line: &[u8], now: Instant) -> Option<Output<'static>> {
        self.since = now;
        if let State::Sasl(exchange) = &mut self.state {
            let exchange = std::mem::replace(exchange, Exchange::Plain);
            self.state = State::Command;
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            return self.login_step(exchange.respond(line));
        }
        if !self.count_command() {
            return None;
        }
        match Command::parse(line) {
            Ok(command) => self.command(command, now),
            Err(reply) => self.error(&reply),
        }
    }

    fn unusable_line(&mut self, reply: &Reply, now: Instant) -> Option<Output<'static>> {
        self.since = now;
        self.state = State::Command;
        if self.count_command() { self.error(reply) } else { None }
    }

    fn command(&mut self, command: Command<'_>, now: Instant) -> Option<Output<'static>> {
        match command {
            Command::Mail(text) => self.mail(text),
            Command::Rcpt(text) => self.rcpt(text),
            Command::Data => self.data(now),
            Command::Bdat { bytes, last } => self.bdat(bytes, last, now),
            Command::BadBdat => self.close_with(&BAD_BDAT, CloseReason::NotSmtp),
            Command::Quit => self.close_with(&BYE, CloseReason::Quit),
            Command::Http => self.close_with(&NOT_HTTP, CloseReason::NotSmtp),
            other => self.junk_command(other),
        }
    }

    /// Carries out a command that brings no mail by itself. Too many of these are abuse.
    fn junk_command(&mut self, command: Command<'_>) -> Option<Output<'static>> {
        self.tally.junk += 1;
        if self.tally.junk > self.settings.limits.junk_commands {
            return self.close_with(&TOO_MUCH_JUNK, CloseReason::Commands);
        }
        match command {
            Command::Helo(name) => self.helo(&name, Dialect::Smtp),
            Command::Ehlo(name) => self.helo(&name, Dialect::Esmtp),
            Command::Lhlo(name) => self.helo(&name, Dialect::Lmtp),
            Command::StartTls => self.starttls(),
            Command::Auth { mechanism, initial } => self.auth(mechanism, initial.as_deref()),
            Command::XClient(text) => self.xclient(text),
            Command::XForward(text) => self.xforward(text),
            Command::Rset => {
                self.reset();
                self.say(&Reply::fixed(250, Status(2, 0, 0), "forgotten"))
            }
            Command::Vrfy => self.say(&Reply::fixed(252, Status(2, 5, 2), "cannot verify; send it and see")),
            Command::Help => self.help(),
            _ => self.say(&Reply::fixed(250, Status(2, 0, 0), "ok")),
        }
    }

    fn count_command(&mut self) -> bool {
        self.tally.commands = self.tally.commands.saturating_add(1);
        let within = self.tally.commands <= self.settings.limits.commands;
        if !within {
            self.close(&TOO_MANY_COMMANDS, CloseReason::Commands);
        }
        within
    }

    fn say(&mut self, reply: &Reply) -> Option<Output<'static>> {
        reply.write_to(&mut self.replies);
        None
    }

    /// Replies to a command that was wrong. Too many of these end the session.
    fn error(&mut self, reply: &Reply) -> Option<Output<'static>> {
        self.say(reply);
        self.tally.errors += 1;
        if self.tally.errors >= self.settings.limits.errors {
            self.close(&TOO_MANY_ERRORS, CloseReason::Errors);
        }
        None
    }

    fn out_of_sequence(&mut self, hint: &'static str) -> Option<Output<'static>> {
        self.error(&Reply::fixed(503, Status(5, 5, 1), hint))
    }

    fn ask(&mut self, question: Pending) {
        self.state = State::Asked(question);
    }

    fn close(&mut self, reply: &Reply, reason: CloseReason) {
        self.say(reply);
        self.reset();
        self.state = State::Closed(reason);
    }

    fn close_with(&mut self, reply: &Reply, reason: CloseReason) -> Option<Output<'static>> {
        self.close(reply, reason);
        None
    }

    /// Waits for the next command, unless the session is to end now.
    fn back_to_commands(&mut self, now: Instant) {
        self.since = now;
        self.state = State::Command;
        if self.body.is_none()
            && let Some(reply) = self.ending.take()
        {
            self.close(&reply, CloseReason::Ended);
        }
    }

    /// Forgets the transaction.
    fn reset(&mut self) {
        self.transaction = None;
        self.body = None;
        self.forwarded = None;
    }

    fn is_lmtp(&self) -> bool {
        self.settings.protocol == Protocol::Lmtp
    }

    /// Whether XCLIENT and XFORWARD are allowed. A client that was named by XCLIENT does not get this right from its proxy's address.
    fn is_trusted(&self) -> bool {
        self.settings.trusts(self.peer.socket.ip()) && self.settings.trusts(self.peer.client)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("peer", &self.peer).field("state", &self.state).finish_non_exhaustive()
    }
}

const BYE: Reply = Reply::fixed(221, Status(2, 0, 0), "goodbye");
const NOT_HTTP: Reply = Reply::fixed(554, Status(5, 7, 0), "this is a mail server, not a web server; closing");
const BAD_LINE: Reply =
    Reply::fixed(500, Status(5, 5, 2), "a command must end with CR LF and hold no other control characters");
const LONG_LINE: Reply = Reply::fixed(500, Status(5, 5, 2), "the line is too long");
const LONG_SASL: Reply = Reply::fixed(500, Status(5, 5, 6), "the line is too long; login cancelled");
const BAD_BDAT: Reply =
    Reply::fixed(501, Status(5, 5, 4), "usage: BDAT size [LAST]; closing, since the chunk's end is unknown");
const TOO_MANY_ERRORS: Reply = Reply::fixed(421, Status(4, 7, 0), "too many errors; closing");
const TOO_MUCH_JUNK: Reply = Reply::fixed(421, Status(4, 7, 0), "too many commands without any mail; closing");
const TOO_MANY_COMMANDS: Reply =
    Reply::fixed(421, Status(4, 7, 0), "too many commands in one session; please connect again");
