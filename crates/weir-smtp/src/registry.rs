//! All connected clients: counts in total, by address and by user; bans; and the leash of every session.
//!
//! [`Registry::admit`] lets a connection in; it counts until its [`Admission`] is dropped. When all places are taken, the oldest session
//! that has neither logged in nor handed in mail is closed to make room, so idle clients cannot keep others out, from however many
//! addresses. When all places of one address or user are taken, the session that has been idle longest is closed. So a neighbour behind the
//! same router, or somebody who stole the password, can keep nobody out by doing nothing. There is one lock, held for a few map operations,
//! and for a look at the sessions of one address or user if these have reached their limit. The size of the tables is bounded by the number
//! of connections (plus a tenth for sessions that are being ended), and that of the bans by their own capacity.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weir_core::time::Instant;

use super::address_key::AddressKey;
use super::ban::{Attempt, Ban, BanRules, BanTable, Offender};
use super::leash::Leash;
use super::limits::SmtpLimits;
use super::reply::{Reply, Status};
use super::session::Ending;
use super::settings::Purpose;

/// The sessions of one server.
#[derive(Debug)]
pub struct Registry {
    limits: SmtpLimits,
    purpose: Purpose,
    members: Mutex<Members>,
    bans: Mutex<BanTable>,
    /// The key with which attempts are hashed, because names and passwords are not kept.
    secret: RandomState,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Members {
    leashes: HashMap<u64, Arc<Leash>>,
    /// The address of each session, except sessions of trusted peers.
    address_of: HashMap<u64, AddressKey>,
    addresses: HashMap<AddressKey, BTreeSet<u64>>,
    user_of: HashMap<u64, Arc<str>>,
    users: HashMap<Arc<str>, Vec<u64>>,
    /// Sessions that have neither logged in nor handed in mail; the oldest first.
    strangers: BTreeSet<u64>,
    /// Sessions that were told to make room but have not ended yet.
    leaving: HashSet<u64>,
    last_id: u64,
    /// Set while the server shuts down: new sessions are refused.
    closing: bool,
}

/// One connection that was admitted. Dropping this gives its place back.
#[derive(Debug)]
pub struct Admission {
    registry: Arc<Registry>,
    id: u64,
    leash: Arc<Leash>,
}

impl Registry {
    /// An empty registry.
    pub fn new(limits: SmtpLimits, purpose: Purpose) -> Arc<Registry> {
        let limits = limits.bounded();
        let bans = Mutex::new(BanTable::new(BanRules::from(&limits)));
        let (members, secret, emptied) = (Mutex::default(), RandomState::new(), Notify::new());
        Arc::new(Registry { limits, purpose, members, bans, secret, emptied })
    }

    /// Admits a connection, or says why not. A trusted peer counts in the total, but not by its address.
    pub fn admit(self: &Arc<Registry>, address: IpAddr, trusted: bool, now: Instant) -> Result<Admission, Reply> {
        let key = self.key(address);
        if !trusted {
            self.check_ban(key, now)?;
        }
        let mut members = self.members();
        if members.closing {
            return Err(CLOSING);
        }
        if !trusted {
            members.make_room_at(key, &self.limits, now)?;
        }
        if !members.make_room(self.limits.connections as usize, self.purpose) {
            return Err(FULL);
        }
        members.last_id += 1;
        let (id, leash) = (members.last_id, Arc::new(Leash::new(now)));
        members.leashes.insert(id, Arc::clone(&leash));
        members.strangers.insert(id);
        if !trusted {
            members.enter_address(key, id);
        }
        drop(members);
        Ok(Admission { registry: Arc::clone(self), id, leash })
    }

    /// Counts an offence of the address (a failed login, or a recipient that does not exist), unless the same one was counted before.
    /// Returns the ban that this brought.
    pub fn offended(&self, address: IpAddr, offence: impl Hash, now: Instant) -> Option<Ban> {
        let attempt = Attempt(self.secret.hash_one(offence));
        self.bans().failed(self.key(address), attempt, now)
    }

    /// How long the address is still banned.
    pub fn banned(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        self.bans().banned(self.key(address), now)
    }

