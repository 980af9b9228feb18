//! From `[web.exchange]` and `[web.history]` to a running exchange.

use super::key_file::read_key;
use super::machine_name;
use super::web::secret;
use crate::config::Config;
use anyhow::Context;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_foundation::supervision;
use weir_store::folder::DataFolder;
use weir_web::exchange::nats::NatsSettings;
use weir_web::exchange::relay::RelaySettings;
use weir_web::exchange::{Exchange, Learning, Settings};
use weir_web::profile::tally::Tally;
use weir_web::profile::{Document, TEXT_BYTES_MAX};
use weir_web::proxy::Gate;

/// What counts requests for the history, if anything does.
pub(super) fn tally(config: &Config) -> Option<Arc<Tally>> {
    config.web_history.learn.then(Arc::default)
}

/// Joins a running gate to the other front-ends, and to its history.
pub(super) fn join(config: &Config, data: &DataFolder, gate: &Gate) -> anyhow::Result<()> {
    let (from, secret) = (&config.web_exchange, secret(&config.web_identity, data.path())?);
    let key = if from.relay_key_file.as_os_str().is_empty() { secret.clone() } else { read_key(&from.relay_key_file)? };
    let relay = |address: &String| RelaySettings { address: address.clone(), key: key.clone() };
    let ca_file = (!from.nats_ca_file.as_os_str().is_empty()).then(|| from.nats_ca_file.clone());
    let nats = from.nats.iter().map(|url| NatsSettings {
        url: url.clone(),
        subject: from.nats_subject.clone(),
        ca_file: ca_file.clone(),
    });
    let own_name = || format!("{} {}", machine_name(), data.path().display());
    let settings = Settings {
        incarnation_file: Some(data.path().join("web").join("life")),
        relays: from.relays.iter().map(relay).collect(),
        nats: nats.collect(),
        period: from.period.0,
        peers_max: from.peers as usize,
        learning: Some(Learning { period: config.web_history.every.0, half_life: config.web_history.half_life.0 }),
        ..Settings::new(&if from.name.is_empty() { own_name() } else { from.name.clone() }, secret)
    };
    keep_history(gate.join(&settings)?, history_file(config, data))
}

fn history_file(config: &Config, data: &DataFolder) -> PathBuf {
    let file = &config.web_history.file;
    if file.as_os_str().is_empty() { data.path().join("web").join("history.json") } else { file.clone() }
}

/// Brings the document on disk in, and writes every one that is adopted.
fn keep_history(exchange: &Exchange, path: PathBuf) -> anyhow::Result<()> {
    let place = || format!("history {}", path.display());
    if let Some(text) = read_history(&path).with_context(place)? {
        exchange.put_document(&text).with_context(place)?;
    }
    let mut adopted = exchange.document();
    supervision::spawn("web history", async move {
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

/// The text of a history document, if one is there. One octet more than there may be is read, so that an endless one is noticed.
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

/// A reader never sees half a document.
pub(crate) fn write_history(path: &Path, document: &Document) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_file_name(name);
    let mut file = File::create(&beside)?;
    file.write_all(document.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, path)
}
