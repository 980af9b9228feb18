//! A message as a mail server describes it over the milter protocol: field by field and piece by piece.

use crate::door::{Incoming, NotTaken, Room, Taken};
use crate::intake::broken_header;
use crate::intake::forged::is_forged;
use crate::intake::header::HEADER_MAX;
use std::sync::Arc;
use weir_scan::content::Content;
use weir_smtp::milter::Answer;
use weir_smtp::reply::{Reply, Status};

/// The longest line that SMTP allows, without its end.
const LINE_MAX: usize = 998;
/// More fields in our name than this are no accident; the message is refused.
const FORGED_MAX: usize = 100;

/// A message that is coming.
pub(super) struct Message {
    incoming: Option<Incoming>,
    refused: Option<Reply>,
    in_header: bool,
    /// Octets of the header so far.
    header_bytes: usize,
    text: Text,
    forged: Forged,
    hostname: Arc<str>,
}

/// A message that is complete.
pub(super) struct Complete {
    pub(super) content: Content,
    /// Its place among all that wait; given back when this is dropped.
    _taken: Taken,
    pub(super) eight_bit: bool,
    pub(super) long_lines: bool,
    /// Changes that take out what speaks in our name.
    pub(super) cleaning: Vec<Answer>,
}

impl Message {
    pub(super) fn new(room: &Arc<Room>, hostname: &Arc<str>) -> Message {
        Message {
            incoming: Some(Incoming::new(room)),
            refused: None,
            in_header: true,
            header_bytes: 0,
            text: Text::default(),
            forged: Forged::default(),
            hostname: Arc::clone(hostname),
        }
    }

    /// A field of the header. With `spaced`, the blank behind the colon is part of the value.
    pub(super) fn header(&mut self, name: &[u8], value: &[u8], spaced: bool) {
        if !self.in_header || name.is_empty() || !name.iter().all(|byte| matches!(byte, 33..=57 | 59..=126)) {
            let reply = Reply::fixed(554, Status(5, 6, 0), "the header of this message cannot be read");
            self.refused.get_or_insert(reply);
            return;
        }
        let field = [name, if spaced { b":" } else { b": " }, &folded(value), b"\r\n"].concat();
        self.header_bytes += field.len();
        if self.header_bytes > HEADER_MAX {
            self.refused.get_or_insert_with(broken_header);
            return;
        }
        self.forged.look(name, &field, &self.hostname);
        self.write(&field);
    }

    pub(super) fn end_of_header(&mut self) {
        if std::mem::take(&mut self.in_header) {
            self.write(b"\r\n");
        }
    }

    pub(super) fn body(&mut self, piece: &[u8]) {
        self.end_of_header();
        self.write(piece);
    }

    fn write(&mut self, octets: &[u8]) {
        self.text.look(octets);
        let Some(incoming) = &mut self.incoming else { return };
        if let Err(error) = incoming.write(octets) {
            // What was written takes no room from others while the rest comes.
            self.incoming = None;
            self.refused.get_or_insert(not_taken(&error));
        }
    }

    /// All of it is here.
    pub(super) fn complete(mut self) -> Result<Complete, Reply> {
        self.end_of_header();
        if let Some(reply) = self.refused {
            return Err(reply);
        }
        let Some(incoming) = self.incoming else { return Err(lost()) };
        let (content, taken) = incoming.seal().map_err(|error| not_taken(&error))?;
        let cleaning = self.forged.cleaning()?;
        let Text { eight_bit, long_lines, .. } = self.text;
        Ok(Complete { content, _taken: taken, eight_bit, long_lines, cleaning })
    }
}

/// A value as it stands in a header: servers give its lines with a bare LF. What would begin a field of its own does not.
fn folded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    for (number, line) in value.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if number > 0 {
            if line.trim_ascii().is_empty() {
                // A line of blanks alone would end the header for some readers.
                continue;
            }
            out.extend_from_slice(b"\r\n");
            if !line.starts_with(b" ") && !line.starts_with(b"\t") {
                out.push(b'\t');
            }
        }
        out.extend(line.iter().filter(|byte| !matches!(byte, b'\r' | 0)));
    }
    out
}

/// What the text turns out to be.
#[derive(Default)]
struct Text {
    eight_bit: bool,
    long_lines: bool,
    line: usize,
}

impl Text {
    fn look(&mut self, octets: &[u8]) {
        self.eight_bit |= !octets.is_ascii();
        for (number, line) in octets.split(|byte| *byte == b'\n').enumerate() {
            self.line = if number == 0 { self.line + line.len() } else { line.len() };
            // The CR of the end counts here.
            self.long_lines |= self.line > LINE_MAX + 1;
        }
    }
}

/// Fields that speak in our name. A server counts the fields of each name, so ours must be counted among their namesakes.
#[derive(Default)]
struct Forged {
    /// A name in small letters, how many fields have it, and which of them are to go.
    seen: Vec<(String, u32, Vec<u32>)>,
    count: usize,
}

