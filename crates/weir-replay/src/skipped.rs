//! Counts what could not be used by reason, with a few examples for each.
//!
//! Bounded: one entry per reason, three examples each, each example short and printable.

use serde::Serialize;
use std::collections::BTreeMap;

/// Why something in a source was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A mail without a date that can be believed, anywhere.
    NoDate,
    /// A mail that does not say who sent it.
    NoSender,
    /// A mail without a recipient.
    NoRecipients,
    /// A notice from the mail system itself (`from=<>`): nobody's mail.
    Bounce,
    /// The same mail again: handed back by a content filter, forwarded by an alias, or filed twice.
    QueuedAgain,
    /// A mail in a log that began after the mail was accepted, so that its sender and time are not known.
    BeforeTheLog,
    /// A mail whose sender had not logged in, where only mail of those who had was asked for.
    NotAuthenticated,
    /// Addresses beyond what is kept of one mail.
    TooManyRecipients,
    /// A header that is too long to be read whole; its beginning was used.
    LongHeader,
    /// A text that is not an address: empty, too long, or with blanks or control characters.
    BadAddress,
    /// A line of a log without a time that can be read.
    BadTime,
    /// A line too long for a log; its beginning was used.
    LongLine,
    /// Text before the first mail of an mbox.
    StrayText,
    /// A message file that cannot be read.
    Unreadable,
    /// A message file that is compressed.
    Compressed,
    /// A file without content.
    EmptyFile,
}

impl Reason {
    /// One such case in words.
    pub fn words(self) -> &'static str {
        match self {
            Reason::NoDate => "mail without a believable date",
            Reason::NoSender => "mail without a sender",
            Reason::NoRecipients => "mail without a recipient",
            Reason::Bounce => "notice of the mail system itself (from=<>)",
            Reason::QueuedAgain => {
                "copy of a mail that is counted already (content filter, alias, requeue, filed twice)"
            }
            Reason::BeforeTheLog => "mail accepted before the log begins",
            Reason::NotAuthenticated => "mail whose sender had not logged in",
            Reason::TooManyRecipients => "recipient beyond the first 10 000 of a mail",
            Reason::LongHeader => "header longer than 256 KiB (its beginning was used)",
            Reason::BadAddress => "text in the place of an address that is none",
            Reason::BadTime => "log line without a readable time",
            Reason::LongLine => "log line longer than 64 KiB (its beginning was used)",
            Reason::StrayText => "line before the first mail of an mbox",
            Reason::Unreadable => "message file that cannot be read",
            Reason::Compressed => "message file that is compressed",
            Reason::EmptyFile => "empty file",
        }
    }
}

/// Counts by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Skipped {
    reasons: BTreeMap<Reason, Case>,
}

/// How often, and where for instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Case {
    /// How often.
    pub count: u64,
    /// The first few.
    pub examples: Vec<String>,
}

const EXAMPLES_MAX: usize = 3;
const EXAMPLE_LENGTH_MAX: usize = 120;

impl Skipped {
    /// Counts one, with where it was.
    pub(crate) fn count(&mut self, reason: Reason, example: impl FnOnce() -> String) {
        let case = self.reasons.entry(reason).or_default();
        case.count += 1;
        if case.examples.len() < EXAMPLES_MAX {
            case.examples.push(printable(&example()));
        }
    }

    /// What was skipped, by reason.
    pub fn cases(&self) -> impl Iterator<Item = (Reason, &Case)> {
        self.reasons.iter().map(|(reason, case)| (*reason, case))
    }

    /// How often a reason occurred.
    pub fn count_of(&self, reason: Reason) -> u64 {
        self.reasons.get(&reason).map_or(0, |case| case.count)
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.reasons.values().map(|case| case.count).sum()
    }
}

/// Text of others made fit for a terminal: no control characters, one line, not long.
pub fn printable(text: &str) -> String {
    let clean = |c: char| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(EXAMPLE_LENGTH_MAX).map(clean).collect();
    if text.chars().nth(EXAMPLE_LENGTH_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Characters that change the direction of the text around them and so can make a line say something else.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_few_short_and_printable() {
        let mut skipped = Skipped::default();
        for i in 0..1000 {
            skipped.count(Reason::NoDate, || format!("\u{1b}[2J\u{202e}mail {i} {}", "x".repeat(5000)));
        }
        let (reason, case) = skipped.cases().next().unwrap();
        assert_eq!((reason, case.count, case.examples.len()), (Reason::NoDate, 1000, 3));
        assert!(case.examples.iter().all(|e| e.chars().count() <= 121 && !e.contains(['\u{1b}', '\u{202e}'])));
        assert_eq!(skipped.total(), 1000);
    }
}
