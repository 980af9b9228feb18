//! The content of one message: a sealed piece of memory, or a nameless file if it is large.
//!
//! Any number of scanners read it at once, at any place, by file descriptor; so it can be handed to another process
//! without a copy. Its hash is made while it is written: BLAKE3, because the hash is only a name for
//! the content in our own memory, every octet that is scanned passes through it, and SHA-256 took more than a quarter of the time of a scan.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The content of one message. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Content {
    file: Arc<File>,
    length: u64,
    hash: [u8; 32],
}

impl Content {
    /// Content in memory.
    pub fn of(bytes: &[u8]) -> io::Result<Content> {
        let mut draft = ContentDraft::in_memory()?;
        draft.write(bytes)?;
        draft.seal()
    }

    /// The file that holds it. Its offset is shared: read with an offset of your own.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its BLAKE3.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Reads at a place; fewer bytes than asked for only at the end.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Content that is being written.
#[derive(Debug)]
pub struct ContentDraft {
    file: File,
    length: u64,
    hash: Box<blake3::Hasher>,
    in_memory: bool,
}

impl ContentDraft {
    /// For a message that is small enough to stay in memory.
    pub fn in_memory() -> io::Result<ContentDraft> {
        let file = rustix::fs::memfd_create("weir-content", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        Ok(ContentDraft { file: file.into(), length: 0, hash: Box::default(), in_memory: true })
    }

    /// For a large message: a file without a name in this folder, gone with its last reader.
    pub fn on_disk(folder: &Path) -> io::Result<ContentDraft> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(ContentDraft { file: file.into(), length: 0, hash: Box::default(), in_memory: false })
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// No more is written from here on.
    pub fn seal(self) -> io::Result<Content> {
        if self.in_memory {
            let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&self.file, seals)?;
        }
        Ok(Content { file: Arc::new(self.file), length: self.length, hash: self.hash.finalize().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_from_any_place() {
        for draft in [ContentDraft::in_memory(), ContentDraft::on_disk(&std::env::temp_dir())] {
            let mut draft = draft.unwrap();
            draft.write(b"one ").unwrap();
            draft.write(b"two").unwrap();
            let content = draft.seal().unwrap();
            let mut buffer = [0; 16];
            let length = content.read_at(&mut buffer, 2).unwrap();
            assert_eq!((&buffer[..length], content.length()), (&b"e two"[..], 7));
            assert_eq!(content.hash(), blake3::hash(b"one two").as_bytes());
        }
    }

    #[test]
    fn content_in_memory_cannot_be_changed_by_a_reader() {
        let content = Content::of(b"sealed").unwrap();
        assert!(content.file().write_at(b"x", 0).is_err());
    }
}
