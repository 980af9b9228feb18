//! Mail from a Postfix log: the lines of each queue id joined to one mail.
//!
//! A mail's time is that of its first line from smtpd, pickup or cleanup; its user is who had logged in, else the
//! envelope sender; its recipients are what the sender wrote (`orig_to` before alias expansion), each once however
//! often delivery was tried. The same mail under a second id (a content filter gives it back, an alias forwards it,
//! `postsuper -r` queues it anew) is one mail. Nothing that a remote server answers can hide the mail of a user who
//! had logged in: a second id counts as a copy only if nobody logged in for it.
//!
//! Memory: one entry per mail, at most [`MAILS_MAX`] of them; a line costs the same whatever came before it.

mod line;
mod stamp;

use super::address::{canonical, name};
use super::collected::{CollectError, Collected, FoundMail, MAILS_MAX};
use super::lines::{Lines, RawLine};
use super::recipients::Recipients;
use super::skipped::Reason;
use super::wall::Wall;
use line::LogEvent;
use stamp::{Stamp, Years};
use std::collections::HashMap;
use std::io::BufRead;

const LINE_MAX: usize = 64 * 1024;

/// How the years of stamps without one are found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    /// The log was last written then.
    Written(Wall),
    /// The latest line is of this year.
    Year(i32),
}

/// Whether a line can belong to a log: it begins with a time.
pub(crate) fn is_log_line(line: &str) -> bool {
    Years::default().read(line).is_some()
}

/// Reads a whole log.
pub(crate) fn read(input: impl BufRead, anchor: Anchor, collected: &mut Collected) -> Result<(), CollectError> {
    let mut lines = Lines::new(input, LINE_MAX);
    let mut log = Log::default();
    while let Some(line) = lines.next()? {
        log.line(line, collected)?;
    }
    log.finish(anchor, collected)
}

#[derive(Default)]
struct Log {
    years: Years,
    entries: Vec<LoggedMail>,
    /// The latest mail of each queue id; short ids are used again.
    by_id: HashMap<Box<str>, usize>,
}

/// One mail. `accepted` is set by the first line that a new mail has; `closed` when it left the queue.
struct LoggedMail {
    id: Box<str>,
    accepted: Option<Stamp>,
    closed: bool,
    copy: bool,
    user: Option<String>,
    sender: Sender,
    to: Recipients,
}

#[derive(PartialEq, Eq)]
enum Sender {
    Unknown,
    /// `from=<>`.
    System,
    Address(String),
}

impl Log {
    fn line(&mut self, line: RawLine<'_>, collected: &mut Collected) -> Result<(), CollectError> {
        let text = line.text();
        if line.cut {
            collected.skip(Reason::LongLine, || format!("line {}", line.number));
        }
        if text.trim().is_empty() {
            return Ok(());
        }
        let Some((stamp, rest)) = self.years.read(&text) else {
            collected.skip(Reason::BadTime, || format!("line {}: {text}", line.number));
            return Ok(());
        };
        match line::parse(rest) {
            Some((id, event)) => self.event(id, stamp, event, collected),
            None => Ok(()),
        }
    }

    fn event(
        &mut self,
        id: &str,
        stamp: Stamp,
        event: LogEvent<'_>,
        collected: &mut Collected,
    ) -> Result<(), CollectError> {
        match event {
            LogEvent::Client { user, copy_of } => {
                let copy = copy_of.is_some_and(|first| first != id && self.by_id.contains_key(first)) && user.is_none();
                let entry = self.accepted(id, stamp)?;
                entry.copy |= copy;
                entry.user = user.and_then(name).or(entry.user.take());
            }
            LogEvent::Pickup { before } => {
                if let Some(index) = before.and_then(|before| self.by_id.remove(before)) {
                    self.by_id.insert(id.into(), index);
                } else {
                    self.accepted(id, stamp)?;
                }
            }
            LogEvent::Cleanup => {
                self.accepted(id, stamp)?;
            }
            LogEvent::Queued { from } => self.known(id)?.sender = Sender::read(from, id, collected),
            LogEvent::Delivery { to, next } => {
                self.known(id)?.deliver(to, collected);
                self.mark_copy(id, next);
            }
            LogEvent::Removed => self.known(id)?.close(),
        }
        Ok(())
    }

