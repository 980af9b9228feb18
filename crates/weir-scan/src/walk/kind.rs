//! What a file is by its first bytes, whatever its name says.

use crate::little_endian::u32_at;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing that we know by its bytes.
    Unknown,
    /// Windows or DOS program, library or driver.
    WindowsProgram,
    /// Program for Linux and its relatives.
    Elf,
    /// Program for macOS.
    MachO,
    /// Java class.
    JavaClass,
    /// Android code.
    Dex,
    /// Windows shortcut.
    Shortcut,
    /// Compiled help with code.
    Chm,
    /// Flash.
    Flash,
    /// Script with an interpreter in its first line.
    Script,
    /// Disk image.
    DiskImage,
    /// OneNote section.
    OneNote,
    /// Zip, which is also the Office formats and Java archives.
    Zip,
    /// Gzip.
    Gzip,
    /// Bzip2.
    Bzip2,
    /// Xz.
    Xz,
    /// Tar.
    Tar,
    /// 7z.
    SevenZip,
    /// Cabinet.
    Cab,
    /// Compound file: old Office formats, MSI, MSG.
    Ole,
    /// RAR.
    Rar,
    /// ARJ.
    Arj,
    /// LHA.
    Lzh,
    /// Zstandard.
    Zstd,
    /// Lzip.
    Lzip,
    /// TNEF, Outlook's `winmail.dat`.
    Tnef,
    /// LZO.
    Lzo,
    /// Windows' images of file systems, which we do not open.
    Wim,
    /// ACE, which we do not open.
    Ace,
    /// Other packed formats that we do not open: cpio, BinHex, ALZ, EGG, LZ4, StuffIt, Zoo, xar, packages of Linux, what old installers are packed with.
    OtherArchive,
    /// Image of a disc.
    Disc,
    /// PKCS #7: signed or sealed mail.
    Pkcs7,
    /// Calendar.
    Calendar,
    /// PDF.
    Pdf,
    /// RTF.
    Rtf,
    /// Picture.
    Picture,
    /// Sound or film.
    Media,
    /// HTML.
    Html,
    /// XML.
    Xml,
}

