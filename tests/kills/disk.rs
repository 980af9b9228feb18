//! A small disk that can be filled to its last byte.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A tmpfs of a few MiB, which is unmounted when this is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one. If that is not allowed here, prints this clearly and returns none.
    pub(crate) fn mount(mib: u32) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().expect("a folder");
        let options = format!("size={mib}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(done) if done.status.success() => Some(SmallDisk { folder }),
            other => {
                super::say("SKIPPED, NOT TESTED: the full disk needs a tmpfs, and mounting one needs root");
                super::say(&format!("  {other:?}"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills the disk, and everything that becomes free on it, until the filler is removed.
    pub(crate) fn fill(&self) -> Filler {
        let path = self.path().join("filler");
        let stop = Arc::new(AtomicBool::new(false));
        let (file, end) = (path.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || fill(&file, &end));
        Filler { path, stop, thread: Some(thread) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounted lazily, because a gate that a failed test left behind may still use it.
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

/// Another program that writes without end.
#[derive(Debug)]
pub(crate) struct Filler {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Filler {
    /// Gives all the space back.
    pub(crate) fn remove(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().expect("it runs").join().expect("it ends");
        std::fs::remove_file(&self.path).expect("it was there");
    }
}

fn fill(path: &Path, stop: &AtomicBool) {
    let mut file: File = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    while !stop.load(Ordering::SeqCst) {
        if file.write_all(&[0xAA; 4096]).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
