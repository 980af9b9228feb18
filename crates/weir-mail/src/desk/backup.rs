//! A copy of the data folder while the gate runs, and the way back.
//!
//! What was acknowledged before the backup began and is not settled when it ends is in it; what was under way may be
//! sent twice after a restore, never not at all. The order brings that about: files of held mail are linked before and after
//! the records are copied, and once more after the spool. A held message that goes in between leaves the records
//! only after it is in the spool, and the spool is copied later. Held recipients whose message ended up nowhere were
//! taken in and settled while the backup ran; a restore strikes them out. Links instead of copies where the target is on the
//! same file system: these files are never changed in place. The diary, which is, is copied last: it says most.
//!
//! Records in PostgreSQL are left to `pg_dump`, which should run *before*. Delivered mail is not part of a backup.

use super::{Actor, Desk, DeskError, when};
use crate::gate::wall_clock;
use crate::throttle::{Command, Throttling};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_store::diary;
use weir_store::folder::DataFolder;
use weir_store::records::{HeldFilter, Records, RecordsError};
use weir_store::spool::{Options, Spool};
use weir_store::unless_gone;

const MANIFEST: &str = "backup.json";
const FORMAT: u32 = 1;
/// Folders of plain files.
const PLAIN: [&str; 4] = ["held", "quarantine", "keys", "tls"];
/// What happened to each message; backups of older versions have none.
const DIARY: &str = "diary";

/// Written last: a folder without it is no backup, or half of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
}

/// What a restore brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreDone {
    /// The data folder.
    pub data: PathBuf,
    /// The backup's manifest.
    #[serde(flatten)]
    pub manifest: BackupManifest,
    /// Messages in transit.
    pub messages: usize,
    /// Recipients that are held.
    pub held_recipients: usize,
    /// Held recipients that were settled while the backup was made, and are struck out.
    pub struck_out: usize,
    /// What the operator must do besides.
    pub note: String,
}

impl Desk {
    /// Copies everything that must survive to the new or empty folder `to`.
    pub async fn backup(&self, to: &Path, actor: &Actor) -> Result<BackupDone, DeskError> {
        if !to.is_absolute() {
            return Err(DeskError::invalid("the folder of a backup must be an absolute path", "begin it with a /"));
        }
        if to.starts_with(self.parts.folder.path()) {
            let hint = "choose a folder elsewhere, best on another disk";
            return Err(DeskError::invalid("a backup inside the data folder would not outlive it", hint));
        }
        let manifest = BackupManifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: when(self.now().0 as i64),
            records: !self.records().is_shared(),
            relay: self.parts.rules.relay.clone(),
        };
        make_empty(to)?;
        self.copy(to).await?;
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        let (from, folder) = (self.parts.folder.path().to_owned(), to.to_owned());
        let (diary, lines) = (self.parts.house.diary(), self.parts.folder.diary());
        let (held_files, bytes) = blocking(to, move || {
            link_plain(&from, &folder)?;
            diary.settle();
            diary::copy(&lines, &folder.join(DIARY))?;
            let counted = (count_files(&folder.join("held"))?, total_bytes(&folder)?);
            write_file(&folder.join(MANIFEST), &text)?;
            sync_all(&folder)?;
            Ok(counted)
        })
        .await?;
        self.audit(actor, "backup", &to.display().to_string(), format!("{bytes} bytes")).await?;
        Ok(BackupDone { folder: to.to_owned(), note: note(&manifest), manifest, held_files, bytes })
    }

    async fn copy(&self, to: &Path) -> Result<(), DeskError> {
        let link = || {
            let (from, to) = (self.parts.folder.path().to_owned(), to.to_owned());
            let at = to.clone();
            async move { blocking(&at, move || link_plain(&from, &to)).await }
        };
        link().await?;
        match self.records().backup(&to.join("records.db")).await {
            Ok(()) | Err(RecordsError::BackupElsewhere) => {}
            Err(error) => return Err(error.into()),
        }
        link().await?;
        self.parts.house.spool().await?.snapshot(to.join("spool")).await?;
        Ok(())
    }
}

/// Brings a backup back into a data folder that has nothing in it yet.
pub async fn restore(from: &Path, folder: &DataFolder) -> Result<RestoreDone, DeskError> {
    let manifest = read_manifest(from)?;
    if folder.records().exists() || fs::read_dir(folder.held()).is_ok_and(|mut files| files.next().is_some()) {
        let hint = "restore into a new folder, then move it where you want it";
        return Err(DeskError::conflict(format!("{} is in use already", folder.path().display()), hint));
    }
    let (source, target) = (from.to_owned(), folder.path().to_owned());
    blocking(folder.path(), move || copy_back(&source, &target)).await?;
    let (spool, found) = {
        let folder = folder.spool();
        let opened = tokio::task::spawn_blocking(move || Spool::open(folder, Options::default())).await;
        opened.map_err(|error| DeskError::Failed(error.to_string()))??
    };
    drop(spool);
    let in_transit: BTreeSet<String> = found.iter().map(|found| found.id.to_string()).collect();
    let (held_recipients, struck_out) = match manifest.records {
        true => strike_out(folder, &manifest.relay, &in_transit).await?,
        false => (0, 0),
    };
    Ok(RestoreDone {
        data: folder.path().to_owned(),
        messages: found.len(),
        held_recipients,
        struck_out,
        note: note(&manifest),
        manifest,
    })
}

