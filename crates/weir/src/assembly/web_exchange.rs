//! Starts the exchange between front-ends from the sections `[web.exchange]` and `[web.history]`.

use super::key_file::{read_key, secret};
use super::machine_name;
use crate::config::Config;
use anyhow::Context;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use weir_foundation::supervision;
use weir_store::folder::DataFolder;
use weir_web::exchange::{Exchange, Settings};
use weir_web::profile::{Document, TEXT_BYTES_MAX};
use weir_web::proxy::Gate;

/// Connects a running gate with the other front-ends and with its history.
pub(super) fn join(config: &Config, data: &DataFolder, gate: &Gate) -> anyhow::Result<()> {
    let (from, secret) = (&config.web_exchange, secret(&config.web_identity, data.path())?);
    let key = from.relay_key_file.as_deref().map_or_else(|| Ok(secret.clone()), read_key)?;
    let own_name = format!("{} {}", machine_name(), data.path().display());
    let settings = Settings {
        incarnation_file: Some(data.path().join("web").join("life")),
        learning: Some(config.web_history.learning),
        ..from.settings(&own_name, secret, &key)
    };
    let file = config.web_history.file.clone();
    let file = file.unwrap_or_else(|| data.path().join("web").join("history.json"));
    keep_history(gate.join(&settings)?, file)
}

/// Loads the history document from disk, and writes every new one that is adopted.
fn keep_history(exchange: &Exchange, path: PathBuf) -> anyhow::Result<()> {
    let place = || format!("history {}", path.display());
    if let Some(text) = read_history(&path).with_context(place)? {
        exchange.put_document(&text).with_context(place)?;
    }
    let mut adopted = exchange.document();
    // This task ends when the exchange ends, and the exchange is watched itself: if it panics, the failure must not be reported as the end
    // of this task.
    supervision::spawn_until_done("web history", async move {
        while adopted.changed().await.is_ok() {
            let Some(document) = adopted.borrow_and_update().clone() else { continue };
            let place = path.clone();
            let written = tokio::task::spawn_blocking(move || write_history(&place, &document)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(%error, file = %path.display(), "the history document cannot be written");
            }
        }
    });
    Ok(())
}

/// The text of a history document, if there is one. One octet more than allowed is read, so that a file that is too long is noticed.
pub(crate) fn read_history(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Writes the document in one step, so that readers never see half of it. It is durable when this returns.
pub(crate) fn write_history(path: &Path, document: &Document) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let beside = path.with_file_name(name);
    let mut file = File::create(&beside)?;
    file.write_all(document.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    File::open(folder)?.sync_all()
}
