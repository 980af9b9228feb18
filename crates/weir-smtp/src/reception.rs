//! The trait that a gate implements to use the server: it decides who may send, and where a message goes.
//!
//! The methods are called one after the other for a session, but sessions run in parallel. A [`BodySink`] that is dropped before
//! [`Reception::finish`] belongs to a message that was interrupted or refused, and its content must be discarded.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use super::envelope::{Envelope, MailFrom, RcptTo};
use super::peer::SmtpPeer;
use super::reply::Reply;
use super::sasl::Login;
use super::session::{LoginVerdict, MessageAnswer, Verdict};

/// The shell behind an SMTP server.
pub trait Reception: Send + Sync + 'static {
    /// Where the text of one message goes.
    type Body: BodySink;

    /// May this client talk to us at all? Asked before the greeting.
    fn connect(&self, peer: &SmtpPeer) -> impl Future<Output = Verdict> + Send {
        let _ = peer;
        async { Verdict::Accept }
    }

    /// Is the login right? Limits and bans have been checked; failed ones are counted by the server.
    fn authenticate(&self, peer: &SmtpPeer, login: &Login) -> impl Future<Output = LoginVerdict> + Send;

    /// May this client send as this sender?
    fn mail_from(&self, peer: &SmtpPeer, sender: &MailFrom) -> impl Future<Output = Verdict> + Send;

    /// May it write to this recipient?
    fn rcpt_to(&self, peer: &SmtpPeer, envelope: &Envelope, to: &RcptTo) -> impl Future<Output = Verdict> + Send;

    /// A message is about to come. A refusal (a full disk: 452 4.3.1) is said instead of 354.
    fn begin_body(
        &self,
        peer: &SmtpPeer,
        envelope: &Envelope,
    ) -> impl Future<Output = Result<Self::Body, Reply>> + Send;

    /// The message is complete: make it safe, then answer. The answer is what the client hears.
    fn finish(
        &self,
        peer: &SmtpPeer,
        envelope: Envelope,
        body: Self::Body,
    ) -> impl Future<Output = MessageAnswer> + Send;

    /// Something the operator should know. Must not block.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }
}

/// Takes the text of one message, in order. Waiting here holds the client back.
pub trait BodySink: Send {
    /// The next octets. A refusal ends the message: the rest is thrown away and the client hears the reply at its end.
    fn write(&mut self, text: &[u8]) -> impl Future<Output = Result<(), Reply>> + Send;
}

/// What the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alarm {
    /// An address has been banned for failed logins.
    Banned {
        /// The address.
        address: IpAddr,
        /// The user it tried last.
        user: Box<str>,
        /// For how long.
        length: Duration,
        /// Which ban of this address it is, from 1.
        offence: u32,
    },
    /// No scanner answers: mail waits.
    ScanFails {
        /// What the scanners say.
        problem: Box<str>,
        /// Messages that wait.
        waiting: usize,
    },
    /// The scanners answer again.
    ScanWorks {
        /// How long they did not.
        after: Duration,
    },
    /// A scanner needs somebody: it is down, or its signatures are old.
    ScannerIll {
        /// Which one.
        scanner: Box<str>,
        /// Where it is; empty for our own.
        address: Box<str>,
        /// What is wrong.
        problem: Box<str>,
    },
    /// The lab gives no verdict on mail that waits for it.
    LabSilent {
        /// What is wrong.
        problem: Box<str>,
        /// Messages that wait.
        waiting: usize,
    },
    /// Mail went to the quarantine for errors.
    Unscannable {
        /// The message.
        message: Box<str>,
        /// Why.
        problem: Box<str>,
    },
    /// A message was found damaged at the start and is dropped.
    Damaged {
        /// The message.
        message: Box<str>,
        /// Whose it was.
        user: Box<str>,
    },
    /// Quarantined mail takes nearly all of its room, or more: the oldest is dropped.
    QuarantineFull {
        /// How much there is, without what could not be scanned.
        bytes: u64,
        /// How much there may be.
        most: u64,
    },
    /// Another mail server asked about its mail, and nobody here could decide: it defers the mail, or lets it pass, as it is set up.
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
