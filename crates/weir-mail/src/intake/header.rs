//! Reads the header of a message as it streams in, for what must be known before the rest is accepted.
//!
//! Bytes are gathered until the empty line, up to a bound; then the fields that matter are read from the block
//! alone. The body is never looked at.

use super::authenticated::{Named, named_in, says_so};
use mail_parser::{HeaderName, HeaderValue, MessageParser};
use weir_smtp::header_field;

/// The longest header taken, in bytes.
pub(crate) const HEADER_MAX: usize = 256 * 1024;
/// The longest subject remembered, in characters.
const SUBJECT_MAX: usize = 120;
/// The longest Received field that is read, in characters. A client must not be able to move the end of it out of sight.
const RECEIVED_MAX: usize = 16 * 1024;
/// The longest Message-ID remembered.
const MESSAGE_ID_MAX: usize = 250;

/// What matters of a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MailHeader {
    /// The addresses in From.
    pub(crate) from: Vec<String>,
    /// How many fields are called so, readable or not.
    pub(crate) from_fields: usize,
    /// The subject, decoded, on one line, cut.
    pub(crate) subject: String,
    pub(crate) has_date: bool,
    pub(crate) has_message_id: bool,
    /// The Message-ID, with its brackets, cut; empty if there is none that can be read.
    pub(crate) message_id: String,
    /// How many servers say that they have had it.
    pub(crate) received: usize,
    /// The topmost Received field, unfolded.
    pub(crate) topmost_received: String,
}

impl MailHeader {
    /// Reads a header block that ends with its last field, or with the empty line.
    pub(crate) fn read(block: &[u8]) -> MailHeader {
        let parsed = MessageParser::new().parse_headers(block);
        let mut header = MailHeader { from_fields: fields_called(b"from", block), ..MailHeader::default() };
        let Some(message) = parsed else { return header };
        for field in message.headers() {
            match field.name {
                HeaderName::From => header.from.extend(addresses(&field.value)),
                HeaderName::Subject => {
                    header.subject = one_line(field.value.as_text().unwrap_or_default(), SUBJECT_MAX);
                }
                HeaderName::Date => header.has_date = true,
                HeaderName::MessageId => {
                    header.has_message_id = true;
                    header.message_id = bracketed(field.value.as_text().unwrap_or_default());
                }
                HeaderName::Received => {
                    if header.received == 0 {
                        let raw = block.get(field.offset_start as usize..field.offset_end as usize).unwrap_or_default();
                        header.topmost_received = one_line(&String::from_utf8_lossy(raw), RECEIVED_MAX);
                    }
                    header.received += 1;
                }
                _ => {}
            }
        }
        header
    }

    /// Whom a trusted relay names in the topmost Received field, as Postfix does: `(Authenticated sender: ann)`.
    pub(crate) fn named(&self) -> Option<Named<'_>> {
        named_in(&self.topmost_received)
    }

    /// Whether the topmost Received field speaks of somebody who is logged in, and it cannot be said of whom.
    pub(crate) fn names_unclearly(&self) -> bool {
        self.named().is_none() && says_so(&self.topmost_received)
    }
}

/// Where the header ends in `bytes`: the offset after the empty line.
pub(crate) fn end_of_header(bytes: &[u8], looked_at: usize) -> Option<usize> {
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    // The four bytes may straddle what was looked at before.
    let from = looked_at.saturating_sub(3);
    let tail = bytes.get(from..)?;
    memchr::memmem::find(tail, b"\r\n\r\n").map(|at| from + at + 4)
}

/// Reads arbitrary bytes and checks what is promised of the result.
pub(crate) fn for_fuzz(data: &[u8]) {
    let end = end_of_header(data, 0);
    assert!((0..data.len().min(300)).all(|cut| {
        let early = data.get(..cut).and_then(|part| end_of_header(part, 0));
        early.or_else(|| end_of_header(data, cut)) == end
    }));
    let header = MailHeader::read(data.get(..end.unwrap_or(data.len())).unwrap_or_default());
    for text in [&header.subject, &header.topmost_received] {
        assert!(text.chars().count() <= RECEIVED_MAX && !text.chars().any(char::is_control));
    }
    if let Some(Named { login: user, .. }) = header.named() {
        assert!(!user.is_empty() && user.len() <= 320 && header.topmost_received.contains(user));
    }
}

