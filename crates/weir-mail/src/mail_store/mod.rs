//! A mail store: a folder in which mail is kept, each message in files of its own.
//!
//! `ID.eml` is the message as any tool reads it, `ID.json` its letter, `ID.verdict` what scanners said, if any did. Held mail is in one
//! store, quarantined mail in another. A message leaves a store by going back into the spool for some of its recipients. The store's
//! [`Memory`] knows which recipients have already gone, and which messages cannot go and are left alone for a while.

mod memory;

pub(crate) use memory::Memory;

use crate::letter::Letter;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;
use weir_store::spool::{MessageId, Spool, SpoolError};
use weir_store::unless_gone;

/// A mail store. Its name, such as "held", is for the log.
#[derive(Debug)]
pub(crate) struct MailStore {
    name: &'static str,
    folder: PathBuf,
    spool: Spool,
    pub(crate) memory: Memory,
}

impl MailStore {
    pub(crate) fn new(name: &'static str, folder: PathBuf, spool: Spool) -> MailStore {
        MailStore { name, folder, spool, memory: Memory::default() }
    }

    /// The message, for people to read.
    pub(crate) fn eml(&self, message: &str) -> PathBuf {
        self.file(message, "eml")
    }

    /// Writes the letter, durable on return.
    pub(crate) async fn write_letter(&self, id: MessageId, letter: &Letter) -> io::Result<()> {
        let (json, text) = (self.file(&id.to_string(), "json"), letter.write());
        blocking(move || write_durably(&json, &text)).await
    }

    /// Writes what scanners said of it. For people, so nothing waits for the disk.
    pub(crate) async fn write_verdict(&self, id: MessageId, verdict: String) -> io::Result<()> {
        let path = self.file(&id.to_string(), "verdict");
        blocking(move || std::fs::write(path, verdict)).await
    }

    /// Moves the message out of the spool, durable on return.
    pub(crate) async fn take(&self, id: MessageId) -> Result<(), SpoolError> {
        self.spool.move_out(id, self.eml(&id.to_string())).await
    }

    /// Puts this in the place of a message that cannot be read.
    pub(crate) async fn write_instead(&self, id: MessageId, text: &'static [u8]) -> io::Result<()> {
        let eml = self.eml(&id.to_string());
        blocking(move || write_durably(&eml, text)).await
    }

    pub(crate) async fn letter(&self, message: &str) -> io::Result<Letter> {
        Letter::read(&tokio::fs::read(self.file(message, "json")).await?).map_err(io::Error::other)
    }

    /// Copies a message back into the spool with this letter; its new id.
    pub(crate) async fn put_back(&self, message: &str, letter: &Letter) -> Result<MessageId, MailStoreError> {
        let mut file = tokio::fs::File::open(self.eml(message)).await?;
        let mut draft = self.spool.draft()?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).await? {
                0 => break,
                n => draft.write(&buffer[..n]).await?,
            }
        }
        Ok(draft.commit(letter.write()).await?)
    }

    /// A message could not be put back: says so once, and leaves it alone for longer and longer.
    pub(crate) fn trouble(&self, message: &str, error: &MailStoreError) {
        let (store, missing) = (self.name, error.is_missing());
        if !self.memory.failed(message, missing, std::time::Instant::now()) {
            tracing::debug!(store, message, %error, "stored mail still cannot go");
        } else if missing {
            tracing::error!(store, message, %error, "the file of mail is missing, so it cannot go; put it back, or delete the mail");
        } else {
            tracing::error!(store, message, %error, "mail cannot go yet; it is kept and tried again");
        }
    }

    /// Removes the files of a message.
    pub(crate) fn forget(&self, message: &str) {
        forget(&self.folder, message);
    }

    /// The messages that have files here.
    pub(crate) async fn messages(&self) -> io::Result<BTreeSet<String>> {
        let folder = self.folder.clone();
        blocking(move || messages(&folder)).await
    }

    /// Moves the files of messages that no row needs to `unclaimed/`, and says how many they are. Mail that is also in the spool is on
    /// its way here, or back. Held mail has its rows before its files: list the messages first and ask which are needed then, and
    /// what comes meanwhile is left alone.
    pub(crate) async fn set_aside(&self, strays: Vec<String>) -> io::Result<usize> {
        let spooled = |message: &String| message.parse().is_ok_and(|id| self.spool.contains(id));
        let unclaimed = strays.into_iter().filter(|message| !spooled(message)).collect();
        let folder = self.folder.clone();
        blocking(move || set_aside(&folder, &unclaimed)).await
    }

    fn file(&self, message: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{message}.{kind}"))
    }
}

/// Removes the files of a message in the store of this folder.
pub(crate) fn forget(folder: &Path, message: &str) {
    for kind in ["eml", "json", "verdict"] {
        match std::fs::remove_file(folder.join(format!("{message}.{kind}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %folder.display(), message, kind, %error, "a file of settled mail could not be removed");
            }
            _ => {}
        }
    }
}

fn messages(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut messages = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        messages.extend(message_of(&entry?.path()));
    }
    Ok(messages)
}

/// The message that a file belongs to.
fn message_of(path: &Path) -> Option<String> {
    let (stem, _) = (path.file_stem()?.to_str()?, path.extension()?);
    stem.parse::<MessageId>().is_ok().then(|| stem.to_owned())
}

fn set_aside(folder: &Path, unclaimed: &BTreeSet<String>) -> io::Result<usize> {
    let aside = folder.join("unclaimed");
    let mut moved = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(message) = message_of(&path).filter(|message| unclaimed.contains(message)) else { continue };
        // Mail is taken meanwhile, and files of what is refused after all go away.
        if path.extension().is_some_and(|kind| kind == "tmp") {
            unless_gone(std::fs::remove_file(&path))?;
        } else if let Some(name) = path.file_name() {
            std::fs::create_dir_all(&aside)?;
            if unless_gone(std::fs::rename(&path, aside.join(name)))?.is_some() {
                moved.insert(message);
            }
        }
    }
    Ok(moved.len())
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let temporary = path.with_extension("tmp");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(folder)?.sync_all()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Why mail could not be put into a store or back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailStoreError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("the file of its own: {0}")]
    File(#[from] io::Error),
}

impl MailStoreError {
    fn is_missing(&self) -> bool {
        matches!(self, MailStoreError::File(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::spool::Options;

    #[tokio::test]
    async fn what_comes_after_the_list_is_not_set_aside() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("held");
        std::fs::create_dir(&folder).unwrap();
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        let (spool, _) = Spool::open(home.path().join("spool"), options).unwrap();
        let store = MailStore::new("held", folder.clone(), spool);
        let [needed, lost, late] = ["0dh3k9w2m1c8t0qzx4pn", "0dh3k9w2m1c8t0qzx4pm", "0dh3k9w2m1c8t0qzx4pk"];
        let write = |message: &str| std::fs::write(store.eml(message), b"x").unwrap();
        [needed, lost].into_iter().for_each(write);
        std::fs::write(folder.join("README"), b"x").unwrap();
        let mut listed = store.messages().await.unwrap();
        write(late);
        assert!(listed.remove(needed));
        assert_eq!(store.set_aside(listed.into_iter().collect()).await.unwrap(), 1);
        assert!(store.eml(needed).exists() && store.eml(late).exists() && !store.eml(lost).exists());
        assert!(folder.join("unclaimed").join(format!("{lost}.eml")).exists());
    }
}
