//! Deletes mail of a stopped user if nobody has decided about it for a long time.
//!
//! After `submission.keep_stopped` it is deleted, and its sender is told what was not sent. A stop ends when its last entry is gone, and
//! whatever caused it could then go on; so the account is locked first ([`stop_lock`]). Everything is reported and noted before anything is
//! deleted, so a kill in between may repeat a report but loses none. Each relay looks after the mail that it keeps. What the clock shows
//! is not enough to say how long mail has waited: see [`Absences`].

use crate::absences::Absences;
use crate::accounts::stop_lock;
use crate::counted::count;
use crate::held::HeldMail;
use crate::notices::{OwnMail, post};
use crate::pipeline::Pipeline;
use crate::throttle::{ThrottleCommand, Throttling, ThrottlingError};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_foundation::date::Date;
use weir_store::records::{ASKED_BY_SERVER, AuditLine, HeldFilter, HeldRow, Records, RecordsError};
use weir_store::spool::{Spool, SpoolError};

/// How often the records are looked at; more often if mail is kept for a shorter time.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Stopped users that are looked at in one go.
const AT_ONCE_MAX: i64 = 1_000;
/// Under this name it is kept when somebody looked last, and when nobody did.
const LOOKED: &str = "retention.looked";
/// Recipients that a report names.
const NAMED_MAX: usize = 50;

/// What it takes to end the waiting.
pub(crate) struct Retention {
    /// How long mail waits; where the throttle only learns, for ever.
    pub(crate) keep: Duration,
    /// The relay whose mail it is.
    pub(crate) relay: String,
    /// Our name.
    pub(crate) hostname: String,
    /// Who is told besides senders; empty for nobody.
    pub(crate) admin: String,
    /// Whether the sender of an envelope is known to be the user's own address. Otherwise a report might go to anybody.
    pub(crate) knows_senders: bool,
    pub(crate) records: Records,
    pub(crate) throttling: Throttling,
    pub(crate) held: HeldMail,
    pub(crate) spool: Spool,
    pub(crate) pipeline: Pipeline,
    pub(crate) clock: Clock,
}

impl Retention {
    /// Looks from time to time, until the task is dropped.
    pub(crate) async fn run(self) {
        // By the time that passes and not by the clock, which may be set.
        let mut looked: Option<(Absences, std::time::Instant)> = None;
        loop {
            if let Err(error) = self.look(&mut looked).await {
                tracing::error!(%error, "mail that has waited too long is left where it is; this is tried again");
            }
            tokio::time::sleep(LOOK_EVERY.min(self.keep / 4)).await;
        }
    }

    async fn look(&self, looked: &mut Option<(Absences, std::time::Instant)>) -> Result<(), RetentionError> {
        let now = (self.clock)();
        let throttles = self.records.throttles().busy(AT_ONCE_MAX).await?;
        let is_watched = throttles.iter().any(|throttle| throttle.stopped_at.is_some());
        let (mut absences, passed) = match looked.take() {
            Some((absences, at)) => (absences, at.elapsed()),
            None => (self.absences().await?, Duration::ZERO),
        };
        absences.look(now, passed);
        let (absences, _) = looked.insert((absences, std::time::Instant::now()));
        if is_watched {
            self.records.values().set(&self.relay, LOOKED, &absences.write()).await?;
        }
        let is_due = |since: i64| absences.waited(Instant(since.max(0) as u64), now) >= self.keep;
        for throttle in throttles {
            if !throttle.stopped_at.is_some_and(is_due) || self.is_exempt(&throttle.identity).await? {
                continue;
            }
            let filter = HeldFilter { identity: throttle.identity.clone(), ..HeldFilter::default() };
            let mut rows = self.records.held().list(&filter, i64::MAX).await?;
            rows.retain(|row| (row.relay == self.relay || row.relay == ASKED_BY_SERVER) && is_due(row.held_at));
            if !rows.is_empty() {
                self.expire(&throttle.identity, &rows, now).await?;
            }
        }
        Ok(())
    }

