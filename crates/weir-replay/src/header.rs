//! The header of one mail: who, to whom, when.
//!
//! Lines go in as they are read; only the fields that matter are kept, up to a limit, and only these ever reach
//! the parser. Bodies never do. So the parser sees at most 256 KiB, without MIME and without nesting.
//! Source: RFC 5322 (fields, obsolete forms included), RFC 2047 through the parser.

use super::address::canonical;
use super::collected::Collected;
use super::envelope::Envelope;
use super::recipients::Recipients;
use super::skipped::Reason;
use super::wall::{Civil, TimeOfDay, Wall};
use mail_parser::{Addr, Address, DateTime, HeaderName, MessageParser};

/// What is kept of a header, in bytes; more than 5 000 recipients fit.
pub(crate) const HEADER_MAX: usize = 256 * 1024;
/// What lists of recipients may take of it: a long one leaves room for the sender and the date after it.
const LISTS_MAX: usize = HEADER_MAX - 16 * 1024;
const WANTED: [(&str, usize); 6] = [
    ("from", HEADER_MAX),
    ("date", HEADER_MAX),
    ("message-id", HEADER_MAX),
    ("to", LISTS_MAX),
    ("cc", LISTS_MAX),
    ("bcc", LISTS_MAX),
];

/// The wanted fields of a header, still as text.
#[derive(Debug, Default)]
pub(crate) struct WantedFields {
    fields: Vec<u8>,
    /// Up to what length the field that the last line belongs to is kept; not at all if it is not wanted.
    limit: Option<usize>,
    cut: bool,
}

impl WantedFields {
    /// Takes the next line of the header; `cut` if the line was longer than these bytes.
    pub(crate) fn push(&mut self, line: &[u8], cut: bool) {
        let continues = line.first().is_some_and(|b| b" \t".contains(b));
        if !continues {
            self.limit = limit(line);
        }
        let Some(limit) = self.limit else { return };
        let room = limit.saturating_sub(self.fields.len() + 1);
        self.cut |= cut || line.len() > room;
        // The last address may be half an address: it ends at the last comma.
        let whole = if cut || line.len() > room { up_to_comma(line.get(..room).unwrap_or(line)) } else { line };
        // An empty line would end the header.
        if !whole.is_empty() {
            self.fields.extend_from_slice(whole);
            self.fields.push(b'\n');
        }
    }

    /// Reads the fields of the mail called `name`. What is strange in them is counted.
    pub(crate) fn read(mut self, name: &str, collected: &mut Collected) -> Envelope {
        if self.cut {
            collected.skip(Reason::LongHeader, || name.into());
        }
        self.fields.push(b'\n');
        let Some(message) = parser().parse_headers(&self.fields) else { return Envelope::default() };
        let mut to = Recipients::default();
        let lists = message.all_to().chain(message.all_cc()).chain(message.all_bcc());
        for addr in lists.flat_map(Address::iter) {
            match spelled(addr).and_then(|text| canonical(&text)).map(|address| to.add(address)) {
                Some(true) => {}
                Some(false) => collected.skip(Reason::TooManyRecipients, || name.into()),
                None => collected.skip(Reason::BadAddress, || format!("{name}: {addr:?}")),
            }
        }
        let from = message.from().and_then(Address::first).and_then(spelled).and_then(|text| canonical(&text));
        let message_id = message.message_id().map(String::from);
        Envelope { from, to: to.into_list(), date: message.date().and_then(wall), message_id }
    }
}

fn parser() -> MessageParser {
    MessageParser::new()
        .header_date(HeaderName::Date)
        .header_id(HeaderName::MessageId)
        .header_address(HeaderName::From)
        .header_address(HeaderName::To)
        .header_address(HeaderName::Cc)
        .header_address(HeaderName::Bcc)
        .default_header_ignore()
}

