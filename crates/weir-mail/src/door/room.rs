//! A file that a client is sending to a door. Small files are kept in memory, others in a nameless file on the disk; all of them share one
//! limit.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_scan::content::{Content, ContentDraft};

/// What is not larger stays in memory.
const IN_MEMORY_MAX: usize = 64 << 10;

/// How much of all files at once may be here, how large one may be, and where the larger ones are.
#[derive(Debug)]
pub(crate) struct Room {
    left: AtomicU64,
    largest: u64,
    folder: PathBuf,
}

impl Room {
    pub(crate) fn new(octets: u64, largest: u64, folder: PathBuf) -> Arc<Room> {
        Arc::new(Room { left: AtomicU64::new(octets), largest, folder })
    }

    fn take(&self, octets: u64) -> bool {
        let less = |left: u64| left.checked_sub(octets);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

/// Octets of the room, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    octets: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.octets, Ordering::SeqCst);
    }
}

/// Why a file is not looked at, as clamd says it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("INSTREAM size limit exceeded. ERROR")]
    TooLarge,
    #[error("too much is being scanned, try again. ERROR")]
    Full,
    #[error("not a regular file. ERROR")]
    NoFile,
    #[error("it cannot be kept: {0}. ERROR")]
    Disk(#[from] io::Error),
}

/// A file that is being received.
pub(crate) struct Incoming {
    start: Vec<u8>,
    draft: Option<ContentDraft>,
    length: u64,
    taken: Taken,
}

impl Incoming {
    pub(crate) fn new(room: &Arc<Room>) -> Incoming {
        let taken = Taken { room: Arc::clone(room), octets: 0 };
        Incoming { start: Vec::new(), draft: None, length: 0, taken }
    }

    pub(crate) fn write(&mut self, octets: &[u8]) -> Result<(), NotTaken> {
        let more = octets.len() as u64;
        self.length += more;
        if self.length > self.taken.room.largest {
            return Err(NotTaken::TooLarge);
        }
        if !self.taken.room.take(more) {
            return Err(NotTaken::Full);
        }
        self.taken.octets += more;
        if self.draft.is_none() && self.start.len() + octets.len() > IN_MEMORY_MAX {
            let mut draft = ContentDraft::on_disk(&self.taken.room.folder)?;
            draft.write(&std::mem::take(&mut self.start))?;
            self.draft = Some(draft);
        }
        match &mut self.draft {
            Some(draft) => draft.write(octets)?,
            None => self.start.extend_from_slice(octets),
        }
        Ok(())
    }

    /// All of it is here.
    pub(crate) fn seal(self) -> Result<(Content, Taken), NotTaken> {
        let content = match self.draft {
            Some(draft) => draft.seal()?,
            None => Content::of(&self.start)?,
        };
        Ok((content, self.taken))
    }

    /// A copy of a file that another program has opened: what it changes later does not matter any more.
    pub(crate) fn copy(room: &Arc<Room>, file: OwnedFd) -> Result<(Content, Taken), NotTaken> {
        let file = std::fs::File::from(file);
        if !file.metadata()?.is_file() {
            return Err(NotTaken::NoFile);
        }
        let (mut incoming, mut buffer) = (Incoming::new(room), vec![0; 64 << 10]);
        loop {
            match file.read_at(&mut buffer, incoming.length) {
                Ok(0) => return incoming.seal(),
                Ok(length) => incoming.write(&buffer[..length])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
