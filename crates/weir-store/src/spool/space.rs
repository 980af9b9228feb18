//! The free space under the spool, and the floor below which no new mail is taken.
//!
//! Marks and compaction may go below the floor, because progress must be recorded even when the disk is nearly full. Asking the system
//! costs about a microsecond. So it is asked only when the amount written since the last time could have reached the floor, and otherwise
//! ten times a second, because other programs write to the same disk.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const ASK_EVERY: Duration = Duration::from_millis(100);

/// Watches the free space.
#[derive(Debug)]
pub(super) struct Space {
    folder: PathBuf,
    floor: u64,
    last: Mutex<Option<FreeSpace>>,
}

#[derive(Clone, Copy, Debug)]
struct FreeSpace {
    when: Instant,
    /// How much was free then, less what the spool has written since.
    free: u64,
}

impl Space {
    pub(super) fn new(folder: PathBuf, floor: u64) -> Space {
        Space { folder, floor, last: Mutex::new(None) }
    }

    /// Whether new mail must be refused.
    pub(super) fn is_low(&self) -> bool {
        if self.floor == 0 {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.filter(|seen| seen.free > self.floor && seen.when.elapsed() < ASK_EVERY);
        let free = known.map_or_else(|| self.ask(), |seen| Some(seen.free));
        if known.is_none() {
            *last = free.map(|free| FreeSpace { when: Instant::now(), free });
        }
        // If a system cannot say how much is free, it reports a full disk at the write.
        free.is_some_and(|free| free <= self.floor)
    }

    /// Notes that the spool wrote this many bytes.
    pub(super) fn spend(&self, bytes: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = last.as_mut() {
            seen.free = seen.free.saturating_sub(bytes);
        }
    }

    fn ask(&self) -> Option<u64> {
        let system = rustix::fs::statvfs(&self.folder).ok()?;
        Some(system.f_bavail.saturating_mul(system.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_decides() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Space::new(folder.path().to_owned(), 0).is_low());
        assert!(!Space::new(folder.path().to_owned(), 1).is_low());
        let never = Space::new(folder.path().to_owned(), u64::MAX);
        assert!(never.is_low() && never.is_low());
        assert!(!Space::new("/no/such/folder".into(), 1).is_low());
    }
}
