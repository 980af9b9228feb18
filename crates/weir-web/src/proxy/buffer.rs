//! A buffer for data that one side has sent and the other has not read yet, in memory first and then in a file.
//!
//! The file has no name, so it is gone with the process, however that ends. It is written and read on other threads, a batch at a time: the thread
//! that carries the traffic never waits for a disk. Both memory and disk are bounded, for one buffer, for each subnet and in all ([`super::budget`]). A disk
//! that is full, or fails to write, is no error here: the buffer just has no more room, and what it holds stays in memory.
//!
//! The order is `front`, then the file from `read_at` to `end`, then `back`.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::task::{JoinHandle, spawn_blocking};

use super::budget::Share;

/// How much is written to a file, or read from it, at once.
const BATCH: usize = 128 << 10;
/// Pieces up to this size are copied, because a slice of a few octets would keep the whole buffer into which they were read.
const COPIED: usize = 4 << 10;
/// What a piece costs besides its octets.
const PIECE_BYTES: usize = 64;
/// No file grows while the disk has less than this for everybody else.
const FREE_FLOOR: u64 = 512 << 20;

/// Where buffers have their files; None if they stay in memory.
pub(super) type Folder = Option<Arc<Path>>;

/// Whether more can be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Enough,
    /// As soon as the disk has finished what it is doing.
    Soon,
    /// Not before something has been taken.
    None,
}

#[derive(Debug)]
pub(super) struct Buffer {
    front: VecDeque<Bytes>,
    back: BytesMut,
    file: Option<Arc<File>>,
    read_at: u64,
    end: u64,
    job: Option<Job>,
    /// The disk has failed, or is nearly full.
    no_disk: bool,
    folder: Folder,
    /// The most that may be in memory.
    memory_most: usize,
    front_bytes: usize,
    memory: Share,
    disk: Share,
}

/// An operation on the file, for another thread.
#[derive(Debug)]
enum Job {
    Write(JoinHandle<WriteResult>, usize),
    Read(JoinHandle<io::Result<Bytes>>, usize),
}

/// The file; on failure, the data that should have been written.
type WriteResult = Result<Arc<File>, BytesMut>;

