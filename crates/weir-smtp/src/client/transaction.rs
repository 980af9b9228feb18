//! One mail transaction as a state machine without I/O (RFC 5321 section 3.3, RFC 2920, RFC 2033, RFC 3030).
//!
//! It says what to send, takes the replies in order, and ends with one outcome per recipient. Legal transitions: `Envelope → Body → Ends →
//! Over`, `Envelope → Over` (everything was refused), and with BDAT `Envelope → Ends → Over`. With PIPELINING the whole envelope is sent in
//! one write; otherwise each command waits for the reply to the one before. A refused MAIL counts for all recipients, a refused RCPT for
//! one, and a refused DATA and the last reply for all who are left. In LMTP there is a last reply for each recipient.

use std::sync::Arc;

use super::capabilities::Capabilities;
use super::command::{Manner, write_mail, write_rcpt};
use super::reply::Reply;
use crate::envelope::{MailFrom, RcptTo};
use crate::outcome::{DeliveryOutcome, Status};

/// What is sent, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// MAIL FROM.
    pub sender: &'a MailFrom,
    /// RCPT TO, for the recipients who are served in this transaction.
    pub recipients: &'a [&'a RcptTo],
    /// What MAIL declares.
    pub manner: Manner,
    /// What the server offered.
    pub offered: Capabilities,
    /// LMTP instead of SMTP.
    pub lmtp: bool,
    /// Whether the body follows the envelope in one BDAT, in the same write. Only possible with PIPELINING.
    pub bdat: bool,
    /// The server's name.
    pub peer: &'a Arc<str>,
}

/// One mail transaction.
#[derive(Debug)]
pub struct Transaction<'a> {
    terms: Terms<'a>,
    stage: Stage,
    /// How many commands of the envelope were sent (MAIL, RCPT for each recipient, DATA), and how many were answered.
    sent: usize,
    heard: usize,
    mail: Option<DeliveryOutcome>,
    /// One for each recipient: refused, or none if accepted and waiting.
    results: Vec<Option<DeliveryOutcome>>,
    /// Whether the server has ended the transaction, or will do so with its last reply.
    data_open: bool,
    /// Whether the server still had the transaction of an earlier message.
    was_open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Envelope,
    Body,
    Ends,
    Over,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send what was appended, then read a reply.
    Reply,
    /// Send the body with its end. If `wanted` is false, no recipient was accepted: then send only the end.
    Body {
        /// Whether any recipient was accepted.
        wanted: bool,
    },
    /// Close the connection: the server refused the sender but asks for a body all the same. Sending only the end could deliver an empty
    /// message.
    HangUp,
    /// Nothing more to send. Take the outcomes.
    Over,
}

impl<'a> Transaction<'a> {
    /// Begins a transaction.
    pub fn new(terms: Terms<'a>) -> Transaction<'a> {
        let results = vec![None; terms.recipients.len()];
        let (stage, mail) = (Stage::Envelope, None);
        Transaction { terms, stage, sent: 0, heard: 0, mail, results, data_open: false, was_open: false }
    }

    /// Appends what is to be sent now, and says what comes next.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Next {
        match self.stage {
            Stage::Envelope => self.write_envelope(out),
            Stage::Body if self.mail.is_some() => return Next::HangUp,
            Stage::Body => return Next::Body { wanted: self.is_wanted() },
            Stage::Ends => {}
            Stage::Over => return Next::Over,
        }
        Next::Reply
    }

    /// Notes that the body has been sent.
    pub fn body_sent(&mut self) {
        self.stage = Stage::Ends;
    }

    /// Takes the next reply.
    pub fn reply(&mut self, reply: &Reply) {
        match self.stage {
            Stage::Envelope => self.envelope_reply(reply),
            Stage::Ends => self.end_reply(reply),
            Stage::Body | Stage::Over => {}
        }
    }

    /// One outcome for each recipient, in their order. Recipients without an answer get `otherwise`.
    pub fn into_outcomes(self, otherwise: &DeliveryOutcome) -> Vec<DeliveryOutcome> {
        let otherwise = self.mail.as_ref().unwrap_or(otherwise);
        self.results.into_iter().map(|result| result.unwrap_or_else(|| otherwise.clone())).collect()
    }

