//! Splits a line into words, and writes words as a line.

use std::str::FromStr;

/// The longest text for people, in characters.
const TEXT_MAX: usize = 500;

/// Why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The words do not belong to any message.
    #[error("no message begins so: {0:?}")]
    Unknown(String),
    /// A word is missing or not valid.
    #[error("{0} is missing or not valid")]
    Argument(&'static str),
    /// There is more text than the message has.
    #[error("there is more on the line than the message has: {0:?}")]
    Trailing(String),
}

/// The words of a line that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a str) -> Words<'a> {
        Words(line)
    }

    /// Removes these words from the front, if they are there.
    pub(super) fn take(&mut self, words: &str) -> bool {
        let Some(rest) = self.0.strip_prefix(words) else { return false };
        if !rest.is_empty() && !rest.starts_with(' ') {
            return false;
        }
        self.0 = rest.strip_prefix(' ').unwrap_or(rest);
        true
    }

    /// The next word, which is `what`.
    pub(super) fn next<T: FromStr>(&mut self, what: &'static str) -> Result<T, Malformed> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word.parse().map_err(|_| Malformed::Argument(what))
    }

    /// The rest of the line, which is `what` in JSON.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self, what: &'static str) -> Result<T, Malformed> {
        let text = std::mem::take(&mut self.0);
        serde_json::from_str(text).map_err(|_| Malformed::Argument(what))
    }

    /// The rest of the line, a text for people as [`one_line`] writes it: shortened if it is long. Without control characters, which some
    /// databases do not accept.
    pub(super) fn rest(&mut self) -> Result<String, Malformed> {
        let text = std::mem::take(&mut self.0);
        if text.chars().any(char::is_control) { Err(Malformed::Argument("the reason")) } else { Ok(one_line(text)) }
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing(cut(self.0))) }
    }

    pub(super) fn unknown(self) -> Malformed {
        Malformed::Unknown(cut(self.0))
    }
}

/// A text for people, on one line and not too long.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The beginning of it, enough to recognise it.
fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}
