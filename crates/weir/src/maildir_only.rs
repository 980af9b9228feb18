//! Stands in for delivery: every recipient has a Maildir below one folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use weir_core::time::Instant;
use weir_mail::date::Date;
use weir_mail::desk::{Answer, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use weir_mail::letter::Letter;
use weir_mail::outbound::Outbound;
use weir_store::spool::{MessageId, Spool};

/// Delivers into Maildirs, one message after the other.
#[derive(Clone)]
pub(crate) struct MaildirOnly {
    shared: Arc<Shared>,
    next: mpsc::UnboundedSender<MessageId>,
}

struct Shared {
    folder: PathBuf,
    spool: Spool,
    waiting: Mutex<BTreeMap<MessageId, Waiting>>,
}

#[derive(Clone)]
struct Waiting {
    letter: Arc<Letter>,
    places: Vec<usize>,
    attempts: u32,
    said: String,
}

impl MaildirOnly {
    pub(crate) fn start(folder: PathBuf, spool: Spool) -> MaildirOnly {
        let shared = Arc::new(Shared { folder, spool, waiting: Mutex::default() });
        let (next, mut coming) = mpsc::unbounded_channel();
        let works = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Some(id) = coming.recv().await {
                works.attempt(id).await;
            }
        });
        MaildirOnly { shared, next }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<MessageId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, id: MessageId) {
        let Some(waiting) = self.waiting().get(&id).cloned() else { return };
        match self.deliver(id, &waiting).await {
            Ok(()) => {
                self.waiting().remove(&id);
                let _ = self.spool.finish(id);
            }
            Err(error) => {
                if let Some(waiting) = self.waiting().get_mut(&id) {
                    waiting.attempts += 1;
                    waiting.said = error.to_string();
                }
            }
        }
    }

    async fn deliver(&self, id: MessageId, waiting: &Waiting) -> io::Result<()> {
        let mut text = Vec::new();
        let mut body = self.spool.body(id).map_err(io::Error::other)?;
        while let Some(piece) = body.next().await.map_err(io::Error::other)? {
            text.extend_from_slice(&piece);
        }
        for to in waiting.places.iter().filter_map(|place| waiting.letter.to.get(*place)) {
            put(&self.folder.join(to.address.replace('/', "_")), &id.to_string(), &text)?;
        }
        Ok(())
    }

    fn entries(&self, selection: &QueueSelection) -> Vec<(MessageId, QueueEntry)> {
        let all = self.waiting();
        let entries = all.iter().map(|(id, waiting)| (*id, waiting.entry(*id)));
        let taken = |entry: &QueueEntry| {
            selection.takes(&entry.message, &entry.user, entry.recipients.iter().map(|to| to.address.as_str()))
        };
        entries.filter(|(_, entry)| taken(entry)).collect()
    }
}

impl Waiting {
    fn entry(&self, id: MessageId) -> QueueEntry {
        let to = self.places.iter().filter_map(|place| self.letter.to.get(*place));
        QueueEntry {
            message: id.to_string(),
            user: self.letter.owner.clone(),
            sender: self.letter.from.clone(),
            accepted: Date::new(Instant(self.letter.at)).rfc3339(),
            size_bytes: 0,
            attempts: self.attempts,
            next_attempt: None,
            recipients: to
                .map(|to| QueueRecipient { address: to.address.clone(), last_answer: self.said.clone() })
                .collect(),
        }
    }
}

impl Outbound for MaildirOnly {
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>) {
        self.shared.waiting().insert(id, Waiting { letter, places, attempts: 0, said: String::new() });
        let _ = self.next.send(id);
    }
}

impl Queue for MaildirOnly {
    fn about(&self) -> String {
        format!("Maildir in {}", self.shared.folder.display())
    }

    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> Answer<'a, QueueList> {
        let entries = self.shared.entries(selection);
        let total = entries.len();
        let messages = entries.into_iter().map(|(_, entry)| entry).take(most).collect();
        Box::pin(async move { Ok(QueueList { messages, total }) })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        let entries = self.shared.entries(selection);
        for (id, _) in &entries {
            let _ = self.next.send(*id);
        }
        Box::pin(async move { Ok(entries.into_iter().map(|(_, entry)| entry.message).collect()) })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        let entries = self.shared.entries(selection);
        for (id, _) in &entries {
            self.shared.waiting().remove(id);
            let _ = self.shared.spool.finish(*id);
        }
        Box::pin(async move { Ok(entries.into_iter().map(|(_, entry)| entry.message).collect()) })
    }
}

fn put(maildir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    for part in ["tmp", "new", "cur"] {
        fs::create_dir_all(maildir.join(part))?;
    }
    let temporary = maildir.join("tmp").join(name);
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, maildir.join("new").join(name))
}
