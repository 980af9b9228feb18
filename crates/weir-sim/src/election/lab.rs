//! One run: the machines of a lab in the virtual world, the shell that each would have, and the plan of
//! faults. Every step ends with a look at the invariants.

use super::invariants::{Broken, Invariant, Invariants};
use super::node::Node;
use super::tally::Tally;
use super::{Options, Payload};
use crate::rng::Rng;
use crate::world::{FaultKind, FaultPlan, Happening, Power, World, WorldAddress};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;
use weir_core::election::{Epoch, NodeId, Role, Settings, Standing};
use weir_core::time::Instant;

/// Faults begin at the earliest here …
const QUIET: Instant = Instant(3_000_000_000);
/// … and have all ended here.
const HEALED: Instant = Instant(30_000_000_000);
/// The longest fault: three leases and a little.
const LONGEST: Duration = Duration::from_secs(10);
pub(super) const WORK: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(20);

/// A lab in its world.
#[derive(Debug)]
pub(super) struct ElectionLab {
    pub(super) world: World<Payload>,
    pub(super) nodes: Vec<Node>,
    /// How many of them are real; one more may be a clone.
    pub(super) real: usize,
    pub(super) settings: Settings,
    pub(super) plan: FaultPlan,
    pub(super) invariants: Invariants,
    pub(super) tally: Tally,
    pub(super) externals: Vec<IpAddr>,
    settled_since: Option<Instant>,
    /// When the database's clock was last set.
    pub(super) jumped_at: Option<Instant>,
    /// Clone faults in force.
    pub(super) clones: usize,
    pub(super) history: Option<VecDeque<String>>,
}

impl ElectionLab {
    /// The lab of `seed`, switched on, with a random plan of faults.
    pub(super) fn new(options: &Options, seed: u64) -> ElectionLab {
        let mut rng = Rng::new(seed);
        let plan = FaultPlan::random(&mut rng.fork(), &options.faults, (QUIET, HEALED), LONGEST);
        ElectionLab::with_plan(options, plan, rng)
    }

    /// The same with a given plan.
    pub(super) fn with_plan(options: &Options, plan: FaultPlan, mut rng: Rng) -> ElectionLab {
        let n = options.nodes;
        let nodes: Vec<Node> = (0..n).map(|i| Node::new(i, n, &mut rng)).collect();
        let externals = nodes.iter().filter(|node| node.me.role == Role::External).map(|node| node.me.address);
        let mut lab = ElectionLab {
            externals: externals.collect(),
            real: n,
            settings: options.settings,
            world: World::new(n + usize::from(options.faults.has(FaultKind::Clone)), rng.fork()),
            nodes,
            plan,
            invariants: Invariants::default(),
            tally: Tally::default(),
            settled_since: None,
            jumped_at: None,
            clones: 0,
            history: None,
        };
        lab.switch_on();
        lab
    }

    fn switch_on(&mut self) {
        for (name, episode) in self.plan.episodes.iter().enumerate() {
            self.world.note_at(episode.from, Payload::Begin(name));
            self.world.note_at(episode.until, Payload::End(name));
        }
        self.world.note_at(Instant::ZERO + WORK, Payload::Work);
        self.world.note_at(HEALED, Payload::Look);
        for host in 0..self.real {
            let at = Instant(self.world.rng().below(200_000_000));
            self.world.note_at(at, Payload::Start(host));
        }
    }

