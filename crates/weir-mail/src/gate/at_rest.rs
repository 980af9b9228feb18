//! The mail operations on a data folder while no gate runs. Decisions are stored, and carried out when the gate starts.

use super::delivering;
use crate::decided::Decided;
use crate::delivery::message::{Deferral, Job, Recipient};
use crate::letter::{Letter, LetterOrigin};
use crate::operations::{Backend, Vital};
use crate::queue::{Dropped, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
use std::path::PathBuf;
use tokio::sync::OnceCell;
use weir_core::time::Instant;
use weir_foundation::date::Date;
use weir_foundation::{OperationError, OperationFuture};
use weir_store::diary::Diary;
use weir_store::spool::{FoundMessage, Options, Spool};

/// Nothing runs here. The spool is opened when somebody asks for it: reading all of it takes a while.
pub(super) struct AtRest {
    folder: PathBuf,
    options: Options,
    diary: Diary,
    opened: OnceCell<(Spool, Vec<FoundMessage>)>,
}

impl AtRest {
    pub(super) fn new(folder: PathBuf, options: Options, diary: Diary) -> AtRest {
        AtRest { folder, options, diary, opened: OnceCell::new() }
    }

    async fn open(&self) -> Result<&(Spool, Vec<FoundMessage>), OperationError> {
        let open = || async {
            let (folder, options) = (self.folder.clone(), self.options.clone());
            let opened = tokio::task::spawn_blocking(move || Spool::open(folder, options)).await;
            Ok(opened.map_err(|error| OperationError::Failed(error.to_string()))??)
        };
        self.opened.get_or_try_init(open).await
    }

    async fn waiting(&self, selection: &QueueSelection) -> Result<Vec<(&FoundMessage, QueueEntry)>, OperationError> {
        let (spool, found) = self.open().await?;
        let here = found.iter().filter(|found| spool.contains(found.id));
        let entries = here.filter_map(|found| Some((found, entry(found)?)));
        let taken = |entry: &QueueEntry| {
            selection.takes(&entry.message, &entry.user, entry.recipients.iter().map(|to| to.address.as_str()))
        };
        Ok(entries.filter(|(_, entry)| taken(entry)).collect())
    }
}

impl Backend for AtRest {
    fn vital(&self) -> Option<Vital> {
        None
    }

    fn wake(&self) {}

    fn end_sessions(&self, _: &str, _: &str) -> usize {
        0
    }

    fn sessions_of(&self, _: &str) -> usize {
        0
    }

    fn keys_changed(&self) {}

    fn spool(&self) -> OperationFuture<'_, Spool> {
        Box::pin(async { Ok(self.open().await?.0.clone()) })
    }

    fn queue(&self) -> &dyn Queue {
        self
    }

    fn diary(&self) -> Diary {
        self.diary.clone()
    }
}

impl Queue for AtRest {
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> OperationFuture<'a, QueueList> {
        Box::pin(async move {
            let waiting = self.waiting(selection).await?;
            let total = waiting.len();
            Ok(QueueList { messages: waiting.into_iter().map(|(_, entry)| entry).take(most).collect(), total })
        })
    }

    /// Everything is tried when the gate starts.
    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        Box::pin(
            async move { Ok(self.waiting(selection).await?.into_iter().map(|(_, entry)| entry.message).collect()) },
        )
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        Box::pin(async move {
            let (spool, mut dropped) = (&self.open().await?.0, Dropped::default());
            for (found, entry) in self.waiting(selection).await? {
                match spool.finish(found.id) {
                    Ok(()) => dropped.add(entry.message, entry.recipients.len()),
                    Err(error) => dropped.note(error),
                }
            }
            if let Err(error) = spool.flush().await {
                dropped.note(error);
            }
            Ok(dropped)
        })
    }
}

/// A letter that goes, as far as it came; nothing for one that is not decided yet, or that everybody has.
fn entry(found: &FoundMessage) -> Option<QueueEntry> {
    let letter = Letter::read(&found.envelope).ok()?;
    let places: Vec<usize> = match letter.origin {
        LetterOrigin::Submitted => found.marks.iter().find_map(Decided::read)?.places,
        LetterOrigin::Released | LetterOrigin::Own | LetterOrigin::Received => (0..letter.to.len()).collect(),
    };
    let job = Job::resumed(delivering::message(found.id, &letter, &places, found.size), found.marks.iter())?;
    let Deferral { attempts, not_before } = job.deferral(&job.message.recipients);
    let recipient = |recipient: &Recipient| QueueRecipient {
        address: recipient.to.mailbox.as_str().to_owned(),
        last_answer: String::new(),
    };
    Some(QueueEntry {
        message: found.id.to_string(),
        recipients: job.message.recipients.iter().map(recipient).collect(),
        user: letter.owner,
        sender: letter.from,
        accepted: Date::new(Instant(letter.at)).rfc3339(),
        size_bytes: found.size,
        attempts,
        next_attempt: (not_before > Instant::ZERO).then(|| Date::new(not_before).rfc3339()),
    })
}