impl Forged {
    fn look(&mut self, name: &[u8], field: &[u8], hostname: &str) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if !name.starts_with("x-weir-") && name != "authentication-results" {
            return;
        }
        let forged = is_forged(field, hostname);
        self.count += usize::from(forged);
        if self.count > FORGED_MAX {
            return;
        }
        let at = match self.seen.iter().position(|(seen, ..)| *seen == name) {
            Some(at) => at,
            None => {
                self.seen.push((name, 0, Vec::new()));
                self.seen.len() - 1
            }
        };
        let (_, count, which) = &mut self.seen[at];
        *count += 1;
        if forged {
            which.push(*count);
        }
    }

    /// From the last to the first, so that none of them changes its number before its turn.
    fn cleaning(self) -> Result<Vec<Answer>, Reply> {
        if self.count > FORGED_MAX {
            return Err(Reply::fixed(
                554,
                Status(5, 6, 0),
                "too many fields of the header speak in the name of this server",
            ));
        }
        let deleted =
            |name: &str, index: u32| Answer::ChangeHeader { index, name: name.to_owned(), value: String::new() };
        let each = |(name, _, which): &(String, u32, Vec<u32>)| {
            which.iter().rev().map(|index| deleted(name, *index)).collect::<Vec<_>>()
        };
        Ok(self.seen.iter().flat_map(each).collect())
    }
}

fn not_taken(error: &NotTaken) -> Reply {
    match error {
        NotTaken::TooLarge => Reply::fixed(552, Status(5, 3, 4), "the message is too large"),
        NotTaken::Full => Reply::fixed(451, Status(4, 3, 1), "too many messages are being looked at, try again later"),
        NotTaken::NoFile | NotTaken::Disk(_) => {
            tracing::error!(%error, "a message that another server asks about cannot be kept");
            Reply::fixed(452, Status(4, 3, 1), "the message could not be looked at now, try again later")
        }
    }
}

fn lost() -> Reply {
    Reply::fixed(451, Status(4, 3, 0), "the message could not be looked at now, try again later")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tell: impl FnOnce(&mut Message)) -> Result<(String, Complete), Reply> {
        let room = Room::new(1 << 20, 1 << 16, std::env::temp_dir());
        let mut message = Message::new(&room, &Arc::from("mx.example"));
        tell(&mut message);
        let complete = message.complete()?;
        let mut text = vec![0; complete.content.length() as usize];
        complete.content.read_at(&mut text, 0).unwrap();
        Ok((String::from_utf8_lossy(&text).into_owned(), complete))
    }

    #[test]
    fn a_message_is_put_together_as_it_was() {
        let (text, complete) = message(|message| {
            message.header(b"Subject", b" hello\n\tyou\nBcc: not a field", true);
            message.header(b"To", b"ann@x.example", false);
            message.end_of_header();
            message.body(b"one\r\ntw\xc3");
            message.body(b"\xb6\r\n");
        })
        .unwrap();
        assert_eq!(text, "Subject: hello\r\n\tyou\r\n\tBcc: not a field\r\nTo: ann@x.example\r\n\r\none\r\ntwö\r\n");
        assert!(complete.eight_bit && !complete.long_lines && complete.cleaning.is_empty());
        let (text, complete) = message(|message| message.body(&[b'x'; 1_000])).unwrap();
        assert!(text.starts_with("\r\nx") && complete.long_lines, "a message without a header");
    }

    #[test]
    fn fields_in_our_name_are_taken_out() {
        let (_, complete) = message(|message| {
            message.header(b"X-Weir-Scan", b" mx.example; clean", true);
            message.header(b"Authentication-Results", b" other.example; spf=pass", true);
            message.header(b"Authentication-Results", b" mx.example; spf=pass", true);
            message.header(b"x-weir-scan", b" clean", true);
        })
        .unwrap();
        let deleted = |name: &str, index| Answer::ChangeHeader { index, name: name.into(), value: String::new() };
        let expected = [deleted("x-weir-scan", 2), deleted("x-weir-scan", 1), deleted("authentication-results", 2)];
        assert_eq!(complete.cleaning, expected);
        let many = message(|message| (0..200).for_each(|_| message.header(b"X-Weir-Scan", b"x", true)));
        assert_eq!(many.err().unwrap().code(), 554);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_reason() {
        let large = message(|message| (0..3).for_each(|_| message.body(&[b'x'; 40_000])));
        assert_eq!(large.err().unwrap().code(), 552);
        let broken = message(|message| message.header(b"Sub:ject", b"x", true));
        assert_eq!(broken.err().unwrap().code(), 554);
        let room = Room::new(1 << 20, 1 << 20, std::env::temp_dir());
        let mut long = Message::new(&room, &Arc::from("mx.example"));
        (0..300).for_each(|_| long.header(b"X-Padding", &[b'x'; 1_000], true));
        long.header(b"From", b" x@blocked.example", true);
        assert_eq!(long.complete().err().unwrap().code(), 554, "nobody would read who it is from");
        let late = message(|message| {
            message.body(b"x");
            message.header(b"Subject", b"x", true);
        });
        assert_eq!(late.err().unwrap().code(), 554);
    }
}
