//! Restoring a backup: how it is verified, and how it becomes a data folder again.

use super::files::{blocking, copy_back, total_bytes, write_private};
use super::sealed::{BackupKey, Passphrase};
use super::{BackupCheck, BackupManifest, RestoreDone, RestoredMail, note, sums};
use super::{CONFIGURATION, MANIFEST, RESTORED_CONFIGURATION, SEALED, WITHOUT_SUMS};
use crate::OperationError;
use crate::clock::wall_clock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use weir_store::folder::DataFolder;
use weir_store::records::{AuditLine, Records};

/// A backup that was verified and can be restored.
#[derive(Debug)]
pub struct SoundBackup {
    from: PathBuf,
    manifest: BackupManifest,
    key: Option<BackupKey>,
}

impl SoundBackup {
    /// Verifies a backup and opens its seal if it has one. Writes nothing.
    pub async fn check(from: &Path, passphrase: Option<&Passphrase>) -> Result<SoundBackup, OperationError> {
        let manifest = read_manifest(from)?;
        if manifest.sealed.is_some() && passphrase.is_none() {
            let hint = "name the file that holds it with --passphrase-file";
            return Err(OperationError::invalid("the backup is sealed by a passphrase", hint));
        }
        let key = key_of(&manifest, passphrase).await?;
        let BackupCheck { manifest, problems, .. } = look_through(from, manifest, key.clone()).await?;
        if let Some(first) = problems.first() {
            let what = format!("{} is damaged or was changed: {first}", from.display());
            return Err(OperationError::conflict(what, "`weir backup verify` lists everything; take another backup"));
        }
        Ok(SoundBackup { from: from.to_owned(), manifest, key })
    }

    /// Restores the backup into a data folder that is still empty. `settle` lets the mail gate reconcile the mail that was restored.
    pub async fn restore(
        self,
        folder: &DataFolder,
        settle: impl AsyncFnOnce(&DataFolder, &BackupManifest) -> Result<RestoredMail, OperationError>,
    ) -> Result<RestoreDone, OperationError> {
        if folder.records().exists() || fs::read_dir(folder.held()).is_ok_and(|mut files| files.next().is_some()) {
            let hint = "restore into a new folder, then move it where you want it";
            return Err(OperationError::conflict(format!("{} is in use already", folder.path().display()), hint));
        }
        let SoundBackup { from, manifest, key } = self;
        let target = folder.path().to_owned();
        let configuration = blocking(folder.path(), move || {
            copy_back(&from, &target, key.as_ref())?;
            restore_configuration(&from, &target, key.as_ref())
        })
        .await?;
        let mail = settle(folder, &manifest).await?;
        if manifest.records {
            note_restore(folder, &manifest).await?;
        }
        let data = folder.path().to_owned();
        Ok(RestoreDone { data, mail, configuration, note: note(&manifest), manifest })
    }
}

/// Puts the configuration file of the backup into the data folder under a name that is still free. It takes effect only when a person moves
/// it to its place.
fn restore_configuration(from: &Path, to: &Path, key: Option<&BackupKey>) -> io::Result<Option<PathBuf>> {
    let (name, mut text) = (Path::new(CONFIGURATION), Vec::new());
    if !from.join(name).exists() {
        return Ok(None);
    }
    match key {
        Some(key) => key.open_file(name, &from.join(name), &mut text)?,
        None => text = fs::read(from.join(name))?,
    }
    for number in 1.. {
        let end = if number == 1 { String::new() } else { format!(".{number}") };
        let place = to.join(format!("{RESTORED_CONFIGURATION}{end}"));
        match write_private(&place, &text) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => return written.map(|()| Some(place)),
        }
    }
    Ok(None)
}

/// Compares a backup with its sums. With a passphrase, the content of each sealed file is checked too.
pub async fn verify(from: &Path, passphrase: Option<&Passphrase>) -> Result<BackupCheck, OperationError> {
    let manifest = read_manifest(from)?;
    let key = key_of(&manifest, passphrase).await?;
    look_through(from, manifest, key).await
}

async fn key_of(
    manifest: &BackupManifest,
    passphrase: Option<&Passphrase>,
) -> Result<Option<BackupKey>, OperationError> {
    let (Some(passphrase), seal) = (passphrase.cloned(), manifest.sealed.clone()) else { return Ok(None) };
    let Some(seal) = seal else {
        // Somebody may have replaced a sealed backup by one that is not sealed.
        let hint = "leave --passphrase-file out if you know that it is yours";
        return Err(OperationError::conflict("the backup is not sealed by a passphrase", hint));
    };
    let opened = tokio::task::spawn_blocking(move || BackupKey::open(&seal, &passphrase)).await;
    opened.map_err(|error| OperationError::Failed(error.to_string()))?.map(Some)
}

async fn look_through(
    from: &Path,
    manifest: BackupManifest,
    key: Option<BackupKey>,
) -> Result<BackupCheck, OperationError> {
    let (folder, known, opened) = (from.to_owned(), manifest.clone(), key.is_some());
    let (problems, bytes) = blocking(from, move || {
        let problems = if known.format == WITHOUT_SUMS { Vec::new() } else { compare(&folder, &known, key.as_ref())? };
        Ok((problems, total_bytes(&folder)?))
    })
    .await?;
    let note = match manifest.format {
        WITHOUT_SUMS => "it has no sums, because an older version made it: only that it is complete can be said",
        SEALED if !opened => "it is sealed: with --passphrase-file it is also seen whether the passphrase opens it",
        _ => "",
    };
    Ok(BackupCheck { manifest, bytes, problems, note: note.to_owned() })
}

fn compare(folder: &Path, manifest: &BackupManifest, key: Option<&BackupKey>) -> io::Result<Vec<String>> {
    let sums = match fs::read(folder.join(sums::SUMS)) {
        Err(error) => return Ok(vec![format!("{}: {error}", sums::SUMS)]),
        Ok(sums) if sums::of_bytes(&sums) != manifest.sums => return Ok(vec![format!("{} has changed", sums::SUMS)]),
        Ok(sums) => sums,
    };
    let mut problems = sums::differences(folder, &sums)?;
    let Some(key) = key else { return Ok(problems) };
    if manifest.sealed.as_ref().is_none_or(|seal| seal.proof != key.proof(manifest)) {
        problems.push(format!("{MANIFEST} was changed by somebody who does not know the passphrase"));
    }
    for path in sums::files(folder)? {
        match key.open_file(&path, &folder.join(&path), &mut io::sink()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                problems.push(format!("{}: {error}", path.display()));
            }
            opened => opened?,
        }
    }
    Ok(problems)
}

/// Changes that were under way in the copied records, first of all the backup itself, did not really end unfinished, so they are struck
/// out. A line in the trail explains to its readers why it goes back in time.
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

pub(super) fn read_manifest(from: &Path) -> Result<BackupManifest, OperationError> {
    let hint = "name a folder that `weir backup` has written to its end";
    let bad = |why: String| OperationError::invalid(format!("{} is no backup: {why}", from.display()), hint);
    let text = fs::read(from.join(MANIFEST)).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
    let manifest: BackupManifest = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if !(WITHOUT_SUMS..=SEALED).contains(&manifest.format) {
        return Err(bad(format!("it has form {}, this Weir knows forms up to {SEALED}", manifest.format)));
    }
    Ok(manifest)
}
