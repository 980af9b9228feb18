//! Backup and restore: copies the data folder while the gates run, and makes a data folder from such a copy.
//!
//! A backup contains everything that was acknowledged before it began and is not settled when it ends. What was under way may be sent twice
//! after a restore, but is never lost. The order of the steps ensures this: the files of held mail are linked before and after the records
//! are copied, and once more after the gate has copied its spool ([`GateBackup`]). A held message that is released in between leaves the
//! records only when it is in the spool, and the spool is copied later. Held recipients whose message is nowhere in the backup were
//! accepted and settled while it ran; the gate removes them after a restore. Files are linked instead of copied where the target is on the
//! same file system: these files are never changed in place.
//!
//! It contains what every gate needs: the records, the index of messages, the figures of the past, mail that is held, quarantined or in
//! transit, keys and certificates, the lab's samples and this machine's identity in its lab, the web gate's secret and history.
//! `SHA256SUMS` holds the sum of every file, and the manifest holds the sum of `SHA256SUMS`. [`verify`] compares them, and a restore begins
//! with that.
//!
//! If there is a passphrase, every file is sealed with it (`sealed`).
//!
//! The configuration file is part of a backup too. A restore puts it into the data folder under another name, for a person to compare: the
//! machine may have one already, and it may be another machine.
//!
//! Records in PostgreSQL are left to `pg_dump`, which should run *before*. Delivered mail is not part of a backup.

mod files;
mod restoring;
mod sealed;
mod series;
mod sums;

use crate::audit::AuditTrail;
use crate::date::rfc3339;
use crate::{Actor, Foundation, OperationError, OperationFuture};
pub use files::cannot_write;
use files::{
    blocking, bring_anew, count_files, is_unchanged, link_plain, seal_anew, seal_folder, sync_all, total_bytes,
    write_file, write_private,
};
use restoring::read_manifest;
pub use restoring::{SoundBackup, verify};
use schemars::JsonSchema;
use sealed::BackupKey;
pub use sealed::{Passphrase, Seal};
use serde::{Deserialize, Serialize};
use series::Series;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_store::records::{RecordsError, copy_database};

/// When the last backup was made, in nanoseconds since the Unix epoch: a value of this relay in the records.
pub(crate) const LAST_BACKUP: &str = "backup.last";
/// The folder in the data folder where the files of a sealed backup are gathered before they are sealed.
const GATHERED: &str = "backup.tmp";
const MANIFEST: &str = "backup.json";
/// The configuration file in a backup, and what it is called in a restored data folder.
const CONFIGURATION: &str = "configuration/weir.toml";
const RESTORED_CONFIGURATION: &str = "weir.toml.restored";
const FORMAT: u32 = 2;
/// The format in which a passphrase seals every file. It has a number of its own so that older versions refuse it instead of reading sealed
/// files as mail.
const SEALED: u32 = 3;
/// The first format had no sums, and contained neither the lab nor the web gate.
const WITHOUT_SUMS: u32 = 1;

/// Copies the files that a gate writes to while the backup runs.
pub trait GateBackup: Send + Sync {
    /// Copies what must not be older than the records. Called after the records were copied.
    fn copy_after_records<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()>;

    /// Copies the diary, which tells what happened to everything before. Called last.
    fn copy_last<'a>(&'a self, to: &'a Path) -> OperationFuture<'a, ()>;
}

/// The manifest of a backup. It is written last, so a folder without it is not a complete backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupManifest {
    /// The format of the backup.
    pub format: u32,
    /// The version that made it.
    pub version: String,
    /// When it began.
    pub at: String,
    /// Whether the records are in the backup. If not, they are in PostgreSQL and need a dump of their own.
    pub records: bool,
    /// The relay whose data it is.
    pub relay: String,
    /// The SHA-256 sum of its file SHA256SUMS; empty in backups of the first format.
    #[serde(default)]
    pub sums: String,
    /// How it is sealed; missing if everybody who has the backup can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Seal>,
}

