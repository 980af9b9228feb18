//! Checks that every site needs, whichever gates run: is there enough free space under the data folder, and is the last backup recent
//! enough?

use crate::Foundation;
use crate::backup::LAST_BACKUP;
use crate::date::rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};
use weir_store::records::RecordsError;

/// If a smaller part of the disk is free, an administrator should look.
const FREE_PART_LEAST: f64 = 0.05;
/// While this much is free, nobody needs to look, however large the disk is.
const FREE_BYTES_PLENTY: u64 = 4 << 30;

/// Checks the data folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upkeep {
    foundation: Foundation,
    /// If there was no backup for this long, an administrator should look; zero for never.
    backup_due: Duration,
}

/// The disk under the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// How much Weir can still write.
    pub free_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// How old the last backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupAge {
    /// When the last backup was made; missing if there was none.
    #[schemars(extend("format" = "date-time"))]
    pub last: Option<String>,
    /// Seconds since the last backup, or since the data folder was made.
    pub age_s: u64,
    /// After how many seconds the next backup is due; 0 for never.
    pub due_s: u64,
}

impl Upkeep {
    /// Checks the data folder of this foundation.
    pub fn new(foundation: &Foundation, backup_due: Duration) -> Upkeep {
        Upkeep { foundation: foundation.clone(), backup_due }
    }

    /// The disk; none if the system does not tell.
    pub fn disk(&self) -> Option<Disk> {
        let system = rustix::fs::statvfs(self.foundation.folder.path()).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        Some(Disk { free_bytes: bytes(system.f_bavail), size_bytes: bytes(system.f_blocks) })
    }

    /// How old the last backup is.
    pub async fn backup(&self) -> Result<BackupAge, RecordsError> {
        let now_ns = (self.foundation.clock)().0 as i64;
        let last_ns = self.foundation.progress(LAST_BACKUP).await?.and_then(|at| at.parse::<i64>().ok());
        let since_ns = last_ns.or_else(|| self.made_ns()).unwrap_or(now_ns);
        Ok(BackupAge {
            last: last_ns.map(rfc3339),
            age_s: Duration::from_nanos(now_ns.saturating_sub(since_ns).max(0) as u64).as_secs(),
            due_s: self.backup_due.as_secs(),
        })
    }

    /// When the data folder was made. The file `format`, which holds the version of the layout, is written only once.
    fn made_ns(&self) -> Option<i64> {
        let facts = std::fs::metadata(self.foundation.folder.path().join("format")).ok()?;
        let since = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_nanos()).ok()
    }
}

impl Disk {
    /// Whether an administrator should make room.
    pub fn is_short(&self) -> bool {
        self.free_bytes < FREE_BYTES_PLENTY && (self.free_bytes as f64) < FREE_PART_LEAST * self.size_bytes as f64
    }
}

impl BackupAge {
    /// Whether the next backup should have been made by now.
    pub fn is_overdue(&self) -> bool {
        self.due_s > 0 && self.age_s > self.due_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_core::time::Instant;
    use weir_store::folder::DataFolder;

    #[test]
    fn a_large_disk_may_be_fuller_than_a_small_one() {
        let disk = |free_gib: u64, size_gib: u64| Disk { free_bytes: free_gib << 30, size_bytes: size_gib << 30 };
        assert!(disk(1, 100).is_short() && !disk(6, 100).is_short());
        assert!(!disk(5, 10_000).is_short() && disk(3, 10_000).is_short() && !disk(3, 20).is_short());
    }

    #[tokio::test]
    async fn a_backup_is_due_some_days_after_the_last_or_after_the_first_start() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("data")).unwrap();
        let mut foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
        let day = Duration::from_secs(86_400);
        let fresh = Upkeep::new(&foundation, 8 * day).backup().await.unwrap();
        assert!(fresh.last.is_none() && !fresh.is_overdue(), "{fresh:?}");
        assert!(Upkeep::new(&foundation, day).disk().is_some_and(|disk| disk.size_bytes >= disk.free_bytes));
        let now = (foundation.clock)();
        foundation.set_progress(LAST_BACKUP, &now.0.to_string()).await.unwrap();
        foundation.clock = Arc::new(move || Instant(now.0 + 9 * 86_400 * 1_000_000_000));
        let old = Upkeep::new(&foundation, 8 * day).backup().await.unwrap();
        assert!(old.last.is_some() && old.is_overdue() && old.age_s == 9 * 86_400, "{old:?}");
        assert!(!Upkeep::new(&foundation, Duration::ZERO).backup().await.unwrap().is_overdue(), "nobody wants to know");
    }
}
