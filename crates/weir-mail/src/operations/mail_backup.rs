//! The mail gate's part of a backup: it copies the spool and the diary, and after a restore it removes held entries whose message is
//! missing.

use super::backend::Backend;
use super::{OperationError, OperationFuture, OperationsParts};
use crate::throttle::{ThrottleCommand, Throttling};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_foundation::backup::{BackupManifest, GateBackup, RestoredMail, cannot_write};
use weir_foundation::clock::wall_clock;
use weir_store::diary;
use weir_store::folder::DataFolder;
use weir_store::records::{HeldFilter, Records};
use weir_store::spool::{Options, Spool};

/// Copies what the mail gate writes to while the backup runs.
pub(super) struct MailBackup {
    backend: Arc<dyn Backend>,
    diary_folder: PathBuf,
}

impl MailBackup {
    pub(super) fn new(parts: &OperationsParts) -> MailBackup {
        MailBackup { backend: Arc::clone(&parts.backend), diary_folder: parts.foundation.folder.diary() }
    }
}

impl GateBackup for MailBackup {
    fn copy_after_records<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()> {
        Box::pin(async move { Ok(self.backend.spool().await?.snapshot(to.join("spool")).await?) })
    }

    /// The diary, which is changed in place, is copied last: it says most.
    fn copy_last<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()> {
        let (diary, from, target) = (self.backend.diary(), self.diary_folder.clone(), to.join("diary"));
        Box::pin(async move {
            let copied = tokio::task::spawn_blocking(move || {
                diary.settle();
                diary::copy(&from, &target)
            });
            let copied = copied.await.map_err(std::io::Error::other).flatten();
            copied.map_err(|error| cannot_write(to, &error))
        })
    }
}

/// Makes mail that a restore brought back whole: what is held and has no message any more is struck out.
pub async fn settle_restored(folder: &DataFolder, manifest: &BackupManifest) -> Result<RestoredMail, OperationError> {
    let spool = folder.spool();
    let opened = tokio::task::spawn_blocking(move || Spool::open(spool, Options::default())).await;
    let (spool, found) = opened.map_err(|error| OperationError::Failed(error.to_string()))??;
    drop(spool);
    let in_transit: BTreeSet<String> = found.iter().map(|found| found.id.to_string()).collect();
    let mut restored = RestoredMail { messages: found.len(), held_recipients: 0, struck_out: 0 };
    if manifest.records {
        strike_out(folder, &manifest.relay, &in_transit, &mut restored).await?;
    }
    Ok(restored)
}

/// Removes held recipients whose message is nowhere, and counts those that stay and those that went.
async fn strike_out(
    folder: &DataFolder,
    relay: &str,
    in_transit: &BTreeSet<String>,
    restored: &mut RestoredMail,
) -> Result<(), OperationError> {
    let records = Records::sqlite(&folder.records()).await?;
    let rows = records.held().list(&HeldFilter::default(), i64::MAX).await?;
    let lost = |message: &str| !in_transit.contains(message) && !folder.held().join(format!("{message}.eml")).exists();
    let gone: Vec<_> = rows.iter().filter(|row| lost(&row.message)).collect();
    let mut entries = BTreeMap::<&str, Vec<i64>>::new();
    gone.iter().for_each(|row| entries.entry(&row.identity).or_default().push(row.entry));
    let throttling = Throttling::start(records.clone(), Arc::new(wall_clock));
    for (identity, entries) in entries {
        throttling.command(identity, ThrottleCommand::Delete(entries)).await?;
    }
    // Both those just struck out and those decided while the backup was made.
    let decided = records.held().decided(relay, "", i64::MAX).await?;
    let decided = decided.into_iter().filter(|row| lost(&row.message)).map(|row| (row.identity, row.entry));
    records.held().done(&decided.collect::<Vec<_>>()).await?;
    records.close().await;
    restored.held_recipients = rows.len() - gone.len();
    restored.struck_out = gone.len();
    Ok(())
}
