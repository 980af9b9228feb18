//! Who leads the lab: a variation of the Bully algorithm as a state machine for one node.
//!
//! Inputs are methods that take `now`: [`Election::on_message`], [`Election::on_lease`],
//! [`Election::on_timeout`]. Outputs are drained with [`Election::poll_output`] after each of them;
//! [`Election::next_deadline`] says when to call `on_timeout`. `now` must not go backwards and must count
//! the time that the machine slept.
//!
//! Winning the election is not enough to act; the lease decides. A node that won is *elected*; with a live lease and its epoch it is
//! *acting*, and only then may it assign work ([`Election::acting`]). Invariants:
//!
//! - a candidate that was aborted in any phase of a round is not elected in that round;
//! - an acting leader yields only to a better rank, and releases its lease first, or to the loss of the
//!   lease itself; a higher epoch that it hears of makes it ask the database at once;
//! - a node acts for at most L − L/5 after it asked for the grant, by its own clock;
//! - dispatchers, external nodes and nodes that stand aside send no request, abort, victory or beat;
//! - a message that is refused changes nothing; memory is bounded by `members_max` and [`EXTERNALS_MAX`].
//!
//! Cost: O(log members) per message; O(members) per beat, phase and resignation. Source: sections 3 and 4 of *Distributed Malware Analysis
//! Scheduling*; where the rules differ from the paper, `docs/algorithms/election.md` says how and why. Left to the shell: verifying
//! certificates and checksums, connecting to addresses with a bound on attempts, the SQL of the lease.

mod aside;
mod candidacy;
mod epoch;
mod handlers;
mod identity;
mod leadership;
mod lease;
mod members;
mod message;
mod priority;
mod range;
mod rank;
mod settings;
mod window;

pub use aside::Aside;
pub use epoch::{Epoch, Fence, Stale};
pub use identity::{Boot, KeyId, NodeId, Origin, Priority, Role};
pub use lease::{LeaseAnswer, LeaseOrder};
pub use message::{Aborter, Channel, Frame, Message, Phase, Round};
pub use range::{AddressRange, RangeRefused};
pub use rank::{Claim, ProcessingIndex, Rank};
pub use settings::{SettingProblem, Settings};

use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use aside::StandsAside;
use core::net::IpAddr;
use leadership::Leadership;
use members::Members;

/// The largest number of external machines that are told of a victory; further ones are left out.
pub const EXTERNALS_MAX: usize = 4_096;

/// One node's part in the election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Election {
    me: Origin,
    index: ProcessingIndex,
    settings: Settings,
    state: State,
    aside: Option<StandsAside>,
    round: u64,
    highest: Epoch,
    /// How many other machines the database has seen at work; none before its first answer.
    others: Option<u32>,
    members: Members,
    externals: Vec<IpAddr>,
    outputs: VecDeque<Output>,
}

/// Leaderless → Candidate, Following.
/// Candidate → Elected (three phases without an abort), Leaderless (aborted), Following.
/// Elected → Leaving (holds the lease), Following, Leaderless.
/// Leaving → Following, Leaderless (lease released, or T over).
/// Following → Candidate, Leaderless (leader silent or resigned), Following (another leader).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Knows no leader. At `until` it stands for election, or asks for a leader if it may not stand. `bettered`: it knows of a better
    /// node that stands.
    Leaderless { until: Instant, bettered: bool },
    /// Asks the others; the phase ends at `until`.
    Candidate { phase: Phase, until: Instant },
    /// Won the election.
    Elected(Leadership),
    /// Acts no more, and waits for the release of its lease.
    Leaving { epoch: Epoch, until: Instant, then: Then },
    /// Has a leader.
    Following(Following),
}

/// What a node does once its lease is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Follow {
        leader: Peer,
        round: Round,
    },
    StandAside(Aside),
    /// It resigned, and the resignation was taken back meanwhile.
    StandAgain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Following {
    leader: Peer,
    /// Known once the leader acts.
    epoch: Option<Epoch>,
    since: Instant,
    heard_at: Instant,
    /// When it last spoke over a stream. A beat may come from anybody who knows the lab's secret.
    proved_at: Instant,
}

/// Another node, as an addressee and a rival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Peer {
    id: NodeId,
    address: IpAddr,
    rank: Rank,
}

/// What the shell should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Broadcast in the lab's network, with the next sequence number.
    Broadcast(Message),
    /// Send over a stream.
    Send {
        /// Where to.
        to: IpAddr,
        /// What.
        message: Message,
    },
    /// Send over a stream to every host of the lab's [`AddressRange`]: no member is known.
    Sweep(Message),
    /// Carry out at the database, and hand the answer to [`Election::on_lease`].
    Lease(LeaseOrder),
}

/// What a node is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Knows no leader and does not stand.
    Leaderless,
    /// In this phase of its candidacy.
    Candidate(Phase),
    /// Won, without a live lease: must not act.
    Elected,
    /// Leads with this epoch.
    Acting(Epoch),
    /// Acts no more, and waits for the release of its lease.
    Leaving,
    /// Follows this node.
    Following(NodeId),
}

impl Election {
    /// A node that has just started. `me` is its own certificate and address, `highest` the highest
    /// epoch that it has stored. Settings with [`Settings::problems`] work badly but do not panic.
    pub fn new(me: Origin, index: ProcessingIndex, settings: Settings, highest: Epoch, now: Instant) -> Election {
        let mut election = Election {
            me,
            index,
            settings,
            state: State::Leaderless { until: now, bettered: false },
            aside: None,
            round: 0,
            highest,
            others: None,
            members: Members::default(),
            externals: Vec::new(),
            outputs: VecDeque::new(),
        };
        election.seek(now);
        election
    }

