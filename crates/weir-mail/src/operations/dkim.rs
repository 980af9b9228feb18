//! Keys that sign outgoing mail, made and listed.
//!
//! A key is `keys/dkim/DOMAIN/SELECTOR.pem`, with the record to publish beside it in `SELECTOR.txt`. The newest selector of a
//! domain, in the order of the alphabet, signs; older keys stay until all mail that they signed has arrived.

use super::{Actor, Backend, OperationError, OperationsParts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_smtp::dkim::{Algorithm, DnsRecord, KeyError, generate};
use weir_store::folder::DataFolder;

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The domain of the senders.
    pub domain: String,
    /// The name under which it is published; one with today's month if empty.
    #[serde(default)]
    pub selector: String,
    /// `rsa`, which everybody can check, or `ed25519`.
    #[serde(default)]
    pub kind: KeyKind,
}

/// How a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// RSA with 2048 bits.
    #[default]
    Rsa,
    /// Ed25519.
    Ed25519,
}

/// A key that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyView {
    /// The domain of the senders.
    pub domain: String,
    /// The name under which it is published.
    pub selector: String,
    /// Whether it is the one that signs.
    pub signs: bool,
    /// The line for the zone file.
    pub record: String,
}

/// What may be done to the keys that sign. Cheap to clone.
#[derive(Clone)]
pub struct DkimOperations {
    clock: Clock,
    audit: AuditTrail,
    folder: Arc<DataFolder>,
    backend: Arc<dyn Backend>,
}

impl DkimOperations {
    pub(super) fn new(parts: &OperationsParts) -> DkimOperations {
        DkimOperations {
            clock: Arc::clone(&parts.foundation.clock),
            audit: AuditTrail::new(&parts.foundation),
            folder: Arc::clone(&parts.foundation.folder),
            backend: Arc::clone(&parts.backend),
        }
    }

    /// All keys, in order of domain and selector.
    pub fn list(&self) -> Result<Vec<KeyView>, OperationError> {
        keys_in(&self.key_folder()).map_err(|error| OperationError::Failed(format!("the keys cannot be read: {error}")))
    }

    /// Makes a key, which signs from now on.
    pub async fn add(&self, new: NewKey, actor: &Actor) -> Result<KeyView, OperationError> {
        let domain = new.domain.to_lowercase();
        let selector = match new.selector.as_str() {
            "" => format!("weir{}", super::when((self.clock)().0 as i64).get(..7).unwrap_or_default().replace('-', "")),
            given => given.to_lowercase(),
        };
        let algorithm = match new.kind {
            KeyKind::Rsa => Algorithm::Rsa,
            KeyKind::Ed25519 => Algorithm::Ed25519,
        };
        let (of, under, folder) = (domain.clone(), selector.clone(), self.key_folder());
        let made = tokio::task::spawn_blocking(move || {
            let (pem, record) = generate(&of, &under, algorithm)?;
            store(&folder.join(&of), &under, (&pem, &record)).map_err(|error| KeyError::Make(error.to_string()))
        });
        made.await.map_err(|error| OperationError::Failed(error.to_string()))?.map_err(|error| {
            let hint = "a domain is written example.org, a selector has letters and digits; a key is never overwritten";
            OperationError::invalid(error.to_string(), hint)
        })?;
        self.backend.keys_changed();
        self.audit.write(actor, "dkim.add", &domain, format!("selector {selector}, {}", algorithm.name())).await?;
        let found = self.list()?.into_iter().find(|key| key.domain == domain && key.selector == selector);
        found.ok_or_else(|| OperationError::Failed("the key was made and cannot be found".to_owned()))
    }

    fn key_folder(&self) -> PathBuf {
        self.folder.keys().join("dkim")
    }
}

fn keys_in(folder: &Path) -> io::Result<Vec<KeyView>> {
    let mut keys: Vec<KeyView> = Vec::new();
    for domain in names_in(folder)? {
        let of_domain = folder.join(&domain);
        let pems = names_in(&of_domain)?;
        let selectors = pems.iter().filter_map(|file| file.strip_suffix(".pem"));
        for selector in selectors {
            if let Some(older) = keys.last_mut().filter(|key| key.domain == domain) {
                older.signs = false;
            }
            let record = fs::read_to_string(of_domain.join(format!("{selector}.txt"))).unwrap_or_default();
            let (domain, selector) = (domain.clone(), selector.to_owned());
            keys.push(KeyView { domain, selector, signs: true, record: record.trim().to_owned() });
        }
    }
    Ok(keys)
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

fn store(folder: &Path, selector: &str, (pem, record): (&str, &DnsRecord)) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let write = |kind: &str, text: &str| {
        let path = folder.join(format!("{selector}.{kind}"));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    // The key is written last, so that a key that exists is complete.
    write("txt", &format!("{}\n", record.zone_line()))?;
    write("pem", pem)?;
    fs::File::open(folder)?.sync_all()
}
