//! Parses the replies of a server, which may be hostile (RFC 5321 section 4.2).
//!
//! The parser takes whole lines from a buffer and remembers what it has parsed, so each line is parsed once, however slowly the peer sends.
//! A line has at most [`LINE_MAX`] octets and a reply at most [`LINES_MAX`] lines; at most [`TEXT_KEPT`] octets of the text are kept. Every
//! line must have the same code. smtp-proto's parser checks neither the codes nor the number of lines, so we have our own.

use std::sync::Arc;

use crate::outcome::{DeliveryOutcome, Fate, Status, clean};

/// The longest line of a reply.
pub const LINE_MAX: usize = 4096;
/// The most lines of a reply.
pub const LINES_MAX: usize = 256;
/// How much of the text is kept.
pub const TEXT_KEPT: usize = 8192;

/// A complete reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The three digits.
    pub code: u16,
    /// The text of all lines without the code, with `\n` between them.
    pub text: String,
}

/// Assembles replies from their lines.
#[derive(Debug, Default)]
pub struct ReplyParser {
    code: Option<u16>,
    lines: usize,
    text: String,
}

/// Why octets are not a reply. The connection cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    /// A line or the whole reply is too long.
    #[error("the server's reply is too long")]
    TooLong,
    /// A line does not begin with three digits, or the lines have different codes.
    #[error("the server's reply makes no sense")]
    Senseless,
}

impl ReplyParser {
    /// Takes what it can from `bytes`. Returns how many octets were used, and the reply if it is complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), ReplyError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let window = rest.get(..LINE_MAX).unwrap_or(rest);
            let Some(end) = memchr::memchr(b'\n', window) else {
                return if window.len() == LINE_MAX { Err(ReplyError::TooLong) } else { Ok((used, None)) };
            };
            used += end + 1;
            if self.line(rest.get(..end).unwrap_or_default())? {
                return Ok((used, Some(self.finish())));
            }
        }
    }

    /// Whether a reply has begun but is not complete.
    pub fn is_midway(&self) -> bool {
        self.lines > 0
    }

    /// Parses one line. Returns whether it was the last of the reply.
    fn line(&mut self, line: &[u8]) -> Result<bool, ReplyError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (digits, rest) = line.split_at_checked(3).ok_or(ReplyError::Senseless)?;
        let code = parse_code(digits).ok_or(ReplyError::Senseless)?;
        let (last, text) = match rest.split_first() {
            None => (true, rest),
            Some((b' ', text)) => (true, text),
            Some((b'-', text)) => (false, text),
            Some(_) => return Err(ReplyError::Senseless),
        };
        if self.code.replace(code).is_some_and(|before| before != code) {
            return Err(ReplyError::Senseless);
        }
        self.lines += 1;
        if self.lines > LINES_MAX {
            return Err(ReplyError::TooLong);
        }
        self.keep(text);
        Ok(last)
    }

    fn keep(&mut self, text: &[u8]) {
        // An octet that is not UTF-8 becomes three octets.
        let text = String::from_utf8_lossy(text);
        if self.text.len() + text.len() >= TEXT_KEPT {
            return;
        }
        if self.lines > 1 {
            self.text.push('\n');
        }
        self.text.push_str(&text);
    }

    fn finish(&mut self) -> Reply {
        let whole = std::mem::take(self);
        Reply { code: whole.code.unwrap_or_default(), text: whole.text }
    }
}

fn parse_code(digits: &[u8]) -> Option<u16> {
    let [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] = digits else { return None };
    Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}

impl Reply {
    /// Whether the code is 2xx.
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether the code is 3xx.
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// Whether the code is 421: the server is about to close the connection.
    pub fn is_goodbye(&self) -> bool {
        self.code == 421
    }