    /// Bans an address at the request of a person. Returns how long the ban is.
    pub fn ban(&self, address: IpAddr, length: Duration, now: Instant) -> Duration {
        self.bans().ban(self.key(address), length, now)
    }

    /// The client that an address stands for, as text.
    pub fn name_of(&self, address: IpAddr) -> String {
        AddressKey::name(address, self.limits.ipv6_prefix_bits)
    }

    /// Ends a ban early. Returns whether the address was known.
    pub fn pardon(&self, address: IpAddr) -> bool {
        self.bans().pardon(self.key(address))
    }

    /// At most `most` of the addresses that were banned, for the next process.
    pub fn offenders(&self, most: usize, now: Instant) -> Vec<Offender> {
        self.bans().offenders(most, now)
    }

    /// Takes over an address that a former process banned. The length of the prefix that counts may have changed since then.
    pub fn take_up(&self, offender: Offender, now: Instant) {
        let address = self.key(offender.address.address());
        self.bans().take_up(Offender { address, ..offender }, now);
    }

    /// The number of bans and pardons so far.
    pub fn ban_changes(&self) -> u64 {
        self.bans().changes()
    }

    /// Ends all sessions of one user at once with `reply`. Returns how many there were.
    pub fn end_user(&self, user: &str, reply: &Reply) -> usize {
        let members = self.members();
        let ids = members.users.get(user).map(Vec::as_slice).unwrap_or_default();
        for leash in ids.iter().filter_map(|id| members.leashes.get(id)) {
            leash.pull(reply.clone(), Ending::AtOnce);
        }
        ids.len()
    }

    /// Admits no more connections, and ends all sessions.
    pub fn end_all(&self, when: Ending) {
        let mut members = self.members();
        members.closing = true;
        for leash in members.leashes.values() {
            leash.pull(CLOSING, when);
        }
    }

    /// Waits until no session is open.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.members().leashes.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// How many sessions are open now.
    pub fn open(&self) -> usize {
        self.members().leashes.len()
    }

    /// How many sessions of one user are open now.
    pub fn open_of_user(&self, user: &str) -> usize {
        self.members().users.get(user).map_or(0, Vec::len)
    }

    fn check_ban(&self, key: AddressKey, now: Instant) -> Result<(), Reply> {
        match self.bans().banned(key, now) {
            Some(left) => Err(self.banned_reply(left)),
            None => Ok(()),
        }
    }

    /// The reply for a banned address.
    pub(crate) fn banned_reply(&self, left: Duration) -> Reply {
        let minutes = left.as_secs().div_ceil(60);
        let what = match self.purpose {
            Purpose::Submission => "failed logins",
            Purpose::Inbound => "unknown recipients",
        };
        Reply::new(421, Status(4, 7, 0), format!("too many {what} from your address; wait {minutes} min"))
    }

    fn key(&self, address: IpAddr) -> AddressKey {
        AddressKey::new(address, self.limits.ipv6_prefix_bits)
    }

    // If another thread panics, the maps are still consistent, because every change is a single map operation.
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bans(&self) -> MutexGuard<'_, BanTable> {
        self.bans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Whether there is a place. If necessary, a stranger is told to leave.
    fn make_room(&mut self, max: usize, purpose: Purpose) -> bool {
        if self.leashes.len() - self.leaving.len() < max {
            return true;
        }
        // Sessions that were told to leave may take a moment to end.
        if self.leaving.len() > max / 10 {
            return false;
        }
        let Some(id) = self.strangers.pop_first() else { return false };
        if let Some(leash) = self.leashes.get(&id) {
            let why = if purpose == Purpose::Inbound { CROWDED_INBOUND } else { CROWDED };
            leash.pull(why, Ending::AtOnce);
            self.leaving.insert(id);
        }
        true
    }

