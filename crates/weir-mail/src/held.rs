//! Held mail: stores its bodies in files of their own, and releases or deletes them when that is decided.
//!
//! Held mail is in a store of its own, durable before the sender hears `250`. When the throttle lets an entry go, or a person
//! decides, the row in the records says so; this relay then puts the message back into the spool for those recipients
//! (or forgets it), and only after that removes the row. If the process is killed in between, a recipient may get the message twice, but
//! nobody misses it. The files go with the last row. A message whose file is missing is tried again at longer and longer intervals, and
//! stays visible in the list.

use crate::accounts::stop_lock;
use crate::letter::{Letter, LetterOrigin, LetterPart};
use crate::mail_store::{MailStore, MailStoreError};
use crate::pipeline::{Pipeline, Transit};
use crate::throttle::{LOOKED_AT_WITHIN, RELAY_SILENCE_NS, ThrottleCommand, Throttling};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use weir_core::time::Instant;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::{
    ASKED_BY_SERVER, Fate, HeldFilter, HeldRecords, HeldRow, Records, RecordsError, RelayRecords, ThrottleRecords,
};
use weir_store::spool::{MailLocation, MessageId, Spool, SpoolError};

/// How often the records are looked at when nothing is known to be due: another relay may have decided.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a relay says that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// Most rows carried out, and most identities drained, in one go.
const AT_ONCE_MAX: i64 = 500;
/// How long decisions are carried out in one go. Meanwhile no queue is drained, and other relays do not hear that this one is alive.
const CARRY_OUT_FOR: Duration = Duration::from_secs(1);
/// Messages that are compared with the records in one go.
const CHECKED_AT_ONCE: usize = 500;

/// The held mail of this relay. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HeldMail {
    shared: Arc<HeldShared>,
}

#[derive(Debug)]
struct HeldShared {
    store: MailStore,
    relay: String,
    spool: Spool,
    records: Records,
    held: HeldRecords,
    throttles: ThrottleRecords,
    relays: RelayRecords,
    pipeline: Pipeline,
    decided: Notify,
    /// No other relay has these records.
    alone: bool,
}

impl HeldMail {
    /// The held mail in `folder`, kept by `relay`.
    pub fn new(folder: PathBuf, relay: &str, spool: Spool, records: &Records, pipeline: Pipeline) -> HeldMail {
        let (relay, decided) = (relay.to_owned(), Notify::new());
        let store = MailStore::new("held", folder, spool.clone());
        let (held, throttles, relays) = (records.held(), records.throttles(), records.relays());
        let alone = !records.is_shared();
        let records = records.clone();
        let shared = HeldShared { store, relay, spool, records, held, throttles, relays, pipeline, decided, alone };
        HeldMail { shared: Arc::new(shared) }
    }

    /// A letter that is found in the spool at start has already been let go. If its rows are still there, they only have to be removed.
    pub fn found(&self, part: &LetterPart) {
        self.shared.store.memory.put_back(&part.of, &part.places);
    }

    /// Moves files that no row needs to `unclaimed/`, and says how many messages they are. A kill between the last row and
    /// its files leaves such files behind; so do records that were put back to an older day, and then they are wanted.
    ///
    /// It looks at every file, so it runs after the start, while mail is already accepted. That is safe: mail is shown and sent only by its
    /// row, so a file without one is nothing but a file; new mail has its rows before its files; and the task that settles rows and removes
    /// files is the same, and begins after this.
    async fn set_aside_unclaimed(&self) -> Result<usize, HeldError> {
        let messages: Vec<String> = self.shared.store.messages().await?.into_iter().collect();
        let mut strays = Vec::new();
        for some in messages.chunks(CHECKED_AT_ONCE) {
            strays.extend(self.shared.held.strays(&self.shared.relay, some).await?);
        }
        let aside = self.shared.store.set_aside(strays).await?;
        for message in &messages {
            self.count(message).await;
        }
        Ok(aside)
    }

    /// Counts a message of a former life for its owner, if it is still here.
    async fn count(&self, message: &str) {
        let (Ok(id), Ok(letter)) = (message.parse(), self.shared.store.letter(message).await) else { return };
        if let Ok(file) = tokio::fs::metadata(self.shared.store.eml(message)).await {
            self.shared.spool.shares().add(id, MailLocation::Held, &letter.owner, file.len());
        }
    }

    /// The same, and the log says what was found.
    async fn look_through_files(&self) {
        match self.set_aside_unclaimed().await {
            Ok(0) => {}
            Ok(messages) => tracing::warn!(
                messages,
                "held mail without an entry in the records is now in held/unclaimed: it was settled just before a kill, or the \
                 records are older than the mail"
            ),
            Err(error) => tracing::error!(%error, "held mail could not be held against the records"),
        }
    }

