//! Counters of one run: messages, elections, terms, gaps without a leader, faults.

use crate::world::FaultKind;
use std::collections::BTreeMap;
use weir_core::election::{Epoch, Message};
use weir_core::time::Instant;

/// The counts of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) messages: BTreeMap<&'static str, u64>,
    pub(super) candidacies: u64,
    pub(super) elections: u64,
    pub(super) committed: u64,
    pub(super) started: u64,
    pub(super) fenced: u64,
    pub(super) forged: u64,
    pub(super) faults: BTreeMap<FaultKind, u64>,
    pub(super) steps: u64,
    pub(super) first_leader_s: Option<f64>,
    pub(super) fail_overs_s: Vec<f64>,
    pub(super) recovery_s: Option<f64>,
    leader: Option<(usize, Epoch)>,
    last_term: Option<Epoch>,
    vacant_since: Option<Instant>,
    /// Who acted from when on; kept only for a picture.
    pub(super) leaders: Vec<(f64, Option<usize>)>,
    pub(super) sent_at: Vec<f64>,
    pub(super) record: bool,
}

impl Tally {
    pub(super) fn sent(&mut self, at: Instant, message: &Message, copies: usize) {
        *self.messages.entry(name(message)).or_default() += copies as u64;
        if self.record {
            self.sent_at.extend(std::iter::repeat_n(at.as_secs_f64(), copies));
        }
        if matches!(message, Message::LeaderRequest { .. }) {
            self.candidacies += 1;
        }
    }

    /// The machine that acts and runs, as last seen.
    pub(super) fn leader(&self) -> Option<(usize, Epoch)> {
        self.leader
    }

    /// The leader has stopped acting or running.
    pub(super) fn vacated(&mut self, at: Instant) {
        self.leader = None;
        self.vacant_since = Some(at);
        self.note(at, None);
    }

    /// A machine acts and runs.
    pub(super) fn took_office(&mut self, at: Instant, host: usize, epoch: Epoch) {
        self.leader = Some((host, epoch));
        self.note(at, Some(host));
        let vacant_since = self.vacant_since.take();
        // A leader that was paused and goes on in its term is not a new one.
        if self.last_term == Some(epoch) {
            return;
        }
        self.last_term = Some(epoch);
        self.elections += 1;
        match vacant_since {
            Some(since) => self.fail_overs_s.push(at.since(since).as_secs_f64()),
            None => self.first_leader_s = self.first_leader_s.or(Some(at.as_secs_f64())),
        }
    }

    fn note(&mut self, at: Instant, leader: Option<usize>) {
        if self.record {
            self.leaders.push((at.as_secs_f64(), leader));
        }
    }
}

/// A message's name in reports.
pub(super) fn name(message: &Message) -> &'static str {
    match message {
        Message::LeaderRequest { .. } => "leader_request",
        Message::LeaderRequestConfirm { .. } => "leader_request_confirm",
        Message::Victory { .. } => "victory",
        Message::Abort { .. } => "abort",
        Message::Ack { .. } => "ack",
        Message::LeaderAlive { .. } => "leader_alive",
        Message::Present { .. } => "present",
        Message::Resigned { .. } => "resigned",
    }
}
