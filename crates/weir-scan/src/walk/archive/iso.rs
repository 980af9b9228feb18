//! Images of discs after ISO 9660, with Joliet's second set of names and the long names of Rock Ridge.
//!
//! All directories are walked: programs differ in which they show. A file may be in several pieces, each with a record of its own, and its first
//! blocks may be about it. [`super::udf`] reads the other file system that a disc can have. Source: ECMA-119.

use super::super::{Oddity, Walk, bounded_name};
use super::path_table;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};
use std::collections::BTreeSet;

const SECTOR: usize = 2048;
/// Blocks may be shorter than sectors; none is shorter than this.
const BLOCK_LEAST: usize = 512;
/// Where descriptors begin.
const DESCRIPTORS: usize = 16;
/// Linux reads a hundred.
const DESCRIPTORS_MAX: usize = 128;
const FOLDERS_MAX: usize = 10_000;
/// Each folder stands in up to four path tables, with two places at most.
const PLACES_MAX: usize = 8 * FOLDERS_MAX;
/// How many records are read between two looks at the clock.
const RECORDS_AT_ONCE: u32 = 1024;
/// Pieces of one file, and names that these may have. Programs that write discs need a second piece for each 4 GiB.
const PIECES_MAX: usize = 1 << 16;
const NAMES_MAX: usize = 64;
/// Places besides the directory in which pieces of one name stand.
const AREAS_MAX: usize = 8;
const FOLDER: u8 = 2;
const GOES_ON: u8 = 0x80;

/// How the names of a directory are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameCoding {
    Octets,
    Joliet,
    /// A second directory that does not say which of both: that of a later version of the standard is written in octets.
    Either,
}

