//! A letter: what the spool stores about a message besides its body.
//!
//! It holds the envelope with the sender's wishes, the owner, and where the message came from, as JSON that a person can read in a segment
//! of the spool. Written once, at acceptance; what happens later goes into marks.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use weir_smtp::envelope::{Envelope, MailFrom, Notify, RcptTo, Ret};
use weir_smtp::mailbox::Mailbox;
use weir_store::diary::Facts;

/// What is remembered of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// When it was accepted, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// Why it is here.
    pub origin: LetterOrigin,
    /// Whose it is, for turns between senders: a login, a client address, the network of a client, or empty for our own.
    pub owner: String,
    /// The client that handed it in.
    pub source: String,
    /// The subject, decoded and cut; for people.
    pub subject: String,
    /// The envelope sender; empty for `<>`.
    pub from: String,
    /// Whether the body may hold 8-bit text.
    pub eight_bit: bool,
    /// Whether it has lines that are longer than SMTP allows; they are encoded on the way out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub long_lines: bool,
    /// Whether addresses and headers may be UTF-8.
    pub utf8: bool,
    /// RET of DSN: whether a bounce returns the whole message.
    pub ret_full: Option<bool>,
    /// ENVID of DSN, in xtext.
    pub envid: Option<String>,
    /// The recipients.
    pub to: Vec<LetterTo>,
    /// Which part of which held message it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<LetterPart>,
    /// Which part of which quarantined message it was: somebody released it, and it is not scanned again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<LetterPart>,
    /// Header lines with CR LF that a stage puts before the body. The stage carries them in a mark of its
    /// own and adds them again when the letter is resumed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub added: String,
    /// Whom a received message came from, if that is to be held against what its domains say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// SPF, DKIM and DMARC were asked about it before it was taken; the result is in `added`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub judged: bool,
    /// Why a person is to look at it, whatever the scan says: nobody answers for its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Its sender is on the list of those that people allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Allowed>,
    /// It goes back to the server that had it checked here, whoever its recipients are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hand_back: bool,
    /// Another server asked about it, and only what the throttle held was taken over: the other recipients are that server's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub taken_over: bool,
}

/// A letter's sender is on the list of those that are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// By this entry.
    pub by: String,
    /// If this domain is confirmed.
    pub domain: String,
    /// It is.
    pub confirmed: bool,
}

/// The client that a received message came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// What it called itself.
    pub helo: String,
}

/// Some recipients of a message that was held or quarantined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterPart {
    /// The message.
    pub of: String,
    /// The places of the recipients in it.
    pub places: Vec<usize>,
}

/// Why a letter is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterOrigin {
    /// Handed in by a user: the throttle decides.
    Submitted,
    /// Let go by the throttle: it goes out.
    Released,
    /// Written by Weir itself: a notice or a report.
    Own,
    /// Come from another server, for a domain of ours or to be handed back.
    Received,
}

/// One recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterTo {
    /// The address.
    pub address: String,
    /// NOTIFY of DSN: on success, on failure, on delay.
    pub notify: Option<(bool, bool, bool)>,
    /// ORCPT of DSN, in xtext.
    pub orcpt: Option<String>,
}

impl Letter {
    /// A letter with this envelope.
    pub fn new(envelope: &Envelope, origin: LetterOrigin, owner: &str, source: &str, at: u64) -> Letter {
        let sender = &envelope.sender;
        Letter {
            at,
            origin,
            owner: owner.to_owned(),
            source: source.to_owned(),
            subject: String::new(),
            from: sender.mailbox.as_ref().map_or("", Mailbox::as_str).to_owned(),
            eight_bit: sender.eight_bit,
            long_lines: false,
            utf8: sender.smtputf8,
            ret_full: sender.ret.map(|ret| ret == Ret::Full),
            envid: sender.envid.as_deref().map(str::to_owned),
            to: envelope.recipients.iter().map(LetterTo::from).collect(),
            part: None,
            cleared: None,
            added: String::new(),
            client: None,
            judged: false,
            hold: None,
            allowed: None,
            hand_back: false,
            taken_over: false,
        }
    }

    /// The user who sent it: a login, or a client address where that is who users are. None for mail from outside and our own.
    pub fn user(&self) -> Option<&str> {
        let own = matches!(self.origin, LetterOrigin::Submitted | LetterOrigin::Released);
        Some(self.owner.as_str()).filter(|owner| own && !owner.is_empty())
    }

    /// The same with a sender who may be forged: no report about it is written, here or by the next server.
    #[must_use]
    pub(crate) fn without_reports(mut self) -> Letter {
        self.to.iter_mut().for_each(|to| to.notify = Some((false, false, false)));
        self
    }

    /// Who wrote to whom about what, in a line.
    pub(crate) fn in_words(&self) -> String {
        self.facts(0).in_words()
    }

