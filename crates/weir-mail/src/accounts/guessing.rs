//! Defends against slow password guessing: wrong passwords for one account from many addresses, each of which fails too rarely to be
//! banned.
//!
//! Each account may fail [`FREE`] times a day with different passwords. Beyond that its logins from networks that it is not known to use
//! are checked one after the other, each after a pause that grows to half a minute, and few may wait. Whoever logs in from a network
//! from which that account has logged in before does not notice, so nobody can lock the owner out by guessing. Names that do not exist are
//! treated in the same way, so that nobody can find out which names exist.
//!
//! How many logins failed, and from where, is counted besides, for people: [`WrongLogins`] of an account, and the accounts that are guessed at
//! from many networks ([`GuessedAt`]).
//!
//! In memory only; a restart forgets both the failures and the networks. Bounded: [`ACCOUNTS_MAX`] accounts of about 300 octets; those with the
//! fewest failures make room.

use crate::client_network::network_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Wrong passwords a day that slow nobody.
const FREE: f64 = 10.0;
const DAY_S: f64 = 86_400.0;
/// Failures that still count: after a month of guessing an account must not be slowed down for another month.
const FAILURES_MAX: f64 = 100.0;
/// The first pause; each further failure adds half of it.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest pause: mail programs wait so long for an answer.
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// Logins of one account that may wait for their turn.
const WAITING_MAX: usize = 8;
/// Accounts that are remembered.
const ACCOUNTS_MAX: usize = 20_000;
/// Networks that are remembered of one account.
const NETWORKS_MAX: usize = 8;
/// Wrong passwords that are remembered of one account.
const TRIED_MAX: usize = 8;

/// Networks of failed logins that are told apart, and how many of them are named.
const GUESSERS_MAX: usize = 64;
const GUESSERS_NAMED: usize = 5;
/// Failed logins are counted over so long.
const COUNTED_FOR: Duration = Duration::from_secs(86_400);
/// From so many networks nobody fails by mistake; and a guess this long ago is none of now.
const GUESSED_FROM: usize = 5;
const GUESSED_WITHIN: Duration = Duration::from_secs(3_600);
/// Accounts that are named as guessed at.
const GUESSED_MAX: usize = 20;
/// How much of a name is kept.
const NAME_MAX: usize = 120;

/// Failed logins of one account in the last 24 hours, since this relay started: at the mail server and on the console.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrongLogins {
    /// How many.
    pub count: u64,
    /// From how many networks; 64 are 64 or more.
    pub networks: u64,
    /// The latest of these.
    pub from: Vec<String>,
    /// Whether logins from networks that the account does not use are slowed.
    pub slowed: bool,
}

/// An account that somebody guesses at from many networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuessedAt {
    /// The login that is tried.
    pub name: String,
    /// How often it failed.
    pub wrong: WrongLogins,
}

/// What is known of the accounts that somebody tries to log in to.
#[derive(Debug, Default)]
pub(super) struct Guessing {
    accounts: Mutex<HashMap<u64, Account>>,
    /// Names, passwords and networks are kept as hashes with a key of this process.
    hasher: RandomState,
}

#[derive(Debug)]
struct Account {
    failures: f64,
    since: Instant,
    networks: Vec<u64>,
    /// Wrong passwords of late. The same one again is no guess: a telephone with an old password.
    tried: Vec<u64>,
    line: Arc<LoginLine>,
    name: String,
    wrong: Wrong,
}

/// What failed lately, for people.
#[derive(Debug, Default)]
struct Wrong {
    count: u64,
    since: Option<Instant>,
    last: Option<Instant>,
    networks: Vec<u64>,
    named: Vec<String>,
}

impl Wrong {
    fn add(&mut self, network: (u64, String), now: Instant) {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= COUNTED_FOR) {
            *self = Wrong { since: Some(now), ..Wrong::default() };
        }
        self.count += 1;
        self.last = Some(now);
        if !self.networks.contains(&network.0) && self.networks.len() < GUESSERS_MAX {
            self.networks.push(network.0);
        }
        self.named.retain(|named| *named != network.1);
        self.named.push(network.1);
        let surplus = self.named.len().saturating_sub(GUESSERS_NAMED);
        self.named.drain(..surplus);
    }

    fn view(&self, slowed: bool, now: Instant) -> WrongLogins {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= COUNTED_FOR) {
            return WrongLogins::default();
        }
        let from = self.named.iter().rev().cloned().collect();
        WrongLogins { count: self.count, networks: self.networks.len() as u64, from, slowed }
    }

    /// Whether somebody guesses now, from too many networks for a mistake.
    fn is_guessed(&self, now: Instant) -> bool {
        let lately = self.last.is_some_and(|last| now.saturating_duration_since(last) < GUESSED_WITHIN);
        lately && self.networks.len() >= GUESSED_FROM && self.count as f64 >= FREE
    }
}

