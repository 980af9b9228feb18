//! Notices of the file system about the numbered directories: a hint that makes a look come sooner, never the truth.
//!
//! They are lost on overflow and do not come from another machine of a network file system. Without them, or where the system
//! gives none, everything is found by looking.

use crate::intake::Place;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Notices that come within this are one.
const GATHER: Duration = Duration::from_millis(100);
/// Files that were closed and are remembered until the next look; more are found by looking.
const CLOSED_MAX: usize = 10_000;

/// What the file system tells of one root analysis directory.
#[derive(Debug)]
pub(crate) struct Notices(Option<Watched>);

#[derive(Debug)]
struct Watched {
    root: PathBuf,
    fd: AsyncFd<OwnedFd>,
    /// The numbered directory of a watch; none of the root.
    directories: HashMap<i32, Option<u8>>,
    closed: Vec<Place>,
}

impl Notices {
    /// Of the directories under `root`.
    pub(crate) fn open(root: &Path) -> Notices {
        let made = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(std::io::Error::from);
        // It is deprecated for types that do not own what they name; this one does.
        #[allow(deprecated)]
        let made = made.and_then(AsyncFd::new).map(|fd| Watched {
            root: root.to_owned(),
            fd,
            directories: HashMap::new(),
            closed: Vec::new(),
        });
        Notices(made.inspect_err(|error| tracing::info!(%error, "the file system gives no notices")).ok())
    }

    /// Watches the directories that there are now, and returns the files that were closed since the last time.
    pub(crate) fn watch(&mut self) -> Vec<Place> {
        let Some(watched) = &mut self.0 else { return Vec::new() };
        watched.add(None);
        (0..=127).for_each(|number| watched.add(Some(number)));
        watched.read();
        std::mem::take(&mut watched.closed)
    }

    /// Returns soon after something has come.
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
        }
    }
}

impl Watched {
    /// Watches a directory, or the root. One that is not there is not watched; one that is already stays so.
    fn add(&mut self, number: Option<u8>) {
        let (path, of_interest) = match number {
            Some(number) => (self.root.join(number.to_string()), WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO),
            None => (self.root.clone(), WatchFlags::CREATE | WatchFlags::MOVED_TO),
        };
        let flags = of_interest | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        if let Ok(watch) = inotify::add_watch(self.fd.get_ref(), path, flags) {
            self.directories.insert(watch, number);
        }
    }

    /// Whether there was anything.
    fn read(&mut self) -> bool {
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.fd.get_ref(), &mut bytes);
        let mut any = false;
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED) {
                self.directories.remove(&event.wd());
                continue;
            }
            any = true;
            let directory = self.directories.get(&event.wd()).copied().flatten();
            if let (Some(directory), Some(name)) = (directory, event.file_name())
                && self.closed.len() < CLOSED_MAX
            {
                self.closed.push(Place { directory, name: OsStr::from_bytes(name.to_bytes()).to_owned() });
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn files_that_were_closed_or_moved_in_are_told_and_new_directories_too() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("32")).unwrap();
        let mut notices = Notices::open(home.path());
        assert_eq!(notices.watch(), []);
        fs::write(home.path().join("aside"), "x").unwrap();
        fs::rename(home.path().join("aside"), home.path().join("32/moved")).unwrap();
        fs::write(home.path().join("32/written"), "x").unwrap();
        notices.come().await;
        let place = |directory, name: &str| Place { directory, name: name.into() };
        assert_eq!(notices.watch(), [place(32, "moved"), place(32, "written")]);
        fs::create_dir(home.path().join("7")).unwrap();
        notices.come().await;
        assert_eq!(notices.watch(), []);
        fs::write(home.path().join("7/urgent"), "x").unwrap();
        notices.come().await;
        assert_eq!(notices.watch(), [place(7, "urgent")]);
        let quiet = tokio::time::timeout(Duration::from_millis(50), notices.come()).await;
        assert!(quiet.is_err(), "nothing has come");
    }
}
