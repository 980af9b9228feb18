//! Hashes and checks passwords with argon2id: not on the async threads, and only a few at a time.
//!
//! A flood of logins must not make us refuse service: at most `at_once` hashes run at the same time, a bounded number of logins waits (see
//! [`LoginQueue`]), and beyond that the answer is "try again". A login that was right a short while ago is remembered by a keyed digest, so
//! that a client that logs in for every mail does not have to wait for a hash each time; the key of the digests lives as long as the
//! process. The memory of a hash (19 MiB) is kept for the next one: if each hash allocated its own, every thread that ever computed one
//! would keep as much. It is freed when nobody has logged in for a while.

use crate::directory::Directory;
use crate::login_queue::LoginQueue;
use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::task::JoinError;

/// How long a right login is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// At most this many logins are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Memory that no hash has used for this long is freed.
const SPARE_FOR: Duration = Duration::from_secs(10);
/// At most this many logins wait for a hash in each line.
const WAITING_MAX: usize = 256;

/// Hashes and checks passwords. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Passwords {
    shared: Arc<PasswordsShared>,
    /// The directory that checks logins that have no password here.
    directory: Option<Directory>,
}

#[derive(Debug)]
struct PasswordsShared {
    login_queue: LoginQueue,
    key: [u8; 32],
    remembered: Mutex<HashMap<[u8; 32], Instant>>,
    /// Memory that no hash uses now, at most as many pieces as hashes ever ran at once.
    spare: Mutex<Vec<HashMemory>>,
    /// The number of hashes so far.
    hashes: AtomicU64,
    /// A hash that fits no login. Logins without a name or password here are checked against it, so that the time of the answer does not
    /// tell.
    nobody: String,
}

impl Passwords {
    /// At most `at_once` hashes run at a time. `key` is used for the digests of remembered logins.
    pub fn new(at_once: usize, key: [u8; 32]) -> Result<Passwords, PasswordError> {
        Self::with_waiting(at_once, WAITING_MAX, key)
    }

    fn with_waiting(at_once: usize, waiting: usize, key: [u8; 32]) -> Result<Passwords, PasswordError> {
        let nobody = hash_now("nobody has this password", &mut HashMemory::default())?;
        Ok(Passwords {
            shared: Arc::new(PasswordsShared {
                login_queue: LoginQueue::new(at_once, waiting),
                key,
                remembered: Mutex::default(),
                spare: Mutex::default(),
                hashes: AtomicU64::new(0),
                nobody,
            }),
            directory: None,
        })
    }

    /// The same, with a directory that knows more people.
    #[must_use]
    pub fn with_directory(self, directory: Option<Directory>) -> Passwords {
        Passwords { directory, ..self }
    }

    /// The directory that knows more people, if there is one.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// The hash to store for a new password.
    pub async fn hash(&self, password: &str) -> Result<String, PasswordError> {
        let password = password.to_owned();
        let _turn = self.shared.login_queue.enter(None).await.ok_or(PasswordError::Busy)?;
        self.elsewhere(move |memory| hash_now(&password, memory)).await?
    }

    /// Whether `password`, sent by `from`, belongs to the hash `stored`; always false if nothing is stored.
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
        let usable = stored.filter(|stored| is_hash(stored));
        let (password, hash) = (password.to_owned(), usable.unwrap_or(&self.shared.nobody).to_owned());
        let turn = self.shared.login_queue.enter(Some(from)).await.ok_or(PasswordError::Busy)?;
        let right = self.elsewhere(move |memory| verify_now(&password, &hash, memory)).await? && usable.is_some();
        if right {
            self.remember(digest);
        } else {
            turn.failed();
        }
        Ok(right)
    }

    /// Does the work outside of the async threads, with memory for one hash.
    async fn elsewhere<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HashMemory) -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let shared = Arc::clone(&self.shared);
        let working = move || {
            let mut memory = shared.spare().pop().unwrap_or_default();
            let done = work(&mut memory);
            shared.spare().push(memory);
            done
        };
        // A panic is logged with its place. Work that was not begun, because the process ends, may be tried again.
        let failed = |error: JoinError| match error.is_panic() {
            true => PasswordError::Hash(error.to_string()),
            false => PasswordError::Busy,
        };
        let done = tokio::task::spawn_blocking(working).await.map_err(failed);
        let hashes = 1 + self.shared.hashes.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(SPARE_FOR).await;
            give_back(&shared, hashes);
        });
        done
    }

    /// The stored hash is part of the digest, so a login with an old password is no longer remembered as soon as the password changes.
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

