//! Everything that administrators and operators can do to the mail gate, by noun: users, held mail, the quarantine, …
//!
//! Plain async functions over the records, the throttle and what is behind them, with answers that serialise. The command line and the
//! console are both served from here, so they cannot disagree. Every change names its actor and is written to the audit trail. Names,
//! addresses and counts from outside are checked here, once. A refusal says why, and what would be right.

mod backend;
mod bans;
mod dkim;
mod feeds;
mod find;
mod held;
mod mail_backup;
mod message_file;
mod names;
mod own_throttle;
mod quarantine;
mod queue;
mod scan_rules;
mod secure;
mod senders;
mod status;
mod throttle_view;
mod throttles;
mod trace;
mod users;

pub use crate::queue::{Dropped, DroppedMessage, Queue, QueueEntry, QueueList, QueueRecipient, QueueSelection};
pub use crate::scan::Analysed;
pub use backend::{Backend, Banning, Listener, Vital};
pub use bans::{BanDone, BanOperations, BanView};
pub use dkim::{DkimOperations, KeyKind, KeyView, NewKey};
pub use feeds::FeedOperations;
pub use find::{FindOperations, FoundMail, MailFilter, MailFound};
pub use held::{
    Attachment, Decision, HeldDone, HeldList, HeldMessage, HeldOperations, HeldPage, HeldRecipient, HeldSelection,
};
pub use mail_backup::settle_restored;
pub use own_throttle::{OwnThrottle, ParamValue};
pub use quarantine::{
    Authority, QuarantineDecision, QuarantineDone, QuarantineEntry, QuarantineList, QuarantineOperations,
    QuarantinePage, QuarantineSelection,
};
pub use queue::{QueueDone, QueueOperations};
pub use scan_rules::{NewRule, RuleSeverity, RuleView, ScanRuleOperations};
pub use secure::Secured;
pub use senders::{NewSender, SenderOperations, SenderVerdict, SenderView};
pub use status::{MailStatus, SpoolView, StatusOperations};
pub use throttle_view::{ParamsView, ThrottleView};
pub use throttles::{BusyView, LearnedView, ThrottleOperations};
pub use trace::{MailTrace, TraceLine, TraceOperations};
pub use users::{
    Change, LockDone, MayRelease, NewUser, OWN_CONTACT, Profile, RemoveDone, UnlockDone, UserList, UserOperations,
    UserPage, UserView,
};
pub use weir_store::records::QuarantineTotal;

use crate::submission::Settings;
use crate::throttle::{Throttling, ThrottlingError};
use mail_backup::MailBackup;
use std::sync::Arc;
use weir_foundation::backup::GateBackup;
use weir_foundation::date::rfc3339 as when;
use weir_foundation::passwords::Passwords;
use weir_foundation::{Actor, Foundation, OperationError, OperationFuture};
use weir_store::tracking::Tracking;

/// The operations of one mail gate. Cheap to clone, as is each of them.
#[derive(Clone)]
pub struct MailOperations {
    /// Users: who may send, as whom, and how much.
    pub users: UserOperations,
    /// The throttles of all users.
    pub throttles: ThrottleOperations,
    /// Mail that the throttle holds.
    pub held: HeldOperations,
    /// Mail that the scan keeps back.
    pub quarantine: QuarantineOperations,
    /// Mail that waits for delivery.
    pub queue: QueueOperations,
    /// Rules that people make for the scan.
    pub rules: ScanRuleOperations,
    /// The scan's feeds.
    pub feeds: FeedOperations,
    /// Keys that sign outgoing mail.
    pub dkim: DkimOperations,
    /// Addresses that are kept out.
    pub bans: BanOperations,
    /// Senders that are allowed or blocked.
    pub senders: SenderOperations,
    /// Messages by what is known of them.
    pub find: FindOperations,
    /// The ways of messages.
    pub traces: TraceOperations,
    /// How the whole is doing.
    pub status: StatusOperations,
    /// What a backup needs of the mail gate.
    pub backup: Arc<dyn GateBackup>,
}

/// What the operations work with.
pub struct OperationsParts {
    /// The data folder, which this process owns, and the records: users, throttles, held mail.
    pub foundation: Foundation,
    /// Decides on delay queues.
    pub throttling: Throttling,
    /// Hashes new passwords.
    pub passwords: Passwords,
    /// The settings of submission: profiles, parameters, this relay's name.
    pub settings: Arc<Settings>,
    /// The running gate, or the folder at rest.
    pub backend: Arc<dyn Backend>,
    /// Messages by what is known of them.
    pub tracking: Tracking,
}

impl MailOperations {
    /// Operations with these parts.
    pub fn new(parts: &OperationsParts) -> MailOperations {
        let users = UserOperations::new(parts);
        let held = HeldOperations::new(parts, &users);
        let quarantine = QuarantineOperations::new(parts);
        MailOperations {
            find: FindOperations::new(parts),
            traces: TraceOperations::new(parts, &held, &quarantine),
            users,
            throttles: ThrottleOperations::new(parts),
            held,
            quarantine,
            queue: QueueOperations::new(parts),
            rules: ScanRuleOperations::new(parts),
            feeds: FeedOperations::new(parts),
            dkim: DkimOperations::new(parts),
            bans: BanOperations::new(parts),
            senders: SenderOperations::new(parts),
            status: StatusOperations::new(parts),
            backup: Arc::new(MailBackup::new(parts)),
        }
    }
}

/// A number with at most three decimals, and none that say nothing.
fn decimal(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl From<ThrottlingError> for OperationError {
    fn from(error: ThrottlingError) -> OperationError {
        OperationError::Failed(error.to_string())
    }
}
