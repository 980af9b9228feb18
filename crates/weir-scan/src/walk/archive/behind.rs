//! Archives behind something else: a picture, a text, the beginning of a program that is none.
//!
//! 7-Zip, WinRAR and their like look for the mark of an archive in the first megabytes of whatever they are given. A mark counts where a
//! header follows that its format allows: of two or three octets a film has many by chance. What is found is looked at as it would be by itself.
//! An archive of a kind that such programs know is opened by them as that; one that has only its mark is something else to them.
//! What a reader has shown already as a file of its own is not looked at again: it would count twice.
//! Cost: one search for all long marks together, and one for each of the few short ones.

use super::super::kind::{Kind, ends_as_image, is_bare_file_system, is_file_system};
use super::super::{File, Oddity, Walk, pkcs7, tar_header};
use super::{disc, has_other_zip, iso, stream, tar, udf, zip};
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use memchr::memmem::Finder;
use std::ops::Range;
use std::sync::LazyLock;

/// 7-Zip looks for a beginning in the first 8 MiB, WinRAR in the first 4.
const BEGIN_MAX: usize = 16 << 20;
/// Openers take the first archive that they can read, and pass over what only looks like one.
const MOST: usize = 4;
const TRIED_MAX: usize = 64;
/// What such an archive is called.
const NAME: &str = "behind something else";

/// A format that is found so: its mark, where in its header that stands, and whether these octets begin such an archive.
struct Format {
    kind: Kind,
    mark: &'static [u8],
    place: usize,
    begins: fn(&[u8]) -> bool,
}

const fn format(kind: Kind, mark: &'static [u8], place: usize, begins: fn(&[u8]) -> bool) -> Format {
    Format { kind, mark, place, begins }
}

static FORMATS: [Format; 30] = [
    format(Kind::SevenZip, b"7z\xbc\xaf\x27\x1c", 0, seven_zip),
    format(Kind::Rar, b"Rar!\x1a\x07", 0, rar),
    format(Kind::Cab, b"MSCF\0\0\0\0", 0, cab),
    format(Kind::Arj, b"\x60\xea", 0, arj),
    format(Kind::Lzh, b"-lh", 2, lzh),
    format(Kind::Wim, b"MSWIM\0\0\0", 0, |data| matches!(u32_at(data, 8), Some(0x60..=0x100))),
    format(Kind::OtherArchive("a cpio archive"), b"07070", 0, cpio),
    format(Kind::Tar, b"ustar", 257, tar_header::is_header),
    format(Kind::Zip, b"PK\x03\x04", 0, zip::is_member),
    format(Kind::Gzip, b"\x1f\x8b\x08", 0, gzip),
    format(Kind::Bzip2, b"1AY&SY", 4, |data| data.starts_with(b"BZh")),
    format(Kind::Bzip2, b"\x17\x72\x45\x38\x50\x90", 4, |data| data.starts_with(b"BZh")),
    format(Kind::Xz, b"\xfd7zXZ\0", 0, |data| {
        u32_at(data, 8).is_some_and(|sum| data.len() > 12 && sum == crc(&data[6..8]))
    }),
    format(Kind::Zstd, b"\x28\xb5\x2f\xfd", 0, |_| true),
    format(Kind::Lzip, b"LZIP\x01", 0, |data| matches!(data.get(5), Some(12..=0xff))),
    format(Kind::Disc, b"CD001\x01", 0x8001, |data| data.get(0x8000) == Some(&1)),
    format(Kind::Disc, b"BEA01\x01", 0x8001, only_udf),
    format(Kind::DiskImage, b"\x55\xaa", 510, is_file_system),
    format(Kind::DiskImage, b"EFI PART\0\0\x01\0", 512, is_file_system),
    format(Kind::DiskImage, b"S\xef", 1080, is_file_system),
    format(Kind::DiskImage, b"Compressed ROMFS", 16, is_file_system),
    format(Kind::DiskImage, b"\x3a\xff\x26\xed\x01\0", 0, is_file_system),
    format(Kind::DiskImage, b"NXSB\0\x10\0\0", 32, is_file_system),
    format(Kind::DiskImage, b"QFI\xfb\0\0\0", 0, |_| true),
    format(Kind::DiskImage, b"KDMV", 0, |data| matches!(u32_at(data, 4), Some(1..=3))),
    format(Kind::DiskImage, b"vhdxfile", 0, |data| data.get(0x1_0000..).is_some_and(|rest| rest.starts_with(b"head"))),
    // Its version.
    format(Kind::DiskImage, b"hsqs", 0, |data| (u16_at(data, 28), u16_at(data, 30)) == (Some(4), Some(0))),
    format(Kind::Chm, b"ITSF\x03\0\0\0\x60\0\0\0\x01\0\0\0", 0, |_| true),
    format(Kind::OtherArchive("a xar archive"), b"xar!\0\x1c\0\x01", 0, |_| true),
    format(Kind::OtherArchive("an RPM package"), b"\xed\xab\xee\xdb\x03", 0, |data| {
        matches!(data.get(6..8), Some([0, 0 | 1]))
    }),
];

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if !file.kind.is_closed() && ends_as_image(file.data) {
        walk.odd_here(Oddity::Closed(Kind::DiskImage));
    }
    as_others(walk, file, level)?;
    if tells_its_files(file) {
        return Ok(());
    }
    let mut search = Search::of(walk, file);
    let pieces = if file.kind == Kind::Pkcs7 { pkcs7::loose(file.data) } else { [file.data, &[]] };
    pieces.iter().try_for_each(|data| search.through(walk, data, level))
}

