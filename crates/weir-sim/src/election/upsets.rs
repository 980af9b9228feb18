//! The faults of a run: those of the simulated world, and those that only a lab can have.

use super::Payload;
use super::intruder::Forgery;
use super::invariants::{Broken, Invariant};
use super::lab::ElectionLab;
use crate::rng::Rng;
use crate::world::{Change, Episode, FaultKind, Power};
use std::time::Duration;
use weir_core::election::{MessageRefusal, Priority, Role};

impl ElectionLab {
    pub(super) fn begin(&mut self, name: usize) -> Result<(), Broken> {
        let episode = self.plan.episodes[name];
        *self.tally.faults.entry(episode.kind).or_default() += 1;
        let leader = self.tally.leader().map(|(host, _)| host);
        match episode.kind {
            FaultKind::Resign => return self.resign(&episode, leader),
            FaultKind::Forgery => return self.intrude(name),
            FaultKind::Clone => return self.start_clone(&episode),
            FaultKind::Priority => return self.prioritise(&episode, leader),
            FaultKind::Jump => self.jumped_at = Some(self.world.now()),
            _ => {}
        }
        if let Change::Crashed(host) = self.world.begin(name, &episode, leader)
            && host < self.nodes.len()
        {
            self.nodes[host].crash();
        }
        Ok(())
    }

    pub(super) fn end(&mut self, name: usize) -> Result<(), Broken> {
        match self.plan.episodes[name].kind {
            FaultKind::Resign => {
                for host in 0..self.nodes.len() {
                    self.rejoin(host)?;
                }
            }
            FaultKind::Clone => self.stop_clone(),
            _ => {}
        }
        match self.world.end_episode(name) {
            Change::Started(host) if host < self.nodes.len() && (host < self.real || self.clones > 0) => {
                self.start(host)
            }
            Change::Started(host) => {
                self.world.crash(host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resign(&mut self, episode: &Episode, leader: Option<usize>) -> Result<(), Broken> {
        let any = Rng::new(episode.seed).below(self.real as u64) as usize;
        let host = leader.filter(|_| !episode.seed.is_multiple_of(4)).unwrap_or(any);
        let now = self.world.local_now(host);
        if self.world.host(host).power() != Power::Up || self.nodes[host].me.role != Role::Eligible {
            return Ok(());
        }
        if let Some(election) = &mut self.nodes[host].election {
            election.resign(now);
        }
        self.carry_out(host)
    }

    /// The operator gives a machine, mostly the leader, another priority. A copy of its disk is registered as the same machine.
    fn prioritise(&mut self, episode: &Episode, leader: Option<usize>) -> Result<(), Broken> {
        let mut rng = Rng::new(episode.seed);
        let any = rng.below(self.real as u64) as usize;
        let chosen = leader.filter(|host| *host < self.real && rng.chance(0.5)).unwrap_or(any);
        let (id, priority) = (self.nodes[chosen].me.id, Priority(rng.below(4) as u8));
        let same: Vec<usize> = (0..self.nodes.len()).filter(|host| self.nodes[*host].me.id == id).collect();
        // One that stands still could not hear of it.
        if same.iter().any(|host| self.nodes[*host].election.is_some() && self.world.host(*host).power() != Power::Up) {
            return Ok(());
        }
        for host in same {
            self.wake_if_due(host)?;
            self.nodes[host].me.priority = priority;
            let now = self.world.local_now(host);
            // One that is down begins its next life with it.
            if let Some(election) = &mut self.nodes[host].election {
                election.set_priority(now, priority);
                self.carry_out(host)?;
            }
        }
        Ok(())
    }

    fn rejoin(&mut self, host: usize) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        if let Some(election) = &mut self.nodes[host].election {
            election.rejoin(now);
        }
        self.carry_out(host)
    }

    /// A copy of an eligible machine's disk comes up at another address.
    fn start_clone(&mut self, episode: &Episode) -> Result<(), Broken> {
        self.clones += 1;
        if self.clones > 1 {
            return Ok(());
        }
        let eligible = self.nodes.iter().take(self.real).filter(|node| node.me.role == Role::Eligible).count();
        let like = Rng::new(episode.seed).below(eligible as u64) as usize;
        let clone = self.nodes[like].cloned_to(self.real);
        self.nodes.truncate(self.real);
        self.nodes.push(clone);
        self.world.start(self.real);
        self.start(self.real)
    }

    fn stop_clone(&mut self) {
        self.clones = self.clones.saturating_sub(1);
        if self.clones == 0 && self.nodes.len() > self.real {
            self.world.crash(self.real);
            self.nodes[self.real].crash();
        }
    }

    pub(super) fn intrude(&mut self, name: usize) -> Result<(), Broken> {
        let now = self.world.now();
        if now >= self.plan.episodes[name].until {
            return Ok(());
        }
        let pause = Duration::from_millis(self.world.rng().between(20, 150));
        self.world.note_at(now + pause, Payload::Intrude(name));
        let (victim, other) = (self.any_host(), self.any_host());
        if self.world.host(victim).power() != Power::Up || victim == other {
            return Ok(());
        }
        self.wake_if_due(victim)?;
        match Forgery::random(self.world.rng(), &self.nodes[victim], &self.nodes[other]) {
            Some(forgery) => self.forge(victim, &forgery),
            None => Ok(()),
        }
    }

    fn any_host(&mut self) -> usize {
        let n = self.real as u64;
        self.world.rng().below(n) as usize
    }

    fn forge(&mut self, victim: usize, forgery: &Forgery) -> Result<(), Broken> {
        let (at, now) = (self.world.now(), self.world.local_now(victim));
        self.tally.forged += 1;
        let Some(election) = &mut self.nodes[victim].election else { return Ok(()) };
        let before = election.clone();
        if !forgery.authentic {
            let frame = Payload::Frame { frame: forgery.frame, authentic: false };
            self.at_host(victim, frame)?;
            let same = self.nodes[victim].election.as_ref() == Some(&before);
            return self.invariants.demand(Invariant::ForgedChangesNothing, at, same, || "unauthenticated".into());
        }
        let verdict: Result<(), MessageRefusal> = election.on_message(now, &forgery.frame);
        // To a sign of another life a node may knock, and no more.
        let knocks = matches!(verdict, Err(MessageRefusal::Revenant | MessageRefusal::LaterLife));
        while knocks && election.poll_output().is_some() {}
        let holds = Forgery::is_refused_by(verdict) && *election == before;
        self.invariants.demand(Invariant::ForgedChangesNothing, at, holds, || {
            format!("node {victim} answered {verdict:?} to {:?}", forgery.frame)
        })
    }
}