    /// What the diary is told of it, and what it is found by later; its size is not known here.
    pub(crate) fn facts(&self, size: u64) -> Facts {
        let gate = match self.origin {
            LetterOrigin::Submitted | LetterOrigin::Released => "submission",
            LetterOrigin::Received => "inbound",
            LetterOrigin::Own => "weir",
        };
        Facts {
            from: self.from.clone(),
            to: self.to.iter().map(|to| to.address.clone()).collect(),
            recipients: self.to.len() as u64,
            subject: self.subject.clone(),
            size,
            client: self.source.clone(),
            login: self.user().unwrap_or_default().to_owned(),
            gate: gate.to_owned(),
            ..Facts::default()
        }
    }

    /// The letter in the spool's bytes.
    pub fn read(bytes: &[u8]) -> Result<Letter, LetterError> {
        serde_json::from_slice(bytes).map_err(LetterError)
    }

    /// The bytes for the spool.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same letter for some of its recipients only.
    #[must_use]
    pub fn for_places(&self, places: impl IntoIterator<Item = usize>) -> Letter {
        let to = places.into_iter().filter_map(|place| self.to.get(place).cloned()).collect();
        Letter { to, ..self.clone() }
    }

    /// The envelope for the wire; addresses that no longer parse are left out.
    pub fn envelope(&self) -> Envelope {
        let recipients = self.to.iter().filter_map(LetterTo::rcpt).collect();
        Envelope { sender: self.mail_from(), recipients, ..Envelope::default() }
    }

    /// The sender for the wire.
    pub(crate) fn mail_from(&self) -> MailFrom {
        MailFrom {
            mailbox: Mailbox::parse(&self.from).ok(),
            size_bytes: None,
            eight_bit: self.eight_bit,
            smtputf8: self.utf8,
            ret: self.ret_full.map(|full| if full { Ret::Full } else { Ret::Headers }),
            envid: self.envid.as_deref().map(Into::into),
            auth: None,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<&RcptTo> for LetterTo {
    fn from(to: &RcptTo) -> LetterTo {
        LetterTo {
            address: to.mailbox.as_str().to_owned(),
            notify: to.notify.map(|n| (n.success, n.failure, n.delay)),
            orcpt: to.orcpt.as_deref().map(str::to_owned),
        }
    }
}

impl LetterTo {
    pub(crate) fn rcpt(&self) -> Option<RcptTo> {
        let mailbox = match self.address.as_str() {
            "postmaster" => Mailbox::postmaster(),
            address => Mailbox::parse(address).ok()?,
        };
        let notify = self.notify.map(|(success, failure, delay)| Notify { success, failure, delay });
        Some(RcptTo { mailbox, notify, orcpt: self.orcpt.as_deref().map(Into::into) })
    }
}

/// The spool holds bytes that are no letter.
#[derive(Debug, thiserror::Error)]
#[error("the spool's envelope cannot be read: {0}")]
pub struct LetterError(serde_json::Error);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_read_as_it_was_written() {
        let sender = MailFrom::parse("<ann@example.org> RET=HDRS ENVID=x+2By BODY=8BITMIME").unwrap();
        let to = RcptTo::parse("<\"b ob\"@example.org> NOTIFY=DELAY ORCPT=rfc822;bob@x.org", false).unwrap();
        let envelope = Envelope { sender, recipients: vec![to], ..Envelope::default() };
        let letter = Letter::new(&envelope, LetterOrigin::Submitted, "ann", "192.0.2.1", 7);
        assert_eq!(Letter::read(&letter.write()).unwrap(), letter);
        assert_eq!(letter.envelope(), envelope);
        assert_eq!(letter.for_places([0, 9]).to.len(), 1);
        assert!(Letter::read(b"{}").is_err());
        let client = Some(Client { address: "2001:db8::1".parse().unwrap(), helo: "mx.example".into() });
        let received = Letter { origin: LetterOrigin::Received, client, hand_back: true, ..letter };
        assert_eq!(Letter::read(&received.write()).unwrap(), received);
    }

    #[test]
    fn the_most_recipients_with_long_addresses_fit_into_the_spool() {
        let to = |n: u32| {
            let address = format!("{n:064}@{}.example.org", "b".repeat(63));
            let text = format!("<{address}> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;{address}");
            RcptTo::parse(&text, false).unwrap()
        };
        let recipients = (0..weir_smtp::limits::SmtpLimits::RECIPIENTS_MAX).map(to).collect();
        let envelope = Envelope { sender: MailFrom::default(), recipients, ..Envelope::default() };
        let letter = Letter::new(&envelope, LetterOrigin::Submitted, "ann", "192.0.2.1", 7).write();
        assert!(letter.len() <= weir_store::spool::ENVELOPE_MAX, "{}", letter.len());
    }
}
