//! The data folder: its layout, its format, and the lock that makes one process its only owner.
//!
//! The lock is an `flock` on `lock`, so the kernel releases it when the owner exits, however it exits; the number inside is only for the
//! message to a second owner. A folder that holds other files, or that a newer Weir wrote, is refused and left as it is. The format of its
//! parts (spool, database) is defined by their own modules.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The format that this Weir writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const FORMAT_FILE: &str = "format";
const FORMAT_UNFINISHED: &str = "format.new";
const LOCK_FILE: &str = "lock";
const FOLDERS: [&str; 5] = ["spool", "held", "quarantine", "tls", "keys"];

/// A data folder that this process owns until the value is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: Lock,
}

impl DataFolder {
    /// Takes the folder at `path`, and creates it if it does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<DataFolder, FolderError> {
        let path = path.as_ref();
        let fail = |source| FolderError::Io { path: path.to_owned(), source };
        make_folder(path).map_err(fail)?;
        let path = path.canonicalize().map_err(fail)?;
        refuse_foreign(&path)?;
        let lock = take_lock(&path)?;
        // Checked again under the lock, because the former owner may have been a newer Weir that upgraded the folder.
        if !refuse_foreign(&path)? {
            write_format(&path).map_err(fail)?;
        }
        for name in FOLDERS {
            make_folder(&path.join(name)).map_err(fail)?;
        }
        sync_folder(&path).map_err(fail)?;
        Ok(DataFolder { path, _lock: lock })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mail in transit: the segments of [`crate::spool::Spool`].
    pub fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }

    /// Held mail, one `.eml` a message.
    pub fn held(&self) -> PathBuf {
        self.path.join("held")
    }

    /// Quarantined mail, one `.eml` a message.
    pub fn quarantine(&self) -> PathBuf {
        self.path.join("quarantine")
    }

    /// What happened to each message: [`crate::diary`].
    pub fn diary(&self) -> PathBuf {
        self.path.join("diary")
    }

    /// Messages by what is known of them, made from the diary: [`crate::tracking`].
    pub fn tracking(&self) -> PathBuf {
        self.path.join("tracking.db")
    }

    /// Figures of all gates over time: [`crate::past`].
    pub fn past(&self) -> PathBuf {
        self.path.join("past.db")
    }

    /// The embedded database.
    pub fn records(&self) -> PathBuf {
        self.path.join("records.db")
    }

    /// The socket that every command-line verb talks to.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Certificates and their keys.
    pub fn tls(&self) -> PathBuf {
        self.path.join("tls")
    }

    /// Other secret keys: DKIM, release tickets, cookies.
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// An exclusive `flock`. It is released explicitly when dropped: closing the file is not enough while a child process that is
/// just being started still has a copy of it.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Takes the lock; gives the file back if somebody else has it.
    pub(crate) fn take(file: File) -> io::Result<Result<Lock, File>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Ok(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Err(file)),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn take_lock(path: &Path) -> Result<Lock, FolderError> {
    let fail = |source| FolderError::Io { path: path.join(LOCK_FILE), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join(LOCK_FILE))
        .map_err(fail)?;
    let lock = match Lock::take(file).map_err(fail)? {
        Ok(lock) => lock,
        Err(mut file) => return Err(FolderError::Owned { pid: read_pid(&mut file), path: path.to_owned() }),
    };
    let mut file = &lock.0;
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(lock)
}

fn read_pid(lock: &mut File) -> String {
    let mut text = String::new();
    // A lock file of ours has a few digits; anything else in it must not make the message very long.
    let read = lock.take(16).read_to_string(&mut text);
    match read.ok().and_then(|_| text.trim().parse::<u32>().ok()) {
        Some(pid) => pid.to_string(),
        None => "unknown".to_owned(),
    }
}

