//! Several backups of one relay in one folder. Each has a folder of its own that is named by its time; the oldest are removed.
//!
//! Only complete backups of this relay count and are removed. Other folders, incomplete backups and the targets of links stay.

use super::{BackupManifest, MANIFEST};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The backups of one relay in one folder.
pub(super) struct Series<'a> {
    pub(super) folder: &'a Path,
    pub(super) relay: &'a str,
}

impl Series<'_> {
    /// The folder for a backup of this time (RFC 3339).
    pub(super) fn place(&self, at: &str) -> PathBuf {
        self.folder.join(at.replace(':', "-"))
    }

    /// The newest backup.
    pub(super) fn newest(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.list()?.pop().map(|(_, folder)| folder))
    }

    /// Removes the oldest backups until `keep` are left; 0 keeps all. Returns the folders that were removed.
    pub(super) fn prune(&self, keep: usize) -> io::Result<Vec<PathBuf>> {
        let list = self.list()?;
        let surplus = if keep == 0 { 0 } else { list.len().saturating_sub(keep) };
        let oldest: Vec<PathBuf> = list.into_iter().take(surplus).map(|(_, folder)| folder).collect();
        for folder in &oldest {
            // The manifest goes first: if this is interrupted, nobody takes the rest for a backup.
            fs::remove_file(folder.join(MANIFEST))?;
            fs::remove_dir_all(folder)?;
        }
        Ok(oldest)
    }

    /// The complete backups of this relay with their times, oldest first.
    fn list(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let manifest = fs::read(entry.path().join(MANIFEST)).ok();
            let manifest = manifest.and_then(|text| serde_json::from_slice::<BackupManifest>(&text).ok());
            if let Some(manifest) = manifest.filter(|manifest| manifest.relay == self.relay) {
                found.push((manifest.at, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(folder: &Path, name: &str, relay: &str) {
        let manifest = BackupManifest {
            format: 2,
            version: "0".into(),
            at: name.replace('-', ":"),
            records: true,
            relay: relay.into(),
            sums: String::new(),
            sealed: None,
        };
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
    }

    #[test]
    fn the_oldest_backups_of_this_relay_go_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        for name in ["2026-1", "2026-3", "2026-2"] {
            backup(folder, name, "here");
        }
        backup(folder, "2025-1", "elsewhere");
        fs::create_dir(folder.join("half")).unwrap();
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        std::os::unix::fs::symlink(folder.join("2026-1"), folder.join("link")).unwrap();
        let series = Series { folder, relay: "here" };
        assert_eq!(series.newest().unwrap(), Some(folder.join("2026-3")));
        assert!(series.prune(0).unwrap().is_empty() && series.prune(3).unwrap().is_empty());
        assert_eq!(series.prune(1).unwrap(), [folder.join("2026-1"), folder.join("2026-2")]);
        for left in ["2026-3", "2025-1", "half", "notes.txt"] {
            assert!(folder.join(left).exists(), "{left}");
        }
        let nowhere = folder.join("nowhere");
        assert_eq!(Series { folder: &nowhere, relay: "here" }.newest().unwrap(), None);
        assert_eq!(series.place("2026-11-17T18:24:00Z"), folder.join("2026-11-17T18-24-00Z"));
    }
}