/// The result of verifying a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupCheck {
    /// Its manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// Its size in bytes.
    pub bytes: u64,
    /// Files that are not as they were written; one sentence for each.
    pub problems: Vec<String>,
    /// What this check cannot tell.
    pub note: String,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupDone {
    /// Where it is.
    pub folder: PathBuf,
    /// Its manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// How many files of held mail are in it.
    pub held_files: usize,
    /// Its size in bytes.
    pub bytes: u64,
    /// What the operator still has to do.
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
    /// Where the configuration file from the backup is now; missing if the backup contains none.
    pub configuration: Option<PathBuf>,
    /// What the operator still has to do.
    pub note: String,
}

/// The mail that a restore brought back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RestoredMail {
    /// Messages in transit.
    pub messages: usize,
    /// Recipients that are held.
    pub held_recipients: usize,
    /// Held recipients that were settled while the backup was made. They are removed after the restore.
    pub struck_out: usize,
}

/// Makes backups of one data folder. Cheap to clone.
#[derive(Clone)]
pub struct Backup {
    foundation: Foundation,
    audit: AuditTrail,
    gate: Option<Arc<dyn GateBackup>>,
    /// The file with the passphrase for every backup that is asked for without one.
    passphrase_file: Option<PathBuf>,
    /// The configuration file that is in force; none if there are only defaults.
    configuration: Option<PathBuf>,
}

impl Backup {
    /// Makes backups of this folder, with the files that `gate` copies by itself. The passphrase in `passphrase_file` seals every backup
    /// that is asked for without a passphrase.
    pub fn new(foundation: &Foundation, gate: Option<Arc<dyn GateBackup>>, passphrase_file: Option<PathBuf>) -> Backup {
        let (audit, configuration) = (AuditTrail::new(foundation), None);
        Backup { foundation: foundation.clone(), audit, gate, passphrase_file, configuration }
    }

    /// The same, but every backup also contains this configuration file.
    #[must_use]
    pub fn with_configuration(self, file: Option<PathBuf>) -> Backup {
        Backup { configuration: file, ..self }
    }

    /// Makes one more backup in a folder that holds several, each named by its time. Files that have not changed are shared with the newest
    /// earlier backup. Then the oldest backups are removed until `keep` are left; 0 keeps all of them.
    pub async fn make_into(
        &self,
        into: &Path,
        keep: usize,
        passphrase: Option<Passphrase>,
        actor: &Actor,
    ) -> Result<BackupDone, OperationError> {
        let relay = self.foundation.relay.clone();
        let folder = into.to_owned();
        let earlier = blocking(into, move || Series { folder: &folder, relay: &relay }.newest()).await?;
        let at = rfc3339((self.foundation.clock)().0 as i64);
        let to = Series { folder: into, relay: &self.foundation.relay }.place(&at);
        let mut done = self.make_since(&to, earlier, passphrase, actor).await?;
        let (folder, relay) = (into.to_owned(), self.foundation.relay.clone());
        done.removed = blocking(into, move || Series { folder: &folder, relay: &relay }.prune(keep)).await?;
        for removed in &done.removed {
            self.audit.write(actor, "backup.remove", &removed.display().to_string(), String::new()).await?;
        }
        Ok(done)
    }

    /// Copies everything that must survive into the new or empty folder `to`, sealed if there is a passphrase.
    pub async fn make(
        &self,
        to: &Path,
        passphrase: Option<Passphrase>,
        actor: &Actor,
    ) -> Result<BackupDone, OperationError> {
        self.make_since(to, None, passphrase, actor).await
    }

