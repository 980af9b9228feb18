//! The sidecars: beside each segment, the marks of the messages committed in it.
//!
//! Marks reach the page cache with the batch they came in, and the disk soon after. What is not yet durable is also
//! held in memory: when a sync fails, the kernel forgets which pages were dirty, so those bytes are written again, in
//! the same place, before the next sync. A sidecar that cannot be written keeps its marks until it can.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::SpoolError;
use super::disk::Disk;
use super::id::MessageId;
use super::record::{Marker, RecordKind, append};
use super::segment::{FILE_HEADER, SpoolFile};

/// The space for the marks of one message: decided, some tries, finished. The marks of the stages (authentication, the scan)
/// are longer and need the floor of free space.
const MARKS_OF_A_MESSAGE: u64 = 256;
/// Space is reserved in steps of this length.
const RESERVE_STEP: u64 = 64 << 10;

/// If more sidecars than this are open, they are synced and closed.
const OPEN_MAX: usize = 64;

/// All sidecars that were touched lately.
#[derive(Debug)]
pub(super) struct Sidecars {
    folder: PathBuf,
    disk: Disk,
    marker: Marker,
    open: HashMap<u32, Sidecar>,
    warned: bool,
}

#[derive(Debug)]
struct Sidecar {
    path: PathBuf,
    header: [u8; FILE_HEADER as usize],
    /// Opened at the first write, so that noting a mark cannot fail.
    file: Option<File>,
    /// Up to here it is durable.
    synced: u64,
    /// What follows, in memory.
    tail: Vec<u8>,
    /// How much of the tail is in the file.
    written: usize,
    /// How long the file would be with the marks of all messages committed so far.
    expected: u64,
    /// The disk has reserved space up to here.
    reserved: u64,
}

impl Sidecars {
    pub(super) fn new(folder: PathBuf, disk: Disk, marker: Marker) -> Sidecars {
        Sidecars { folder, disk, marker, open: HashMap::new(), warned: false }
    }

    /// Makes the sidecar of a new segment. The caller syncs the folder.
    pub(super) fn create(&mut self, segment: u32) -> Result<(), SpoolError> {
        let mut sidecar = Sidecar::new(&self.folder, segment, self.marker);
        let created = sidecar.create(&self.disk).and_then(|()| sidecar.write(&self.disk));
        created.map_err(|source| SpoolError::io("create", &sidecar.path, source))?;
        self.open.insert(segment, sidecar);
        Ok(())
    }

    /// Reserves space for the marks of messages that are about to be committed: once they are acknowledged,
    /// their progress can be recorded, however full the disk is.
    pub(super) fn reserve(&mut self, segment: u32, messages: usize) -> Result<(), SpoolError> {
        let closed = || Sidecar::new(&self.folder, segment, self.marker);
        let sidecar = self.open.entry(segment).or_insert_with(closed);
        sidecar.reserve(messages, &self.disk).map_err(|source| SpoolError::io("write", &sidecar.path, source))
    }

    /// Adds a record; [`Sidecars::write`] brings it to the file.
    pub(super) fn append(&mut self, segment: u32, of: (RecordKind, MessageId), payload: &[u8]) {
        let closed = || Sidecar::new(&self.folder, segment, self.marker);
        let sidecar = self.open.entry(segment).or_insert_with(closed);
        append(&mut sidecar.tail, self.marker, of, payload, crc32fast::hash(payload));
    }

    /// Writes everything to the page cache; returns whether that succeeded. What fails is tried again next time.
    pub(super) fn write(&mut self) -> bool {
        let mut all = true;
        for sidecar in self.open.values_mut() {
            if let Err(error) = sidecar.write(&self.disk) {
                all = false;
                warn(&mut self.warned, &sidecar.path, &error);
            }
        }
        if self.open.len() > OPEN_MAX {
            // A failure is logged there, and those that failed stay.
            let _ = self.sync_all();
            self.open.retain(|_, sidecar| !sidecar.tail.is_empty());
        }
        all
    }

