//! Writes files of the configuration in one step: nobody ever reads half a file, and after a power cut there is the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path`, or makes it. The new file begins with these permissions; then `dress` gives it others, or another owner.
pub(super) fn replace(
    path: &Path,
    text: &str,
    mode: u32,
    dress: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The name begins with a dot, because nginx reads all other files in some folders.
    let beside = path.with_file_name(format!(".{name}.weir-new"));
    // What an earlier try left behind may have other permissions, or may be open in another program.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(text.as_bytes())?;
    dress(&file)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_in_a_file_is_never_readable_for_others_on_its_way() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("site.conf"), folder.path().join(".site.conf.weir-new"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(&beside, "left behind").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        let undressed = |_: &File| {
            assert_eq!((mode(&beside), fs::read_to_string(&beside).unwrap()), (0o600, "one".to_owned()));
            Ok(())
        };
        replace(&path, "one", 0o600, undressed).unwrap();
        assert_eq!((mode(&path), beside.exists()), (0o600, false));
        replace(&path, "two", 0o600, |file| file.set_permissions(fs::Permissions::from_mode(0o640))).unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap()), (0o640, "two".to_owned()));
        replace(&path, "three", 0o600, |_| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }
}