/// Removes held recipients whose message is nowhere; how many stay and how many went.
async fn strike_out(
    folder: &DataFolder,
    relay: &str,
    in_transit: &BTreeSet<String>,
) -> Result<(usize, usize), DeskError> {
    let records = Records::sqlite(&folder.records()).await?;
    let rows = records.held(&HeldFilter::default(), i64::MAX).await?;
    let lost = |message: &str| !in_transit.contains(message) && !folder.held().join(format!("{message}.eml")).exists();
    let gone: Vec<_> = rows.iter().filter(|row| lost(&row.message)).collect();
    let mut entries = BTreeMap::<&str, Vec<i64>>::new();
    gone.iter().for_each(|row| entries.entry(&row.identity).or_default().push(row.entry));
    let throttling = Throttling::start(records.clone(), Arc::new(wall_clock));
    for (identity, entries) in entries {
        throttling.command(identity, Command::Delete(entries)).await?;
    }
    // Both those just struck out and those decided while the backup was made.
    let decided = records.held_decided(relay, "", i64::MAX).await?;
    let decided = decided.into_iter().filter(|row| lost(&row.message)).map(|row| (row.identity, row.entry));
    records.held_done(&decided.collect::<Vec<_>>()).await?;
    records.close().await;
    Ok((rows.len() - gone.len(), gone.len()))
}

fn note(manifest: &BackupManifest) -> String {
    match manifest.records {
        true => String::new(),
        false => {
            "the records are in PostgreSQL: a dump made by pg_dump shortly before belongs to this backup".to_owned()
        }
    }
}

fn read_manifest(from: &Path) -> Result<BackupManifest, DeskError> {
    let hint = "name a folder that `weir backup` has written to its end";
    let bad = |why: String| DeskError::invalid(format!("{} is no backup: {why}", from.display()), hint);
    let text = fs::read(from.join(MANIFEST)).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
    let manifest: BackupManifest = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if manifest.format != FORMAT {
        return Err(bad(format!("it has form {}, this Weir knows {FORMAT}", manifest.format)));
    }
    Ok(manifest)
}

fn make_empty(to: &Path) -> Result<(), DeskError> {
    let fail = |error: io::Error| cannot(to, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(fail)?;
    if fs::read_dir(to).map_err(fail)?.next().is_some() {
        let hint = "a backup goes into a new or empty folder";
        return Err(DeskError::conflict(format!("{} is not empty", to.display()), hint));
    }
    Ok(())
}

fn cannot(path: &Path, error: &io::Error) -> DeskError {
    let hint = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "Weir itself writes there; under systemd it may write below /var/backups/weir, and where ReadWritePaths of its unit says"
        }
        _ => "Weir itself writes there, so its user needs the permission and the space",
    };
    DeskError::conflict(format!("cannot write {}: {error}", path.display()), hint)
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, DeskError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten();
    done.map_err(|error| cannot(path, &error))
}

/// Links what is not there yet; files that vanish meanwhile are settled.
fn link_plain(from: &Path, to: &Path) -> io::Result<()> {
    for folder in PLAIN {
        link_folder(&from.join(folder), &to.join(folder))?;
    }
    for file in ["format", "relay"] {
        bring(&from.join(file), &to.join(file))?;
    }
    Ok(())
}

fn link_folder(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in entries(from)? {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let unfinished = source.extension().is_some_and(|end| end == "tmp" || end == "new");
        match entry.file_type()? {
            kind if kind.is_dir() => link_folder(&source, &target)?,
            kind if kind.is_file() && !unfinished => bring(&source, &target)?,
            _ => {}
        }
    }
    Ok(())
}

/// A link, or a copy onto another file system. Nothing if the source is gone or the target is there.
fn bring(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(()),
        Err(_) => unless_gone(fs::copy(from, to)).map(drop),
        Ok(()) => Ok(()),
    }
}

/// A restore copies: the backup must stay whole whatever becomes of the data folder.
fn copy_back(from: &Path, to: &Path) -> io::Result<()> {
    for folder in PLAIN.iter().chain(&["spool", DIARY]) {
        copy_folder(&from.join(folder), &to.join(folder))?;
    }
    for file in ["relay", "records.db"] {
        if from.join(file).exists() {
            fs::copy(from.join(file), to.join(file))?;
        }
    }
    sync_all(to)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in entries(from)? {
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn count_files(folder: &Path) -> io::Result<usize> {
    Ok(entries(folder)?.iter().filter(|entry| entry.path().extension().is_some_and(|end| end == "eml")).count())
}

fn total_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in entries(folder)? {
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { total_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes every file and every name below durable.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in entries(folder)? {
        match entry.file_type()?.is_dir() {
            true => sync_all(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_write_hears_whose_rule_that_is() {
        let said = |kind: io::ErrorKind| cannot(Path::new("/backup"), &kind.into()).hint().to_owned();
        assert!(said(io::ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("permission"));
    }
}