impl Buffer {
    /// An empty buffer that keeps up to `memory_most` octets in memory before it uses a file.
    pub(super) fn new(memory_most: usize, memory: Share, disk: Share, folder: Folder) -> Buffer {
        Buffer {
            front: VecDeque::new(),
            back: BytesMut::new(),
            file: None,
            read_at: 0,
            end: 0,
            job: None,
            no_disk: folder.is_none(),
            folder,
            memory_most,
            front_bytes: 0,
            memory,
            disk,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty() && !self.uses_file()
    }

    /// Octets in it.
    pub(super) fn len(&self) -> u64 {
        let writing = match &self.job {
            Some(Job::Write(_, octets)) => *octets as u64,
            _ => 0,
        };
        let front: usize = self.front.iter().map(Bytes::len).sum();
        front as u64 + (self.end - self.read_at) + writing + self.back.len() as u64
    }

    /// How much it occupies, in memory and on the disk.
    pub(super) fn held(&self) -> u64 {
        self.memory.octets() + self.disk.octets()
    }

    /// Whether something is in the file, or being written to it.
    fn uses_file(&self) -> bool {
        self.end > self.read_at || self.job.is_some() || !self.back.is_empty()
    }

    pub(super) fn room(&self) -> Room {
        if self.is_empty() {
            // One piece can always be kept, or nothing would ever be passed on.
            return Room::Enough;
        }
        if !self.uses_file() && self.front_bytes < self.memory_most && self.memory.has_room(COPIED) {
            return Room::Enough;
        }
        if self.no_disk {
            return Room::None;
        }
        if self.back.len() < BATCH {
            let fits = self.memory.has_room(BATCH - self.back.len()) && self.disk.has_room(BATCH);
            return if fits { Room::Enough } else { Room::None };
        }
        if self.job.is_some() { Room::Soon } else { Room::None }
    }

    /// Adds a piece. There must be room.
    pub(super) fn push(&mut self, piece: Bytes) {
        if !self.uses_file() && (self.no_disk || self.front_bytes < self.memory_most) {
            let piece = if piece.len() <= COPIED { Bytes::copy_from_slice(&piece) } else { piece };
            self.push_front(piece);
            return;
        }
        self.memory.take(piece.len());
        self.back.extend_from_slice(&piece);
        self.write();
    }

    fn push_front(&mut self, piece: Bytes) {
        let octets = piece.len() + PIECE_BYTES;
        self.memory.take(octets);
        self.front_bytes += octets;
        self.front.push_back(piece);
    }

    /// Starts to write what is in `back`, if it is enough and the disk is not busy.
    fn write(&mut self) {
        let Some(folder) = self.folder.clone().filter(|_| !self.no_disk) else { return };
        if self.job.is_some() || self.back.len() < BATCH || !self.disk.grow(self.back.len()) {
            return;
        }
        let (batch, file, at) = (std::mem::take(&mut self.back), self.file.clone(), self.end);
        let octets = batch.len();
        let write = move || write_batch(file, &folder, &batch, at).map_err(|error| refused_by_disk(&error, batch));
        self.job = Some(Job::Write(spawn_blocking(write), octets));
    }

    /// Continues the operation on the disk, if any. An error means that data was lost.
    pub(super) fn poll_disk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(job) = &mut self.job {
            match job {
                Job::Write(written, octets) => {
                    let (written, octets) = (ready!(Pin::new(written).poll(cx)), *octets);
                    self.job = None;
                    self.wrote(written.map_err(io::Error::other)?, octets);
                }
                Job::Read(read, octets) => {
                    let (read, octets) = (ready!(Pin::new(read).poll(cx)), *octets);
                    self.job = None;
                    let piece = read.map_err(io::Error::other)??;
                    self.read_at += octets as u64;
                    self.push_front(piece);
                    self.forget_file_if_read();
                }
            }
            self.write();
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, written: WriteResult, octets: usize) {
        match written {
            Ok(file) => {
                self.file = Some(file);
                self.end += octets as u64;
                self.memory.give_back(octets as u64);
            }
            Err(mut batch) => {
                self.no_disk = true;
                self.disk.give_back(octets as u64);
                batch.extend_from_slice(&self.back);
                self.back = batch;
            }
        }
    }

    /// The oldest piece; None if there is none.
    pub(super) fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(piece) = self.front.pop_front() {
                let octets = piece.len() + PIECE_BYTES;
                self.front_bytes -= octets;
                self.memory.give_back(octets as u64);
                return Poll::Ready(Ok(Some(piece)));
            }
            ready!(self.poll_disk(cx))?;
            if !self.front.is_empty() {
                continue;
            }
            if self.end > self.read_at {
                self.read();
            } else if self.back.is_empty() {
                return Poll::Ready(Ok(None));
            } else {
                let rest = std::mem::take(&mut self.back);
                self.memory.give_back(rest.len() as u64);
                self.push_front(rest.freeze());
            }
        }
    }

    fn read(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let octets = (self.end - self.read_at).min(BATCH as u64) as usize;
        let at = self.read_at;
        let read = move || {
            let mut batch = BytesMut::zeroed(octets);
            file.read_exact_at(&mut batch, at)?;
            Ok(batch.freeze())
        };
        self.job = Some(Job::Read(spawn_blocking(read), octets));
    }

    /// A file that has been read to its end is given back with everything that it occupied.
    fn forget_file_if_read(&mut self) {
        if self.read_at == self.end {
            (self.read_at, self.end) = (0, 0);
            self.disk.give_back(self.disk.octets());
            close(self.file.take());
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        close(self.file.take());
    }
}

/// Freeing a large file may take a while, so another thread does it.
fn close(file: Option<Arc<File>>) {
    if let (Some(file), Ok(runtime)) = (file, tokio::runtime::Handle::try_current()) {
        runtime.spawn_blocking(move || drop(file));
    }
}

fn write_batch(file: Option<Arc<File>>, folder: &Path, batch: &[u8], at: u64) -> io::Result<Arc<File>> {
    let file = match file {
        Some(file) => file,
        None => Arc::new(nameless(folder)?),
    };
    let system = rustix::fs::fstatvfs(&file)?;
    if system.f_bavail.saturating_mul(system.f_frsize) < FREE_FLOOR {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is nearly full"));
    }
    file.write_all_at(batch, at)?;
    Ok(file)
}

