//! Samples, each in a file named by its SHA-256: `samples/ab/abcdef…`.
//!
//! A sample is complete or not there: it is written under another name, synced, and then renamed. Two samples with the same content are one
//! file. The folder may be on a network file system that several machines share; every step is one that such a file system supports. Files
//! are for reading only, and never executable.

pub use crate::sample_hash::{NotAHash, SampleHash};

use crate::folder::sync_folder;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How much is copied at a time.
const PIECE: usize = 128 * 1024;

/// The folder of samples. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Samples {
    folder: Arc<Path>,
    /// Makes the names of files that are being written unique, together with the process id and the machine's own token.
    drafts: Arc<AtomicU64>,
    token: u64,
}

/// A sample that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub hash: SampleHash,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it was stored before.
    pub known: bool,
}

/// Why a sample could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The disk or the source returned an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// More than may be stored.
    #[error("the sample is larger than {0} bytes")]
    TooLarge(u64),
    /// The content of the file does not have the hash in its name.
    #[error("sample {0} is damaged: its content is that of {1}")]
    Damaged(SampleHash, SampleHash),
}

impl Samples {
    /// Opens the folder, creating it if it does not exist.
    pub fn open(folder: &Path) -> io::Result<Samples> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750).create(folder.join("incoming"))?;
        folder.parent().map_or(Ok(()), sync_folder)?;
        let mut token = [0; 8];
        crate::random(&mut token)?;
        Ok(Samples { folder: folder.into(), drafts: Arc::default(), token: u64::from_le_bytes(token) })
    }

    /// Stores what the source gives, up to `most` bytes. Returns when it is durable.
    pub fn put(&self, source: &mut impl Read, most: u64) -> Result<Stored, SampleError> {
        let draft = Draft::new(self)?;
        let (hash, size) = draft.fill(source, most)?;
        // A copy of the right length may still be damaged: it is kept only if it can be read completely.
        let known = self.is_kept(hash, size);
        if !known {
            draft.publish(&self.path(hash))?;
        }
        // Synced also if it was there already, because the process that named it so may not have synced the folders yet.
        self.path(hash).parent().map_or(Ok(()), sync_folder)?;
        sync_folder(&self.folder)?;
        Ok(Stored { hash, size, known })
    }

    /// Opens a sample for reading; `NotFound` if it is not here.
    pub fn open_sample(&self, hash: SampleHash) -> io::Result<File> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(self.path(hash))
    }

    /// Opens a sample and reads it once, to be sure that its content has the hash in its name.
    pub fn open_verified(&self, hash: SampleHash) -> Result<File, SampleError> {
        let mut file = self.open_sample(hash)?;
        let (found, _) = digest(&mut file, u64::MAX, &mut io::sink())?;
        if found != hash {
            return Err(SampleError::Damaged(hash, found));
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    /// Removes a sample that nobody has stored, or stored again, for `age`; returns whether it did.
    pub fn remove(&self, hash: SampleHash, age: Duration) -> io::Result<bool> {
        let path = self.path(hash);
        if !is_old(&path, age) {
            return Ok(false);
        }
        // It is moved away first and then checked again: a process that stores the same content meanwhile has made it young, or does not
        // find it.
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let away = self.folder.join("incoming").join(format!("{:016x}-{}-{number}", self.token, std::process::id()));
        match fs::rename(&path, &away) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        }
        if !is_old(&away, age) {
            fs::rename(&away, &path)?;
            return Ok(false);
        }
        fs::remove_file(&away).map(|()| true)
    }

    /// The samples of one of the 256 folders that nobody has stored, or stored again, for `age`.
    pub fn old(&self, folder: u8, age: Duration) -> io::Result<Vec<SampleHash>> {
        let entries = match fs::read_dir(self.folder.join(format!("{folder:02x}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let old = entries.flatten().filter(|entry| is_old(&entry.path(), age));
        Ok(old.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Removes files that were being written by processes that no longer run: those older than `age`.
    pub fn sweep(&self, age: Duration) -> io::Result<usize> {
        let mut swept = 0;
        for entry in fs::read_dir(self.folder.join("incoming"))? {
            let entry = entry?;
            if is_old(&entry.path(), age) && fs::remove_file(entry.path()).is_ok() {
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Where a sample is, or would be.
    pub fn path(&self, hash: SampleHash) -> PathBuf {
        let name = hash.to_string();
        self.folder.join(name.get(..2).unwrap_or_default()).join(name)
    }

    /// Whether a complete copy is here; it counts as young from now on, so that nobody removes it.
    fn is_kept(&self, hash: SampleHash, size: u64) -> bool {
        let path = self.path(hash);
        if !fs::metadata(&path).is_ok_and(|meta| meta.len() == size) {
            return false;
        }
        let Ok(file) = self.open_verified(hash) else { return false };
        let same = |meta: &fs::Metadata| file.metadata().is_ok_and(|mine| mine.ino() == meta.ino());
        file.set_modified(SystemTime::now()).is_ok() && fs::metadata(&path).is_ok_and(|meta| same(&meta))
    }
}

/// A file under a temporary name; it is removed if it is not published.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn new(samples: &Samples) -> io::Result<Draft> {
        let number = samples.drafts.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:016x}-{}-{number}", samples.token, std::process::id());
        let path = samples.folder.join("incoming").join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o440).open(&path)?;
        Ok(Draft { path, file })
    }

    fn fill(&self, source: &mut impl Read, most: u64) -> Result<(SampleHash, u64), SampleError> {
        let found = digest(source, most, &mut &self.file)?;
        self.file.sync_data()?;
        Ok(found)
    }

    fn publish(self, to: &Path) -> io::Result<()> {
        let folder = to.parent().unwrap_or(to);
        fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
        fs::rename(&self.path, to)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After it was published there is nothing under this name.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_old(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed >= age))
}

/// Copies at most `most` bytes; returns their hash and number.
fn digest(source: &mut impl Read, most: u64, to: &mut impl Write) -> Result<(SampleHash, u64), SampleError> {
    let (mut hash, mut size, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        let length = match source.read(&mut piece) {
            Ok(0) => return Ok((SampleHash(hash.finalize().into()), size)),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        size += length as u64;
        if size > most {
            return Err(SampleError::TooLarge(most));
        }
        hash.update(&piece[..length]);
        to.write_all(&piece[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn samples() -> (tempfile::TempDir, Samples) {
        let home = tempfile::tempdir().unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        (home, samples)
    }

    fn drafts(samples: &Samples) -> usize {
        fs::read_dir(samples.folder.join("incoming")).unwrap().count()
    }

    #[test]
    fn a_sample_is_found_by_its_hash_and_is_not_executable() {
        let (_home, samples) = samples();
        let stored = samples.put(&mut &b"abc"[..], 3).unwrap();
        assert_eq!(stored.hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut text = String::new();
        samples.open_verified(stored.hash).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), stored.size, stored.known), ("abc", 3, false));
        assert_eq!(fs::metadata(samples.path(stored.hash)).unwrap().permissions().mode() & 0o333, 0);
        assert!(samples.put(&mut &b"abc"[..], 3).unwrap().known);
        assert_eq!(drafts(&samples), 0);
    }

    #[test]
    fn what_was_stored_again_of_late_is_not_removed() {
        let (_home, samples) = samples();
        let hash = samples.put(&mut &b"abc"[..], 3).unwrap().hash;
        let hour = Duration::from_secs(3600);
        let age = || File::open(samples.path(hash)).unwrap().set_modified(SystemTime::now() - 2 * hour).unwrap();
        assert!(!samples.remove(hash, hour).unwrap(), "it is young");
        age();
        assert!(samples.put(&mut &b"abc"[..], 3).unwrap().known);
        assert!(!samples.remove(hash, hour).unwrap(), "somebody wants it again");
        age();
        assert!(samples.remove(hash, hour).unwrap());
        assert!(!samples.remove(hash, hour).unwrap(), "it is gone");
        assert_eq!(samples.open_sample(hash).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(drafts(&samples), 0);
    }

    #[test]
    fn too_much_and_a_broken_source_leave_nothing_behind() {
        struct Breaks;
        impl Read for Breaks {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("unplugged"))
            }
        }
        let (_home, samples) = samples();
        assert!(matches!(samples.put(&mut &b"abcd"[..], 3), Err(SampleError::TooLarge(3))));
        assert!(matches!(samples.put(&mut (&b"ab"[..]).chain(Breaks), 3), Err(SampleError::Io(_))));
        assert_eq!(drafts(&samples), 0);
    }

    #[test]
    fn damage_is_found_and_mended_when_the_sample_comes_again() {
        let (_home, samples) = samples();
        let hash = samples.put(&mut &b"abc"[..], 3).unwrap().hash;
        fs::remove_file(samples.path(hash)).unwrap();
        fs::write(samples.path(hash), "xyz").unwrap();
        assert!(matches!(samples.open_verified(hash), Err(SampleError::Damaged(..))));
        assert!(!samples.put(&mut &b"abc"[..], 3).unwrap().known);
        assert!(samples.open_verified(hash).is_ok());
    }

    #[test]
    fn many_writers_of_one_sample_make_one_file() {
        let (_home, samples) = samples();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| samples.put(&mut &[7; 300_000][..], 1 << 20).unwrap());
            }
        });
        assert_eq!(drafts(&samples), 0);
        let hash = samples.put(&mut &[7; 300_000][..], 1 << 20).unwrap().hash;
        assert_eq!(fs::read_dir(samples.path(hash).parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let (_home, samples) = samples();
        fs::write(samples.folder.join("incoming/left"), "x").unwrap();
        assert_eq!(samples.sweep(Duration::from_secs(3600)).unwrap(), 0);
        let file = File::options().write(true).open(samples.folder.join("incoming/left")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
        assert_eq!(samples.sweep(Duration::from_secs(3600)).unwrap(), 1);
    }
}
