//! Decides whether a message can be sent to a server, and how (RFC 6152, RFC 6531, RFC 1870).
//!
//! If the message was declared 8-bit or international and the server offers that, it is sent as it is. If the server does not offer
//! SMTPUTF8, the header decides: if it is plain ASCII after all, the message is sent without the declaration; otherwise delivery fails. If
//! the server does not offer 8BITMIME, the caller converts 8-bit text.

use std::sync::Arc;

use super::capabilities::Capabilities;
use super::command::{Manner, needs_smtputf8};
use crate::envelope::MailFrom;
use crate::mailbox::Mailbox;
use crate::outcome::{DeliveryOutcome, Status};

/// How a message is declared to a server, and what its header must be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What MAIL declares.
    pub manner: Manner,
    /// Whether the header must be ASCII.
    pub plain_header: bool,
}

impl Plan {
    /// How to declare the message to a server. If it cannot be sent there, the outcome for all recipients.
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
        Ok(Plan { manner, plain_header })
    }

    /// Checks the header, about which `header_eight_bit` says whether it has octets above 127. If it does not fit, the outcome for all
    /// recipients.
    pub fn judge(&self, header_eight_bit: bool, peer: &Arc<str>) -> Result<(), DeliveryOutcome> {
        let unfit = self.plain_header && header_eight_bit;
        if unfit { Err(not_international("the header of the message").by(peer)) } else { Ok(()) }
    }
}

/// The outcome for this recipient if its address cannot be sent to the server; none if it can.
pub fn unfit_recipient(recipient: &Mailbox, offered: Capabilities, peer: &Arc<str>) -> Option<DeliveryOutcome> {
    let unfit = !offered.smtputf8 && needs_smtputf8(recipient);
    unfit.then(|| not_international("the recipient's address").by(peer))
}

/// Whether the part of the header in `text` has octets above 127. `in_header` is set to false where the header ends. If the empty line
/// after the header is split between two pieces, it is missed. Then body text is taken for header, which is the safe mistake.
pub fn header_eight_bit(text: &[u8], in_header: &mut bool) -> bool {
    if !*in_header {
        return false;
    }
    let end = memchr::memmem::find(text, b"\r\n\r\n");
    *in_header = end.is_none();
    !text.get(..end.unwrap_or(text.len())).unwrap_or_default().is_ascii()
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
        assert!(plan.manner.eight_bit && plan.manner.smtputf8 && !plan.plain_header);
    }

    #[test]
    fn what_is_not_offered_depends_on_the_header() {
        let plan = plan("<a@b> BODY=8BITMIME SMTPUTF8", NOTHING).unwrap();
        assert_eq!(plan.manner, Manner { size_bytes: 100, ..Manner::default() });
        let peer = "mx".into();
        assert_eq!(plan.judge(false, &peer), Ok(()));
        assert_eq!(plan.judge(true, &peer).unwrap_err().status, Status(5, 6, 7));
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
        let mut in_header = true;
        assert!(!header_eight_bit(b"Subject: x\r\n", &mut in_header) && in_header);
        assert!(!header_eight_bit("To: y\r\n\r\nü".as_bytes(), &mut in_header) && !in_header);
        assert!(!header_eight_bit("ü".as_bytes(), &mut in_header));
        assert!(header_eight_bit("Subject: ü\r\n\r\nx".as_bytes(), &mut true));
    }
}