/// A search under way.
struct Search<'f> {
    file: &'f File<'f>,
    /// What is not looked for: its directory is read otherwise, with whatever stands around it, or it is the file itself.
    is_listed: bool,
    is_own: bool,
    /// Files that were shown before, by where they begin.
    shown: Vec<Range<usize>>,
    /// Of each format: how many were tried, and how many of these opened.
    tried: [usize; FORMATS.len()],
    opened: [usize; FORMATS.len()],
}

impl<'f> Search<'f> {
    fn of(walk: &Walk<'_>, file: &'f File<'f>) -> Search<'f> {
        let mut shown = walk.shown.clone();
        shown.sort_unstable_by_key(|place| (place.start, place.end));
        Search {
            file,
            is_listed: has_other_zip(walk, file.data),
            is_own: begins_as(file.kind, file.data),
            shown,
            tried: [0; FORMATS.len()],
            opened: [0; FORMATS.len()],
        }
    }

    fn through(&mut self, walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
        for (at, number) in marks(&data[..data.len().min(BEGIN_MAX)]) {
            let Format { kind, begins, .. } = FORMATS[number];
            let is_done = self.opened[number] >= self.most(kind) || self.tried[number] == TRIED_MAX;
            let is_all = at == 0 && data.len() == self.file.data.len();
            if is_done || is_all || !begins(&data[at..]) || self.was_shown(&data[at..], number) {
                continue;
            }
            walk.budget.time()?;
            self.tried[number] += 1;
            self.opened[number] += usize::from(walk.deeper(|walk| one(walk, kind, &data[at..], level))?);
        }
        Ok(())
    }

    fn most(&self, kind: Kind) -> usize {
        match kind {
            Kind::Zip if self.is_listed => 0,
            kind if kind == self.file.kind && self.is_own => 0,
            // Its members are followed from the first one on.
            Kind::Zip => 1,
            _ => MOST,
        }
    }

    /// Whether it stands in a file that was shown, with so much of it that it was known there: a file may be cut before that on purpose.
    fn was_shown(&self, found: &[u8], number: usize) -> bool {
        let at = found.as_ptr().addr();
        let before = self.shown.partition_point(|place| place.start <= at);
        let Some(place) = before.checked_sub(1).and_then(|last| self.shown.get(last)) else { return false };
        let Format { kind, mark, place: mark_place, begins, .. } = FORMATS[number];
        // A packed stream that breaks off in a file is told only if it is the file itself, and passed over anywhere else in it.
        let is_stream = matches!(kind, Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd | Kind::Lzip);
        if is_stream && at != place.start {
            return false;
        }
        let known = &found[..place.end.saturating_sub(at).min(found.len())];
        known.len() >= mark_place + mark.len() && begins(known)
    }
}

/// Where an archive may begin, and the number of its format, in the order of marks. Marks may overlap, so each search begins one octet after the
/// last find.
fn marks(head: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    static MARKS: LazyLock<Marks> = LazyLock::new(Marks::new);
    let mut from = 0;
    let long = std::iter::from_fn(move || {
        let found = MARKS.long.find(Input::new(head).span(from..head.len()))?;
        from = found.start() + 1;
        Some((found.start(), MARKS.numbers[found.pattern().as_usize()]))
    });
    let short = MARKS.short.iter().map(|(finder, number)| finder.find_iter(head).map(|at| (at, *number)).peekable());
    let (mut long, mut short) = (long.peekable(), short.collect::<Vec<_>>());
    let places = std::iter::from_fn(move || {
        let first = (0..short.len()).filter_map(|place| Some((*short[place].peek()?, place))).min();
        match first {
            Some((next, place)) if long.peek().is_none_or(|other| next < *other) => short[place].next(),
            _ => long.next(),
        }
    });
    places.filter_map(|(at, number)| Some((at.checked_sub(FORMATS[number].place)?, number)))
}

/// The search for marks.
struct Marks {
    /// All that have four octets and more, at once, and the numbers of their formats.
    long: AhoCorasick,
    numbers: Vec<usize>,
    /// Each of the others by itself. With a mark of two octets among them the search for all compares two octets at a time, and in base64 every
    /// few octets look like the beginning of some mark then: that took a quarter of the time of a file of 10 MB.
    short: Vec<(Finder<'static>, usize)>,
}

impl Marks {
    fn new() -> Marks {
        let (long, short): (Vec<usize>, Vec<usize>) =
            (0..FORMATS.len()).partition(|number| FORMATS[*number].mark.len() >= 4);
        let marks = long.iter().map(|number| FORMATS[*number].mark);
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(marks);
        let finder = |number: usize| (Finder::new(FORMATS[number].mark), number);
        Marks {
            long: search.expect("a few short marks"),
            numbers: long,
            short: short.into_iter().map(finder).collect(),
        }
    }
}

/// The whole file once more, as what its mark further on says: the first octets of discs, disks and tar archives may be those of a picture.
fn as_others(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let data = file.data;
    let is_other = |format: &&Format| {
        let marked = data.get(format.place..).is_some_and(|rest| rest.starts_with(format.mark));
        format.place > 0 && format.kind != file.kind && marked && (format.begins)(data)
    };
    for Format { kind, .. } in FORMATS.iter().filter(is_other) {
        match kind {
            Kind::Tar => walk.deeper(|walk| tar::open(walk, data, level))?,
            Kind::Disc => walk.deeper(|walk| disc(walk, data, level))?,
            // A disc with a table before it, so that a computer can start from a copy of it on a disk.
            Kind::DiskImage if is_open_disc(file) && !is_bare_file_system(data) => {}
            kind if kind.is_closed() && !file.kind.is_closed() => walk.odd_here(Oddity::Closed(*kind)),
            _ => {}
        }
    }
    Ok(())
}

fn is_open_disc(file: &File<'_>) -> bool {
    file.kind == Kind::Disc && (iso::has_directory(file.data) || udf::has_directory(file.data))
}

/// Whether programs for archives open it as what it is, and look no further. Some do not know all of these, and what only has the mark of its
/// kind they pass over.
fn tells_its_files(file: &File<'_>) -> bool {
    match file.kind {
        Kind::Tnef | Kind::Lzo | Kind::Zstd | Kind::Lzip | Kind::Disc => false,
        Kind::Zip => zip::has_directory(file.data),
        Kind::Ole | Kind::Lzma => true,
        kind => kind.is_closed() || (kind.is_archive() && begins_as(kind, file.data)),
    }
}

fn begins_as(kind: Kind, data: &[u8]) -> bool {
    FORMATS.iter().any(|format| format.kind == kind && (format.begins)(data))
}

/// Opens what was found; whether it was more than a mark.
fn one(walk: &mut Walk<'_>, kind: Kind, data: &[u8], level: u32) -> Result<bool, Exceeded> {
    match kind {
        // Files of other kinds have such streams in them too: what comes out counts, and nobody minds where it ends.
        Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd | Kind::Lzip => stream::first(walk, kind, NAME, data, level),
        Kind::Zip => zip::unlisted(walk, data, level).map(|()| true),
        _ => walk.stored(&[NAME.into()], data, level).map(|()| true),
    }
}

/// The first of those of UDF alone: behind those of ISO 9660 it is on the same disc.
fn only_udf(data: &[u8]) -> bool {
    let is_older = |sector: usize| data.get(sector * 2048 + 1..sector * 2048 + 6) == Some(b"CD001");
    data.get(0x8000) == Some(&0) && !(0..16).any(is_older)
}

fn crc(data: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(data);
    sum.sum()
}

/// The first header has a sum of its own.
fn seven_zip(data: &[u8]) -> bool {
    data.get(12..32).is_some_and(|header| u32_at(data, 8) == Some(crc(header)))
}

/// The mark of version 4 or 5, and the type of the first block: the archive itself, or that its headers have a password.
fn rar(data: &[u8]) -> bool {
    match data.get(6) {
        Some(0) => data.get(9) == Some(&0x73) && u16_at(data, 12).is_some_and(|length| length >= 7),
        Some(1) => {
            let length = data.get(12..).unwrap_or_default().iter().take(3).position(|octet| octet & 0x80 == 0);
            length.and_then(|more| data.get(13 + more)).is_some_and(|kind| matches!(kind, 1 | 4))
        }
        _ => false,
    }
}

/// Its version is always the same, and its list of files stands inside it.
fn cab(data: &[u8]) -> bool {
    let (Some(length), Some(files)) = (u32_at(data, 8), u32_at(data, 16)) else { return false };
    data.get(24..26) == Some(&[3, 1]) && (36..length).contains(&files)
}

/// The first header has a sum behind it.
fn arj(data: &[u8]) -> bool {
    let length = u16_at(data, 2).map(usize::from).filter(|length| (30..=2600).contains(length));
    let header = length.and_then(|length| data.get(4..4 + length));
    header.is_some_and(|header| u32_at(data, 4 + header.len()) == Some(crc(header)))
}

/// A method, and by version the sum of the header or its length.
fn lzh(data: &[u8]) -> bool {
    let method = data.get(5).is_some_and(u8::is_ascii_alphanumeric) && data.get(6) == Some(&b'-');
    let header = || {
        let length = usize::from(*data.first()?);
        let sum = data.get(2..2 + length)?.iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet));
        Some(length >= 20 && sum == data[1])
    };
    let packed = || u32_at(data, 7).is_some_and(|packed| packed as usize <= data.len());
    method
        && match data.get(20) {
            Some(0 | 1) => header() == Some(true),
            Some(2) => u16_at(data, 0).is_some_and(|length| length >= 24) && packed(),
            Some(3) => u16_at(data, 0) == Some(4) && packed(),
            _ => false,
        }
}

