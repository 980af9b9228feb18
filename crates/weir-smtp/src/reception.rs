//! The trait that a gate implements to use the server: it decides who may send, and where a message goes.
//!
//! The methods are called one after another for a session, but sessions run in parallel. If a [`BodySink`] is dropped before
//! [`Reception::finish`], its message was interrupted or refused, and its content must be discarded.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use super::envelope::{Envelope, MailFrom, RcptTo};
use super::peer::SmtpPeer;
use super::reply::Reply;
use super::sasl::Login;
use super::session::{LoginVerdict, MessageAnswer, PolicyVerdict};

/// What an SMTP server asks the gate behind it.
pub trait Reception: Send + Sync + 'static {
    /// Takes the text of one message.
    type Body: BodySink;

    /// May this client use the server at all? Asked before the greeting.
    fn connect(&self, peer: &SmtpPeer) -> impl Future<Output = PolicyVerdict> + Send {
        let _ = peer;
        async { PolicyVerdict::Accept }
    }

    /// Is the login right? The server has checked limits and bans before, and counts failed logins itself.
    fn authenticate(&self, peer: &SmtpPeer, login: &Login) -> impl Future<Output = LoginVerdict> + Send;

    /// May this client send as this sender?
    fn mail_from(&self, peer: &SmtpPeer, sender: &MailFrom) -> impl Future<Output = PolicyVerdict> + Send;

    /// May it write to this recipient?
    fn rcpt_to(&self, peer: &SmtpPeer, envelope: &Envelope, to: &RcptTo) -> impl Future<Output = PolicyVerdict> + Send;

    /// A message is about to come. If this refuses it (for example with 452 4.3.1 if the disk is full), that is the reply instead of 354.
    fn begin_body(
        &self,
        peer: &SmtpPeer,
        envelope: &Envelope,
    ) -> impl Future<Output = Result<Self::Body, Reply>> + Send;

    /// The message is complete: make it durable, then answer. The client gets this answer.
    fn finish(
        &self,
        peer: &SmtpPeer,
        envelope: Envelope,
        body: Self::Body,
    ) -> impl Future<Output = MessageAnswer> + Send;

    /// Reports something that the operator should know. Must not block.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }
}

/// Takes the text of one message, in order. While this waits, the client waits too.
pub trait BodySink: Send {
    /// Takes the next octets. A refusal ends the message: the rest is discarded, and the client gets this reply at its end.
    fn write(&mut self, text: &[u8]) -> impl Future<Output = Result<(), Reply>> + Send;
}

/// Something that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alarm {
    /// An address has been banned for failed logins.
    Banned {
        /// The address.
        address: IpAddr,
        /// The user whose login it tried last.
        user: Box<str>,
        /// For how long.
        length: Duration,
        /// Which ban of this address it is, from 1.
        offence: u32,
    },
    /// No scanner answers, so mail waits.
    ScanFails {
        /// What the scanners report.
        problem: Box<str>,
        /// How many messages wait.
        waiting: usize,
    },
    /// The scanners answer again.
    ScanWorks {
        /// How long they did not answer.
        after: Duration,
    },
    /// A scanner needs attention: it is down, or its signatures are old.
    ScannerIll {
        /// Which one.
        scanner: Box<str>,
        /// Its address; empty for our own scanner.
        address: Box<str>,
        /// What is wrong.
        problem: Box<str>,
    },
    /// The lab gives no verdicts, though mail waits for them.
    LabSilent {
        /// What is wrong.
        problem: Box<str>,
        /// How many messages wait.
        waiting: usize,
    },
    /// A message was quarantined because it could not be scanned.
    Unscannable {
        /// The message.
        message: Box<str>,
        /// Why it could not be scanned.
        problem: Box<str>,
    },
    /// A message was found damaged at the start, and is dropped.
    Damaged {
        /// The message.
        message: Box<str>,
        /// The user who sent it.
        user: Box<str>,
    },
    /// Quarantined mail takes up nearly all of its space, or more. The oldest is dropped.
    QuarantineFull {
        /// How much space it takes up, without mail that could not be scanned.
        bytes: u64,
        /// How much space it may take up.
        most: u64,
    },
    /// Another mail server asked about its mail, and Weir could not decide. The other server defers the mail or lets it pass, depending on
    /// its settings.
    DoorFails {
        /// The section of the door: `milter`, `policy_service`.
        door: Box<str>,
        /// What is wrong.
        problem: Box<str>,
    },
    /// An address has been banned for trying recipients that do not exist.
    Searching {
        /// The address.
        address: IpAddr,
        /// For how long.
        length: Duration,
        /// Which ban of this address it is, from 1.
        offence: u32,
    },
}
