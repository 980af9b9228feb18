//! A gate for tests. There is one set of rules in two forms: [`Shell`] drives a session without I/O, [`Memory`] is a reception.
//!
//! The rules: the local part `refused` is refused as sender and recipient, `later` is refused for now. The user `ann` has the password
//! `secret`, the login of `down` cannot be checked now, and all other logins are wrong. For the sender `full` there is no space for a body.
//! The sink of a message to `breaks` fails. A message that contains `VIRUS` is refused at its end.

use std::sync::{Arc, Mutex};

use weir_core::time::Instant;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::peer::{SmtpPeer, TlsFacts};
use weir_smtp::reception::{Alarm, BodySink, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::sasl::Login;
use weir_smtp::session::{CloseReason, LoginVerdict, MessageAnswer, Output, PolicyVerdict, Question, Session};
use weir_smtp::settings::{Auth, Settings};

/// A message that was accepted, and the peer that brought it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) peer: SmtpPeer,
    pub(crate) envelope: Envelope,
    pub(crate) text: Vec<u8>,
}

impl Kept {
    pub(crate) fn recipients(&self) -> Vec<&str> {
        self.envelope.recipients.iter().map(|to| to.mailbox.as_str()).collect()
    }
}

pub(crate) fn settings() -> Settings {
    Settings { hostname: "mx.example".into(), auth: Auth::Optional, ..Settings::default() }
}

fn judge(mailbox: Option<&Mailbox>) -> PolicyVerdict {
    match mailbox.map(Mailbox::local) {
        Some("refused") => PolicyVerdict::Refuse(Reply::fixed(550, Status(5, 1, 1), "nobody of that name")),
        Some("later") => PolicyVerdict::Refuse(Reply::fixed(450, Status(4, 2, 1), "come back later")),
        _ => PolicyVerdict::Accept,
    }
}

fn judge_login(login: &Login) -> LoginVerdict {
    match login {
        Login::Password { user, password, .. } if &**user == "ann" && password.reveal() == "secret" => {
            LoginVerdict::Accept("ann".into())
        }
        Login::Password { user, .. } if &**user == "down" => {
            LoginVerdict::Unavailable(Reply::fixed(454, Status(4, 7, 0), "cannot check now"))
        }
        Login::Vouched { user } if &**user != "locked" => LoginVerdict::Accept(user.as_ref().into()),
        _ => LoginVerdict::Refuse(Reply::fixed(535, Status(5, 7, 8), "wrong user or password")),
    }
}

fn judge_body(envelope: &Envelope) -> Result<(), Reply> {
    match envelope.sender.mailbox.as_ref().map(Mailbox::local) {
        Some("full") => Err(Reply::fixed(452, Status(4, 3, 1), "no room")),
        _ => Ok(()),
    }
}

fn sink_breaks(envelope: &Envelope) -> bool {
    envelope.recipients.iter().any(|to| to.mailbox.local() == "breaks")
}

const BROKEN: Reply = Reply::fixed(452, Status(4, 3, 1), "the disk is full");

fn judge_message(envelope: &Envelope, text: &[u8]) -> MessageAnswer {
    if text.windows(5).any(|window| window == b"VIRUS") {
        return Reply::fixed(554, Status(5, 7, 1), "a virus").into();
    }
    let each = |to: &RcptTo| match to.mailbox.local() {
        "quota" => Reply::fixed(452, Status(4, 2, 2), "mailbox full"),
        local => Reply::new(250, Status(2, 0, 0), format!("kept for {local}")),
    };
    MessageAnswer::Each(envelope.recipients.iter().map(each).collect())
}

/// Drives a session with these rules, without I/O.
pub(crate) struct Shell {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    pub(crate) kept: Vec<Kept>,
    pub(crate) closed: Option<CloseReason>,
    /// How many messages were dropped while they came in.
    pub(crate) aborted: usize,
    sink: Option<Vec<u8>>,
}

impl Shell {
    pub(crate) fn new(settings: Settings) -> Shell {
        Shell::from(settings, "127.0.0.1:4000")
    }

    pub(crate) fn from(settings: Settings, address: &str) -> Shell {
        let peer = SmtpPeer::new(1, address.parse().unwrap(), "127.0.0.1:25".parse().unwrap());
        let session = Session::new(Arc::new(settings), peer, Instant::ZERO);
        Shell { session, now: Instant::ZERO, kept: Vec::new(), closed: None, aborted: 0, sink: None }
    }