/// At the start, unless another place is told.
const MAGIC: &[(Kind, &[u8])] = &[
    (Kind::Elf, b"\x7fELF"),
    (Kind::MachO, b"\xfe\xed\xfa\xce"),
    (Kind::MachO, b"\xfe\xed\xfa\xcf"),
    (Kind::MachO, b"\xce\xfa\xed\xfe"),
    (Kind::MachO, b"\xcf\xfa\xed\xfe"),
    (Kind::Dex, b"dex\n0"),
    (Kind::Shortcut, b"L\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0\x46"),
    (Kind::Chm, b"ITSF\x03\0\0\0"),
    (Kind::Script, b"#!"),
    (Kind::DiskImage, b"vhdxfile"),
    (Kind::DiskImage, b"conectix"),
    (Kind::DiskImage, b"<<< Oracle VM VirtualBox Disk Image"),
    (Kind::OtherArchive, b"!BDN"),
    (Kind::OneNote, b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3"),
    (Kind::Zip, b"PK\x03\x04"),
    (Kind::Zip, b"PK\x05\x06"),
    (Kind::Zip, b"PK00PK\x03\x04"),
    (Kind::Gzip, b"\x1f\x8b\x08"),
    (Kind::Xz, b"\xfd7zXZ\0"),
    (Kind::SevenZip, b"7z\xbc\xaf\x27\x1c"),
    (Kind::Cab, b"MSCF\0\0\0\0"),
    (Kind::Ole, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    (Kind::Rar, b"Rar!\x1a\x07"),
    (Kind::Arj, b"\x60\xea"),
    (Kind::Zstd, b"\x28\xb5\x2f\xfd"),
    (Kind::Lzip, b"LZIP\x01"),
    (Kind::Tnef, b"\x78\x9f\x3e\x22"),
    (Kind::Lzo, b"\x89LZO\0\r\n\x1a\n"),
    (Kind::Wim, b"MSWIM\0\0\0"),
    (Kind::OtherArchive, b"070701"),
    (Kind::OtherArchive, b"070702"),
    (Kind::OtherArchive, b"070707"),
    (Kind::OtherArchive, b"SZDD\x88\xf0\x27\x33"),
    (Kind::OtherArchive, b"KWAJ\x88\xf0\x27\xd1"),
    (Kind::OtherArchive, b"(This file must be converted with BinHex"),
    (Kind::OtherArchive, b"ALZ\x01"),
    (Kind::OtherArchive, b"EGGA\0\x01"),
    (Kind::OtherArchive, b"\x04\x22\x4d\x18"),
    (Kind::OtherArchive, b"\x02\x21\x4c\x18"),
    (Kind::OtherArchive, b"StuffIt (c)1997"),
    (Kind::OtherArchive, b"StuffIt!"),
    (Kind::OtherArchive, b"xar!\0\x1c"),
    (Kind::OtherArchive, b"LRZI\0"),
    (Kind::OtherArchive, b"!<arch>\n"),
    (Kind::OtherArchive, b"\xed\xab\xee\xdb"),
    (Kind::Rtf, b"{\\rt"),
    (Kind::Picture, b"\x89PNG\r\n\x1a\n"),
    (Kind::Picture, b"\xff\xd8\xff"),
    (Kind::Picture, b"GIF8"),
    (Kind::Picture, b"II*\0"),
    (Kind::Picture, b"MM\0*"),
    (Kind::Picture, b"II+\0"),
    (Kind::Picture, b"MM\0+"),
    (Kind::Media, b"ID3"),
    (Kind::Media, b"OggS"),
    (Kind::Media, b"fLaC"),
    (Kind::Xml, b"<?xml"),
];

impl Kind {
    /// By content.
    pub fn of(data: &[u8]) -> Kind {
        let found = MAGIC.iter().find(|(_, magic)| data.starts_with(magic)).map(|(kind, _)| *kind);
        found.or_else(|| elsewhere(data)).unwrap_or(Kind::Unknown)
    }

    /// Whether these octets begin a file that we know, by a mark that nothing has by chance.
    pub(super) fn is_marked(data: &[u8]) -> bool {
        match Kind::of(data) {
            Kind::Unknown | Kind::Script | Kind::Arj | Kind::Picture | Kind::Media => false,
            Kind::WindowsProgram => {
                [b"PE\0\0".as_slice(), b"DOS mode"].iter().any(|mark| memchr::memmem::find(data, mark).is_some())
            }
            _ => true,
        }
    }

    /// Whether opening it runs code.
    pub fn is_program(self) -> bool {
        use Kind::{Chm, Dex, Elf, Flash, JavaClass, MachO, Shortcut, WindowsProgram};
        matches!(self, WindowsProgram | Elf | MachO | JavaClass | Dex | Shortcut | Chm | Flash)
    }

    /// Whether it holds other files.
    pub fn is_archive(self) -> bool {
        use Kind::{Arj, Bzip2, Cab, Gzip, Lzh, Lzip, Lzo, Rar, SevenZip, Tar, Tnef, Xz, Zip, Zstd};
        matches!(self, Zip | Gzip | Bzip2 | Xz | Zstd | Lzip | Lzo | Tar | SevenZip | Cab | Rar | Arj | Lzh | Tnef)
            || self.is_closed()
    }

    /// Whether it holds other files and we do not open it.
    pub fn is_closed(self) -> bool {
        matches!(self, Kind::Wim | Kind::Ace | Kind::OtherArchive | Kind::DiskImage)
    }

    /// In words, with its article.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Unknown => "a file",
            Kind::WindowsProgram => "a Windows program",
            Kind::Elf => "a Linux program",
            Kind::MachO => "a macOS program",
            Kind::JavaClass => "a Java class",
            Kind::Dex => "an Android program",
            Kind::Shortcut => "a Windows shortcut",
            Kind::Chm => "a compiled help file",
            Kind::Flash => "a Flash program",
            Kind::Script => "a script",
            Kind::DiskImage => "a disk image",
            Kind::OneNote => "a OneNote section",
            Kind::Zip => "a zip archive",
            Kind::Gzip => "a gzip file",
            Kind::Bzip2 => "a bzip2 file",
            Kind::Xz => "an xz file",
            Kind::Tar => "a tar archive",
            Kind::SevenZip => "a 7z archive",
            Kind::Cab => "a cabinet",
            Kind::Ole => "a compound file",
            Kind::Rar => "a RAR archive",
            Kind::Arj => "an ARJ archive",
            Kind::Lzh => "an LHA archive",
            Kind::Zstd => "a Zstandard file",
            Kind::Lzip => "an lzip file",
            Kind::Tnef => "a TNEF file",
            Kind::Lzo => "an LZO file",
            Kind::Wim => "a WIM image",
            Kind::Ace => "an ACE archive",
            Kind::OtherArchive => "an archive",
            Kind::Disc => "a disc image",
            Kind::Pkcs7 => "a signed message",
            Kind::Calendar => "a calendar",
            Kind::Pdf => "a PDF",
            Kind::Rtf => "an RTF document",
            Kind::Picture => "a picture",
            Kind::Media => "sound or film",
            Kind::Html => "an HTML page",
            Kind::Xml => "an XML document",
        }
    }

    /// One word, for rules.
    pub fn word(self) -> &'static str {
        self.words().split_once(' ').map_or("file", |(_, word)| word)
    }
}

