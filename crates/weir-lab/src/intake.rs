//! Samples from numbered directories: `ROOT/0` … `ROOT/127`, the number is the priority (paper, section 5).
//!
//! Files are found by looking, because notices of the file system are lost on overflow and never come from another machine of a network
//! file system. A file is taken when it is complete, that is unchanged for a while. The wait is shorter if a notice says that it was closed
//! after writing or moved in, and much longer if it was written to and no notice says that it was closed. Names that begin with a dot or
//! end like half a file (`.part`, `.tmp`) are left alone.
//!
//! Whatever is in these directories may be hostile. No link is followed, and nothing but a regular file is opened. What can never become a
//! sample is moved to `ROOT/refused`, so that later looks do not find it again; what can be neither taken nor moved is reported once and
//! left alone for a while. A look ends after a bounded number of entries. The next one starts again from the beginning, and gets further
//! because the files that were taken are gone.

mod ignored;
pub(crate) mod notices;
mod numbered;

pub use ignored::Ignored;
pub use numbered::{DirectoryFile, NORMAL};

use ignored::IgnoredFiles;
use notices::FileNotices;
use numbered::make;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_core::runq::Directory;
use weir_core::time::Instant;

/// How many files one pass examines at most in one directory. Names that are ignored do not count.
const ENTRIES_MAX: usize = 20_000;
/// The longest name of a file system.
const NAME_MAX: usize = 255;
/// A file that could be neither taken nor moved is ignored for this long.
const STUCK: Duration = Duration::from_secs(60);
/// A file that was closed is complete when it has not changed for this long since.
const CLOSED_SETTLE: Duration = Duration::from_millis(200);
/// The beginning of the name of a refused file that cannot be moved away.
const REFUSED_HERE: &str = ".refused-";
/// Files that may be growing at once.
const SIGHTS_MAX: usize = 65_536;

/// The numbered directories under one root.
#[derive(Debug)]
pub struct Intake {
    root: PathBuf,
    settings: IntakeSettings,
    sights: HashMap<DirectoryFile, Sight>,
    /// Files that could be neither taken nor moved, and until when they are ignored.
    stuck: HashMap<DirectoryFile, Instant>,
    /// The state of files when they were closed, and when this was reported.
    closed: HashMap<DirectoryFile, Sight>,
    /// Files that somebody writes to.
    written: HashSet<DirectoryFile>,
    ignored: IgnoredFiles,
}

/// When files are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeSettings {
    /// A file is complete when it has not changed for this long. Default 2 s.
    pub settle: Duration,
    /// A file that was written to and, as far as is known, not closed since is complete when it has not changed for this long. Default 1 h.
    pub open: Duration,
    /// An empty file is refused when it has been empty for this long, because its writer may have only just begun. Default 5 min.
    pub empty: Duration,
    /// The largest sample. Default 256 MiB.
    pub size_max: u64,
    /// How many samples one pass finds at most. Default 1 000.
    pub ready_max: usize,
}

impl Default for IntakeSettings {
    fn default() -> IntakeSettings {
        IntakeSettings {
            settle: Duration::from_secs(2),
            open: Duration::from_secs(3_600),
            empty: Duration::from_secs(300),
            size_max: 256 << 20,
            ready_max: 1_000,
        }
    }
}

/// The result of one pass.
#[derive(Debug, Default)]
pub struct Look {
    /// Samples to take.
    pub ready: Vec<Ready>,
    /// Files that were moved aside, and why.
    pub refused: Vec<(DirectoryFile, Unfit)>,
    /// Files that stay where they are, and were not there at the pass before.
    pub ignored: Vec<Ignored>,
    /// Files that are not complete yet.
    pub growing: usize,
    /// One of these was closed, so it will be complete in a moment.
    pub soon: bool,
    /// There may be more: the next pass should follow without waiting.
    pub more: bool,
    /// Directories that could not be read.
    pub troubles: Vec<(u8, io::Error)>,
}

/// A sample to take. If this is dropped without [`Ready::taken`], the file stays where it is and is found again.
#[derive(Debug)]
pub struct Ready {
    /// Where it is.
    pub place: DirectoryFile,
    /// Open for reading.
    pub file: File,
    /// Its size when it was opened.
    pub size: u64,
    folder: Arc<OwnedFd>,
    mark: Mark,
    /// The time of the last change of its inode, which nobody can set.
    changed: (i64, u64),
}

/// Why a file in a directory is not a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A link, a pipe, a device, a folder.
    #[error("only regular files are samples; this is {0}")]
    Kind(&'static str),
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Larger than the limit.
    #[error("the file has {0} bytes; at most {1} are taken")]
    TooLarge(u64, u64),
}

/// What changes when a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Sight {
    mark: Mark,
    since: Instant,
}

impl Intake {
    /// The directories under `root`, which are created if they do not exist.
    pub fn open(root: &Path, settings: IntakeSettings) -> io::Result<Intake> {
        make(root)?;
        let (sights, stuck, closed, written) = (HashMap::new(), HashMap::new(), HashMap::new(), HashSet::new());
        let ignored = IgnoredFiles::default();
        Ok(Intake { root: root.to_owned(), settings, sights, stuck, closed, written, ignored })
    }

