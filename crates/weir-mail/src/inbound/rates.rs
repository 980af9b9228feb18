//! Limits how much mail strangers may send: slack for each network and for each sender's domain (`weir_core::throttle::Crowd`).
//!
//! A client cannot forge its network, so the network (/24 of IPv4, /56 of IPv6) is charged for every message that it begins, before the
//! text is sent. The owner of a whole IPv6 allocation could use a new /56 for each message, so the /32 has a limit too: the slack of
//! `ALLOCATION` networks. A sender's domain is a claim. It is charged when it is known whether SPF confirms the claim, and a claim that is
//! not confirmed has slack of its own: so forging a domain's name uses up nothing that belongs to that domain.
//!
//! A message to many costs as much as several: one for every `RECIPIENTS_A_MESSAGE` recipients. Nothing survives a restart.

use crate::client_network::prefix_of;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant as Clock;
use weir_core::throttle::{Crowd, CrowdParams};
use weir_core::time::Instant;
use weir_settings::settings;
use weir_smtp::reply::{Reply, Status};

/// Networks and domains that are remembered, of each kind.
const PLACES: usize = 65_536;
/// How many networks' slack an allocation of IPv6 has.
const ALLOCATION: u32 = 32;
/// A message to more recipients counts as several.
const RECIPIENTS_A_MESSAGE: usize = 10;
/// At most so often the log says that somebody is put off.
const SAID_AGAIN: Duration = Duration::from_secs(10);

settings! {
    /// How much mail strangers may bring.
    #[derive(Copy, PartialEq, Eq)]
    pub struct RateSettings {
        /// Messages that a network (/24, or /56 of IPv6) may send at once before it is told to try again later; 0 is no limit
        pub network_burst: u32 = number(300, 0..=1_000_000),
        /// Messages a minute that a network may send in the long run
        pub network_rate: u32 = number(300, 1..=10_000_000),
        /// The same for a sender's domain that SPF confirms, from any network; 0 is no limit. A domain that SPF does not confirm has
        /// the limits of a network, and is counted separately
        pub domain_burst: u32 = number(3_000, 0..=10_000_000),
        /// Messages a minute that such a domain may send in the long run
        pub domain_rate: u32 = number(3_000, 1..=10_000_000),
    }
}

/// How much mail strangers have brought.
#[derive(Debug)]
pub(super) struct Rates {
    state: Mutex<State>,
    /// Keys are hashed with a secret, so that nobody can search for two names with the same key.
    secret: RandomState,
    begun: Clock,
}

#[derive(Debug)]
struct State {
    networks: Option<Crowd>,
    allocations: Option<Crowd>,
    domains: Option<Crowd>,
    claims: Option<Crowd>,
    said: Option<Clock>,
}

impl Rates {
    pub(super) fn new(settings: RateSettings) -> Rates {
        let RateSettings { network_burst, network_rate, domain_burst, domain_rate } = settings;
        let state = State {
            networks: crowd(network_burst, network_rate),
            allocations: crowd(network_burst.saturating_mul(ALLOCATION), network_rate.saturating_mul(ALLOCATION)),
            domains: crowd(domain_burst, domain_rate),
            claims: crowd(network_burst, network_rate),
            said: None,
        };
        Rates { state: Mutex::new(state), secret: RandomState::new(), begun: Clock::now() }
    }

    /// Whether a client may begin a message at all; costs nothing.
    pub(super) fn may_come(&self, client: IpAddr) -> Result<(), Reply> {
        let (now, keys) = (self.now(), self.keys(client));
        let mut state = self.state();
        let wait = state.network_wait(keys, 1, now);
        if wait.is_zero() { Ok(()) } else { Err(state.put_off(&network(client), wait)) }
    }

    /// A client brings a message to so many recipients.
    pub(super) fn comes(&self, client: IpAddr, recipients: usize) -> Result<(), Reply> {
        let (now, keys, cost) = (self.now(), self.keys(client), cost(recipients));
        let mut state = self.state();
        let wait = state.network_wait(keys, cost, now);
        if !wait.is_zero() {
            return Err(state.put_off(&network(client), wait));
        }
        let (near, far) = keys;
        // Both have enough slack: that was just checked.
        let _ = state.networks.as_mut().map(|crowd| crowd.spend(near, cost, now));
        if let Some(far) = far {
            let _ = state.allocations.as_mut().map(|crowd| crowd.spend(far, cost, now));
        }
        Ok(())
    }