    /// Runs to the end, or to the first broken invariant.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let end = HEALED + self.settings.settle_max();
        while let Some(happening) = self.world.advance() {
            self.tally.steps += 1;
            self.step(happening)?;
            if self.world.now() > end {
                break;
            }
        }
        let best = self.best();
        self.tally.recovery_s = self.settled_since.map(|at| at.since(HEALED).as_secs_f64());
        let (at, holds) = (self.world.now(), self.settled_since.is_some());
        let bound = self.settings.settle_max();
        let lab = &self.nodes;
        self.invariants.demand(Invariant::BestActsAfterHealing, at, holds, || {
            let standing = lab.iter().enumerate().filter_map(|(i, n)| Some((i, n.election.as_ref()?)));
            let standing: Vec<String> = standing
                .map(|(i, e)| format!("{i}: leader {:?}, aside {:?}", e.leader().map(|l| l.0), e.aside()))
                .collect();
            format!("node {best} does not lead all others {bound:?} after the last fault ({})", standing.join("; "))
        })
    }

    fn step(&mut self, happening: Happening<Payload>) -> Result<(), Broken> {
        self.log(&happening);
        match happening {
            Happening::Timer(host) => {
                self.wake(host)?;
            }
            Happening::Arrived { to: WorldAddress::Database, from: WorldAddress::Host(host), payload } => {
                self.at_database(host, payload)?;
            }
            Happening::Arrived { to: WorldAddress::Host(host), payload, .. } => {
                self.wake_if_due(host)?;
                self.at_host(host, payload)?;
            }
            Happening::Arrived { .. } => {}
            Happening::Note(note) => self.noted(note)?,
        }
        self.note_vacancy();
        Ok(())
    }

    fn noted(&mut self, note: Payload) -> Result<(), Broken> {
        match note {
            Payload::Start(host) => {
                self.world.start(host);
                return self.start(host);
            }
            Payload::Begin(name) => return self.begin(name),
            Payload::End(name) => return self.end(name),
            Payload::Work => self.hand_out_work(),
            Payload::Look => self.look(),
            Payload::Intrude(name) => return self.intrude(name),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn check_standing(&mut self, host: usize) -> Result<(), Broken> {
        let (at, now) = (self.world.now(), self.world.local_now(host));
        let Some(election) = &self.nodes[host].election else { return Ok(()) };
        let (round, role) = (election.round(), self.nodes[host].me.role);
        let (Standing::Elected | Standing::Acting(_)) = election.standing(now) else { return Ok(()) };
        let acting = election.acting(now);
        self.invariants
            .demand(Invariant::OnlyEligibleLead, at, role == Role::Eligible, || format!("node {host} leads"))?;
        self.invariants.elected(at, host, round)?;
        let Some(epoch) = acting else { return Ok(()) };
        self.invariants.acts(at, epoch, self.nodes[host].holder(host))?;
        let rival = (0..self.nodes.len())
            .filter(|other| *other != host)
            .find_map(|other| Some((other, self.nodes[other].acting(self.world.local_now(other))?)));
        // Only its clock says for how long the database gives the lease; whoever had it before the clock was set acts for less than L.
        let set = self.jumped_at.is_some_and(|jumped| at.since(jumped) < self.settings.lease);
        self.invariants.demand(Invariant::OneActsAtATime, at, rival.is_none() || set, || {
            format!("nodes {host} and {rival:?} may both act")
        })?;
        if rival.is_none_or(|(_, other)| other < epoch) {
            self.note_office(host, epoch);
        }
        Ok(())
    }

    fn note_office(&mut self, host: usize, epoch: Epoch) {
        if self.tally.leader() != Some((host, epoch)) {
            let at = self.world.now();
            self.tally.took_office(at, host, epoch);
        }
    }

    fn note_vacancy(&mut self) {
        if let Some((host, epoch)) = self.tally.leader() {
            let acts = self.nodes[host].acting(self.world.local_now(host)) == Some(epoch);
            if !acts || self.world.host(host).power() != Power::Up {
                self.tally.vacated(self.world.now());
            }
        }
    }

    /// The node that ought to lead when nothing is wrong.
    pub(super) fn best(&self) -> usize {
        let eligible = (0..self.real).filter(|host| self.nodes[*host].me.role == Role::Eligible);
        let rank = |host: &usize| {
            let node = &self.nodes[*host];
            (node.me.priority.0, u16::MAX - node.index.0, node.me.address)
        };
        eligible.min_by_key(rank).unwrap_or(0)
    }

    fn look(&mut self) {
        let best = self.best();
        let acts = self.tally.leader().is_some_and(|(host, _)| host == best);
        let follow = |node: &Node| node.election.as_ref().is_some_and(|e| e.leader() == Some(NodeId(best as u64)));
        if !(acts && self.nodes[..self.real].iter().all(follow)) {
            self.settled_since = None;
        } else if self.settled_since.is_none() {
            self.settled_since = Some(self.world.now());
        }
        let next = self.world.now() + LOOK;
        self.world.note_at(next, Payload::Look);
    }
}
