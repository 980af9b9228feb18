//! Ways to hurt the files of a closed spool.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files with this ending, oldest first.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the spool's folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    files
}

/// Turns one bit over. The place is taken modulo the length.
pub(crate) fn flip(path: &Path, place: usize) {
    let length = length(path);
    if length > 0 {
        let at = (place / 8) as u64 % length;
        let file = OpenOptions::new().read(true).write(true).open(path).expect("a file of the spool");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        byte[0] ^= 1 << (place % 8);
        file.write_all_at(&byte, at).expect("a byte");
    }
}

/// Appends bytes.
pub(crate) fn append(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("a file of the spool");
    file.write_all_at(bytes, length(path)).expect("appended bytes");
}

/// Cuts bytes off the end.
pub(crate) fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("a file of the spool");
    file.set_len(length(path).saturating_sub(bytes).max(32)).expect("a shorter file");
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).expect("a file of the spool").len()
}
