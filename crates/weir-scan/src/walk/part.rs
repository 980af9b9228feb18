//! One part of a message, and what it is to those who read it.

use super::header::PartHeader;
use super::kind::Kind;
use crate::file_name;
use std::ops::Range;

/// A report has a few lines for each recipient.
const REPORT_LINES_MAX: usize = 2000;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What its header says.
    pub header: PartHeader,
    /// Its body in the message, still encoded. Empty for a multipart or message whose parts follow as parts of their own, unless
    /// some reader would show the body itself.
    pub body: Range<usize>,
    /// How many multiparts and messages it is in.
    pub level: u32,
    /// Its body was read as a message, whose parts follow.
    pub opened: bool,
    /// Its end is missing: it ends where something around it goes on, which some take for more of it.
    pub(super) is_cut: bool,
}

impl Part {
    /// Whether more than a few lines of text would be hidden from who does not see it.
    pub(super) fn matters(&self) -> bool {
        let PartHeader { media_type, names, .. } = &self.header;
        let text = media_type.is_empty() || media_type == "text/plain";
        !self.body.is_empty() && (!text || !names.is_empty() || !self.header.is_plain())
    }

    /// Whether programs show it as a text.
    pub(super) fn is_text(&self) -> bool {
        self.header.media_type.is_empty() || self.header.media_type.starts_with("text/")
    }

    /// Whether it is another part with a boundary line or two behind it: what a mailer returns is often cut, and has no end of its own then.
    pub(super) fn only_ends_later(&self, other: &Part, message: &[u8]) -> bool {
        const LINES_MAX: usize = 400;
        let header = |part: &Part| PartHeader { ambiguous: None, encodings: Vec::new(), ..part.header.clone() };
        let shorter = self.body.start == other.body.start && other.body.end < self.body.end;
        let boundary = |line: &[u8]| line.trim_ascii().is_empty() || line.starts_with(b"--");
        shorter
            && self.body.end - other.body.end <= LINES_MAX
            && message[other.body.end..self.body.end].split(|byte| *byte == b'\n').all(boundary)
            && header(self) == header(other)
    }

    pub(super) fn is_same(&self, other: &Part) -> bool {
        let header = |part: &Part| PartHeader { ambiguous: None, ..part.header.clone() };
        self.body == other.body && self.opened == other.opened && header(self) == header(other)
    }
}

/// Whether a part that is called a message becomes something else when somebody saves it: then it is a file, with a message in it.
pub(super) fn is_file(header: &PartHeader, body: &[u8]) -> bool {
    let kind = Kind::of(body);
    let mut promised = header.names.iter().flat_map(|name| file_name::extensions(name));
    kind.is_archive()
        || kind.is_program()
        || kind == Kind::Ole
        || promised.any(|extension| file_name::is_archive(&extension))
}

/// Whether what is called a report consists of fields that say nothing about a body: then it is a text to everybody, also to those who read all of
/// `message` as a message. A report ends with the boundary of what it is in.
pub(super) fn is_bare_report(header: &PartHeader, body: &[u8]) -> bool {
    const OF_MESSAGE: [&[u8]; 4] = [b"content-", b"mime-version", b"begin", b"=ybegin"];
    let lines = body.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"--"));
    let of_message = |line: &[u8], field: &[u8]| {
        line.trim_ascii_start().get(..field.len()).is_some_and(|start| start.eq_ignore_ascii_case(field))
    };
    let mut lines = lines.take(REPORT_LINES_MAX + 1).enumerate();
    header.is_report()
        && lines.all(|(number, line)| {
            number < REPORT_LINES_MAX
                && memchr::memchr(b'\r', line.strip_suffix(b"\r").unwrap_or(line)).is_none()
                && !OF_MESSAGE.iter().any(|field| of_message(line, field))
        })
}