/// The limit of the field that begins with this line, if the field is wanted.
fn limit(line: &[u8]) -> Option<usize> {
    let name = line.split(|b| *b == b':').next().filter(|name| name.len() < line.len())?.trim_ascii_end();
    WANTED.iter().find(|(wanted, _)| name.eq_ignore_ascii_case(wanted.as_bytes())).map(|(_, limit)| *limit)
}

fn up_to_comma(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|b| *b == b',').unwrap_or(0);
    &line[..end]
}

/// The address that the parser found, with two of its habits undone: a quoted local part lands in the name, and a
/// bare word (`To: bob`, as mail between users of one machine has it) too.
fn spelled(addr: &Addr<'_>) -> Option<String> {
    match (addr.address(), addr.name()) {
        (Some(address), Some(name)) if address.starts_with('@') && !address.contains(':') => {
            Some(format!("\"{name}\"{address}"))
        }
        (Some(address), _) => Some(address.into()),
        (None, Some(name)) => Some(name.into()),
        (None, None) => None,
    }
}

fn wall(date: &DateTime) -> Option<Wall> {
    let time = TimeOfDay::new(date.hour.into(), date.minute.into(), date.second.into())?;
    let west = i64::from(date.tz_hour) * 3600 + i64::from(date.tz_minute) * 60;
    let civil = Civil { year: date.year.into(), month: date.month.into(), day: date.day.into(), time };
    civil.wall(if date.tz_before_gmt { -west } else { west })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::Skipped;

    fn read(text: &str) -> (Envelope, Skipped) {
        let (mut header, mut collected) = (WantedFields::default(), Collected::default());
        text.lines().for_each(|line| header.push(line.as_bytes(), false));
        (header.read("here", &mut collected), collected.skipped)
    }

    #[test]
    fn all_recipients_count_once() {
        let (envelope, skipped) = read(
            "Received: from x; Mon, 1 Jan 2001 10:00:00 +0000\nFROM : =?utf-8?q?Ann,_A?= <Ann@X.org>\n\
             To: Bob <bob@y.org>,\n \"Doe, J\" <j@y.org>, bob@Y.ORG\nX-To: no@y.org\n no2@y.org\n\
             Cc: friends: c@y.org, \"d e\"@y.org;, root\nBcc: f@y.org\nCc: <@a,@b:g@y.org>\nDate: Fri, 1 Mar 2024 13:30:05 +0100\nMessage-ID: <1@x.org>",
        );
        assert_eq!(envelope.from.as_deref(), Some("Ann@x.org"));
        let to = ["bob@y.org", "j@y.org", "c@y.org", "\"d e\"@y.org", "root", "g@y.org", "f@y.org"];
        assert_eq!(envelope.to, to);
        assert_eq!(envelope.date.unwrap().to_string(), "2024-03-01 12:30:05");
        assert_eq!(envelope.message_id.as_deref(), Some("1@x.org"));
        assert_eq!(skipped.total(), 0);
    }

    #[test]
    fn nobody_is_nobody() {
        let (envelope, _) = read("To: undisclosed-recipients:;\nDate: yesterday");
        assert_eq!(envelope, Envelope::default());
        assert_eq!(read("").0, Envelope::default());
        assert_eq!(read("no colon\n\0\0\n:\n: :").0, Envelope::default());
    }

    #[test]
    fn an_absurd_header_is_cut_at_a_comma() {
        let list: Vec<String> = (0..100_000).map(|i| format!("user{i}@example.org")).collect();
        let (envelope, skipped) = read(&format!("To: {}\nFrom: a@x", list.join(",")));
        assert!(envelope.to.len() > 5000 && envelope.to.len() <= 100_000, "{}", envelope.to.len());
        assert_eq!(envelope.to[..], list[..envelope.to.len()], "whole addresses only");
        assert_eq!(envelope.from.as_deref(), Some("a@x"), "what follows the list is read");
        assert_eq!(skipped.count_of(Reason::LongHeader), 1);
    }
}
