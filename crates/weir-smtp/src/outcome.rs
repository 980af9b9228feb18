//! The outcome of one delivery attempt for one recipient, with the other server's own words.
//!
//! Text from outside is cut off at [`TEXT_MAX`] octets and contains no control characters, so it can be used in a log line, in a mark of
//! the spool and in a header of a bounce.

use std::fmt;
use std::sync::Arc;

/// How much text of a peer's reply is kept.
pub const TEXT_MAX: usize = 1000;
/// The beginning of the text for mail that failed only because the time for delivery was over.
const EXPIRED: &str = "not delivered in time; the last answer was: ";

/// The result for one recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryOutcome {
    /// Whether delivery has ended, and how.
    pub fate: Fate,
    /// The enhanced status code (RFC 3463), from the peer or from us.
    pub status: Status,
    /// The reply code of SMTP, if a peer sent one.
    pub code: Option<u16>,
    /// What the peer said, or what we found.
    pub text: Arc<str>,
    /// The host that said it.
    pub peer: Option<Arc<str>>,
}

/// Whether delivery has ended, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The next hop took it.
    Delivered,
    /// It failed, but another attempt may succeed.
    Temporary,
    /// It failed for good.
    Permanent,
}

/// An enhanced status code: class, subject, detail (RFC 3463).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u8, pub u16, pub u16);

impl DeliveryOutcome {
    /// A success.
    pub fn delivered(text: &str) -> DeliveryOutcome {
        DeliveryOutcome::new(Fate::Delivered, Status(2, 0, 0), text)
    }

    /// A temporary failure that we noticed ourselves.
    pub fn temporary(status: Status, text: &str) -> DeliveryOutcome {
        DeliveryOutcome::new(Fate::Temporary, status, text)
    }

    /// A permanent failure that we noticed ourselves.
    pub fn permanent(status: Status, text: &str) -> DeliveryOutcome {
        DeliveryOutcome::new(Fate::Permanent, status, text)
    }

    fn new(fate: Fate, status: Status, text: &str) -> DeliveryOutcome {
        DeliveryOutcome { fate, status, code: None, text: clean(text).into(), peer: None }
    }

    /// The same outcome, from this host.
    pub fn by(mut self, peer: &Arc<str>) -> DeliveryOutcome {
        self.peer = Some(Arc::clone(peer));
        self
    }

    /// The same outcome as a temporary failure. For a permanent refusal that is not the fault of this message.
    pub fn softened(mut self) -> DeliveryOutcome {
        if self.fate == Fate::Permanent {
            self.fate = Fate::Temporary;
            self.status.0 = 4;
        }
        self
    }

    /// The same outcome as a permanent failure, because the time for delivery is over.
    pub fn expired(&self) -> DeliveryOutcome {
        let text = format!("{EXPIRED}{}", self.text);
        let status = Status(5, 4, 7);
        DeliveryOutcome {
            fate: Fate::Permanent,
            status,
            code: self.code,
            text: clean(&text).into(),
            peer: self.peer.clone(),
        }
    }

    /// Whether it was made by [`DeliveryOutcome::expired`].
    pub fn is_expired(&self) -> bool {
        self.fate == Fate::Permanent && self.status == Status(5, 4, 7) && self.text.starts_with(EXPIRED)
    }
}

impl fmt::Display for DeliveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(peer) = &self.peer {
            write!(f, "{peer}: ")?;
        }
        if let Some(code) = self.code {
            write!(f, "{code} ")?;
        }
        write!(f, "{} {}", self.status, self.text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Status {
    /// Parses `5.7.1` at the beginning of a text. Returns it with the text after it.
    pub fn parse(text: &str) -> Option<(Status, &str)> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut numbers = word.split('.').map(number);
        let (class, subject, detail) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let class = u8::try_from(class).ok().filter(|class| matches!(class, 2 | 4 | 5))?;
        numbers.next().is_none().then_some((Status(class, subject, detail), rest))
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Makes one line of at most [`TEXT_MAX`] octets, without control characters.
pub fn clean(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_are_read_strictly() {
        assert_eq!(Status::parse("5.7.606 blocked"), Some((Status(5, 7, 606), "blocked")));
        assert_eq!(Status::parse("2.0.0"), Some((Status(2, 0, 0), "")));
        for text in ["", "5.7", "5.7.1.2 x", "3.1.1 x", "5.7.1234 x", "5.7.x y", "5..1", "+5.1.1", "10.1.1.1"] {
            assert_eq!(Status::parse(text), None, "{text}");
        }
    }

    #[test]
    fn text_from_outside_is_one_short_line() {
        let outcome = DeliveryOutcome::permanent(Status(5, 1, 1), &format!("a\r\nX: b{}", "é".repeat(2000)));
        assert!(outcome.text.len() <= TEXT_MAX && outcome.text.starts_with("a  X: b"));
        let outcome = DeliveryOutcome { code: Some(550), ..outcome }.by(&"mx.example".into());
        assert!(outcome.to_string().starts_with("mx.example: 550 5.1.1 a"));
    }

    #[test]
    fn what_is_not_the_messages_fault_is_tried_again() {
        let refused = DeliveryOutcome::permanent(Status(5, 7, 8), "no");
        assert_eq!(
            (refused.softened().fate, DeliveryOutcome::delivered("ok").softened().fate),
            (Fate::Temporary, Fate::Delivered)
        );
        let late = DeliveryOutcome::temporary(Status(4, 2, 2), "full").expired();
        assert_eq!((late.fate, late.status), (Fate::Permanent, Status(5, 4, 7)));
        assert!(late.text.ends_with("full"));
    }
}
