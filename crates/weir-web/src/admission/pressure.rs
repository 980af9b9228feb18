//! Describes the load on a backend for people: where most of it comes from, who holds the slots, who has to wait, and which setting could
//! be changed.
//!
//! It is computed from the present requests whenever somebody asks.

use std::collections::HashMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::fair::SubnetKey;

use super::queue::QueueState;
use super::request_table::RequestEntry;
use super::settings::Slots;
use super::standing::{is_newcomer, is_stranger};

/// The pressure on a backend now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebPressure")]
pub struct Pressure {
    /// Whether far more requests arrive than can be served, from a few networks or from a crowd of strangers.
    pub attack: bool,
    /// Networks that have a request waiting.
    pub networks: u64,
    /// The networks with the most waiting requests.
    pub from: Vec<Crowd>,
    /// The networks that hold the most slots.
    #[serde(default)]
    pub holders: Vec<SlotHolder>,
    /// How many slots there are.
    #[serde(default)]
    pub slots: u64,
    /// Slots that are held.
    #[serde(default)]
    pub held: u64,
    /// Slots that are held by streams.
    #[serde(default)]
    pub streams: u64,
    /// Waiting requests of visitors who are known.
    pub known: WaitingVisitors,
    /// Those of newcomers who have been let in.
    pub newcomers: WaitingVisitors,
    /// Those of strangers.
    pub strangers: WaitingVisitors,
    /// Which settings could be changed, if any.
    pub advice: Vec<String>,
}

/// The waiting requests of one kind of visitors.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebLine")]
pub struct WaitingVisitors {
    pub waiting: u64,
    /// How long the oldest of them has waited, in seconds.
    pub oldest_s: f64,
}

/// The waiting requests of one network.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebCrowd")]
pub struct Crowd {
    /// The network.
    pub network: String,
    /// One of its addresses.
    pub client: IpAddr,
    pub waiting: u64,
    pub running: u64,
}

/// The slots of one network.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebSlotHolder")]
pub struct SlotHolder {
    /// The network.
    pub network: String,
    /// One of its addresses.
    pub client: IpAddr,
    pub slots: u64,
    /// For how long it has held the oldest of them, in seconds.
    pub oldest_s: f64,
    /// Its requests that wait.
    pub waiting: u64,
}

/// How many networks are named.
const NAMED: usize = 5;
/// With fewer waiting requests for each slot it is not called an attack.
const ATTACK_PER_SLOT: u64 = 4;
/// A network with this part of all waiting requests is named as the attacker.
const LARGE_PART: f64 = 0.2;
/// This many networks of strangers are a crowd.
const CROWD_NETWORKS: u64 = 50;

impl Pressure {
    pub(super) fn of(inner: &QueueState, now_ns: u64) -> Pressure {
        let mut pressure = Pressure::default();
        let mut found: HashMap<SubnetKey, Crowd> = HashMap::new();
        let mut oldest_ns: HashMap<SubnetKey, u64> = HashMap::new();
        for request in inner.requests.iter() {
            let crowd = found.entry(request.owner.subnet).or_insert_with(|| Crowd {
                network: request.client.to_string(),
                client: request.client,
                waiting: 0,
                running: 0,
            });
            if request.dispatched_ns > 0 {
                crowd.running += 1;
                let held_ns = now_ns.saturating_sub(request.dispatched_ns);
                let oldest = oldest_ns.entry(request.owner.subnet).or_default();
                *oldest = held_ns.max(*oldest);
            } else {
                crowd.waiting += 1;
                pressure.line_of(request).add(now_ns.saturating_sub(request.asked_ns));
            }
        }
        pressure.holders =
            found.iter().filter(|(_, crowd)| crowd.running > 0).map(SlotHolder::of(&oldest_ns)).collect();
        pressure.holders.sort_by_key(|holder| (std::cmp::Reverse(holder.slots), holder.client));
        pressure.held = pressure.holders.iter().map(|holder| holder.slots).sum();
        pressure.holders.truncate(NAMED);
        pressure.slots = u64::from(inner.slots);
        pressure.streams = u64::from(inner.slot_streams.open());
        let mut crowds: Vec<Crowd> = found.into_values().filter(|crowd| crowd.waiting > 0).collect();
        crowds.sort_by_key(|crowd| (std::cmp::Reverse(crowd.waiting), crowd.client));
        pressure.networks = crowds.len() as u64;
        pressure.attack = pressure.is_attack(&crowds, u64::from(inner.slots));
        crowds.truncate(NAMED);
        pressure.from = crowds;
        pressure.advice = advice(inner, &pressure);
        pressure
    }

    fn line_of(&mut self, request: &RequestEntry) -> &mut WaitingVisitors {
        match request.lane {
            lane if is_stranger(lane) => &mut self.strangers,
            lane if is_newcomer(lane) => &mut self.newcomers,
            _ => &mut self.known,
        }
    }