/// The logins of one account that are slowed: one is checked at a time.
#[derive(Debug)]
struct LoginLine {
    place: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// Leave to check one login.
#[derive(Debug, Default)]
pub(super) struct Turn {
    _permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Guessing {
    /// Waits until a login may be checked; none if too many wait.
    pub(super) async fn turn(&self, name: &str, from: IpAddr) -> Option<Turn> {
        let Some((line, pause)) = self.slowed(name, from, Instant::now()) else { return Some(Turn::default()) };
        let waiting = Arc::clone(&line.waiting).try_acquire_owned().ok()?;
        let place = Arc::clone(&line.place).acquire_owned().await.ok()?;
        tokio::time::sleep(pause).await;
        Some(Turn { _permits: Some((waiting, place)) })
    }

    /// The line that a login has to wait in, and for how long.
    fn slowed(&self, name: &str, from: IpAddr, now: Instant) -> Option<(Arc<LoginLine>, Duration)> {
        let (key, network) = (self.key(name), self.network(from));
        let mut accounts = self.accounts();
        let account = accounts.get_mut(&key)?;
        account.forget(now);
        let over = account.failures - FREE;
        if over < 0.0 || account.networks.contains(&network) {
            return None;
        }
        let pause = PAUSE_FIRST.mul_f64(1.0 + over / 2.0).min(PAUSE_LONGEST);
        Some((Arc::clone(&account.line), pause))
    }

    /// A login was wrong. True if this account is slowed from now on.
    pub(super) fn failed(&self, name: &str, password: &str, from: IpAddr, now: Instant) -> bool {
        let (key, network, password) = (self.key(name), self.network(from), self.hasher.hash_one((name, password)));
        let mut accounts = self.accounts();
        if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&key) {
            make_room(&mut accounts);
        }
        let account = accounts.entry(key).or_insert_with(|| Account::new(name, now));
        account.forget(now);
        account.wrong.add((network, network_of(from)), now);
        if account.networks.contains(&network) || account.tried.contains(&password) {
            return false;
        }
        keep(&mut account.tried, password, TRIED_MAX);
        let before = account.failures;
        account.failures = (before + 1.0).min(FAILURES_MAX);
        before < FREE && account.failures >= FREE
    }

    /// A login was right: its network is the account's.
    pub(super) fn succeeded(&self, name: &str, from: IpAddr, now: Instant) {
        let (key, network) = (self.key(name), self.network(from));
        let mut accounts = self.accounts();
        if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&key) {
            make_room(&mut accounts);
        }
        let account = accounts.entry(key).or_insert_with(|| Account::new(name, now));
        if !account.networks.contains(&network) {
            keep(&mut account.networks, network, NETWORKS_MAX);
        }
    }

    /// Failed logins of an account.
    pub(super) fn wrong(&self, name: &str, now: Instant) -> WrongLogins {
        let mut accounts = self.accounts();
        accounts.get_mut(&self.key(name)).map(|account| account.view(now)).unwrap_or_default()
    }

    /// Accounts that somebody guesses at now, the most first.
    pub(super) fn guessed(&self, now: Instant) -> Vec<GuessedAt> {
        let mut accounts = self.accounts();
        let guessed = accounts.values_mut().filter(|account| account.wrong.is_guessed(now));
        let mut guessed: Vec<GuessedAt> =
            guessed.map(|account| GuessedAt { name: account.name.clone(), wrong: account.view(now) }).collect();
        drop(accounts);
        guessed.sort_by(|a, b| b.wrong.count.cmp(&a.wrong.count).then_with(|| a.name.cmp(&b.name)));
        guessed.truncate(GUESSED_MAX);
        guessed
    }

    fn key(&self, name: &str) -> u64 {
        self.hasher.hash_one(name.to_lowercase())
    }

