//! DNS blocklists (RFC 5782), each with a weight: a client that reaches the threshold is refused.
//!
//! Only an answer in 127.0.0.0/8 is a listing, and not 127.0.0.1, which no list uses, nor 127.255.255.0/24, by which lists say that they
//! do not answer us. Everything else is silence: a list that has died and answers with its seller's address, a failure, no answer
//! in time. Silence counts as nothing, so a dead list lets mail in and keeps none out. Lists are asked beside each other, each client
//! once for a while. A list may have a negative weight: whoever is on it is trusted for more.

use super::authenticity::names::{DnsResolver, can_be_name};
use crate::delivery::resolver::{Dns, ResolverError, resolver};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use weir_settings::{settings, text_value};
use weir_smtp::reply::{Reply, Status};

/// Clients that are remembered.
const CLIENTS_MAX: usize = 10_000;
/// How long a client is remembered if every list has answered.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How long it is remembered if a list has not answered.
const UNSURE_FOR: Duration = Duration::from_secs(30);
/// Clients that are asked about at once.
const ASKED_MAX: usize = 256;

settings! {
    /// Lists of addresses in the DNS.
    #[derive(PartialEq, Eq)]
    pub struct DnsblSettings {
        /// DNS blocklists, each with its weight: "bl.example.net 3"; a negative weight is for lists of trusted senders
        pub lists as "dnsbl": Vec<DnsList> = list([], 32, "lists"),
        /// The sum of weights from which a client is refused
        pub threshold as "dnsbl_threshold": u32 = number(1, 1..=1_000),
        /// How long to wait for the lists; one that has not answered by then is ignored
        pub patience as "dnsbl_patience": Duration = duration("3s", "100ms"..="30s"),
    }
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsList {
    /// Its zone.
    pub zone: String,
    /// What being on it counts.
    pub weight: i32,
}

text_value!(DnsList: "\"bl.example.net 3\"");

impl FromStr for DnsList {
    type Err = String;

    fn from_str(text: &str) -> Result<DnsList, String> {
        let wrong = || {
            format!(
                "{text:?} is not a list: write its zone and a weight from -100 to 100, such as \"bl.example.net 3\""
            )
        };
        let (zone, weight) = text.trim().split_once(' ').unwrap_or((text.trim(), "1"));
        let weight = weight.trim().parse().ok().filter(|weight| (-100..=100).contains(weight) && *weight != 0);
        let plain = zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let fits = can_be_name(zone) && zone.len() < 180 && zone.contains('.') && plain;
        match weight {
            Some(weight) if fits => Ok(DnsList { zone: zone.trim_end_matches('.').to_ascii_lowercase(), weight }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for DnsList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.zone, self.weight)
    }
}

/// What the lists say of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Listed {
    sum: i64,
    /// The lists that it is on.
    lists: Vec<DnsList>,
}

/// Looks clients up.
pub(super) struct Dnsbl {
    settings: DnsblSettings,
    names: DnsResolver,
    known: Mutex<CachedAnswers>,
    places: Semaphore,
}

impl Dnsbl {
    /// None if there are no lists.
    pub(super) fn new(settings: &DnsblSettings, dns: &Dns) -> Result<Option<Dnsbl>, ResolverError> {
        if settings.lists.is_empty() {
            return Ok(None);
        }
        let (known, places) = (Mutex::default(), Semaphore::new(ASKED_MAX));
        Ok(Some(Dnsbl { settings: settings.clone(), names: DnsResolver(resolver(dns)?), known, places }))
    }

    /// What the lists say of a client.
    pub(super) async fn look_up(&self, client: IpAddr) -> Arc<Listed> {
        let client = client.to_canonical();
        if let Some(known) = self.known().find(client, Instant::now()) {
            return known;
        }
        let deadline = Instant::now() + self.settings.patience;
        // Who gets no place in time has not been found on any list.
        let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else { return Arc::default() };
        let (listed, sure) = self.ask(client, deadline).await;
        let listed = Arc::new(listed);
        self.known().learn(client, &listed, Instant::now() + if sure { KNOWN_FOR } else { UNSURE_FOR });
        listed
    }

    /// Asks all lists; whether all have answered.
    async fn ask(&self, client: IpAddr, deadline: Instant) -> (Listed, bool) {
        let mut asked = JoinSet::new();
        for list in self.settings.lists.clone() {
            let (names, name) = (self.names.clone(), name_in(client, &list.zone));
            asked.spawn(async move {
                let like = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                (list, timeout_at(deadline, names.addresses(&name, like)).await)
            });
        }
        let (mut listed, mut sure) = (Listed::default(), true);
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((list, Ok(Ok(addresses)))) if addresses.iter().any(is_listing) => {
                    listed.sum += i64::from(list.weight);
                    listed.lists.push(list);
                }
                Ok((_, Ok(Ok(addresses)))) => sure &= addresses.is_empty(),
                Ok((_, Ok(Err(why)))) => sure &= why.is_an_answer(),
                Ok((_, Err(_))) | Err(_) => sure = false,
            }
        }
        listed.lists.sort_by(|a, b| (b.weight, &a.zone).cmp(&(a.weight, &b.zone)));
        (listed, sure)
    }

    /// Why a client is refused, if it is.
    pub(super) fn refusal(&self, client: IpAddr, listed: &Listed) -> Option<Reply> {
        if listed.sum < i64::from(self.settings.threshold) {
            return None;
        }
        let against = listed.lists.iter().filter(|list| list.weight > 0).map(|list| list.zone.as_str());
        let text = format!("{client} is listed by {}", against.collect::<Vec<_>>().join(", "));
        Some(Reply::new(554, Status(5, 7, 1), text))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, CachedAnswers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    /// A header line for mail that is taken all the same; empty if no list knows the client.
    pub(super) fn line(&self) -> String {
        if self.lists.is_empty() {
            return String::new();
        }
        let lists: Vec<String> = self.lists.iter().map(|list| format!("{}={}", list.zone, list.weight)).collect();
        format!("X-Weir-Listed: {}; sum={}\r\n", lists.join(" "), self.sum)
    }
}

