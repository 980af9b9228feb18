//! The shell that each machine would have: it carries messages, timers and answers to the election and
//! carries out what the election asks for.

use super::Payload;
use super::invariants::{Broken, Invariant};
use super::lab::{ElectionLab, WORK};
use super::node::host_at;
use crate::world::{Power, Transport, WorldAddress};
use weir_core::election::{Channel, Epoch, Frame, Message, NodeId, Output, Role, Standing};

impl ElectionLab {
    pub(super) fn start(&mut self, host: usize) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        let nonce = self.world.rng().below(1 << 16);
        self.nodes[host].start(now, self.settings, &self.externals, nonce);
        self.invariants.new_life(host);
        self.carry_out(host)
    }

    pub(super) fn wake(&mut self, host: usize) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        let Some(election) = &mut self.nodes[host].election else { return Ok(()) };
        election.on_timeout(now);
        let (holds, at) = (election.next_deadline() > now, self.world.now());
        self.invariants.demand(Invariant::ComesToRest, at, holds, || format!("node {host} waits for the past"))?;
        self.carry_out(host)
    }

    /// What is due comes before what arrives: after a pause both are there at once.
    pub(super) fn wake_if_due(&mut self, host: usize) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        let due = self.nodes[host].election.as_ref().is_some_and(|election| election.next_deadline() <= now);
        if due { self.wake(host) } else { Ok(()) }
    }

    pub(super) fn at_host(&mut self, host: usize, payload: Payload) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        match payload {
            Payload::Frame { frame, authentic: true } => return self.deliver(host, &frame),
            Payload::Answer { order, answer } => {
                if let Some(election) = &mut self.nodes[host].election {
                    election.on_lease(now, order, answer);
                }
                return self.carry_out(host);
            }
            Payload::FencedOut { epoch } => {
                if let Some(election) = &mut self.nodes[host].election {
                    election.on_fenced_out(now, epoch);
                }
                return self.carry_out(host);
            }
            // Commit, then send: even if the term has ended meanwhile. The fence is the dispatcher's.
            Payload::Committed { epoch, to } => {
                let work = Payload::Assignment { epoch };
                self.world.send(WorldAddress::Host(host), WorldAddress::Host(to), Transport::Stream, work);
            }
            Payload::Assignment { epoch } => return self.take_work(host, epoch),
            // An unauthenticated frame is dropped here, and the election never sees it.
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, host: usize, frame: &Frame) -> Result<(), Broken> {
        let now = self.world.local_now(host);
        let node = &mut self.nodes[host];
        let Some(election) = &mut node.election else { return Ok(()) };
        let (was, round, acted) = (election.standing(now), election.round(), election.acting(now));
        let clone = frame.from.id == election.me().id;
        let lower = !clone && election.rank().beats(&frame.rank());
        let verdict = election.on_message(now, frame);
        let acts = election.acting(now);
        if verdict.is_ok() && matches!(frame.via, Channel::Datagram { .. }) {
            node.overheard = Some(*frame);
        }
        if verdict.is_ok() && matches!((frame.message, was), (Message::Abort { .. }, Standing::Candidate(_))) {
            self.invariants.aborted(host, round);
        }
        if lower && acted.is_some() {
            let at = self.world.now();
            self.invariants.demand(Invariant::TrueLeaderStays, at, acts == acted, || {
                format!("node {host} gave up its office for {:?} of the lower node {}", frame.message, frame.from.id.0)
            })?;
        }
        self.carry_out(host)
    }

    fn take_work(&mut self, host: usize, epoch: Epoch) -> Result<(), Broken> {
        if self.nodes[host].fence.admit(epoch).is_err() {
            self.tally.fenced += 1;
            return Ok(());
        }
        self.tally.started += 1;
        self.invariants.started(self.world.now(), host, epoch)
    }

    /// Does what the machine's election asks for, sets its timer, and looks at the invariants.
    pub(super) fn carry_out(&mut self, host: usize) -> Result<(), Broken> {
        while let Some(output) = self.nodes[host].election.as_mut().and_then(|election| election.poll_output()) {
            self.output(host, output)?;
        }
        self.nodes[host].store();
        if let Some(election) = &self.nodes[host].election {
            self.invariants.knows(host, election.highest_epoch());
            self.world.set_timer(host, election.next_deadline());
        }
        self.check_standing(host)
    }

    fn output(&mut self, host: usize, output: Output) -> Result<(), Broken> {
        match output {
            Output::Broadcast(message) => self.say(host, message, self.lab_hosts(host), true),
            Output::Sweep(message) => self.say(host, message, self.lab_hosts(host), false),
            Output::Send { to, message } => {
                let to = host_at(to);
                let known = to < self.nodes.len();
                self.say(host, message, if known { vec![to] } else { Vec::new() }, false)
            }
            Output::Lease(order) => {
                let order = Payload::Order { order, holder: self.nodes[host].holder(host) };
                self.world.send(WorldAddress::Host(host), WorldAddress::Database, Transport::Stream, order);
                Ok(())
            }
        }
    }

    fn lab_hosts(&self, but: usize) -> Vec<usize> {
        let lab = (0..self.nodes.len()).filter(|host| *host != but);
        lab.filter(|host| self.nodes[*host].me.role != Role::External).collect()
    }

    fn say(&mut self, host: usize, message: Message, to: Vec<usize>, broadcast: bool) -> Result<(), Broken> {
        let at = self.world.now();
        let allowed = !message.is_of_eligible() || self.nodes[host].me.role == Role::Eligible;
        self.invariants.demand(Invariant::OnlyEligibleLead, at, allowed, || format!("node {host} says {message:?}"))?;
        self.tally.sent(at, &message, to.len());
        let Some(frame) = self.nodes[host].frame(message, broadcast) else { return Ok(()) };
        let by = if broadcast { Transport::Datagram } else { Transport::Stream };
        for to in to {
            self.world.send(WorldAddress::Host(host), WorldAddress::Host(to), by, frame);
        }
        Ok(())
    }

    /// Every machine that may act assigns one piece of work: a fenced statement, then a message.
    pub(super) fn hand_out_work(&mut self) {
        for host in 0..self.nodes.len() {
            let up = self.world.host(host).power() == Power::Up;
            let Some(epoch) = self.nodes[host].acting(self.world.local_now(host)).filter(|_| up) else { continue };
            let local: Vec<NodeId> = self.nodes[host].election.iter().flat_map(|e| e.local_nodes()).collect();
            if local.is_empty() {
                continue;
            }
            let to = self.world.rng().pick(&local).0 as usize;
            let commit = Payload::Commit { epoch, holder: self.nodes[host].holder(host), to };
            self.world.send(WorldAddress::Host(host), WorldAddress::Database, Transport::Stream, commit);
        }
        let next = self.world.now() + WORK;
        self.world.note_at(next, Payload::Work);
    }
}
