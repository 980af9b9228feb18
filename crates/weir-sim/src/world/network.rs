//! The network between hosts: delay, loss, duplication, reordering, and cuts in one direction.
//!
//! A datagram is lost, doubled or late. A stream message is sent again after a loss, arrives once, and fails for good when either direction
//! is cut, because a connection needs both.

use crate::rng::Rng;
use std::time::Duration;

/// How a payload travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// May be lost, doubled, and overtaken.
    Datagram,
    /// Comes once or not at all; loss makes it late.
    Stream,
}

/// How badly the network behaves; disturbances that act at one time add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Disturbance {
    /// The share of packets that is lost.
    pub loss: f64,
    /// The share of datagrams that comes twice.
    pub duplicate: f64,
    /// The share of packets that comes up to 200 ms late, and so out of order.
    pub reorder: f64,
    /// The longest additional delay of every packet, in seconds.
    pub delay_s: f64,
}

/// The links between `ends` ends.
#[derive(Debug, Clone)]
pub struct Network {
    ends: usize,
    /// How many cuts lie on the way from a to b, at `a · ends + b`.
    cuts: Vec<u8>,
    disturbances: Vec<(usize, Disturbance)>,
}

/// After so many lost packets a stream gives up.
const TRIES_MAX: u32 = 4;

impl Network {
    /// A network without faults.
    pub fn new(ends: usize) -> Network {
        Network { ends, cuts: vec![0; ends * ends], disturbances: Vec::new() }
    }

    /// Whether packets pass from `a` to `b`.
    pub fn is_open(&self, a: usize, b: usize) -> bool {
        self.cuts[a * self.ends + b] == 0
    }

    /// One more cut from `a` to `b`.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.cuts[a * self.ends + b] += 1;
    }

    /// One cut less.
    pub fn mend(&mut self, a: usize, b: usize) {
        self.cuts[a * self.ends + b] -= 1;
    }

    /// Behaves worse until [`Network::calm`] with the same name.
    pub fn disturb(&mut self, name: usize, disturbance: Disturbance) {
        self.disturbances.push((name, disturbance));
    }

    /// Ends a disturbance.
    pub fn calm(&mut self, name: usize) {
        self.disturbances.retain(|(other, _)| *other != name);
    }

    /// After which delays a payload arrives: never, once or twice.
    pub fn carry(&self, rng: &mut Rng, (a, b): (usize, usize), by: Transport) -> Vec<Duration> {
        let bad = self.disturbance();
        match by {
            Transport::Datagram if !self.is_open(a, b) || rng.chance(bad.loss) => Vec::new(),
            Transport::Datagram => {
                let copies = 1 + u32::from(rng.chance(bad.duplicate));
                (0..copies).map(|_| packet(rng, &bad)).collect()
            }
            Transport::Stream if self.is_open(a, b) && self.is_open(b, a) => stream(rng, &bad).into_iter().collect(),
            Transport::Stream => Vec::new(),
        }
    }

    fn disturbance(&self) -> Disturbance {
        self.disturbances.iter().fold(Disturbance::default(), |sum, (_, d)| Disturbance {
            loss: 1.0 - (1.0 - sum.loss) * (1.0 - d.loss),
            duplicate: (sum.duplicate + d.duplicate).min(1.0),
            reorder: (sum.reorder + d.reorder).min(1.0),
            delay_s: sum.delay_s + d.delay_s,
        })
    }
}

/// The delay of one packet: 0.1 to 1 ms in a quiet network.
fn packet(rng: &mut Rng, bad: &Disturbance) -> Duration {
    let late = if rng.chance(bad.reorder) { rng.unit() * 0.2 } else { 0.0 };
    Duration::from_secs_f64(0.000_1 + rng.unit() * (0.000_9 + bad.delay_s) + late)
}

/// Handshake and payload, each packet sent again after 100 ms, 200 ms, … when it is lost.
fn stream(rng: &mut Rng, bad: &Disturbance) -> Option<Duration> {
    let mut delay = packet(rng, bad) + packet(rng, bad) + packet(rng, bad);
    for tries in 0..TRIES_MAX {
        if !rng.chance(bad.loss) {
            return Some(delay);
        }
        delay += Duration::from_millis(100 << tries);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_duplicates_come_as_often_as_asked() {
        let mut network = Network::new(2);
        network.disturb(0, Disturbance { loss: 0.5, duplicate: 0.5, ..Disturbance::default() });
        let mut rng = Rng::new(1);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[network.carry(&mut rng, (0, 1), Transport::Datagram).len()] += 1;
        }
        for (count, expected) in counts.into_iter().zip([5_000, 2_500, 2_500]) {
            assert!(i32::abs(count - expected) < 200, "{counts:?}");
        }
        network.calm(0);
        assert_eq!(network.carry(&mut rng, (0, 1), Transport::Datagram).len(), 1);
    }

    #[test]
    fn a_cut_is_one_way_for_datagrams_and_both_ways_for_streams() {
        let mut network = Network::new(3);
        let mut rng = Rng::new(2);
        let mut passes = |network: &Network, a, b, by| !network.carry(&mut rng, (a, b), by).is_empty();
        network.cut(0, 1);
        network.cut(0, 1);
        network.mend(0, 1);
        assert!(!passes(&network, 0, 1, Transport::Datagram));
        assert!(passes(&network, 1, 0, Transport::Datagram));
        assert!(!passes(&network, 1, 0, Transport::Stream));
        assert!(passes(&network, 1, 2, Transport::Stream));
        network.mend(0, 1);
        assert!(passes(&network, 1, 0, Transport::Stream));
    }
}