    /// The external machines that a leader tells of its victory.
    pub fn set_externals(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.externals = addresses.into_iter().take(EXTERNALS_MAX).collect();
    }

    /// When to call [`Election::on_timeout`] next.
    pub fn next_deadline(&self) -> Instant {
        let state = match &self.state {
            State::Leaderless { until, .. } | State::Candidate { until, .. } | State::Leaving { until, .. } => *until,
            State::Elected(leadership) => self.leadership_deadline(leadership),
            State::Following(following) => self.silent_at(following),
        };
        state.min(self.aside.map_or(Instant::NEVER, |aside| aside.again_at()))
    }

    /// Does what is due. Afterwards the next deadline is later than `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        self.aside_timeout(now);
        match self.state {
            State::Leaderless { until, .. } if until <= now => self.seek(now),
            State::Candidate { phase, until } if until <= now => self.phase_over(now, phase),
            State::Elected(leadership) => self.leadership_timeout(now, leadership),
            State::Leaving { until, then, .. } if until <= now => self.left(now, then),
            State::Following(following) if self.silent_at(&following) <= now => self.seek(now),
            _ => {}
        }
        self.check_invariants();
    }

    /// The next thing to do; none when all is done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The epoch under which this node may assign work at `now`.
    pub fn acting(&self, now: Instant) -> Option<Epoch> {
        match &self.state {
            State::Elected(leadership) => leadership.acting(now),
            _ => None,
        }
    }

    /// What this node is at `now`.
    pub fn standing(&self, now: Instant) -> Standing {
        match &self.state {
            State::Leaderless { .. } => Standing::Leaderless,
            State::Candidate { phase, .. } => Standing::Candidate(*phase),
            State::Elected(leadership) => leadership.acting(now).map_or(Standing::Elected, Standing::Acting),
            State::Leaving { .. } => Standing::Leaving,
            State::Following(following) => Standing::Following(following.leader.id),
        }
    }

    /// The node that this one takes for the leader; itself, if it is elected.
    pub fn leader(&self) -> Option<NodeId> {
        match &self.state {
            State::Elected(_) => Some(self.me.id),
            State::Following(following) => Some(following.leader.id),
            _ => None,
        }
    }

    /// Why this node does not stand for election at the moment, though it is eligible.
    pub fn aside(&self) -> Option<Aside> {
        self.aside.map(|aside| aside.why())
    }

    /// The paper's `localNodes`: the nodes that answer this leader.
    pub fn local_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.local().map(|(id, _)| id)
    }

    /// How many other nodes are remembered.
    pub fn members_len(&self) -> usize {
        self.members.len()
    }

    /// The highest epoch that this node has seen proof of; to be stored.
    pub fn highest_epoch(&self) -> Epoch {
        self.highest
    }

    /// The present or last candidacy.
    pub fn round(&self) -> Round {
        Round { boot: self.me.boot, number: self.round }
    }

    /// What this node says of itself in every message.
    pub fn claim(&self) -> Claim {
        Claim { priority: self.me.priority, index: self.index, stands: self.stands() }
    }

    /// Its place in the order.
    pub fn rank(&self) -> Rank {
        Rank::new(&self.me, self.claim())
    }

    /// Its own certificate and address.
    pub fn me(&self) -> &Origin {
        &self.me
    }

    /// Whether it may vote and stand now.
    fn stands(&self) -> bool {
        self.me.role == Role::Eligible && self.aside.is_none()
    }

    /// What is always true between two inputs; each costs O(1).
    fn check_invariants(&self) {
        let leads = matches!(self.state, State::Candidate { .. } | State::Elected(_));
        debug_assert!(!leads || self.stands(), "a node stands or leads that must not");
        debug_assert!(self.members.len() <= self.settings.members_max, "more members than allowed");
        debug_assert!(self.externals.len() <= EXTERNALS_MAX, "more external machines than allowed");
        if let State::Elected(leadership) = &self.state {
            let held = leadership.held_epoch();
            debug_assert!(held.is_none_or(|epoch| epoch <= self.highest), "leads in an epoch that it has not seen");
        }
    }

    fn send(&mut self, to: IpAddr, message: Message) {
        self.outputs.push_back(Output::Send { to, message });
    }

    fn broadcast(&mut self, message: Message) {
        self.outputs.push_back(Output::Broadcast(message));
    }

    fn order(&mut self, order: LeaseOrder) {
        self.outputs.push_back(Output::Lease(order));
    }
}

/// Why a message was ignored. It changed nothing, with two exceptions: after the last three kinds the
/// sender is known to be alive, and a clone of this node may make it stand aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageRefusal {
    /// Our own broadcast came back.
    Own,
    /// Our own id and key from another process: a cloned machine. The operator should look.
    Clone,
    /// The sender's role does not allow this message.
    Role,
    /// The priority is not the registered one.
    Priority,
    /// It needs a stream and came as a datagram.
    Channel,
    /// A known id with another key, in a datagram; or our own id with another key than ours.
    OtherKey,
    /// From before the sender's last restart.
    EarlierLife,
    /// The same, as a datagram, while the later life is silent: we ask over a stream whether it still runs.
    Revenant,
    /// A datagram of a later life of a node that a stream has shown: only a stream can show that it was restarted, and we open one.
    LaterLife,
    /// Seen before.
    Replayed,
    /// No room for one more node.
    TableFull,
    /// Of a term that is over, or without the epoch that it needs.
    OldEpoch,
    /// An answer to an earlier candidacy.
    OldRound,
    /// An abort from a node of lower rank.
    LowerRank,
}