    /// Whether RSET must be sent before the next message.
    pub fn needs_reset(&self) -> bool {
        self.was_open || (!self.data_open && self.mail.is_none())
    }

    /// Whether the server has not answered anything.
    pub fn is_unheard(&self) -> bool {
        self.heard == 0
    }

    /// Whether the server answered MAIL with 421, which says that it closes the connection.
    pub fn is_dismissed(&self) -> bool {
        self.mail.as_ref().is_some_and(|refusal| refusal.code == Some(421))
    }

    fn commands(&self) -> usize {
        self.terms.recipients.len() + 1 + usize::from(!self.terms.bdat)
    }

    fn write_envelope(&mut self, out: &mut Vec<u8>) {
        let last = if self.terms.offered.pipelining { self.commands() } else { self.heard + 1 };
        while self.sent < last {
            self.write_command(self.sent, out);
            self.sent += 1;
        }
    }

    fn write_command(&self, number: usize, out: &mut Vec<u8>) {
        let Terms { sender, recipients, manner, offered, .. } = self.terms;
        match number.checked_sub(1).map(|place| recipients.get(place)) {
            None => write_mail(out, sender, manner, offered),
            Some(Some(recipient)) => write_rcpt(out, recipient, manner, offered),
            Some(None) => out.extend_from_slice(b"DATA\r\n"),
        }
    }

    fn envelope_reply(&mut self, reply: &Reply) {
        match self.heard.checked_sub(1) {
            None if !reply.is_success() => {
                self.mail = Some(self.failure(reply));
                // Whatever else 503 may mean: this is how a server answers MAIL that has an open transaction already.
                self.was_open = reply.code == 503;
            }
            Some(place) if place < self.results.len() => self.recipient_reply(place, reply),
            Some(_) => self.data_reply(reply),
            None => {}
        }
        self.heard += 1;
        if self.stage == Stage::Envelope {
            self.advance();
        }
    }

    fn recipient_reply(&mut self, place: usize, reply: &Reply) {
        let refusal = self.mail.clone().or_else(|| (!reply.is_success()).then(|| self.failure(reply)));
        if let Some(result) = self.results.get_mut(place) {
            *result = refusal;
        }
    }

    fn data_reply(&mut self, reply: &Reply) {
        if reply.is_intermediate() {
            self.data_open = true;
            self.stage = Stage::Body;
        } else {
            self.settle(&self.failure(reply));
            self.stage = Stage::Over;
        }
    }

    /// Decides what follows a reply to a command of the envelope.
    fn advance(&mut self) {
        if self.sent > self.heard {
            return;
        }
        if let Some(refusal) = self.mail.clone() {
            self.settle(&refusal);
        }
        if self.terms.bdat {
            // The body has already been sent, so its reply must be read even if no recipient was accepted.
            self.stage = Stage::Ends;
        } else if self.mail.is_some() || (self.heard > self.terms.recipients.len() && !self.is_wanted()) {
            self.stage = Stage::Over;
        }
    }

    fn end_reply(&mut self, reply: &Reply) {
        // A BDAT that is refused need not be the end of the transaction, least of all if it was sent for nobody because all recipients had
        // been refused: what the server then still has is undefined (RFC 3030 section 2).
        self.data_open |= self.is_wanted() && (reply.is_success() || !self.terms.bdat);
        let outcome = self.verdict(reply);
        if self.terms.lmtp && self.is_wanted() {
            let next = self.results.iter_mut().find(|result| result.is_none());
            if let Some(result) = next {
                *result = Some(outcome);
            }
        } else {
            self.settle(&outcome);
        }
        if !self.is_wanted() {
            self.stage = Stage::Over;
        }
    }

    fn settle(&mut self, outcome: &DeliveryOutcome) {
        self.results.iter_mut().filter(|result| result.is_none()).for_each(|result| *result = Some(outcome.clone()));
    }

    fn is_wanted(&self) -> bool {
        self.results.iter().any(Option::is_none)
    }

