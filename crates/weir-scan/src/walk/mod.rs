//! Everything that is in a message: parts, messages in parts, archives, files in archives, and so on down.
//!
//! First [`structure`] counts levels and parts in the raw bytes; then each part is decoded, shown to the visitor and, if
//! it holds other files, opened. Recursion is bounded by `levels` and `depth`. All of it spends one [`Budget`].
//! The walk judges nothing: what is odd is told to the visitor, who has the policy.

mod archive;
pub mod header;
pub mod kind;
pub mod structure;
pub mod transfer;

use crate::budget::{Budget, End, Exceeded};
use kind::Kind;
use std::io::Read;
use structure::Part;
use transfer::Encoding;

/// A file as it was found: a decoded part, or a member of an archive.
#[derive(Debug)]
pub struct File<'a> {
    /// All names that it could have; the first is the one to show.
    pub names: &'a [String],
    /// What its part said it is: `application/pdf`. Empty for members of archives.
    pub declared: &'a str,
    /// What it is by content.
    pub kind: Kind,
    /// Its bytes.
    pub data: &'a [u8],
    /// Whether it was in an archive.
    pub in_archive: bool,
}

/// What is odd about a file, besides its name and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Oddity {
    /// Only who has the password can look inside.
    Encrypted,
    /// It is damaged, or written in a way that we cannot read; in words.
    Unreadable(String),
    /// Its own descriptions disagree, so that two readers see two things; in words.
    Inconsistent(String),
    /// An archive of a kind that we do not open.
    Closed(Kind),
    /// A document with macros.
    Macros,
    /// A document with a file in it that runs when clicked.
    EmbeddedObject,
    /// A Windows installer, whatever its name.
    Installer,
}

/// Whoever wants to see everything.
pub trait Visit {
    /// A file, before what is in it.
    fn file(&mut self, place: &Place, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded>;
    /// Something odd.
    fn odd(&mut self, place: &Place, oddity: Oddity);
}

/// The way to a file, as names: `invoice.zip > invoice.pdf.exe`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Place(Vec<String>);

/// One name in a place, and the whole place, in characters.
const NAME_SHOWN: usize = 100;
const PLACE_SHOWN: usize = 600;

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |name: &String| name.chars().map(|c| if is_plain(c) { c } else { '·' }).take(NAME_SHOWN).collect();
        let names: Vec<String> = self.0.iter().filter(|name| !name.is_empty()).map(shown).collect();
        let whole = names.join(" > ");
        f.write_str(whole.char_indices().nth(PLACE_SHOWN).map_or(&whole, |(end, _)| &whole[..end]))
    }
}

/// Nothing that a terminal or a page would obey.
pub(crate) fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Walks a whole message.
pub fn walk(message: &[u8], budget: &mut Budget, visitor: &mut dyn Visit) -> Result<(), Exceeded> {
    if message.len() as u64 > budget.limits().message_bytes {
        return Err(Exceeded::Message(budget.limits().message_bytes));
    }
    Walk { budget, visitor, place: Place::default(), depth: 0 }.message(message, 0)
}

/// Walks one file, as if it were attached. For tests and fuzzers.
pub fn walk_file(names: &[String], data: &[u8], budget: &mut Budget, visitor: &mut dyn Visit) -> Result<(), Exceeded> {
    Walk { budget, visitor, place: Place::default(), depth: 0 }.file(names, "", data, 0)
}

/// A walk under way.
struct Walk<'w> {
    budget: &'w mut Budget,
    visitor: &'w mut dyn Visit,
    place: Place,
    /// Archives that are open.
    depth: u32,
}

