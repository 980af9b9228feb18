//! The files that a sample left: looked at when all of it has ended, and sent back, bounded.

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_guest::behaviour::{Behaviour, FileChange, TEXT_MAX};
use weir_guest::frame::{self, FRAME_MAX, Kind};
use weir_guest::words::{Dropped, Run};

/// Shorter files do not look random, whatever they are.
const RANDOM_MIN: u64 = 512;
/// How much of a file is looked at for that.
const RANDOM_LOOK: u64 = 1 << 20;
/// How much of a file that does not go back is told.
const BEGIN: u64 = 256;

/// A file that goes back.
#[derive(Debug)]
pub(crate) struct Left {
    path: String,
    bytes: u64,
    file: File,
}

/// Adds length and hash to the files of the report that are still there, and picks those that go back. Of the others it tells how they begin:
/// a program beyond the bounds is a program all the same. `at` says where a file of the report is. What may be there and cannot be looked at counts as
/// left out of the report.
pub(crate) fn find(behaviour: &mut Behaviour, order: &Run, at: fn(&str) -> PathBuf) -> Vec<Left> {
    let (mut found, mut room) = (Vec::new(), order.files_bytes_max);
    let mut unknown = behaviour.files.iter().filter(|change| !is_exact(change)).count() as u64;
    let places = behaviour.places();
    for (change, place) in behaviour.files.iter_mut().zip(places) {
        let Some(path) = place else { continue };
        let (mut file, bytes) = match open(&at(&path)) {
            Ok(Some(opened)) => opened,
            Ok(None) => continue,
            Err(_) => {
                unknown += 1;
                continue;
            }
        };
        change.bytes = Some(bytes);
        if bytes <= order.files_bytes_max {
            let looked = look(&mut file, bytes);
            change.random = looked.as_ref().is_ok_and(|(_, random)| *random);
            change.sha256 = looked.ok().map(|(hash, _)| hash);
        }
        if bytes == 0 || path == behaviour.sample || found.iter().any(|left: &Left| left.path == path) {
            continue;
        }
        let fits = bytes <= room && found.len() < order.files_max as usize && change.sha256.is_some();
        if fits && file.rewind().is_ok() {
            room -= bytes;
            found.push(Left { path, bytes, file });
        } else {
            change.begins = beginning(&mut file).unwrap_or_default();
            unknown += u64::from(change.begins.is_empty());
        }
    }
    behaviour.left_out += unknown;
    found
}

