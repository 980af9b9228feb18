//! [`Foundation`]: the data folder, the records, and what all relays that share these records have in common.

use crate::clock::{Clock, wall_clock};
use crate::random::random;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use weir_store::folder::DataFolder;
use weir_store::hex;
use weir_store::records::{Records, RecordsError};

/// The data folder and the records, open. Cheap to clone.
#[derive(Clone)]
pub struct Foundation {
    /// The data folder, which is locked for this process.
    pub folder: Arc<DataFolder>,
    /// The records: in SQLite, or in a PostgreSQL that several relays share.
    pub records: Records,
    /// This relay's name, made at the first start and kept for ever, because held mail belongs to the relay of this name.
    pub relay: String,
    /// The secret with which recipients are hashed; the same for all relays on these records.
    pub recipient_secret: [u8; 32],
    /// Tells the time.
    pub clock: Clock,
}

impl Foundation {
    /// Opens the records in `folder`, or in PostgreSQL if there is a URL.
    pub async fn lay(
        folder: impl Into<Arc<DataFolder>>,
        records_url: Option<&str>,
        host: &str,
    ) -> Result<Foundation, FoundationError> {
        let folder = folder.into();
        let records = match records_url {
            None => Records::sqlite(&folder.records()).await?,
            Some(url) => Records::postgres(url).await?,
        };
        let relay = relay_name(folder.path(), host)?;
        let secret = records.secrets().find_or_set("recipients", &hex(&random::<32>())).await?;
        let recipient_secret =
            weir_store::unhex(&secret).and_then(|bytes| bytes.try_into().ok()).ok_or(FoundationError::Secret)?;
        let clock: Clock = Arc::new(wall_clock);
        Ok(Foundation { folder, records, relay, recipient_secret, clock })
    }

    /// The kind of database: `sqlite` or `postgresql`.
    pub fn database(&self) -> &'static str {
        if self.records.is_shared() { "postgresql" } else { "sqlite" }
    }

    /// How far this relay has come with something that it does step by step; none if it never began.
    pub async fn progress(&self, name: &str) -> Result<Option<String>, RecordsError> {
        self.records.values().get(&self.relay, name).await
    }

    /// Stores how far it has come.
    pub async fn set_progress(&self, name: &str, progress: &str) -> Result<(), RecordsError> {
        self.records.values().set(&self.relay, name, progress).await
    }
}

impl fmt::Debug for Foundation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Foundation { folder, relay, .. } = self;
        f.debug_struct("Foundation").field("folder", folder).field("relay", relay).finish_non_exhaustive()
    }
}

/// The name in the file `relay`, which is made at the first start.
fn relay_name(folder: &Path, host: &str) -> Result<String, FoundationError> {
    let path = folder.join("relay");
    let fail = |source| FoundationError::Relay { path: path.display().to_string(), source };
    match fs::read_to_string(&path) {
        Ok(name) if is_name(name.trim()) => return Ok(name.trim().to_owned()),
        Ok(_) => return Err(fail(io::Error::new(io::ErrorKind::InvalidData, "it holds no name"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let name = format!("{}-{}", if is_name(host) { host } else { "weir" }, hex(&random::<3>()));
    let write = || {
        let beside = folder.join("relay.new");
        let mut file = fs::File::create(&beside)?;
        writeln!(file, "{name}")?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(fail)?;
    Ok(name)
}

fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Why the data folder or the records cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum FoundationError {
    /// The database cannot be opened.
    #[error("the records cannot be opened: {0}")]
    Records(#[from] RecordsError),
    /// The file with this relay's name cannot be read or written.
    #[error("{path}: {source}; this file names the relay that held mail belongs to, restore it from a backup")]
    Relay {
        /// The file.
        path: String,
        /// What is wrong.
        source: io::Error,
    },
    /// The shared secret in the records was changed.
    #[error("the secret `recipients` in the records is damaged; restore the records from a backup")]
    Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn name_and_secret_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let lay = || async { Foundation::lay(DataFolder::open(&path).unwrap(), None, "mail.example").await.unwrap() };
        let first = lay().await;
        assert!(first.relay.starts_with("mail.example-"), "{}", first.relay);
        let (relay, secret) = (first.relay.clone(), first.recipient_secret);
        first.records.close().await;
        drop(first);
        let again = lay().await;
        assert_eq!((again.relay, again.recipient_secret), (relay, secret));
        assert_ne!(secret, [0; 32]);
    }

    #[test]
    fn a_secret_has_all_its_bytes() {
        let (short, whole) = (weir_store::unhex("00"), weir_store::unhex(&hex(&random::<32>())));
        assert!(short.is_some_and(|bytes| <[u8; 32]>::try_from(bytes).is_err()));
        assert!(whole.is_some_and(|bytes| <[u8; 32]>::try_from(bytes).is_ok()));
    }
}