    /// Makes the marks of one segment durable.
    pub(super) fn sync(&mut self, segment: u32) -> Result<(), SpoolError> {
        self.open.get_mut(&segment).map_or(Ok(()), |sidecar| sidecar.sync(&self.disk))
    }

    /// Makes all marks durable; tries all of them and returns the first failure.
    pub(super) fn sync_all(&mut self) -> Result<(), SpoolError> {
        let mut result = Ok(());
        for sidecar in self.open.values_mut() {
            let synced = sidecar.sync(&self.disk);
            if let Err(error) = &synced {
                warn(&mut self.warned, &sidecar.path, error);
            }
            result = result.and(synced);
        }
        self.warned &= result.is_err();
        result
    }

    /// Forgets a sidecar whose segment is gone, and removes its file.
    pub(super) fn remove(&mut self, segment: u32) -> io::Result<()> {
        self.open.remove(&segment);
        self.disk.remove(&SpoolFile::Sidecar.path(&self.folder, segment))
    }
}

impl Sidecar {
    fn new(folder: &Path, segment: u32, marker: Marker) -> Sidecar {
        let (path, header) = (SpoolFile::Sidecar.path(folder, segment), SpoolFile::Sidecar.header(segment, marker));
        Sidecar { path, header, file: None, synced: 0, tail: Vec::new(), written: 0, expected: 0, reserved: 0 }
    }

    fn reserve(&mut self, messages: usize, disk: &Disk) -> io::Result<()> {
        if self.file.is_none() {
            self.open(disk)?;
        }
        if self.reserved == 0 {
            (self.expected, self.reserved) = (self.synced + self.tail.len() as u64, self.synced);
        }
        let expected = self.expected + messages as u64 * MARKS_OF_A_MESSAGE;
        if let Some(file) = self.file.as_ref().filter(|_| expected > self.reserved) {
            let more = (expected - self.reserved).next_multiple_of(RESERVE_STEP);
            disk.reserve(file, self.reserved, more)?;
            self.reserved += more;
        }
        self.expected = expected;
        Ok(())
    }

    fn create(&mut self, disk: &Disk) -> io::Result<()> {
        self.file = Some(disk.create(&self.path)?);
        self.tail.splice(0..0, self.header);
        Ok(())
    }

    fn open(&mut self, disk: &Disk) -> io::Result<()> {
        match disk.open(&self.path) {
            // Somebody removed it. Its marks are lost, but those to come need a place.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                self.create(disk)?;
                self.path.parent().map_or(Ok(()), |folder| disk.sync_folder(folder))
            }
            Err(error) => Err(error),
            Ok(file) => {
                self.synced = file.metadata()?.len();
                self.file = Some(file);
                Ok(())
            }
        }
    }

    fn write(&mut self, disk: &Disk) -> io::Result<()> {
        if self.written == self.tail.len() {
            return Ok(());
        }
        if self.file.is_none() {
            self.open(disk)?;
        }
        if let Some(file) = &self.file {
            disk.write(file, &self.path, &self.tail[self.written..], self.synced + self.written as u64)?;
        }
        self.written = self.tail.len();
        Ok(())
    }

    fn sync(&mut self, disk: &Disk) -> Result<(), SpoolError> {
        if self.tail.is_empty() {
            return Ok(());
        }
        self.write(disk).map_err(|source| SpoolError::io("write", &self.path, source))?;
        let synced = self.file.as_ref().map_or(Ok(()), |file| disk.sync(file, &self.path));
        self.written = 0;
        synced.map_err(|source| SpoolError::io("sync", &self.path, source))?;
        self.synced += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }
}

/// Logs once that marks wait, not with every batch.
fn warn(warned: &mut bool, path: &Path, error: &dyn std::fmt::Display) {
    if !std::mem::replace(warned, true) {
        tracing::warn!(path = %path.display(), %error, "marks wait in memory: the disk does not take them");
    }
}
