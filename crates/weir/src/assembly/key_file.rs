//! Reads files that hold a secret, and creates them at the first start.

use anyhow::{Context, bail};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_web::identity::{self, Secret};

/// Reads a shared key. If every user of this machine can read the file, that is an error.
pub(crate) fn read_key(path: &Path) -> anyhow::Result<Secret> {
    let place = || format!("key file {}", path.display());
    let file = File::open(path).with_context(place)?;
    let mode = file.metadata().with_context(place)?.permissions().mode();
    if mode & 0o007 != 0 {
        bail!("{}: every user of this machine can read it\n  hint: chmod 600 {}", place(), path.display());
    }
    let mut text = String::new();
    let read = file.take(Secret::MOST_BYTES as u64 + 100).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::other("not text"),
        _ => error,
    })
    .with_context(place)?;
    Secret::from_text(&text).with_context(place)
}

/// Reads the web cluster's secret from its file. Without a file, Weir makes one of its own at the first start.
pub(super) fn secret(from: &identity::Settings, data: &Path) -> anyhow::Result<Secret> {
    if let Some(file) = &from.secret_file {
        return read_key(file);
    }
    let own = data.join("web").join("secret");
    if !own.exists() {
        make_key(&own).with_context(|| format!("cannot write {}", own.display()))?;
    }
    read_key(&own)
}

/// Makes a key of 256 random bits, written as text that only we can read. It is durable when this returns, because cookies that are signed
/// with it will come back.
fn make_key(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut random = [0; 32];
    weir_store::random(&mut random)?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    weir_tls::write_private(path, &format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_made_can_be_read_by_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("web/secret"), folder.path().join("web/other"));
        fs::create_dir_all(one.parent().unwrap()).unwrap();
        fs::write(one.with_extension("new"), "left behind by a crash").unwrap();
        make_key(&one).unwrap();
        make_key(&other).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!one.with_extension("new").exists());
        let derived = |path: &Path| read_key(path).unwrap().derive("x");
        assert_ne!(derived(&one), derived(&other));
    }

    #[test]
    fn a_key_that_everybody_may_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        make_key(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_key(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
