//! Carries out decisions about quarantined mail, deletes what is too old, and writes digests.

use super::{Quarantine, QuarantineShared};
use crate::letter::{Letter, LetterOrigin, LetterPart, LetterTo};
use crate::mail_store::MailStoreError;
use crate::pipeline::Transit;
use crate::scan::decision::QuarantineQueue;
use crate::scan::{Site, digest};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use weir_foundation::clock::wall_clock;
use weir_foundation::date::Date;
use weir_smtp::reception::Alarm;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::{AuditLine, Fate, QuarantineRow, RecordsError};
use weir_store::spool::MessageId;

/// How often the records are looked at when nothing is known to be due: another process may have decided.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often old mail is looked for.
const RETENTION_EVERY: Duration = Duration::from_secs(600);
/// How often the administrator hears that there is too much.
const WARN_EVERY: Duration = Duration::from_secs(86_400);
/// Most rows carried out in one go.
const AT_ONCE_MAX: i64 = 500;
/// Who forgets old mail.
const RETENTION: &str = "weir (retention)";

impl Quarantine {
    /// Carries out what is decided, forgets what is old and writes digests, until the task is dropped.
    pub(in crate::scan) async fn run(self) {
        // A letter in the spool may be one that went back before the last kill.
        self.shared.taken_up.notified().await;
        let mut retention = tokio::time::interval(RETENTION_EVERY);
        loop {
            report("carry out what was decided", self.carry_out().await);
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.shared.decided.notified() => {}
                _ = retention.tick() => {
                    report("forget what is old", self.forget_old().await);
                    report("write digests", self.digests().await);
                }
            }
        }
    }

    async fn digests(&self) -> Result<(), RecordsError> {
        let QuarantineShared { site, settings, hostname, next, .. } = &*self.shared;
        digest::write(site, settings, hostname, next).await
    }

    /// Carries out all decisions about mail that this relay keeps.
    async fn carry_out(&self) -> Result<(), RecordsError> {
        let Site { records, relay, .. } = &self.shared.site;
        let mut after = String::new();
        loop {
            let mut rows = records.quarantine().decided(relay, &after, AT_ONCE_MAX).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after.clone_from(&last.message);
            let now = Instant::now();
            rows.retain(|row| !self.shared.store.memory.rests(&row.message, now));
            self.left_the_spool(&rows).await;
            for rows in rows.chunk_by(|a, b| a.message == b.message) {
                self.settle(rows).await?;
            }
        }
    }

    /// A row says that its message is here and not in the spool. Before the row goes, that should be true after a kill too. (If
    /// the spool cannot write, it goes all the same: deleting is what makes room.)
    async fn left_the_spool(&self, rows: &[QuarantineRow]) {
        let spool = &self.shared.site.spool;
        for row in rows {
            self.leaves_the_spool(&row.message);
        }
        if !rows.is_empty()
            && spool.unwritten() > 0
            && let Err(error) = spool.flush().await
        {
            tracing::warn!(%error, "a kill would have mail scanned again that was decided on");
        }
    }

    /// One message: what is released goes back into the spool, then the rows go, then it is sent. While it is in the spool the next
    /// start knows of it; once it is delivered only the rows would.
    async fn settle(&self, rows: &[QuarantineRow]) -> Result<(), RecordsError> {
        let Some(first) = rows.first() else { return Ok(()) };
        let (message, store) = (&first.message, &self.shared.store);
        let going: Vec<&QuarantineRow> = rows.iter().filter(|row| row.fate == Fate::Go).collect();
        let mut released = Vec::new();
        for rows in going.chunk_by(|a, b| (&a.decided_by, &a.release_to) == (&b.decided_by, &b.release_to)) {
            match self.put_back(message, rows).await {
                Ok(letter) => released.extend(letter),
                Err(error) => {
                    store.trouble(message, &error);
                    self.send(released);
                    return Ok(());
                }
            }
        }
        let places: Vec<i64> = rows.iter().map(|row| row.place).collect();
        let left = self.shared.site.records.quarantine().done(message, &places).await;
        self.send(released);
        let left = left?;
        store.memory.settled(message, &places_of(rows));
        if left == 0 {
            store.forget(message);
        }
        let dropped: Vec<&QuarantineRow> = rows.iter().filter(|row| row.fate != Fate::Go).collect();
        if let Some(first) = dropped.first() {
            let text = format!("{} deleted from quarantine by {}", counted(dropped.len()), first.decided_by);
            let facts = Facts { concerns: dropped.len() as u64, ..Facts::default() };
            self.shared.site.spool.diary().note(DiaryLine::new(message, "deleted", text).with(facts));
        }
        Ok(())
    }

    fn send(&self, released: Vec<(MessageId, Letter)>) {
        for (id, letter) in released {
            self.shared.next.send(Transit::to_all(id, letter));
        }
    }

    /// What is now in the spool and not yet sent.
    async fn put_back(
        &self,
        message: &str,
        rows: &[&QuarantineRow],
    ) -> Result<Option<(MessageId, Letter)>, MailStoreError> {
        let store = &self.shared.store;
        let places = store.memory.still_to_go(message, &places_of(rows.iter().copied()));
        let (Some(first), false) = (rows.first(), places.is_empty()) else { return Ok(None) };
        let mut released = store.letter(message).await?.for_places(places.iter().copied());
        // Mail from outside stays mail from outside: if we signed it, we would vouch for any forger. It has already been evaluated against
        // its domains.
        if released.origin == LetterOrigin::Submitted {
            released.origin = LetterOrigin::Released;
        }
        released.client = None;
        if !first.release_to.is_empty() {
            // Nobody whom it was for is told anything.
            released.to = vec![LetterTo { address: first.release_to.clone(), notify: None, orcpt: None }];
        }
        // Its time to be delivered begins when it goes.
        released.at = wall_clock().0;
        released.cleared = Some(LetterPart { of: message.to_owned(), places: places.clone() });
        released.added = format!("{}{}", self.release_line(first), released.added);
        let id = store.put_back(message, &released).await?;
        store.memory.put_back(message, &places);
        tracing::info!(%id, message, by = first.decided_by, "released from quarantine");
        let text = format!(
            "released from quarantine/{} by {}, as a message of its own: {}",
            first.queue,
            first.decided_by,
            released.in_words()
        );
        // They need not be as many as leave the quarantine: it may go to one other address.
        let (concerns, recipients) = (places.len() as u64, released.to.len() as u64);
        let facts = Facts { concerns, recipients, ..Facts::default() };
        self.shared.site.spool.diary().note(DiaryLine::new(id, "freed", text).with(facts).about([message]));
        Ok(Some((id, released)))
    }

    fn release_line(&self, row: &QuarantineRow) -> String {
        let plain = |text: &str| -> String {
            text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(200).collect()
        };
        let when = Date::new(wall_clock()).rfc5322();
        format!(
            "X-Weir-Scan: {}; released from quarantine/{} by {} ({}); {when}\r\n",
            self.shared.hostname,
            row.queue,
            plain(&row.decided_by),
            plain(&row.reason)
        )
    }

    /// Forgets mail that is too old, and some of too much.
    pub(in crate::scan) async fn forget_old(&self) -> Result<(), RecordsError> {
        while self.drop_messages(&self.too_old().await?, "its time in quarantine is over").await? {}
        while self.drop_messages(&self.too_much().await?, "there is too much in quarantine").await? {}
        Ok(())
    }

    async fn too_old(&self) -> Result<Vec<String>, RecordsError> {
        let Site { records, relay, .. } = &self.shared.site;
        let keep_for = u64::try_from(self.shared.settings.keep_for.as_nanos()).unwrap_or(u64::MAX);
        let too_old = wall_clock().0.saturating_sub(keep_for) as i64;
        let oldest = records.quarantine().oldest(relay, "", AT_ONCE_MAX).await?;
        Ok(oldest.into_iter().take_while(|(_, _, at)| *at <= too_old).map(|(message, ..)| message).collect())
    }

    /// The oldest of the quarantine that holds most, so that a flood of one kind pushes out its own kind. What could not be scanned
    /// does not count and stays for its time: nobody has looked at it, and it may be anything.
    async fn too_much(&self) -> Result<Vec<String>, RecordsError> {
        let Site { records, relay, .. } = &self.shared.site;
        let mut totals = records.quarantine().totals(relay).await?;
        totals.retain(|total| total.queue != QuarantineQueue::Error.as_str());
        totals.sort_by_key(|total| std::cmp::Reverse(total.bytes));
        let bytes: i64 = totals.iter().map(|total| total.bytes).sum();
        self.warn_of_much(bytes);
        let over = bytes - self.shared.settings.bytes_max as i64;
        let Some(largest) = totals.first().filter(|_| over > 0) else { return Ok(Vec::new()) };
        let second = totals.get(1).map_or(0, |total| total.bytes);
        let mut going = over.min(largest.bytes - second).max(1);
        let oldest = records.quarantine().oldest(relay, &largest.queue, AT_ONCE_MAX).await?;
        let goes = |(_, size, _): &(String, i64, i64)| {
            let goes = going > 0;
            going -= size;
            goes
        };
        Ok(oldest.into_iter().take_while(goes).map(|(message, ..)| message).collect())
    }

    /// The administrator hears of it while there is room, and once a day after that.
    fn warn_of_much(&self, bytes: i64) {
        let most = self.shared.settings.bytes_max;
        let bytes = u64::try_from(bytes).unwrap_or_default();
        let mut warned = self.shared.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= most / 5 * 4 {
            *warned = None;
        } else if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(bytes, most, "quarantined mail takes nearly all of its room, or more");
            self.shared.alarms.raise(Alarm::QuarantineFull { bytes, most });
        }
    }

    /// Whether there were any.
    async fn drop_messages(&self, messages: &[String], why: &str) -> Result<bool, RecordsError> {
        if messages.is_empty() {
            return Ok(false);
        }
        let records = &self.shared.site.records;
        let line = |message: &String| AuditLine {
            at: wall_clock().0 as i64,
            actor: RETENTION.to_owned(),
            action: "quarantine.delete".to_owned(),
            subject: message.clone(),
            detail: why.to_owned(),
        };
        records.audit().write_all(&messages.iter().map(line).collect::<Vec<_>>()).await?;
        records.quarantine().remove(messages, RETENTION).await?;
        self.carry_out().await?;
        Ok(true)
    }
}

fn counted(recipients: usize) -> String {
    format!("{recipients} recipient{}", if recipients == 1 { "" } else { "s" })
}

fn places_of<'a>(rows: impl IntoIterator<Item = &'a QuarantineRow>) -> Vec<usize> {
    rows.into_iter().map(|row| row.place as usize).collect()
}

fn report<T>(what: &str, result: Result<T, RecordsError>) {
    if let Err(error) = result {
        tracing::error!(%error, "quarantine: this relay could not {what}");
    }
}
