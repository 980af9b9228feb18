//! The commands MAIL and RCPT: what a session answers, and when it asks the gate whether to accept a sender or recipient.

use weir_core::time::Instant;

use super::super::envelope::{Envelope, MailFrom, RcptTo};
use super::super::reply::{Reply, Status};
use super::super::settings::Auth;
use super::{CloseReason, Output, Pending, PolicyVerdict, Question, Session, State};

impl Session {
    pub(super) fn mail(&mut self, text: &str) -> Option<Output<'static>> {
        if let Some(reply) = self.mail_precluded() {
            return self.error(&reply);
        }
        match MailFrom::parse(text) {
            Ok(sender) if sender.size_bytes.is_some_and(|bytes| bytes > self.settings.limits.message_bytes) => {
                self.say(&too_big(self.settings.limits.message_bytes))
            }
            Ok(sender) => {
                self.ask(Pending::Sender);
                Some(Output::Ask(Question::Sender(sender)))
            }
            Err(reply) => self.error(&reply),
        }
    }

    fn mail_precluded(&self) -> Option<Reply> {
        if self.peer.helo.is_none() {
            let hint = if self.is_lmtp() { "say LHLO first" } else { "say EHLO or HELO first" };
            return Some(Reply::fixed(503, Status(5, 5, 1), hint));
        }
        if self.transaction.is_some() {
            return Some(Reply::fixed(503, Status(5, 5, 1), "a message is already under way; say RSET to drop it"));
        }
        if self.settings.require_tls && self.peer.tls.is_none() {
            return Some(Reply::fixed(530, Status(5, 7, 0), "say STARTTLS first"));
        }
        if self.settings.auth == Auth::Required && self.peer.user.is_none() {
            return Some(self.login_needed());
        }
        None
    }

    fn login_needed(&self) -> Reply {
        if self.auth_allowed() {
            return Reply::fixed(530, Status(5, 7, 0), "log in first (AUTH)");
        }
        Reply::fixed(530, Status(5, 7, 0), "say STARTTLS and log in first (AUTH)")
    }

    /// Answers [`Question::Sender`], for the sender in that question.
    pub fn sender_answered(&mut self, sender: MailFrom, verdict: PolicyVerdict, now: Instant) {
        if !matches!(self.state, State::Asked(Pending::Sender)) {
            return;
        }
        match verdict {
            PolicyVerdict::Accept => {
                self.transaction = Some(Envelope::new(sender, self.forwarded.take()));
                self.say(&Reply::fixed(250, Status(2, 1, 0), "sender ok"));
            }
            PolicyVerdict::Refuse(reply) => {
                self.say(&reply);
            }
        }
        self.back_to_commands(now);
    }

    pub(super) fn rcpt(&mut self, text: &str) -> Option<Output<'static>> {
        let Some(envelope) = &self.transaction else { return self.out_of_sequence("say MAIL first") };
        if self.body.is_some() {
            return self.out_of_sequence("the message has begun; send the next chunk or say RSET");
        }
        if envelope.recipients.len() >= self.settings.limits.recipients as usize {
            return self.say(&Reply::fixed(
                452,
                Status(4, 5, 3),
                "too many recipients; send the rest in another message",
            ));
        }
        match RcptTo::parse(text, envelope.sender.smtputf8) {
            Ok(recipient) => {
                self.ask(Pending::Recipient);
                Some(Output::Ask(Question::Recipient(recipient)))
            }
            Err(reply) => self.error(&reply),
        }
    }

    /// Answers [`Question::Recipient`], for the recipient in that question.
    pub fn recipient_answered(&mut self, recipient: RcptTo, verdict: PolicyVerdict, now: Instant) {
        if !matches!(self.state, State::Asked(Pending::Recipient)) {
            return;
        }
        match (verdict, &mut self.transaction) {
            (PolicyVerdict::Accept, Some(envelope)) => {
                envelope.recipients.push(recipient);
                self.say(&Reply::fixed(250, Status(2, 1, 5), "recipient ok"));
            }
            (PolicyVerdict::Refuse(reply), _) => {
                self.say(&reply);
                self.tally.refused_recipients += 1;
            }
            (PolicyVerdict::Accept, None) => {}
        }
        self.back_to_commands(now);
        if self.tally.refused_recipients >= self.settings.limits.refused_recipients {
            self.close(&TOO_MANY_REFUSED, CloseReason::Errors);
        }
    }
}

pub(super) fn too_big(max: u64) -> Reply {
    Reply::new(552, Status(5, 3, 4), format!("the message is larger than {max} octets"))
}

const TOO_MANY_REFUSED: Reply = Reply::fixed(421, Status(4, 7, 0), "too many refused recipients; closing");
