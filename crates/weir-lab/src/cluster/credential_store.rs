//! The credentials that a machine uses. They are renewed while it runs: new connections show the new certificate, those that
//! are open go on with what they began with.

use super::clock::CalendarClock;
use super::credentials::{Credentials, CredentialsError};
use super::identity::Identity;
use super::validity::{Issued, Validity};
use rustls::{ClientConfig, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use weir_core::election::KeyId;

/// The credentials in use. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CredentialStore {
    active: Arc<RwLock<Arc<ActiveCredentials>>>,
    /// Where they are kept.
    folder: PathBuf,
    pub(crate) clock: CalendarClock,
}

/// Credentials, ready to be shown.
#[derive(Debug)]
pub(crate) struct ActiveCredentials {
    pub(crate) credentials: Credentials,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    validity: Validity,
}

impl CredentialStore {
    /// These credentials, which are stored in this folder.
    pub(crate) fn new(
        credentials: Credentials,
        folder: &Path,
        clock: CalendarClock,
    ) -> Result<CredentialStore, CredentialsError> {
        let active = ActiveCredentials::new(credentials, &clock)?;
        Ok(CredentialStore { active: Arc::new(RwLock::new(Arc::new(active))), folder: folder.to_owned(), clock })
    }

    /// The credentials in use now.
    pub(crate) fn active(&self) -> Arc<ActiveCredentials> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A folder that only this machine may read.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The identity of this machine. No renewal changes it; an order may change its priority.
    pub(crate) fn identity(&self) -> Result<(Identity, KeyId), CredentialsError> {
        self.active().credentials.identity()
    }

    /// Uses another certificate from now on, and these authorities.
    pub(crate) fn renew(&self, certificate: String, authority: String) -> Result<(), CredentialsError> {
        self.renew_as(&self.identity()?.0, certificate, authority)
    }

    /// The same with a certificate that says this.
    pub(crate) fn renew_as(
        &self,
        identity: &Identity,
        certificate: String,
        authority: String,
    ) -> Result<(), CredentialsError> {
        let credentials = Credentials { certificate, authority, ..self.active().credentials.clone() };
        let (certified, key) = credentials.identity()?;
        if certified != *identity || key != self.identity()?.1 {
            return Err(CredentialsError::Unusable("the new certificate is about another machine".into()));
        }
        let active = ActiveCredentials::new(credentials, &self.clock)?;
        active.credentials.write_renewed(&self.folder)?;
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(active);
        Ok(())
    }
}

impl ActiveCredentials {
    fn new(credentials: Credentials, clock: &CalendarClock) -> Result<ActiveCredentials, CredentialsError> {
        let (client, server) = (credentials.client(clock)?, credentials.server(clock)?);
        let validity = credentials.validity()?;
        Ok(ActiveCredentials { credentials, client, server, validity })
    }

    /// When it is time to renew them: after two thirds of their life.
    pub(crate) fn renew_at(&self) -> SystemTime {
        self.validity.made() + self.validity.life() * 2 / 3
    }

    /// When they expire.
    pub(crate) fn until(&self) -> SystemTime {
        self.validity.until
    }
}
