//! A random plan of faults from a seed: what goes wrong, when, and on which host.

use super::{Disturbance, Power, Trouble, World};
use crate::rng::Rng;
use std::str::FromStr;
use std::time::Duration;
use weir_core::time::Instant;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Up to half of all packets are lost.
    Loss,
    /// Every packet is up to 0.3 s late.
    Delay,
    /// Datagrams come twice.
    Duplicate,
    /// Packets overtake each other.
    Reorder,
    /// Hosts are split in two sets that do not hear each other; the database is on one or both sides.
    Partition,
    /// One host is not heard, or hears nothing, or only one other.
    OneWay,
    /// A host loses its memory and starts again later.
    Crash,
    /// A host stands still and goes on later.
    Pause,
    /// A clock runs up to a tenth too fast or too slow.
    Clock,
    /// The database's clock is set by up to an hour, forward or back.
    Jump,
    /// The database restarts, is read-only, slow, or out of reach of one host.
    Database,
    /// A host gives up its office in good order and comes back later. For the experiment to carry out.
    Resign,
    /// An intruder sends false and old messages. For the experiment to carry out.
    Forgery,
    /// A copy of a host with its identity comes up. For the experiment to carry out.
    Clone,
    /// A host is given another priority for good. For the experiment to carry out.
    Priority,
}

impl FaultKind {
    /// Every kind with its name.
    pub const ALL: [(FaultKind, &'static str); 15] = [
        (FaultKind::Loss, "loss"),
        (FaultKind::Delay, "delay"),
        (FaultKind::Duplicate, "duplicate"),
        (FaultKind::Reorder, "reorder"),
        (FaultKind::Partition, "partition"),
        (FaultKind::OneWay, "one-way"),
        (FaultKind::Crash, "crash"),
        (FaultKind::Pause, "pause"),
        (FaultKind::Clock, "clock"),
        (FaultKind::Jump, "jump"),
        (FaultKind::Database, "database"),
        (FaultKind::Resign, "resign"),
        (FaultKind::Forgery, "forgery"),
        (FaultKind::Clone, "clone"),
        (FaultKind::Priority, "priority"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, name)| name)
    }
}

/// A set of kinds, as typed: `all`, `none`, or names with commas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults(Vec<FaultKind>);

impl Faults {
    /// Every kind.
    pub fn all() -> Faults {
        Faults(FaultKind::ALL.iter().map(|(kind, _)| *kind).collect())
    }

    /// The kinds, each once, in order.
    pub fn kinds(&self) -> &[FaultKind] {
        &self.0
    }

    /// Whether a kind is in the set.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.0.contains(&kind)
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Faults, String> {
        let mut kinds = Vec::new();
        for word in text.split(',').map(str::trim) {
            match (word, FaultKind::ALL.iter().find(|(_, name)| *name == word)) {
                ("all", _) => kinds.extend(Faults::all().0),
                ("none", _) if text.trim() == "none" => {}
                (_, Some((kind, _))) => kinds.push(*kind),
                _ => return Err(unknown(word)),
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        Ok(Faults(kinds))
    }
}

fn unknown(word: &str) -> String {
    let names: Vec<&str> = FaultKind::ALL.iter().map(|(_, name)| *name).collect();
    format!("{word:?} is not a fault: write all, none, or some of {}, with commas between", names.join(", "))
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            n if n == FaultKind::ALL.len() => f.write_str("all"),
            _ => f.write_str(&self.0.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")),
        }
    }
}

/// One fault from its beginning to its end.
#[derive(Debug, Clone, Copy)]
pub struct Episode {
    /// What it is.
    pub kind: FaultKind,
    /// When it begins.
    pub from: Instant,
    /// When it ends.
    pub until: Instant,
    /// The seed of its particulars.
    pub seed: u64,
}

/// The faults of one run, in order of their beginning.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// The episodes.
    pub episodes: Vec<Episode>,
}