    /// Gives a message files of its own, durable on return.
    pub async fn keep(&self, id: MessageId, letter: &Letter) -> Result<(), HeldError> {
        let store = &self.shared.store;
        let kept = match store.write_letter(id, letter).await {
            Ok(()) => store.take(id).await.map_err(HeldError::from),
            Err(error) => Err(error.into()),
        };
        match (&kept, self.shared.spool.body(id)) {
            (Ok(()), Ok(body)) => self.shared.spool.shares().add(id, MailLocation::Held, &letter.owner, body.size()),
            (Ok(()), Err(_)) => {}
            (Err(_), _) => store.forget(&id.to_string()),
        }
        kept
    }

    /// The places of a message's recipients that the records hold.
    pub async fn rows_of(&self, id: MessageId) -> Result<Vec<i64>, RecordsError> {
        self.shared.held.places(&id.to_string()).await
    }

    /// The file of a held message, for people to read.
    pub fn eml(&self, id: MessageId) -> PathBuf {
        self.shared.store.eml(&id.to_string())
    }

    /// Something was decided: look at it now.
    pub fn wake(&self) {
        self.shared.decided.notify_one();
    }

    /// Drops entries whose message does not exist: the process ended after the throttle had decided and before the message was durable, so
    /// no client heard `250`. Only entries of the last moments can be of this kind; if the file of an older one is missing, somebody has
    /// lost a folder and may find it again. To be called at start, when the letters in the spool have been resumed. Returns how many were
    /// dropped.
    pub async fn drop_orphans(&self, throttling: &Throttling) -> Result<usize, RecordsError> {
        let HeldShared { held, relays, relay, spool, records, .. } = &*self.shared;
        let Some(seen) = relays.seen(relay).await? else { return Ok(0) };
        let mut dropped = 0;
        for message in held.messages_since(relay, seen.saturating_sub(RELAY_SILENCE_NS)).await? {
            let spooled = message.parse().is_ok_and(|id| spool.contains(id));
            if spooled || self.shared.store.eml(&message).exists() {
                continue;
            }
            let filter = HeldFilter { message: message.clone(), ..HeldFilter::default() };
            let rows = held.list(&filter, i64::MAX).await?;
            tracing::warn!(
                message,
                "entries of a mail that was never acknowledged are dropped; its sender still has it"
            );
            for of_one in rows.chunk_by(|a, b| a.identity == b.identity) {
                let now = weir_foundation::clock::wall_clock();
                stop_lock::before_taking_back(records, &of_one[0].identity, of_one.len(), now).await?;
            }
            for row in rows {
                match throttling.command(&row.identity, ThrottleCommand::Delete(vec![row.entry])).await {
                    Ok(_) => dropped += 1,
                    Err(error) => tracing::error!(message, %error, "an entry without a message stays"),
                }
            }
            held.strike(&message).await?;
        }
        Ok(dropped)
    }

