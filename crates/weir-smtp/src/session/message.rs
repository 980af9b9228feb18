//! DATA and BDAT: the message itself.
//!
//! A message that is refused while it comes in is still read to its end, so that the client gets a proper reply, but not beyond
//! `message_bytes + discard_bytes`. The chunks of a refused BDAT are read too, because they must not be taken for commands. BDAT and DATA
//! cannot be mixed within one message (RFC 3030 section 2).

use weir_core::time::Instant;

use super::super::body::{BodyReader, Fault, Scan};
use super::super::envelope::Envelope;
use super::super::reply::{Reply, Status};
use super::super::settings::Protocol;
use super::transaction::too_big;
use super::{CloseReason, Output, Pending, Question, Session, State};

/// A message that is coming in.
#[derive(Debug)]
pub(super) struct Body {
    reader: BodyReader,
    pub(super) started: Instant,
    /// Whether the shell has a sink open for it.
    open: bool,
    /// The shell's refusal, if it refused the message.
    refused: Option<Reply>,
}

/// A chunk that is coming in.
#[derive(Debug)]
pub(super) struct Chunk {
    left: u64,
    bytes: u64,
    last: bool,
    /// Set if the chunk belongs to no message: it is read, and then this is the reply.
    stray: Option<Reply>,
}

/// The shell's answer to a complete message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageAnswer {
    /// One reply for all recipients.
    All(Reply),
    /// A reply for each recipient, in order (LMTP). In SMTP, the first one counts.
    Each(Vec<Reply>),
}

impl From<Reply> for MessageAnswer {
    fn from(reply: Reply) -> MessageAnswer {
        MessageAnswer::All(reply)
    }
}