    /// What it means for a recipient.
    pub fn outcome(&self, peer: &Arc<str>) -> DeliveryOutcome {
        let fate = match self.code / 100 {
            2 => Fate::Delivered,
            5 => Fate::Permanent,
            // A 3xx in the wrong place comes from a confused server; it is not a decision about the recipient.
            _ => Fate::Temporary,
        };
        let said = Status::parse(&self.text).filter(|(status, _)| status.0 == class(fate));
        let (status, text) =
            said.map_or((Status(class(fate), 0, 0), self.text.as_str()), |(status, _)| (status, self.rest()));
        DeliveryOutcome { fate, status, code: Some(self.code), text: clean(text).into(), peer: Some(Arc::clone(peer)) }
    }

    /// The text without the enhanced status codes of the first line.
    fn rest(&self) -> &str {
        Status::parse(&self.text).map_or(self.text.as_str(), |(_, rest)| rest)
    }
}

fn class(fate: Fate) -> u8 {
    match fate {
        Fate::Delivered => 2,
        Fate::Temporary => 4,
        Fate::Permanent => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<(usize, Option<Reply>), ReplyError> {
        ReplyParser::default().take(bytes)
    }

    fn reply(text: &str) -> Reply {
        parse(text.as_bytes()).unwrap().1.unwrap()
    }

    #[test]
    fn one_line_and_several() {
        assert_eq!(parse(b"250 2.0.0 ok\r\n250 next"), Ok((14, Some(Reply { code: 250, text: "2.0.0 ok".into() }))));
        assert_eq!(reply("250-a\r\n250-SIZE 5\r\n250 b\r\n").text, "a\nSIZE 5\nb");
        assert_eq!(reply("354\r\n"), Reply { code: 354, text: String::new() });
        assert_eq!(reply("220 bare newline\n").text, "bare newline");
    }

    #[test]
    fn a_reply_may_come_in_any_pieces() {
        let text = b"250-first\r\n250-second\r\n250 third\r\n";
        for cut in 0..text.len() {
            let mut parser = ReplyParser::default();
            let (used, none) = parser.take(&text[..cut]).unwrap();
            assert_eq!(none, None);
            let (more, whole) = parser.take(&text[used..]).unwrap();
            assert_eq!((used + more, whole.unwrap().text.as_str()), (text.len(), "first\nsecond\nthird"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["hello\r\n", "2\r\n", "\r\n", "25x ok\r\n", "150 ok\r\n", "650 ok\r\n", "250_x\r\n", "250-a\r\n251 b\r\n"]
        {
            assert_eq!(parse(text.as_bytes()), Err(ReplyError::Senseless), "{text}");
        }
    }

    #[test]
    fn length_is_bounded() {
        assert_eq!(parse(&[b'2'; LINE_MAX]), Err(ReplyError::TooLong));
        assert_eq!(parse(&[b'2'; LINE_MAX - 1]), Ok((0, None)));
        assert_eq!(parse("250-x\r\n".repeat(LINES_MAX + 1).as_bytes()), Err(ReplyError::TooLong));
        let long = format!("250-{}\r\n", "y".repeat(4000)).repeat(100) + "250 end\r\n";
        assert!(reply(&long).text.len() <= TEXT_KEPT);
    }

    #[test]
    fn a_reply_is_an_outcome_in_the_peers_words() {
        let peer = "mx.example".into();
        let outcome = reply("550 5.1.1 no such user\r\n").outcome(&peer);
        assert_eq!((outcome.fate, outcome.status, outcome.code), (Fate::Permanent, Status(5, 1, 1), Some(550)));
        assert_eq!(&*outcome.text, "no such user");
        // A status of another class than the code is not used as the status, but kept in the text.
        let outcome = reply("450 5.1.1 later\r\n").outcome(&peer);
        assert_eq!((outcome.fate, outcome.status, &*outcome.text), (Fate::Temporary, Status(4, 0, 0), "5.1.1 later"));
        assert_eq!(reply("354 go\r\n").outcome(&peer).fate, Fate::Temporary);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_stall(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut parser = ReplyParser::default();
            let mut at = 0;
            while let Ok((used, Some(_))) = parser.take(&bytes[at..]) {
                prop_assert!(used > 0);
                at += used;
            }
        }
    }
}