    async fn make_since(
        &self,
        to: &Path,
        earlier: Option<PathBuf>,
        passphrase: Option<Passphrase>,
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
        let passphrase = match (passphrase, &self.passphrase_file) {
            (None, Some(file)) => Some(Passphrase::read(file)?),
            (given, _) => given,
        };
        let begun_ns = (self.foundation.clock)().0;
        let manifest = BackupManifest {
            format: if passphrase.is_some() { SEALED } else { FORMAT },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: rfc3339(begun_ns as i64),
            records: !self.foundation.records.is_shared(),
            relay: self.foundation.relay.clone(),
            sums: String::new(),
            sealed: None,
        };
        make_empty(to)?;
        let (manifest, earlier) = match passphrase {
            None => self.make_open(to, earlier, manifest).await?,
            Some(passphrase) => self.make_sealed(to, earlier, manifest, passphrase).await?,
        };
        let folder = to.to_owned();
        let counted = blocking(to, move || {
            sync_all(&folder)?;
            Ok((count_files(&folder.join("held"))?, total_bytes(&folder)?))
        });
        let (held_files, bytes) = counted.await?;
        self.foundation.set_progress(LAST_BACKUP, &begun_ns.to_string()).await?;
        let sealed = if manifest.sealed.is_some() { ", sealed" } else { "" };
        self.audit.write(actor, "backup", &to.display().to_string(), format!("{bytes} bytes{sealed}")).await?;
        let unread = self.configuration.as_deref().filter(|_| !to.join(CONFIGURATION).exists());
        let unread = unread.map(|file| format!("the configuration {} cannot be read and is not in it", file.display()));
        let notes: Vec<String> =
            unread.into_iter().chain(Some(note(&manifest)).filter(|note| !note.is_empty())).collect();
        Ok(BackupDone {
            folder: to.to_owned(),
            note: notes.join("; "),
            manifest,
            held_files,
            bytes,
            since: earlier,
            removed: Vec::new(),
        })
    }

    /// Makes a backup that is not sealed. The manifest is written last.
    async fn make_open(
        &self,
        to: &Path,
        earlier: Option<PathBuf>,
        unsummed: BackupManifest,
    ) -> Result<(BackupManifest, Option<PathBuf>), OperationError> {
        // A sealed backup cannot share files with one that is not sealed.
        let earlier = earlier.filter(|earlier| read_manifest(earlier).is_ok_and(|known| known.sealed.is_none()));
        self.copy(to, earlier.as_deref()).await?;
        let (data, folder, since) = (self.foundation.folder.path().to_owned(), to.to_owned(), earlier.clone());
        let manifest = blocking(to, move || {
            let sums = sound_sums(&folder, since.as_deref(), |rotten| bring_anew(&data, &folder, rotten))?;
            write_manifest(&folder, &sums, unsummed, None)
        });
        Ok((manifest.await?, earlier))
    }

    /// Makes a sealed backup. The plain files are first gathered in the data folder, mostly as links, so that they never get to where the
    /// backup is.
    async fn make_sealed(
        &self,
        to: &Path,
        earlier: Option<PathBuf>,
        unsummed: BackupManifest,
        passphrase: Passphrase,
    ) -> Result<(BackupManifest, Option<PathBuf>), OperationError> {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _turn = TURN.lock().await;
        let gathered = Gathered(self.foundation.folder.path().join(GATHERED));
        drop(Gathered(gathered.0.clone())); // What a kill has left.
        make_empty(&gathered.0)?;
        self.copy(&gathered.0, None).await?;
        let folder = to.to_owned();
        let sealing = tokio::task::spawn_blocking(move || {
            let (key, earlier) = shared_key(earlier, &passphrase);
            let seal = key.wrapped(&passphrase)?;
            let unsummed = BackupManifest { sealed: Some(seal), ..unsummed };
            let sealed = || {
                seal_folder(&key, &gathered.0, &folder, earlier.as_deref())?;
                let anew = |rotten: &[PathBuf]| seal_anew(&key, &gathered.0, &folder, rotten);
                let sums = sound_sums(&folder, earlier.as_deref(), anew)?;
                write_manifest(&folder, &sums, unsummed, Some(&key))
            };
            let manifest = sealed().map_err(|error| cannot_write(&folder, &error))?;
            Ok((manifest, earlier))
        });
        sealing.await.map_err(|error| OperationError::Failed(error.to_string()))?
    }

