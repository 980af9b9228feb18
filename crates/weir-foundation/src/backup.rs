//! A copy of the data folder while the gates run, and the way back.
//!
//! What was acknowledged before the backup began and is not settled when it ends is in it. What was under way may be sent twice
//! after a restore, never not at all. The order brings that about: files of held mail are linked before and after the records are
//! copied, and once more after what the gate itself copies ([`GateBackup`]): its spool. A held message that goes in between leaves
//! the records only after it is in the spool, and the spool is copied later. Held recipients whose message ended up nowhere were
//! taken in and settled while the backup ran; the gate strikes them out after a restore. Files are linked instead of copied where
//! the target is on the same file system: these files are never changed in place.
//!
//! In it is what every gate needs: the records, mail that is held, quarantined or in transit, keys and certificates, the lab's samples
//! and who this machine is in its lab, the web gate's secret and history. `SHA256SUMS` says what every file was, the manifest says
//! what that file was, and [`verify`] compares; a restore does so first.
//!
//! Records in PostgreSQL are left to `pg_dump`, which should run *before*. Delivered mail is not part of a backup.

mod files;
mod series;
mod sums;

use crate::audit::AuditTrail;
use crate::clock::wall_clock;
use crate::date::rfc3339;
use crate::{Actor, Foundation, OperationError, OperationFuture};
pub use files::cannot_write;
use files::{
    blocking, bring_anew, copy_back, count_files, is_unchanged, link_plain, sync_all, total_bytes, write_file,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use series::Series;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_store::folder::DataFolder;
use weir_store::records::{AuditLine, Records, RecordsError};

/// When the last backup was made, in nanoseconds since the Unix epoch: a value of this relay in the records.
pub(crate) const LAST_BACKUP: &str = "backup.last";
const MANIFEST: &str = "backup.json";
const FORMAT: u32 = 2;
/// The first form had no sums, and neither lab nor web.
const WITHOUT_SUMS: u32 = 1;

/// What a gate copies by itself, because it writes to these files while the backup runs.
pub trait GateBackup: Send + Sync {
    /// Copies what must not be older than the records: called after these were copied.
    fn copy_after_records<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()>;

    /// Copies what tells of everything that happened before: called last.
    fn copy_last<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()>;
}

/// Written last: a folder without it is no backup, or half of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupManifest {
    /// The form of the backup.
    pub format: u32,
    /// The version that made it.
    pub version: String,
    /// When it began.
    pub at: String,
    /// Whether the records are in it, or in a dump of PostgreSQL.
    pub records: bool,
    /// The relay it was made of.
    pub relay: String,
    /// The SHA-256 sum of its file SHA256SUMS; empty in backups of the first form.
    #[serde(default)]
    pub sums: String,
}

/// What a look at a backup found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupCheck {
    /// Its manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// Bytes in all.
    pub bytes: u64,
    /// What is not as it was written, a sentence each.
    pub problems: Vec<String>,
    /// What cannot be said of it.
    pub note: String,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupDone {
    /// Where it is.
    pub folder: PathBuf,
    /// Its manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// Files of held mail in it.
    pub held_files: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// What the operator must do besides.
    pub note: String,
    /// The earlier backup that it shares files with.
    #[serde(default)]
    pub since: Option<PathBuf>,
    /// Older backups that were removed.
    #[serde(default)]
    pub removed: Vec<PathBuf>,
}

/// What a restore brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreDone {
    /// The data folder.
    pub data: PathBuf,
    /// The backup's manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// The mail in it.
    #[serde(flatten)]
    pub mail: RestoredMail,
    /// What the operator must do besides.
    pub note: String,
}

/// The mail that a restore brought back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RestoredMail {
    /// Messages in transit.
    pub messages: usize,
    /// Recipients that are held.
    pub held_recipients: usize,
    /// Held recipients that were settled while the backup was made, and are struck out.
    pub struck_out: usize,
}

/// Makes backups of one data folder. Cheap to clone.
#[derive(Clone)]
pub struct Backup {
    foundation: Foundation,
    audit: AuditTrail,
    gate: Option<Arc<dyn GateBackup>>,
}

impl Backup {
    /// Of this folder, with what `gate` copies by itself.
    pub fn new(foundation: &Foundation, gate: Option<Arc<dyn GateBackup>>) -> Backup {
        Backup { foundation: foundation.clone(), audit: AuditTrail::new(foundation), gate }
    }

