//! The SHA-256 sums of a backup's files, in the form that `sha256sum --check` reads. They reveal any file that was altered or damaged.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file that holds the sums.
pub(super) const SUMS: &str = "SHA256SUMS";
/// Files that describe the backup itself, and were not copied from anywhere.
const ABOUT: [&str; 2] = [SUMS, super::MANIFEST];

/// The sums of all files of a backup, as text.
pub(super) fn of_folder(folder: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for path in files(folder)? {
        let (name, escaped) = escape(&path);
        if escaped {
            text.push(b'\\');
        }
        text.extend_from_slice(of_file(&folder.join(&path))?.as_bytes());
        text.extend_from_slice(b"  ");
        text.extend_from_slice(&name);
        text.push(b'\n');
    }
    Ok(text)
}

/// The files that are in both lists of sums, but with different sums.
pub(super) fn unlike(earlier: &[u8], later: &[u8]) -> Vec<PathBuf> {
    let read = |text: &[u8]| -> BTreeMap<PathBuf, Vec<u8>> {
        let lines = text.split(|byte| *byte == b'\n').filter_map(read_line);
        lines.map(|(path, sum)| (path, sum.to_vec())).collect()
    };
    let earlier = read(earlier);
    let differs = |(path, sum): &(PathBuf, Vec<u8>)| earlier.get(path).is_some_and(|known| known != sum);
    read(later).into_iter().filter(differs).map(|(path, _)| path).collect()
}

/// The differences between a backup and its sums; one sentence for each.
pub(super) fn differences(folder: &Path, text: &[u8]) -> io::Result<Vec<String>> {
    let mut expected: BTreeMap<PathBuf, &[u8]> = BTreeMap::new();
    let mut problems = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match read_line(line) {
            Some((path, sum)) => drop(expected.insert(path, sum)),
            None => problems.push(format!("{SUMS} has a line that is none: {}", String::from_utf8_lossy(line))),
        }
    }
    for path in files(folder)? {
        match expected.remove(&path) {
            None => problems.push(format!("{} is not in {SUMS}", path.display())),
            Some(sum) if *of_file(&folder.join(&path))?.as_bytes() != *sum => {
                problems.push(format!("{} has changed", path.display()));
            }
            Some(_) => {}
        }
    }
    problems.extend(expected.keys().map(|path| format!("{} is missing", path.display())));
    Ok(problems)
}

/// The sum of some bytes.
pub(super) fn of_bytes(bytes: &[u8]) -> String {
    weir_store::hex(&Sha256::digest(bytes))
}

fn of_file(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut piece) = (File::open(path)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(weir_store::hex(&hash.finalize())),
            read => hash.update(&piece[..read]),
        }
    }
}

/// All files below a folder in order, except those that describe the backup.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let (entry, path) = entry.map(|entry| (entry.file_type(), inner.join(entry.file_name())))?;
            match entry?.is_dir() {
                true => folders.push(path),
                false if ABOUT.iter().any(|name| path == Path::new(name)) => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A name as `sha256sum` writes it, and whether it had to be escaped: a name with a line break would otherwise break the line.
fn escape(path: &Path) -> (Vec<u8>, bool) {
    let bytes = path.as_os_str().as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => name.extend_from_slice(b"\\\\"),
            b'\n' => name.extend_from_slice(b"\\n"),
            b'\r' => name.extend_from_slice(b"\\r"),
            other => name.push(*other),
        }
    }
    let escaped = name.len() != bytes.len();
    (name, escaped)
}

fn read_line(line: &[u8]) -> Option<(PathBuf, &[u8])> {
    let (escaped, line) = line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest));
    let (sum, name) = line.split_at_checked(64)?;
    let name = name.strip_prefix(b"  ")?;
    let plain = if escaped { unescape(name)? } else { name.to_vec() };
    Some((PathBuf::from(OsStr::from_bytes(&plain)), sum))
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut bytes) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("lab/samples")).unwrap();
        fs::write(folder.path().join("records.db"), b"records").unwrap();
        fs::write(folder.path().join("lab/samples/two\nlines \\ and \r"), b"sample").unwrap();
        fs::write(folder.path().join(OsStr::from_bytes(b"lab/\xff")), b"").unwrap();
        folder
    }

    #[test]
    fn every_difference_is_told() {
        let folder = folder();
        let sums = of_folder(folder.path()).unwrap();
        assert_eq!(differences(folder.path(), &sums).unwrap(), Vec::<String>::new());
        fs::write(folder.path().join("records.db"), b"recordz").unwrap();
        fs::write(folder.path().join("more"), b"").unwrap();
        fs::remove_file(folder.path().join(OsStr::from_bytes(b"lab/\xff"))).unwrap();
        let told = differences(folder.path(), &sums).unwrap();
        assert_eq!(told, ["more is not in SHA256SUMS", "records.db has changed", "lab/\u{fffd} is missing"]);
        assert_eq!(differences(folder.path(), b"nonsense\n").unwrap().len(), 4);
    }

    #[test]
    fn coreutils_agree() {
        let folder = folder();
        fs::write(folder.path().join(SUMS), of_folder(folder.path()).unwrap()).unwrap();
        let check =
            || Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(folder.path()).output();
        assert!(check().unwrap().status.success(), "{:?}", check());
    }

    #[test]
    fn files_that_two_backups_have_with_other_sums_are_found() {
        let line = |sum: char, name: &str| format!("{}  {name}\n", String::from(sum).repeat(64));
        let earlier = [line('a', "held/1.eml"), line('b', "held/2.eml"), line('c', "gone")].concat();
        let later = [line('a', "held/1.eml"), line('d', "held/2.eml"), line('e', "new")].concat();
        assert_eq!(unlike(earlier.as_bytes(), later.as_bytes()), [PathBuf::from("held/2.eml")]);
        assert!(unlike(b"nonsense\n", later.as_bytes()).is_empty());
    }
}
