//! The answers of a milter filter.

use crate::reply::{Reply, Status};

/// The longest text in an answer.
const TEXT_MAX: usize = 900;

/// An answer. Those that change the message come before the one that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Continue,
    /// Take it; ask no more about this message.
    Accept,
    /// Tell the client that it was taken, and forget it.
    Discard,
    /// Refuse it for good, in the server's words.
    Reject,
    /// Refuse it for now, in the server's words.
    TempFail,
    /// Refuse it in these words.
    Reply(Reply),
    /// This recipient is not the server's any more: the address in angle brackets.
    DeleteRecipient(String),
    /// A field at the end of the header.
    AddHeader {
        /// Its name.
        name: String,
        /// What stands behind the colon.
        value: String,
    },
    /// A field at this place of the header.
    InsertHeader {
        /// Before which field; 0 for the first.
        at: u32,
        /// Its name.
        name: String,
        /// What stands behind the colon.
        value: String,
    },
    /// Another value for a field; none deletes it.
    ChangeHeader {
        /// Which of the fields of this name, from 1.
        index: u32,
        /// Their name.
        name: String,
        /// What is to stand there; empty to delete it.
        value: String,
    },
    /// Keep it for a person; why.
    Quarantine(String),
    /// It takes a while yet.
    Progress,
}

impl Answer {
    /// The same for a server that puts no blank behind the colon of a field by itself.
    #[must_use]
    pub fn spaced(self) -> Answer {
        let spaced = |value: String| if value.is_empty() { value } else { format!(" {value}") };
        match self {
            Answer::AddHeader { name, value } => Answer::AddHeader { name, value: spaced(value) },
            Answer::InsertHeader { at, name, value } => Answer::InsertHeader { at, name, value: spaced(value) },
            Answer::ChangeHeader { index, name, value } => Answer::ChangeHeader { index, name, value: spaced(value) },
            other => other,
        }
    }

    /// Adds the packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Continue => packet(out, b'c', &[]),
            Answer::Accept => packet(out, b'a', &[]),
            Answer::Discard => packet(out, b'd', &[]),
            Answer::Reject => packet(out, b'r', &[]),
            Answer::TempFail => packet(out, b't', &[]),
            Answer::Progress => packet(out, b'p', &[]),
            Answer::Reply(reply) => match line_of(reply) {
                Some(line) => packet(out, b'y', &[line.as_bytes(), &[0]]),
                // Only refusals can be said in one's own words.
                None => packet(out, b't', &[]),
            },
            Answer::DeleteRecipient(address) => packet(out, b'-', &[plain(address).as_bytes(), &[0]]),
            Answer::AddHeader { name, value } => {
                packet(out, b'h', &[plain(name).as_bytes(), &[0], plain(value).as_bytes(), &[0]]);
            }
            Answer::InsertHeader { at, name, value } => {
                let field =
                    [&at.to_be_bytes()[..], plain(name).as_bytes(), &[0], plain(value).as_bytes(), &[0]].concat();
                packet(out, b'i', &[&field]);
            }
            Answer::ChangeHeader { index, name, value } => {
                let field =
                    [&index.to_be_bytes()[..], plain(name).as_bytes(), &[0], plain(value).as_bytes(), &[0]].concat();
                packet(out, b'm', &[&field]);
            }
            Answer::Quarantine(why) => packet(out, b'q', &[plain(why).as_bytes(), &[0]]),
        }
    }
}

fn packet(out: &mut Vec<u8>, letter: u8, parts: &[&[u8]]) {
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.push(letter);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A refusal as a line. Servers take a percent sign for the start of something unless it is doubled.
fn line_of(reply: &Reply) -> Option<String> {
    let class = reply.code() / 100;
    let Status(of, subject, detail) = reply.status().filter(|status| u16::from(status.0) == class)?;
    let text = plain(&ascii(reply.text())).replace('%', "%%");
    matches!(class, 4 | 5).then(|| format!("{} {of}.{subject}.{detail} {text}", reply.code()))
}

fn ascii(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect()
}

/// A text in one line, cut: a NUL would end it, and an end of a line would make two of it.
fn plain(text: &str) -> String {
    let line = text.chars().filter(|c| !c.is_control());
    line.take(TEXT_MAX).collect()
}