    /// Sends octets in one piece. Returns what the server answered.
    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) -> String {
        let mut input = text.as_ref();
        loop {
            match self.session.poll(&mut input, self.now) {
                Output::NeedInput => break,
                Output::Close(reason) => {
                    self.closed = Some(reason);
                    break;
                }
                Output::StartTls => {
                    // Input that came together with the command must not be kept beyond the handshake.
                    assert_eq!(self.session.poll(&mut input, self.now), Output::Waiting);
                    assert!(input.is_empty());
                    let facts = TlsFacts { version: "TLSv1_3", cipher: "TLS13_AES_256_GCM_SHA384" };
                    self.session.tls_started(facts, self.now);
                }
                Output::Body(text) => self.body(text),
                Output::BodyAborted => {
                    self.aborted += usize::from(self.sink.take().is_some());
                }
                Output::Ask(question) => self.answer(question),
                Output::Waiting => panic!("every question was answered"),
            }
        }
        String::from_utf8(std::mem::take(self.session.replies())).unwrap()
    }

    fn body(&mut self, text: &[u8]) {
        if self.session.envelope().is_some_and(sink_breaks) {
            self.sink = None;
            self.session.body_failed(BROKEN);
        } else {
            self.sink.as_mut().unwrap().extend_from_slice(text);
        }
    }

    fn answer(&mut self, question: Question) {
        let now = self.now;
        match question {
            Question::Login(login) => self.session.login_answered(judge_login(&login), now),
            Question::Client(login) => {
                let verdict = match login.as_ref().map(judge_login) {
                    None => Ok(None),
                    Some(LoginVerdict::Accept(user)) => Ok(Some(user)),
                    Some(_) => Err(Reply::fixed(550, Status(5, 7, 1), "locked")),
                };
                self.session.client_answered(verdict, now);
            }
            Question::Sender(sender) => {
                let verdict = judge(sender.mailbox.as_ref());
                self.session.sender_answered(sender, verdict, now);
            }
            Question::Recipient(to) => {
                let verdict = judge(Some(&to.mailbox));
                self.session.recipient_answered(to, verdict, now);
            }
            Question::BodyBegin => {
                let verdict = judge_body(self.session.envelope().unwrap());
                self.sink = verdict.is_ok().then(Vec::new);
                self.session.body_opened(verdict, now);
            }
            Question::BodyEnd => {
                let (envelope, text) = (self.session.take_envelope().unwrap(), self.sink.take().unwrap());
                let answer = judge_message(&envelope, &text);
                self.kept.push(Kept { peer: self.session.peer().clone(), envelope, text });
                self.session.finished(&answer, now);
            }
        }
    }
}

/// A reception with the same rules, which keeps everything in memory.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) kept: Mutex<Vec<Kept>>,
    pub(crate) alarms: Mutex<Vec<Alarm>>,
    /// Whether it refuses all clients.
    pub(crate) aloof: bool,
}

pub(crate) struct MemorySink {
    text: Vec<u8>,
    breaks: bool,
}

impl BodySink for MemorySink {
    async fn write(&mut self, text: &[u8]) -> Result<(), Reply> {
        if self.breaks {
            return Err(BROKEN);
        }
        self.text.extend_from_slice(text);
        Ok(())
    }
}

impl Reception for Memory {
    type Body = MemorySink;

    async fn connect(&self, _: &SmtpPeer) -> PolicyVerdict {
        if self.aloof {
            PolicyVerdict::Refuse(Reply::fixed(554, Status(5, 7, 1), "not you"))
        } else {
            PolicyVerdict::Accept
        }
    }

    async fn authenticate(&self, _: &SmtpPeer, login: &Login) -> LoginVerdict {
        judge_login(login)
    }

    async fn mail_from(&self, _: &SmtpPeer, sender: &MailFrom) -> PolicyVerdict {
        judge(sender.mailbox.as_ref())
    }

    async fn rcpt_to(&self, _: &SmtpPeer, _: &Envelope, to: &RcptTo) -> PolicyVerdict {
        judge(Some(&to.mailbox))
    }

    async fn begin_body(&self, _: &SmtpPeer, envelope: &Envelope) -> Result<MemorySink, Reply> {
        judge_body(envelope).map(|()| MemorySink { text: Vec::new(), breaks: sink_breaks(envelope) })
    }

    async fn finish(&self, peer: &SmtpPeer, envelope: Envelope, body: MemorySink) -> MessageAnswer {
        let answer = judge_message(&envelope, &body.text);
        self.kept.lock().unwrap().push(Kept { peer: peer.clone(), envelope, text: body.text });
        answer
    }

    fn alarm(&self, alarm: &Alarm) {
        self.alarms.lock().unwrap().push(alarm.clone());
    }
}