    /// Makes one more backup in a folder of several, named by its time. It shares with the newest one what has not changed; then the oldest
    /// are removed until `keep` are left, 0 for all.
    pub async fn make_into(&self, into: &Path, keep: usize, actor: &Actor) -> Result<BackupDone, OperationError> {
        let relay = self.foundation.relay.clone();
        let folder = into.to_owned();
        let earlier = blocking(into, move || Series { folder: &folder, relay: &relay }.newest()).await?;
        let at = rfc3339((self.foundation.clock)().0 as i64);
        let to = Series { folder: into, relay: &self.foundation.relay }.place(&at);
        let mut done = self.make_since(&to, earlier, actor).await?;
        let (folder, relay) = (into.to_owned(), self.foundation.relay.clone());
        done.removed = blocking(into, move || Series { folder: &folder, relay: &relay }.prune(keep)).await?;
        for removed in &done.removed {
            self.audit.write(actor, "backup.remove", &removed.display().to_string(), String::new()).await?;
        }
        Ok(done)
    }

    /// Copies everything that must survive to the new or empty folder `to`.
    pub async fn make(&self, to: &Path, actor: &Actor) -> Result<BackupDone, OperationError> {
        self.make_since(to, None, actor).await
    }

    async fn make_since(
        &self,
        to: &Path,
        earlier: Option<PathBuf>,
        actor: &Actor,
    ) -> Result<BackupDone, OperationError> {
        if !to.is_absolute() {
            return Err(OperationError::invalid(
                "the folder of a backup must be an absolute path",
                "begin it with a /",
            ));
        }
        if to.starts_with(self.foundation.folder.path()) {
            let hint = "choose a folder elsewhere, best on another disk";
            return Err(OperationError::invalid("a backup inside the data folder would not outlive it", hint));
        }
        let begun_ns = (self.foundation.clock)().0;
        let manifest = BackupManifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: rfc3339(begun_ns as i64),
            records: !self.foundation.records.is_shared(),
            relay: self.foundation.relay.clone(),
            sums: String::new(),
        };
        make_empty(to)?;
        self.copy(to, earlier.as_deref()).await?;
        let (from, folder, since) = (self.foundation.folder.path().to_owned(), to.to_owned(), earlier.clone());
        blocking(to, move || link_plain(&from, &folder, since.as_deref())).await?;
        if let Some(gate) = &self.gate {
            gate.copy_last(to).await?;
        }
        let (folder, unsealed, since) = (to.to_owned(), manifest, earlier.clone());
        let data = self.foundation.folder.path().to_owned();
        let (manifest, held_files, bytes) = blocking(to, move || {
            let counted = (count_files(&folder.join("held"))?, total_bytes(&folder)?);
            let sums = sound_sums(&data, &folder, since.as_deref())?;
            write_file(&folder.join(sums::SUMS), &sums)?;
            let manifest = BackupManifest { sums: sums::of_bytes(&sums), ..unsealed };
            write_file(&folder.join(MANIFEST), &serde_json::to_vec_pretty(&manifest)?)?;
            sync_all(&folder)?;
            Ok((manifest, counted.0, counted.1))
        })
        .await?;
        self.foundation.set_progress(LAST_BACKUP, &begun_ns.to_string()).await?;
        self.audit.write(actor, "backup", &to.display().to_string(), format!("{bytes} bytes")).await?;
        Ok(BackupDone {
            folder: to.to_owned(),
            note: note(&manifest),
            manifest,
            held_files,
            bytes,
            since: earlier,
            removed: Vec::new(),
        })
    }

    async fn copy(&self, to: &Path, earlier: Option<&Path>) -> Result<(), OperationError> {
        let link = || {
            let (from, to) = (self.foundation.folder.path().to_owned(), to.to_owned());
            let (at, earlier) = (to.clone(), earlier.map(Path::to_owned));
            async move { blocking(&at, move || link_plain(&from, &to, earlier.as_deref())).await }
        };
        link().await?;
        match self.foundation.records.backup(&to.join("records.db")).await {
            Ok(()) | Err(RecordsError::BackupElsewhere) => {}
            Err(error) => return Err(error.into()),
        }
        link().await?;
        match &self.gate {
            Some(gate) => gate.copy_after_records(to).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("foundation", &self.foundation).finish_non_exhaustive()
    }
}

/// Brings a backup back into a data folder that has nothing in it yet. `settle` is how the mail gate makes what came back whole.
pub async fn restore(
    from: &Path,
    folder: &DataFolder,
    settle: impl AsyncFnOnce(&DataFolder, &BackupManifest) -> Result<RestoredMail, OperationError>,
) -> Result<RestoreDone, OperationError> {
    let BackupCheck { manifest, problems, .. } = verify(from).await?;
    if let Some(first) = problems.first() {
        let what = format!("{} is not as it was written: {first}", from.display());
        return Err(OperationError::conflict(what, "`weir backup verify` lists everything; take another backup"));
    }
    if folder.records().exists() || fs::read_dir(folder.held()).is_ok_and(|mut files| files.next().is_some()) {
        let hint = "restore into a new folder, then move it where you want it";
        return Err(OperationError::conflict(format!("{} is in use already", folder.path().display()), hint));
    }
    let (source, target) = (from.to_owned(), folder.path().to_owned());
    blocking(folder.path(), move || copy_back(&source, &target)).await?;
    let mail = settle(folder, &manifest).await?;
    if manifest.records {
        note_restore(folder, &manifest).await?;
    }
    Ok(RestoreDone { data: folder.path().to_owned(), mail, note: note(&manifest), manifest })
}