/// A directory: the image, how long a block is, and how names are written.
#[derive(Clone, Copy)]
struct Tree<'d> {
    data: &'d [u8],
    block: usize,
    names: NameCoding,
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for descriptor in data.chunks(SECTOR).skip(DESCRIPTORS).take(DESCRIPTORS_MAX) {
        match (descriptor.first(), descriptor.get(1..6)) {
            (Some(kind @ (1 | 2)), Some(b"CD001")) => {
                for block in blocks(descriptor) {
                    let tree = Tree { data, block, names: NameCoding::of(*kind, descriptor) };
                    tree.walk(walk, tree.beginnings(descriptor)?, level)?;
                }
            }
            (Some(255), Some(b"CD001")) | (None, _) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Whether there is a directory to walk.
pub(super) fn has_directory(data: &[u8]) -> bool {
    let descriptors = data.chunks(SECTOR).skip(DESCRIPTORS).take(DESCRIPTORS_MAX);
    let is_volume =
        |descriptor: &&[u8]| matches!(descriptor.first(), Some(1 | 2)) && descriptor.get(1..6) == Some(b"CD001");
    let root = |descriptor: &[u8]| {
        let tree = Tree { data, block: *blocks(descriptor).first()?, names: NameCoding::Octets };
        tree.extent(descriptor.get(156..)?)
    };
    descriptors
        .filter(is_volume)
        .filter_map(root)
        .any(|(from, length)| length > 0 && data.get(from..).is_some_and(|rest| rest.len() >= length))
}

/// How long a block is. The number stands there in both orders of octets, and readers go by one of them.
fn blocks(descriptor: &[u8]) -> Vec<usize> {
    let numbers = [u16_at(descriptor, 128), u16_at(descriptor, 130).map(u16::swap_bytes)];
    let mut blocks: Vec<usize> = numbers.into_iter().flatten().map(usize::from).collect();
    blocks.retain(|block| block.is_power_of_two() && *block >= BLOCK_LEAST);
    blocks.dedup();
    if blocks.is_empty() { vec![SECTOR] } else { blocks }
}

impl NameCoding {
    fn of(kind: u8, descriptor: &[u8]) -> NameCoding {
        let says = descriptor.get(88..120).unwrap_or_default();
        let is_joliet = [b"%/@", b"%/C", b"%/E"].iter().any(|mark| memchr::memmem::find(says, *mark).is_some());
        match (kind, is_joliet) {
            (1, _) => NameCoding::Octets,
            (_, true) => NameCoding::Joliet,
            _ => NameCoding::Either,
        }
    }

    /// The name in a record, without its version.
    fn read(self, name: &[u8]) -> Vec<String> {
        let plain = |text: String| {
            text.rsplit_once(';').map_or(text.as_str(), |(name, _)| name).trim_end_matches('.').to_owned()
        };
        let octets = || plain(bounded_name(name));
        let wide = || {
            let units: Vec<u16> = name.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            plain(String::from_utf16_lossy(&units))
        };
        match self {
            NameCoding::Octets => vec![octets()],
            NameCoding::Joliet => vec![wide()],
            NameCoding::Either => vec![octets(), wide()],
        }
    }
}

/// A file whose records are being read.
#[derive(Default)]
struct Pieces {
    names: Vec<String>,
    extents: Vec<(usize, usize)>,
    has_more: bool,
}

impl<'d> Tree<'d> {
    /// Where a directory record says that its file is.
    fn extent(self, record: &[u8]) -> Option<(usize, usize)> {
        Some(((u32_at(record, 2)? as usize).checked_mul(self.block)?, u32_at(record, 10)? as usize))
    }

    /// Where the walk begins: at the root, with its extended attributes and behind them, and at the folders of the path tables.
    fn beginnings(self, descriptor: &[u8]) -> Result<BTreeSet<(usize, usize)>, Exceeded> {
        let root = descriptor.get(156..).unwrap_or_default();
        let Some((from, length)) = self.extent(root) else { return Ok(BTreeSet::new()) };
        let behind = from.saturating_add(usize::from(root[1]).saturating_mul(self.block));
        let mut beginnings = BTreeSet::from([(from, length), (behind, length)]);
        for (number, place) in path_table::places(self.data, descriptor, self.block).enumerate() {
            if number >= PLACES_MAX {
                return Err(Exceeded::Entries(FOLDERS_MAX as u32));
            }
            // Its first record is about itself.
            let record = self.data.get(place..).unwrap_or_default();
            if record.get(25).is_some_and(|flags| flags & FOLDER != 0)
                && let Some((_, length)) = self.extent(record)
            {
                beginnings.insert((place, length));
            }
        }
        match beginnings.len() <= FOLDERS_MAX {
            true => Ok(beginnings),
            false => Err(Exceeded::Entries(FOLDERS_MAX as u32)),
        }
    }

    /// Walks directories and those below them, without recursion.
    fn walk(self, walk: &mut Walk<'_>, mut seen: BTreeSet<(usize, usize)>, level: u32) -> Result<(), Exceeded> {
        // Of folders in the same place one may be longer, and show more.
        let (mut todo, mut clock) = (seen.iter().copied().collect::<Vec<_>>(), 0u32);
        while let Some((from, length)) = todo.pop() {
            walk.budget.time()?;
            let Some(records) = self.data.get(from..from.saturating_add(length).min(self.data.len())) else {
                walk.odd_here(Oddity::Unreadable("a disc image that breaks off".into()));
                continue;
            };
            let (mut at, mut all, mut run) = (0, Pieces::default(), Pieces::default());
            while let Some(size) = records.get(at) {
                let record = records.get(at..at + usize::from(*size)).unwrap_or_default();
                let (Some((from, length)), Some(flags)) = (self.extent(record), record.get(25)) else {
                    // The rest of the block is empty.
                    at = (at + 1).next_multiple_of(BLOCK_LEAST);
                    continue;
                };
                at += record.len();
                clock += 1;
                if clock.is_multiple_of(RECORDS_AT_ONCE) {
                    walk.budget.time()?;
                }
                let name = record.get(33..33 + usize::from(*record.get(32).unwrap_or(&0))).unwrap_or_default();
                // What a system keeps about a file may stand before it, and not every reader passes over that.
                let behind = from.saturating_add(usize::from(record[1]).saturating_mul(self.block));
                let places = [from, behind];
                let places = &places[..if behind == from { 1 } else { 2 }];
                if flags & FOLDER != 0 {
                    // The directory itself and the one above it have names of one octet, as others may, too.
                    let places = if matches!(name, [0 | 1]) { &[][..] } else { places };
                    for folder in places.iter().map(|from| (*from, length)) {
                        if seen.contains(&folder) {
                            continue;
                        }
                        if seen.len() >= FOLDERS_MAX {
                            return Err(Exceeded::Entries(FOLDERS_MAX as u32));
                        }
                        seen.insert(folder);
                        todo.push(folder);
                    }
                    continue;
                }
                let names = self.names_in(record, name);
                if matches!(record.get(26..28), Some([unit, gap]) if unit | gap != 0) {
                    walk.odd(&names, Oddity::Unreadable("a file in pieces that stand between others".into()));
                }
                if run.names != names && !run.extents.is_empty() {
                    // To some readers a file ends where another name follows.
                    self.pieces(walk, &std::mem::take(&mut run), level)?;
                }
                for place in &places[1..] {
                    self.member(walk, &names, &[(*place, length)], level)?;
                }
                run.take(&names, (from, length));
                all.take(&names, (from, length));
                if flags & GOES_ON == 0 {
                    self.ended(walk, &all, &run, level)?;
                    (all, run) = (Pieces::default(), Pieces::default());
                }
            }
            self.ended(walk, &all, &run, level)?;
        }
        Ok(())
    }

    /// A file that is at its end: the last pieces of one name, and all.
    fn ended(self, walk: &mut Walk<'_>, all: &Pieces, run: &Pieces, level: u32) -> Result<(), Exceeded> {
        if run.extents.len() < all.extents.len() {
            self.pieces(walk, run, level)?;
        }
        self.pieces(walk, all, level)
    }

    fn pieces(self, walk: &mut Walk<'_>, pieces: &Pieces, level: u32) -> Result<(), Exceeded> {
        if pieces.has_more {
            walk.odd(
                &pieces.names,
                Oddity::Unreadable("a file in more pieces or under more names than are read".into()),
            );
        }
        if pieces.extents.is_empty() { Ok(()) } else { self.member(walk, &pieces.names, &pieces.extents, level) }
    }

    /// Each name that a record gives its file, once.
    fn names_in(self, record: &[u8], name: &[u8]) -> Vec<String> {
        let mut names = self.names.read(name);
        names.extend(self.long_name(record));
        let mut known = BTreeSet::new();
        names.retain(|name| known.insert(name.clone()));
        names
    }

    fn member(
        self,
        walk: &mut Walk<'_>,
        names: &[String],
        extents: &[(usize, usize)],
        level: u32,
    ) -> Result<(), Exceeded> {
        let piece = |(from, length): &(usize, usize)| {
            let end = from.saturating_add(*length).min(self.data.len());
            self.data.get(*from..end).unwrap_or_default()
        };
        let breaks_off = extents.iter().any(|extent| piece(extent).len() < extent.1);
        match extents {
            [extent] => walk.stored(names, piece(extent), level)?,
            _ => {
                let length = extents.iter().fold(0usize, |sum, extent| sum.saturating_add(piece(extent).len()));
                walk.budget.entry()?;
                walk.budget.room(length)?;
                let whole = extents.iter().map(piece).collect::<Vec<_>>().concat();
                walk.holding(&whole, |walk, whole| walk.file(names, "", whole, level))?;
            }
        }
        if breaks_off {
            walk.odd(names, Oddity::Unreadable("a disc image that breaks off".into()));
        }
        Ok(())
    }

    /// The name that Unix programs show (Rock Ridge, section 4.1.4): in pieces behind the usual one, some of them in another place of the image.
    fn long_name(self, record: &[u8]) -> Option<String> {
        let own = 33 + usize::from(*record.get(32)?);
        let (mut rest, mut name, mut moves) = (record.get(own.next_multiple_of(2)..)?, Vec::new(), 0);
        let mut next = None;
        loop {
            let length = rest.get(2).map_or(0, |length| usize::from(*length));
            let Some((entry, behind)) = rest.split_at_checked(length).filter(|(entry, _)| entry.len() >= 4) else {
                // As many moves as no program writes.
                let Some(place) = next.take().filter(|_| moves < AREAS_MAX) else { break };
                (rest, moves) = (place, moves + 1);
                continue;
            };
            rest = behind;
            match &entry[..2] {
                b"NM" => name.extend_from_slice(entry.get(5..).unwrap_or_default()),
                b"CE" => next = self.area(entry),
                _ => {}
            }
        }
        (!name.is_empty()).then(|| bounded_name(&name))
    }

    /// Where a name goes on.
    fn area(self, entry: &[u8]) -> Option<&'d [u8]> {
        let number = |at: usize| u32_at(entry, at).map(|number| number as usize);
        let from = number(4)?.checked_mul(self.block)?.checked_add(number(12)?)?;
        self.data.get(from..from.checked_add(number(20)?.min(SECTOR))?)
    }
}

impl Pieces {
    fn take(&mut self, names: &[String], extent: (usize, usize)) {
        for name in names {
            match self.names.len() {
                _ if self.names.contains(name) => {}
                NAMES_MAX.. => self.has_more = true,
                _ => self.names.push(name.clone()),
            }
        }
        match self.extents.len() {
            PIECES_MAX.. => self.has_more = true,
            _ => self.extents.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use crate::test_files;
    use crate::walk::seen::{Seen, SeenFile};
    use std::time::Duration;

    /// The names and the content of every file on the disc, and what is odd.
    fn seen(image: &[u8]) -> (Vec<String>, Vec<Oddity>) {
        let Seen { files, odd } = Seen::of("a.dat", image);
        let told = |file: &SeenFile| format!("{}={}", file.names.join("|"), String::from_utf8_lossy(&file.data));
        (files.iter().filter(|file| file.in_archive).map(told).collect(), odd)
    }

    fn shown(image: &[u8]) -> Vec<String> {
        let (files, odd) = seen(image);
        assert_eq!(odd, []);
        files
    }

    const VOLUME: usize = 16 * SECTOR;
    const ROOT: usize = 20 * SECTOR;

    /// Where the record of the file stands.
    fn record(image: &[u8]) -> usize {
        let mut at = ROOT;
        for _ in 0..2 {
            at += usize::from(image[at]);
        }
        at
    }

    fn put(image: &mut [u8], at: usize, octets: &[u8]) {
        image[at..at + octets.len()].copy_from_slice(octets);
    }

    /// An image with a root of so many records of folders at the block that `place` names.
    fn folders(count: u32, place: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut image = test_files::iso("RUN.JS", b"hello");
        image.truncate(ROOT);
        for number in 0..count {
            let (from, length) = (place(number).to_le_bytes(), (count * 36).to_le_bytes());
            let head = [&[36, 0][..], &from, &[0; 4], &length, &[0; 11], &[FOLDER], &[0; 6]].concat();
            image.extend([&head[..], b"\x02AB\0"].concat());
        }
        put(&mut image, VOLUME + 166, &(count * 36).to_le_bytes());
        image
    }

    fn opened(image: &[u8], time: Duration) -> Result<(), Exceeded> {
        let (limits, mut seen) = (Limits { time, ..Limits::default() }, Seen::default());
        open(&mut Walk::new(&mut Budget::new(&limits), &mut seen), image, 0)
    }

    #[test]
    fn folders_take_no_longer_than_there_is_time() {
        let late = |time| Err(Exceeded::Time(time));
        assert_eq!(opened(&folders(3, |number| 20 + number), Duration::ZERO), late(Duration::ZERO));
        let soon = Duration::from_millis(1);
        assert_eq!(opened(&folders(200_000, |_| 20), soon), late(soon));
        let soon = Duration::from_millis(100);
        assert_eq!(opened(&folders(100_000, |number| 20 + number % 1700), soon), late(soon));
        assert_eq!(opened(&folders(100, |_| 20), Duration::from_secs(20)), Ok(()));
    }

    #[test]
    fn more_folders_than_are_walked_are_not_left_out_without_a_word() {
        let far = |count: usize| opened(&folders(count as u32, |number| 10_000 + number), Duration::from_secs(20));
        // With the root.
        assert_eq!(far(FOLDERS_MAX - 1), Ok(()));
        assert_eq!(far(FOLDERS_MAX), Err(Exceeded::Entries(FOLDERS_MAX as u32)));
    }

    /// An image whose file is in a folder of this name, in the sector behind it.
    fn in_folder(name: u8) -> Vec<u8> {
        let mut image = test_files::iso("RUN.JS", b"hello");
        let (file, inside) = (record(&image), image.len());
        let own: Vec<u8> = image[file..file + usize::from(image[file])].to_vec();
        let above: Vec<u8> = image[ROOT..file].to_vec();
        image[file..file + own.len()].fill(0);
        image.extend([above.as_slice(), &own].concat());
        image.resize(image.len().next_multiple_of(SECTOR), 0);
        let mut folder = above[..usize::from(above[0])].to_vec();
        folder[2..6].copy_from_slice(&((inside / SECTOR) as u32).to_le_bytes());
        folder[33] = name;
        put(&mut image, file, &folder);
        image
    }

    #[test]
    fn a_folder_may_have_a_name_of_one_letter() {
        for name in [b'A', b'_', b'0', 2] {
            assert_eq!(shown(&in_folder(name)), ["RUN.JS=hello"], "{name}");
        }
        // These are the folder itself and the one above it.
        for name in [0, 1] {
            assert!(shown(&in_folder(name)).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_said_to_be_short_hides_nothing_of_a_longer_one_in_its_place() {
        let mut image = in_folder(b'A');
        let short = record(&image);
        let length = usize::from(image[short]);
        let mut long: Vec<u8> = image[short..short + length].to_vec();
        long[33] = b'B';
        put(&mut image, short + 10, &34u32.to_le_bytes());
        put(&mut image, short + length, &long);
        assert_eq!(shown(&image), ["RUN.JS=hello"]);
    }

    #[test]
    fn blocks_may_be_shorter_than_sectors() {
        let plain = test_files::iso("RUN.JS", b"hello");
        assert_eq!(shown(&plain), ["RUN.JS=hello"]);
        for block in [512u16, 1024] {
            let mut image = plain.clone();
            put(&mut image, VOLUME + 128, &[block.to_le_bytes(), block.to_be_bytes()].concat());
            let file = record(&image);
            for (at, sector) in [(VOLUME + 156, 20), (file, 21)] {
                put(&mut image, at + 2, &(sector * 2048 / u32::from(block)).to_le_bytes());
            }
            assert_eq!(shown(&image), ["RUN.JS=hello"], "{block}");
            // Readers that go by the number in the other order.
            put(&mut image, VOLUME + 128, &512u16.swap_bytes().to_le_bytes());
            assert!(seen(&image).0.contains(&"RUN.JS=hello".to_owned()), "{block}");
        }
    }

    #[test]
    fn a_directory_goes_on_in_the_next_block() {
        let mut image = test_files::iso("RUN.JS", b"hello");
        let file = record(&image);
        let own: Vec<u8> = image[file..file + usize::from(image[file])].to_vec();
        image[file..file + own.len()].fill(0);
        put(&mut image, ROOT + 512, &own);
        assert_eq!(shown(&image), ["RUN.JS=hello"]);
    }

    #[test]
    fn hidden_files_and_files_in_pieces_are_whole() {
        let mut image = test_files::iso("RUN.JS", b"hello world");
        let file = record(&image);
        for flags in [1, 4, 0x11] {
            image[file + 25] = flags;
            assert_eq!(shown(&image), ["RUN.JS=hello world"]);
        }
        // Two pieces, the second of which stands elsewhere.
        let own: Vec<u8> = image[file..file + usize::from(image[file])].to_vec();
        image[file + 25] = GOES_ON;
        put(&mut image, file + 10, &5u32.to_le_bytes());
        put(&mut image, file + own.len(), &own);
        let second = file + own.len();
        image[second + 25] = 0;
        put(&mut image, second + 10, &4u32.to_le_bytes());
        put(&mut image, second + 2, &22u32.to_le_bytes());
        image.extend(b" bye");
        image.resize(image.len().next_multiple_of(SECTOR), 0);
        assert_eq!(shown(&image), ["RUN.JS=hello bye"]);
        // One of another name.
        put(&mut image, second + 33, b"NOT");
        let pieces = ["RUN.JS=hello", "NOT.JS= bye", "RUN.JS|NOT.JS=hello bye"];
        assert_eq!(shown(&image), pieces);
        // The second never comes.
        image[second] = 0;
        assert_eq!(shown(&image), ["RUN.JS=hello"]);
    }

    #[test]
    fn the_pieces_of_a_file_end_where_another_name_follows() {
        let mut image = test_files::iso("A.JS", b"one two three four");
        let file = record(&image);
        let own: Vec<u8> = image[file..file + usize::from(image[file])].to_vec();
        let place = |image: &mut [u8], number: usize, name: u8, last: bool| {
            let at = file + number * own.len();
            put(image, at, &own);
            put(image, at + 10, &5u32.to_le_bytes());
            (image[at + 25], image[at + 33]) = (if last { 0 } else { GOES_ON }, name);
        };
        for (number, (name, last)) in
            [(b'A', false), (b'A', false), (b'B', false), (b'B', true)].into_iter().enumerate()
        {
            place(&mut image, number, name, last);
        }
        let wanted = ["A.JS=one tone t", "B.JS=one tone t", "A.JS|B.JS=one tone tone tone t"];
        assert_eq!(shown(&image), wanted);
        // The last one is missing.
        place(&mut image, 3, b'B', false);
        assert_eq!(shown(&image), wanted);
    }

    #[test]
    fn a_file_has_a_bounded_number_of_pieces_and_names() {
        let mut pieces = Pieces::default();
        (0..PIECES_MAX).for_each(|at| pieces.take(&[format!("{}", at % NAMES_MAX)], (at, 0)));
        assert!(!pieces.has_more);
        pieces.take(&["0".into()], (0, 0));
        assert!(pieces.has_more && pieces.extents.len() == PIECES_MAX);
        pieces = Pieces::default();
        (0..=NAMES_MAX).for_each(|at| pieces.take(&[format!("{at}")], (at, 0)));
        assert!(pieces.has_more && pieces.names.len() == NAMES_MAX);
        // Of a file that goes on in records without end, the beginning is shown.
        let mut image = folders(PIECES_MAX as u32 + 1, |_| 20);
        image[ROOT..].chunks_mut(36).for_each(|record| {
            record[10..14].fill(0);
            record[25] = GOES_ON;
        });
        let (files, odd) = seen(&image);
        assert_eq!((files.as_slice(), odd.len()), (&["AB=".to_owned()][..], 1));
    }

    #[test]
    fn what_stands_before_a_file_is_passed_over_as_well() {
        let mut image = test_files::iso("RUN.JS", b"about it");
        let file = record(&image);
        image[file + 1] = 1;
        image.extend(b"the file");
        image.resize(image.len().next_multiple_of(SECTOR), 0);
        assert_eq!(shown(&image), ["RUN.JS=the file", "RUN.JS=about it"]);
        image[file + 1] = 0;
        image[file + 26] = 1;
        assert!(matches!(seen(&image).1[..], [Oddity::Unreadable(_)]));
    }

    #[test]
    fn a_second_directory_is_read_in_its_own_letters() {
        let mut image = test_files::iso("RUN.JS", b"hello");
        image[VOLUME] = 2;
        assert!(shown(&image)[0].starts_with("RUN.JS|"));
        put(&mut image, VOLUME + 88, b"%/E");
        let file = record(&image);
        let wide: Vec<u8> = "a.js".encode_utf16().flat_map(u16::to_be_bytes).collect();
        put(&mut image, file + 32, &[&[8][..], &wide].concat());
        assert_eq!(shown(&image), ["a.js=hello"]);
    }
}
