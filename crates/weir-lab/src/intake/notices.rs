//! Notices of the file system about the numbered directories: only hints, which make a look come sooner or a file wait for its writer.
//!
//! They are lost on overflow and do not come from another machine of a network file system. Without them, or where the system
//! gives none, everything is found by looking.

use super::numbered::{self, DirectoryFile};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Notices within this time are combined.
const GATHER: Duration = Duration::from_millis(100);
/// The pause after notices that only say that files grow, because there may be very many of them.
const PAUSE: Duration = Duration::from_millis(10);
/// How many notices are read at once: a program that writes quickly must not delay everything else.
const EVENTS_MAX: usize = 65_536;
/// How many closed files are remembered until the next pass; the pass finds the others.
const CLOSED_MAX: usize = 10_000;
/// How many files that are being written are remembered; the others are judged by the passes alone.
const WRITTEN_MAX: usize = 65_536;

/// The notices of the file system about one root analysis directory.
#[derive(Debug)]
pub(crate) struct Notices(Option<Watched>);

#[derive(Debug)]
struct Watched {
    root: PathBuf,
    fd: AsyncFd<OwnedFd>,
    /// The numbered directory of a watch; none of the root.
    directories: HashMap<i32, Option<u8>>,
    closed: Vec<DirectoryFile>,
    /// Files that were written to since they were last closed, so some program has them open.
    written: HashSet<DirectoryFile>,
}

/// What was reported about files by now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileNotices {
    /// Closed after writing, or moved in, since the last time.
    pub(crate) closed: Vec<DirectoryFile>,
    /// Being written.
    pub(crate) written: HashSet<DirectoryFile>,
}

impl Notices {
    /// The notices about the directories under `root`.
    pub(crate) fn open(root: &Path) -> Notices {
        // They are watched before they are examined. The next pass reports why they cannot be created.
        let _ = numbered::make(root);
        let made = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(std::io::Error::from);
        // The function is deprecated for types that do not own the descriptor; this type does.
        #[allow(deprecated)]
        let made = made.and_then(AsyncFd::new).map(|fd| Watched {
            root: root.to_owned(),
            fd,
            directories: HashMap::new(),
            closed: Vec::new(),
            written: HashSet::new(),
        });
        Notices(made.inspect_err(|error| tracing::info!(%error, "the file system gives no notices")).ok())
    }

    /// Watches the directories that exist now, and returns what was reported.
    pub(crate) fn watch(&mut self) -> FileNotices {
        let Some(watched) = &mut self.0 else { return FileNotices::default() };
        watched.add(None);
        (0..=127).for_each(|number| watched.add(Some(number)));
        watched.read();
        FileNotices { closed: std::mem::take(&mut watched.closed), written: watched.written.clone() }
    }

