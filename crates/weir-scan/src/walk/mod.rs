//! Everything that is in a message: parts, messages in parts, archives, files in archives, and so on down.
//!
//! First [`structure`] counts levels and parts in the raw bytes; then each part is decoded, shown to the visitor and, if
//! it holds other files, opened. Recursion is bounded by `levels` and `depth`. All of it spends one [`Budget`], and takes time in
//! proportion to what is looked at.
//! The walk does not judge: it reports oddities to the visitor, which has the policy.

mod archive;
mod charset;
mod dialect;
mod encoded_word;
mod every_place;
mod field;
pub mod header;
pub mod kind;
mod last_names;
mod media_type;
pub mod part;
mod passwords;
mod pkcs7;
mod reading;
#[cfg(test)]
pub(crate) mod seen;
mod stray;
pub mod structure;
mod tar_header;
pub mod transfer;
pub mod unfold;

pub(crate) use archive::{page, pdf, pdf_text, workbook};
pub use archive::{vba, zip_cipher};

use crate::budget::{Budget, Exceeded, UnpackEnd, Unpacked};
use crate::file_name;
use crate::plain::shown;
use kind::Kind;
use part::Part;
use std::io::Read;
use std::ops::Range;
use stray::Stray;
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
    /// A message that is encrypted for its reader (S/MIME, PGP).
    Sealed,
    /// Its password stood in the message, and opened it.
    PasswordInMail,
}

impl Oddity {
    /// Whether something is in it that nobody here has looked at.
    pub(crate) fn hides(&self) -> bool {
        matches!(self, Oddity::Encrypted | Oddity::Unreadable(_) | Oddity::Closed(_) | Oddity::Sealed)
    }
}

/// Something that wants to see everything in a message.
pub trait Visit {
    /// A file, before what is in it.
    fn file(&mut self, place: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded>;
    /// The same file once more, as a text that rules can read: in UTF-8, with references resolved.
    fn reading(&mut self, _place: &NestedPath, _file: &File<'_>, _budget: &Budget) -> Result<(), Exceeded> {
        Ok(())
    }
    /// Something odd.
    fn odd(&mut self, place: &NestedPath, oddity: Oddity);
    /// Words of the message that may open what is in it, before its files.
    fn passwords(&mut self, _words: &[String]) {}
    /// Whether to open a file that was just shown, if it holds others.
    fn enters(&mut self, _place: &NestedPath, _file: &File<'_>) -> bool {
        true
    }
}

/// The way to a file, as names: `invoice.zip > invoice.pdf.exe`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NestedPath(Vec<String>);

impl NestedPath {
    /// Whether it is below the other one.
    pub(crate) fn is_inside(&self, other: &NestedPath) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }

    /// Whether it is the other one, or below it.
    pub(crate) fn is_at_or_inside(&self, other: &NestedPath) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Whether it is one of the files that a document of today's Office formats consists of.
    pub(crate) fn is_piece_of_document(&self) -> bool {
        let [.., holder, name] = self.0.as_slice() else { return false };
        let name = name.to_ascii_lowercase();
        !holder.is_empty() && ["word/", "xl/", "ppt/", "visio/"].iter().any(|folder| name.starts_with(folder))
    }
}

/// One name in a place, and the whole place, in characters.
const NAME_SHOWN: usize = 100;
const PLACE_SHOWN: usize = 600;

impl std::fmt::Display for NestedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> =
            self.0.iter().filter(|name| !name.is_empty()).map(|name| shown(name, NAME_SHOWN)).collect();
        let whole = names.join(" > ");
        f.write_str(whole.char_indices().nth(PLACE_SHOWN).map_or(&whole, |(end, _)| &whole[..end]))
    }
}

/// Walks a whole message.
pub fn walk(message: &[u8], budget: &mut Budget, visitor: &mut dyn Visit) -> Result<(), Exceeded> {
    if message.len() as u64 > budget.limits().message_bytes {
        return Err(Exceeded::Message(budget.limits().message_bytes));
    }
    Walk::new(budget, visitor).message(message, 0)
}

/// Walks one file, as if it were attached.
pub fn walk_file(names: &[String], data: &[u8], budget: &mut Budget, visitor: &mut dyn Visit) -> Result<(), Exceeded> {
    walk_sample(names, data, &[], budget, visitor)
}