    /// Makes a place for one more session of an address, if the address has reached its limit.
    fn make_room_at(&mut self, key: AddressKey, limits: &SmtpLimits, now: Instant) -> Result<(), Reply> {
        let Some(here) = self.addresses.get(&key).filter(|here| here.len() >= limits.connections_per_address as usize)
        else {
            return Ok(());
        };
        let idle = here.iter().filter_map(|id| Some((self.idle_since(*id, limits, now)?, *id)));
        let longest = idle.min().map(|(_, id)| id);
        self.push_out(longest, limits, TOO_MANY_FROM_ADDRESS, IDLE_AT_ADDRESS)
    }

    /// Makes a place for one more session of a user, if the user has reached the limit. If the user has several clients, the client with
    /// the most sessions loses one.
    fn make_room_for(&mut self, user: &str, limits: &SmtpLimits, now: Instant) -> Result<(), Reply> {
        let Some(own) = self.users.get(user).filter(|own| own.len() >= limits.connections_per_user as usize) else {
            return Ok(());
        };
        let mut at_address: HashMap<Option<&AddressKey>, usize> = HashMap::new();
        own.iter().for_each(|id| *at_address.entry(self.address_of.get(id)).or_default() += 1);
        let idle = own.iter().filter_map(|id| {
            let sessions = at_address.get(&self.address_of.get(id)).copied().unwrap_or(0);
            Some((Reverse(sessions), self.idle_since(*id, limits, now)?, *id))
        });
        let longest = idle.min().map(|(_, _, id)| id);
        self.push_out(longest, limits, TOO_MANY_OF_USER, IDLE_OF_USER)
    }

    fn idle_since(&self, id: u64, limits: &SmtpLimits, now: Instant) -> Option<Instant> {
        self.leashes.get(&id)?.idle_since(now, limits.idle_makes_room, self.strangers.contains(&id))
    }

    /// Ends a session so that another can have its place. If no session can be ended, returns `refusal`.
    fn push_out(&mut self, id: Option<u64>, limits: &SmtpLimits, refusal: Reply, why: Reply) -> Result<(), Reply> {
        // Sessions that were told to leave may take a moment to end.
        let Some(id) = id.filter(|_| self.leaving.len() <= limits.connections as usize / 10) else {
            return Err(refusal);
        };
        if let Some(leash) = self.leashes.get(&id) {
            leash.pull(why, Ending::AtOnce);
            self.leaving.insert(id);
        }
        self.strangers.remove(&id);
        self.leave_address(id);
        self.leave_user(id);
        Ok(())
    }

    fn enter_address(&mut self, key: AddressKey, id: u64) {
        self.addresses.entry(key).or_default().insert(id);
        self.address_of.insert(id, key);
    }

    fn leave_address(&mut self, id: u64) {
        let Some(key) = self.address_of.remove(&id) else { return };
        if let Some(here) = self.addresses.get_mut(&key) {
            here.remove(&id);
            if here.is_empty() {
                self.addresses.remove(&key);
            }
        }
    }

    fn leave_user(&mut self, id: u64) {
        let Some(user) = self.user_of.remove(&id) else { return };
        if let Some(ids) = self.users.get_mut(&user) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.users.remove(&user);
            }
        }
    }
}

impl Admission {
    /// The number of the session.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The handle through which an order to end the session arrives.
    pub fn leash(&self) -> &Arc<Leash> {
        &self.leash
    }

    /// Counts the session for a user, unless the user has too many. [`Admission::logout`] ends this.
    pub fn login(&mut self, user: &Arc<str>, now: Instant) -> Result<(), Reply> {
        self.logout();
        let mut members = self.registry.members();
        members.make_room_for(user, &self.registry.limits, now)?;
        members.users.entry(Arc::clone(user)).or_default().push(self.id);
        members.user_of.insert(self.id, Arc::clone(user));
        members.strangers.remove(&self.id);
        Ok(())
    }

    /// Notes that the session has handed in mail, so that it need not make room for others any more.
    pub fn established(&self) {
        self.registry.members().strangers.remove(&self.id);
    }

    /// Notes that the session no longer belongs to a user.
    pub fn logout(&mut self) {
        self.registry.members().leave_user(self.id);
    }

