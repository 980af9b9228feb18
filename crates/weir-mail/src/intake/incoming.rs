//! A message on its way into the spool: the header is read, and changed if necessary; the body streams through.

use super::forged::{without_copies, without_forged};
use super::header::{HEADER_MAX, MailHeader, end_of_header};
use super::long_lines::fold_long;
use super::sender::belongs;
use super::trace::times_through;
use std::borrow::Cow;
use weir_smtp::reception::BodySink;
use weir_smtp::reply::{Reply, Status};
use weir_store::spool::{Draft, Limit, SpoolError};

/// A message that has passed more servers than this goes in circles.
const RECEIVED_MAX: usize = 50;
/// A message from outside that has been through this server so often goes in a circle that leads through it. Once or
/// twice is usual: a user's mail to a colleague, a list on the same machine.
const OURSELVES_MAX: usize = 5;

/// The text of one message.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) draft: Draft,
    /// Written before the message's own header.
    trace: String,
    care: Care,
    part: IncomingPart,
}

/// What is done with the header.
#[derive(Debug)]
pub(crate) enum Care {
    /// A user's own mail is completed and checked.
    Submitted {
        /// Our name.
        hostname: String,
        /// What is added if the message has none.
        missing: Missing,
        /// Addresses that From may name; any, if there is none.
        may_be: Option<Vec<String>>,
    },
    /// Mail of others is left as it is, since it may be signed.
    Received {
        /// Our name.
        hostname: String,
    },
}

/// Fields that a message must have.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) date: String,
    pub(crate) message_id: String,
    /// The sender of the envelope; none if that is null.
    pub(crate) from: Option<String>,
}

/// Header → Body.
#[derive(Debug)]
enum IncomingPart {
    Header(Vec<u8>),
    Body(MailHeader),
}

impl Incoming {
    pub(crate) fn new(draft: Draft, trace: String, care: Care) -> Incoming {
        Incoming { draft, trace, care, part: IncomingPart::Header(Vec::new()) }
    }

    /// The whole message is here: its draft and what its header said.
    pub(crate) async fn complete(mut self) -> Result<(Draft, MailHeader), Reply> {
        if let IncomingPart::Header(block) = &mut self.part {
            // A message may be a header alone.
            let block = std::mem::take(block);
            let end = block.len();
            self.take_header(block, end).await?;
        }
        let IncomingPart::Body(header) = self.part else { return Err(broken_header()) };
        Ok((self.draft, header))
    }

    async fn take_header(&mut self, block: Vec<u8>, end: usize) -> Result<(), Reply> {
        let (fields, body) = block.split_at(end.min(block.len()));
        let header = MailHeader::read(fields);
        if header.received > RECEIVED_MAX {
            let text = format!("this message has been through {} servers: it goes in circles", header.received);
            return Err(Reply::new(554, Status(5, 4, 6), text));
        }
        let mut first = std::mem::take(&mut self.trace);
        let fields = self.care.take(fields, &header, &mut first)?;
        for bytes in [first.as_bytes(), &fields, body] {
            self.draft.write(bytes).await.map_err(|error| refusal(&error))?;
        }
        self.part = IncomingPart::Body(header);
        Ok(())
    }
}

impl Care {
    /// The fields as they are kept, without those that claim to be ours; what is missing is added to `first`.
    fn take<'a>(&self, fields: &'a [u8], header: &MailHeader, first: &mut String) -> Result<Cow<'a, [u8]>, Reply> {
        match self {
            Care::Submitted { hostname, missing, may_be } => {
                if let Some(may_be) = may_be {
                    check_from(header, missing.from.is_some(), may_be)?;
                }
                missing.complete(header, first);
                let fields = without_forged(fields, hostname);
                Ok(changed(changed(fields, without_copies), fold_long))
            }
            Care::Received { hostname } => {
                let times = times_through(hostname, fields);
                if times >= OURSELVES_MAX {
                    let text = format!("this message has been here {times} times: it goes in circles");
                    return Err(Reply::new(554, Status(5, 4, 6), text));
                }
                Ok(without_forged(fields, hostname))
            }
        }
    }
}