/// Walks one file of which nobody has said what it is or is called. It is something that somebody opens, as an attachment is.
pub(crate) fn walk_unnamed(data: &[u8], budget: &mut Budget, visitor: &mut dyn Visit) -> Result<(), Exceeded> {
    Walk::new(budget, visitor).file(&[], "application/octet-stream", data, 0)
}

/// Walks one file, and tries these passwords where a zip member has one.
pub fn walk_sample(
    names: &[String],
    data: &[u8],
    passwords: &[&str],
    budget: &mut Budget,
    visitor: &mut dyn Visit,
) -> Result<(), Exceeded> {
    let passwords = passwords.iter().map(|&password| password.to_owned()).collect();
    Walk { passwords, ..Walk::new(budget, visitor) }.file(names, "", data, 0)
}

/// A walk under way.
struct Walk<'w> {
    budget: &'w mut Budget,
    visitor: &'w mut dyn Visit,
    place: NestedPath,
    /// Archives that are open.
    depth: u32,
    /// Whether the visitor is looking: a panic is then not that of a reader.
    visiting: bool,
    /// What is tried where a member has a password.
    passwords: Vec<String>,
    /// What is called a message here was read as one already.
    opened: bool,
    /// What is looked at is still encoded, and not what its name promises.
    encoded: bool,
    /// Where in memory the files stand that were found in the one that is open. Such an address means something only within that file, as long as it is
    /// open.
    shown: Vec<Range<usize>>,
}

impl<'w> Walk<'w> {
    fn new(budget: &'w mut Budget, visitor: &'w mut dyn Visit) -> Walk<'w> {
        Walk {
            budget,
            visitor,
            place: NestedPath::default(),
            depth: 0,
            visiting: false,
            passwords: Vec::new(),
            opened: false,
            encoded: false,
            shown: Vec::new(),
        }
    }
}