/// The name under which a list has an address: its parts backwards, before the zone.
fn name_in(client: IpAddr, zone: &str) -> String {
    match client {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.{zone}")
        }
        IpAddr::V6(v6) => {
            let digits: Vec<String> = format!("{:032x}", v6.to_bits()).chars().rev().map(String::from).collect();
            format!("{}.{zone}", digits.join("."))
        }
    }
}

fn is_listing(answer: &IpAddr) -> bool {
    let IpAddr::V4(answer) = answer else { return false };
    let [first, second, third, _] = answer.octets();
    first == 127 && *answer != Ipv4Addr::LOCALHOST && (second, third) != (255, 255)
}

/// What is known of clients, for a while; the oldest go first.
#[derive(Debug, Default)]
struct CachedAnswers {
    clients: HashMap<IpAddr, (Arc<Listed>, Instant)>,
    order: VecDeque<IpAddr>,
}

impl CachedAnswers {
    fn find(&self, client: IpAddr, now: Instant) -> Option<Arc<Listed>> {
        self.clients.get(&client).filter(|(_, until)| *until > now).map(|(listed, _)| Arc::clone(listed))
    }

    fn learn(&mut self, client: IpAddr, listed: &Arc<Listed>, until: Instant) {
        if self.clients.insert(client, (Arc::clone(listed), until)).is_none() {
            self.order.push_back(client);
        }
        while self.order.len() > CLIENTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.clients.remove(&oldest);
            }
        }
    }
}

impl fmt::Debug for Dnsbl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dnsbl").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_answers_of_lists() {
        assert_eq!(name_in("192.0.2.99".parse().unwrap(), "bl.example"), "99.2.0.192.bl.example");
        let v6 = name_in("2001:db8:1:2:3:4:567:89ab".parse().unwrap(), "bl.example");
        assert_eq!(v6, "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.bl.example");
        let listing = |text: &str| is_listing(&text.parse().unwrap());
        assert!(listing("127.0.0.2") && listing("127.9.9.9") && listing("127.255.0.1"));
        for silence in ["127.0.0.1", "127.255.255.254", "127.255.255.252", "192.0.2.1", "::1", "0.0.0.0"] {
            assert!(!listing(silence), "{silence}");
        }
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        assert_eq!("bl.example".parse(), Ok(DnsList { zone: "bl.example".into(), weight: 1 }));
        assert_eq!("WL.example. -5".parse::<DnsList>().unwrap().to_string(), "wl.example -5");
        for bad in [
            "",
            "bl",
            "bl.example x",
            "bl.example 0",
            "bl.example 101",
            "a b.example 3",
            "bl..example 3",
            "b\"l.example",
        ] {
            assert!(bad.parse::<DnsList>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_known_is_bounded() {
        let (mut known, until) = (CachedAnswers::default(), Instant::now() + Duration::from_secs(60));
        for number in 0..CLIENTS_MAX as u32 * 2 {
            known.learn(Ipv4Addr::from_bits(number).into(), &Arc::default(), until);
        }
        assert_eq!((known.clients.len(), known.order.len()), (CLIENTS_MAX, CLIENTS_MAX));
    }
}