    fn network(&self, address: IpAddr) -> u64 {
        self.hasher.hash_one(network_of(address))
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<u64, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn new(name: &str, now: Instant) -> Account {
        let line = LoginLine { place: Arc::new(Semaphore::new(1)), waiting: Arc::new(Semaphore::new(WAITING_MAX)) };
        Account {
            failures: 0.0,
            since: now,
            networks: Vec::new(),
            tried: Vec::new(),
            line: Arc::new(line),
            name: name.chars().take(NAME_MAX).collect(),
            wrong: Wrong::default(),
        }
    }

    fn view(&mut self, now: Instant) -> WrongLogins {
        self.forget(now);
        self.wrong.view(self.failures >= FREE, now)
    }

    /// Failures are forgotten as fast as they are free.
    fn forget(&mut self, now: Instant) {
        let passed_s = now.saturating_duration_since(self.since).as_secs_f64();
        self.failures = (self.failures - passed_s * FREE / DAY_S).max(0.0);
        self.since = now;
    }
}

/// The newest of these, at most so many.
fn keep(list: &mut Vec<u64>, new: u64, most: usize) {
    if list.len() >= most {
        list.remove(0);
    }
    list.push(new);
}

/// The half with the fewest failures goes.
fn make_room(accounts: &mut HashMap<u64, Account>) {
    let mut failures: Vec<f64> = accounts.values().map(|account| account.failures).collect();
    failures.sort_unstable_by(f64::total_cmp);
    let middle = failures.get(failures.len() / 2).copied().unwrap_or_default();
    let mut left = failures.len() / 2;
    accounts.retain(|_, account| {
        let stays = account.failures > middle || left == 0;
        left -= usize::from(!stays);
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, number, 2, 1])
    }

    #[test]
    fn guesses_from_many_networks_slow_strangers_and_never_the_owner() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        guessing.succeeded("ann", address(200), now);
        for number in 0..9 {
            assert!(!guessing.failed("ann", &number.to_string(), address(number), now));
        }
        assert!(guessing.slowed("ann", address(99), now).is_none(), "nine wrong passwords a day are usual");
        assert!(guessing.failed("Ann", "tenth", address(9), now), "said once");
        assert!(!guessing.failed("ann", "eleventh", address(10), now));
        let pause = |from, now| guessing.slowed("ann", from, now).map(|(_, pause)| pause);
        assert_eq!(pause(address(99), now), Some(PAUSE_FIRST.mul_f64(1.5)));
        assert_eq!(pause(address(200), now), None, "the owner's network");
        assert_eq!(pause(IpAddr::from([192, 200, 2, 77]), now), None, "the same network");
        assert_eq!(guessing.slowed("bob", address(99), now).map(|(_, pause)| pause), None, "nobody else's account");
        for number in 0..=255u8 {
            guessing.failed("ann", &format!("more {number}"), address(number), now);
        }
        assert_eq!(pause(address(99), now), Some(PAUSE_LONGEST));
        assert_eq!(pause(address(99), now + Duration::from_secs(10 * 86_400)), None, "forgotten");
    }

    #[test]
    fn failed_logins_are_counted_with_their_networks_and_guesses_from_many_are_named() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        for number in 0..30 {
            guessing.failed("ann", "the same", address(1), now);
            guessing.failed("bob", &number.to_string(), address(number % 7), now);
        }
        let ann = guessing.wrong("Ann", now);
        assert_eq!((ann.count, ann.networks, ann.slowed), (30, 1, false), "a telephone with an old password");
        let bob = guessing.wrong("bob", now);
        assert_eq!((bob.count, bob.networks, bob.from.len(), bob.slowed), (30, 7, GUESSERS_NAMED, true));
        assert_eq!(bob.from[0], "192.1.2.0/24", "the latest first");
        assert_eq!(guessing.wrong("carl", now), WrongLogins::default());
        let named = |now| guessing.guessed(now).into_iter().map(|guessed| guessed.name).collect::<Vec<_>>();
        assert_eq!(named(now), ["bob"]);
        assert_eq!(named(now + GUESSED_WITHIN), [""; 0], "an hour later nobody guesses");
        assert_eq!(guessing.wrong("bob", now + COUNTED_FOR).count, 0);
    }

    #[test]
    fn an_old_password_again_and_again_is_no_guess() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        for number in 0..200 {
            guessing.failed("ann", "last year's", address(number), now);
        }
        assert!(guessing.slowed("ann", address(250), now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_checked_at_a_time_and_few_wait() {
        let (guessing, now) = (Arc::new(Guessing::default()), Instant::now());
        for number in 0..20 {
            guessing.failed("ann", &number.to_string(), address(number), now);
        }
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let guessing = Arc::clone(&guessing);
                tokio::spawn(async move { guessing.turn("ann", address(100 + number)).await.is_some() })
            })
            .collect();
        let mut checked = 0;
        for task in tasks {
            checked += usize::from(task.await.unwrap());
        }
        assert_eq!(checked, WAITING_MAX);
    }

    #[test]
    fn memory_is_bounded_and_an_attack_on_one_account_is_not_washed_out() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        for number in 0..20 {
            guessing.failed("ann", &number.to_string(), address(number), now);
        }
        for number in 0..3 * ACCOUNTS_MAX {
            guessing.failed(&format!("name {number}"), "x", address(1), now);
        }
        assert!(guessing.accounts().len() <= ACCOUNTS_MAX);
        assert!(guessing.slowed("ann", address(99), now).is_some());
    }
}
