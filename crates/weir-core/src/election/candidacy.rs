//! Standing for election: the three phases through which a candidate goes, and which node it follows if it does not win.

use super::leadership::Leadership;
use super::{Election, Epoch, Following, Message, Output, Peer, Phase, Role, Round, State};
use crate::time::Instant;

impl Election {
    /// Knows no leader: stands for election if it may, and otherwise asks for a leader. External nodes wait.
    pub(super) fn seek(&mut self, now: Instant) {
        if self.stands() {
            self.round += 1;
            self.members.clear_local();
            return self.enter(now, Phase::Request);
        }
        if self.me.role != Role::External {
            self.broadcast(Message::Present { following: false, epoch: None });
        }
        self.state = State::Leaderless { until: now + self.settings.silence(), bettered: false };
    }

    /// Goes straight to the last phase, because the leader that resigned has named this node.
    pub(super) fn succeed(&mut self, now: Instant) {
        self.round += 1;
        self.members.clear_local();
        self.enter(now, Phase::Victory);
    }

    /// Is elected at once, because there is nobody to ask.
    pub(super) fn win(&mut self, now: Instant) {
        self.round += 1;
        self.members.clear_local();
        self.state = State::Elected(Leadership::new(now, false));
        self.on_timeout(now);
    }

    /// Does not stand for T2, because a better node does.
    pub(super) fn wait_after_abort(&mut self, now: Instant) {
        self.state = State::Leaderless { until: now + self.settings.abort_wait, bettered: true };
    }

    /// Does not stand for T2, because the leader that resigned has named another node, which need not be better.
    pub(super) fn wait_for_successor(&mut self, now: Instant) {
        self.state = State::Leaderless { until: now + self.settings.abort_wait, bettered: false };
    }

    fn enter(&mut self, now: Instant, phase: Phase) {
        let round = self.round();
        match phase {
            Phase::Request => self.broadcast(Message::LeaderRequest { round }),
            Phase::Confirm => self.send_to_lab(now, Message::LeaderRequestConfirm { round }),
            Phase::Victory => self.send_to_lab(now, Message::Victory { round, epoch: None }),
        }
        self.state = State::Candidate { phase, until: now + self.settings.reply_wait };
    }

    /// T passed without an abort.
    pub(super) fn phase_over(&mut self, now: Instant, phase: Phase) {
        match phase {
            Phase::Request => self.enter(now, Phase::Confirm),
            Phase::Confirm => self.enter(now, Phase::Victory),
            Phase::Victory => {
                let heard = self.members.local().next().is_some();
                self.state = State::Elected(Leadership::new(now, heard));
                self.on_timeout(now);
            }
        }
    }

    /// To known members; to the whole range only when none is known.
    pub(super) fn send_to_lab(&mut self, now: Instant, message: Message) {
        let known = self.members.in_lab(now, &self.settings);
        if known.is_empty() {
            self.outputs.push_back(Output::Sweep(message));
        }
        for to in known {
            self.send(to, message);
        }
    }

    pub(super) fn follow(&mut self, now: Instant, leader: Peer, epoch: Option<Epoch>) {
        self.highest = self.highest.max(epoch.unwrap_or_default());
        self.state = State::Following(Following { leader, epoch, since: now, heard_at: now, proved_at: now });
    }

    pub(super) fn follow_and_ack(&mut self, now: Instant, leader: Peer, round: Round, epoch: Option<Epoch>) {
        self.follow(now, leader, epoch);
        self.send(leader.address, Message::Ack { round });
    }

    /// When the leader counts as silent: nothing was heard of it for n·T1, or nothing over a stream for twice that, noticed at the next of the
    /// checks every T3.
    /// An external machine keeps its leader until it is told of another.
    pub(super) fn silent_at(&self, following: &Following) -> Instant {
        if self.me.role == Role::External {
            return Instant::NEVER;
        }
        let check = u64::try_from(self.settings.check.as_nanos()).unwrap_or(u64::MAX).max(1);
        let silence = self.settings.silence();
        let silent = (following.heard_at + silence).min(following.proved_at + silence.saturating_mul(2));
        let silent = silent.since(following.since);
        let checks = u64::try_from(silent.as_nanos()).unwrap_or(u64::MAX).div_ceil(check);
        Instant(following.since.0.saturating_add(checks.max(1).saturating_mul(check)))
    }

    /// Whether a node that aborts another must stand itself, because nobody better is known to lead or to stand, and without it
    /// nobody would lead.
    pub(super) fn is_on_its_own(&self, now: Instant) -> bool {
        matches!(self.state, State::Leaderless { bettered: false, .. }) || self.has_quiet_leader(now)
    }

    /// Whether the leader's last beat is overdue.
    pub(super) fn has_quiet_leader(&self, now: Instant) -> bool {
        match &self.state {
            State::Following(following) => now.since(following.heard_at) > self.settings.beat.saturating_mul(3) / 2,
            _ => false,
        }
    }
}
