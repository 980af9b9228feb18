//! The numbered directories under the root analysis directory, and files in them by number and name.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Where the paper puts what says nothing of its priority.
pub const NORMAL: u64 = 32;

/// One file in one of the directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryFile {
    /// The number of the directory.
    pub directory: u8,
    pub name: OsString,
}

/// Makes what must be there under a root.
pub(super) fn make(root: &Path) -> io::Result<()> {
    std::fs::create_dir_all(root.join(NORMAL.to_string()))?;
    std::fs::create_dir_all(root.join("refused"))
}
