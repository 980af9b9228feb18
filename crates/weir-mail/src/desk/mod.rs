//! The desk: everything that a person in charge may do to the mail gate.
//!
//! Plain async functions over the records, the throttle and the house behind them, with answers that serialise. The
//! command line and the console are both served from here, so they cannot disagree. Every change names its actor and is
//! written to the audit trail. Names, addresses and counts from outside are checked here, once. What is refused says
//! why and what would be right.

mod accounts;
mod audit;
mod backup;
mod busy;
mod dkim;
mod held;
mod held_decision;
mod house;
mod names;
mod own_throttle;
mod quarantine;
mod queue;
mod scan;
mod second_factor;
mod status;
mod throttle_view;
mod tokens;
mod users;

pub use accounts::{AccountView, Known, NewAccount, Role, fresh_token};
pub use audit::AuditView;
pub use backup::{BackupDone, BackupManifest, RestoreDone, restore};
pub use busy::BusyView;
pub use dkim::{KeyKind, KeyView, NewKey};
pub use held::{HeldList, HeldMessage, HeldPage, HeldRecipient, HeldSelection, LearnedView};
pub use held_decision::{Decision, HeldDone};
pub use house::{Answer, House, Listener, Vital};
pub use own_throttle::OwnThrottle;
pub use quarantine::{
    Authority, QuarantineDecision, QuarantineDone, QuarantineEntry, QuarantineList, QuarantinePage, QuarantineSelection,
};
pub use queue::{Queue, QueueDone, QueueEntry, QueueList, QueueRecipient, QueueSelection};
pub use scan::ScanDesk;
pub use second_factor::{Enrolment, RECOVERY_CODES};
pub use status::{SpoolView, Status};
pub use throttle_view::{ParamsView, ThrottleView};
pub use tokens::{NewToken, Scope, TokenMade, TokenView};
pub use users::{Change, LockDone, NewUser, Profile, UnlockDone, UserList, UserPage, UserView};
pub use weir_store::records::QuarantineTotal;

use crate::accounts::{PasswordError, Passwords};
use crate::date::Date;
use crate::gate::random;
use crate::submission::Settings;
use crate::throttle::{Clock, Throttling, ThrottlingError};
use std::fmt;
use std::sync::Arc;
use weir_core::time::Instant;
use weir_store::folder::DataFolder;
use weir_store::records::{AuditLine, Records, RecordsError};
use weir_store::spool::SpoolError;

/// The desk of one mail gate. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    parts: Arc<Parts>,
    /// A change of a user is read, changed and written: one at a time.
    changing: Arc<tokio::sync::Mutex<()>>,
}

/// What the desk works with.
pub struct Parts {
    /// The data folder, which this process owns.
    pub folder: Arc<DataFolder>,
    /// Users, throttles, held mail, audit.
    pub records: Records,
    /// Decides on delay queues.
    pub throttling: Throttling,
    /// Hashes new passwords.
    pub passwords: Passwords,
    /// The rules of submission: profiles, parameters, this relay's name.
    pub rules: Arc<Settings>,
    /// The running gate, or the folder at rest.
    pub house: Arc<dyn House>,
    /// What time it is.
    pub clock: Clock,
}

/// Who asks: `cli:root`, a login, or `weir` itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(Box<str>);

impl Actor {
    /// Names an actor; control characters fall away, and what is too long is cut.
    pub fn new(name: &str) -> Actor {
        let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
        Actor(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Desk {
    /// A desk with these parts.
    pub fn new(parts: Parts) -> Desk {
        Desk { parts: Arc::new(parts), changing: Arc::default() }
    }

    fn now(&self) -> Instant {
        (self.parts.clock)()
    }

    fn records(&self) -> &Records {
        &self.parts.records
    }

    async fn audit(&self, actor: &Actor, action: &str, subject: &str, detail: String) -> Result<(), DeskError> {
        tracing::info!(actor = actor.as_str(), action, subject, detail, "desk");
        let (actor, action, subject) = (actor.as_str().to_owned(), action.to_owned(), subject.to_owned());
        let line = AuditLine { at: self.now().0 as i64, actor, action, subject, detail };
        Ok(self.records().audit(&line).await?)
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("folder", &self.parts.folder.path()).finish_non_exhaustive()
    }
}

/// Nanoseconds since the Unix epoch as programs and people read them.
fn when(at: i64) -> String {
    Date::new(Instant(at.max(0) as u64)).rfc3339()
}

/// A random password that can be read out: a hundred bits in four groups.
pub fn fresh_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let letters: Vec<char> = random::<20>().iter().map(|byte| char::from(LETTERS[*byte as usize % 32])).collect();
    letters.chunks(5).map(String::from_iter).collect::<Vec<_>>().join("-")
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Why the desk did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// What was asked makes no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// What would be right.
        hint: String,
    },
    /// There is nothing of that name.
    #[error("{what}")]
    Unknown {
        /// What is not there.
        what: String,
        /// Where to look.
        hint: String,
    },
    /// It does not fit what is there already.
    #[error("{what}")]
    Conflict {
        /// What stands in the way.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The store or the gate failed: it may work later.
    #[error("{0}")]
    Failed(String),
}

impl DeskError {
    fn invalid(what: impl Into<String>, hint: impl Into<String>) -> DeskError {
        DeskError::Invalid { what: what.into(), hint: hint.into() }
    }

    fn unknown(what: impl Into<String>, hint: impl Into<String>) -> DeskError {
        DeskError::Unknown { what: what.into(), hint: hint.into() }
    }

    fn conflict(what: impl Into<String>, hint: impl Into<String>) -> DeskError {
        DeskError::Conflict { what: what.into(), hint: hint.into() }
    }

    /// What to do next.
    pub fn hint(&self) -> &str {
        match self {
            DeskError::Invalid { hint, .. } | DeskError::Unknown { hint, .. } | DeskError::Conflict { hint, .. } => {
                hint
            }
            DeskError::Failed(_) => "nothing was acknowledged; look at Weir's log, then try again",
        }
    }
}

impl From<RecordsError> for DeskError {
    fn from(error: RecordsError) -> DeskError {
        DeskError::Failed(error.to_string())
    }
}

impl From<ThrottlingError> for DeskError {
    fn from(error: ThrottlingError) -> DeskError {
        DeskError::Failed(error.to_string())
    }
}

impl From<SpoolError> for DeskError {
    fn from(error: SpoolError) -> DeskError {
        DeskError::Failed(error.to_string())
    }
}

impl From<PasswordError> for DeskError {
    fn from(error: PasswordError) -> DeskError {
        DeskError::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_password_is_long_readable_and_never_the_same() {
        let (one, other) = (fresh_password(), fresh_password());
        assert_eq!((one.len(), one.split('-').count()), (23, 4));
        assert_ne!(one, other);
    }

    #[test]
    fn an_actor_is_one_short_line() {
        assert_eq!(Actor::new("cli:ro\not\u{1b}").as_str(), "cli:root");
        assert_eq!(Actor::new(&"x".repeat(1000)).as_str().len(), 100);
    }
}