    /// Notes that the true client is `address`: bans and counts apply to that address from now on.
    pub fn stand_for(&mut self, address: IpAddr, now: Instant) -> Result<(), Reply> {
        let key = self.registry.key(address);
        self.registry.check_ban(key, now)?;
        let mut members = self.registry.members();
        members.make_room_at(key, &self.registry.limits, now)?;
        members.leave_address(self.id);
        members.enter_address(key, self.id);
        Ok(())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut members = self.registry.members();
        members.leashes.remove(&self.id);
        members.strangers.remove(&self.id);
        members.leaving.remove(&self.id);
        members.leave_address(self.id);
        members.leave_user(self.id);
        let empty = members.leashes.is_empty();
        drop(members);
        if empty {
            self.registry.emptied.notify_waiters();
        }
    }
}

const CLOSING: Reply = Reply::fixed(421, Status(4, 3, 2), "the server is shutting down; please try again soon");
const FULL: Reply = Reply::fixed(421, Status(4, 3, 2), "too many connections; please try again soon");
const CROWDED: Reply =
    Reply::fixed(421, Status(4, 3, 2), "others need the place, and you have not logged in; try again");
const CROWDED_INBOUND: Reply =
    Reply::fixed(421, Status(4, 3, 2), "others need the place, and you have brought no mail; try again");
const TOO_MANY_FROM_ADDRESS: Reply = Reply::fixed(421, Status(4, 7, 0), "too many connections from your address");
const IDLE_AT_ADDRESS: Reply =
    Reply::fixed(421, Status(4, 7, 0), "idle, and another client at your address needs the place; try again");
