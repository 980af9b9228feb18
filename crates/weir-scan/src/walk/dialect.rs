//! The ways in which readers of mail differ about the same octets.
//!
//! The first pass over a message ([`super::structure`]) reads it as the standards say. It also notices where some reader would see
//! another structure; then the message is read once more in each of these dialects, and what any of them shows is looked at.
//! Each is the habit of a reader that people use: Python's `email`, Dovecot and the programs behind it, `mail-parser`.

/// What one reader does otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Dialect {
    /// A return alone ends a line, too.
    pub(super) returns: bool,
    /// A header ends before the first line that is no field.
    pub(super) short_headers: bool,
    /// A line that only begins like a boundary is one.
    pub(super) prefixes: bool,
    /// Only the boundary of the innermost multipart counts, and it does wherever in a line it stands.
    pub(super) innermost: bool,
}

const PLAIN: Dialect = Dialect { returns: false, short_headers: false, prefixes: false, innermost: false };

/// What the first pass came across.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    /// A return that is not before a newline.
    pub(super) bare_return: bool,
    /// A line in a header that is neither a field nor goes on with one.
    pub(super) odd_header_line: bool,
    /// A line that begins like a boundary and goes on.
    pub(super) nearly: bool,
    /// A boundary inside a line, or a multipart that was ended by something around it.
    pub(super) unusual_end: bool,
}

impl Noticed {
    /// The dialects in which the message is worth another pass.
    pub(super) fn dialects(self) -> Vec<Dialect> {
        let Noticed { bare_return, odd_header_line, nearly, unusual_end } = self;
        let choices = [
            (odd_header_line, Dialect { short_headers: true, ..PLAIN }),
            (nearly, Dialect { prefixes: true, ..PLAIN }),
            (nearly || unusual_end, Dialect { innermost: true, ..PLAIN }),
            (bare_return, Dialect { returns: true, ..PLAIN }),
            (bare_return, Dialect { returns: true, short_headers: true, ..PLAIN }),
            (bare_return && nearly, Dialect { returns: true, prefixes: true, ..PLAIN }),
        ];
        choices.into_iter().filter(|(wanted, _)| *wanted).map(|(_, dialect)| dialect).collect()
    }
}

impl Dialect {
    /// How long the line at the start of a text is, with its end.
    pub(super) fn line_length(self, text: &[u8]) -> usize {
        if !self.returns {
            return memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1);
        }
        match memchr::memchr2(b'\n', b'\r', text) {
            None => text.len(),
            Some(end) if text[end] == b'\r' && text.get(end + 1) == Some(&b'\n') => end + 2,
            Some(end) => end + 1,
        }
    }

    /// Whether a line is empty, which ends a header.
    pub(super) fn is_empty(self, line: &[u8]) -> bool {
        matches!(line, b"\r\n" | b"\n") || (self.returns && line == b"\r")
    }
}

/// Whether a line of a header is a field, goes on with one, or is the line with which old mailboxes begin a message.
pub(super) fn is_header_line(line: &[u8]) -> bool {
    let name = line.iter().take_while(|byte| matches!(byte, 33..=57 | 59..=126)).count();
    line.get(name) == Some(&b':') || matches!(line.first(), Some(b' ' | b'\t')) || line.starts_with(b"From ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_the_reader_thinks() {
        let returns = Dialect { returns: true, ..PLAIN };
        assert_eq!((PLAIN.line_length(b"a\rb\r\nc"), returns.line_length(b"a\rb\r\nc")), (5, 2));
        assert_eq!((PLAIN.line_length(b"abc"), returns.line_length(b"b\r\nc"), returns.line_length(b"b\r")), (3, 3, 2));
        assert!(returns.is_empty(b"\r") && !PLAIN.is_empty(b"\r") && PLAIN.is_empty(b"\r\n"));
    }

    #[test]
    fn header_lines() {
        for line in ["Subject: x", "X-1:", " goes on", "\tgoes on", "From somebody", ":"] {
            assert!(is_header_line(line.as_bytes()), "{line}");
        }
        for line in ["Subject : x", "no field", "", "Gr\u{fc}n: x", "--b"] {
            assert!(!is_header_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn usual_mail_is_read_once() {
        assert!(Noticed::default().dialects().is_empty());
        let bare = Noticed { bare_return: true, ..Noticed::default() };
        assert_eq!(bare.dialects().len(), 2);
    }
}
