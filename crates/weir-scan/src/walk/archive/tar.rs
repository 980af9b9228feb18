//! Tar: ustar and what was before it, with GNU's and POSIX's long names. Members are not packed, so nothing is copied,
//! but of sparse files both what is kept and what is unpacked is shown.
//!
//! Readers of tar differ in what they do about damage, about members that are no files and about what stands behind the end;
//! where two readers would see different archives, that is reported. Sources: POSIX.1 (pax), the manual of GNU tar.

use super::super::tar_header::{BLOCK, is_header, number};
use super::super::{Oddity, Walk, bounded_name};
use super::tar_sparse::SparseMap;
use crate::budget::Exceeded;

/// The field of a header that has the name.
const NAME: usize = 100;
/// Names that one extended header may give.
const PATHS_MAX: usize = 8;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut reading =
        TarReader { rest: data, next: HeaderFacts::default(), all: HeaderFacts::default(), told: Vec::new() };
    while reading.member(walk, level)? {}
    Ok(())
}

/// What headers say about the member behind them, or about all.
#[derive(Default)]
struct HeaderFacts {
    long: Option<String>,
    paths: Vec<String>,
    size: Option<usize>,
    sparse: SparseMap,
}

struct TarReader<'d> {
    rest: &'d [u8],
    next: HeaderFacts,
    all: HeaderFacts,
    /// What was told already, once each.
    told: Vec<&'static str>,
}

impl<'d> TarReader<'d> {
    /// One header and what is behind it; whether there may be more.
    fn member(&mut self, walk: &mut Walk<'_>, level: u32) -> Result<bool, Exceeded> {
        walk.budget.time()?;
        let Some((header, behind)) = self.rest.split_at_checked(BLOCK) else { return Ok(false) };
        if header.iter().all(|byte| *byte == 0) {
            return Ok(self.goes_on(walk, behind));
        }
        if !is_header(header) {
            self.inconsistent(walk, "a tar header whose checksum is false");
        }
        let flag = header[156];
        let Some(size) = self.size(walk, header, flag) else {
            walk.odd_here(Oddity::Unreadable("a damaged tar archive".into()));
            return Ok(false);
        };
        let behind = if flag == b'S' {
            let (map, behind) = SparseMap::old(header, behind);
            self.next.sparse = map;
            behind
        } else {
            behind
        };
        let body = &behind[..size.min(behind.len())];
        self.take(walk, header, body, level)?;
        if size > behind.len() {
            walk.odd_here(Oddity::Unreadable("a tar archive that breaks off".into()));
            return Ok(false);
        }
        self.rest = behind.get(size.next_multiple_of(BLOCK)..).unwrap_or(&[]);
        Ok(true)
    }

    /// Most readers end at the first empty block, and some look further.
    fn goes_on(&mut self, walk: &mut Walk<'_>, behind: &'d [u8]) -> bool {
        let full = behind.chunks(BLOCK).position(|block| block.iter().any(|byte| *byte != 0));
        self.rest = full.map_or(&[][..], |at| &behind[at * BLOCK..]);
        let more = is_header(self.rest) || self.rest.get(257..262) == Some(b"ustar");
        if more {
            self.inconsistent(walk, "a tar archive that goes on behind its end");
        }
        more
    }

    /// How long the body is: an extended header counts more than the header.
    fn size(&mut self, walk: &mut Walk<'_>, header: &[u8], flag: u8) -> Option<usize> {
        let own = number(&header[124..136])?;
        if own > 0 && matches!(flag, b'1'..=b'6') {
            self.inconsistent(walk, "a tar member that has a body and should not");
        }
        let Some(size) = self.next.size.filter(|_| !is_about_another(flag)) else { return Some(own) };
        if own != 0 && own != size {
            self.inconsistent(walk, "two sizes for one tar member");
        }
        Some(size)
    }

    fn take(&mut self, walk: &mut Walk<'_>, header: &[u8], body: &[u8], level: u32) -> Result<(), Exceeded> {
        match header[156] {
            b'L' => self.next.long = Some(text(body)),
            b'K' => {}
            b'x' | b'X' if self.next.extended(body).is_none() => self.damaged(walk),
            b'g' if self.all.extended(body).is_none() => self.damaged(walk),
            b'x' | b'X' | b'g' => {}
            flag => {
                let names = self.names(header);
                let sparse = std::mem::take(&mut self.next).sparse;
                let folder = names.first().is_some_and(|name| name.ends_with('/'));
                // Folders, devices and labels have names only, and so have links, but a link is a file under another name. What nobody knows is a
                // file: so says the standard.
                if body.is_empty() && (folder || matches!(flag, b'3'..=b'6' | b'V')) {
                    return walk.budget.entry();
                }
                walk.stored(&names, body, level)?;
                if sparse.is_map() {
                    return unpacked(walk, &names, sparse, body, level);
                }
            }
        }
        Ok(())
    }

