//! Content that only passes through this machine. It is kept in a file without a name, which is gone when it is closed.

use crate::cluster::connection::{Lines, SILENCE};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::io::AsyncRead;
use weir_store::samples::{SampleHash, Samples};

/// A path that is not in use, in a folder that only this machine may read.
pub(super) fn path(folder: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    weir_store::random(&mut random)?;
    Ok(folder.join(format!("passing-{}", weir_store::hex(&random))))
}

/// Reads this many bytes and keeps them as a sample. False if they have another hash or cannot be stored; an error is an error of the connection.
pub(super) async fn keep<R: AsyncRead + Unpin>(
    lines: &mut Lines<R>,
    (hash, length): (SampleHash, u64),
    samples: &Samples,
    folder: &Path,
) -> io::Result<bool> {
    let path = path(folder)?;
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let mut left = length;
    while left > 0 {
        let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
        let piece = tokio::time::timeout(SILENCE, lines.some(left)).await.map_err(silent)??;
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    let samples = samples.clone();
    let kept = tokio::task::spawn_blocking(move || {
        io::Seek::rewind(&mut file).ok()?;
        samples.put(&mut file, length).ok()
    });
    let kept = kept.await.ok().flatten();
    Ok(kept.is_some_and(|stored| stored.hash == hash))
}