impl FaultPlan {
    /// Random episodes of these kinds between `from` and `until`, each up to `longest` long.
    pub fn random(rng: &mut Rng, faults: &Faults, (from, until): (Instant, Instant), longest: Duration) -> FaultPlan {
        let mut episodes = Vec::new();
        let mut at = from;
        while !faults.kinds().is_empty() {
            at += Duration::from_secs_f64(rng.exponential(longest.as_secs_f64() / 5.0));
            if at >= until {
                break;
            }
            let length = longest.mul_f64(0.02 + 0.98 * rng.unit() * rng.unit());
            let kind = *rng.pick(faults.kinds());
            episodes.push(Episode { kind, from: at, until: (at + length).min(until), seed: rng.next_u64() });
        }
        FaultPlan { episodes }
    }
}

/// What an episode did to the hosts, for the experiment to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing that the experiment must know.
    None,
    /// This host has lost its memory.
    Crashed(usize),
    /// This host has been started.
    Started(usize),
}

/// What to undo at the end of an episode.
#[derive(Debug)]
pub(super) enum Applied {
    Disturbance,
    Cuts(Vec<(usize, usize)>),
    Crash(usize),
    Pause(usize),
    Rate(Option<usize>),
    Trouble,
}

impl<M: Clone> World<M> {
    /// Begins episode number `name`. Half of the faults that befall one host befall `leader`, if there is
    /// one. The kinds that are the experiment's own do nothing here.
    pub fn begin(&mut self, name: usize, episode: &Episode, leader: Option<usize>) -> Change {
        let mut rng = Rng::new(episode.seed);
        let victim = leader.filter(|_| rng.chance(0.5)).unwrap_or(rng.below(self.hosts.len() as u64) as usize);
        let applied = match episode.kind {
            FaultKind::Loss | FaultKind::Delay | FaultKind::Duplicate | FaultKind::Reorder => {
                self.network.disturb(name, disturbance(&mut rng, episode.kind));
                Applied::Disturbance
            }
            FaultKind::Partition => self.cut_all(self.partition(&mut rng, victim)),
            FaultKind::OneWay => self.cut_all(self.one_way(&mut rng, victim)),
            FaultKind::Crash if self.hosts[victim].power() == Power::Up => {
                self.crash(victim);
                self.applied.push((name, Applied::Crash(victim)));
                return Change::Crashed(victim);
            }
            FaultKind::Pause if self.hosts[victim].power() == Power::Up => {
                self.pause(victim);
                Applied::Pause(victim)
            }
            FaultKind::Clock => self.drift(&mut rng, victim),
            FaultKind::Jump => {
                self.set_calendar(&mut rng);
                return Change::None;
            }
            FaultKind::Database => self.trouble(name, &mut rng, victim),
            _ => return Change::None,
        };
        self.applied.push((name, applied));
        Change::None
    }

    /// Ends episode number `name`.
    pub fn end_episode(&mut self, name: usize) -> Change {
        let Some(at) = self.applied.iter().position(|(other, _)| *other == name) else { return Change::None };
        match self.applied.swap_remove(at).1 {
            Applied::Disturbance => self.network.calm(name),
            Applied::Cuts(cuts) => cuts.into_iter().for_each(|(a, b)| self.network.mend(a, b)),
            Applied::Crash(host) => {
                self.start(host);
                return Change::Started(host);
            }
            Applied::Pause(host) => self.resume(host),
            Applied::Rate(Some(host)) => self.set_rate(host, 1.0),
            Applied::Rate(None) => {
                let now = self.now();
                self.database.clock_mut().set_rate(now, 1.0);
            }
            Applied::Trouble => self.database.recover(name),
        }
        Change::None
    }

    fn cut_all(&mut self, cuts: Vec<(usize, usize)>) -> Applied {
        for (a, b) in &cuts {
            self.network.cut(*a, *b);
        }
        Applied::Cuts(cuts)
    }

    /// Halves, or the victim alone; the database stays with both sides, with one, or with the other.
    fn partition(&self, rng: &mut Rng, victim: usize) -> Vec<(usize, usize)> {
        let n = self.hosts.len();
        let alone = rng.chance(0.4);
        let side: Vec<bool> = (0..n).map(|host| if alone { host == victim } else { rng.chance(0.5) }).collect();
        let database = [None, Some(true), Some(false)][rng.below(3) as usize];
        let mut cuts = Vec::new();
        for a in 0..n {
            cuts.extend((0..n).filter(|b| side[a] != side[*b]).map(|b| (a, b)));
            if database.is_some_and(|with| side[a] != with) {
                cuts.extend([(a, n), (n, a)]);
            }
        }
        cuts
    }