    fn is_attack(&self, crowds: &[Crowd], slots: u64) -> bool {
        let waiting = self.waiting();
        let large = crowds.first().is_some_and(|first| first.waiting as f64 >= waiting as f64 * LARGE_PART);
        let crowd = self.strangers.waiting * 2 >= waiting && self.networks >= CROWD_NETWORKS;
        waiting >= ATTACK_PER_SLOT * slots.max(1) && (large || crowd)
    }

    /// The network that holds more than half of the slots, while all are held and others wait as well.
    pub fn main_holder(&self) -> Option<&SlotHolder> {
        let first = self.holders.first().filter(|first| self.held >= self.slots && first.slots * 2 > self.slots)?;
        (self.waiting() > first.waiting).then_some(first)
    }

    /// Names the networks, and says what can be done about the one that holds the slots.
    pub fn name(&mut self, name: impl Fn(IpAddr) -> String) {
        self.from.iter_mut().for_each(|crowd| crowd.network = name(crowd.client));
        self.holders.iter_mut().for_each(|holder| holder.network = name(holder.client));
        let advice = self.main_holder().map(|SlotHolder { network, slots, .. }| {
            format!(
                "{network} holds {slots} of {} slots, and would take more slots as well: give what it asks for a backend of its own with few slots, or refuse it \
                 with `weir web block {network}`",
                self.slots
            )
        });
        self.advice.extend(advice);
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u64 {
        self.known.waiting + self.newcomers.waiting + self.strangers.waiting
    }

    /// Where the pressure comes from and who has to wait because of it, each in a sentence; nothing if nobody waits.
    pub fn sentences(&self) -> Vec<String> {
        let waiting = self.waiting();
        if waiting == 0 {
            return Vec::new();
        }
        let large = |crowd: &&Crowd| crowd.waiting as f64 >= waiting as f64 * LARGE_PART;
        let named: Vec<String> = self
            .from
            .iter()
            .filter(large)
            .map(|crowd| format!("{} ({} of {waiting} waiting requests)", crowd.network, crowd.waiting))
            .collect();
        let from = match (named.is_empty(), self.attack) {
            (true, _) => format!("{} networks with a few requests each", self.networks),
            (false, _) => named.join(", "),
        };
        let mut said = vec![match self.main_holder() {
            _ if self.attack => format!("Under attack from {from}."),
            Some(holder) => format!("Busy: most of the slots are held by {}.", holder.network),
            None => format!("Busy: most is asked by {from}."),
        }];
        let lines = [("known visitors", &self.known), ("newcomers", &self.newcomers), ("strangers", &self.strangers)];
        let pays = lines
            .iter()
            .filter(|(_, line)| line.waiting > 0)
            .map(|(who, line)| format!("{} requests of {who} (the oldest for {:.1} s)", line.waiting, line.oldest_s));
        said.push(format!("Who waits for it: {}.", pays.collect::<Vec<_>>().join(", ")));
        said.extend(self.who_holds());
        said
    }

    fn who_holds(&self) -> Option<String> {
        let large = |holder: &&SlotHolder| holder.slots as f64 >= self.slots as f64 * LARGE_PART;
        let named: Vec<String> = self
            .holders
            .iter()
            .filter(large)
            .map(|SlotHolder { network, slots, oldest_s, .. }| {
                format!("{network} ({slots} of {}, the oldest for {oldest_s:.1} s)", self.slots)
            })
            .collect();
        let streams =
            if self.streams > 0 { format!("; streams hold {} of {}", self.streams, self.slots) } else { String::new() };
        (!named.is_empty()).then(|| format!("Who holds the slots: {}{streams}.", named.join(", ")))
    }
}

impl SlotHolder {
    fn of(oldest_ns: &HashMap<SubnetKey, u64>) -> impl Fn((&SubnetKey, &Crowd)) -> SlotHolder {
        |(subnet, crowd)| SlotHolder {
            network: crowd.network.clone(),
            client: crowd.client,
            slots: crowd.running,
            oldest_s: oldest_ns.get(subnet).copied().unwrap_or_default() as f64 / 1e9,
            waiting: crowd.waiting,
        }
    }
}

impl WaitingVisitors {
    fn add(&mut self, waited_ns: u64) {
        self.waiting += 1;
        self.oldest_s = self.oldest_s.max(waited_ns as f64 / 1e9);
    }
}

fn advice(inner: &QueueState, pressure: &Pressure) -> Vec<String> {
    let mut advice = Vec::new();
    let settings = &inner.settings;
    let fixed = matches!(settings.slots, Slots::Fixed(_));
    if inner.shadow.is_some() && !fixed {
        advice.push(format!(
            "slots = \"auto\" is not measured while observe is on, and {} are assumed: set slots to the number of the server's workers",
            inner.slots
        ));
    }
    // More slots do not help if one network or streams hold the present ones.
    let by_streams = pressure.streams >= (pressure.slots / 2).max(1) && pressure.held >= pressure.slots;
    if by_streams && pressure.waiting() > 0 {
        advice.push(format!(
            "streams hold {} of {} slots, and with streams=slots they may hold half: if so many are meant to be open, give the server more workers, and slots to match",
            pressure.streams, pressure.slots
        ));
    }
    if fixed {
        let wanted = pressure.waiting() > 0 && !by_streams && pressure.main_holder().is_none();
        advice.extend(advice_on_slots(inner, wanted));
    }
    if pressure.attack && settings.strangers <= 0.0 {
        advice.push(
            "strangers = 0.0 gives every new network as much as a known visitor: set strangers to 8.0".to_owned(),
        );
    }
    advice
}

/// Whether a fixed number of slots seems too large, or too small if more of them are wanted. Routes whose answers say what they have cost are judged by
/// that, all others by time.
fn advice_on_slots(inner: &QueueState, more_wanted: bool) -> Option<String> {
    let (by_time, by_units, slots) = (inner.strain.ratio(), inner.strain.unit_ratio(), inner.slots);
    let fewer = |ratio: f64| ((f64::from(slots) / ratio).round() as u32).max(1);
    if let Some(ratio) = by_time.filter(|ratio| *ratio >= STRAINED && slots > 1) {
        return Some(format!(
            "slots = {slots} may be too many: with all in use the server takes {ratio:.1} times as long to answer as with half of them; try {} or \"auto\"",
            fewer(ratio)
        ));
    }
    if let Some(ratio) = by_units.filter(|ratio| *ratio >= UNITS_STRAINED && slots > 1) {
        return Some(format!(
            "slots = {slots} may be too many: with all in use the server takes {ratio:.1} times as long for a unit as with half of them, so it does hardly more; try {}",
            fewer(ratio)
        ));
    }
    let unstrained = |ratio: Option<f64>| ratio.is_none_or(|ratio| ratio <= UNSTRAINED);
    let told = by_time.is_some() || by_units.is_some();
    (told && more_wanted && unstrained(by_time) && unstrained(by_units)).then(|| {
        let what = if by_units.is_some() { "works as fast on each answer" } else { "answers as fast" };
        let auto = if by_units.is_some() { "" } else { " or \"auto\"" };
        format!(
            "slots = {slots} may be too few: the server {what} with all in use as with half of them; try {}{auto}",
            slots.saturating_mul(2)
        )
    })
}

const STRAINED: f64 = 1.5;
/// A server that works on many answers together does more with more of them, though each takes longer. At twice the time nothing more is gained.
const UNITS_STRAINED: f64 = 1.8;
const UNSTRAINED: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::super::tests::{Noted, ask, settings};
    use super::super::{Admission, Ask, Cost, Grant, Permit, Settings, Standing};
    use super::*;
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Duration;