/// How many fields have this name. Some programs let blanks stand around it.
fn fields_called(name: &[u8], mut block: &[u8]) -> usize {
    let mut count = 0;
    while !block.is_empty() {
        let (field, rest) = block.split_at(header_field::end(block));
        let called = memchr::memchr(b':', field).map(|colon| field[..colon].trim_ascii());
        count += usize::from(called.is_some_and(|called| called.eq_ignore_ascii_case(name)));
        block = rest;
    }
    count
}

fn addresses(value: &HeaderValue<'_>) -> Vec<String> {
    let Some(address) = value.as_address() else { return Vec::new() };
    address.iter().filter_map(|one| one.address.as_deref().map(str::to_owned)).collect()
}

/// One word in brackets.
fn bracketed(text: &str) -> String {
    let id: String = text.chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(MESSAGE_ID_MAX).collect();
    let id = id.trim_start_matches('<').trim_end_matches('>');
    if id.is_empty() { String::new() } else { format!("<{id}>") }
}

fn one_line(text: &str, longest: usize) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    words.join(" ").chars().take(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_that_matter_are_found() {
        let block = b"Received: from x (y [192.0.2.9])\r\n\t(Authenticated sender: ann)\r\n\tby z; now\r\n\
            Received: from a by b; then\r\nFrom: \"Ann, A.\" <ann@example.org>, bob@example.org\r\n\
            Subject: =?utf-8?q?caf=C3=A9?=\r\n and more\r\nDate: Sun, 15 Nov 2026 03:04:00 +0000\r\n\r\n";
        let named = MailHeader::read(b"Message-ID:\r\n <a.b@example.org>\r\n\r\n");
        assert_eq!((named.has_message_id, named.message_id.as_str()), (true, "<a.b@example.org>"));
        let header = MailHeader::read(block);
        assert_eq!(header.from, ["ann@example.org", "bob@example.org"]);
        assert_eq!(header.from_fields, 1);
        assert_eq!(header.subject, "café and more");
        assert!(header.has_date && !header.has_message_id);
        assert_eq!((header.received, header.named().map(|named| named.login)), (2, Some("ann")));
    }

    #[test]
    fn every_from_counts_however_it_is_written() {
        for (block, count) in [
            (&b"From: a@b\r\nfrom : c@d\r\nTo: x\r\n"[..], 2),
            (b" From: a@b\r\nFROM:\r\n e@f\r\n", 2),
            (b"X-From: a@b\r\nSubject: x\r\n From: y\r\n", 0),
            (b"", 0),
        ] {
            assert_eq!(MailHeader::read(block).from_fields, count, "{}", String::from_utf8_lossy(block));
        }
    }

    #[test]
    fn the_end_is_found_however_the_bytes_come() {
        let bytes = b"A: b\r\n\r\nbody";
        for cut in 0..bytes.len() {
            let found = end_of_header(&bytes[..cut], 0).or_else(|| end_of_header(bytes, cut));
            assert_eq!(found, Some(8), "cut at {cut}");
        }
        assert_eq!(end_of_header(b"\r\nbody", 0), Some(2));
        assert_eq!(end_of_header(b"A: b\r\n", 0), None);
    }

    #[test]
    fn strange_headers_do_no_harm() {
        for block in
            [&b""[..], b"\r\n", b"no colon\r\n\r\n", b"From:\r\n\r\n", &[0xff; 300], b"From: <<<>>>,,;;\r\n\r\n"]
        {
            let header = MailHeader::read(block);
            assert!(header.subject.len() < 1000);
        }
        let long = format!("Subject: {}\r\n\r\n", "x".repeat(100_000));
        assert_eq!(MailHeader::read(long.as_bytes()).subject.len(), SUBJECT_MAX);
    }
}
