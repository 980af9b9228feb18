//! The files of a backup: hard links where possible when it is made, copies when it is restored.

use super::sealed::{BackupKey, sealed_length};
use super::sums;
use crate::OperationError;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use weir_store::unless_gone;

/// The folders of the data folder whose files are never changed in place, so they can be linked.
const PLAIN: [&str; 5] = ["held", "quarantine", "keys", "tls", "lab/samples"];
/// Those of these folders in which a name always stands for the same content. An earlier backup may have such a file already.
const UNCHANGED: [&str; 3] = ["held", "quarantine", "lab/samples"];
/// Folders whose files may change in place, so they are copied: the machine's identity in its lab, samples that wait in numbered
/// directories, and the secret and the history of the web gate.
const CHANGED: [&str; 3] = ["lab/node", "lab/analysis", "web"];
/// Parts of these folders that only the running process needs.
const LEFT_OUT: [&str; 3] = ["lab/samples/incoming", "web/buffers", "web/life"];
/// Folders that the gate copies by itself. Backups of older versions contain no diary.
const BY_GATE: [&str; 2] = ["spool", "diary"];

/// The error when a file of a backup cannot be written, with a hint about what to do.
pub fn cannot_write(path: &Path, error: &io::Error) -> OperationError {
    let hint = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "Weir itself writes there; under systemd it may write below /var/backups/weir, and where ReadWritePaths of its unit says"
        }
        _ => "Weir itself writes there, so its user needs the permission and the space",
    };
    OperationError::conflict(format!("cannot write {}: {error}", path.display()), hint)
}

pub(super) async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, OperationError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten();
    done.map_err(|error| cannot_write(path, &error))
}

/// Links the files that are not in the backup yet. A file that vanishes meanwhile belongs to mail that was settled, so it is skipped. If
/// the data folder is on another file system than the backup, files that `earlier` already has are linked from there.
pub(super) fn link_plain(from: &Path, to: &Path, earlier: Option<&Path>) -> io::Result<()> {
    let left_out = LEFT_OUT.map(|path| from.join(path));
    for folder in PLAIN {
        let earlier = earlier.filter(|_| UNCHANGED.contains(&folder)).map(|earlier| earlier.join(folder));
        bring_folder((&from.join(folder), &to.join(folder), earlier.as_deref()), &left_out, bring)?;
    }
    for folder in CHANGED {
        bring_folder((&from.join(folder), &to.join(folder), None), &left_out, |from, to, _| copy(from, to))?;
    }
    for file in ["format", "relay"] {
        bring(&from.join(file), &to.join(file), None)?;
    }
    Ok(())
}

/// Whether a file is in a folder of [`UNCHANGED`].
pub(super) fn is_unchanged(path: &Path) -> bool {
    UNCHANGED.iter().any(|folder| path.starts_with(folder))
}

/// Copies these files from the data folder after all, because the copies in the earlier backup are no longer as they were written.
pub(super) fn bring_anew(from: &Path, to: &Path, paths: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        fs::remove_file(to.join(path))?;
        copy(&from.join(path), &to.join(path))?;
    }
    Ok(())
}

fn bring_folder(
    (from, to, earlier): (&Path, &Path, Option<&Path>),
    left_out: &[PathBuf],
    file: fn(&Path, &Path, Option<&Path>) -> io::Result<()>,
) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in entries(from)? {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let earlier = earlier.map(|earlier| earlier.join(entry.file_name()));
        let unfinished = source.extension().is_some_and(|end| end == "tmp" || end == "new");
        match entry.file_type()? {
            _ if left_out.contains(&source) => {}
            kind if kind.is_dir() => bring_folder((&source, &target, earlier.as_deref()), left_out, file)?,
            kind if kind.is_file() && !unfinished => file(&source, &target, earlier.as_deref())?,
            _ => {}
        }
    }
    Ok(())
}

/// Copies the present content; does nothing if the source is gone.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    unless_gone(fs::copy(from, to)).map(drop)
}

/// Links a file. Onto another file system it is copied, unless an earlier backup there has it. Does nothing if the source is gone or the
/// target already exists.
fn bring(from: &Path, to: &Path, earlier: Option<&Path>) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(()),
        Err(_) if earlier.is_some_and(|earlier| is_as_long(from, earlier) && fs::hard_link(earlier, to).is_ok()) => {
            Ok(())
        }
        Err(_) => unless_gone(fs::copy(from, to)).map(drop),
        Ok(()) => Ok(()),
    }
}

fn is_as_long(one: &Path, other: &Path) -> bool {
    let length = |path: &Path| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|facts| facts.len());
    length(one).is_some_and(|length_of_one| length(other) == Some(length_of_one))
}

