//! Files that hold other files. Each format is one file here; all hand their members to [`Walk::member`] or [`Walk::stored`].

mod cab;
mod ole;
mod sevenz;
mod stream;
mod tar;
mod vba;
mod zip;

use super::kind::Kind;
use super::{File, Oddity, Walk};
use crate::budget::Exceeded;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Whether we open files of this kind.
pub(super) fn opens(kind: Kind) -> bool {
    use Kind::{Bzip2, Cab, Gzip, Ole, SevenZip, Tar, Xz, Zip};
    matches!(kind, Zip | Gzip | Bzip2 | Xz | Tar | SevenZip | Cab | Ole)
}

/// Whether a zip archive ends where something else begins: readers of zip begin at the end.
pub(super) fn is_hidden_zip(data: &[u8]) -> bool {
    zip::has_directory(data)
}

/// Opens a file and walks what is in it.
pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    match file.kind {
        Kind::Gzip | Kind::Bzip2 | Kind::Xz => guarded(walk, |walk| stream::open(walk, file, level))?,
        Kind::Tar => tar::open(walk, file.data, level)?,
        Kind::SevenZip => guarded(walk, |walk| sevenz::open(walk, file.data, level))?,
        Kind::Cab => guarded(walk, |walk| cab::open(walk, file.data, level))?,
        Kind::Ole => guarded(walk, |walk| ole::open(walk, file.data, level))?,
        _ => {}
    }
    // Two formats at once is a way to show two things to two readers.
    let is_zip = file.kind == Kind::Zip;
    if is_zip || is_hidden_zip(file.data) { zip::open(walk, file.data, level) } else { Ok(()) }
}

/// Readers by others may panic on what they did not expect: then the archive cannot be read, and the rest of the message can.
fn guarded<'w>(walk: &mut Walk<'w>, open: impl FnOnce(&mut Walk<'w>) -> Result<(), Exceeded>) -> Result<(), Exceeded> {
    let (names, depth) = (walk.place.0.len(), walk.depth);
    catch_unwind(AssertUnwindSafe(|| open(walk))).unwrap_or_else(|_| {
        walk.place.0.truncate(names);
        walk.depth = depth;
        walk.odd_here(Oddity::Unreadable("its reader gave up".into()));
        Ok(())
    })
}

impl Walk<'_> {
    /// A member that is not packed: no copy.
    fn stored(&mut self, name: &str, data: &[u8], level: u32) -> Result<(), Exceeded> {
        self.budget.entry()?;
        self.budget.hold(data.len())?;
        self.file(&[name.to_owned()], "", data, level)?;
        self.budget.release(data.len());
        Ok(())
    }

    /// A member that nobody can read, with its name.
    fn locked(&mut self, name: &str, oddity: Oddity, level: u32) -> Result<(), Exceeded> {
        self.stored(name, &[], level)?;
        self.odd(&[name.to_owned()], oddity);
        Ok(())
    }
}

/// A little-endian number at a place.
fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

/// A little-endian number at a place.
fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// A little-endian number at a place.
fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}
