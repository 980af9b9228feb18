//! A consistent copy of the spool while it runs.
//!
//! The writer seals the active segment and links all segments into a folder inside the spool; sealed segments never
//! change, so the links are the copy. Sidecars still grow and are copied. From there everything is linked, or copied
//! if it is another file system, to where it was wanted, without holding up the writer.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::SpoolError;
use super::id::random_u64;
use super::segment::SpoolFile;
use super::writer::SpoolWriter;

/// Folders inside the spool in which a snapshot is being prepared.
pub(super) const SNAPSHOT_PREFIX: &str = ".snapshot-";

impl SpoolWriter {
    /// Links everything that is acknowledged into a new folder inside the spool.
    pub(super) fn link_snapshot(&mut self) -> Result<PathBuf, SpoolError> {
        self.log.seal().map_err(|setback| self.retreat(setback))?;
        self.sidecars.sync_all()?;
        let folder = &self.shared.folder;
        let staging = folder.join(format!("{SNAPSHOT_PREFIX}{:016x}", random_u64()));
        let numbers: Vec<u32> = self.log.segments().map(|(number, _)| number).collect();
        link_all(folder, &staging, &numbers).map_err(|source| {
            let _ = fs::remove_dir_all(&staging);
            SpoolError::io("take a snapshot in", &staging, source)
        })?;
        Ok(staging)
    }
}

fn link_all(folder: &Path, staging: &Path, numbers: &[u32]) -> io::Result<()> {
    fs::create_dir(staging)?;
    fs::copy(folder.join("marker"), staging.join("marker"))?;
    for number in numbers {
        link_or_copy(&SpoolFile::Segment.path(folder, *number), &SpoolFile::Segment.path(staging, *number))?;
        fs::copy(SpoolFile::Sidecar.path(folder, *number), SpoolFile::Sidecar.path(staging, *number))?;
    }
    Ok(())
}

/// Moves a prepared snapshot to its place, durably, and removes the folder in which it was prepared.
pub(super) fn deliver(staging: &Path, to: &Path) -> Result<(), SpoolError> {
    let delivered = copy_out(staging, to).map_err(|source| SpoolError::io("write the snapshot to", to, source));
    if let Err(error) = fs::remove_dir_all(staging) {
        tracing::warn!(path = %staging.display(), %error, "a staged snapshot stays until the next start");
    }
    delivered
}

fn copy_out(staging: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    if fs::read_dir(to)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    for entry in fs::read_dir(staging)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        link_or_copy(&entry.path(), &target)?;
        File::open(&target)?.sync_all()?;
    }
    crate::folder::sync_folder(to)
}

fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(|_| ()))
}