const IDLE_OF_USER: Reply = Reply::fixed(421, Status(4, 7, 0), "idle, and the user has logged in elsewhere; try again");
const TOO_MANY_OF_USER: Reply = Reply::fixed(454, Status(4, 7, 0), "too many sessions of this user; close one first");

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn registry() -> Arc<Registry> {
        let limits =
            SmtpLimits { connections: 4, connections_per_address: 2, connections_per_user: 1, ..SmtpLimits::default() };
        Registry::new(limits, Purpose::Submission)
    }

    fn admit(registry: &Arc<Registry>, address: &str) -> Result<Admission, u16> {
        registry.admit(address.parse().unwrap(), false, Instant::ZERO).map_err(|reply| reply.code())
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let registry = registry();
        let first = admit(&registry, "192.0.2.1").unwrap();
        let second = admit(&registry, "192.0.2.1").unwrap();
        assert_eq!(admit(&registry, "192.0.2.1").unwrap_err(), 421);
        drop(first);
        let third = admit(&registry, "192.0.2.1").unwrap();
        let fourth = admit(&registry, "192.0.2.2").unwrap();
        let fifth = admit(&registry, "192.0.2.3").unwrap();
        [&second, &third, &fourth, &fifth].into_iter().for_each(Admission::established);
        assert_eq!(admit(&registry, "192.0.2.4").unwrap_err(), 421);
        assert_eq!(registry.open(), 4);
        assert!(!registry.members().addresses.contains_key(&registry.key("192.0.2.4".parse().unwrap())));
    }

    #[test]
    fn the_oldest_stranger_makes_room() {
        let registry = registry();
        let mut context = Context::from_waker(Waker::noop());
        let mut user = admit(&registry, "192.0.2.1").unwrap();
        user.login(&"ann".into(), Instant::ZERO).unwrap();
        let strangers: Vec<Admission> = (2..5).map(|n| admit(&registry, &format!("192.0.2.{n}")).unwrap()).collect();
        let next = admit(&registry, "192.0.2.5").unwrap();
        assert!(strangers[0].leash().poll_order(&mut context).is_ready());
        assert!(strangers[1..].iter().all(|other| other.leash().poll_order(&mut context).is_pending()));
        assert!(user.leash().poll_order(&mut context).is_pending());
        assert_eq!(admit(&registry, "192.0.2.6").unwrap_err(), 421, "one after the other");
        drop(strangers);
        let _others = [admit(&registry, "192.0.2.6").unwrap(), admit(&registry, "192.0.2.7").unwrap()];
        assert_eq!((registry.open(), registry.members().leaving.len()), (4, 0));
        drop((user, next));
    }

    #[test]
    fn users_are_counted_and_ended() {
        let registry = registry();
        let user: Arc<str> = "ann".into();
        let mut first = admit(&registry, "192.0.2.1").unwrap();
        let mut second = admit(&registry, "192.0.2.2").unwrap();
        first.login(&user, Instant::ZERO).unwrap();
        assert_eq!(second.login(&user, Instant::ZERO).unwrap_err().code(), 454);
        assert_eq!(registry.end_user("ann", &CLOSING), 1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.leash().poll_order(&mut context).is_ready());
        assert!(second.leash().poll_order(&mut context).is_pending());
        drop(first);
        second.login(&user, Instant::ZERO).unwrap();
        assert_eq!((registry.open_of_user("ann"), registry.end_user("bob", &CLOSING)), (1, 0));
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn is_told_to_go(session: &Admission) -> bool {
        session.leash().poll_order(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_shares_an_address_with_those_that_idle_takes_the_place_of_one() {
        let registry = registry();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let admit = |seconds| registry.admit(address, false, at(seconds)).map_err(|reply| reply.code());
        let (older, newer) = (admit(0).unwrap(), admit(1).unwrap());
        assert_eq!(admit(2).unwrap_err(), 421, "nobody has been idle for long enough");
        older.leash().works();
        let new = admit(4).unwrap();
        assert_eq!((is_told_to_go(&older), is_told_to_go(&newer)), (false, true));
        assert_eq!(admit(6).unwrap_err(), 421, "one is at work, and the other has just come");
        drop(newer);
        assert_eq!(admit(6).unwrap_err(), 421, "who was sent away gives no second place");
        drop(new);
        assert!(admit(6).is_ok());
        drop(older);
        assert!(registry.members().addresses.is_empty() && registry.members().address_of.is_empty());
    }

    #[test]
    fn a_thief_that_holds_all_sessions_does_not_keep_the_owner_out() {
        let limits = SmtpLimits { connections_per_user: 3, ..SmtpLimits::default() };
        let registry = Registry::new(limits, Purpose::Submission);
        let user: Arc<str> = "ann".into();
        let login = |address: &str, seconds| {
            let mut session = registry.admit(address.parse().unwrap(), false, at(seconds)).unwrap();
            session.login(&user, at(seconds)).map(|()| session).map_err(|reply| reply.code())
        };
        let telephone = login("192.0.2.7", 0).unwrap();
        let thief = [login("198.51.100.1", 1).unwrap(), login("198.51.100.1", 2).unwrap()];
        assert_eq!(login("192.0.2.8", 2).unwrap_err(), 454, "nobody has been idle for long enough");
        let owner = login("192.0.2.8", 9).unwrap();
        assert!(is_told_to_go(&thief[0]) && !is_told_to_go(&thief[1]), "who has most sessions gives one");
        assert!(!is_told_to_go(&telephone) && registry.open_of_user("ann") == 3);
        drop((owner, thief, telephone));
        assert_eq!(registry.open_of_user("ann"), 0);
    }

    #[test]
    fn a_ban_shuts_the_door_but_not_for_trusted_peers() {
        let registry = registry();
        let address: IpAddr = "192.0.2.9".parse().unwrap();
        let bans = (0..10).filter_map(|guess| registry.offended(address, guess, Instant::ZERO)).count();
        assert_eq!(bans, 1);
        assert_eq!(admit(&registry, "192.0.2.9").unwrap_err(), 421);
        let mut proxy = registry.admit(address, true, Instant::ZERO).unwrap();
        assert!(proxy.stand_for(address, Instant::ZERO).is_err());
        assert!(proxy.stand_for("192.0.2.10".parse().unwrap(), Instant::ZERO).is_ok());
        assert!(registry.pardon(address));
        assert!(admit(&registry, "192.0.2.9").is_ok());
    }

    #[test]
    fn after_end_all_nobody_comes_in() {
        let registry = registry();
        registry.end_all(Ending::AtOnce);
        assert_eq!(admit(&registry, "192.0.2.1").unwrap_err(), 421);
    }
}