impl Walk<'_> {
    fn message(&mut self, message: &[u8], level: u32) -> Result<(), Exceeded> {
        let parts = structure::parts(message, level, self.budget)?;
        self.gather_passwords(message, &parts);
        for part in &parts {
            self.budget.time()?;
            self.part(part, &message[part.body.clone()])?;
        }
        self.budget.release(parts.iter().map(|part| part.header.weight()).sum());
        Ok(())
    }

    /// Words of the text that may be the password of an archive beside it.
    fn gather_passwords(&mut self, message: &[u8], parts: &[Part]) {
        let text = |part: &&Part| part.is_text();
        if parts.len() < 2 || parts.iter().all(|part| text(&part)) {
            return;
        }
        for part in parts.iter().filter(text).filter(|part| part.body.len() <= passwords::TEXT_MAX) {
            let body = &message[part.body.clone()];
            let decoded = part.header.encodings.first().and_then(|encoding| encoding.decode(body));
            passwords::gather(decoded.as_deref().unwrap_or(body), &mut self.passwords);
        }
        self.visitor.passwords(&self.passwords);
    }

    fn part(&mut self, part: &Part, body: &[u8]) -> Result<(), Exceeded> {
        let header = &part.header;
        if let Some(what) = header.ambiguous {
            self.odd(&header.names, Oddity::Inconsistent(format!("a part with {what}")));
        }
        if header.is_multipart() && !header.is_plain() {
            self.odd(&header.names, Oddity::Inconsistent("an encoded multipart".into()));
        }
        // The parts of a multipart are parts of their own; it has a body if none was found.
        if body.is_empty() && header.names.is_empty() {
            return Ok(());
        }
        if header.media_type == "message/partial" {
            self.odd(&header.names, Oddity::Unreadable("a piece of a message, whose other pieces come apart".into()));
        }
        if header.is_of_sun() {
            // Its parts begin behind lines of ten dashes; files in uuencode are looked for all the same.
            let why = "a message of Sun's old mail program, whose parts are not opened here";
            self.odd(&header.names, Oddity::Unreadable(why.into()));
        }
        if header.packed {
            self.odd(
                &header.names,
                Oddity::Unreadable("packed in a way that its header names and we do not undo".into()),
            );
        }
        self.opened = part.opened && header.is_plain();
        let looked = self.decoded(part, body);
        self.opened = false;
        looked
    }

    /// A part in each encoding that it may have: mail programs differ in which of two they believe.
    fn decoded(&mut self, part: &Part, body: &[u8]) -> Result<(), Exceeded> {
        let header = &part.header;
        let encodings = if header.encodings.is_empty() { &[Encoding::Plain][..] } else { &header.encodings };
        for encoding in encodings {
            self.budget.room(body.len())?;
            match encoding.decode(body) {
                None if encodings.len() > 1 => self.still_encoded(part, *encoding, body)?,
                None => self.text(part, *encoding, body)?,
                Some(decoded) => self.holding(&decoded, |walk, decoded| walk.text(part, *encoding, decoded))?,
            }
            for decode in encoding.other_readings(body) {
                self.budget.room(body.len())?;
                let decoded = decode(body);
                self.holding(&decoded, |walk, decoded| walk.text(part, *encoding, decoded))?;
            }
            if *encoding == Encoding::Base64 {
                self.stray_letters(part, body)?;
            }
        }
        // What cannot be decoded is shown as it stands by some.
        if !encodings.contains(&Encoding::Plain) && !encodings.iter().all(|encoding| encoding.is_kept(body)) {
            self.still_encoded(part, Encoding::Plain, body)?;
        }
        Ok(())
    }

    /// A body in base64 that some begin to decode at another letter.
    fn stray_letters(&mut self, part: &Part, body: &[u8]) -> Result<(), Exceeded> {
        let is_text = part.is_text() && part.header.names.is_empty();
        let Stray { readings, is_ambiguous } = Stray::look(body);
        // A file that was cut off has letters too many at its end, and its own mark at the beginning.
        let begins = || {
            Encoding::Base64.decode(&body[..body.len().min(1024)]).is_some_and(|head| Kind::of(&head) != Kind::Unknown)
        };
        let is_excused = part.is_cut && begins();
        if is_ambiguous && !is_text && !is_excused {
            let what = "base64 in which programs begin at different letters";
            self.odd(&part.header.names, Oddity::Inconsistent(what.into()));
        }
        for decode in readings {
            self.budget.room(body.len())?;
            let decoded = decode(body);
            self.holding(&decoded, |walk, decoded| walk.still_encoded(part, Encoding::Base64, decoded))?;
        }
        Ok(())
    }

    /// A body that some programs show as it stands, and others decode.
    fn still_encoded(&mut self, part: &Part, encoding: Encoding, body: &[u8]) -> Result<(), Exceeded> {
        self.encoded = true;
        let looked = self.text(part, encoding, body);
        self.encoded = false;
        looked
    }

    /// A decoded part, and files in its text: old mail programs put them there, and some still take them out.
    fn text(&mut self, part: &Part, encoding: Encoding, data: &[u8]) -> Result<(), Exceeded> {
        let header = &part.header;
        self.file(&header.names, &header.media_type, data, part.level)?;
        let is_encoded = ["uue", "uuencode", "yenc"].iter().any(|name| header.media_type.contains(name));
        if !part.is_text() && !is_encoded && !header.is_of_sun() && encoding != Encoding::Uuencode {
            return Ok(());
        }
        self.files_in_text(part, data)?;
        // Some end a line at a return alone.
        let returns = |at: usize| data[at + 1..].starts_with(b"begin") || data[at + 1..].starts_with(b"=ybegin");
        if memchr::memchr_iter(b'\r', data).any(returns) {
            let lines: Vec<u8> = data.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
            self.holding(&lines, |walk, text| walk.files_in_text(part, text))?;
        }
        // In Japanese mail an escape sequence may stand before the line that begins a file.
        match charset::without_escapes(data) {
            Some(text) => self.holding(&text, |walk, text| walk.files_in_text(part, text)),
            None => Ok(()),
        }
    }

    fn files_in_text(&mut self, part: &Part, data: &[u8]) -> Result<(), Exceeded> {
        for (name, decoded) in transfer::uuencoded(data).chain(transfer::yencoded(data)) {
            self.budget.part()?;
            let names: Vec<String> = std::iter::once(name).chain(part.header.names.iter().cloned()).collect();
            self.holding(&decoded, |walk, decoded| walk.file(&names, "", decoded, part.level))?;
        }
        if transfer::has_binhex(data) {
            self.odd(&part.header.names, Oddity::Closed(Kind::OtherArchive("a BinHex file")));
        }
        Ok(())
    }

    /// A file: shown, and opened if it holds others.
    fn file(&mut self, names: &[String], declared: &str, data: &[u8], level: u32) -> Result<(), Exceeded> {
        let kind = Kind::of(data);
        self.place.0.push(names.first().cloned().unwrap_or_default());
        let file = File { names, declared, kind, data, in_archive: self.depth > 0 };
        self.visiting = true;
        let seen = self.visitor.file(&self.place, &file, self.budget);
        let enters = seen.is_ok() && self.visitor.enters(&self.place, &file);
        self.visiting = false;
        seen?;
        if enters {
            self.open(&file, level)?;
            self.readings(&file, level)?;
            let begin = data.as_ptr().addr();
            self.shown.push(begin..begin + data.len());
        }
        self.place.0.pop();
        Ok(())
    }

    /// A file that is a text, written in another way ([`reading`]).
    fn readings(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        let Some(narrow) = reading::narrow(file) else {
            if reading::has_late_escapes(file) {
                self.odd_here(Oddity::Unreadable(page::TOO_MUCH.into()));
            }
            return self.unveiled(file, level);
        };
        let is_cut = reading::is_cut(file);
        self.holding(&narrow, |walk, data| {
            let file = File { kind: Kind::of(data), data, ..*file };
            if is_cut && page::is_page(&file) {
                walk.odd_here(Oddity::Unreadable(page::TOO_MUCH.into()));
            }
            walk.read(&file, level)?;
            walk.unveiled(&file, level)
        })
    }

    fn unveiled(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        if let Some(bare) = reading::bare(file) {
            self.holding(&bare, |walk, data| {
                let file = File { kind: Kind::of(data), data, ..*file };
                walk.read(&file, level)?;
                walk.resolved(&file, level)
            })?;
        }
        self.resolved(file, level)
    }

    fn resolved(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        let Some(unveiled) = reading::unveiled(file) else { return Ok(()) };
        if !unveiled.is_whole {
            self.odd_here(Oddity::Unreadable(page::TOO_MUCH.into()));
        }
        self.holding(&unveiled.text, |walk, data| walk.read(&File { kind: Kind::of(data), data, ..*file }, level))
    }

    fn read(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        self.budget.time()?;
        self.visiting = true;
        let seen = self.visitor.reading(&self.place, file, self.budget);
        self.visiting = false;
        seen?;
        self.open(file, level)
    }

    /// What is in a file, as its reader shows it, and what else may be found in it.
    fn open(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        let others = std::mem::take(&mut self.shown);
        self.open_by_name(file, level)?;
        self.open_archive(file, level)?;
        archive::open_behind(self, file, level)?;
        self.shown = others;
        Ok(())
    }

    fn open_by_name(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        let encoded = std::mem::take(&mut self.encoded);
        let by_name = |name: &String| file_name::extension(name).is_some_and(|own| file_name::is_mail(&own));
        // A report that says something about a body is a message to some.
        let says = |line: &[u8]| line.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
        let report = || header::is_report(file.declared) && file.data.split(|byte| *byte == b'\n').any(says);
        let mail = header::is_message(file.declared) || report() || file.names.iter().any(by_name);
        let inside = if mail { messages(file) } else { web_archive(file).into_iter().collect() };
        let is_open = mail && std::mem::take(&mut self.opened);
        if !is_open && !inside.is_empty() && !file.data.is_empty() {
            if level + 1 > self.budget.limits().levels {
                return Err(Exceeded::Levels(self.budget.limits().levels));
            }
            for message in inside {
                self.message(message, level + 1)?;
            }
        }
        // What one name or type calls a message is an archive to a reader that goes by another name or type.
        if let Some(why) = archive::unseen(file).filter(|_| !encoded) {
            self.odd_here(Oddity::Unreadable(why.into()));
        }
        Ok(())
    }

    fn open_archive(&mut self, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
        if !archive::opens(file.kind) && !archive::is_hidden_zip(file.data) {
            if file.kind.is_closed() {
                self.odd_here(Oddity::Closed(file.kind));
            }
            return Ok(());
        }
        // A text or page is no archive, though somebody may have written a file into it.
        let is_text = matches!(file.kind, Kind::Html | Kind::Xml | Kind::Script | Kind::Unknown)
            && !archive::is_hidden_zip(file.data);
        if is_text {
            return archive::open(self, file, level);
        }
        self.deeper(|walk| archive::open(walk, file, level))
    }

    /// What is in a file that holds others: one archive deeper.
    fn deeper<T>(&mut self, look: impl FnOnce(&mut Self) -> Result<T, Exceeded>) -> Result<T, Exceeded> {
        self.depth += 1;
        let looked = self.budget.depth(self.depth).and_then(|()| look(self));
        self.depth -= 1;
        looked
    }

    /// A packed member: unpacked under the budget, then a file like others. How long it was, if it was whole.
    fn member(
        &mut self,
        names: &[String],
        packed: u64,
        from: &mut dyn Read,
        level: u32,
    ) -> Result<Option<u64>, Exceeded> {
        self.budget.entry()?;
        let unpacked = self.budget.unpack(packed, from);
        self.unpacked(names, &unpacked, |walk, data| walk.file(names, "", data, level))
    }

    /// What came out of a member. What came before it broke is looked at as well: somebody's reader may get further.
    fn unpacked(
        &mut self,
        names: &[String],
        unpacked: &Unpacked,
        look: impl FnOnce(&mut Self, &[u8]) -> Result<(), Exceeded>,
    ) -> Result<Option<u64>, Exceeded> {
        if let UnpackEnd::Broken(why) = &unpacked.end {
            self.odd(names, Oddity::Unreadable(why.clone()));
        }
        look(self, &unpacked.data)?;
        self.budget.release(unpacked.data.len());
        match unpacked.end {
            UnpackEnd::Whole => Ok(Some(unpacked.data.len() as u64)),
            UnpackEnd::Broken(_) => Ok(None),
            UnpackEnd::Exceeded(exceeded) => Err(exceeded),
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
        self.odd_here(oddity);
        self.place.0.pop();
    }

    /// Something odd about the archive that is open.
    fn odd_here(&mut self, oddity: Oddity) {
        self.visiting = true;
        self.visitor.odd(&self.place, oddity);
        self.visiting = false;
    }
}