/// The first octets of a file, in hexadecimal digits.
fn beginning(file: &mut File) -> io::Result<String> {
    let mut begin = Vec::new();
    file.rewind()?;
    file.take(BEGIN).read_to_end(&mut begin)?;
    Ok(begin.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether the report has the whole name of a file that was written or renamed. A long one is cut, and octets that are no text are replaced, so that
/// under what the report has there is another file or none.
fn is_exact(change: &FileChange) -> bool {
    let is_whole = |path: &str| path.chars().count() < TEXT_MAX && !path.contains(char::REPLACEMENT_CHARACTER);
    change.what == "deleted" || (is_whole(&change.path) && change.to.as_deref().is_none_or(is_whole))
}

/// A regular file and its length, if one is there. Links, sockets and the like are not opened.
fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file.metadata().map(|about| about.is_file().then_some((file, about.len()))),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENXIO) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Its SHA-256, and whether it looks random.
fn look(file: &mut File, bytes: u64) -> io::Result<(String, bool)> {
    let (mut hash, mut piece, mut left) = (Sha256::new(), vec![0; 64 * 1024], bytes);
    let mut counts = [0_u64; 256];
    while left > 0 {
        let length = file.read(&mut piece)?;
        if length == 0 {
            break;
        }
        hash.update(&piece[..length]);
        if bytes - left < RANDOM_LOOK {
            piece[..length].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        }
        left = left.saturating_sub(length as u64);
    }
    let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((hash, is_random(&counts)))
}

/// More than 7 bits a byte: text has 4 to 5, programs have 6. Of short files nobody can say.
fn is_random(counts: &[u64; 256]) -> bool {
    let all: u64 = counts.iter().sum();
    let share = |count: u64| count as f64 / all as f64;
    let bits: f64 = counts.iter().filter(|count| **count > 0).map(|count| -share(*count) * share(*count).log2()).sum();
    all >= RANDOM_MIN && bits > 7.0
}

impl Left {
    pub(crate) fn send(mut self, port: &File) -> io::Result<()> {
        let about = Dropped { path: self.path, bytes: self.bytes };
        frame::write(&mut &*port, Kind::File, &serde_json::to_vec(&about)?)?;
        let mut piece = vec![0; FRAME_MAX];
        let mut left = self.bytes;
        while left > 0 {
            let most = usize::try_from(left).map_or(FRAME_MAX, |left| left.min(FRAME_MAX));
            let length = self.file.read(&mut piece[..most])?;
            if length == 0 {
                return Err(io::Error::other("a file became shorter while it was sent"));
            }
            frame::write(&mut &*port, Kind::Data, &piece[..length])?;
            left -= length as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_guest::behaviour::FileChange;

    fn order(files_max: u32, files_bytes_max: u64) -> Run {
        Run {
            name: "s".into(),
            bytes: 0,
            watch_ms: 0,
            root: false,
            time_ns: 0,
            files_max,
            files_bytes_max,
            offline: false,
        }
    }

    #[test]
    fn random_is_told_from_text() {
        let counts = |bytes: &[u8]| {
            let mut counts = [0; 256];
            bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
            counts
        };
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let random: Vec<u8> = (0..2048).map(|_| random()).collect();
        assert!(is_random(&counts(&random)));
        assert!(!is_random(&counts(&random[..RANDOM_MIN as usize - 1])));
        assert!(!is_random(&counts("Dear Ann, see you on Friday. ".repeat(100).as_bytes())));
        assert!(!is_random(&counts(&[])));
    }

    #[test]
    fn files_are_hashed_and_picked_within_bounds() {
        let home = std::env::temp_dir().join(format!("weir-dropped-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let path = |name: &str| home.join(name).to_string_lossy().into_owned();
        for (name, length) in [("one", 3), ("two", 5), ("large", 50), ("sample", 3)] {
            std::fs::write(path(name), vec![b'x'; length]).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", path("link")).ok();
        let change = |name: &str| FileChange { path: path(name), what: "written".into(), ..FileChange::default() };
        let names = ["one", "two", "large", "sample", "link", "gone"];
        let (files, sample) = (names.map(change).to_vec(), path("sample"));
        let mut behaviour = Behaviour { files, sample, ..Behaviour::default() };
        let found = find(&mut behaviour, &order(9, 7), |path| path.into());
        let found: Vec<_> = found.iter().map(|left| left.bytes).collect();
        let lengths: Vec<_> = behaviour.files.iter().map(|file| (file.bytes, file.sha256.is_some())).collect();
        let begins: Vec<_> = behaviour.files.iter().map(|file| file.begins.clone()).collect();
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(found, [3], "the second fits no more");
        assert_eq!(
            lengths,
            [(Some(3), true), (Some(5), true), (Some(50), false), (Some(3), true), (None, false), (None, false)]
        );
        // What does not go back tells how it begins: it may be a program. The sample is known anyway.
        assert_eq!(begins, ["", &"78".repeat(5), &"78".repeat(50), "", "", ""]);
        assert_eq!(behaviour.left_out, 0);
    }

    #[test]
    fn what_cannot_be_found_by_its_name_in_the_report_is_left_out_of_it() {
        let left_out = |what: &str, path: &str, to: Option<&str>| {
            let change =
                FileChange { path: path.into(), what: what.into(), to: to.map(Into::into), ..FileChange::default() };
            let mut behaviour = Behaviour { files: vec![change], ..Behaviour::default() };
            assert!(find(&mut behaviour, &order(9, 100), |path| path.into()).is_empty());
            behaviour.left_out
        };
        assert_eq!(left_out("written", "/nowhere/a.js", None), 0);
        assert_eq!(left_out("deleted", "/nowhere/\u{fffd}.js", None), 0);
        assert_eq!(left_out("written", "/nowhere/\u{fffd}.js", None), 1);
        assert_eq!(left_out("renamed", "/nowhere/a.js", Some("/nowhere/\u{fffd}.js")), 1);
        assert_eq!(left_out("written", &format!("/{}", "d/".repeat(TEXT_MAX / 2)), None), 1);
        // Its folder is there, and the system refuses to look for it.
        assert_eq!(left_out("written", &format!("/tmp/{}", "x".repeat(256)), None), 1);
    }

    #[test]
    fn a_file_is_found_where_its_folder_is_now() {
        let home = std::env::temp_dir().join(format!("weir-moved-{}", std::process::id()));
        std::fs::create_dir_all(home.join("e")).unwrap();
        std::fs::write(home.join("e/x"), "#!/bin/sh\n").unwrap();
        let path = |name: &str| home.join(name).to_string_lossy().into_owned();
        let change =
            |what: &str, from: &str| FileChange { path: path(from), what: what.into(), ..FileChange::default() };
        let files = vec![change("written", "d/x"), FileChange { to: Some(path("e")), ..change("renamed", "d") }];
        let mut behaviour = Behaviour { files, ..Behaviour::default() };
        let found = find(&mut behaviour, &order(1, 100), |path| path.into());
        let found: Vec<_> = found.into_iter().map(|left| left.path).collect();
        let none = find(&mut behaviour, &order(0, 100), |path| path.into());
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(found, [path("e/x")]);
        assert!(none.is_empty() && behaviour.files[0].begins.starts_with("2321"), "{behaviour:?}");
    }
}