/// What does not begin at the first byte, or needs more than one look.
fn elsewhere(data: &[u8]) -> Option<Kind> {
    let at = |place: usize, magic: &[u8]| data.get(place..).is_some_and(|rest| rest.starts_with(magic));
    let head = &data[..data.len().min(1024)];
    // Two letters can begin a sentence, but no text has a NUL among its first characters.
    if at(0, b"MZ") && memchr::memchr(0, &data[..data.len().min(64)]).is_some() {
        return Some(Kind::WindowsProgram);
    }
    // Its version, and its length: a text that begins with these letters has other ones there.
    let flash = ["FWS", "CWS", "ZWS"].iter().any(|mark| at(0, mark.as_bytes())) && matches!(data.get(3), Some(1..=60));
    if flash && u32_at(data, 4).is_some_and(|length| length < 1 << 28) {
        return Some(Kind::Flash);
    }
    if at(0, b"BZh") && (at(4, b"1AY&SY") || at(4, b"\x17\x72\x45\x38\x50\x90")) {
        return Some(Kind::Bzip2);
    }
    if at(0, b"\xca\xfe\xba\xbe") {
        // A universal macOS program counts its few architectures where a class has its version.
        let class = data.get(6..8).is_some_and(|version| u16::from_be_bytes([version[0], version[1]]) >= 45);
        return Some(if class { Kind::JavaClass } else { Kind::MachO });
    }
    if at(257, b"ustar") || super::tar_header::is_header(data) {
        return Some(Kind::Tar);
    }
    if (at(2, b"-lh") || at(2, b"-lz") || at(2, b"-pm")) && at(6, b"-") {
        return Some(Kind::Lzh);
    }
    let zoo = at(0, b"ZOO ") && at(20, b"\xdc\xa7\xc4\xfd");
    if zoo || (at(0, b"SIT!") && at(10, b"rLau")) || (at(0, b"hsqs") && at(28, b"\x04\0")) {
        return Some(Kind::OtherArchive);
    }
    if at(7, b"**ACE**") {
        return Some(Kind::Ace);
    }
    if at(0x8001, b"CD001") || at(0x8001, b"BEA01") {
        return Some(Kind::Disc);
    }
    // An image of macOS has its mark at the end.
    let apple = data.len().checked_sub(512).is_some_and(|end| at(end, b"koly\0\0\0\x04\0\0\x02\0"));
    if at(0x8801, b"CD001") || apple {
        return Some(Kind::DiskImage);
    }
    if at(0, b"\x30") && super::pkcs7::is_pkcs7(data) {
        return Some(Kind::Pkcs7);
    }
    if at(4, b"ftyp") || (at(0, b"RIFF") && !at(8, b"WEBP")) {
        return Some(Kind::Media);
    }
    if at(0, b"RIFF") || (at(0, b"BM") && at(6, b"\0\0\0\0")) {
        return Some(Kind::Picture);
    }
    // Readers look for the mark in the first kilobyte.
    if memchr::memmem::find(head, b"%PDF-").is_some() {
        return Some(Kind::Pdf);
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let tag = |name: &str| text.len() > name.len() && text[..name.len()].eq_ignore_ascii_case(name.as_bytes());
    if tag("begin:vcalendar") {
        return Some(Kind::Calendar);
    }
    let page = ["<!doctype html", "<html", "<head", "<body", "<script", "<hta:"].iter().any(|name| tag(name));
    page.then_some(Kind::Html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_bytes() {
        assert_eq!(Kind::of(b"MZ\x90\0"), Kind::WindowsProgram);
        assert_eq!(Kind::of(b"MZ is what the file begins with"), Kind::Unknown);
        assert_eq!(Kind::of(b"PK\x03\x04rest"), Kind::Zip);
        assert_eq!(Kind::of(b"\n\n%PDF-1.4"), Kind::Pdf);
        assert_eq!(Kind::of(b"\xca\xfe\xba\xbe\0\0\0\x34"), Kind::JavaClass);
        assert_eq!(Kind::of(b"\xca\xfe\xba\xbe\0\0\0\x02"), Kind::MachO);
        assert_eq!(Kind::of(b"  <HTML>"), Kind::Html);
        assert_eq!(Kind::of(b"\x78\x9f\x3e\x22\x01\0"), Kind::Tnef);
        assert_eq!(Kind::of(b"CWS\x09\xc8\0\0\0x"), Kind::Flash);
        assert_eq!(Kind::of(b"CWS is our new system"), Kind::Unknown);
        assert_eq!(Kind::of(b"hello"), Kind::Unknown);
        assert_eq!(Kind::of(b""), Kind::Unknown);
        assert_eq!(Kind::Shortcut.word(), "Windows shortcut");
    }
}
