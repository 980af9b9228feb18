//! The disk that both spools stand on.

use rustix::fs::{fdatasync, statfs};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// What statfs says of tmpfs: there a sync costs nothing, and nothing survives.
const TMPFS: i64 = 0x0102_1994;

/// A folder on a real disk, gone with the benchmark.
pub(crate) struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// A folder under `$WEIR_BENCH_FOLDER`, or /var/tmp.
    pub(crate) fn open() -> Disk {
        let parent = std::env::var_os("WEIR_BENCH_FOLDER").unwrap_or_else(|| "/var/tmp".into());
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&parent);
        let folder = folder.unwrap_or_else(|error| panic!("no folder in {}: {error}", parent.display()));
        let kind = statfs(folder.path()).expect("a folder is on some file system").f_type;
        assert!(kind != TMPFS, "{} is in memory: set WEIR_BENCH_FOLDER to a folder on a disk", parent.display());
        open_to_others(folder.path());
        Disk { folder }
    }

    /// A new folder on it.
    pub(crate) fn folder(&self, name: &str) -> tempfile::TempDir {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path());
        let made = made.unwrap_or_else(|error| panic!("no folder in {}: {error}", self.folder.path().display()));
        open_to_others(made.path());
        made
    }

    /// How often a second 4 KiB can be written and synced, one after the other.
    pub(crate) fn syncs_per_s(&self) -> f64 {
        let mut file = tempfile::tempfile_in(self.folder.path()).expect("a file");
        let (start, mut syncs) = (Instant::now(), 0_u32);
        while start.elapsed() < Duration::from_secs(1) {
            file.write_all(&[7; 4096]).and_then(|()| Ok(fdatasync(&file)?)).expect("the disk works");
            syncs += 1;
        }
        f64::from(syncs) / start.elapsed().as_secs_f64()
    }
}

/// Postfix's processes are not ours.
fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
}