    /// What the file system reported about files by `now`; this is only a hint.
    pub(crate) fn hear(&mut self, heard: FileNotices, now: Instant) {
        self.written = heard.written;
        for place in heard.closed.into_iter().filter(|place| !is_left_alone(&place.name)) {
            let Ok(folder) = self.folder(place.directory) else { continue };
            let Ok(stat) = rustix::fs::statat(&folder, &place.name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            // Some programs create an empty file first and fill it later.
            if stat.st_size > 0 && self.closed.len() < SIGHTS_MAX {
                self.closed.insert(place, Sight { mark: Mark::of(&stat), since: now });
            }
        }
    }

    /// Examines all directories, the most urgent first.
    pub fn look(&mut self, now: Instant, wall: SystemTime) -> Look {
        let mut look = Look::default();
        let mut seen = HashMap::new();
        self.ignored.look_at_root(&self.root);
        for number in 0..=127 {
            match self.look_into(number, (now, wall), &mut look, &mut seen) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => look.troubles.push((number, error)),
            }
        }
        look.ignored = self.ignored.news(!look.more);
        // What was not seen is gone, unless the pass ended early.
        if !look.more {
            let ready: HashSet<&DirectoryFile> = look.ready.iter().map(|ready| &ready.place).collect();
            self.closed.retain(|place, _| seen.contains_key(place) || ready.contains(place));
        }
        if look.more {
            self.sights.retain(|place, _| !seen.contains_key(place));
            let room = SIGHTS_MAX.saturating_sub(self.sights.len());
            self.sights.extend(seen.into_iter().take(room));
        } else {
            self.sights = seen;
        }
        look
    }

    fn look_into(
        &mut self,
        number: u8,
        now: (Instant, SystemTime),
        look: &mut Look,
        seen: &mut HashMap<DirectoryFile, Sight>,
    ) -> io::Result<()> {
        let folder = Arc::new(self.folder(number)?);
        let mut judged = 0;
        for entry in rustix::fs::Dir::read_from(&*folder)? {
            if judged >= ENTRIES_MAX || look.ready.len() >= self.settings.ready_max {
                look.more = true;
                break;
            }
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if is_left_alone(&name) {
                self.ignored.half(number, &name);
                continue;
            }
            let place = DirectoryFile { directory: number, name };
            if self.stuck.get(&place).is_none_or(|until| *until <= now.0) {
                judged += 1;
                self.judge(place, &folder, now, (look, seen));
            }
        }
        Ok(())
    }

    /// A file that can be neither taken nor moved: it is reported once.
    pub fn leave_alone(&mut self, place: DirectoryFile, now: Instant, error: &io::Error) {
        if self.stuck.len() >= SIGHTS_MAX {
            self.stuck.retain(|_, until| *until > now);
        }
        if !self.stuck.contains_key(&place) {
            tracing::warn!(directory = place.directory, name = ?place.name, %error, "a file can be neither taken nor moved aside");
        }
        if self.stuck.len() < SIGHTS_MAX {
            self.stuck.insert(place, now + STUCK);
        }
    }

    fn judge(
        &mut self,
        place: DirectoryFile,
        folder: &Arc<OwnedFd>,
        (now, wall): (Instant, SystemTime),
        (look, seen): (&mut Look, &mut HashMap<DirectoryFile, Sight>),
    ) {
        // It is gone, or we may not read it: the next pass sees it again.
        let Ok(stat) = rustix::fs::statat(&**folder, &place.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let sight = self.sighted(&place, Mark::of(&stat), now);
        if let Err(unfit) = self.kind(&stat) {
            return self.refuse((place, folder), now, unfit, look);
        }
        let closed = self.closed.get(&place).filter(|closed| closed.mark == sight.mark);
        let complete = match sight.mark.size {
            0 => now >= sight.since + self.settings.empty,
            _ if self.written.contains(&place) => now >= sight.since + self.settings.open,
            _ => {
                let closed = closed.is_some_and(|closed| now >= closed.since + CLOSED_SETTLE);
                closed || sight.is_complete(self.settings.settle, now, wall)
            }
        };
        if !complete {
            look.growing += 1;
            look.soon |= closed.is_some();
            if seen.len() < SIGHTS_MAX {
                seen.insert(place, sight);
            }
            return;
        }
        if let Err(unfit) = self.size(sight.mark.size) {
            return self.refuse((place, folder), now, unfit, look);
        }
        match Ready::open(place.clone(), folder, sight.mark) {
            Ok(ready) => look.ready.extend(ready),
            Err(error) => self.leave_alone(place, now, &error),
        }
    }

    fn refuse(&mut self, (place, folder): (DirectoryFile, &OwnedFd), now: Instant, unfit: Unfit, look: &mut Look) {
        match self.put_aside(&place, folder) {
            Ok(()) => look.refused.push((place, unfit)),
            Err(error) => self.leave_alone(place, now, &error),
        }
    }

    /// The earlier observation if nothing has changed, or a new one.
    fn sighted(&self, place: &DirectoryFile, mark: Mark, now: Instant) -> Sight {
        match self.sights.get(place) {
            Some(sight) if sight.mark == mark => *sight,
            _ => Sight { mark, since: now },
        }
    }

    fn kind(&self, stat: &Stat) -> Result<(), Unfit> {
        Err(Unfit::Kind(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Directory => "a folder",
            FileType::Symlink => "a link",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            _ => "a device",
        }))
    }

