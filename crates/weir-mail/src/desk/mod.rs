//! The desk: everything that a person in charge may do to the mail gate.
//!
//! Plain async functions over the records, the throttle and what is behind them, with answers that serialise. The
//! command line and the console are both served from here, so they cannot disagree. Every change names its actor and is
//! written to the audit trail. Names, addresses and counts from outside are checked here, once. What is refused says
//! why and what would be right.

mod backend;
mod busy;
mod dkim;
mod gate_backup;
mod held;
mod held_analysis;
mod held_decision;
mod names;
mod own_throttle;
mod quarantine;
mod queue;
mod rules;
mod scan;
mod status;
mod throttle_view;
mod trace;
mod users;

pub use backend::{Backend, Listener, Vital};
pub use busy::BusyView;
pub use dkim::{KeyKind, KeyView, NewKey};
pub use gate_backup::settle_restored;
pub use held::{HeldList, HeldMessage, HeldPage, HeldRecipient, HeldSelection, LearnedView};
pub use held_analysis::{Analysed, StoredMail};
pub use held_decision::{Decision, HeldDone};
pub use own_throttle::{Asked, OwnThrottle};
pub use quarantine::{
    Authority, QuarantineDecision, QuarantineDone, QuarantineEntry, QuarantineList, QuarantinePage, QuarantineSelection,
};
pub use queue::{Queue, QueueDone, QueueEntry, QueueList, QueueRecipient, QueueSelection};
pub use rules::{NewRule, RuleSeverity, RuleView};
pub use scan::ScanDesk;
pub use status::{SpoolView, Status};
pub use throttle_view::{ParamsView, ThrottleView};
pub use trace::{MailTrace, TraceLine};
pub use users::{Change, LockDone, NewUser, Profile, UnlockDone, UserList, UserPage, UserView};
pub use weir_store::records::QuarantineTotal;

use crate::submission::Settings;
use crate::throttle::{Throttling, ThrottlingError};
use std::fmt;
use std::sync::Arc;
use weir_core::time::Instant;
use weir_foundation::audit::AuditTrail;
use weir_foundation::date::rfc3339 as when;
use weir_foundation::passwords::Passwords;
use weir_foundation::{Actor, Answer, Foundation, OperationError};
use weir_store::records::Records;

/// The desk of one mail gate. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    parts: Arc<Parts>,
    audit: AuditTrail,
    /// A change of a user is read, changed and written: one at a time.
    changing: Arc<tokio::sync::Mutex<()>>,
}

/// What the desk works with.
pub struct Parts {
    /// The data folder, which this process owns, and the records: users, throttles, held mail.
    pub foundation: Foundation,
    /// Decides on delay queues.
    pub throttling: Throttling,
    /// Hashes new passwords.
    pub passwords: Passwords,
    /// The rules of submission: profiles, parameters, this relay's name.
    pub rules: Arc<Settings>,
    /// The running gate, or the folder at rest.
    pub backend: Arc<dyn Backend>,
}

impl Desk {
    /// A desk with these parts.
    pub fn new(parts: Parts) -> Desk {
        Desk { audit: AuditTrail::new(&parts.foundation), parts: Arc::new(parts), changing: Arc::default() }
    }

    fn now(&self) -> Instant {
        (self.parts.foundation.clock)()
    }

    fn records(&self) -> &Records {
        &self.parts.foundation.records
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("folder", &self.parts.foundation.folder.path()).finish_non_exhaustive()
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl From<ThrottlingError> for OperationError {
    fn from(error: ThrottlingError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}
