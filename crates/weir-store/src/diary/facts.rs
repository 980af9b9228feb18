//! Facts about a message in a line of the diary (sender, recipients, subject and so on), apart from the sentence for people.
//! [`crate::tracking`] finds messages by them.

use serde::{Deserialize, Serialize};

/// Recipients that are named in a sentence.
const NAMED_MAX: usize = 5;
/// Recipients that are remembered by name, as many as a mail usually may have; others are counted.
const TO_MAX: usize = 1_000;
/// The longest address or name, and the longest of the other texts, in characters.
const ADDRESS_MAX: usize = 320;
const TEXT_MAX: usize = 200;

/// Facts about a message. What is empty is not known, or did not change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The envelope sender.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The recipients; of very many the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// How many recipients there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub recipients: u64,
    /// The subject.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The size in octets.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: u64,
    /// The address of the client.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// Who sent it, if it was a user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub login: String,
    /// How it came: `submission`, `inbound`, `weir`, or the door that another server asked at, `milter` or `policy`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gate: String,
    /// The feed that scanned it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub feed: String,
    /// What the scan found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// Of how many recipients the line tells something, where it counts them.
    #[serde(skip_serializing_if = "is_zero")]
    pub concerns: u64,
    /// The server that took or refused it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Facts {
    /// The same with an end to what strangers wrote, and on one line.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Facts {
        self.recipients = self.recipients.max(self.to.len() as u64);
        self.to.truncate(TO_MAX);
        self.to.iter_mut().chain([&mut self.from, &mut self.login]).for_each(|text| bound(text, ADDRESS_MAX));
        let texts = [&mut self.subject, &mut self.client, &mut self.gate, &mut self.feed, &mut self.verdict];
        texts.into_iter().chain([&mut self.destination]).for_each(|text| bound(text, TEXT_MAX));
        self
    }

    /// Who wrote to whom about what, in a line.
    pub fn in_words(&self) -> String {
        let named: Vec<String> = self.to.iter().take(NAMED_MAX).map(|to| format!("<{to}>")).collect();
        let more = (self.recipients.max(self.to.len() as u64)).saturating_sub(named.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let login = if self.login.is_empty() { String::new() } else { format!(" as {}", self.login) };
        let (from, to, client) = (&self.from, named.join(", "), &self.client);
        format!("from {client}{login}: <{from}> to {to}{more}, subject {:?}", self.subject)
    }

    /// What a line of an older Weir says in words; empty if it cannot be read. A login or an address with unusual characters may be cut at the
    /// wrong place: these words were made for people.
    pub(crate) fn of_words(text: &str) -> Facts {
        let read = || {
            let (came, rest) = text.strip_prefix("from ")?.split_once(": <")?;
            let (from, rest) = rest.split_once("> to ")?;
            let (to, subject) = rest.split_once(", subject \"").unwrap_or((rest, ""));
            let subject = subject.strip_suffix('"').unwrap_or(subject);
            let (client, login) = came.split_once(" as ").unwrap_or((came, ""));
            let (to, more) = to.split_once(" and ").unwrap_or((to, ""));
            let to: Vec<String> = to.split(", ").map(|to| to.trim_matches(['<', '>']).to_owned()).collect();
            let more: u64 = more.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            Some(Facts {
                from: from.to_owned(),
                recipients: to.len() as u64 + more,
                to,
                subject: subject.replace("\\\"", "\""),
                client: client.to_owned(),
                login: login.to_owned(),
                ..Facts::default()
            })
        };
        read().unwrap_or_default()
    }
}

/// Cuts a text, and replaces what is no printable character.
fn bound(text: &mut String, most: usize) {
    if text.len() > most || text.contains(char::is_control) {
        *text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Facts {
        Facts {
            from: "ann@example.org".into(),
            to: vec!["bob@example.net".into(), "eve@example.com".into()],
            recipients: 2,
            subject: "says \"hello\"".into(),
            client: "192.0.2.7".into(),
            login: "ann".into(),
            ..Facts::default()
        }
    }

    #[test]
    fn the_words_of_an_older_weir_are_read_back() {
        let text = r#"from 192.0.2.7 as ann: <ann@example.org> to <bob@example.net>, <eve@example.com>, subject "says \"hello\"""#;
        assert_eq!(usual().in_words(), text);
        assert_eq!(Facts::of_words(text), usual());
        let many = Facts { to: vec!["x@y".into(); 7], recipients: 40, ..usual() };
        assert_eq!(Facts::of_words(&many.in_words()).recipients, 40);
        for other in ["", "from ", "from x: <", "delivered", "from 1: <> to <a@b>"] {
            let _ = Facts::of_words(other);
        }
    }

    #[test]
    fn what_strangers_wrote_has_an_end_and_one_line() {
        let facts = Facts {
            subject: format!("a\r\nb\u{1b}[2J{}", "x".repeat(5_000)),
            to: vec!["y".repeat(5_000); 1_500],
            ..Facts::default()
        };
        let facts = facts.bounded();
        assert!(facts.subject.starts_with("a  b [2J") && facts.subject.len() == TEXT_MAX);
        assert_eq!((facts.to.len(), facts.recipients, facts.to[0].len()), (TO_MAX, 1_500, ADDRESS_MAX));
    }
}
