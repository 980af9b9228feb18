//! What the operations work on: the running gate, or the data folder while no gate runs.

use crate::accounts::{GuessedAt, WrongLogins};
use crate::delivery::next_hops::NextHopsView;
use crate::inbound::senders::SenderList;
use crate::queue::Queue;
use crate::scan::Scanning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_foundation::clock::Clock;
use weir_foundation::{OperationError, OperationFuture};
use weir_smtp::registry::Registry;
use weir_store::diary::Diary;
use weir_store::spool::Spool;

/// The running gate, or the data folder at rest.
pub trait Backend: Send + Sync {
    /// What is up; nothing at rest.
    fn vital(&self) -> Option<Vital>;

    /// Held mail was decided: carry it out now.
    fn wake(&self);

    /// Ends the sessions of a user, who hears why; how many there were.
    fn end_sessions(&self, user: &str, why: &str) -> usize;

    /// Sessions of a user that are open.
    fn sessions_of(&self, user: &str) -> usize;

    /// Failed logins of an account lately; none at rest.
    fn wrong_logins(&self, _user: &str) -> WrongLogins {
        WrongLogins::default()
    }

    /// A login as this account has failed elsewhere than at a mail server.
    fn note_wrong_login(&self, _user: &str, _password: &str, _from: IpAddr) {}

    /// The servers that run, with their bans; none at rest.
    fn banning(&self) -> Vec<Banning> {
        Vec::new()
    }

    /// Whom those who take mail allow and block; nothing at rest.
    fn senders(&self) -> Option<&SenderList> {
        None
    }

    /// Keys to sign with were made or removed.
    fn keys_changed(&self);

    /// Whether there is mail in transit to look at.
    fn has_spool(&self) -> bool {
        true
    }

    /// Mail in transit; at rest it is opened now.
    fn spool(&self) -> OperationFuture<'_, Spool>;

    /// What waits for delivery.
    fn queue(&self) -> &dyn Queue;

    /// The scan; nothing at rest, or if the gate has none.
    fn scanning(&self) -> Option<&Scanning> {
        None
    }

    /// What happens to messages is written here; the default one keeps nothing.
    fn diary(&self) -> Diary {
        Diary::default()
    }
}

/// The scan, or why there is none.
pub(super) fn scanning(backend: &dyn Backend) -> Result<&Scanning, OperationError> {
    let nothing =
        || OperationError::conflict("nothing is scanned here", "start the gate with `weir up`, and scan.enabled");
    backend.scanning().ok_or_else(nothing)
}

/// One mail server with its bans.
#[derive(Clone)]
pub struct Banning {
    /// `submission` or `inbound`.
    pub server: &'static str,
    /// Where its bans are.
    pub registry: Arc<Registry>,
    /// The server's time, which is not the time of day.
    pub clock: Clock,
}

/// How a running gate is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vital {
    /// The process.
    pub pid: u32,
    /// Since when it runs.
    pub since: String,
    /// What listens where.
    pub listeners: Vec<Listener>,
    /// How mail goes out.
    pub delivery: String,
    /// The servers that it goes to, as deliveries have found them.
    #[serde(default)]
    pub next_hops: NextHopsView,
    /// SMTP sessions open now.
    pub sessions: usize,
    /// What the submission server has done since it started.
    pub counters: BTreeMap<String, u64>,
    /// The same of the server for mail from outside, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound: Option<BTreeMap<String, u64>>,
    /// Accounts whose passwords somebody guesses at now, from many networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guessed_at: Vec<GuessedAt>,
    /// The file of the certificate that both servers show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
}

/// Something that listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// What for, such as `submission`.
    pub name: String,
    /// Where: an address with its port, or a path.
    pub address: String,
    /// How, in words.
    pub about: String,
}
