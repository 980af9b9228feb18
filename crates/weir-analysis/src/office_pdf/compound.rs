//! The streams of a compound file: a small file system inside one file (MS-CFB).

use cfb::CompoundFile;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// How many streams are read, and how many bytes of each.
const STREAMS_MAX: usize = 2000;
const STREAM_MAX: u64 = 32 << 20;
/// How deep folders may be nested.
const FOLDERS_MAX: usize = 16;

pub(super) type Compound<'a> = CompoundFile<Cursor<&'a [u8]>>;

pub(super) fn streams(compound: &Compound<'_>) -> Vec<PathBuf> {
    let shallow = |path: &Path| path.components().count() <= FOLDERS_MAX;
    let entries = compound.walk().take(4 * STREAMS_MAX).filter(|entry| entry.is_stream() && shallow(entry.path()));
    entries.take(STREAMS_MAX).map(|entry| entry.path().to_owned()).collect()
}

/// A stream, as far as it can be read.
pub(super) fn read(compound: &mut Compound<'_>, path: &Path) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    let stream = compound.open_stream(path).ok()?;
    // If reading fails, what was read until then is still examined.
    let _ = stream.take(STREAM_MAX).read_to_end(&mut data);
    Some(data)
}

pub(super) fn last(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