    /// The mail of an id, begun if this is its first line.
    fn accepted(&mut self, id: &str, stamp: Stamp) -> Result<&mut LoggedMail, CollectError> {
        let used_before = self.find(id).is_some_and(|entry| entry.closed && entry.accepted.is_some());
        if used_before {
            self.by_id.remove(id);
        }
        let entry = self.known(id)?;
        entry.accepted = entry.accepted.or(Some(stamp));
        Ok(entry)
    }

    fn known(&mut self, id: &str) -> Result<&mut LoggedMail, CollectError> {
        let index = match self.by_id.get(id) {
            Some(index) => *index,
            None if self.entries.len() >= MAILS_MAX => return Err(CollectError::TooMuch),
            None => {
                self.by_id.insert(id.into(), self.entries.len());
                self.entries.push(LoggedMail::new(id));
                self.entries.len() - 1
            }
        };
        self.entries.get_mut(index).ok_or(CollectError::TooMuch)
    }

    fn find(&self, id: &str) -> Option<&LoggedMail> {
        self.entries.get(*self.by_id.get(id)?)
    }

    /// The mail `id` goes on as `next`, which then is no mail of its own.
    fn mark_copy(&mut self, id: &str, next: Option<&str>) {
        let Some(next) = next.and_then(|next| self.by_id.get(next).copied()) else { return };
        let Some(first) = self.by_id.get(id).copied() else { return };
        // What came first cannot be a copy of what came later, nor what somebody logged in to send.
        if let Some(entry) = self.entries.get_mut(next).filter(|entry| next > first && entry.user.is_none()) {
            entry.copy = true;
        }
    }

    fn finish(self, anchor: Anchor, collected: &mut Collected) -> Result<(), CollectError> {
        let first_year = match anchor {
            Anchor::Written(wall) => self.years.first_year(wall),
            Anchor::Year(year) => self.years.first_year_given(year),
        };
        for entry in self.entries {
            entry.finish(first_year, collected)?;
        }
        Ok(())
    }
}

impl Sender {
    fn read(from: &str, id: &str, collected: &mut Collected) -> Sender {
        match canonical(from) {
            _ if from.is_empty() => Sender::System,
            Some(address) => Sender::Address(address),
            None => {
                collected.skip(Reason::BadAddress, || format!("{id}: from=<{from}>"));
                Sender::Unknown
            }
        }
    }
}

impl LoggedMail {
    fn new(id: &str) -> LoggedMail {
        let (user, sender, to) = (None, Sender::Unknown, Recipients::default());
        LoggedMail { id: id.into(), accepted: None, closed: false, copy: false, user, sender, to }
    }

    fn deliver(&mut self, to: &str, collected: &mut Collected) {
        match canonical(to).map(|address| self.to.add(address)) {
            Some(true) => {}
            Some(false) => collected.skip(Reason::TooManyRecipients, || self.id.to_string()),
            None => collected.skip(Reason::BadAddress, || format!("{}: to=<{to}>", self.id)),
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.to.close();
    }

    fn finish(self, first_year: i32, collected: &mut Collected) -> Result<(), CollectError> {
        if let Some(reason) = self.unusable(collected) {
            collected.skip(reason, || self.id.to_string());
            return Ok(());
        }
        let user = match (self.user, self.sender) {
            (Some(user), _) | (None, Sender::Address(user)) => Some(user),
            (None, Sender::Unknown | Sender::System) => None,
        };
        let at = self.accepted.and_then(|stamp| stamp.wall(first_year));
        collected.add(FoundMail { at, user, to: self.to.into_list(), name: self.id })
    }

    fn unusable(&self, collected: &Collected) -> Option<Reason> {
        if self.copy {
            Some(Reason::QueuedAgain)
        } else if self.user.is_none() && self.sender == Sender::System {
            Some(Reason::Bounce)
        } else if self.accepted.is_none() {
            Some(Reason::BeforeTheLog)
        } else if self.user.is_none() && collected.wants_authenticated() {
            Some(Reason::NotAuthenticated)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