    /// Looks through the files that the last life left; then drains queues on time and carries out what was decided, until the task
    /// is dropped.
    pub async fn run(self, throttling: Throttling, clock: weir_foundation::clock::Clock) {
        self.look_through_files().await;
        // By the time that passes and not by the clock, which may be set.
        let (mut said_alive, mut after): (Option<std::time::Instant>, _) = (None, String::new());
        loop {
            let now = clock();
            if said_alive.is_none_or(|at| at.elapsed() >= ALIVE_EVERY) {
                report("say that it is alive", self.shared.relays.alive(&self.shared.relay, now.0 as i64).await);
                report("follow a clock that was set back", self.turn_back(&throttling, now).await);
                said_alive = Some(std::time::Instant::now());
            }
            report("drain", self.drain(&throttling, now).await);
            match self.carry_out_until(&after, std::time::Instant::now() + CARRY_OUT_FOR).await {
                Ok(Some(last)) => {
                    after = last;
                    continue;
                }
                done => report("carry out what was decided", done),
            }
            after.clear();
            let wait = self.until_next(now).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shared.decided.notified() => {}
            }
        }
    }

    /// After the clock was set back, lets queues drain that were last looked at when it showed a later time, and takes what was held
    /// at such a time for held now: otherwise nobody would look at it until then.
    async fn turn_back(&self, throttling: &Throttling, now: Instant) -> Result<(), RecordsError> {
        let HeldShared { held, throttles, relay, alone, .. } = &*self.shared;
        let later = (now + LOOKED_AT_WITHIN).0 as i64;
        held.turn_back(relay, later, now.0 as i64).await?;
        if !alone {
            // Another relay's clock may be ahead of this one.
            return Ok(());
        }
        held.turn_back(ASKED_BY_SERVER, later, now.0 as i64).await?;
        let ahead = throttles.ahead(later, AT_ONCE_MAX).await?;
        self.drain_all(throttling, &ahead).await;
        Ok(())
    }

    /// Lets go what is due.
    async fn drain(&self, throttling: &Throttling, now: Instant) -> Result<(), RecordsError> {
        let due = self.shared.throttles.due(now.0 as i64, AT_ONCE_MAX).await?;
        self.drain_all(throttling, &due).await;
        Ok(())
    }

    async fn drain_all(&self, throttling: &Throttling, due: &[String]) {
        let commands = due.iter().map(|identity| throttling.command(identity, ThrottleCommand::Drain));
        for (identity, done) in due.iter().zip(futures_in_turn(commands).await) {
            if let Err(error) = done {
                tracing::error!(identity, %error, "a delay queue could not be drained");
            }
        }
    }

    /// Carries out all decisions about mail that this relay keeps.
    pub async fn carry_out(&self) -> Result<(), RecordsError> {
        let mut after = String::new();
        while let Some(last) = self.carry_out_until(&after, std::time::Instant::now() + CARRY_OUT_FOR).await? {
            after = last;
        }
        Ok(())
    }

    /// Carries out decisions about messages after `after`, at least one, and no more once it is `until`. The last of them;
    /// none if there was none.
    pub async fn carry_out_until(
        &self,
        after: &str,
        until: std::time::Instant,
    ) -> Result<Option<String>, RecordsError> {
        let rows = self.shared.held.decided(&self.shared.relay, after, AT_ONCE_MAX).await?;
        let mut last = None;
        for rows in rows.chunk_by(|a, b| a.message == b.message) {
            let (message, now) = (&rows[0].message, std::time::Instant::now());
            if last.is_some() && now >= until {
                break;
            }
            if !self.shared.store.memory.rests(message, now) {
                self.settle(message, rows).await?;
            }
            last = Some(message.clone());
        }
        Ok(last)
    }

    /// One message: what may go goes back into the spool, then the rows go.
    async fn settle(&self, message: &str, rows: &[HeldRow]) -> Result<(), RecordsError> {
        let memory = &self.shared.store.memory;
        let going: Vec<usize> = rows.iter().filter(|row| row.fate == Fate::Go).map(|row| row.place as usize).collect();
        let still_to_go = memory.still_to_go(message, &going);
        match self.put_back(message, &still_to_go).await {
            Ok(()) => memory.put_back(message, &still_to_go),
            Err(error) => {
                self.shared.store.trouble(message, &error);
                return Ok(());
            }
        }
        let done: Vec<(String, i64)> = rows.iter().map(|row| (row.identity.clone(), row.entry)).collect();
        self.shared.held.done(&done).await?;
        memory.settled(message, &going);
        if self.shared.held.of_message(message).await? == 0 {
            self.shared.store.forget(message);
            if let Ok(id) = message.parse() {
                self.shared.spool.shares().release(id, MailLocation::Held);
            }
        }
        Ok(())
    }

    async fn put_back(&self, message: &str, places: &[usize]) -> Result<(), MailStoreError> {
        if places.is_empty() {
            return Ok(());
        }
        let mut released = self.shared.store.letter(message).await?.for_places(places.iter().copied());
        released.origin = LetterOrigin::Released;
        // Its time to be delivered begins when it goes.
        released.at = weir_foundation::clock::wall_clock().0;
        released.part = Some(LetterPart { of: message.to_owned(), places: places.to_vec() });
        let id = self.shared.store.put_back(message, &released).await?;
        let size = self.shared.spool.body(id).map_or(0, |body| body.size());
        self.shared.spool.shares().add(id, MailLocation::Spool, &released.owner, size);
        tracing::debug!(%id, message, recipients = released.to.len(), "held mail goes");
        let text =
            format!("leaves the delay queue of {}, as a message of its own: {}", released.owner, released.in_words());
        let facts = Facts { concerns: places.len() as u64, ..Facts::default() };
        self.shared.spool.diary().note(DiaryLine::new(id, "released", text).with(facts).about([message]));
        self.shared.pipeline.send(Transit::to_all(id, released));
        Ok(())
    }

    async fn until_next(&self, now: Instant) -> Duration {
        match self.shared.throttles.next_deadline().await {
            Ok(Some(at)) => Instant(at as u64).since(now).clamp(Duration::from_millis(5), LOOK_EVERY),
            _ => LOOK_EVERY,
        }
    }
}

fn report<T>(what: &str, result: Result<T, RecordsError>) {
    if let Err(error) = result {
        tracing::error!(%error, "held mail: this relay could not {what}");
    }
}

async fn futures_in_turn<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut results = Vec::new();
    for future in futures {
        results.push(future.await);
    }
    results
}

/// Why held mail could not be kept or let go.
#[derive(Debug, thiserror::Error)]
pub enum HeldError {
    /// The spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The file of its own.
    #[error("the file of held mail: {0}")]
    File(#[from] io::Error),
    /// The records.
    #[error(transparent)]
    Records(#[from] RecordsError),
}
