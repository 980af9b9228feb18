//! The membership of a machine in a lab of several: its credentials, its name and its role.

use super::clock::CalendarClock;
use super::credential_store::CredentialStore;
use super::credentials::{Credentials, CredentialsError};
use super::enrolment::{self, InviteError, Invited};
use super::priority::{self, PriorityOrderError};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use weir_core::election::{Priority, Role};
use weir_store::records::{NodeRow, Records};

/// A machine's membership in a lab. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Membership {
    pub(crate) store: CredentialStore,
    at: SocketAddr,
    /// Its name in the lab.
    pub name: String,
    role: Role,
}

impl Membership {
    /// Reads the credentials in a folder; `at` is the address on which the machine listens.
    pub fn open(folder: &Path, at: SocketAddr) -> Result<Membership, CredentialsError> {
        let credentials = Credentials::read(folder)?;
        let (identity, _) = credentials.identity()?;
        let store = CredentialStore::new(credentials, folder, CalendarClock::default())?;
        Ok(Membership { store, at, name: identity.name, role: identity.role })
    }

    /// Whether this machine is outside the lab: it has no database and no shared folder.
    pub fn is_outside(&self) -> bool {
        self.role == Role::External
    }

    /// Orders another priority for a machine of the lab.
    pub(crate) async fn prioritise(
        &self,
        records: &Records,
        machine: &NodeRow,
        priority: Priority,
    ) -> Result<(), PriorityOrderError> {
        priority::order(records, &self.store.active().credentials, machine, priority).await
    }

    /// A token that admits one machine of this role and priority.
    pub(crate) async fn invite(
        &self,
        records: &Records,
        may: (Role, Priority),
        valid: Duration,
    ) -> Result<Invited, InviteError> {
        enrolment::invite(records, &self.store.active().credentials, self.at, may, valid).await
    }
}
