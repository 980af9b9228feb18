//! The credentials that a machine uses. They are renewed while it runs: new connections show the new certificate, those that
//! are open go on with what they began with.

use super::clock::Clock;
use super::credentials::{Credentials, CredentialsError};
use super::identity::Identity;
use super::validity::Validity;
use rustls::{ClientConfig, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use weir_core::election::KeyId;

/// The credentials in use. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Wallet {
    held: Arc<RwLock<Arc<Held>>>,
    /// Where they are kept.
    folder: PathBuf,
    pub(super) clock: Clock,
}

/// Credentials, ready to be shown.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) credentials: Credentials,
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    validity: Validity,
}

impl Wallet {
    /// These credentials, which are kept in this folder.
    pub(super) fn new(credentials: Credentials, folder: &Path, clock: Clock) -> Result<Wallet, CredentialsError> {
        let held = Held::new(credentials, &clock)?;
        Ok(Wallet { held: Arc::new(RwLock::new(Arc::new(held))), folder: folder.to_owned(), clock })
    }

    /// What is in use now.
    pub(super) fn held(&self) -> Arc<Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A folder that only this machine may read.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Who this machine is: what no renewal changes.
    pub(super) fn identity(&self) -> Result<(Identity, KeyId), CredentialsError> {
        self.held().credentials.identity()
    }

    /// Uses another certificate from now on, and these authorities.
    pub(super) fn renew(&self, certificate: String, authority: String) -> Result<(), CredentialsError> {
        let credentials = Credentials { certificate, authority, ..self.held().credentials.clone() };
        if credentials.identity()? != self.identity()? {
            return Err(CredentialsError::Unusable("the new certificate is about another machine".into()));
        }
        let held = Held::new(credentials, &self.clock)?;
        held.credentials.write_renewed(&self.folder)?;
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(held);
        Ok(())
    }
}

impl Held {
    fn new(credentials: Credentials, clock: &Clock) -> Result<Held, CredentialsError> {
        let (client, server) = (credentials.client(clock)?, credentials.server(clock)?);
        let validity = credentials.validity()?;
        Ok(Held { credentials, client, server, validity })
    }

    /// When it is time to renew them: after two thirds of their life.
    pub(super) fn renew_at(&self) -> SystemTime {
        self.validity.made() + self.validity.life() * 2 / 3
    }

    /// When they count no more.
    pub(super) fn until(&self) -> SystemTime {
        self.validity.until
    }
}