    /// Every name that some reader would give it; the first is the one that most do.
    fn names(&self, header: &[u8]) -> Vec<String> {
        let HeaderFacts { long, paths, .. } = &self.next;
        let mut names: Vec<String> = paths.iter().chain(long).chain(&self.all.paths).cloned().collect();
        let (short, field) = (name(header), text(&header[..NAME]));
        // Where the name is longer than its field, the field has its beginning: that is no other name.
        let beginning = field.len() >= NAME - 1 && names.iter().any(|name| name.starts_with(&field));
        if !beginning && !names.contains(&short) {
            names.push(short);
        }
        names
    }

    fn inconsistent(&mut self, walk: &mut Walk<'_>, what: &'static str) {
        if !self.told.contains(&what) {
            self.told.push(what);
            walk.odd_here(Oddity::Inconsistent(what.into()));
        }
    }

    fn damaged(&mut self, walk: &mut Walk<'_>) {
        walk.odd_here(Oddity::Unreadable("a damaged extended header in a tar archive".into()));
    }
}

impl HeaderFacts {
    /// Records of the form `LENGTH KEY=VALUE\n`; nothing if they are written otherwise.
    fn extended(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() {
            let space = memchr::memchr(b' ', &records[..records.len().min(20)])?;
            let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
            let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = memchr::memchr(b'=', record)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" | b"GNU.sparse.name" => {
                    // The last one counts to most.
                    self.paths.truncate(PATHS_MAX - 1);
                    self.paths.push(bounded_name(value));
                }
                b"size" => self.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                _ => self.sparse.record(key, value)?,
            }
            records = &records[length..];
        }
        Some(())
    }
}

/// A file with holes as it is once it is unpacked.
fn unpacked(walk: &mut Walk<'_>, names: &[String], sparse: SparseMap, body: &[u8], level: u32) -> Result<(), Exceeded> {
    match sparse.whole(body) {
        Some(mut whole) => walk.member(names, body.len() as u64, &mut whole, level).map(drop),
        None => {
            walk.odd(names, Oddity::Unreadable("a sparse file in a tar archive whose map is damaged".into()));
            Ok(())
        }
    }
}

/// Long names and extended headers have a size of their own.
fn is_about_another(flag: u8) -> bool {
    matches!(flag, b'L' | b'K' | b'x' | b'X' | b'g')
}