impl Walk<'_> {
    fn message(&mut self, message: &[u8], level: u32) -> Result<(), Exceeded> {
        let parts = structure::parts(message, level, self.budget)?;
        for part in &parts {
            self.budget.time()?;
            self.part(part, &message[part.body.clone()])?;
        }
        Ok(())
    }

    fn part(&mut self, part: &Part, body: &[u8]) -> Result<(), Exceeded> {
        let header = &part.header;
        if let Some(what) = header.ambiguous {
            self.odd(&header.names, Oddity::Inconsistent(format!("a part with {what}")));
        }
        if header.is_multipart() {
            if !header.is_plain() {
                self.odd(&header.names, Oddity::Inconsistent("an encoded multipart".into()));
            }
            return Ok(());
        }
        if body.is_empty() && header.names.is_empty() {
            return Ok(());
        }
        // Mail programs differ in which of two encodings they believe: both are looked at.
        let encodings = if header.encodings.is_empty() { &[Encoding::Plain][..] } else { &header.encodings };
        for encoding in encodings {
            match encoding.decode(body) {
                None => self.file(&header.names, &header.media_type, body, part.level)?,
                Some(decoded) => self.holding(&decoded, |walk, decoded| {
                    walk.file(&header.names, &header.media_type, decoded, part.level)
                })?,
            }
        }
        self.uuencoded(part, body)
    }

    /// Old mail programs put files into the text itself, and some still take them out.
    fn uuencoded(&mut self, part: &Part, body: &[u8]) -> Result<(), Exceeded> {
        let text = part.header.is_plain()
            && (part.header.media_type.is_empty() || part.header.media_type.starts_with("text/"));
        match transfer::uuencoded(body).filter(|_| text) {
            Some((name, decoded)) => {
                self.holding(&decoded, |walk, decoded| walk.file(&[name], "", decoded, part.level))
            }
            None => Ok(()),
        }
    }

    /// A file: shown, and opened if it holds others.
    fn file(&mut self, names: &[String], declared: &str, data: &[u8], level: u32) -> Result<(), Exceeded> {
        let kind = Kind::of(data);
        self.place.0.push(names.first().cloned().unwrap_or_default());
        let file = File { names, declared, kind, data, in_archive: self.depth > 0 };
        self.visitor.file(&self.place, &file, self.budget)?;
        self.open(&file, level)?;
        self.place.0.pop();
        Ok(())
    }

    fn open(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        let mail = file.declared.starts_with("message/rfc822")
            || file.declared.starts_with("message/global")
            || file
                .names
                .iter()
                .any(|name| has_extension(name, "eml") || has_extension(name, "mht") || has_extension(name, "mhtml"));
        if mail && !file.data.is_empty() {
            let level = level + 1;
            if level > self.budget.limits().levels {
                return Err(Exceeded::Levels(self.budget.limits().levels));
            }
            return self.message(file.data, level);
        }
        if !archive::opens(file.kind) && !archive::is_hidden_zip(file.data) {
            if matches!(file.kind, Kind::Rar | Kind::OtherArchive) {
                self.visitor.odd(&self.place, Oddity::Closed(file.kind));
            }
            return Ok(());
        }
        self.depth += 1;
        self.budget.depth(self.depth)?;
        archive::open(self, file, level)?;
        self.depth -= 1;
        Ok(())
    }

    /// A packed member: unpacked under the budget, then a file like others. How long it was, if it was whole.
    fn member(&mut self, name: &str, packed: u64, from: &mut dyn Read, level: u32) -> Result<Option<u64>, Exceeded> {
        self.budget.entry()?;
        let unpacked = self.budget.unpack(packed, from);
        let names = [name.to_owned()];
        let length = unpacked.data.len();
        if let End::Broken(why) = &unpacked.end {
            self.odd(&names, Oddity::Unreadable(why.clone()));
        }
        // What came out before it broke is looked at as well: somebody's reader may get further.
        let looked = self.file(&names, "", &unpacked.data, level);
        self.budget.release(length);
        looked?;
        match unpacked.end {
            End::Whole => Ok(Some(length as u64)),
            End::Broken(_) => Ok(None),
            End::Exceeded(exceeded) => Err(exceeded),
        }
    }

    /// Decoded bytes that count as long as they are looked at.
    fn holding(
        &mut self,
        decoded: &[u8],
        look: impl FnOnce(&mut Self, &[u8]) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        self.budget.hold(decoded.len())?;
        look(self, decoded)?;
        self.budget.release(decoded.len());
        Ok(())
    }

    /// Something odd about a file that has no place of its own yet.
    fn odd(&mut self, names: &[String], oddity: Oddity) {
        self.place.0.push(names.first().cloned().unwrap_or_default());
        self.visitor.odd(&self.place, oddity);
        self.place.0.pop();
    }

    /// Something odd about the archive that is open.
    fn odd_here(&mut self, oddity: Oddity) {
        self.visitor.odd(&self.place, oddity);
    }
}

fn has_extension(name: &str, wanted: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension.trim().eq_ignore_ascii_case(wanted))
}
