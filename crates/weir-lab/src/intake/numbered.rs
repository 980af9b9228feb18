//! The numbered directories under the root analysis directory, and files in them by number and name.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The directory in which the paper puts samples without a priority.
pub const NORMAL: u64 = 32;

/// One file in one of the directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryFile {
    /// The number of the directory.
    pub directory: u8,
    pub name: OsString,
}

/// Creates the directories that must exist under a root.
pub(super) fn make(root: &Path) -> io::Result<()> {
    std::fs::create_dir_all(root.join(NORMAL.to_string()))?;
    std::fs::create_dir_all(root.join("refused"))
}
