//! What a node does with each kind of message. These are the handlers of the paper, with the corrections of `docs/algorithms/election.md`.

use super::{
    Aborter, Aside, Channel, Election, Epoch, Following, Frame, Message, MessageRefusal, NodeId, Peer, Phase, Role,
};
use super::{Round, State};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;

impl Election {
    /// Handles a message, or says why it is ignored.
    pub fn on_message(&mut self, now: Instant, frame: &Frame) -> Result<(), MessageRefusal> {
        if frame.from.id == self.me.id {
            return Err(self.hear_own_id(now, frame));
        }
        screen(frame)?;
        let admitted = self.members.admit(now, frame, &self.settings);
        // A datagram from a life that we do not know is a hint: it may be the leader's, or that of a machine that waits for us.
        if matches!(admitted, Err(MessageRefusal::Revenant | MessageRefusal::LaterLife)) {
            self.knock(frame);
        }
        let frame = &admitted?;
        if self.aside() == Some(Aside::HearsNobody) {
            self.end_aside(now);
        }
        let handled = self.handle(now, frame);
        self.check_invariants();
        handled
    }

    fn handle(&mut self, now: Instant, frame: &Frame) -> Result<(), MessageRefusal> {
        let peer = Peer { id: frame.from.id, address: frame.from.address, rank: frame.rank() };
        match frame.message {
            Message::LeaderRequest { round } => self.on_request(now, peer, Phase::Request, round),
            Message::LeaderRequestConfirm { round } => self.on_request(now, peer, Phase::Confirm, round),
            Message::Victory { round, epoch } => return self.on_victory(now, peer, round, epoch),
            Message::Abort { round, by, .. } => return self.on_abort(now, peer, round, by),
            Message::Ack { round } => return self.on_ack(now, peer.id, round),
            Message::LeaderAlive { round, epoch } => return self.on_alive(now, (peer, frame.via), round, epoch),
            Message::Present { following, epoch } => self.on_present(now, frame, following, epoch),
            Message::Resigned { epoch, successor } => return self.on_resigned(now, peer.id, epoch, successor),
        }
        Ok(())
    }

    /// A message with our own id: our broadcast, or a clone. Of two clones the one in its later life continues, or if they are equal the
    /// one with the lower address. A datagram is only a hint: we open a stream, and so the clone sees who we are.
    fn hear_own_id(&mut self, now: Instant, frame: &Frame) -> MessageRefusal {
        if frame.from.is_same_process(&self.me) {
            return MessageRefusal::Own;
        }
        if frame.from.key != self.me.key {
            return MessageRefusal::OtherKey;
        }
        let theirs = (core::cmp::Reverse(frame.from.boot), frame.from.address);
        let mine = (core::cmp::Reverse(self.me.boot), self.me.address);
        match frame.via {
            Channel::Datagram { .. } => self.knock(frame),
            Channel::Stream if theirs < mine && self.me.role == Role::Eligible => self.let_go(now, Aside::Clone),
            Channel::Stream => {}
        }
        MessageRefusal::Clone
    }

    /// Opens a stream, which shows who this node is.
    fn knock(&mut self, frame: &Frame) {
        self.send(frame.from.address, Message::Present { following: false, epoch: None });
    }

    fn on_request(&mut self, now: Instant, peer: Peer, phase: Phase, round: Round) {
        // A leader that stands for election again leads no more.
        let deserted = self.leader() == Some(peer.id);
        if deserted {
            self.wait_after_abort(now);
        }
        if !self.stands() {
            return;
        }
        if self.rank().beats(&peer.rank) {
            self.abort(now, peer, phase, round);
            if deserted {
                self.seek(now);
            }
        } else if matches!(self.state, State::Candidate { .. }) {
            self.wait_after_abort(now);
        }
    }