    fn verdict(&self, reply: &Reply) -> DeliveryOutcome {
        if reply.is_success() { reply.outcome(self.terms.peer) } else { self.failure(reply) }
    }

    /// The outcome of a refusal. A success that makes no sense here counts as a temporary failure.
    fn failure(&self, reply: &Reply) -> DeliveryOutcome {
        if reply.is_success() {
            let text = format!("the server said {} out of turn", reply.code);
            return DeliveryOutcome::temporary(Status(4, 5, 0), &text).by(self.terms.peer);
        }
        reply.outcome(self.terms.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Fate;
    use proptest::prelude::*;

    const RECIPIENTS: usize = 3;

    /// The replies of a server to each step.
    #[derive(Clone, Debug)]
    struct Script {
        mail: u16,
        rcpt: [u16; RECIPIENTS],
        data: u16,
        ends: [u16; RECIPIENTS],
        pipelining: bool,
        lmtp: bool,
        bdat: bool,
    }

    fn recipients() -> [RcptTo; RECIPIENTS] {
        std::array::from_fn(|index| RcptTo::parse(&format!("<r{index}@b>"), false).unwrap())
    }

    fn fate(code: u16) -> Fate {
        match code / 100 {
            2 => Fate::Delivered,
            4 => Fate::Temporary,
            _ => Fate::Permanent,
        }
    }

    /// The fates that must result, determined step by step.
    fn expected(script: &Script) -> Vec<Fate> {
        let mut next_end = 0;
        (0..RECIPIENTS)
            .map(|place| {
                if script.mail != 250 {
                    return fate(script.mail);
                }
                if script.rcpt[place] != 250 {
                    return fate(script.rcpt[place]);
                }
                if !script.bdat && script.data != 354 {
                    return fate(script.data);
                }
                let end = script.ends[if script.lmtp { next_end } else { 0 }];
                next_end += 1;
                fate(end)
            })
            .collect()
    }

    /// A server that follows the script and speaks only when it is its turn.
    fn play(script: &Script) -> (Vec<Fate>, bool) {
        let (sender, recipients) = (MailFrom::parse("<a@b>").unwrap(), recipients());
        let recipients = recipients.each_ref();
        let offered = Capabilities { pipelining: script.pipelining, ..Capabilities::default() };
        let (manner, peer) = (Manner::default(), Arc::from("mx"));
        let terms = Terms {
            sender: &sender,
            recipients: &recipients,
            manner,
            offered,
            lmtp: script.lmtp,
            bdat: script.bdat,
            peer: &peer,
        };
        let mut transaction = Transaction::new(terms);
        let (mut pending, mut rcpts, mut ends) = (std::collections::VecDeque::new(), 0, 0);
        let accepted = script.rcpt.iter().filter(|code| **code == 250 && script.mail == 250).count();
        let end_count = if script.lmtp { accepted.max(1) } else { 1 };
        for step in 0..40 {
            let mut out = Vec::new();
            let next = transaction.next(&mut out);
            let commands = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
            assert!(script.pipelining || commands <= 1, "without PIPELINING one command at a time");
            for line in String::from_utf8(out).unwrap().lines() {
                pending.push_back(match line.split([' ', '\r']).next().unwrap() {
                    "MAIL" => script.mail,
                    "RCPT" => {
                        rcpts += 1;
                        if script.mail == 250 { script.rcpt[rcpts - 1] } else { 503 }
                    }
                    _ if accepted == 0 && script.data != 354 => 503,
                    _ => script.data,
                });
            }
            if step == 0 && script.bdat {
                for end in 0..end_count {
                    pending.push_back(if accepted == 0 { 503 } else { script.ends[end] });
                }
            }
            match next {
                Next::HangUp => {
                    assert!(script.mail != 250 && script.data == 354);
                    let outcomes = transaction.into_outcomes(&DeliveryOutcome::temporary(Status(4, 9, 9), "unheard"));
                    return (outcomes.iter().map(|outcome| outcome.fate).collect(), false);
                }
                Next::Over => {
                    assert!(pending.is_empty(), "replies left over would be taken for those of the next message");
                    let reset = transaction.needs_reset();
                    let otherwise = DeliveryOutcome::temporary(Status(4, 9, 9), "unheard");
                    let outcomes = transaction.into_outcomes(&otherwise);
                    assert!(outcomes.iter().all(|outcome| outcome.status != Status(4, 9, 9)));
                    return (outcomes.iter().map(|outcome| outcome.fate).collect(), reset);
                }
                Next::Body { wanted } => {
                    assert_eq!(wanted, accepted > 0);
                    for _ in 0..if wanted { end_count } else { 1 } {
                        pending.push_back(if wanted { script.ends[ends] } else { 554 });
                        ends += 1;
                    }
                    transaction.body_sent();
                }
                Next::Reply => {
                    let code = pending.pop_front().expect("the server owes a reply");
                    transaction.reply(&Reply { code, text: "said".into() });
                }
            }
        }
        panic!("the transaction never ends: {script:?}");
    }

    fn code() -> impl Strategy<Value = u16> {
        prop_oneof![4 => Just(250u16), 1 => Just(450u16), 1 => Just(550u16)]
    }

    proptest! {
        #[test]
        fn every_script_ends_as_the_rules_say(
            mail in code(), rcpt in [code(), code(), code()], ends in [code(), code(), code()],
            data in prop_oneof![4 => Just(354u16), 1 => Just(451u16), 1 => Just(554u16)],
            pipelining: bool, lmtp: bool, bdat: bool,
        ) {
            let script = Script { mail, rcpt, data, ends, pipelining, lmtp, bdat: bdat && pipelining };
            let (fates, reset) = play(&script);
            prop_assert_eq!(fates, expected(&script));
            let accepted = rcpt.iter().filter(|code| **code == 250).count();
            let ends = &ends[..if lmtp { accepted } else { 1 }];
            let ended = match script.bdat {
                true => accepted > 0 && ends.contains(&250),
                false => data == 354 && (accepted > 0 || pipelining),
            };
            prop_assert_eq!(reset, mail == 250 && !ended, "an envelope left open must be reset, and nothing else");
        }
    }

    /// Hands a server's replies to a transaction with PIPELINING, and looks at it.
    fn after<T>(bdat: bool, replies: &[u16], look: impl FnOnce(Transaction<'_>) -> T) -> T {
        let (sender, recipients) = (MailFrom::parse("<a@b>").unwrap(), recipients());
        let recipients = recipients.each_ref();
        let peer = Arc::from("mx");
        let offered = Capabilities { pipelining: true, ..Capabilities::default() };
        let terms = Terms {
            sender: &sender,
            recipients: &recipients,
            manner: Manner::default(),
            offered,
            lmtp: false,
            bdat,
            peer: &peer,
        };
        let mut transaction = Transaction::new(terms);
        transaction.next(&mut Vec::new());
        for code in replies {
            transaction.reply(&Reply { code: *code, text: String::new() });
        }
        look(transaction)
    }

    #[test]
    fn what_was_heard_before_the_line_broke_counts() {
        let lost = DeliveryOutcome::temporary(Status(4, 4, 2), "lost");
        let fates: Vec<_> =
            after(false, &[250, 550], |ended| ended.into_outcomes(&lost).iter().map(|o| o.fate).collect());
        assert_eq!(fates, [Fate::Permanent, Fate::Temporary, Fate::Temporary]);
    }

    #[test]
    fn what_a_server_may_still_have_is_reset() {
        let reset = |replies: &[u16]| after(true, replies, |ended| ended.needs_reset());
        assert!(reset(&[250, 550, 550, 550, 503]), "nobody was accepted, and BDAT was sent all the same");
        assert!(reset(&[250, 250, 550, 550, 503]), "BDAT was refused");
        assert!(reset(&[503, 250, 250, 250, 250]), "the server had a transaction, of which nobody here knows");
        assert!(!reset(&[250, 250, 550, 550, 250]), "taken");
        assert!(!reset(&[550, 503, 503, 503, 503]), "there was no transaction");
    }
}