/// What had begun when the copy was made did not end in it, the backup itself first of all; and who reads the trail should know
/// why it goes back in time.
async fn note_restore(folder: &DataFolder, manifest: &BackupManifest) -> Result<(), OperationError> {
    let records = Records::sqlite(&folder.records()).await?;
    let trail = records.audit();
    for (number, _) in trail.interrupted(&manifest.relay).await? {
        trail.ended(number).await?;
    }
    let text = |text: &str| text.to_owned();
    trail
        .write(&AuditLine {
            at: wall_clock().0 as i64,
            actor: text("weir"),
            action: text("restore"),
            subject: manifest.relay.clone(),
            detail: format!("the data folder is the backup of {}", manifest.at),
        })
        .await?;
    records.close().await;
    Ok(())
}

/// Compares a backup with what was written down when it was made.
pub async fn verify(from: &Path) -> Result<BackupCheck, OperationError> {
    let manifest = read_manifest(from)?;
    let (folder, known) = (from.to_owned(), manifest.clone());
    let (problems, bytes) = blocking(from, move || {
        let problems = if known.format == WITHOUT_SUMS { Vec::new() } else { compare(&folder, &known)? };
        Ok((problems, total_bytes(&folder)?))
    })
    .await?;
    let note = match manifest.format {
        WITHOUT_SUMS => "it has no sums, because an older version made it: only that it is complete can be said",
        _ => "",
    };
    Ok(BackupCheck { manifest, bytes, problems, note: note.to_owned() })
}

fn compare(folder: &Path, manifest: &BackupManifest) -> io::Result<Vec<String>> {
    let sums = match fs::read(folder.join(sums::SUMS)) {
        Err(error) => return Ok(vec![format!("{}: {error}", sums::SUMS)]),
        Ok(sums) if sums::of_bytes(&sums) != manifest.sums => return Ok(vec![format!("{} has changed", sums::SUMS)]),
        Ok(sums) => sums,
    };
    sums::differences(folder, &sums)
}

/// The sums of a new backup. A file that it shares with the earlier one and that has rotted there since is taken from the data folder
/// again: otherwise the new sums would vouch for it.
fn sound_sums(data: &Path, folder: &Path, earlier: Option<&Path>) -> io::Result<Vec<u8>> {
    let sums = sums::of_folder(folder)?;
    let Some(known) = earlier.and_then(|earlier| fs::read(earlier.join(sums::SUMS)).ok()) else { return Ok(sums) };
    let rotten: Vec<PathBuf> = sums::unlike(&known, &sums).into_iter().filter(|path| is_unchanged(path)).collect();
    if rotten.is_empty() {
        return Ok(sums);
    }
    tracing::warn!(files = rotten.len(), "an earlier backup is not as it was written; its files are copied anew");
    bring_anew(data, folder, &rotten)?;
    sums::of_folder(folder)
}

fn note(manifest: &BackupManifest) -> String {
    match manifest.records {
        true => String::new(),
        false => {
            "the records are in PostgreSQL: a dump made by pg_dump shortly before belongs to this backup".to_owned()
        }
    }
}

fn read_manifest(from: &Path) -> Result<BackupManifest, OperationError> {
    let hint = "name a folder that `weir backup` has written to its end";
    let bad = |why: String| OperationError::invalid(format!("{} is no backup: {why}", from.display()), hint);
    let text = fs::read(from.join(MANIFEST)).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
    let manifest: BackupManifest = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if !(WITHOUT_SUMS..=FORMAT).contains(&manifest.format) {
        return Err(bad(format!("it has form {}, this Weir knows forms up to {FORMAT}", manifest.format)));
    }
    Ok(manifest)
}

fn make_empty(to: &Path) -> Result<(), OperationError> {
    let fail = |error: io::Error| cannot_write(to, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(fail)?;
    if fs::read_dir(to).map_err(fail)?.next().is_some() {
        let hint = "a backup goes into a new or empty folder";
        return Err(OperationError::conflict(format!("{} is not empty", to.display()), hint));
    }
    Ok(())
}