/// The header after one more change, copied only if that changes it.
fn changed<'a>(fields: Cow<'a, [u8]>, change: fn(&[u8]) -> Cow<'_, [u8]>) -> Cow<'a, [u8]> {
    match change(&fields) {
        Cow::Borrowed(_) => fields,
        Cow::Owned(changed) => Cow::Owned(changed),
    }
}

impl Missing {
    fn complete(&self, header: &MailHeader, first: &mut String) {
        if !header.has_date {
            first.push_str(&format!("Date: {}\r\n", self.date));
        }
        if !header.has_message_id {
            first.push_str(&format!("Message-ID: {}\r\n", self.message_id));
        }
        if let (0, Some(from)) = (header.from_fields, &self.from) {
            first.push_str(&format!("From: <{from}>\r\n"));
        }
    }
}

/// What people see as the sender must be one of these addresses. A From that we cannot read is refused, because people's programs may be
/// able to read it. If there is none, the sender of the envelope is meant, where it has one.
pub(crate) fn check_from(header: &MailHeader, has_sender: bool, may_be: &[String]) -> Result<(), Reply> {
    let refused = |text: String| Err(Reply::new(553, Status(5, 7, 1), text));
    match (header.from_fields, header.from.iter().find(|from| !belongs(from, may_be))) {
        (_, Some(other)) => refused(format!("From names {}, which is not an address of your login", printable(other))),
        (0, None) if !has_sender => refused("the message has no From".to_owned()),
        (1, None) if header.from.is_empty() => refused("From names no address that could be read".to_owned()),
        (0 | 1, None) => Ok(()),
        (_, None) => refused("the message has more than one From".to_owned()),
    }
}

impl BodySink for Incoming {
    async fn write(&mut self, text: &[u8]) -> Result<(), Reply> {
        let IncomingPart::Header(block) = &mut self.part else {
            return self.draft.write(text).await.map_err(|error| refusal(&error));
        };
        let looked_at = block.len();
        block.extend_from_slice(text);
        if let Some(end) = end_of_header(block, looked_at) {
            let block = std::mem::take(block);
            return self.take_header(block, end).await;
        }
        if block.len() > HEADER_MAX { Err(broken_header()) } else { Ok(()) }
    }
}

/// What a client hears when the spool cannot take its message.
pub(crate) fn refusal(error: &SpoolError) -> Reply {
    tracing::warn!(%error, "a message could not be spooled");
    match error {
        SpoolError::Full => Reply::new(452, Status(4, 3, 1), "the disk is full; nothing was taken, try again later"),
        // The limits are below what the spool takes; a message that is still too long will never fit.
        SpoolError::TooLong { what: Limit::Envelope, .. } => {
            Reply::new(552, Status(5, 5, 3), "too many long addresses for one mail; send several")
        }
        SpoolError::TooLong { .. } => Reply::new(552, Status(5, 3, 4), "the message is too large"),
        _ => Reply::new(452, Status(4, 3, 1), "the message could not be made safe; nothing was taken, try again later"),
    }
}

/// A header that nobody reads to its end is not taken: what it says there would count for nobody.
pub(crate) fn broken_header() -> Reply {
    Reply::new(554, Status(5, 6, 0), "the header of this message is too long")
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_smtp::limits::SmtpLimits;
    use weir_store::spool::BODY_MAX;

    #[test]
    fn what_the_spool_never_takes_is_refused_for_good() {
        // Forged fields of a header may be written anew, and a trace comes on top.
        let most = SmtpLimits { message_bytes: u64::MAX, ..SmtpLimits::default() }.bounded().message_bytes;
        assert!(most + HEADER_MAX as u64 <= BODY_MAX, "{most}");
        for what in [Limit::Envelope, Limit::Body] {
            let reply = refusal(&SpoolError::TooLong { what, length: 2, most: 1 });
            assert_eq!(reply.code(), 552, "{reply:?}");
        }
        assert_eq!((refusal(&SpoolError::Full).code(), refusal(&SpoolError::Closed).code()), (452, 452));
    }
}
