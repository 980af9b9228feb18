//! Files that hold other files. Each format is one file here; all hand their members to [`Walk::member`] or [`Walk::stored`].

mod arj;
mod behind;
mod cab;
mod carriers;
mod dense;
mod encoded;
mod hangul;
mod intel_hex;
mod iso;
mod lh;
mod lzh;
mod lzo;
mod macintosh;
mod ole;
pub(crate) mod page;
mod path_table;
pub(crate) mod pdf;
mod pdf_files;
mod pdf_lock;
pub(crate) mod pdf_text;
mod pgp;
mod rar;
mod rc4;
mod rtf;
mod rtf_packed;
mod sealed;
mod sevenz;
mod shar;
mod slides;
mod stream;
mod tar;
mod tar_sparse;
mod tnef;
mod udf;
pub mod vba;
mod warc;
pub(crate) mod workbook;
mod zip;
pub mod zip_cipher;
mod zip_crypt;

use super::dialect::is_header_line;
use super::kind::Kind;
use super::{File, Oddity, Walk, header};
use crate::budget::Exceeded;
use crate::file_name;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Whether we open files of this kind.
pub(super) fn opens(kind: Kind) -> bool {
    use Kind::{Calendar, Disc, Html, Ole, OneNote, Pdf, Pkcs7, Rtf, Script, Unknown, Xml};
    (kind.is_archive() && !kind.is_closed())
        || matches!(kind, Ole | Disc | OneNote | Pdf | Pkcs7 | Calendar | Rtf | Html | Xml | Script | Unknown)
}

/// Whether a zip archive ends where something else begins: readers of zip begin at the end.
pub(super) fn is_hidden_zip(data: &[u8]) -> bool {
    zip::has_directory(data)
}

/// Formats that their readers find behind something else: what promises them, and their mark.
const FOUND_ANYWHERE: [(&str, Kind, &[u8]); 3] = [
    ("rar", Kind::Rar, b"Rar!\x1a\x07"),
    ("7z", Kind::SevenZip, b"7z\xbc\xaf\x27\x1c"),
    ("cab", Kind::Cab, b"MSCF\0\0\0\0"),
];

/// What Apple's mail sends beside a file and under its name: icon, type, dates.
const APPLE: [&[u8]; 2] = [b"\0\x05\x16\x07", b"\0\x05\x16\0"];

/// Whether it is what a Macintosh keeps beside the file of this name.
fn is_of_apple(data: &[u8]) -> bool {
    APPLE.iter().any(|mark| data.starts_with(mark))
}

