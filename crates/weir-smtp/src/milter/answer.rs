//! The answers of a milter filter.

use crate::reply::{Reply, Status};

/// Longer texts in an answer are cut off.
const TEXT_MAX: usize = 900;

/// An answer to a command. Answers that change the message come before the one that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Continue,
    /// Accept the message, and ask no more about it.
    Accept,
    /// Tell the client that the message was accepted, and drop it.
    Discard,
    /// Refuse it for good, with the server's own text.
    Reject,
    /// Refuse it for now, with the server's own text.
    TempFail,
    /// Refuse it with this reply.
    Reply(Reply),
    /// Remove this recipient; the address is in angle brackets.
    DeleteRecipient(String),
    /// Add a field at the end of the header.
    AddHeader {
        /// Its name.
        name: String,
        /// The text after the colon.
        value: String,
    },
    /// Insert a field into the header.
    InsertHeader {
        /// Its position; 0 is before the first field.
        at: u32,
        /// Its name.
        name: String,
        /// The text after the colon.
        value: String,
    },
    /// Change the value of a field, or delete the field.
    ChangeHeader {
        /// Which one of the fields with this name, from 1.
        index: u32,
        /// The name of the field.
        name: String,
        /// The new value; empty to delete the field.
        value: String,
    },
    /// Put the message into the server's quarantine, for this reason.
    Quarantine(String),
    /// The final answer will take a while.
    Progress,
}

impl Answer {
    /// The same answer for a server that puts no blank after the colon of a field by itself.
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

    /// Appends the answer as a packet.
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
                // Only a refusal may have a text of its own.
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

/// A refusal as a line. A percent sign must be doubled, because servers treat it as the start of a format.
fn line_of(reply: &Reply) -> Option<String> {
    let class = reply.code() / 100;
    let Status(of, subject, detail) = reply.status().filter(|status| u16::from(status.0) == class)?;
    let text = plain(&ascii(reply.text())).replace('%', "%%");
    matches!(class, 4 | 5).then(|| format!("{} {of}.{subject}.{detail} {text}", reply.code()))
}

fn ascii(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect()
}

/// Makes a text one line and cuts it: a NUL would end it, and a line break would make two lines of it.
fn plain(text: &str) -> String {
    let line = text.chars().filter(|c| !c.is_control());
    line.take(TEXT_MAX).collect()
}
