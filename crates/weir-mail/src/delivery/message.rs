//! A message as delivery knows it: everything but the body.
//!
//! Recipients carry the place that they had when the message was accepted, so progress can be written down and read
//! back although only some of them are handed to delivery at a time (the others wait in the throttle). Memory: about
//! 150 octets and 80 per recipient, besides the addresses. [`OutgoingMessage::to_bytes`] gives the form that is stored in the spool.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::time::Instant;
use weir_store::spool::MessageId;

use weir_smtp::envelope::{MailFrom, RcptTo};

use weir_smtp::client::command;

/// Everything but the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingMessage {
    /// Its name in the spool.
    pub id: MessageId,
    /// Whose turn it takes: the login, or the client address, or empty for our own mail.
    pub owner: Arc<str>,
    /// MAIL FROM.
    pub sender: MailFrom,
    /// Those that delivery is to serve.
    pub recipients: Box<[Recipient]>,
    /// The length of the body.
    pub size_bytes: u64,
    /// When it was accepted; its time to live counts from here.
    pub accepted_at: Instant,
    /// Whether it is to be signed (mail of our own users is, relayed mail of others is not).
    pub sign: bool,
    /// Header lines with CR LF that go before the body. Kept by whoever added them, not by [`OutgoingMessage::to_bytes`].
    pub added: Arc<str>,
    /// Whether it goes back to the server that had it checked, whoever the recipients are.
    pub hand_back: bool,
    /// Whether it has lines that are longer than SMTP allows.
    pub long_lines: bool,
}

/// One recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipient {
    /// Its place among the recipients that were accepted.
    pub index: u32,
    /// RCPT TO.
    pub to: RcptTo,
}

/// A message to deliver, and how far earlier runs came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The message with the recipients that are left.
    pub message: OutgoingMessage,
    /// Those of them that have been tried, by index.
    pub deferred: BTreeMap<u32, Deferral>,
    /// Whether the sender has been told of the delay.
    pub warned: bool,
}

/// How far a recipient, or some of them, came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// Attempts so far.
    pub attempts: u32,
    /// Not to be tried before this.
    pub not_before: Instant,
}

impl Job {
    /// How far these came together: the most attempts of one, and due when the first of them is, so that nobody waits for another.
    pub fn deferral(&self, recipients: &[Recipient]) -> Deferral {
        let each =
            || recipients.iter().map(|recipient| self.deferred.get(&recipient.index).copied().unwrap_or_default());
        Deferral {
            attempts: each().map(|one| one.attempts).max().unwrap_or_default(),
            not_before: each().map(|one| one.not_before).min().unwrap_or_default(),
        }
    }
}

impl From<OutgoingMessage> for Job {
    fn from(message: OutgoingMessage) -> Job {
        Job { message, deferred: BTreeMap::new(), warned: false }
    }
}

impl OutgoingMessage {
    /// Whether bounces can be sent to its sender.
    pub fn has_sender(&self) -> bool {
        self.sender.mailbox.is_some()
    }

    /// The form that stands in the spool: lines of text, versioned.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flags = u8::from(self.sign) | u8::from(self.hand_back) << 1 | u8::from(self.long_lines) << 2;
        let mut out = format!("weir 1 {} {flags} {}\n", self.accepted_at.0, self.size_bytes).into_bytes();
        out.extend_from_slice(self.owner.replace('\n', " ").as_bytes());
        out.push(b'\n');
        command::write_sender(&mut out, &self.sender);
        for recipient in &self.recipients {
            out.extend_from_slice(format!("\n{} ", recipient.index).as_bytes());
            command::write_recipient(&mut out, &recipient.to);
        }
        out
    }

    /// Reads what [`OutgoingMessage::to_bytes`] wrote.
    pub fn from_bytes(id: MessageId, bytes: &[u8]) -> Option<OutgoingMessage> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
        let head = lines.next()?.strip_prefix("weir 1 ")?;
        let mut numbers = head.split(' ').map(|word| word.parse::<u64>().ok());
        let (accepted_at, flags, size_bytes) = (Instant(numbers.next()??), numbers.next()??, numbers.next()??);
        let (sign, hand_back, long_lines) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let owner = lines.next()?.into();
        let sender = MailFrom::parse(lines.next()?).ok()?;
        let recipients = lines.map(|line| parse_recipient(line, sender.smtputf8)).collect::<Option<_>>()?;
        Some(OutgoingMessage {
            id,
            owner,
            sender,
            recipients,
            size_bytes,
            accepted_at,
            sign,
            added: "".into(),
            hand_back,
            long_lines,
        })
    }
}

fn parse_recipient(line: &str, smtputf8: bool) -> Option<Recipient> {
    let (index, path) = line.split_once(' ')?;
    Some(Recipient { index: index.parse().ok()?, to: RcptTo::parse(path, smtputf8).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let id: MessageId = "0dh3k9w2m1c8t0qzx4pn".parse().unwrap();
        let sender = MailFrom::parse("<\"a b\"@c> SIZE=7 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=x+2B AUTH=<>").unwrap();
        let recipients = ["<ü@d> NOTIFY=SUCCESS,DELAY ORCPT=utf-8;ü@d", "<e@[192.0.2.1]> NOTIFY=NEVER", "<postmaster>"];
        let recipients = recipients.iter().zip([3, 4, 9]);
        let recipients = recipients.map(|(text, index)| Recipient { index, to: RcptTo::parse(text, true).unwrap() });
        let message = OutgoingMessage {
            id,
            owner: "ann".into(),
            sender,
            recipients: recipients.collect(),
            size_bytes: 4096,
            accepted_at: Instant(1_700_000_000_000_000_000),
            sign: true,
            added: "".into(),
            hand_back: false,
            long_lines: false,
        };
        assert_eq!(OutgoingMessage::from_bytes(id, &message.to_bytes()), Some(message.clone()));
        let plain = OutgoingMessage {
            sender: MailFrom::default(),
            recipients: Box::default(),
            sign: false,
            hand_back: true,
            ..message
        };
        assert_eq!(OutgoingMessage::from_bytes(id, &plain.to_bytes()), Some(plain));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let id: MessageId = "0dh3k9w2m1c8t0qzx4pn".parse().unwrap();
        for bytes in [
            &b""[..],
            b"weir 2 1 1 1\na\n<>",
            b"weir 1 1 1\na\n<>",
            b"weir 1 1 1 1\na",
            b"weir 1 1 1 1\na\n<>\nx <a@b>",
            b"\xff",
        ] {
            assert_eq!(OutgoingMessage::from_bytes(id, bytes), None);
        }
    }
}