/// Why a file that is called an archive may be one that is not seen here; none if it is seen, or cannot be one.
pub(super) fn unseen(file: &File<'_>) -> Option<&'static str> {
    if !file.kind.is_archive() && file.names.iter().any(|name| file_name::is_piece(name)) && file.data.len() > 1 {
        return Some("a piece of an archive, whose other pieces come apart");
    }
    let is_text = || std::str::from_utf8(file.data).is_ok_and(|text| !text.contains('\0'));
    let numbered = |name: &String| {
        file_name::is_numbered(name) || (file_name::is_numbered_high(name) && dense::is_dense(file.data))
    };
    if file.kind == Kind::Unknown && file.names.iter().any(numbered) && !is_text() {
        return Some("a piece of a file, whose other pieces come apart");
    }
    let promised: Vec<String> = file.names.iter().flat_map(|name| file_name::extensions(name)).collect();
    if file.kind == Kind::Unknown && dense::is_in_disguise(&promised, file.data) {
        return Some("it is not what its name says, and may be a piece of an archive");
    }
    if file.declared.contains("binhex") && file.kind == Kind::Unknown && !file.data.trim_ascii().is_empty() {
        return Some("it is called BinHex, which is not opened here");
    }
    if !promised.iter().any(|extension| file_name::is_archive(extension)) || file.data.iter().all(|byte| *byte == 0) {
        return None;
    }
    let marked = |mark: &[u8]| memchr::memmem::find(file.data, mark).is_some();
    let behind = |(extension, kind, mark): &(&str, Kind, &[u8])| {
        *kind != file.kind && promised.iter().any(|promised| promised == extension) && marked(mark)
    };
    if FOUND_ANYWHERE.iter().any(behind) {
        return Some("an archive behind something else");
    }
    if file.kind.is_archive() || file.kind == Kind::Ole || is_hidden_zip(file.data) {
        return None;
    }
    let another = header::is_message(file.declared) || is_of_apple(file.data);
    let holds = || FOUND_ANYWHERE.iter().any(|(_, _, mark)| marked(mark)) || marked(b"PK\x03\x04");
    (!another || holds()).then_some("the name of an archive, and none that we know")
}

/// Opens archives that stand behind something else.
pub(super) fn open_behind(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    guarded(walk, |walk| behind::open(walk, file, level))
}

/// Opens a file and walks what is in it.
pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    guarded(walk, |walk| hidden(walk, file, level))?;
    match file.kind {
        Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd | Kind::Lzip | Kind::Lzma => {
            guarded(walk, |walk| stream::open(walk, file, level))?;
        }
        Kind::Arj => guarded(walk, |walk| arj::open(walk, file.data, level))?,
        Kind::Lzh => guarded(walk, |walk| lzh::open(walk, file.data, level))?,
        Kind::Tnef => guarded(walk, |walk| tnef::open(walk, file.data, level))?,
        Kind::Disc => disc(walk, file.data, level)?,
        Kind::Rar => guarded(walk, |walk| rar::open(walk, file.data, level))?,
        Kind::Lzo => guarded(walk, |walk| lzo::open(walk, file, level))?,
        Kind::Pdf => guarded(walk, |walk| pdf::open(walk, file.data, level))?,
        Kind::OneNote => guarded(walk, |walk| carriers::notes(walk, file.data, level))?,
        Kind::Pkcs7 => guarded(walk, |walk| carriers::pkcs7(walk, file, file.data, level))?,
        Kind::Calendar => guarded(walk, |walk| carriers::calendar(walk, file.data, level))?,
        Kind::Rtf => guarded(walk, |walk| rtf::open(walk, file.data, level))?,
        Kind::Html | Kind::Xml | Kind::Script | Kind::Unknown => {
            guarded(walk, |walk| pgp::open(walk, file, level))?;
            guarded(walk, |walk| carriers::pkcs7_text(walk, file, level))?;
            guarded(walk, |walk| encoded::open(walk, file, level))?;
            guarded(walk, |walk| intel_hex::open(walk, file, level))?;
            guarded(walk, |walk| macintosh::open(walk, file, level))?;
            guarded(walk, |walk| shar::open(walk, file, level))?;
            guarded(walk, |walk| warc::open(walk, file, level))?;
            guarded(walk, |walk| workbook::bare(walk, file, level))?;
            guarded(walk, |walk| carriers::named_calendar(walk, file, level))?;
            guarded(walk, |walk| page::open(walk, file, level))?;
        }
        Kind::Tar => guarded(walk, |walk| tar::open(walk, file.data, level))?,
        Kind::SevenZip => guarded(walk, |walk| sevenz::open(walk, file.data, level))?,
        Kind::Cab => guarded(walk, |walk| cab::open(walk, file.data, level))?,
        Kind::Ole => guarded(walk, |walk| ole::open(walk, file.data, level))?,
        _ => {}
    }
    // Two formats at once is a way to show two things to two readers.
    let is_zip = file.kind == Kind::Zip;
    if !is_zip && !has_other_zip(walk, file.data) {
        return Ok(());
    }
    guarded(walk, |walk| zip::open(walk, file.data, level))
}

/// Whether a file of another kind ends as a zip archive that its reader has not shown, whole, as a file of its own.
fn has_other_zip(walk: &Walk<'_>, data: &[u8]) -> bool {
    let begin = data.as_ptr().addr();
    let inner = |place: &Range<usize>| {
        let from = place.start.checked_sub(begin)?;
        let end = zip::end(data.get(from..place.end.checked_sub(begin)?)?)?;
        Some(from + end)
    };
    let is_shown = |end: usize| {
        let holds = |place: &&Range<usize>| (place.start..place.end).contains(&(begin + end));
        walk.shown.iter().filter(holds).any(|place| inner(place) == Some(end))
    };
    is_hidden_zip(data) && !zip::end(data).is_some_and(is_shown)
}

/// A disc may have three file systems at once.
fn disc(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    guarded(walk, |walk| iso::open(walk, data, level))?;
    if udf::is_udf(data) {
        guarded(walk, |walk| udf::open(walk, data, level))?;
    }
    if super::kind::is_hfs(data) {
        walk.odd_here(Oddity::Closed(Kind::DiskImage));
    }
    Ok(())
}

/// Where documents of LibreOffice have scripts that are not Basic.
const SCRIPTS: [&str; 4] = ["Scripts/python/", "Scripts/beanshell/", "Scripts/javascript/", "Scripts/java/"];

/// Macros and parts of documents that stand in a text.
fn hidden(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    carriers::active_mime(walk, file.data, level)?;
    if !matches!(file.kind, Kind::Xml | Kind::Html | Kind::Unknown) {
        return Ok(());
    }
    sealed::told(walk, file);
    let in_folder = |name: &String| {
        SCRIPTS.iter().any(|folder| name.get(..folder.len()).is_some_and(|start| start.eq_ignore_ascii_case(folder)))
    };
    if carriers::is_basic(file.data) || (file.in_archive && file.names.iter().any(in_folder)) {
        walk.odd_here(Oddity::Macros);
    }
    let head = &file.data[..file.data.len().min(4096)];
    if memchr::memmem::find(head, b"office/2006/xmlPackage").is_some() {
        carriers::flat_package(walk, file.data, level)?;
    }
    Ok(())
}