/// Writes every file of a folder to another folder, sealed. Files that `earlier` has, sealed with the same key, are linked instead.
pub(super) fn seal_folder(key: &BackupKey, from: &Path, to: &Path, earlier: Option<&Path>) -> io::Result<()> {
    for path in sums::files(from)? {
        let (source, target) = (from.join(&path), to.join(&path));
        if let Some(folder) = target.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let shared = earlier.filter(|_| is_unchanged(&path)).map(|earlier| earlier.join(&path));
        let length = sealed_length(source.metadata()?.len());
        let same = |shared: &PathBuf| shared.metadata().is_ok_and(|facts| facts.is_file() && facts.len() == length);
        if !shared.is_some_and(|shared| same(&shared) && fs::hard_link(&shared, &target).is_ok()) {
            key.seal_file(&path, &source, &target)?;
        }
    }
    Ok(())
}

/// Seals these files after all, because the copies in the earlier backup are no longer as they were written.
pub(super) fn seal_anew(key: &BackupKey, from: &Path, to: &Path, paths: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        fs::remove_file(to.join(path))?;
        key.seal_file(path, &from.join(path), &to.join(path))?;
    }
    Ok(())
}

/// Copies a backup into a data folder. It never links, because the backup must stay whole whatever happens to the data folder.
pub(super) fn copy_back(from: &Path, to: &Path, key: Option<&BackupKey>) -> io::Result<()> {
    for folder in PLAIN.iter().chain(&CHANGED).chain(&BY_GATE) {
        copy_folder((from, to), Path::new(folder), key)?;
    }
    for file in ["relay", "records.db", "tracking.db", "past.db"] {
        if from.join(file).exists() {
            restore_file((from, to), Path::new(file), key)?;
        }
    }
    sync_all(to)
}

fn copy_folder((from, to): (&Path, &Path), folder: &Path, key: Option<&BackupKey>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to.join(folder))?;
    for entry in entries(&from.join(folder))? {
        let path = folder.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder((from, to), &path, key)?,
            false => restore_file((from, to), &path, key)?,
        }
    }
    Ok(())
}

fn restore_file((from, to): (&Path, &Path), path: &Path, key: Option<&BackupKey>) -> io::Result<()> {
    match key {
        Some(key) => key.open_to(path, &from.join(path), &to.join(path)),
        None => fs::copy(from.join(path), to.join(path)).map(drop),
    }
}

fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(super) fn count_files(folder: &Path) -> io::Result<usize> {
    Ok(entries(folder)?.iter().filter(|entry| entry.path().extension().is_some_and(|end| end == "eml")).count())
}

pub(super) fn total_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in entries(folder)? {
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { total_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a new file that only Weir's user can read. If the file exists already, it stays as it is and this is an error.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes every file and every name below durable.
pub(super) fn sync_all(folder: &Path) -> io::Result<()> {
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
        let said = |kind: io::ErrorKind| cannot_write(Path::new("/backup"), &kind.into()).hint().to_owned();
        assert!(said(io::ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("permission"));
    }

    #[test]
    fn what_an_earlier_backup_has_is_not_copied_again() {
        use std::os::unix::fs::MetadataExt;
        let (data, disk) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (disk.path().join("first"), disk.path().join("second"));
        fs::create_dir_all(data.path().join("lab/samples/ab")).unwrap();
        fs::create_dir_all(data.path().join("keys")).unwrap();
        for (file, content) in [("lab/samples/ab/1", "one"), ("keys/dkim", "old"), ("format", "1"), ("relay", "r")] {
            fs::write(data.path().join(file), content).unwrap();
        }
        link_plain(data.path(), &first, None).unwrap();
        fs::write(data.path().join("lab/samples/ab/2"), "two").unwrap();
        fs::remove_file(data.path().join("keys/dkim")).unwrap();
        fs::write(data.path().join("keys/dkim"), "new").unwrap();
        link_plain(data.path(), &second, Some(&first)).unwrap();
        let facts = |folder: &Path, file: &str| fs::metadata(folder.join(file)).unwrap();
        let elsewhere = facts(data.path(), "format").dev() != facts(disk.path(), "").dev();
        let shared = facts(&first, "lab/samples/ab/1").ino() == facts(&second, "lab/samples/ab/1").ino();
        assert!(
            shared,
            "on the data folder's own disk both are links to its file, elsewhere one is a link to the other: {elsewhere}"
        );
        assert_eq!(fs::read(second.join("lab/samples/ab/2")).unwrap(), b"two");
        assert_eq!(fs::read(second.join("keys/dkim")).unwrap(), b"new", "the same name, and not the same key");
        assert!(is_unchanged(Path::new("lab/samples/ab/1")) && !is_unchanged(Path::new("keys/dkim")));
        bring_anew(data.path(), &second, &["lab/samples/ab/1".into()]).unwrap();
        assert_ne!(facts(&first, "lab/samples/ab/1").ino(), facts(&second, "lab/samples/ab/1").ino());
    }
}
