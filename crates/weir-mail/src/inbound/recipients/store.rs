//! Recipients that are users: an address exists if a user in the records has it. A whole domain that a user may send as (`@example.org`)
//! does not make everybody in it exist.
//!
//! One question to the records for an address that was not asked about in the last minute (or, if it was unknown, in the
//! last ten seconds, so that a new user need not wait).

use super::memory::{Memory, Remembering};
use super::{Existence, key, without_tag};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_core::time::Instant;
use weir_store::records::{RecordsError, UserRecords};

const REMEMBERING: Remembering = Remembering {
    yes: Duration::from_secs(60),
    no: Duration::from_secs(10),
    yes_at_need: Duration::from_secs(24 * 3600),
    most: 50_000,
};

#[derive(Debug)]
pub(in crate::inbound) struct UserAddresses {
    users: UserRecords,
    memory: Mutex<Memory>,
    begun: std::time::Instant,
}

impl UserAddresses {
    pub(super) fn new(users: UserRecords) -> UserAddresses {
        UserAddresses { users, memory: Mutex::new(Memory::new(REMEMBERING)), begun: std::time::Instant::now() }
    }

    pub(super) async fn find(&self, local: &str, domain: &str) -> Existence {
        let address = key(local, domain);
        if let Some(known) = self.memory().find(&address, self.now()) {
            return known.map_or_else(Existence::No, |()| Existence::Yes);
        }
        let found = self.ask(&address, without_tag(local).map(|local| key(local, domain))).await;
        match found {
            Ok(true) => {
                self.memory().learn(&address, Ok(()), self.now());
                Existence::Yes
            }
            Ok(false) => {
                let why: Box<str> = "no such recipient here".into();
                self.memory().learn(&address, Err(why.clone()), self.now());
                Existence::No(why)
            }
            Err(_) if self.memory().was_there(&address, self.now()) => Existence::Yes,
            Err(error) => {
                tracing::error!(%error, "a recipient cannot be looked up");
                Existence::NotNow("the recipient cannot be looked up now".into())
            }
        }
    }

    async fn ask(&self, address: &str, untagged: Option<String>) -> Result<bool, RecordsError> {
        if self.users.has_address(address).await? {
            return Ok(true);
        }
        match untagged {
            Some(address) => self.users.has_address(&address).await,
            None => Ok(false),
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
