//! What a spam filter asks to be done with a message, besides what it found: the actions and headers that a mail server gets from a milter.

use serde::{Deserialize, Serialize};

/// Lines that are added at most, and how long one may be.
const LINES_MAX: usize = 32;
const VALUE_MAX: usize = 2048;
const NAME_MAX: usize = 64;

/// What is to become of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// Nothing against it.
    #[default]
    Pass,
    /// It goes on, marked as spam.
    Mark,
    /// It does not go on.
    Keep,
    /// It is to be asked about again later.
    Later,
}

/// Everything that a filter asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// What is to become of it.
    pub action: Wish,
    /// Why, in the filter's words; may be empty.
    pub words: String,
    /// Fields for its header.
    pub fields: Vec<(String, String)>,
    /// Another subject.
    pub subject: Option<String>,
}

impl Wishes {
    /// The header lines, each with CR LF. A filter repeats what strangers wrote: a field that would change what the message is, or who
    /// wrote it, is left out, and so is everything that could begin a line of its own.
    pub fn lines(&self) -> String {
        let fields = self.fields.iter().filter(|(name, _)| is_harmless(name)).take(LINES_MAX);
        let mut lines: String = fields.map(|(name, value)| format!("{name}: {}\r\n", one_line(value))).collect();
        if let Some(subject) = &self.subject {
            lines += &format!("Subject: {}\r\n", one_line(subject));
        }
        lines
    }
}

/// Whether a field says something about a message without changing it.
fn is_harmless(name: &str) -> bool {
    const OWN: [&str; 12] = [
        "from",
        "to",
        "cc",
        "bcc",
        "subject",
        "sender",
        "reply-to",
        "date",
        "mime-version",
        "return-path",
        "x-weir-scan",
        "x-spam-flag",
    ];
    let lower = name.to_ascii_lowercase();
    let token =
        !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(|byte| matches!(byte, 33..=57 | 59..=126));
    token
        && !OWN.contains(&lower.as_str())
        && !["content-", "resent-", "received"].iter().any(|start| lower.starts_with(start))
}

/// A value without ends of lines and what nobody can see; what was folded has a blank there.
fn one_line(value: &str) -> String {
    let mut line = String::new();
    for word in value.split(['\r', '\n']).map(str::trim).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
    }
    if let Some((end, _)) = line.char_indices().nth(VALUE_MAX) {
        line.truncate(end);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines_and_change_nothing_else() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = vec![
            field("X-Spamd-Bar", "+++++"),
            field("X-Spamd-Result", "default: False [5.00 / 15.00];\n\tONE(1.00)[];\r\n\tTWO(4.00)[]"),
            field("From", "boss@b.example"),
            field("Content-Type", "text/html"),
            field("X-Bad\r\nBcc", "x@y"),
            field("X Blank", "x"),
            field("X-Weir-Scan", "clean"),
        ];
        let wishes = Wishes { fields, subject: Some("***SPAM***\r\nBcc: x@y".into()), ..Wishes::default() };
        let said = "X-Spamd-Bar: +++++\r\nX-Spamd-Result: default: False [5.00 / 15.00]; ONE(1.00)[]; TWO(4.00)[]\r\n\
            Subject: ***SPAM*** Bcc: x@y\r\n";
        assert_eq!(wishes.lines(), said);
        let many = vec![field("X-A", &"y".repeat(10_000)); 100];
        let lines = Wishes { fields: many, ..Wishes::default() }.lines();
        assert!(lines.lines().count() == LINES_MAX && lines.len() < LINES_MAX * (VALUE_MAX + 10));
    }
}