    /// Aborts a lower-ranked candidate; without a leader, stands itself, or nobody would.
    fn abort(&mut self, now: Instant, peer: Peer, phase: Phase, round: Round) {
        if matches!(self.state, State::Leaving { .. }) {
            return;
        }
        let by = match &self.state {
            State::Elected(leadership) => Aborter::Leader(leadership.acting(now)),
            _ => Aborter::Better,
        };
        self.send(peer.address, Message::Abort { phase, round, by });
        if by != Aborter::Better {
            self.members.note_local(peer.id);
        } else if self.is_on_its_own(now) || self.leader() == Some(peer.id) {
            self.seek(now);
        }
    }

    fn on_victory(
        &mut self,
        now: Instant,
        peer: Peer,
        round: Round,
        epoch: Option<Epoch>,
    ) -> Result<(), MessageRefusal> {
        self.check_epoch(epoch)?;
        if self.me.role == Role::External && epoch.is_none() {
            return Err(MessageRefusal::OldEpoch);
        }
        match &self.state {
            State::Leaving { .. } => {}
            State::Elected(_) if self.rank().beats(&peer.rank) => self.defend(now, peer, round, epoch),
            State::Elected(_) => self.yield_to(now, peer, round),
            _ if self.stands() && self.rank().beats(&peer.rank) => self.abort(now, peer, Phase::Victory, round),
            State::Following(current) if self.keeps(now, current, &peer, epoch) => {}
            _ => self.follow_and_ack(now, peer, round, epoch),
        }
        Ok(())
    }

    /// The true leader hears of a lower-ranked one: it answers abort and continues. If the other has an
    /// epoch that is higher than ours, the database decides.
    fn defend(&mut self, now: Instant, peer: Peer, round: Round, epoch: Option<Epoch>) {
        if planted(Mutant::ElectionTrueLeaderYields) {
            return self.yield_to(now, peer, round);
        }
        self.abort(now, peer, Phase::Victory, round);
        if epoch > self.acting(now) {
            self.verify_lease(now);
        }
    }

    /// Whether a follower stays with its leader in spite of a victory: the leader still beats, is not
    /// worse than the other, and knows no lower epoch.
    fn keeps(&self, now: Instant, current: &Following, other: &Peer, epoch: Option<Epoch>) -> bool {
        let another = current.leader.id != other.id;
        another && !self.has_quiet_leader(now) && current.leader.rank.beats(&other.rank) && epoch <= current.epoch
    }

