//! One SMTP reply: code, enhanced status code, text.
//!
//! Whatever text the gate hands in, the client receives printable ASCII in lines of at most 512 octets, each with code and status (RFC 5321
//! section 4.2, RFC 2034). The text is cut off at [`TEXT_MAX`] octets. Cost: one pass.

use std::borrow::Cow;

/// The longest text of a reply; the rest is cut off.
pub const TEXT_MAX: usize = 2048;
/// The longest text in one line: 512 octets minus code, status and CR LF.
const LINE_TEXT_MAX: usize = 480;

/// An SMTP reply. Codes 2xx accept, 4xx refuse for now, 5xx refuse for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    code: u16,
    status: Option<Status>,
    text: Cow<'static, str>,
}

/// An enhanced status code (RFC 3463): class, subject, detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u8, pub u8, pub u8);

impl Reply {
    /// A reply whose text is known at compile time.
    pub const fn fixed(code: u16, status: Status, text: &'static str) -> Reply {
        Reply { code, status: Some(status), text: Cow::Borrowed(text) }
    }

    /// A reply with a text that is made at run time. Line breaks in it make a reply of several lines.
    pub fn new(code: u16, status: Status, text: impl Into<Cow<'static, str>>) -> Reply {
        Reply { code, status: Some(status), text: text.into() }
    }

    /// A reply that must not have a status: the greeting, EHLO, 334 and 354.
    pub fn bare(code: u16, text: impl Into<Cow<'static, str>>) -> Reply {
        Reply { code, status: None, text: text.into() }
    }

    /// The three digits.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The enhanced status code, if it has one.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// The text as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it accepts (2xx).
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether it refuses for now (4xx).
    pub fn is_temporary(&self) -> bool {
        self.code / 100 == 4
    }

    /// Appends the reply in the form in which it is sent.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let text = cut(&self.text, TEXT_MAX);
        let mut lines = text.split('\n').flat_map(wrapped).peekable();
        while let Some(line) = lines.next() {
            self.write_line(line, lines.peek().is_none(), out);
        }
    }

    fn write_line(&self, text: &str, last: bool, out: &mut Vec<u8>) {
        push_number(self.code, out);
        out.push(if last { b' ' } else { b'-' });
        if let Some(Status(class, subject, detail)) = self.status {
            push_number(u16::from(class), out);
            out.push(b'.');
            push_number(u16::from(subject), out);
            out.push(b'.');
            push_number(u16::from(detail), out);
            out.push(b' ');
        }
        push_printable(text, out);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_number(number: u16, out: &mut Vec<u8>) {
    let digit = |place: u16| b'0' + u8::try_from(number / place % 10).unwrap_or(0);
    if number >= 100 {
        out.push(digit(100));
    }
    if number >= 10 {
        out.push(digit(10));
    }
    out.push(digit(1));
}

fn push_printable(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.extend(text.chars().map(|c| u8::try_from(c).ok().filter(|byte| matches!(byte, 0x20..=0x7e)).unwrap_or(b'?')));
}

/// Splits the text into pieces of at most [`LINE_TEXT_MAX`] octets, after a space if possible.
fn wrapped(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= LINE_TEXT_MAX {
            rest = None;
            return Some(text);
        }
        let head = cut(text, LINE_TEXT_MAX);
        let head = head.rfind(' ').and_then(|space| text.get(..space + 1)).unwrap_or(head);
        rest = text.get(head.len()..);
        Some(head)
    })
}

/// The first `max` octets at most, but never half a character.
fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_line_with_code_and_status() {
        assert_eq!(wire(&Reply::fixed(250, Status(2, 1, 0), "ok")), "250 2.1.0 ok\r\n");
        assert_eq!(wire(&Reply::new(535, Status(5, 7, 8), "no")), "535 5.7.8 no\r\n");
        assert_eq!(wire(&Reply::bare(334, "")), "334 \r\n");
        assert_eq!(wire(&Reply::new(550, Status(5, 7, 26), "x")), "550 5.7.26 x\r\n");
    }

    #[test]
    fn line_breaks_make_lines_and_cannot_forge_a_reply() {
        let reply = Reply::new(550, Status(5, 7, 1), "one\r\n250 2.0.0 forged\u{7f}é");
        assert_eq!(wire(&reply), "550-5.7.1 one?\r\n550 5.7.1 250 2.0.0 forged??\r\n");
    }

    #[test]
    fn long_text_is_wrapped_and_cut() {
        let wire = wire(&Reply::new(450, Status(4, 2, 0), "word ".repeat(2000)));
        assert!(wire.lines().all(|line| line.len() <= 510), "{wire}");
        assert!(wire.len() < TEXT_MAX + 200);
        assert_eq!(wire.lines().filter(|line| line.starts_with("450 ")).count(), 1);
        let solid = self::wire(&Reply::new(450, Status(4, 2, 0), "é".repeat(700)));
        assert!(solid.lines().all(|line| line.len() <= 510), "{solid}");
    }
}