/// Readers by others may panic on what they did not expect: then the archive cannot be read, and the rest of the message can. A
/// visitor that panics has not looked, which is another matter: that goes on outwards.
fn guarded<'w>(walk: &mut Walk<'w>, open: impl FnOnce(&mut Walk<'w>) -> Result<(), Exceeded>) -> Result<(), Exceeded> {
    let (names, depth, held) = (walk.place.0.len(), walk.depth, walk.budget.held());
    match catch_unwind(AssertUnwindSafe(|| open(walk))) {
        Ok(opened) => opened,
        Err(panic) if walk.visiting => resume_unwind(panic),
        Err(_) => {
            walk.place.0.truncate(names);
            walk.depth = depth;
            walk.shown.clear();
            walk.budget.held_again(held);
            walk.odd_here(Oddity::Unreadable("its reader gave up".into()));
            Ok(())
        }
    }
}

/// What was signed or sealed as a whole: mail without the fields of a message, or a file. Whoever opens it may take it for either, so what
/// begins with a field is read as both.
fn entity(walk: &mut Walk<'_>, names: &[String], of_mail: &str, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let line = &data[..memchr::memchr(b'\n', data).map_or(data.len(), |end| end + 1)];
    if !(line.first().is_some_and(u8::is_ascii_alphabetic) && is_header_line(line)) {
        return walk.file(names, "", data, level);
    }
    let names: Vec<String> = names.iter().cloned().chain(names.is_empty().then(|| of_mail.to_owned())).collect();
    walk.file(&names, "message/rfc822", data, level)
}

impl Walk<'_> {
    /// A member that is not packed: no copy.
    fn stored(&mut self, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
        self.budget.entry()?;
        self.budget.hold(data.len())?;
        self.file(names, "", data, level)?;
        self.budget.release(data.len());
        Ok(())
    }

    /// A member that nobody can read, with its name.
    fn locked(&mut self, names: &[String], oddity: Oddity, level: u32) -> Result<(), Exceeded> {
        self.stored(names, &[], level)?;
        self.odd(names, oddity);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use crate::walk::{NestedPath, Visit};

    /// Breaks at a file of this name.
    struct Breaks(&'static str, Vec<Oddity>);

    impl Visit for Breaks {
        fn file(&mut self, place: &NestedPath, _: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
            assert!(!place.to_string().ends_with(self.0), "on purpose");
            Ok(())
        }

        fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
            self.1.push(oddity);
        }
    }

    #[test]
    fn the_depth_is_the_same_again_however_a_look_ends() {
        let limits = Limits { depth: 2, ..Limits::default() };
        let (mut budget, mut visitor) = (Budget::new(&limits), Breaks("nothing", Vec::new()));
        let mut walk = Walk::new(&mut budget, &mut visitor);
        let too_deep = Exceeded::Depth(2);
        assert_eq!(walk.deeper(|walk| walk.deeper(|walk| Ok(walk.depth))), Ok(2));
        assert_eq!(walk.deeper(|walk| walk.deeper(|walk| walk.deeper(|_| Ok(())))), Err(too_deep));
        assert_eq!(walk.deeper(|_| Err::<(), _>(too_deep)), Err(too_deep));
        assert_eq!(walk.depth, 0);
    }

    #[test]
    fn a_reader_that_breaks_is_not_a_visitor_that_breaks() {
        use std::io::Write;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"hello").unwrap();
        let data = packer.finish().unwrap();
        let mut budget = Budget::new(&Limits::default());
        let mut visitor = Breaks("inner.txt", Vec::new());
        let mut walk = Walk::new(&mut budget, &mut visitor);
        let names = ["inner.txt.gz".to_owned()];
        let broken = catch_unwind(AssertUnwindSafe(|| walk.file(&names, "", &data, 0)));
        assert!(broken.is_err(), "what was not looked at must not look like a damaged archive");

        let mut visitor = Breaks("nothing", Vec::new());
        let mut walk = Walk::new(&mut budget, &mut visitor);
        let held = walk.budget.held();
        guarded(&mut walk, |walk| {
            walk.budget.hold(1000)?;
            panic!("as a reader may")
        })
        .unwrap();
        assert_eq!(walk.budget.held(), held);
        assert_eq!(visitor.1, [Oddity::Unreadable("its reader gave up".into())]);
    }
}
