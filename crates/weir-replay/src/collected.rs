//! What the readers have found so far in all sources.
//!
//! Bounded: at most [`MAILS_MAX`] mails with [`RECIPIENTS_TOTAL_MAX`] recipients together, about two gigabytes.

use super::envelope::Envelope;
use super::skipped::{Reason, Skipped};
use super::wall::Wall;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;

/// At most this many mails are read.
pub(crate) const MAILS_MAX: usize = 5_000_000;
/// At most this many recipients are read, over all mails.
pub(crate) const RECIPIENTS_TOTAL_MAX: usize = 20_000_000;

/// Which mail is wanted, and whose it is.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Every mail is this user's, whatever it says itself.
    pub user: Option<String>,
    /// Of a log, only mail whose sender had logged in.
    pub authenticated_only: bool,
    /// Recipients that the server adds itself (an archive), which the sender did not write.
    pub ignored_recipients: Vec<String>,
}

/// A mail as a reader found it.
#[derive(Debug)]
pub(crate) struct FoundMail {
    pub(crate) at: Option<Wall>,
    pub(crate) user: Option<String>,
    pub(crate) to: Vec<String>,
    /// What it is called in its source.
    pub(crate) name: Box<str>,
}

/// What the place of a mail in a mailbox says, where the mail itself does not or knows less well.
#[derive(Debug)]
pub(crate) struct Hint {
    /// Used if the mail has no date.
    pub(crate) at: Option<Wall>,
    /// Used before what the mail says.
    pub(crate) user: Option<String>,
}

/// A mail that can be replayed.
#[derive(Debug)]
pub(crate) struct ReplayableMail {
    pub(crate) at: Wall,
    pub(crate) user: String,
    pub(crate) to: Vec<String>,
    pub(crate) source: usize,
    pub(crate) name: Box<str>,
}

/// Mails and what was skipped.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) mails: Vec<ReplayableMail>,
    pub(crate) skipped: Skipped,
    /// Names of the sources; the last is being read.
    pub(crate) sources: Vec<String>,
    wanted: Wanted,
    recipients: usize,
    filed: HashSet<u64>,
    hasher: RandomState,
}

impl Collected {
    pub(crate) fn new(wanted: Wanted) -> Collected {
        Collected { wanted, ..Collected::default() }
    }

    pub(crate) fn wants_authenticated(&self) -> bool {
        self.wanted.authenticated_only
    }

    /// Counts something that cannot be used, with its place in the source.
    pub(crate) fn skip(&mut self, reason: Reason, place: impl FnOnce() -> String) {
        let source = self.sources.last().map_or("", String::as_str);
        self.skipped.count(reason, || format!("{source}: {}", place()));
    }

    /// Keeps a mail from a mailbox, unless the very same is there already: an archive may hold two copies of one.
    pub(crate) fn add_filed(&mut self, envelope: Envelope, hint: Hint, name: Box<str>) -> Result<(), CollectError> {
        let Envelope { from, to, date, message_id } = envelope;
        let found = FoundMail { at: date.or(hint.at), user: hint.user.or(from), to, name };
        // By all that it says of itself: a worm that gives all its mails one id is not one mail.
        let key = |id: &String| self.hasher.hash_one((id, found.at, &found.user, &found.to));
        if message_id.as_ref().map(key).is_some_and(|key| !self.filed.insert(key)) {
            self.skip(Reason::QueuedAgain, || found.name.into());
            return Ok(());
        }
        self.add(found)
    }

    /// Keeps a mail if it has a date, a sender and a recipient.
    pub(crate) fn add(&mut self, mut found: FoundMail) -> Result<(), CollectError> {
        found.to.retain(|address| !self.wanted.ignored_recipients.contains(address));
        let user = self.wanted.user.clone().or(found.user);
        let (at, user) = match (found.at, user) {
            (Some(at), Some(user)) if !found.to.is_empty() => (at, user),
            (at, user) => {
                self.skip(missing(at, user.as_ref()), || found.name.into());
                return Ok(());
            }
        };
        self.recipients += found.to.len();
        if self.mails.len() >= MAILS_MAX || self.recipients > RECIPIENTS_TOTAL_MAX {
            return Err(CollectError::TooMuch);
        }
        let source = self.sources.len().saturating_sub(1);
        self.mails.push(ReplayableMail { at, user, to: found.to, source, name: found.name });
        Ok(())
    }
}

fn missing(at: Option<Wall>, user: Option<&String>) -> Reason {
    match (at, user) {
        (None, _) => Reason::NoDate,
        (_, None) => Reason::NoSender,
        _ => Reason::NoRecipients,
    }
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// The source cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// There is more mail than memory is meant for.
    #[error("more than {MAILS_MAX} mails or {RECIPIENTS_TOTAL_MAX} recipients")]
    TooMuch,
}