/// A header of digits, in version 1 and 2 hexadecimal, before it octal; and a name as long as it says, with a NUL at its end.
fn cpio(data: &[u8]) -> bool {
    let (header, length, radix) = match data.get(5) {
        Some(b'1' | b'2') => (110, 94..102, 16),
        Some(b'7') => (76, 59..65, 8),
        _ => return false,
    };
    let digits = |place: Range<usize>| {
        let text = std::str::from_utf8(data.get(place)?).ok()?;
        text.chars().all(|digit| digit.is_digit(radix)).then_some(text)
    };
    let named = digits(length).and_then(|length| usize::from_str_radix(length, radix).ok());
    let end = named.filter(|length| (2..=4096).contains(length)).and_then(|length| data.get(header + length - 1));
    digits(6..header).is_some() && end == Some(&0)
}

/// Flags that are known, a usual effort and a known system (RFC 1952, section 2.3).
fn gzip(data: &[u8]) -> bool {
    data.get(3).is_some_and(|flags| flags & 0xe0 == 0)
        && matches!(data.get(8), Some(0 | 2 | 4))
        && matches!(data.get(9), Some(0..=13 | 255))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files;
    use crate::walk::seen::{Seen, SeenFile};

    fn found(data: &[u8]) -> Vec<(usize, Kind)> {
        let begins = |(at, number): &(usize, usize)| (FORMATS[*number].begins)(&data[*at..]);
        marks(data).filter(begins).map(|(at, number)| (at, FORMATS[number].kind)).collect()
    }

    #[test]
    fn marks_that_overlap_are_all_found() {
        // The mark of a cpio archive begins again within itself.
        let places: Vec<usize> = marks(b"0707070701").map(|(at, _)| at).collect();
        assert_eq!(places, [0, 2, 4]);
        for (number, Format { mark, place, .. }) in FORMATS.iter().enumerate() {
            let data = [&vec![b'x'; *place][..], mark].concat();
            assert!(marks(&data).any(|found| found == (0, number)), "{mark:?}");
        }
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let mut data = Vec::new();
            for _ in 0..random(40) {
                let mark = FORMATS[random(FORMATS.len())].mark;
                // Also pieces of marks, so that some run into others.
                data.extend_from_slice(&mark[random(2) * random(mark.len())..]);
                data.extend((0..random(3) * 30).map(|_| b"-l07SRaU\x1f\x55\x60"[random(11)]));
            }
            let mut naive = Vec::new();
            for at in 0..data.len() {
                let here = |number: &usize| data[at..].starts_with(FORMATS[*number].mark);
                let first = (0..FORMATS.len()).find(here);
                naive.extend(first.and_then(|number| Some((at.checked_sub(FORMATS[number].place)?, number))));
            }
            assert_eq!(marks(&data).collect::<Vec<_>>(), naive);
        }
    }

    #[test]
    fn a_mark_alone_begins_no_archive() {
        for Format { mark, place, kind, .. } in &FORMATS {
            let data = [&vec![b'x'; 300][..], &vec![b'-'; *place], mark, &[b'?'; 300]].concat();
            // The mark of these is all that can be told of them, or nearly.
            let is_all = matches!(kind, Kind::Zstd | Kind::Lzip | Kind::Chm | Kind::OtherArchive("a xar archive"))
                || [b"QFI\xfb".as_slice(), b"NXSB"].iter().any(|only| mark.starts_with(only));
            assert!(found(&data).is_empty() || is_all, "{kind:?} in {:?}", found(&data));
        }
    }

    /// The places of the zip archives and of the text in them, and what is odd.
    fn seen(data: &[u8]) -> (Vec<String>, Vec<Oddity>) {
        let Seen { files, odd } = Seen::of("a.dat", data);
        let counts = |file: &SeenFile| file.data == b"hello" || file.kind == Kind::Zip;
        (files.into_iter().filter(counts).map(|file| file.place).collect(), odd)
    }

    #[test]
    fn what_a_reader_shows_is_not_found_again() {
        let zip = test_files::zip("b.txt", b"hello");
        let twice = test_files::zip("c.zip", &zip);
        for (data, name) in
            [(test_files::tnef("a.zip", &zip), "a.zip"), (test_files::iso("a.zip", &zip), "a.zip"), (signed(&zip), "")]
        {
            let seen = seen(&data);
            let inner = ["a.dat", name, "b.txt"].iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>();
            assert!(seen.0.len() == 2 && seen.0[1] == inner.join(" > "), "{:?}", seen.0);
        }
        assert_eq!(seen(&test_files::tnef("a.zip", &twice)).0.len(), 3);
        let two = [test_files::tnef("a.zip", &zip), test_files::tnef("b.zip", &zip)[6..].to_vec()].concat();
        assert_eq!((seen(&two).0.len(), seen(&two).1), (4, Vec::new()));
    }

    #[test]
    fn what_a_reader_does_not_show_is_found() {
        let (zip, packed) = (test_files::zip("b.txt", b"hello"), test_files::gzipped(b"hello").unwrap());
        let has = |data: &[u8], name: &str| {
            let seen = seen(data);
            assert!(seen.0.iter().any(|place| place == name), "{name}: {:?}", seen.0);
        };
        let behind = format!("a.dat > {NAME}");
        has(&[test_files::tnef("a.zip", &zip), packed.clone()].concat(), &behind);
        has(&[test_files::tnef("a.txt", b"hi"), zip.clone()].concat(), "a.dat > b.txt");
        let after =
            [test_files::tnef("a.txt", b"hi"), zip.clone(), test_files::tnef("a.zip", &zip)[6..].to_vec()].concat();
        has(&after, "a.dat > b.txt");
        // The reader shows only so much of it.
        for (data, name) in [(&packed, behind.as_str()), (&zip, "a.dat > b.txt")] {
            let mut cut = test_files::tnef("a.x", data);
            let length = cut.len() - 2 - data.len() - 4;
            cut[length..length + 4].copy_from_slice(&[7, 0, 0, 0]);
            has(&cut, name);
        }
        let odd = [b"x", packed.as_slice()].concat();
        let mut cut = test_files::tnef("a.x", &odd);
        let length = cut.len() - 2 - odd.len() - 4;
        cut[length..length + 4].copy_from_slice(&[11, 0, 0, 0]);
        has(&cut, &behind);
    }

    /// A signed message, as short as its lengths can be told in one octet.
    fn signed(content: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, inside: &[u8]| [&[tag, 0x82][..], &(inside.len() as u16).to_be_bytes(), inside].concat();
        let data = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01".as_slice();
        let typed = wrap(0x30, &[data, &wrap(0xa0, &wrap(4, content))].concat());
        let kind = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02".as_slice();
        wrap(0x30, &[kind, &wrap(0xa0, &wrap(0x30, &[b"\x02\x01\x01".as_slice(), &typed].concat()))].concat())
    }

    #[test]
    fn a_disc_may_have_a_table_before_it() {
        let mut disc = test_files::iso("B.TXT", b"hello");
        disc[446..462].copy_from_slice(b"\x80\0\x02\0\x17\0\0\0\0\x08\0\0\0\x01\0\0");
        disc[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!((seen(&disc).0, seen(&disc).1), (vec!["a.dat > B.TXT".to_owned()], Vec::new()));
        disc[512..524].copy_from_slice(b"EFI PART\0\0\x01\0");
        assert_eq!(seen(&disc).1, []);
        // A file system besides it, and a table before a disc that has nothing to show.
        let mut linux = disc.clone();
        linux[1080..1082].copy_from_slice(b"S\xef");
        linux[1024..1032].copy_from_slice(b"\x10\0\0\0\x80\0\0\0");
        assert!(seen(&linux).1.contains(&Oddity::Closed(Kind::DiskImage)));
        let mut empty = disc;
        empty[0x8000 + 158..0x8000 + 162].fill(0xff);
        assert!(seen(&empty).1.contains(&Oddity::Closed(Kind::DiskImage)));
    }

    #[test]
    fn headers_that_their_formats_allow() {
        let header = [&[0; 12][..], &[7; 8]].concat();
        let seven = [b"7z\xbc\xaf\x27\x1c\0\x04".as_slice(), &crc(&header).to_le_bytes(), &header].concat();
        assert_eq!(found(&[b"hello".as_slice(), &seven].concat()), [(5, Kind::SevenZip)]);
        assert!(rar(b"Rar!\x1a\x07\0\xcf\x90\x73\0\0\x0d\0\0\0\0\0\0\0") && !rar(b"Rar!\x1a\x07 is the mark"));
        assert!(rar(b"Rar!\x1a\x07\x01\0\x33\x92\xb5\xe5\x0a\x01\x05"));
        assert!(gzip(b"\x1f\x8b\x08\0\0\0\0\0\0\x03") && !gzip(b"\x1f\x8b\x08\xff\0\0\0\0\0\x03"));
        let header = [b"070701".as_slice(), &[b'0'; 95], b"6", &[b'0'; 8]].concat();
        assert!(
            cpio(&[header.as_slice(), b"a.txt\0"].concat())
                && !cpio(&[b'0'; 300])
                && !cpio(&[header, vec![b'0'; 100]].concat())
        );
    }
}
