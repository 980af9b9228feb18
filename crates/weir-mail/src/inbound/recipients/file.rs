//! Recipients in a file: one address per line, or `@example.org` for a whole domain; what follows a blank or `#` is a comment.
//!
//! The file is looked at when a recipient is asked about, at most once a second, and read again when it has changed. If it can no longer be
//! read, the last version stays in use. Bounded: [`FILE_MAX`] octets.

use super::{Existence, domain_key, key};
use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The largest file that is read.
pub const FILE_MAX: u64 = 64 << 20;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(in crate::inbound) struct RecipientFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
struct State {
    /// Keys of addresses, and domains with an @ in front.
    known: Arc<HashSet<Box<str>>>,
    stamp: Stamp,
    looked_at: Instant,
}

/// By which a changed file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl RecipientFile {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path) -> io::Result<RecipientFile> {
        let (known, stamp) = read(path)?;
        let state = Mutex::new(State { known: known.into(), stamp, looked_at: Instant::now() });
        Ok(RecipientFile { path: path.to_owned(), state })
    }

    pub(super) async fn find(&self, local: &str, domain: &str) -> Existence {
        let known = self.fresh().await;
        let listed = |key: String| known.contains(key.as_str());
        let tagged = key(local, domain);
        let untagged = super::without_tag(local).map(|local| key(local, domain));
        match listed(tagged) || untagged.is_some_and(listed) || listed(format!("@{}", domain_key(domain))) {
            true => Existence::Yes,
            false => Existence::No("no such recipient here".into()),
        }
    }

    /// What the file says now.
    async fn fresh(&self) -> Arc<HashSet<Box<str>>> {
        let (known, stamp, due) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let due = state.looked_at.elapsed() >= LOOK_EVERY;
            if due {
                // Others go on with what is known while this one looks.
                state.looked_at = Instant::now();
            }
            (Arc::clone(&state.known), state.stamp, due)
        };
        if !due {
            return known;
        }
        let path = self.path.clone();
        let looked = tokio::task::spawn_blocking(move || match std::fs::metadata(&path) {
            Ok(found) if Stamp::of(&found) == stamp => Ok(None),
            Ok(_) => read(&path).map(Some),
            Err(error) => Err(error),
        });
        match looked.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(None) => known,
            Ok(Some((fresh, stamp))) => self.renew(fresh.into(), stamp),
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "the recipients cannot be read; those of before stay");
                known
            }
        }
    }

    fn renew(&self, known: Arc<HashSet<Box<str>>>, stamp: Stamp) -> Arc<HashSet<Box<str>>> {
        tracing::info!(file = %self.path.display(), recipients = known.len(), "the recipients were read again");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.known, state.stamp) = (Arc::clone(&known), stamp);
        known
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp { inode: found.ino(), length: found.len(), changed: (found.mtime(), found.mtime_nsec()) }
    }
}

fn read(path: &Path) -> io::Result<(HashSet<Box<str>>, Stamp)> {
    // The stamp is taken first: a change while we read is then seen at the next look.
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a regular file of at most 64 MiB is expected"));
    }
    let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
    let known: HashSet<Box<str>> = text.lines().filter_map(entry).collect();
    Ok((known, Stamp::of(&found)))
}

fn entry(line: &str) -> Option<Box<str>> {
    let word = line.split('#').next()?.split_whitespace().next()?;
    let (local, domain) = word.rsplit_once('@')?;
    Some(if local.is_empty() { format!("@{}", domain_key(domain)) } else { key(local, domain) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn takes(file: &RecipientFile, address: &str) -> bool {
        let (local, domain) = address.rsplit_once('@').unwrap();
        file.find(local, domain).await == Existence::Yes
    }

    fn look_again(file: &RecipientFile) {
        file.state.lock().unwrap().looked_at -= LOOK_EVERY;
    }

    #[tokio::test]
    async fn listed_addresses_are_known_whatever_their_case_and_tag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recipients");
        std::fs::write(
            &path,
            "# people\nAnn@Example.ORG  staff\nbob+only@example.org\n@all.example # anybody\n\nnonsense\n",
        )
        .unwrap();
        let file = RecipientFile::open(&path).unwrap();
        for known in ["ann@example.org", "ANN+tag@EXAMPLE.org", "bob+only@example.org", "who@all.example"] {
            assert!(takes(&file, known).await, "{known}");
        }
        for unknown in
            ["bob@example.org", "bob+other@example.org", "ann@all.example.org", "who@sub.all.example", "+@example.org"]
        {
            assert!(!takes(&file, unknown).await, "{unknown}");
        }
    }

    #[tokio::test]
    async fn a_changed_file_counts_and_an_unreadable_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recipients");
        assert!(RecipientFile::open(&path).is_err());
        std::fs::write(&path, "ann@example.org\n").unwrap();
        let file = RecipientFile::open(&path).unwrap();
        std::fs::write(&path, "bobby@example.org\n").unwrap();
        assert!(takes(&file, "ann@example.org").await, "it is not looked at all the time");
        look_again(&file);
        assert!(takes(&file, "bobby@example.org").await && !takes(&file, "ann@example.org").await);
        std::fs::remove_file(&path).unwrap();
        look_again(&file);
        assert!(takes(&file, "bobby@example.org").await, "what was read last stays");
    }
}