/// A file without a name, which nobody else can open.
fn nameless(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::CLOEXEC;
    match options.clone().custom_flags(flags.bits() as i32).open(folder) {
        Ok(file) => Ok(file),
        // Not all file systems can do that.
        Err(_) => {
            static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let path = folder.join(format!("buffer-{}-{number}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
    }
}

fn refused_by_disk(error: &io::Error, batch: BytesMut) -> BytesMut {
    tracing::warn!(%error, "the web gate cannot write to its buffer files; transfers in progress continue in memory");
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::budget::Budget;
    use std::future::poll_fn;
    use weir_core::fair::SubnetKey;

    struct Bounds {
        memory: Arc<Budget>,
        disk: Arc<Budget>,
        folder: tempfile::TempDir,
    }

    fn bounds(memory: u64, disk: u64) -> Bounds {
        Bounds { memory: Budget::new(memory), disk: Budget::new(disk), folder: tempfile::tempdir().unwrap() }
    }

    impl Bounds {
        fn buffer(&self, memory_most: usize) -> Buffer {
            let subnet = SubnetKey(1);
            let folder = Some(Arc::from(self.folder.path()));
            Buffer::new(memory_most, self.memory.share(subnet), self.disk.share(subnet), folder)
        }

        fn held(&self) -> (u64, u64) {
            (self.memory.held(), self.disk.held())
        }
    }

    /// A piece whose octets show its number.
    fn piece(number: usize, octets: usize) -> Bytes {
        Bytes::from(vec![number as u8; octets])
    }

    /// Pushes until there is no room; returns how many octets went in.
    async fn fill(buffer: &mut Buffer, octets: usize, most: usize) -> usize {
        let mut pushed = 0;
        while pushed < most {
            match buffer.room() {
                Room::Enough => {
                    buffer.push(piece(pushed / octets, octets));
                    pushed += octets;
                }
                Room::Soon => poll_fn(|cx| buffer.poll_disk(cx)).await.unwrap(),
                Room::None => break,
            }
        }
        pushed
    }

    async fn drain(buffer: &mut Buffer) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = poll_fn(|cx| buffer.poll_pop(cx)).await.unwrap() {
            all.extend_from_slice(&piece);
        }
        all
    }

    fn expected(octets: usize, all: usize) -> Vec<u8> {
        (0..all).map(|at| (at / octets) as u8).collect()
    }

    #[tokio::test]
    async fn what_comes_out_is_what_went_in_and_nothing_stays() {
        let bounds = bounds(4 << 20, 64 << 20);
        for octets in [1, 100, 4_096, 65_536, 200_000] {
            let mut buffer = bounds.buffer(100_000);
            let most = if octets == 1 { 300_000 } else { 5_000_000 };
            for _ in 0..2 {
                let pushed = fill(&mut buffer, octets, most).await;
                assert!(pushed >= most && buffer.len() == pushed as u64, "{octets}: {pushed}");
                assert!(bounds.memory.held() < 2 << 20, "{octets}: {:?}", bounds.held());
                assert!(bounds.disk.held() > 0, "{octets}: {:?}", bounds.held());
                assert!(drain(&mut buffer).await == expected(octets, pushed), "{octets}");
                assert_eq!((bounds.held(), buffer.is_empty()), ((0, 0), true), "{octets}");
            }
        }
        assert_eq!(std::fs::read_dir(bounds.folder.path()).unwrap().count(), 0, "files have no names");
    }

    #[tokio::test]
    async fn taking_and_keeping_may_alternate() {
        let bounds = bounds(4 << 20, 64 << 20);
        let mut buffer = bounds.buffer(10_000);
        let (mut pushed, mut taken) = (0_usize, Vec::new());
        for round in 0..400_usize {
            for _ in 0..(round * 7) % 13 {
                if buffer.room() == Room::Enough {
                    buffer.push(piece(pushed / 30_000, 30_000));
                    pushed += 30_000;
                }
            }
            for _ in 0..(round * 5) % 11 {
                if let Some(piece) = poll_fn(|cx| buffer.poll_pop(cx)).await.unwrap() {
                    taken.extend_from_slice(&piece);
                }
            }
        }
        taken.extend(drain(&mut buffer).await);
        assert!(pushed > 3_000_000 && taken == expected(30_000, pushed), "{pushed} {}", taken.len());
        assert_eq!(bounds.held(), (0, 0));
    }

    #[tokio::test]
    async fn memory_and_disk_are_bounded() {
        let bounds = bounds(1 << 20, 2 << 20);
        let mut buffer = bounds.buffer(100_000);
        let pushed = fill(&mut buffer, 50_000, usize::MAX).await;
        assert!((900_000..1_600_000).contains(&pushed), "half of the disk and what memory may hold: {pushed}");
        drop(buffer);
        assert_eq!(bounds.held(), (0, 0));
    }

    #[tokio::test]
    async fn without_a_disk_what_is_there_stays_in_memory() {
        let bounds = bounds(4 << 20, 64 << 20);
        let mut buffer = bounds.buffer(10_000);
        buffer.folder = Some(Arc::from(Path::new("/nowhere/at/all")));
        let pushed = fill(&mut buffer, 50_000, usize::MAX).await;
        assert!((200_000..1_000_000).contains(&pushed), "{pushed}");
        assert!(drain(&mut buffer).await == expected(50_000, pushed));
        assert_eq!(bounds.held(), (0, 0));
    }
}