/// Whether the folder is ours already; an error if it contains other files.
fn refuse_foreign(path: &Path) -> Result<bool, FolderError> {
    let fail = |source| FolderError::Io { path: path.to_owned(), source };
    match fs::read(path.join(FORMAT_FILE)) {
        Ok(bytes) => check_format(path, &bytes).map(|()| true),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            for entry in fs::read_dir(path).map_err(fail)? {
                let name = entry.map_err(fail)?.file_name();
                // The first two are all that a crash at the very beginning leaves behind.
                if ![LOCK_FILE, FORMAT_UNFINISHED, "lost+found"].iter().any(|ours| name == *ours) {
                    return Err(FolderError::Foreign { path: path.to_owned(), holds: name.display().to_string() });
                }
            }
            Ok(false)
        }
        Err(source) => Err(fail(source)),
    }
}

fn check_format(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let text = std::str::from_utf8(bytes).unwrap_or("");
    let format = text.trim().strip_prefix("weir data folder, format ").and_then(|number| number.parse::<u32>().ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(format) if format > FORMAT => Err(FolderError::Newer { path: path.to_owned(), format }),
        _ => Err(FolderError::Unreadable { path: path.join(FORMAT_FILE) }),
    }
}

fn write_format(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    let temporary = path.join(FORMAT_UNFINISHED);
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writeln!(out, "weir data folder, format {FORMAT}")?;
    out.sync_all()?;
    fs::rename(&temporary, path.join(FORMAT_FILE))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Why a data folder could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process owns it.
    #[error("another weir (pid {pid}) owns {}; stop it first, or use another data folder", path.display())]
    Owned {
        /// The owner's process id, as the owner wrote it into the lock file.
        pid: String,
        /// The folder.
        path: PathBuf,
    },
    /// It holds files, but not ours.
    #[error("{} is not a Weir data folder: it holds `{holds}` and no `format` file; choose an empty or a new folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files in it.
        holds: String,
    },
    /// A newer Weir wrote it.
    #[error("a newer Weir wrote {} (format {format}, this one reads up to {FORMAT}); install that Weir again", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// The format file is not one of ours.
    #[error("{} does not say \"weir data folder, format {FORMAT}\"; restore it, or choose another data folder", path.display())]
    Unreadable {
        /// The format file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_until_the_first_lets_go() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let first = DataFolder::open(&path).unwrap();
        let refused = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("another weir (pid {}) owns ", std::process::id())), "{refused}");
        drop(first);
        DataFolder::open(&path).unwrap();
    }

    #[test]
    fn everything_in_it_is_private_and_in_its_place() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("deep/data")).unwrap();
        for path in [folder.path().to_owned(), folder.spool(), folder.held(), folder.tls(), folder.keys()] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
        }
        assert!(folder.quarantine().is_dir());
        assert_eq!(folder.records().file_name().unwrap(), "records.db");
        assert_eq!(folder.control_socket().file_name().unwrap(), "control.sock");
    }

    #[test]
    fn a_foreign_folder_is_refused_and_left_alone() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("thesis.tex"), "years of work").unwrap();
        let refused = DataFolder::open(home.path()).unwrap_err();
        assert!(matches!(&refused, FolderError::Foreign { holds, .. } if holds == "thesis.tex"), "{refused}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_newer_or_broken_format_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        drop(DataFolder::open(&path).unwrap());
        fs::write(path.join(FORMAT_FILE), "weir data folder, format 7\n").unwrap();
        assert!(matches!(DataFolder::open(&path), Err(FolderError::Newer { format: 7, .. })));
        fs::write(path.join(FORMAT_FILE), [0xff; 40]).unwrap();
        assert!(matches!(DataFolder::open(&path), Err(FolderError::Unreadable { .. })));
    }

    #[test]
    fn a_crash_before_the_format_was_written_does_no_harm() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(LOCK_FILE), "").unwrap();
        fs::write(home.path().join(FORMAT_UNFINISHED), "weir").unwrap();
        fs::create_dir(home.path().join("lost+found")).unwrap();
        DataFolder::open(home.path()).unwrap();
    }
}