    fn size(&self, size: u64) -> Result<(), Unfit> {
        match size {
            0 => Err(Unfit::Empty),
            size if size > self.settings.size_max => Err(Unfit::TooLarge(size, self.settings.size_max)),
            _ => Ok(()),
        }
    }

    /// Moves a file to `refused`, under a name that is not used; if that is another file system, it gets a name in its own directory
    /// that is ignored.
    fn put_aside(&self, place: &DirectoryFile, folder: &OwnedFd) -> io::Result<()> {
        let aside = self.directory("refused")?;
        let begin = format!("{}-", place.directory);
        match rename_free((folder, &place.name), &aside, &begin) {
            Err(rustix::io::Errno::XDEV) => Ok(rename_free((folder, &place.name), folder, REFUSED_HERE)?),
            other => Ok(other?),
        }
    }

    fn folder(&self, number: u8) -> io::Result<OwnedFd> {
        self.directory(&number.to_string())
    }

    /// A directory directly under the root; a link is not accepted.
    fn directory(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.root.join(name), flags, Mode::empty())?)
    }
}

/// Renames to `begin` and the name, shortened to what a file system accepts, with a number if the name is used.
fn rename_free((folder, name): (&OwnedFd, &OsStr), to: &OwnedFd, begin: &str) -> rustix::io::Result<()> {
    for attempt in 0..100 {
        let end = if attempt == 0 { String::new() } else { format!(".{attempt}") };
        let room = NAME_MAX - begin.len() - end.len();
        let name_cut = &name.as_bytes()[..name.len().min(room)];
        let new = [begin.as_bytes(), name_cut, end.as_bytes()].concat();
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(folder, name, to, OsStr::from_bytes(&new), flags) {
            Err(rustix::io::Errno::EXIST) => {}
            other => return other,
        }
    }
    Err(rustix::io::Errno::EXIST)
}

impl Ready {
    /// None if the file is gone or has changed.
    fn open(place: DirectoryFile, folder: &Arc<OwnedFd>, mark: Mark) -> io::Result<Option<Ready>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&**folder, &place.name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        let same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Mark::of(&stat) == mark;
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Ok(same.then(|| Ready { place, file: file.into(), size: mark.size, folder: folder.clone(), mark, changed }))
    }

    /// Identifies this very file in its present state, so that it is the same sample if it is taken again because it could not be removed.
    pub fn ticket(&self) -> String {
        let Mark { device, inode, size, modified } = self.mark;
        let file = format!("{device} {inode} {size} {modified:?} {:?} {} ", self.changed, self.place.directory);
        let digest = Sha256::new().chain_update(file).chain_update(self.place.name.as_bytes()).finalize();
        weir_store::hex(&digest)
    }

    /// The priority of the directory.
    pub fn priority(&self) -> Option<Directory> {
        Directory::new(self.place.directory.into())
    }

    /// The name as text; it may hold anything that a name may hold.
    pub fn name(&self) -> String {
        self.place.name.to_string_lossy().into_owned()
    }

    /// Whether the file is still what it was when it was found; to be asked after it has been read.
    pub fn is_unchanged(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| Mark::of(&stat) == self.mark)
    }

    /// Its content is stored elsewhere: removes the file, unless another file has its name now.
    pub fn taken(self) -> io::Result<()> {
        match rustix::fs::statat(&*self.folder, &self.place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if Mark::of(&stat) == self.mark => {
                Ok(rustix::fs::unlinkat(&*self.folder, &self.place.name, AtFlags::empty())?)
            }
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Mark {
    fn of(stat: &Stat) -> Mark {
        Mark {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        }
    }

    /// How long ago it was changed by the wall clock; None if that is in the future.
    fn age(&self, wall: SystemTime) -> Option<Duration> {
        let seconds = u64::try_from(self.modified.0).ok()?;
        let modified = SystemTime::UNIX_EPOCH + Duration::new(seconds, u32::try_from(self.modified.1).ok()?);
        wall.duration_since(modified).ok()
    }
}

impl Sight {
    fn is_complete(&self, settle: Duration, now: Instant, wall: SystemTime) -> bool {
        // A file that was changed long ago need not be watched; ten times the limit, because clocks of file servers differ.
        let old = self.mark.age(wall).is_some_and(|age| age >= settle * 10);
        old || now >= self.since + settle
    }
}

/// Whether the name shows an incomplete file.
fn is_left_alone(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".")
        || [&b".part"[..], b".tmp", b".crdownload", b".filepart"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests;