    /// Copies everything to an empty folder. The head of this file explains the order.
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
        if let Some(gate) = &self.gate {
            gate.copy_after_records(to).await?;
        }
        link().await?;
        self.copy_beside(to).await?;
        self.copy_configuration(to).await?;
        match &self.gate {
            Some(gate) => gate.copy_last(to).await,
            None => Ok(()),
        }
    }

    /// Copies the index of messages and the figures of the past. If the records are shared, both are in the shared database and nothing is
    /// copied here. The index knows how far it has read the diary, so it must not be newer than the diary, which the gate copies later.
    async fn copy_beside(&self, to: &Path) -> Result<(), OperationError> {
        if self.foundation.records.is_shared() {
            return Ok(());
        }
        let folder = &self.foundation.folder;
        for file in [folder.tracking(), folder.past()] {
            if let Some(name) = file.file_name().filter(|_| file.exists()) {
                copy_database(&file, &to.join(name)).await?;
            }
        }
        Ok(())
    }
}

impl Backup {
    /// Copies the configuration file as it is now. If it cannot be read, the backup is made without it.
    async fn copy_configuration(&self, to: &Path) -> Result<(), OperationError> {
        let Some(file) = self.configuration.clone() else { return Ok(()) };
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "the configuration is not in the backup: it cannot be read");
                return Ok(());
            }
        };
        let target = to.join(CONFIGURATION);
        blocking(to, move || {
            if let Some(folder) = target.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            write_private(&target, &text)
        })
        .await
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("foundation", &self.foundation).finish_non_exhaustive()
    }
}

/// The key of the earlier backup, if the passphrase opens it: then the new backup can share its files. Otherwise a new key.
fn shared_key(earlier: Option<PathBuf>, passphrase: &Passphrase) -> (BackupKey, Option<PathBuf>) {
    let seal = earlier.as_deref().and_then(|earlier| read_manifest(earlier).ok()?.sealed);
    match seal.and_then(|seal| BackupKey::open(&seal, passphrase).ok()) {
        Some(key) => (key, earlier),
        None => (BackupKey::fresh(), None),
    }
}

/// Writes the sums and the manifest. The manifest makes the folder a complete backup, so it is written last.
fn write_manifest(
    folder: &Path,
    sums: &[u8],
    unsummed: BackupManifest,
    key: Option<&BackupKey>,
) -> io::Result<BackupManifest> {
    write_file(&folder.join(sums::SUMS), sums)?;
    let mut manifest = BackupManifest { sums: sums::of_bytes(sums), ..unsummed };
    if let Some(key) = key {
        let proof = key.proof(&manifest);
        manifest.sealed = manifest.sealed.map(|seal| Seal { proof, ..seal });
    }
    sync_all(folder)?;
    write_file(&folder.join(MANIFEST), &serde_json::to_vec_pretty(&manifest)?)?;
    Ok(manifest)
}

/// The folder of plain files that are gathered for a sealed backup. It is removed when this is dropped, however the backup ends.
struct Gathered(PathBuf);

impl Drop for Gathered {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %self.0.display(), "what was gathered for a backup cannot be removed");
        }
    }
}

/// The sums of a new backup. If a file is shared with the earlier backup and was damaged there since, it is copied again: otherwise the new
/// sums would declare the damaged file good.
fn sound_sums(
    folder: &Path,
    earlier: Option<&Path>,
    anew: impl FnOnce(&[PathBuf]) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let sums = sums::of_folder(folder)?;
    let Some(known) = earlier.and_then(|earlier| fs::read(earlier.join(sums::SUMS)).ok()) else { return Ok(sums) };
    let rotten: Vec<PathBuf> = sums::unlike(&known, &sums).into_iter().filter(|path| is_unchanged(path)).collect();
    if rotten.is_empty() {
        return Ok(sums);
    }
    tracing::warn!(files = rotten.len(), "an earlier backup is damaged or was changed; its files are copied again");
    anew(&rotten)?;
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

fn make_empty(to: &Path) -> Result<(), OperationError> {
    let fail = |error: io::Error| cannot_write(to, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(fail)?;
    if fs::read_dir(to).map_err(fail)?.next().is_some() {
        let hint = "a backup goes into a new or empty folder";
        return Err(OperationError::conflict(format!("{} is not empty", to.display()), hint));
    }
    Ok(())
}
