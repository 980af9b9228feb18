//! The few calls by which the spool changes the disk, in one place so that tests can make them fail.
//!
//! Everything here blocks; only the writer's thread and recovery call it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::file;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The disk as it is, or (in tests) one that fails on command.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    #[cfg(feature = "faults")]
    pub(super) faults: Option<std::sync::Arc<super::faults::Faults>>,
}

/// Passes the call to the failing disk if there is one.
macro_rules! or_faults {
    ($disk:expr, $call:ident ( $($argument:expr),* )) => {
        #[cfg(feature = "faults")]
        if let Some(faults) = &$disk.faults {
            return faults.$call($($argument),*);
        }
    };
}

impl Disk {
    /// A new private file, open for reading and writing.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        or_faults!(self, create(path));
        file::create(path)
    }

    /// An existing file, open for reading and writing.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        or_faults!(self, open(path));
        file::open(path)
    }

    /// Writes all of `bytes`, in as few calls as the system allows.
    pub(super) fn write(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
        or_faults!(self, write(file, path, bytes, at));
        let _ = path;
        file.write_all_at(bytes, at)
    }

    /// Makes what was written to the file durable.
    pub(super) fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        or_faults!(self, sync(file, path));
        let _ = path;
        file.sync_data()
    }

    /// Reserves space behind the end of the file. If the file system cannot do that, nothing happens.
    pub(super) fn reserve(&self, file: &File, from: u64, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Cuts the file off at `length`.
    pub(super) fn cut(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        or_faults!(self, cut_file(file, path, length));
        let _ = path;
        file.set_len(length)
    }

    /// Removes a file; one that is gone already is fine.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        or_faults!(self, remove(path));
        file::remove(path)
    }

    /// Makes the names in a folder durable.
    pub(super) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        or_faults!(self, sync_folder(path));
        crate::folder::sync_folder(path)
    }
}