    fn on_abort(&mut self, now: Instant, peer: Peer, round: Round, by: Aborter) -> Result<(), MessageRefusal> {
        if round != self.round() {
            return Err(MessageRefusal::OldRound);
        }
        if !peer.rank.beats(&self.rank()) {
            return Err(MessageRefusal::LowerRank);
        }
        if let Aborter::Leader(epoch) = by {
            self.check_epoch(epoch)?;
        }
        match (&self.state, by) {
            (State::Candidate { .. }, _) if planted(Mutant::ElectionElectsAfterAbort) => {}
            // Another abort may have come first; the leader's abort is the one to act on.
            (State::Candidate { .. } | State::Leaderless { .. }, Aborter::Leader(epoch)) => {
                self.follow(now, peer, epoch);
            }
            (State::Candidate { .. }, Aborter::Better) => self.wait_after_abort(now),
            (State::Elected(_), Aborter::Leader(_)) => self.yield_to(now, peer, round),
            // Too late for the phase but before the lease: it can still make way.
            (State::Elected(leadership), Aborter::Better) if leadership.held_epoch().is_none() => {
                self.wait_after_abort(now);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_ack(&mut self, now: Instant, id: NodeId, round: Round) -> Result<(), MessageRefusal> {
        if round != self.round() {
            return Err(MessageRefusal::OldRound);
        }
        if matches!(self.state, State::Elected(_) | State::Candidate { phase: Phase::Victory, .. }) {
            self.hear_reply(now, id);
            self.ask_soon(now);
        }
        Ok(())
    }

    fn on_alive(
        &mut self,
        now: Instant,
        (peer, via): (Peer, Channel),
        round: Round,
        epoch: Option<Epoch>,
    ) -> Result<(), MessageRefusal> {
        self.check_epoch(epoch)?;
        match self.state {
            State::Leaving { .. } => {}
            State::Elected(_) if self.rank().beats(&peer.rank) => self.defend(now, peer, round, epoch),
            // A beat is only a hint: we answer, and the better leader then sends its victory over a stream.
            State::Elected(_) => self.answer_beat(peer, None),
            State::Following(following) if following.leader.id == peer.id => {
                self.on_own_leaders_beat(now, (peer, via), following, epoch);
            }
            _ if self.stands() && self.rank().beats(&peer.rank) => self.challenge(now),
            State::Following(following) if self.keeps(now, &following, &peer, epoch) => {}
            _ => self.answer_beat(peer, None),
        }
        Ok(())
    }

    /// A datagram shows that somebody sends beats. The answer to our answer, which comes over a stream, shows that it is the leader.
    fn on_own_leaders_beat(
        &mut self,
        now: Instant,
        (peer, via): (Peer, Channel),
        mut following: Following,
        epoch: Option<Epoch>,
    ) {
        if self.stands() && self.rank().beats(&peer.rank) {
            return self.seek(now);
        }
        (following.leader, following.heard_at) = (peer, now);
        if via == Channel::Stream {
            following.proved_at = now;
        }
        self.state = State::Following(following);
        if via == Channel::Stream && self.me.role != Role::External {
            return;
        }
        let known = following.epoch == epoch || epoch.is_none();
        self.answer_beat(peer, Some(following).filter(|_| known));
    }

    fn answer_beat(&mut self, peer: Peer, following: Option<Following>) {
        let message = Message::Present { following: following.is_some(), epoch: following.and_then(|f| f.epoch) };
        self.send(peer.address, message);
    }

    /// If this node is better than the leader that it hears, it stands, unless it has just been told to wait.
    fn challenge(&mut self, now: Instant) {
        if self.has_quiet_leader(now) {
            self.seek(now);
        }
    }

    fn on_present(&mut self, now: Instant, frame: &Frame, following: bool, epoch: Option<Epoch>) {
        if !matches!(self.state, State::Elected(_)) {
            return;
        }
        let acting = self.acting(now);
        if !following || (acting.is_some() && epoch != acting) {
            self.send(frame.from.address, Message::Victory { round: self.round(), epoch: acting });
        } else if frame.via == Channel::Stream && frame.from.role != Role::External {
            // External machines get every beat over a stream anyway.
            self.send(frame.from.address, Message::LeaderAlive { round: self.round(), epoch: acting });
        }
        if frame.via == Channel::Stream {
            self.hear_reply(now, frame.from.id);
        }
    }

    fn on_resigned(
        &mut self,
        now: Instant,
        id: NodeId,
        epoch: Option<Epoch>,
        successor: Option<NodeId>,
    ) -> Result<(), MessageRefusal> {
        self.check_epoch(epoch)?;
        match &self.state {
            State::Following(following) if following.leader.id == id => {}
            State::Elected(_) => {
                self.ask_soon(now);
                return Ok(());
            }
            _ => return Ok(()),
        }
        if successor == Some(self.me.id) && self.stands() {
            self.succeed(now);
        } else if successor.is_some() && self.stands() {
            self.wait_for_successor(now);
        } else {
            self.seek(now);
        }
        Ok(())
    }

    fn check_epoch(&self, epoch: Option<Epoch>) -> Result<(), MessageRefusal> {
        if epoch.is_some_and(|epoch| epoch < self.highest) { Err(MessageRefusal::OldEpoch) } else { Ok(()) }
    }
}

/// What can be refused without knowing anything except the frame.
fn screen(frame: &Frame) -> Result<(), MessageRefusal> {
    if frame.message.is_of_eligible() && frame.from.role != Role::Eligible {
        return Err(MessageRefusal::Role);
    }
    if frame.claim.priority != frame.from.priority {
        return Err(MessageRefusal::Priority);
    }
    if frame.message.needs_stream() && frame.via != Channel::Stream {
        return Err(MessageRefusal::Channel);
    }
    Ok(())
}
