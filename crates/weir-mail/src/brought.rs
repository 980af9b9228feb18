//! What a held message brings along: names, types and sizes, for whoever decides about it.
//!
//! The scanner's own reader looks at the beginning of the message ([`weir_scan::sight`]). If not everything was seen, that is said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use weir_scan::budget::Exceeded;
use weir_scan::plain::shown;
use weir_scan::sight::{BYTES_MAX, Sight};
use weir_scan::walk::part::Part;

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
        Ok(Brought::seen(Sight::of_file(file)?))
    }

    /// Of a message that cannot be taken apart.
    pub(crate) fn unknown() -> Brought {
        Brought { unseen: Some("the message cannot be taken apart here".to_owned()), ..Brought::default() }
    }

    fn seen(sight: Result<Sight, Exceeded>) -> Brought {
        let sight = match sight {
            Ok(sight) => sight,
            Err(exceeded) => {
                let unseen = format!("the message cannot be taken apart here: {exceeded}");
                return Brought { unseen: Some(unseen), ..Brought::default() };
            }
        };
        let brought: Vec<&Part> = sight.parts().iter().filter(|part| is_attachment(part)).collect();
        let unseen = match (sight.is_cut(), brought.len() > ATTACHMENTS_MAX) {
            (true, _) => Some(format!("only the first {} MiB of the message were looked at", BYTES_MAX >> 20)),
            (false, true) => Some(format!("there are {}; these are the first", brought.len())),
            (false, false) => None,
        };
        let attachments = brought.into_iter().take(ATTACHMENTS_MAX).map(|part| Attachment::new(part, &sight)).collect();
        Brought { attachments, unseen }
    }
}

impl Attachment {
    fn new(part: &Part, sight: &Sight) -> Attachment {
        let name = part.header.names.first().map_or("", String::as_str);
        Attachment {
            name: shown(name, NAME_MAX),
            media_type: shown(&part.header.media_type, NAME_MAX),
            size_bytes: sight.content(part).len() as u64,
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
        Brought::seen(Sight::of(format!("{head}{parts}--b--\r\n").into_bytes()))
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
        assert_eq!(Brought::seen(Sight::of(b"Subject: x\r\n\r\nhello\r\n".to_vec())), Brought::default());
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
