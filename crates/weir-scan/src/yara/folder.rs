//! A folder of rules, read whole, and read again when it changes.

use super::RuleFile;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// All rules together; large public sets have some ten megabytes.
pub const TEXT_MAX: u64 = 64 << 20;
const FILES_MAX: usize = 10_000;

/// The files as they stood: name, length, when the system last changed anything about it, which nobody can set, and its
/// number. When that differs, the rules are read again.
pub type Stamp = Vec<(PathBuf, u64, (i64, i64, u64))>;

/// The rule files of a folder, by name.
pub fn stamp(folder: &Path) -> Result<Stamp, FolderError> {
    let unreadable = |error: std::io::Error| FolderError::Unreadable(folder.to_owned(), error.to_string());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let rules = path.extension().is_some_and(|extension| extension == "yar" || extension == "yara");
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if rules && meta.is_file() {
            files.push((path, meta.len(), (meta.ctime(), meta.ctime_nsec(), meta.ino())));
        }
        if files.len() > FILES_MAX {
            return Err(FolderError::TooMuch(folder.to_owned()));
        }
    }
    files.sort();
    let total: u64 = files.iter().map(|(_, length, _)| length).sum();
    if total > TEXT_MAX { Err(FolderError::TooMuch(folder.to_owned())) } else { Ok(files) }
}

/// Reads what a stamp names.
pub fn read(stamp: &Stamp) -> Result<Vec<RuleFile>, FolderError> {
    let read = |(path, ..): &(PathBuf, u64, (i64, i64, u64))| {
        let text = std::fs::read(path).map_err(|error| FolderError::Unreadable(path.clone(), error.to_string()))?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(RuleFile { name, text: String::from_utf8_lossy(&text).into_owned() })
    };
    stamp.iter().map(read).collect()
}

/// A folder that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// It or a file in it cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1)]
    Unreadable(PathBuf, String),
    /// It holds more than rules.
    #[error("{} holds more than 10000 files or 64 MiB of rules", .0.display())]
    TooMuch(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_in_order_and_a_change_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.yar"), "two").unwrap();
        std::fs::write(folder.path().join("a.yara"), "one").unwrap();
        std::fs::write(folder.path().join("README"), "not rules").unwrap();
        let before = stamp(folder.path()).unwrap();
        let texts: Vec<String> = read(&before).unwrap().into_iter().map(|file| file.text).collect();
        assert_eq!(texts, ["one", "two"]);
        std::fs::write(folder.path().join("b.yar"), "three").unwrap();
        let after = stamp(folder.path()).unwrap();
        assert_ne!(before, after);
        // The same length, and its time set back.
        let other = folder.path().join("c");
        std::fs::write(&other, "3hree").unwrap();
        let old = std::fs::File::options().write(true).open(&other).unwrap();
        old.set_modified(std::fs::metadata(folder.path().join("b.yar")).unwrap().modified().unwrap()).unwrap();
        std::fs::rename(&other, folder.path().join("b.yar")).unwrap();
        assert_ne!(after, stamp(folder.path()).unwrap());
        assert!(stamp(&folder.path().join("none")).is_err());
    }
}