fn name(header: &[u8]) -> String {
    let (prefix, name) = (text(&header[345..500]), text(&header[..NAME]));
    let ustar = &header[257..262] == b"ustar" && &header[257..265] != b"ustar  \0";
    if ustar && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

fn text(field: &[u8]) -> String {
    bounded_name(&field[..memchr::memchr(0, field).unwrap_or(field.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use crate::walk::{File, NestedPath, Visit};

    #[test]
    fn sizes() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"zzz\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff"), None);
    }

    #[derive(Default)]
    struct Listing(Vec<String>);

    impl Visit for Listing {
        fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
            self.0.push(format!("{}={}", file.names.join("|"), String::from_utf8_lossy(file.data)));
            Ok(())
        }

        fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
            self.0.push(format!("{oddity:?}"));
        }
    }

    /// A member of an old archive: no mark, a checksum.
    fn member(name: &str, flag: u8, body: &[u8]) -> Vec<u8> {
        let mut header = vec![0; BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
        header[156] = flag;
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header.extend_from_slice(body);
        header.resize(header.len().next_multiple_of(BLOCK), 0);
        header
    }

    fn seen(members: &[Vec<u8>]) -> Vec<String> {
        let (mut budget, mut seen) = (Budget::new(&Limits::default()), Listing::default());
        let data = members.concat();
        assert!(is_header(&data), "an old archive is known by its sum");
        open(&mut Walk::new(&mut budget, &mut seen), &data, 0).unwrap();
        seen.0
    }

    fn end() -> Vec<u8> {
        vec![0; 2 * BLOCK]
    }

    #[test]
    fn what_nobody_knows_is_a_file() {
        let all = [
            member("a.txt", b'0', b"a"),
            member("b.exe", b'Z', b"b"),
            member("c", 0, b"c"),
            member("d/", b'5', b""),
            end(),
        ];
        assert_eq!(seen(&all), ["a.txt=a", "b.exe=b", "c=c"]);
    }

    #[test]
    fn a_link_is_a_file_under_another_name() {
        let all = [member("a.txt", b'0', b"1"), member("b.exe", b'1', b""), member("c.js", b'2', b""), end()];
        assert_eq!(seen(&all), ["a.txt=1", "b.exe=", "c.js="]);
    }

    #[test]
    fn a_long_name_outlives_what_stands_between() {
        let long = [b"very/long.exe\0".as_slice()].concat();
        let between = [member("x", b'K', b"link\0"), member("x", b'g', b"13 comment=x\n")].concat();
        assert_eq!(
            seen(&[member("x", b'L', &long), between, member("short", b'0', b"1"), end()]),
            ["very/long.exe|short=1"]
        );
        let pax = b"19 path=a/evil.exe\n";
        let both = [member("x", b'L', b"b.txt\0"), member("x", b'x', pax), member("short", b'0', b"1"), end()];
        assert_eq!(seen(&both), ["a/evil.exe|b.txt|short=1"]);
        let comment = b"26 comment= path=fine.txt\n";
        assert_eq!(seen(&[member("x", b'x', comment), member("evil.exe", b'0', b"1"), end()]), ["evil.exe=1"]);
    }

    #[test]
    fn a_name_in_a_header_counts_beside_those_before_it() {
        // Who knows nothing of extended headers sees the short name.
        let pax = member("x", b'x', b"14 path=a.txt\n");
        assert_eq!(seen(&[pax.clone(), member("evil.exe", b'0', b"1"), end()]), ["a.txt|evil.exe=1"]);
        assert_eq!(seen(&[pax, member("a.txt", b'0', b"1"), end()]), ["a.txt=1"]);
        let all = member("x", b'g', b"14 path=a.txt\n");
        assert_eq!(seen(&[all, member("evil.exe", b'0', b"1"), end()]), ["a.txt|evil.exe=1"]);
        // A name that is too long for its field: what fits is no other one.
        let long = format!("{}.json", "a".repeat(97));
        let short = &long[..100];
        assert!(short.ends_with(".js"));
        let named = format!("{long}\0");
        assert_eq!(
            seen(&[member("x", b'L', named.as_bytes()), member(short, b'0', b"1"), end()]),
            [format!("{long}=1")]
        );
        // The last of many paths is there.
        let many: String = (0..20).map(|number| format!("13 path={number:04}\n")).collect();
        let names = seen(&[member("x", b'x', many.as_bytes()), member("0019", b'0', b"1"), end()]);
        assert!(names[0].ends_with("|0006|0019=1"), "{names:?}");
    }

    #[test]
    fn a_sparse_file_is_read_behind_its_map() {
        let mut header = member("holes", b'S', b"12345");
        header[482] = 1;
        header[148..156].fill(b' ');
        let sum: u32 = header[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let body = header.split_off(BLOCK);
        let mut map = vec![0; 2 * BLOCK];
        map[504] = 1;
        assert_eq!(seen(&[header, map, body, member("b", b'0', b"b"), end()]), ["holes=12345", "b=b"]);
    }

    #[test]
    fn a_sparse_file_is_shown_as_it_is_unpacked() {
        let record = |key: &str, value: &str| {
            let rest = format!(" {key}={value}\n");
            let length = rest.len() + if rest.len() < 98 { 2 } else { 3 };
            format!("{length}{rest}")
        };
        let told = [
            record("GNU.sparse.major", "1"),
            record("GNU.sparse.minor", "0"),
            record("GNU.sparse.name", "run.js"),
            record("GNU.sparse.realsize", "8"),
        ];
        let mut body = b"2\n0\n3\n5\n2\n".to_vec();
        body.resize(BLOCK, 0);
        body.extend(b"abcde");
        let all = [member("x", b'x', told.concat().as_bytes()), member("GNUSparseFile.0/run.js", b'0', &body), end()];
        let names = "run.js|GNUSparseFile.0/run.js";
        let kept = String::from_utf8(body).unwrap();
        assert_eq!(seen(&all), [format!("{names}={kept}"), format!("{names}=abc\0\0de\0")]);
        let all =
            [member("x", b'x', told.concat().as_bytes()), member("a", b'0', b"no map"), member("b", b'0', b"b"), end()];
        let damaged = "Unreadable(\"a sparse file in a tar archive whose map is damaged\")";
        assert_eq!(seen(&all), ["run.js|a=no map", damaged, "b=b"]);
    }

    #[test]
    fn two_readings_are_told() {
        let told = |members: &[Vec<u8>]| seen(members).into_iter().find(|said| said.contains("Inconsistent")).unwrap();
        assert!(told(&[member("a", b'0', b"1"), end(), member("b.exe", b'0', b"2")]).contains("behind its end"));
        assert!(told(&[member("a", b'2', b"1"), end()]).contains("should not"));
        let pax = member("x", b'x', b"12 size=999\n");
        assert!(told(&[pax, member("a", b'0', b"1"), end()]).contains("two sizes"));
        let mut broken = member("b", b'0', b"1");
        broken[0] = b'c';
        assert!(told(&[member("a", b'0', b"1"), broken, end()]).contains("checksum"));
    }

    #[test]
    fn what_breaks_off_is_looked_at_as_far_as_it_goes() {
        let mut data = member("a.exe", b'0', b"12345678");
        data.truncate(BLOCK + 4);
        assert_eq!(seen(&[data]), ["a.exe=1234", "Unreadable(\"a tar archive that breaks off\")"]);
    }
}
