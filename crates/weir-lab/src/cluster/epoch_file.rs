//! Stores the highest epoch that a machine has seen on its disk, beside the count of its starts. So after a restart it still refuses a
//! leader whose term is over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::election::Epoch;
use weir_tls::write_private;

/// The name of the file.
pub(crate) const FILE: &str = "epoch";

/// The stored epoch. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EpochFile {
    path: PathBuf,
    kept: Arc<Mutex<Epoch>>,
}

impl EpochFile {
    /// The epoch stored in this folder; epoch 0 if there is none.
    pub(crate) fn open(folder: &Path) -> io::Result<EpochFile> {
        let path = folder.join(FILE);
        let kept: u64 = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let hint = "without the file any leader is accepted, whatever its epoch";
                io::Error::other(format!("{}: it holds no epoch\n  hint: {hint}", path.display()))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(EpochFile { path, kept: Arc::new(Mutex::new(Epoch(kept))) })
    }

    pub(crate) fn highest(&self) -> Epoch {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database knows better: its epoch is stored, even if it is lower, because its records may have been restored from a backup.
    pub(crate) fn begin_at(&self, epoch: Epoch) -> io::Result<()> {
        self.keep_if(epoch, |kept| epoch != kept)
    }

    /// Stores an epoch that is higher. When this returns it is on the disk.
    fn raise(&self, epoch: Epoch) -> io::Result<()> {
        self.keep_if(epoch, |kept| epoch > kept)
    }

    fn keep_if(&self, epoch: Epoch, news: impl FnOnce(Epoch) -> bool) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if news(*kept) {
            write_private(&self.path, &epoch.0.to_string())?;
            *kept = epoch;
        }
        Ok(())
    }

    /// The same in the background. A full disk is logged, and prevents nobody from working.
    pub(crate) async fn keep(self, epoch: Epoch) {
        let raised = tokio::task::spawn_blocking(move || self.raise(epoch)).await;
        if let Err(error) = raised.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(%error, epoch = epoch.0, "the epoch of the lab cannot be kept: a restart would forget it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_seen_outlives_the_process_and_only_the_database_lowers_it() {
        let home = tempfile::tempdir().unwrap();
        let seen = EpochFile::open(home.path()).unwrap();
        assert_eq!(seen.highest(), Epoch(0));
        seen.raise(Epoch(7)).unwrap();
        seen.clone().keep(Epoch(6)).await;
        assert_eq!((seen.highest(), EpochFile::open(home.path()).unwrap().highest()), (Epoch(7), Epoch(7)));
        seen.begin_at(Epoch(3)).unwrap();
        assert_eq!(EpochFile::open(home.path()).unwrap().highest(), Epoch(3));
        seen.keep(Epoch(4)).await;
        assert_eq!(EpochFile::open(home.path()).unwrap().highest(), Epoch(4));
        fs::write(home.path().join(FILE), "many").unwrap();
        assert!(EpochFile::open(home.path()).is_err());
    }
}