    /// When nobody looked, as the last life has left it.
    async fn absences(&self) -> Result<Absences, RecordsError> {
        Ok(Absences::read(&self.records.values().get(&self.relay, LOOKED).await?.unwrap_or_default()))
    }

    /// A stop of before does not count for somebody whom nothing stops any more.
    async fn is_exempt(&self, identity: &str) -> Result<bool, RecordsError> {
        Ok(self.records.users().find(identity).await?.is_some_and(|user| user.profile == "exempt"))
    }

    async fn expire(&self, identity: &str, rows: &[HeldRow], now: Instant) -> Result<(), RetentionError> {
        let why = format!("nobody decided about it for {}", in_days(self.keep));
        let user = stop_lock::lock(&self.records.users(), identity, &why, now).await?;
        self.report(identity, rows, &user.contact, now).await?;
        let detail = format!("{} had waited for {}", count(rows.len(), "recipient"), in_days(self.keep));
        let (at, actor, action) = (now.0 as i64, "weir".to_owned(), "held.expire".to_owned());
        self.records.audit().write(&AuditLine { at, actor, action, subject: identity.to_owned(), detail }).await?;
        let entries = rows.iter().map(|row| row.entry).collect();
        self.throttling.command(identity, ThrottleCommand::Delete(entries)).await?;
        self.held.wake();
        Ok(())
    }

    async fn report(&self, identity: &str, rows: &[HeldRow], contact: &str, now: Instant) -> Result<(), SpoolError> {
        let senders: BTreeSet<&str> = rows
            .iter()
            .map(|row| row.sender.as_str())
            .filter(|sender| self.knows_senders && !sender.is_empty())
            .collect();
        for sender in &senders {
            let own: Vec<&HeldRow> = rows.iter().filter(|row| row.sender == *sender).collect();
            self.tell(sender, identity, &own, now).await?;
        }
        let all: Vec<&HeldRow> = rows.iter().collect();
        let others: BTreeSet<&str> = [contact, &self.admin].into_iter().collect();
        for to in others.into_iter().filter(|to| !to.is_empty() && !senders.contains(to)) {
            self.tell(to, identity, &all, now).await?;
        }
        Ok(())
    }

    async fn tell(&self, to: &str, identity: &str, rows: &[&HeldRow], now: Instant) -> Result<(), SpoolError> {
        let (subject, body) = (format!("Mail from {identity} was not sent"), words(identity, rows, self.keep));
        post(&self.spool, &self.pipeline, &self.hostname, now, OwnMail { to, subject: &subject, body: &body }).await
    }
}

fn words(identity: &str, rows: &[&HeldRow], keep: Duration) -> String {
    let waited = in_days(keep);
    let mut text = format!(
        "{identity} was stopped after unusual mail, and for {waited} nobody said whether the mail that waited was right. It has been \
         deleted now and was not sent to these recipients. Whoever wrote it and meant it has to send it again.\n\n\
         The account is locked until it gets a new password, or an administrator unlocks it: weir user unlock {identity}\n\n"
    );
    for row in rows.iter().take(NAMED_MAX) {
        let since = Date::new(Instant(row.held_at as u64));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  to {}, held since {since}, subject: {}", row.recipient, row.subject);
    }
    if let Some(more) = rows.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn in_days(time: Duration) -> String {
    match time.as_secs() {
        secs if secs >= 2 * 86_400 => format!("{} days", secs / 86_400),
        secs if secs >= 2 * 3_600 => format!("{} hours", secs / 3_600),
        secs => format!("{secs} seconds"),
    }
}

/// Why the waiting goes on.
#[derive(Debug, thiserror::Error)]
enum RetentionError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Throttle(#[from] ThrottlingError),
    #[error("a report cannot be written: {0}")]
    Spool(#[from] SpoolError),
}
