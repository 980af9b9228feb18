//! Entry point for fuzzers: a session with arbitrary input, arbitrary cuts and arbitrary answers.
//!
//! The first octets of the data choose settings, cuts and answers; the rest is what the client sends. Panics if an invariant of
//! [`crate::session`] is broken: memory is bounded, the session makes progress, it is silent after its end, and the transcript does not
//! depend on the cuts.

use std::sync::Arc;
use std::time::Duration;

use weir_core::time::Instant;

use crate::limits::SmtpLimits;
use crate::peer::{SmtpPeer, TlsFacts};
use crate::reply::{Reply, Status};
use crate::session::{CloseReason, LoginVerdict, MessageAnswer, Output, PolicyVerdict, Question, Session};
use crate::settings::{Auth, AuthWithoutTls, Protocol, Settings};

/// Everything that the client and the gate saw in a run. It must not depend on how the input was cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript {
    /// What was sent to the client.
    pub replies: Vec<u8>,
    /// The questions that were asked, as text.
    pub questions: Vec<String>,
    /// Messages that were completed.
    pub messages: Vec<Vec<u8>>,
    /// How it ended, if it did.
    pub closed: Option<CloseReason>,
}

/// How many octets choose settings and answers.
const HEADER: usize = 10;

/// Runs one session on arbitrary data.
pub fn session(data: &[u8]) -> Transcript {
    let Some((header, input)) = data.split_at_checked(HEADER) else { return Transcript::default() };
    let seed = header.iter().fold(0x9e37_79b9_7f4a_7c15, |seed: u64, &byte| seed.rotate_left(7) ^ u64::from(byte));
    let settings = Arc::new(settings(header.first().copied().unwrap_or(0)));
    let whole = run(&settings, input, &mut |_| usize::MAX, seed);
    let mut cuts = Dice(seed ^ 0xabcdef);
    let cut = run(&settings, input, &mut |_| 1 + cuts.below(40), seed);
    assert_eq!(whole, cut, "the cuts changed what happened");
    if header.get(1).is_some_and(|byte| byte % 8 == 0) {
        run_with_failing_sink(&settings, input, seed);
    }
    whole
}

/// Feeds `input` in pieces whose sizes come from `cut`. Each answer is drawn from `seed`.
pub fn run(settings: &Arc<Settings>, input: &[u8], cut: &mut dyn FnMut(usize) -> usize, seed: u64) -> Transcript {
    let mut driver = Driver::new(settings, seed, false);
    let mut rest = input;
    while !rest.is_empty() && driver.transcript.closed.is_none() {
        let size = cut(input.len() - rest.len()).clamp(1, rest.len());
        let (piece, behind) = rest.split_at(size);
        driver.feed(piece);
        rest = behind;
    }
    driver.transcript
}

fn run_with_failing_sink(settings: &Arc<Settings>, input: &[u8], seed: u64) {
    let mut driver = Driver::new(settings, seed, true);
    for piece in input.chunks(17) {
        driver.feed(piece);
    }
    driver.session.timeout(Instant::NEVER);
    driver.feed(b"QUIT\r\n");
}

struct Driver {
    session: Session,
    transcript: Transcript,
    answers: Dice,
    message: Vec<u8>,
    sink_fails: bool,
    memory_max: usize,
}

impl Driver {
    fn new(settings: &Arc<Settings>, seed: u64, sink_fails: bool) -> Driver {
        let address = "192.0.2.1:5000".parse().unwrap_or_else(|_| unreachable!());
        let session = Session::new(Arc::clone(settings), SmtpPeer::new(1, address, address), Instant::ZERO);
        let limits = &settings.limits;
        let memory_max = 4 * limits.command_line_bytes as usize + limits.recipients as usize * 1_000 + (64 << 10);
        let transcript = Transcript::default();
        Driver { session, transcript, answers: Dice(seed | 1), message: Vec::new(), sink_fails, memory_max }
    }