    /// The victim is not heard, or hears nothing, by all hosts or by one.
    fn one_way(&self, rng: &mut Rng, victim: usize) -> Vec<(usize, usize)> {
        let n = self.hosts.len();
        let (out, only) = (rng.chance(0.5), rng.chance(0.3).then(|| rng.below(n as u64) as usize));
        let others = (0..n).filter(|other| *other != victim && only.is_none_or(|only| only == *other));
        others.map(|other| if out { (victim, other) } else { (other, victim) }).collect()
    }

    fn drift(&mut self, rng: &mut Rng, victim: usize) -> Applied {
        let rate = 0.9 + 0.2 * rng.unit();
        if rng.chance(0.25) {
            let now = self.now();
            self.database.clock_mut().set_rate(now, rate);
            return Applied::Rate(None);
        }
        self.set_rate(victim, rate);
        Applied::Rate(Some(victim))
    }

    /// By about a lease, which matters most, or by much more.
    fn set_calendar(&mut self, rng: &mut Rng) {
        let most_s = if rng.chance(0.5) { 10.0 } else { 3_600.0 };
        let (now, by, back) = (self.now(), Duration::from_secs_f64(rng.unit() * most_s), rng.chance(0.5));
        self.database.clock_mut().step(now, by, back);
    }

    fn trouble(&mut self, name: usize, rng: &mut Rng, victim: usize) -> Applied {
        let trouble = match rng.below(4) {
            0 => Trouble::Restarts,
            1 => Trouble::ReadOnly,
            2 => Trouble::Slow(Duration::from_secs_f64(rng.unit() * 2.0)),
            _ => {
                let database = self.hosts.len();
                return self.cut_all(vec![(victim, database), (database, victim)]);
            }
        };
        self.database.suffer(name, trouble);
        Applied::Trouble
    }
}

fn disturbance(rng: &mut Rng, kind: FaultKind) -> Disturbance {
    let none = Disturbance::default();
    match kind {
        FaultKind::Loss => Disturbance { loss: rng.unit() * 0.5, ..none },
        FaultKind::Delay => Disturbance { delay_s: rng.unit() * 0.3, ..none },
        FaultKind::Duplicate => Disturbance { duplicate: 0.1 + rng.unit() * 0.8, ..none },
        _ => Disturbance { reorder: 0.1 + rng.unit() * 0.8, ..none },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Transport;

    #[test]
    fn sets_of_faults_are_read_and_printed_alike() {
        for text in ["all", "none", "loss", "loss,crash", "partition,one-way,database"] {
            assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        }
        assert_eq!("crash, loss,crash".parse::<Faults>().unwrap().to_string(), "loss,crash");
        for text in ["", "losses", "none,loss", "loss,,crash"] {
            assert!(text.parse::<Faults>().unwrap_err().contains("is not a fault"), "{text}");
        }
    }

    #[test]
    fn when_all_episodes_have_ended_the_world_is_whole() {
        let mut world: World<u8> = World::new(6, Rng::new(5));
        (0..6).for_each(|host| world.start(host));
        let span = (Instant::ZERO, Instant::from_secs_f64(2_000.0));
        let plan = FaultPlan::random(&mut Rng::new(6), &Faults::all(), span, Duration::from_secs(10));
        assert!(plan.episodes.len() > 300);
        for (name, episode) in plan.episodes.iter().enumerate() {
            world.begin(name, episode, Some(2));
            if name % 3 == 2 {
                for name in name - 2..=name {
                    world.end_episode(name);
                }
            }
        }
        for name in 0..plan.episodes.len() {
            world.end_episode(name);
        }
        assert!((0..6).all(|host| world.host(host).power() == Power::Up && world.reaches_database(host)));
        assert!(world.database.is_writable() && world.database.delay().is_zero());
        for (a, b) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
            assert_eq!(world.network.carry(&mut Rng::new(1), (a, b), Transport::Datagram).len(), 1);
        }
    }
}
