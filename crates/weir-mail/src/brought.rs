//! What a held message brings along: names, types and sizes, for whoever decides about it.
//!
//! The message is taken apart by the scanner's own reader, under a small budget and from its first [`BYTES_MAX`] octets. Nothing is opened,
//! and types are what the sender says. If not everything was seen, that is said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;
use weir_scan::budget::{Budget, Limits};
use weir_scan::plain::shown;
use weir_scan::walk::part::Part;
use weir_scan::walk::structure::parts;

const BYTES_MAX: usize = 2 << 20;
const ATTACHMENTS_MAX: usize = 50;
/// Characters of a name or a type.
const NAME_MAX: usize = 200;

/// A file that comes with a message, or a part of it that is no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    /// Its name, as the sender wrote it; empty if it has none.
    pub name: String,
    /// What the sender says that it is.
    pub media_type: String,
    /// Its size.
    pub size_bytes: u64,
}

/// What a message brings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Brought {
    pub(crate) attachments: Vec<Attachment>,
    /// Why there may be more.
    pub(crate) unseen: Option<String>,
}

impl Brought {
    pub(crate) fn by_file(file: &Path) -> io::Result<Brought> {
        let mut message = Vec::new();
        File::open(file)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut message)?;
        Ok(Brought::by_message(&message))
    }

    /// Of a message that cannot be taken apart.
    pub(crate) fn unknown() -> Brought {
        Brought { unseen: Some("the message cannot be taken apart here".to_owned()), ..Brought::default() }
    }

    fn by_message(message: &[u8]) -> Brought {
        let beginning = message.get(..BYTES_MAX).unwrap_or(message);
        let limits = Limits { levels: 16, parts: 200, time: Duration::from_secs(2), ..Limits::default() };
        let found = match parts(beginning, 0, &mut Budget::new(&limits)) {
            Ok(found) => found,
            Err(exceeded) => {
                let unseen = format!("the message cannot be taken apart here: {exceeded}");
                return Brought { unseen: Some(unseen), ..Brought::default() };
            }
        };
        let brought: Vec<&Part> = found.iter().filter(|part| is_attachment(part)).collect();
        let unseen = match (message.len() > BYTES_MAX, brought.len() > ATTACHMENTS_MAX) {
            (true, _) => Some(format!("only the first {} MiB of the message were looked at", BYTES_MAX >> 20)),
            (false, true) => Some(format!("there are {}; these are the first", brought.len())),
            (false, false) => None,
        };
        let attachments =
            brought.into_iter().take(ATTACHMENTS_MAX).map(|part| Attachment::new(part, beginning)).collect();
        Brought { attachments, unseen }
    }
}

impl Attachment {
    fn new(part: &Part, message: &[u8]) -> Attachment {
        let body = message.get(part.body.clone()).unwrap_or_default();
        let decoded = part.header.encodings.first().and_then(|encoding| encoding.decode(body));
        let name = part.header.names.first().map_or("", String::as_str);
        Attachment {
            name: shown(name, NAME_MAX),
            media_type: shown(&part.header.media_type, NAME_MAX),
            size_bytes: decoded.as_deref().unwrap_or(body).len() as u64,
        }
    }
}

/// Whether a mail program would list it below the text. The parts of a message inside are listed by themselves.
fn is_attachment(part: &Part) -> bool {
    let media_type = part.header.media_type.as_str();
    let is_text = media_type.is_empty() || media_type.starts_with("text/");
    !part.opened && !media_type.starts_with("multipart/") && (!is_text || !part.header.names.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(parts: &str) -> Brought {
        let head = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n";
        Brought::by_message(format!("{head}{parts}--b--\r\n").as_bytes())
    }

    const TEXT: &str = "--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n";
    const PROGRAM: &str = "--b\r\nContent-Type: application/octet-stream; name=\"invoice.pdf.exe\"\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nTVqQAAMAAAAEAAAA\r\n";
    const NOTES: &str = "--b\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=notes.txt\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nYWJj\r\n";

    #[test]
    fn files_are_named_with_their_size_and_texts_are_not() {
        let found = brought(&format!("{TEXT}{PROGRAM}{NOTES}"));
        assert_eq!(found.unseen, None);
        let seen: Vec<_> = found.attachments.iter().map(|one| (one.media_type.as_str(), one.size_bytes)).collect();
        assert_eq!(seen, [("application/octet-stream", 12), ("text/plain", 3)]);
        let names: Vec<_> = found.attachments.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["invoice.pdf.exe", "notes.txt"]);
        assert_eq!(brought(TEXT), Brought::default());
        assert_eq!(Brought::by_message(b"Subject: x\r\n\r\nhello\r\n"), Brought::default());
    }

    #[test]
    fn what_was_not_seen_is_said() {
        let many = brought(&NOTES.repeat(ATTACHMENTS_MAX + 3));
        assert_eq!(many.attachments.len(), ATTACHMENTS_MAX);
        assert_eq!(many.unseen.as_deref(), Some("there are 53; these are the first"));
        let endless = brought(&NOTES.repeat(300));
        assert!(endless.unseen.is_some_and(|why| why.contains("cannot be taken apart")));
        let line = format!("{}\r\n", "x".repeat(76));
        let long = brought(&format!("{PROGRAM}{TEXT}{}", line.repeat(BYTES_MAX / 76)));
        assert_eq!(long.attachments[0].name, "invoice.pdf.exe");
        assert_eq!(long.unseen.as_deref(), Some("only the first 2 MiB of the message were looked at"));
    }
}