/// The messages in a file of mail: one, or those of a mailbox, each of which begins with a line of its own. Apple's mail writes the length of a
/// message before it.
fn messages<'f>(file: &File<'f>) -> Vec<&'f [u8]> {
    let data = file.data;
    let named = |wanted: &[&str]| {
        file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| wanted.contains(&own.as_str()))
    };
    if named(&["emlx"]) {
        let digits = data.iter().take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace()).count();
        return vec![&data[digits..]];
    }
    if !named(&["mbox", "mbx"]) {
        // Some begin to read behind a mark and empty lines.
        let marked = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
        let blank = marked.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let begins_later = blank + (data.len() - marked.len()) > 0;
        return std::iter::once(data).chain(begins_later.then(|| &marked[blank..])).collect();
    }
    let begins = |at: &usize| {
        let line = data[at + 1..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        memchr::memchr_iter(b':', line).count() >= 2
    };
    let further = memchr::memmem::find_iter(data, b"\nFrom ").filter(begins).map(|at| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(further).collect();
    let ends = starts.iter().skip(1).copied().chain([data.len()]);
    starts.iter().zip(ends).map(|(start, end)| &data[*start..end]).collect()
}

/// A page with its pictures as one message (MHTML) under the name of a document, or behind a PDF: Word opens both.
fn web_archive<'f>(file: &File<'f>) -> Option<&'f [u8]> {
    const NAMES: [&str; 10] = ["doc", "docx", "docm", "dot", "rtf", "xls", "xlsx", "ppt", "pps", "wps"];
    let named = file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| NAMES.contains(&own.as_str()));
    if !(file.kind == Kind::Pdf || (named && file.kind == Kind::Unknown)) {
        return None;
    }
    let begins = |at: &usize| {
        let line = *at == 0 || file.data[at - 1] == b'\n';
        line && file.data[*at..].get(..13).is_some_and(|field| field.eq_ignore_ascii_case(b"mime-version:"))
    };
    let begin = memchr::memchr2_iter(b'M', b'm', file.data).find(begins)?;
    Some(&file.data[begin..])
}

/// A name in an archive, of bounded length: the beginning is what people see, the end is what opens it.
fn bounded_name(name: &[u8]) -> String {
    const HALF: usize = 2048;
    if name.len() <= 2 * HALF {
        return String::from_utf8_lossy(name).into_owned();
    }
    let (head, tail) = (&name[..HALF], &name[name.len() - HALF..]);
    format!("{}{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
}
