//! What machines with the same database share: the account, the certificates, the open challenges, and the lease of the machine that asks
//! the authority.
//!
//! The authority may ask any of these machines about a challenge. So a challenge is stored in the database before the authority is told
//! that we are ready, and each machine reads the challenges every few seconds (`LOOK`). A request from a stranger never causes a database
//! query, so a flood of wrong tokens costs the database nothing.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_store::records::{Records, RecordsError};
use weir_tls::NamedCertificates;

/// How often each machine checks what the others have stored.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// The machine that asks the authority keeps that right for this long after the longest time that its order may take, because it then still
/// takes back what it opened for the order. After that another machine may ask.
const LEASE_REST: Duration = Duration::from_secs(180);
/// Challenges expire after this time, which is longer than an order without a hook may take.
const CHALLENGE_LIFE: Duration = Duration::from_secs(600);
const LEASE_NAME: &str = "certificates.lease";
const ACCOUNT: &str = "certificates.account";
const CERTIFICATE: &str = "certificates.pair.";
const CHALLENGE: &str = "certificates.challenge.";

/// Whether other machines share the records, and what is shared with them.
#[derive(Debug)]
pub enum Sharing {
    /// No other machine shares our records.
    Alone,
    /// Others share our records. They may not be open yet.
    With(SharedCertificates),
}

/// The part of the shared records that concerns certificates.
#[derive(Debug)]
pub struct SharedCertificates {
    records: OnceLock<Records>,
    /// Identifies this process among all others.
    owner: String,
}

#[derive(Serialize, Deserialize)]
struct SharedChallenge {
    token: String,
    answer: String,
    until_s: u64,
}

impl Sharing {
    /// Shares with other machines. The records are not open yet.
    pub fn with_others(owner: String) -> Sharing {
        Sharing::With(SharedCertificates { records: OnceLock::new(), owner })
    }

    /// Tells that the records are open now.
    pub fn opened(&self, records: &Records) {
        if let Sharing::With(shared) = self {
            let _ = shared.records.set(records.clone());
        }
    }

    /// Whether this machine may ask the authority now, with an order that takes `most` at most. It may not while the records are closed,
    /// because then it cannot know what the others do.
    pub(crate) async fn may_ask(&self, most: Duration) -> Result<bool, RecordsError> {
        let Sharing::With(shared) = self else { return Ok(true) };
        let Some(records) = shared.records.get() else { return Ok(false) };
        let now = unix_s();
        let until = now + (most + LEASE_REST).as_secs();
        records.values().lease(LEASE_NAME, &shared.owner, now as i64, until as i64).await
    }

    pub(crate) async fn account(&self) -> Result<Option<String>, RecordsError> {
        match self.records() {
            Some(records) => records.secrets().find(ACCOUNT).await,
            None => Ok(None),
        }
    }

    pub(crate) async fn keep_account(&self, json: &str) -> Result<(), RecordsError> {
        match self.records() {
            Some(records) => records.secrets().set(ACCOUNT, json).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn keep(&self, name: &str, pem: &str) -> Result<(), RecordsError> {
        match self.records() {
            Some(records) => records.secrets().set(&format!("{CERTIFICATE}{name}"), pem).await,
            None => Ok(()),
        }
    }

    /// The certificates that any of the machines has, by name.
    pub(crate) async fn certificates(&self) -> Result<Vec<(String, String)>, RecordsError> {
        self.all(CERTIFICATE).await
    }

    /// Answers the challenges that other machines have opened for names that are ours too.
    pub(crate) async fn follow_challenges(&self, named: &NamedCertificates) -> Result<(), RecordsError> {
        for (name, json) in self.all(CHALLENGE).await? {
            let ours = named.states().iter().any(|state| state.name.eq_ignore_ascii_case(&name));
            // The text of a challenge that was closed is empty.
            let challenge = serde_json::from_str::<SharedChallenge>(&json).ok();
            match challenge.filter(|challenge| ours && unix_s() < challenge.until_s) {
                Some(challenge) => drop(named.challenges().open(&name, &challenge.token, &challenge.answer)),
                None => named.challenges().close(&name),
            }
        }
        Ok(())
    }

    /// Tells the other machines about a challenge, and waits until they must have seen it.
    pub(crate) async fn open_challenge(&self, name: &str, token: &str, answer: &str) -> Result<(), RecordsError> {
        let Some(records) = self.records() else { return Ok(()) };
        let until_s = unix_s() + CHALLENGE_LIFE.as_secs();
        let challenge = SharedChallenge { token: token.to_owned(), answer: answer.to_owned(), until_s };
        let json = serde_json::to_string(&challenge).unwrap_or_default();
        records.secrets().set(&format!("{CHALLENGE}{name}"), &json).await?;
        tokio::time::sleep(LOOK * 2).await;
        Ok(())
    }

    pub(crate) async fn close_challenge(&self, name: &str) {
        let Some(records) = self.records() else { return };
        // If this fails, the challenge still expires by itself.
        let closed = records.secrets().set(&format!("{CHALLENGE}{name}"), "").await;
        if let Err(error) = closed {
            tracing::debug!(name, %error, "a shared challenge stays until it ends");
        }
    }

    async fn all(&self, prefix: &str) -> Result<Vec<(String, String)>, RecordsError> {
        let Some(records) = self.records() else { return Ok(Vec::new()) };
        let found = records.secrets().with_prefix(prefix).await?;
        Ok(found.into_iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value))).collect())
    }

    fn records(&self) -> Option<&Records> {
        match self {
            Sharing::Alone => None,
            Sharing::With(shared) => shared.records.get(),
        }
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