impl Session {
    pub(super) fn data(&mut self, now: Instant) -> Option<Output<'static>> {
        if self.body.is_some() {
            return self.out_of_sequence("DATA and BDAT do not mix; send the next chunk or say RSET");
        }
        if let Some(reply) = self.body_precluded() {
            return self.error(&reply);
        }
        self.begin_body(BodyReader::data, now);
        self.ask(Pending::Open(None));
        Some(Output::Ask(Question::BodyBegin))
    }

    fn body_precluded(&self) -> Option<Reply> {
        match &self.transaction {
            None => Some(Reply::fixed(503, Status(5, 5, 1), "say MAIL first")),
            Some(envelope) if envelope.recipients.is_empty() => {
                Some(Reply::fixed(554, Status(5, 5, 1), "no valid recipients"))
            }
            Some(_) => None,
        }
    }

    fn begin_body(&mut self, reader: fn(u32, u64) -> BodyReader, now: Instant) {
        // In LMTP every RCPT must get a reply, so repeated recipients stay.
        if let Some(envelope) = self.transaction.as_mut().filter(|_| self.settings.protocol == Protocol::Smtp) {
            envelope.fold_repeats();
        }
        let limits = &self.settings.limits;
        let reader = reader(limits.body_line_bytes, limits.message_bytes).mending(self.settings.mend_text);
        self.body = Some(Body { reader, started: now, open: false, refused: None });
    }

    pub(super) fn bdat(&mut self, bytes: u64, last: bool, now: Instant) -> Option<Output<'static>> {
        if bytes > self.body_max() {
            return self.close_with(&too_big(self.settings.limits.message_bytes), CloseReason::Endless);
        }
        let mut chunk = Chunk { left: bytes, bytes, last, stray: None };
        if self.body.is_some() {
            self.state = State::Chunk(chunk);
            return None;
        }
        chunk.stray = self.body_precluded();
        if chunk.stray.is_some() {
            self.state = State::Chunk(chunk);
            return None;
        }
        self.begin_body(BodyReader::chunks, now);
        self.ask(Pending::Open(Some(chunk)));
        Some(Output::Ask(Question::BodyBegin))
    }

    /// How many octets of one message are read at most, refused or not.
    fn body_max(&self) -> u64 {
        self.settings.limits.message_bytes.saturating_add(self.settings.limits.discard_bytes)
    }

    /// Answers [`Question::BodyBegin`]: the shell has opened a sink, or refuses with a reply.
    pub fn body_opened(&mut self, verdict: Result<(), Reply>, now: Instant) {
        let State::Asked(Pending::Open(chunk)) = &mut self.state else { return };
        let chunk = chunk.take();
        self.since = now;
        if let Some(body) = &mut self.body {
            body.open = verdict.is_ok();
            body.refused = verdict.as_ref().err().cloned();
        }
        match (chunk, verdict) {
            (Some(chunk), _) => self.state = State::Chunk(chunk),
            (None, Ok(())) => {
                self.say(&Reply::bare(354, "send the message; end it with a line that is a dot"));
                self.state = State::Data;
            }
            (None, Err(reply)) => {
                self.say(&reply);
                self.reset();
                self.back_to_commands(now);
            }
        }
    }

    /// Notes that the sink failed and was dropped. The message will be refused with `reply` at its end.
    pub fn body_failed(&mut self, reply: Reply) {
        if let Some(body) = &mut self.body {
            body.open = false;
            body.refused.get_or_insert(reply);
        }
    }

    pub(super) fn poll_data<'a>(&mut self, input: &mut &'a [u8], now: Instant) -> Option<Output<'a>> {
        self.since = now;
        let Some(body) = &mut self.body else {
            self.state = State::Command;
            return None;
        };
        let scan = body.reader.scan(input);
        if body.reader.bytes() > self.body_max() {
            return self.close_with(&self.body_refusal().unwrap_or(BAD_STATE.clone()), CloseReason::Endless);
        }
        match scan {
            Scan::Piece(piece) => self.piece(piece),
            Scan::More => self.abort_if_faulty(),
            Scan::End => self.end_of_body(now),
        }
    }

    pub(super) fn poll_chunk<'a>(&mut self, input: &mut &'a [u8], now: Instant) -> Option<Output<'a>> {
        self.since = now;
        let State::Chunk(chunk) = &mut self.state else { return None };
        if chunk.left == 0 {
            return self.end_of_chunk(now);
        }
        let size = usize::try_from(chunk.left).unwrap_or(usize::MAX).min(input.len());
        let (window, rest) = input.split_at(size);
        let Some(body) = self.body.as_mut().filter(|_| chunk.stray.is_none()) else {
            chunk.left -= size as u64;
            *input = rest;
            return None;
        };
        let mut window_left = window;
        let scan = body.reader.scan(&mut window_left);
        let used = size - window_left.len();
        chunk.left -= used as u64;
        *input = input.split_at(used).1;
        if body.reader.bytes() > self.body_max() {
            return self.close_with(&self.body_refusal().unwrap_or(BAD_STATE.clone()), CloseReason::Endless);
        }
        match scan {
            Scan::Piece(piece) => self.piece(piece),
            Scan::More | Scan::End => self.abort_if_faulty(),
        }
    }

    pub(super) fn chunk_is_complete(&self) -> bool {
        matches!(&self.state, State::Chunk(chunk) if chunk.left == 0)
    }

    fn piece<'a>(&mut self, piece: &'a [u8]) -> Option<Output<'a>> {
        let aborted = self.abort_if_faulty();
        let open = self.body.as_ref().is_some_and(|body| body.open);
        if open { Some(Output::Body(piece)) } else { aborted }
    }

    /// Tells the shell, once, that a message will not be accepted.
    fn abort_if_faulty(&mut self) -> Option<Output<'static>> {
        let body = self.body.as_mut()?;
        if !body.open || body.reader.fault().is_none() {
            return None;
        }
        body.open = false;
        Some(Output::BodyAborted)
    }

    fn body_refusal(&self) -> Option<Reply> {
        let body = self.body.as_ref()?;
        let fault = body.reader.fault().map(|fault| self.fault_reply(fault));
        body.refused.clone().or(fault)
    }

    fn fault_reply(&self, fault: Fault) -> Reply {
        let limits = &self.settings.limits;
        match fault {
            Fault::BareCr => Reply::fixed(554, Status(5, 6, 0), "refused: a CR without LF in the message"),
            Fault::BareLf => Reply::fixed(554, Status(5, 6, 0), "refused: a LF without CR in the message"),
            Fault::Nul => Reply::fixed(554, Status(5, 6, 0), "refused: a NUL octet in the message"),
            Fault::LongLine => {
                let text = format!("refused: a line of the message is longer than {} octets", limits.body_line_bytes);
                Reply::new(554, Status(5, 6, 0), text)
            }
            Fault::TooBig => too_big(limits.message_bytes),
        }
    }

    fn end_of_chunk(&mut self, now: Instant) -> Option<Output<'static>> {
        let State::Chunk(chunk) = &mut self.state else { return None };
        let (bytes, last, stray) = (chunk.bytes, chunk.last, chunk.stray.take());
        if let Some(reply) = stray {
            if last {
                // The client takes its message for sent, and its next MAIL must not be refused for an envelope that came to nothing.
                self.reset();
            }
            self.back_to_commands(now);
            return self.error(&reply);
        }
        if last {
            return self.end_of_last_chunk(now);
        }
        let refusal = self.body_refusal();
        let received = || Reply::new(250, Status(2, 0, 0), format!("{bytes} octets received"));
        self.say(&refusal.unwrap_or_else(received));
        self.back_to_commands(now);
        None
    }

    fn end_of_last_chunk(&mut self, now: Instant) -> Option<Output<'static>> {
        let Some(body) = &mut self.body else { return None };
        let completion = body.reader.finish();
        if !completion.is_empty() && body.open && body.reader.fault().is_none() {
            // The state stays the same. As nothing is left of the chunk, we come back here, with the line completed.
            body.reader.completed();
            return Some(Output::Body(completion));
        }
        self.end_of_body(now)
    }

    fn end_of_body(&mut self, now: Instant) -> Option<Output<'static>> {
        let recipients = self.transaction.as_ref().map_or(0, |envelope| envelope.recipients.len());
        let Some(refusal) = self.body_refusal() else {
            if let (Some(envelope), Some(body)) = (&mut self.transaction, &self.body) {
                envelope.text = body.reader.traits();
            }
            self.ask(Pending::Finish { recipients });
            return Some(Output::Ask(Question::BodyEnd));
        };
        let aborted = self.abort_if_faulty();
        self.answer(&MessageAnswer::All(refusal), recipients);
        self.reset();
        self.back_to_commands(now);
        aborted
    }

    /// The envelope of the message that [`Question::BodyEnd`] completed; none at any other time.
    pub fn take_envelope(&mut self) -> Option<Envelope> {
        matches!(self.state, State::Asked(Pending::Finish { .. })).then(|| self.transaction.take()).flatten()
    }

    /// Answers [`Question::BodyEnd`].
    pub fn finished(&mut self, answer: &MessageAnswer, now: Instant) {
        let State::Asked(Pending::Finish { recipients }) = self.state else { return };
        if self.answer(answer, recipients) {
            self.tally.junk = 0;
        }
        self.reset();
        self.back_to_commands(now);
    }

    /// Writes one reply or, in LMTP, one for each recipient. Returns whether any of them accepts.
    fn answer(&mut self, answer: &MessageAnswer, recipients: usize) -> bool {
        let replies = match answer {
            MessageAnswer::All(reply) => std::slice::from_ref(reply),
            MessageAnswer::Each(replies) => replies,
        };
        let due = if self.is_lmtp() { recipients } else { 1 };
        let mut accepted = false;
        for at in 0..due {
            let reply = replies.get(at).or(replies.last()).unwrap_or(&BAD_STATE);
            accepted |= reply.is_success();
            self.say(reply);
        }
        accepted
    }
}

static BAD_STATE: Reply = Reply::fixed(451, Status(4, 3, 0), "an error on our side; please try again");