    /// Returns soon after a file has come that may be complete.
    pub(crate) async fn come(&mut self) {
        let Some(watched) = &mut self.0 else { return std::future::pending().await };
        loop {
            match watched.fd.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return std::future::pending().await,
            }
            if watched.read() {
                return tokio::time::sleep(GATHER).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Watched {
    /// Watches a directory, or the root. One that does not exist is not watched; one that is watched already stays so.
    fn add(&mut self, number: Option<u8>) {
        let (path, of_interest) = match number {
            Some(number) => {
                let written = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
                let moved = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
                (self.root.join(number.to_string()), written | moved)
            }
            None => (self.root.clone(), WatchFlags::CREATE | WatchFlags::MOVED_TO),
        };
        let flags = of_interest | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW | WatchFlags::EXCL_UNLINK;
        if let Ok(watch) = inotify::add_watch(self.fd.get_ref(), path, flags) {
            self.directories.insert(watch, number);
        }
    }

    /// Whether there was anything to act on, other than files that grow or are gone.
    fn read(&mut self) -> bool {
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.fd.get_ref(), &mut bytes);
        let (mut any, mut left) = (false, EVENTS_MAX);
        // Notices that the reader has buffered must not be lost with it.
        while left > 0 || !reader.is_buffer_empty() {
            let Ok(event) = reader.next() else { break };
            left = left.saturating_sub(1);
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Which files were closed is no longer known.
                self.written.clear();
                any = true;
                continue;
            }
            if events.contains(ReadFlags::IGNORED) {
                if let Some(Some(gone)) = self.directories.remove(&event.wd()) {
                    self.written.retain(|place| place.directory != gone);
                }
                continue;
            }
            let directory = self.directories.get(&event.wd()).copied().flatten();
            let (Some(directory), Some(name)) = (directory, event.file_name()) else {
                any = true;
                continue;
            };
            let place = DirectoryFile { directory, name: OsStr::from_bytes(name.to_bytes()).to_owned() };
            if events.contains(ReadFlags::MODIFY) {
                if self.written.len() < WRITTEN_MAX {
                    self.written.insert(place);
                }
                continue;
            }
            self.written.remove(&place);
            if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
                any = true;
                if self.closed.len() < CLOSED_MAX {
                    self.closed.push(place);
                }
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[tokio::test]
    async fn files_that_were_closed_or_moved_in_are_told_and_new_directories_too() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("32")).unwrap();
        let mut notices = Notices::open(home.path());
        assert_eq!(notices.watch().closed, []);
        fs::write(home.path().join("aside"), "x").unwrap();
        fs::rename(home.path().join("aside"), home.path().join("32/moved")).unwrap();
        fs::write(home.path().join("32/written"), "x").unwrap();
        notices.come().await;
        let place = |directory, name: &str| DirectoryFile { directory, name: name.into() };
        assert_eq!(notices.watch().closed, [place(32, "moved"), place(32, "written")]);
        fs::create_dir(home.path().join("7")).unwrap();
        notices.come().await;
        assert_eq!(notices.watch().closed, []);
        fs::write(home.path().join("7/urgent"), "x").unwrap();
        notices.come().await;
        assert_eq!(notices.watch().closed, [place(7, "urgent")]);
        let quiet = tokio::time::timeout(Duration::from_millis(50), notices.come()).await;
        assert!(quiet.is_err(), "nothing has come");
    }

    #[tokio::test]
    async fn the_usual_directory_is_watched_from_the_beginning() {
        let home = tempfile::tempdir().unwrap();
        let mut notices = Notices::open(&home.path().join("analysis"));
        notices.watch();
        fs::write(home.path().join("analysis/32/a"), "x").unwrap();
        notices.come().await;
        assert_eq!(notices.watch().closed, [DirectoryFile { directory: 32, name: "a".into() }]);
    }

    #[tokio::test]
    async fn a_file_is_being_written_until_it_is_closed_moved_or_gone() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("32")).unwrap();
        let mut notices = Notices::open(home.path());
        notices.watch();
        let path = |name: &str| home.path().join("32").join(name);
        let mut open: Vec<fs::File> = ["a", "b", "c"].map(|name| fs::File::create(path(name)).unwrap()).into();
        let written = |notices: &mut Notices| {
            let mut names: Vec<_> = notices.watch().written.into_iter().map(|place| place.name).collect();
            names.sort();
            names
        };
        assert!(written(&mut notices).is_empty(), "nothing is in them yet");
        open.iter_mut().for_each(|file| file.write_all(b"half").unwrap());
        let quiet = tokio::time::timeout(Duration::from_millis(50), notices.come()).await;
        assert!(quiet.is_err(), "there is nothing to look at");
        assert_eq!(written(&mut notices), ["a", "b", "c"]);
        fs::remove_file(path("b")).unwrap();
        fs::rename(path("c"), path("moved")).unwrap();
        assert_eq!(written(&mut notices), ["a"]);
        open[0].write_all(b" and half").unwrap();
        open.clear();
        notices.come().await;
        let heard = notices.watch();
        assert!(heard.written.is_empty() && heard.closed.contains(&DirectoryFile { directory: 32, name: "a".into() }));
    }
}
