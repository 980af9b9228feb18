//! Checks whether all keys that sign outgoing mail can be used. If one cannot, the mail gate does not start.

use serde::Serialize;
use std::path::Path;
use weir_smtp::dkim::{KeyError, key_files};

/// A key of the data folder.
#[derive(Debug, Serialize)]
pub(super) struct KeyView {
    domain: String,
    selector: String,
    /// Its algorithm; none if it cannot be used.
    algorithm: Option<&'static str>,
    /// Why it cannot be used.
    problem: Option<String>,
}

/// All keys of a data folder; an error if the folder with the keys cannot be read.
pub(super) fn look(folder: &Path) -> Result<Vec<KeyView>, KeyError> {
    let files = key_files(&folder.join("keys/dkim"))?;
    let view = files.into_iter().map(|file| {
        let (algorithm, problem) = match file.read() {
            Ok(key) => (Some(key.algorithm().name()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        KeyView { domain: file.domain, selector: file.selector, algorithm, problem }
    });
    Ok(view.collect())
}

impl KeyView {
    /// A line for people, if the key can be used.
    pub(super) fn line(&self) -> Option<String> {
        let algorithm = self.algorithm?;
        Some(format!("DKIM key {} of {}: {algorithm}, can be used", self.selector, self.domain))
    }

    /// The warning, if it cannot be used.
    pub(super) fn warning(&self) -> Option<String> {
        self.problem.as_ref().map(|problem| unusable(problem))
    }
}

/// The warning about a key, or a folder of keys, that the user who asks cannot use.
pub(super) fn unusable(problem: &dyn std::fmt::Display) -> String {
    format!(
        "a DKIM key cannot be used, so the mail gate would not start if you ran it: {problem}; make another key with \
         `weir dkim add`, or move the file away"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use weir_smtp::dkim::{Algorithm, generate};

    #[test]
    fn each_key_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        assert!(look(folder.path()).unwrap().is_empty(), "no folder, no keys");
        let keys = folder.path().join("keys/dkim/example.org");
        fs::create_dir_all(&keys).unwrap();
        let (pem, _) = generate("example.org", "s1", Algorithm::Ed25519).unwrap();
        fs::write(keys.join("s1.pem"), &pem).unwrap();
        fs::write(keys.join("s1.txt"), "a record").unwrap();
        fs::write(keys.join("s2.pem"), &pem[..pem.len() / 2]).unwrap();
        fs::write(keys.join("s3.pem"), b"\xff\xfe").unwrap();
        let seen = look(folder.path()).unwrap();
        let selectors: Vec<&str> = seen.iter().map(|key| key.selector.as_str()).collect();
        assert_eq!(selectors, ["s1", "s2", "s3"]);
        assert_eq!(seen[0].line().as_deref(), Some("DKIM key s1 of example.org: ed25519-sha256, can be used"));
        assert_eq!(seen[0].warning(), None);
        for broken in &seen[1..] {
            assert_eq!(broken.line(), None);
            let warning = broken.warning().unwrap();
            assert!(warning.contains(&format!("{}.pem", broken.selector)), "{warning}");
        }
    }
}