    /// A message claims to be of a domain, and SPF confirms it or does not.
    pub(super) fn sends(&self, domain: &str, confirmed: bool, recipients: usize) -> Result<(), Reply> {
        let (now, key, cost) = (self.now(), self.secret.hash_one(domain), cost(recipients));
        let mut state = self.state();
        let crowd = if confirmed { &mut state.domains } else { &mut state.claims };
        match crowd.as_mut().map(|crowd| crowd.spend(key, cost, now)) {
            Some(Err(wait)) if confirmed => Err(state.put_off(domain, wait)),
            Some(Err(wait)) => Err(state.put_off(&format!("senders that claim to be of {domain}"), wait)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// The network of a client and, for IPv6, the allocation that it belongs to.
    fn keys(&self, client: IpAddr) -> (u64, Option<u64>) {
        let key = |(network, bits): (IpAddr, u32)| self.secret.hash_one((network, bits));
        let allocation = client.to_canonical().is_ipv6().then(|| key(prefix_of(client, 24, 32)));
        (key(prefix_of(client, 24, 56)), allocation)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clock that does not jump.
    fn now(&self) -> Instant {
        Instant::ZERO + self.begun.elapsed()
    }
}

impl State {
    fn network_wait(&mut self, (near, far): (u64, Option<u64>), cost: u32, now: Instant) -> Duration {
        let near = self.networks.as_mut().map_or(Duration::ZERO, |crowd| crowd.wait(near, cost, now));
        let allocations = self.allocations.as_mut();
        let far = far.zip(allocations).map_or(Duration::ZERO, |(far, crowd)| crowd.wait(far, cost, now));
        near.max(far)
    }

    fn put_off(&mut self, whom: &str, wait: Duration) -> Reply {
        if self.said.is_none_or(|said| said.elapsed() >= SAID_AGAIN) {
            tracing::warn!(whom, "more mail than strangers may bring; it is put off");
            self.said = Some(Clock::now());
        }
        let seconds = wait.as_secs() + 1;
        Reply::new(451, Status(4, 7, 1), format!("too much mail from {whom}, try again in {seconds} s"))
    }
}

fn crowd(burst: u32, a_minute: u32) -> Option<Crowd> {
    let period = Duration::from_secs(60) / a_minute.max(1);
    (burst > 0).then(|| Crowd::new(CrowdParams { max_slack: burst, period, places: PLACES }))
}

fn cost(recipients: usize) -> u32 {
    u32::try_from(recipients.div_ceil(RECIPIENTS_A_MESSAGE)).unwrap_or(u32::MAX).max(1)
}

fn network(client: IpAddr) -> String {
    let (network, bits) = prefix_of(client, 24, 56);
    format!("{network}/{bits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(network_burst: u32, domain_burst: u32) -> Rates {
        Rates::new(RateSettings { network_burst, network_rate: 60, domain_burst, domain_rate: 60 })
    }

    fn taken(rates: &Rates, clients: impl Iterator<Item = String>) -> usize {
        clients.filter(|client| rates.comes(client.parse().unwrap(), 1).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_is_put_off_and_its_neighbours_are_not() {
        let rates = rates(10, 0);
        assert_eq!(taken(&rates, (0..200).map(|last| format!("192.0.2.{last}"))), 10);
        let reply = rates.may_come("192.0.2.250".parse().unwrap()).unwrap_err();
        assert_eq!((reply.code(), reply.text()), (451, "too much mail from 192.0.2.0/24, try again in 2 s"));
        assert!(rates.may_come("192.0.3.1".parse().unwrap()).is_ok());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(taken(&rates, (0..200).map(|last| format!("192.0.2.{last}"))), 3);
        // A message to a hundred is as much as ten.
        let other = "198.51.100.1".parse().unwrap();
        assert!(rates.comes(other, 100).is_ok() && rates.comes(other, 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_network_for_each_message_does_not_help() {
        let rates = rates(10, 0);
        let of = |number: u32| format!("2001:db8:{:x}:{:x}00::1", number >> 8, number & 255);
        assert_eq!(taken(&rates, (0..10_000).map(of)), 10 * ALLOCATION as usize);
        assert_eq!(taken(&rates, (0..100).map(|number| format!("2001:db9::{number:x}"))), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forged_name_uses_up_nothing_of_its_owner() {
        let rates = rates(5, 20);
        let count = |confirmed| (0..100).filter(|_| rates.sends("big.example", confirmed, 1).is_ok()).count();
        assert_eq!((count(false), count(true)), (5, 20));
        assert!(rates.sends("big.example", false, 1).unwrap_err().text().contains("claim to be of big.example"));
        let off = Rates::new(RateSettings { network_burst: 0, domain_burst: 0, ..RateSettings::default() });
        assert!((0..10_000).all(|_| off.sends("a.example", true, 1).is_ok()));
        assert_eq!(taken(&off, (0..10_000).map(|_| "192.0.2.1".to_owned())), 10_000);
    }
}