    fn from(network: u8, standing: Standing) -> Ask {
        let client = Ipv4Addr::new(203, 0, network, 9).into();
        Ask { client, standing, ..ask(u64::from(network), 1_000 + u64::from(network)) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_with_most_of_what_waits_is_named() {
        let queue = Admission::new(settings(2));
        let all: Vec<_> =
            (0..40).map(|at| queue.ask(&from(if at < 30 { 1 } else { at }, Standing::Known), Waker::noop())).collect();
        let pressure = queue.view().pressure;
        assert!(pressure.attack, "{pressure:?}");
        let said = pressure.sentences();
        assert!(said[0].starts_with("Under attack from 203.0.1.9 (28 of 38 waiting requests)"), "{said:?}");
        assert!(said[1].contains("38 requests of known visitors"), "{said:?}");
        drop(all);
        assert!(queue.view().pressure.sentences().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_the_slots_is_named_and_not_who_waits_for_them() {
        let queue = Admission::new(settings(4));
        // These answers show that the server is no slower with all slots in use.
        for at_once in [1, 4] {
            for round in 0..60_u8 {
                let mut held: Vec<_> =
                    (0..at_once).map(|at| queue.ask(&from(at + round, Standing::Known), Waker::noop())).collect();
                tokio::time::advance(Duration::from_millis(10)).await;
                // The last one first, because it began when the others ran.
                while held.pop().is_some() {}
            }
        }
        let different: Vec<_> = (1..6).map(|at| queue.ask(&from(at, Standing::Known), Waker::noop())).collect();
        let advice = queue.view().pressure.advice;
        assert!(advice.iter().any(|advice| advice.contains("may be too few")), "{advice:?}");
        drop(different);
        let held: Vec<_> = (0..4).map(|_| queue.ask(&from(7, Standing::Known), Waker::noop())).collect();
        tokio::time::advance(Duration::from_secs(34)).await;
        let victim = queue.ask(&from(60, Standing::Known), Waker::noop());
        let mut pressure = queue.view().pressure;
        pressure.name(|client| format!("the network of {client}"));
        let said = pressure.sentences();
        assert_eq!(said[0], "Busy: most of the slots are held by the network of 203.0.7.9.");
        assert!(said[1].starts_with("Who waits for it: 1 requests of known visitors"), "{said:?}");
        assert_eq!(said[2], "Who holds the slots: the network of 203.0.7.9 (4 of 4, the oldest for 34.0 s).");
        let advice = pressure.advice.join("\n");
        assert!(advice.contains("203.0.7.9 holds 4 of 4 slots") && !advice.contains("too few"), "{advice}");
        drop((held, victim));
    }

    #[tokio::test(start_paused = true)]
    async fn slots_that_streams_hold_are_told_as_such() {
        let queue = Admission::new(settings(2));
        let Ok(Grant::Now(mut stream)) = queue.ask(&from(1, Standing::Known), Waker::noop()) else { panic!("a slot") };
        stream.hold_as_stream().unwrap();
        let rest: Vec<_> = (2..4).map(|at| queue.ask(&from(at, Standing::Known), Waker::noop())).collect();
        let pressure = queue.view().pressure;
        assert!(pressure.sentences()[2].ends_with("; streams hold 1 of 2."), "{:?}", pressure.sentences());
        assert!(pressure.advice.iter().any(|advice| advice.contains("streams=slots")), "{:?}", pressure.advice);
        drop((stream, rest));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_strangers_is_an_attack_and_a_few_who_wait_are_not() {
        let queue = Admission::new(settings(2));
        let few: Vec<_> = (0..6).map(|at| queue.ask(&from(at, Standing::Known), Waker::noop())).collect();
        assert!(!queue.view().pressure.attack);
        let crowd: Vec<_> = (10..90).map(|at| queue.ask(&from(at, Standing::Stranger), Waker::noop())).collect();
        let pressure = queue.view().pressure;
        assert!(pressure.attack && pressure.strangers.waiting == 80, "{pressure:?}");
        assert!(pressure.sentences()[0].contains("84 networks with a few requests each"), "{pressure:?}");
        drop((few, crowd));
    }

    /// Answers of a route that say what they have cost, this many at a time. Each begins at once, as streams do, and then takes its time.
    async fn answer(queue: &Arc<Admission>, at_once: u64, took_ms: u64, told_ms: u64) {
        let begin = |session| match queue.ask(&ask(session, session), Waker::noop()) {
            Ok(Grant::Now(permit)) => {
                permit.flows(Noted::new(false));
                permit
            }
            other => panic!("a slot is free: {other:?}"),
        };
        let mut running: VecDeque<Permit> = VecDeque::new();
        for session in 0..60 + at_once {
            running.push_back(begin(session));
            tokio::time::advance(Duration::from_millis(took_ms / at_once)).await;
            if running.len() as u64 == at_once
                && let Some(mut permit) = running.pop_front()
            {
                permit.set_cost(Cost::Told(Duration::from_millis(told_ms)));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn advice_for_answers_that_tell_their_cost_looks_at_the_time_for_a_unit() {
        let advice = |queue: &Arc<Admission>| {
            let all: Vec<_> = (0..5).map(|session| queue.ask(&ask(session, session), Waker::noop())).collect();
            let advice = queue.view().pressure.advice;
            drop(all);
            advice
        };
        let units = || Admission::new(Settings { route_units: vec![true], ..settings(4) });
        // All begin at once, and with all slots in use each takes twice as long.
        let slow = units();
        answer(&slow, 1, 100, 300).await;
        answer(&slow, 4, 200, 300).await;
        assert!(
            matches!(&advice(&slow)[..], [one] if one.contains("too many") && one.contains("2.0 times as long for a unit")),
            "{:?}",
            advice(&slow)
        );
        // Large answers come when all slots are in use, but the server is no slower.
        let large = units();
        answer(&large, 1, 100, 300).await;
        answer(&large, 4, 1_000, 3_000).await;
        assert!(
            matches!(&advice(&large)[..], [one] if one.contains("too few") && one.contains("try 8")),
            "{:?}",
            advice(&large)
        );
        // A server that works on several together: each takes longer, but all together are done sooner.
        let together = units();
        answer(&together, 1, 100, 300).await;
        answer(&together, 4, 150, 300).await;
        assert!(advice(&together).is_empty(), "{:?}", advice(&together));
    }

    #[test]
    fn advice_says_what_to_set() {
        let observed = Admission::new(Settings { observe: true, slots: Slots::AUTO, ..settings(1) });
        assert!(observed.view().pressure.advice[0].contains("number of the server's workers"));
    }
}
