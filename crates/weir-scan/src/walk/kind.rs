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
    /// LZMA without a container.
    Lzma,
    /// Other packed formats that we do not open, each in words: cpio, BinHex, ALZ, EGG, LZ4, StuffIt, Zoo, xar, compress, packages of Linux, what old
    /// installers are packed with.
    OtherArchive(&'static str),
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

/// The signature at the start of a compound file (Microsoft, *[MS-CFB]*, section 2.2).
pub(super) const COMPOUND: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// At the start, unless another place is told.
const MAGIC: &[(Kind, &[u8])] = &[
    (Kind::Elf, b"\x7fELF"),
    (Kind::MachO, b"\xfe\xed\xfa\xce"),
    (Kind::MachO, b"\xfe\xed\xfa\xcf"),
    (Kind::MachO, b"\xce\xfa\xed\xfe"),
    (Kind::MachO, b"\xcf\xfa\xed\xfe"),
    (Kind::MachO, b"\xca\xfe\xba\xbf\0\0\0"),
    (Kind::Dex, b"dex\n0"),
    (Kind::Shortcut, b"L\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0\x46"),
    (Kind::Chm, b"ITSF\x03\0\0\0"),
    (Kind::Chm, b"ITOLITLS\x01\0\0\0"),
    (Kind::Script, b"#!"),
    (Kind::DiskImage, b"vhdxfile"),
    (Kind::DiskImage, b"conectix"),
    (Kind::DiskImage, b"<<< Oracle VM VirtualBox Disk Image"),
    (Kind::OtherArchive("a mailbox of Outlook"), b"!BDN"),
    (Kind::OtherArchive("a mailbox of Outlook Express"), b"\xcf\xad\x12\xfe"),
    (Kind::OtherArchive("a file that a disc keeps packed"), b"\x37\xe4\x53\x96\xc9\xdb\xd6\x07"),
    (Kind::OneNote, b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3"),
    // The table of contents of a notebook.
    (Kind::OneNote, b"\xa1\x2f\xff\x43\xd9\xef\x76\x4c\x9e\xe2\x10\xea\x57\x22\x76\x5f"),
    (Kind::Zip, b"PK\x03\x04"),
    (Kind::Zip, b"PK\x05\x06"),
    (Kind::Zip, b"PK00PK\x03\x04"),
    (Kind::Gzip, b"\x1f\x8b\x08"),
    (Kind::Xz, b"\xfd7zXZ\0"),
    (Kind::SevenZip, b"7z\xbc\xaf\x27\x1c"),
    (Kind::Cab, b"MSCF\0\0\0\0"),
    (Kind::Ole, COMPOUND),
    (Kind::Rar, b"Rar!\x1a\x07"),
    (Kind::Arj, b"\x60\xea"),
    (Kind::Zstd, b"\x28\xb5\x2f\xfd"),
    (Kind::Lzip, b"LZIP\x01"),
    (Kind::Tnef, b"\x78\x9f\x3e\x22"),
    (Kind::Lzo, b"\x89LZO\0\r\n\x1a\n"),
    (Kind::Wim, b"MSWIM\0\0\0"),
    (Kind::OtherArchive("a cpio archive"), b"070701"),
    (Kind::OtherArchive("a cpio archive"), b"070702"),
    (Kind::OtherArchive("a cpio archive"), b"070707"),
    (Kind::OtherArchive("a file packed by an old installer"), b"SZDD\x88\xf0\x27\x33"),
    (Kind::OtherArchive("a file packed by an old installer"), b"KWAJ\x88\xf0\x27\xd1"),
    (Kind::OtherArchive("a BinHex file"), b"(This file must be converted with BinHex"),
    (Kind::OtherArchive("an ALZ archive"), b"ALZ\x01"),
    (Kind::OtherArchive("an EGG archive"), b"EGGA\0\x01"),
    (Kind::OtherArchive("an LZ4 file"), b"\x04\x22\x4d\x18"),
    (Kind::OtherArchive("an LZ4 file"), b"\x02\x21\x4c\x18"),
    (Kind::OtherArchive("a StuffIt archive"), b"StuffIt (c)1997"),
    (Kind::OtherArchive("a StuffIt archive"), b"StuffIt!"),
    (Kind::OtherArchive("a xar archive"), b"xar!\0\x1c"),
    (Kind::OtherArchive("an lrzip file"), b"LRZI\0"),
    (Kind::OtherArchive("a FreeArc archive"), b"ArC\x01"),
    (Kind::OtherArchive("an ar archive"), b"!<arch>\n"),
    (Kind::OtherArchive("an RPM package"), b"\xed\xab\xee\xdb"),
    (Kind::DiskImage, b"QFI\xfb"),
    (Kind::DiskImage, b"sprs\0\0\0"),
    // A disc as it was read, each sector behind its sign.
    (Kind::DiskImage, b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0"),
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
        use Kind::{Arj, Bzip2, Cab, Gzip, Lzh, Lzip, Lzma, Lzo, Rar, SevenZip, Tar, Tnef, Xz, Zip, Zstd};
        matches!(
            self,
            Zip | Gzip | Bzip2 | Xz | Zstd | Lzip | Lzma | Lzo | Tar | SevenZip | Cab | Rar | Arj | Lzh | Tnef
        ) || self.is_closed()
    }

    /// Whether it holds other files and we do not open it.
    pub fn is_closed(self) -> bool {
        matches!(self, Kind::Wim | Kind::Ace | Kind::OtherArchive(_) | Kind::DiskImage)
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
            Kind::Lzma => "an LZMA file",
            Kind::OtherArchive(words) => words,
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
    if let Some(kind) = packed(data) {
        return Some(kind);
    }
    if at(7, b"**ACE**") {
        return Some(Kind::Ace);
    }
    if at(0x8001, b"CD001") || at(0x8001, b"BEA01") {
        return Some(Kind::Disc);
    }
    // The second is a disc from before the standard, which Linux still reads.
    if at(0x8801, b"CD001") || at(0x8009, b"CDROM\x01") || ends_as_image(data) || is_file_system(data) {
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
    // The mark of RAR before it had one with a control character, and the length of its first header.
    if at(0, b"RE~^") && data.get(4).is_some_and(|length| *length >= 7) && data.get(5) == Some(&0) {
        return Some(Kind::Rar);
    }
    // The data of a form, which may have scripts of its own, is written like the form.
    if at(0, b"%FDF-") {
        return Some(Kind::Pdf);
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
    if tag("{\\rt") {
        return Some(Kind::Rtf);
    }
    let page = ["<!doctype html", "<html", "<head", "<body", "<script", "<hta:"].iter().any(|name| tag(name));
    page.then_some(Kind::Html)
}

/// Packed formats that one short mark does not tell.
fn packed(data: &[u8]) -> Option<Kind> {
    let at = |place: usize, magic: &[u8]| data.get(place..).is_some_and(|rest| rest.starts_with(magic));
    if at(0, b"ZOO ") && at(20, b"\xdc\xa7\xc4\xfd") {
        return Some(Kind::OtherArchive("a Zoo archive"));
    }
    if at(0, b"SIT!") && at(10, b"rLau") {
        return Some(Kind::OtherArchive("a StuffIt archive"));
    }
    // The third octet is how many bits a code has, and a flag.
    if at(0, b"\x1f\x9d") && data.get(2).is_some_and(|bits| bits & 0x60 == 0 && (9..=16).contains(&(bits & 0x1f))) {
        return Some(Kind::OtherArchive("a file of compress (.Z)"));
    }
    // Frames that hold nothing may stand before the first with data (RFC 8878, section 3.1.2).
    if u32_at(data, 0).is_some_and(|mark| mark & 0xffff_fff0 == 0x184d_2a50) {
        return Some(Kind::Zstd);
    }
    // The length of its first header, and the name of a field.
    let field = || data.get(6..9).is_some_and(|name| name.iter().all(u8::is_ascii_uppercase));
    if (at(0, b"AA01") || at(0, b"YAA1")) && data.get(5).is_some_and(|high| *high < 8) && field() {
        return Some(Kind::OtherArchive("an Apple archive"));
    }
    if is_old_cpio(data) {
        return Some(Kind::OtherArchive("a cpio archive"));
    }
    is_lzma(data).then_some(Kind::Lzma)
}

/// cpio with numbers of two octets, in either order: the mark is short, so type and name of the first member must be possible.
fn is_old_cpio(data: &[u8]) -> bool {
    let number = |place: usize| {
        let pair: [u8; 2] = data.get(place..place + 2)?.try_into().ok()?;
        match data.first() {
            Some(0xc7) => Some(u16::from_le_bytes(pair)),
            _ => Some(u16::from_be_bytes(pair)),
        }
    };
    let (Some(0o070_707), Some(mode), Some(length)) = (number(0), number(6), number(20)) else { return false };
    let possible = matches!(mode >> 12, 0o1 | 0o2 | 0o4 | 0o6 | 0o10 | 0o12 | 0o14);
    let name = data.get(26..26 + usize::from(length)).and_then(<[u8]>::split_last);
    possible && name.is_some_and(|(end, name)| *end == 0 && !name.is_empty() && !name.contains(&0))
}

/// LZMA has no mark: its properties, a dictionary of a usual size, a length that is not told or possible, and the octet that every stream of it begins with.
fn is_lzma(data: &[u8]) -> bool {
    let (Some(properties @ 1..225), Some(dictionary), Some(0)) = (data.first(), dictionary(data), data.get(13)) else {
        return false;
    };
    let (literal, position) = (properties % 9, properties / 9 % 5);
    let Some(length) = data.get(5..13) else { return false };
    let told = length[5..].iter().all(|octet| *octet == 0) && length.iter().any(|octet| *octet != 0);
    let usual = dictionary.is_power_of_two() || (dictionary.is_multiple_of(3) && (dictionary / 3).is_power_of_two());
    data.len() > 18
        && literal + position <= 4
        && dictionary >= 4096
        && usual
        && (told || length.iter().all(|octet| *octet == 0xff))
}

fn dictionary(data: &[u8]) -> Option<u32> {
    u32_at(data, 1)
}

/// A file system of macOS, which a disc may have beside its own.
pub(super) fn is_hfs(data: &[u8]) -> bool {
    let at = |mark: &[u8]| data.get(1024..).is_some_and(|rest| rest.starts_with(mark));
    let older = || at(b"BD") && data.len() > 1536 && data[..256].iter().all(|octet| *octet == 0);
    at(b"H+\0\x04") || at(b"HX\0\x05") || older()
}

/// An image of a disk that has its mark at the end: of macOS, or of a virtual machine.
pub(super) fn ends_as_image(data: &[u8]) -> bool {
    let end = data.len().checked_sub(512).map_or(&[][..], |at| &data[at..]);
    end.starts_with(b"koly\0\0\0\x04\0\0\x02\0") || end.starts_with(b"conectix\0\0\0")
}

/// A file system as it stands on a disk, or a disk with its table.
pub(super) fn is_file_system(data: &[u8]) -> bool {
    is_bare_file_system(data) || has_disk_table(data)
}

/// A table of partitions, of the new kind or the old. A disc that a computer can also start from as a disk has one before its own file system.
fn has_disk_table(data: &[u8]) -> bool {
    let is_new = || data.get(512..).is_some_and(|rest| rest.starts_with(b"EFI PART"));
    (data.get(510..512) == Some(b"\x55\xaa") && is_new()) || is_partitioned(data)
}

/// A file system that begins with the data.
pub(super) fn is_bare_file_system(data: &[u8]) -> bool {
    let at = |place: usize, magic: &[u8]| data.get(place..).is_some_and(|rest| rest.starts_with(magic));
    let jump = matches!(data, [0xeb, _, 0x90, ..] | [0xe9, ..]);
    // A boot sector tells how long a sector is, and how many are one cluster.
    let sectors = matches!(data.get(11..13), Some([0, 2 | 4 | 8 | 16]));
    let clusters = data.get(13).is_some_and(|sectors| sectors.is_power_of_two());
    // Not every system asks for the mark at its end.
    let medium = || matches!(data.get(16), Some(1 | 2)) && data.get(21).is_some_and(|medium| *medium >= 0xf0);
    let fat = jump && ((sectors && clusters && (at(510, b"\x55\xaa") || medium())) || at(3, b"EXFAT   "));
    let rom = at(16, b"Compressed ROMFS") && (at(0, b"\x45\x3d\xcd\x28") || at(0, b"\x28\xcd\x3d\x45"));
    let packed = rom || at(0, b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0");
    let marked = at(32, b"NXSB") || at(0, b"hsqs") || at(0, b"sqsh") || at(0, b"KDMV");
    fat || is_hfs(data)
        || is_ext(data)
        || packed
        || (marked && memchr::memchr(0, &data[..data.len().min(64)]).is_some())
}

/// A disk with the old table: four entries that are possible, of which one is in use.
fn is_partitioned(data: &[u8]) -> bool {
    let Some(entries) = data.get(446..510).filter(|_| data.get(510..512) == Some(b"\x55\xaa")) else { return false };
    let is_used = |entry: &[u8]| entry[4] != 0 && u32_at(entry, 8) > Some(0) && u32_at(entry, 12) > Some(0);
    let mut entries = entries.chunks_exact(16);
    let is_possible =
        |entry: &[u8]| matches!(entry[0], 0 | 0x80) && (is_used(entry) || entry.iter().all(|octet| *octet == 0));
    entries.clone().all(is_possible) && entries.any(is_used)
}

/// A file system of Linux: its mark is short, so other numbers must be possible.
fn is_ext(data: &[u8]) -> bool {
    let Some(head) = data.get(1024..1024 + 84).filter(|head| head[56..58] == *b"S\xef") else { return false };
    let number = |place: usize| u32_at(head, place).unwrap_or_default();
    let (inodes, blocks, first, block, revision) = (number(0), number(4), number(20), number(24), number(76));
    inodes > 0 && blocks > 0 && first <= 1 && block <= 6 && revision <= 1
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
        assert_eq!(Kind::of(b"\xca\xfe\xba\xbf\0\0\0\x02"), Kind::MachO);
        assert_eq!(Kind::of(b"  <HTML>"), Kind::Html);
        assert_eq!(Kind::of(b"\xef\xbb\xbf\r\n{\\rtf1 x}"), Kind::Rtf);
        assert_eq!(Kind::of(b"\x78\x9f\x3e\x22\x01\0"), Kind::Tnef);
        assert_eq!(Kind::of(b"CWS\x09\xc8\0\0\0x"), Kind::Flash);
        assert_eq!(Kind::of(b"CWS is our new system"), Kind::Unknown);
        assert_eq!(Kind::of(b"\x1f\x9d\x90abc"), Kind::OtherArchive("a file of compress (.Z)"));
        assert_eq!(Kind::of(b"\x1f\x9d\xffabc"), Kind::Unknown);
        assert_eq!(Kind::of(b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x26\x96\x8e\x70\0\x17"), Kind::Lzma);
        assert_eq!(Kind::of(b"]\0\0\x80\0 and other words"), Kind::Unknown);
        assert_eq!(Kind::of(b"\x52\x2a\x4d\x18\0\0\0\0\x28\xb5\x2f\xfd"), Kind::Zstd);
        assert_eq!(Kind::of(b"\xcf\xad\x12\xfe\xc5\xfd\x74\x6f"), Kind::OtherArchive("a mailbox of Outlook Express"));
        let mut disc = vec![0; 0x9000];
        disc[0x8008..0x800f].copy_from_slice(b"\x01CDROM\x01");
        assert_eq!(Kind::of(&disc), Kind::DiskImage);
        let mut disk = vec![0; 2048];
        disk[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(Kind::of(&disk), Kind::Unknown);
        disk[446..462].copy_from_slice(b"\0\0\x02\0\x83\0\0\0\0\x08\0\0\0\x01\0\0");
        assert_eq!(Kind::of(&disk), Kind::DiskImage);
        let mut linux = vec![0; 2048];
        linux[1080..1082].copy_from_slice(b"S\xef");
        assert_eq!(Kind::of(&linux), Kind::Unknown);
        linux[1024..1032].copy_from_slice(b"\x10\0\0\0\x80\0\0\0");
        assert_eq!(Kind::of(&linux), Kind::DiskImage);
        assert_eq!(Kind::of(b"hello"), Kind::Unknown);
        assert_eq!(Kind::of(b""), Kind::Unknown);
        assert_eq!(Kind::Shortcut.word(), "Windows shortcut");
    }
}
