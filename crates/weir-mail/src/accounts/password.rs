//! Passwords: argon2id, off the async threads, a few at a time.
//!
//! A flood of logins must not become our own denial of service: at most `at_once` hashes run, so many wait (see
//! [`Turnstile`]), and beyond that the answer is "try again". A login that was right a short while ago is remembered by a keyed digest, so
//! that a client that logs in for every mail does not pay each time; the key lives as long as the process.

use super::turnstile::Turnstile;
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a right login is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Most logins remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Most logins that wait for a hash in one line.
const WAITING_MAX: usize = 256;

/// Hashes and checks passwords. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Passwords {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    turnstile: Turnstile,
    key: [u8; 32],
    remembered: Mutex<HashMap<[u8; 32], Instant>>,
    /// What a login for a name that does not exist is checked against.
    nobody: String,
}

impl Passwords {
    /// With at most `at_once` hashes at a time.
    pub fn new(at_once: usize, key: [u8; 32]) -> Result<Passwords, PasswordError> {
        Self::with_waiting(at_once, WAITING_MAX, key)
    }

    fn with_waiting(at_once: usize, waiting: usize, key: [u8; 32]) -> Result<Passwords, PasswordError> {
        Ok(Passwords {
            shared: Arc::new(Shared {
                turnstile: Turnstile::new(at_once, waiting),
                key,
                remembered: Mutex::default(),
                nobody: hash_now("nobody has this password")?,
            }),
        })
    }

    /// The hash to store for a new password.
    pub async fn hash(&self, password: &str) -> Result<String, PasswordError> {
        let password = password.to_owned();
        let _turn = self.shared.turnstile.enter(None).await.ok_or(PasswordError::Busy)?;
        elsewhere(move || hash_now(&password)).await?
    }

    /// Whether `password`, sent by `from`, is the one whose hash is `stored`; none stored is never right.
    pub async fn verify(
        &self,
        name: &str,
        password: &str,
        stored: Option<&str>,
        from: IpAddr,
    ) -> Result<bool, PasswordError> {
        let digest = self.digest(name, password, stored.unwrap_or_default());
        if stored.is_some() && self.remembers(&digest) {
            return Ok(true);
        }
        let (password, hash) = (password.to_owned(), stored.unwrap_or(&self.shared.nobody).to_owned());
        let turn = self.shared.turnstile.enter(Some(from)).await.ok_or(PasswordError::Busy)?;
        let right = elsewhere(move || verify_now(&password, &hash)).await? && stored.is_some();
        if right {
            self.remember(digest);
        } else {
            turn.failed();
        }
        Ok(right)
    }

    /// The stored hash is part of it: a changed password is forgotten at once.
    fn digest(&self, name: &str, password: &str, stored: &str) -> [u8; 32] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.shared.key) else { return [0; 32] };
        for part in [name, password, stored] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    fn remembers(&self, digest: &[u8; 32]) -> bool {
        let remembered = self.shared.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(digest).is_some_and(|until| *until > Instant::now())
    }

    fn remember(&self, digest: [u8; 32]) {
        let now = Instant::now();
        let mut remembered = self.shared.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, until| *until > now);
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(digest, now + REMEMBERED_FOR);
        }
    }
}

/// Off the async threads.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PasswordError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| PasswordError::Busy)
}

fn hash_now(password: &str) -> Result<String, PasswordError> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string()).map_err(|e| PasswordError::Hash(e.to_string()))
}

fn verify_now(password: &str, stored: &str) -> bool {
    let Ok(stored) = PasswordHash::new(stored) else { return false };
    Argon2::default().verify_password(password.as_bytes(), &stored).is_ok()
}

/// Why a password was not checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too many logins at once.
    #[error("too many logins at once; try again")]
    Busy,
    /// The hash could not be made.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn right_is_right_wrong_is_wrong_and_a_change_counts_at_once() {
        let passwords = Passwords::new(2, [7; 32]).unwrap();
        let hash = passwords.hash("secret").await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(passwords.verify("ann", "secret", Some(&hash), HERE).await.unwrap());
        assert!(passwords.verify("ann", "secret", Some(&hash), HERE).await.unwrap(), "remembered");
        assert!(!passwords.verify("ann", "Secret", Some(&hash), HERE).await.unwrap());
        assert!(!passwords.verify("ann", "secret", None, HERE).await.unwrap());
        assert!(!passwords.verify("ann", "secret", Some("not a hash"), HERE).await.unwrap());
        let changed = passwords.hash("other").await.unwrap();
        assert!(!passwords.verify("ann", "secret", Some(&changed), HERE).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_is_answered_busy_and_bounded() {
        let passwords = Passwords::with_waiting(1, 8, [7; 32]).unwrap();
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.verify(&n.to_string(), "x", None, HERE).await })
            })
            .collect();
        let mut busy = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(right) => assert!(!right),
                Err(error) => {
                    assert_eq!(error, PasswordError::Busy);
                    busy += 1;
                }
            }
        }
        assert!(busy > 0);
    }
}
