//! Whether a message can be said to a server at all, and how (RFC 6152, RFC 6531, RFC 1870).
//!
//! A message that was declared 8-bit or international goes as it is where the server offers that. Where it does not,
//! the text decides: if it is plain after all, it goes without the declaration; otherwise it fails honestly. We do
//! not rewrite bodies, which would break signatures.

use std::sync::Arc;

use super::capabilities::Capabilities;
use super::command::{Manner, needs_smtputf8};
use crate::envelope::MailFrom;
use crate::mailbox::Mailbox;
use crate::outcome::{DeliveryOutcome, Status};

/// How a message is declared, and what its text must be for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What MAIL says.
    pub manner: Manner,
    /// The header must be ASCII.
    pub plain_header: bool,
    /// All of it must be ASCII.
    pub plain_body: bool,
}

/// What the text of a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Octets {
    /// The header has octets above 127.
    pub header_eight_bit: bool,
    /// The rest has.
    pub body_eight_bit: bool,
}

impl Plan {
    /// How to say the message to a server; an outcome for everybody if it cannot be.
    pub fn new(
        sender: &MailFrom,
        size_bytes: u64,
        offered: Capabilities,
        peer: &Arc<str>,
    ) -> Result<Plan, DeliveryOutcome> {
        if let Some(most) = offered.size_max.filter(|most| size_bytes > *most) {
            let text = format!("the message has {size_bytes} octets; the server takes at most {most}");
            return Err(DeliveryOutcome::permanent(Status(5, 3, 4), &text).by(peer));
        }
        if !offered.smtputf8 && sender.mailbox.as_ref().is_some_and(needs_smtputf8) {
            return Err(not_international("the sender's address").by(peer));
        }
        let manner = Manner {
            eight_bit: sender.eight_bit && offered.eight_bit,
            smtputf8: sender.smtputf8 && offered.smtputf8,
            size_bytes,
        };
        let plain_header = sender.smtputf8 && !offered.smtputf8;
        Ok(Plan { manner, plain_header, plain_body: sender.eight_bit && !offered.eight_bit })
    }

    /// Whether the text must be looked at.
    pub fn depends_on_text(&self) -> bool {
        self.plain_header || self.plain_body
    }

    /// The outcome for everybody if the text does not fit.
    pub fn judge(&self, octets: Octets, peer: &Arc<str>) -> Result<(), DeliveryOutcome> {
        if self.plain_header && octets.header_eight_bit {
            return Err(not_international("the header of the message").by(peer));
        }
        if self.plain_body && (octets.body_eight_bit || octets.header_eight_bit) {
            let text = "the message has 8-bit text, and the server takes 7-bit text only";
            return Err(DeliveryOutcome::permanent(Status(5, 6, 3), text).by(peer));
        }
        Ok(())
    }
}

/// Whether this recipient cannot be said to the server.
pub fn unfit_recipient(recipient: &Mailbox, offered: Capabilities, peer: &Arc<str>) -> Option<DeliveryOutcome> {
    let unfit = !offered.smtputf8 && needs_smtputf8(recipient);
    unfit.then(|| not_international("the recipient's address").by(peer))
}

impl Octets {
    /// Looks at a whole text.
    pub fn of(text: &[u8]) -> Octets {
        let mut octets = Octets::default();
        octets.look(text, &mut true);
        octets
    }

    /// Looks at the next piece of the text; `in_header` says where it begins and ends.
    pub fn look(&mut self, piece: &[u8], in_header: &mut bool) {
        let split = if *in_header { header_end(piece) } else { Some(0) };
        let (header, body) = piece.split_at(split.unwrap_or(piece.len()));
        self.header_eight_bit |= !header.is_ascii();
        self.body_eight_bit |= !body.is_ascii();
        *in_header = split.is_none();
    }
}

/// Where the empty line is. One that lies across two pieces is missed, and then text counts as header: it errs to care.
fn header_end(piece: &[u8]) -> Option<usize> {
    memchr::memmem::find(piece, b"\r\n\r\n")
}

fn not_international(what: &str) -> DeliveryOutcome {
    let text = format!("{what} has characters beyond ASCII, and the server does not take such mail (SMTPUTF8)");
    DeliveryOutcome::permanent(Status(5, 6, 7), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::RcptTo;

    fn plan(sender: &str, offered: Capabilities) -> Result<Plan, Status> {
        Plan::new(&MailFrom::parse(sender).unwrap(), 100, offered, &"mx".into()).map_err(|outcome| outcome.status)
    }

    const NOTHING: Capabilities = Capabilities {
        pipelining: false,
        eight_bit: false,
        smtputf8: false,
        starttls: false,
        chunking: false,
        dsn: false,
        size: false,
        size_max: None,
        auth_plain: false,
        auth_login: false,
    };

    #[test]
    fn what_is_offered_is_used() {
        let all = Capabilities { eight_bit: true, smtputf8: true, ..NOTHING };
        let plan = plan("<ü@b> BODY=8BITMIME SMTPUTF8", all).unwrap();
        assert!(plan.manner.eight_bit && plan.manner.smtputf8 && !plan.depends_on_text());
    }

    #[test]
    fn what_is_not_offered_depends_on_the_text() {
        let plan = plan("<a@b> BODY=8BITMIME SMTPUTF8", NOTHING).unwrap();
        assert_eq!(plan.manner, Manner { size_bytes: 100, ..Manner::default() });
        let peer = "mx".into();
        let plain = Octets::default();
        assert_eq!(plan.judge(plain, &peer), Ok(()));
        let status = |octets| plan.judge(octets, &peer).unwrap_err().status;
        assert_eq!(status(Octets { header_eight_bit: true, ..plain }), Status(5, 6, 7));
        assert_eq!(status(Octets { body_eight_bit: true, ..plain }), Status(5, 6, 3));
    }

    #[test]
    fn what_cannot_be_said_fails_at_once() {
        assert_eq!(plan("<ü@b> SMTPUTF8", NOTHING), Err(Status(5, 6, 7)));
        assert_eq!(plan("<a@b>", Capabilities { size_max: Some(99), ..NOTHING }), Err(Status(5, 3, 4)));
        assert!(plan("<a@b>", Capabilities { size_max: Some(100), ..NOTHING }).is_ok());
        let peer = "mx".into();
        let unfit = |to| unfit_recipient(&RcptTo::parse(to, true).unwrap().mailbox, NOTHING, &peer).is_some();
        assert!(unfit("<ü@d>"));
        assert!(!unfit("<c@dü>"));
    }

    #[test]
    fn header_and_body_are_told_apart() {
        let (mut octets, mut in_header) = (Octets::default(), true);
        octets.look(b"Subject: x\r\n", &mut in_header);
        octets.look("To: y\r\n\r\nü".as_bytes(), &mut in_header);
        assert_eq!((octets.header_eight_bit, octets.body_eight_bit, in_header), (false, true, false));
        let (mut octets, mut in_header) = (Octets::default(), true);
        octets.look("Subject: ü\r\n\r\nx".as_bytes(), &mut in_header);
        assert_eq!(octets, Octets { header_eight_bit: true, body_eight_bit: false });
    }
}