impl PasswordsShared {
    fn spare(&self) -> MutexGuard<'_, Vec<HashMemory>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the spare memory if no hash was computed since this one.
fn give_back(shared: &Weak<PasswordsShared>, hashes: u64) {
    if let Some(shared) = shared.upgrade().filter(|shared| shared.hashes.load(Ordering::Relaxed) == hashes) {
        let spare = std::mem::take(&mut *shared.spare());
        drop(spare);
    }
}

/// The memory that one hash needs.
type HashMemory = Vec<Block>;

fn hash_now(password: &str, memory: &mut HashMemory) -> Result<String, PasswordError> {
    let (salt, params) = (Salt::generate(), Params::default());
    let wrong = |error: &dyn std::fmt::Display| PasswordError::Hash(error.to_string());
    let hash = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: ParamsString::try_from(&params).map_err(|e| wrong(&e))?,
        salt: Some(salt),
        hash: None,
    };
    let output = output(password, &hash, Params::DEFAULT_OUTPUT_LEN, memory).ok_or_else(|| wrong(&"argon2 failed"))?;
    Ok(PasswordHash { hash: Some(output), ..hash }.to_string())
}

/// Whether a password can be checked against this. Some accounts have no password, and their stored text is not a hash.
fn is_hash(stored: &str) -> bool {
    let hash = PasswordHash::new(stored).ok();
    hash.is_some_and(|hash| {
        hash.hash.is_some()
            && hash.salt.is_some()
            && Params::try_from(&hash).is_ok()
            && Algorithm::try_from(hash.algorithm.as_str()).is_ok()
    })
}

fn verify_now(password: &str, stored: &str, memory: &mut HashMemory) -> bool {
    let Ok(stored) = PasswordHash::new(stored) else { return false };
    let Some(expected) = &stored.hash else { return false };
    // This comparison takes constant time.
    output(password, &stored, expected.len(), memory).is_some_and(|output| output == *expected)
}

/// Hashes a password with the algorithm, parameters and salt of `like`; none if these are not valid.
fn output(password: &str, like: &PasswordHash, length: usize, memory: &mut HashMemory) -> Option<Output> {
    let algorithm = Algorithm::try_from(like.algorithm.as_str()).ok()?;
    let version = like.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
    let params = Params::try_from(like).ok()?;
    memory.resize(params.block_count(), Block::default());
    let argon2 = Argon2::new(algorithm, version, params);
    let mut out = vec![0; length];
    argon2.hash_password_into_with_memory(password.as_bytes(), like.salt.as_ref()?, &mut out, memory).ok()?;
    Output::new(&out).ok()
}

/// Why a password was not checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too many logins wait already.
    #[error("too many logins at once; try again")]
    Busy,
    /// The hash could not be made, for a new password or to compare it.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn memory_goes_back_when_nobody_logs_in() {
        let passwords = Passwords::new(2, [7; 32]).unwrap();
        passwords.hash("one").await.unwrap();
        passwords.hash("two").await.unwrap();
        let shared = Arc::downgrade(&passwords.shared);
        give_back(&shared, 1);
        assert_eq!(passwords.shared.spare().len(), 1, "there was one more since");
        give_back(&shared, 2);
        assert!(passwords.shared.spare().is_empty());
        passwords.hash("three").await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_is_not_a_crowd() {
        let passwords = Passwords::new(1, [7; 32]).unwrap();
        let done: Result<(), _> = passwords.elsewhere(|_| panic!("planted")).await;
        assert!(matches!(&done, Err(PasswordError::Hash(why)) if why.contains("planted")), "{done:?}");
        passwords.hash("the next one").await.unwrap();
    }

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
        // As another program wrote it, with parameters of its own.
        let foreign = "$argon2id$v=19$m=16,t=2,p=1$MTIzNDU2Nzg5MA$UePK8R7v2M4NcQVvXBXcgw";
        assert!(!passwords.verify("ann", "secret", Some(foreign), HERE).await.unwrap());
        assert!(passwords.shared.spare.lock().unwrap().len() == 1, "memory is used again");
    }

    /// The work is counted in blocks of memory that were hashed over, not in time, which depends on the machine.
    #[tokio::test]
    async fn every_wrong_login_costs_the_same_work() {
        let passwords = Passwords::new(1, [7; 32]).unwrap();
        let stored = passwords.hash("secret").await.unwrap();
        let mut work = Vec::new();
        for stored in [None, Some(""), Some("!"), Some("$argon2id$v=19$m=16,t=2,p=1$"), Some(stored.as_str())] {
            passwords.shared.spare().clear();
            let before = passwords.shared.hashes.load(Ordering::Relaxed);
            assert!(!passwords.verify("ann", "wrong", stored, HERE).await.unwrap());
            let hashes = passwords.shared.hashes.load(Ordering::Relaxed) - before;
            work.push((hashes, passwords.shared.spare().iter().map(Vec::len).sum::<usize>()));
        }
        assert!(work.iter().all(|one| *one == work[0] && one.1 > 10_000), "{work:?}");
        assert!(!passwords.verify("ann", "nobody has this password", None, HERE).await.unwrap());
        assert!(!passwords.verify("ann", "nobody has this password", Some(""), HERE).await.unwrap());
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