    fn feed(&mut self, piece: &[u8]) {
        let mut input = piece;
        // Every poll uses input, asks or ends. A session that does none of these is stuck.
        for _ in 0..10 * piece.len() + 20 {
            let output = self.session.poll(&mut input, Instant::ZERO);
            self.collect_replies();
            match output {
                Output::NeedInput => {
                    assert!(input.is_empty(), "input left behind");
                    return;
                }
                Output::Close(reason) => {
                    self.transcript.closed = Some(reason);
                    return;
                }
                Output::StartTls => {
                    self.transcript.questions.push("starttls".into());
                    self.session.tls_started(TlsFacts { version: "TLSv1_3", cipher: "test" }, Instant::ZERO);
                }
                Output::Ask(question) => self.answer(question),
                Output::Body(text) => self.body(text),
                Output::BodyAborted => self.message.clear(),
                Output::Waiting => panic!("waiting for an answer that was given"),
            }
        }
        panic!("no end with {} octets", piece.len());
    }

    fn collect_replies(&mut self) {
        assert!(self.session.buffered() <= self.memory_max, "memory {}", self.session.buffered());
        self.transcript.replies.append(self.session.replies());
    }

    fn body(&mut self, text: &[u8]) {
        assert!(!text.is_empty(), "an empty piece");
        if self.sink_fails {
            self.session.body_failed(Reply::fixed(452, Status(4, 3, 1), "disk full"));
        } else {
            self.message.extend_from_slice(text);
        }
        assert!(self.message.len() as u64 <= self.session.settings().limits.message_bytes);
    }

    fn answer(&mut self, question: Question) {
        self.transcript.questions.push(format!("{question:?}"));
        let (now, yes) = (Instant::ZERO, self.answers.below(4) > 0);
        let no = Reply::fixed(550, Status(5, 7, 1), "no");
        let verdict = if yes { PolicyVerdict::Accept } else { PolicyVerdict::Refuse(no.clone()) };
        match question {
            Question::Login(_) if yes => self.session.login_answered(LoginVerdict::Accept("ann".into()), now),
            Question::Login(_) => self.session.login_answered(LoginVerdict::Refuse(no), now),
            Question::Client(_) => self.session.client_answered(if yes { Ok(None) } else { Err(no) }, now),
            Question::Sender(sender) => self.session.sender_answered(sender, verdict, now),
            Question::Recipient(recipient) => self.session.recipient_answered(recipient, verdict, now),
            Question::BodyBegin => {
                self.message.clear();
                self.session.body_opened(if yes { Ok(()) } else { Err(no) }, now);
            }
            Question::BodyEnd => {
                let Some(_) = self.session.take_envelope() else { panic!("a message without an envelope") };
                self.transcript.messages.push(std::mem::take(&mut self.message));
                let done = Reply::fixed(250, Status(2, 0, 0), "kept");
                self.session.finished(&MessageAnswer::All(if yes { done } else { no }), now);
            }
        }
    }
}

/// Small limits, so that a short input reaches them.
fn settings(choice: u8) -> Settings {
    let limits = SmtpLimits {
        message_bytes: 2_000,
        discard_bytes: 4_096,
        command_line_bytes: 512,
        body_line_bytes: 100,
        recipients: 5,
        refused_recipients: 4,
        junk_commands: 8,
        errors: 6,
        commands: 60,
        command: Duration::from_secs(1),
        ..SmtpLimits::default()
    };
    Settings {
        hostname: "fuzz.example".into(),
        protocol: if choice & 1 == 0 { Protocol::Smtp } else { Protocol::Lmtp },
        auth: if choice & 2 == 0 { Auth::Optional } else { Auth::Required },
        auth_without_tls: if choice & 4 == 0 { AuthWithoutTls::Everywhere } else { AuthWithoutTls::Never },
        require_tls: choice & 8 != 0,
        starttls: choice & 16 == 0,
        dsn: choice & 64 == 0,
        mend_text: choice & 128 != 0,
        trusted: if choice & 32 == 0 { "192.0.2.1".parse().into_iter().collect() } else { Vec::new() },
        limits: limits.bounded(),
    }
}

/// Pseudo-random numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound.max(1)
    }
}
