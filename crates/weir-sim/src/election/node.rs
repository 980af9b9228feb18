//! One machine of the lab: the election, a dispatcher's fence, and what its disk keeps over a crash.

use super::Payload;
use crate::rng::Rng;
use std::net::{IpAddr, Ipv4Addr};
use weir_core::election::{
    Boot, Channel, Election, Epoch, Fence, Frame, KeyId, Message, NodeId, Origin, Priority, ProcessingIndex, Role,
    Settings,
};
use weir_core::time::Instant;

/// A machine.
#[derive(Debug)]
pub(super) struct Node {
    /// Its certificate and address; `boot` counts its starts.
    pub(super) me: Origin,
    pub(super) index: ProcessingIndex,
    /// In memory only: gone after a crash.
    pub(super) election: Option<Election>,
    /// On its disk.
    pub(super) fence: Fence,
    highest: Epoch,
    sequence: u64,
    /// The last datagram that this life has taken, for an intruder to repeat.
    pub(super) overheard: Option<Frame>,
}

impl Node {
    /// Machine number `i` of `n`: a fifth dispatchers, a fifth external, the rest eligible, with few
    /// different priorities and indices, so that ties are common.
    pub(super) fn new(i: usize, n: usize, rng: &mut Rng) -> Node {
        let role = role(i, n);
        let priority = Priority([0, 1, 1, 1, 2][rng.below(5) as usize]);
        let key = KeyId([i as u8; 32]);
        let me = Origin { id: NodeId(i as u64), key, role, priority, address: address(i, role), boot: Boot(0) };
        let index = ProcessingIndex(60 + rng.below(3) as u16);
        Node { me, index, election: None, fence: Fence::default(), highest: Epoch(0), sequence: 0, overheard: None }
    }

    /// A copy of this machine's disk at another address of the lab.
    pub(super) fn cloned_to(&self, i: usize) -> Node {
        let me = Origin { address: address(i, Role::Eligible), ..self.me };
        Node { me, election: None, sequence: 0, overheard: None, ..*self }
    }

    /// Starts: a new life with what the disk has kept and a `nonce` of 16 bits.
    pub(super) fn start(&mut self, now: Instant, settings: Settings, externals: &[IpAddr], nonce: u64) {
        self.me.boot = Boot((((self.me.boot.0 >> 16) + 1) << 16) | nonce);
        (self.sequence, self.overheard) = (0, None);
        let mut election = Election::new(self.me, self.index, settings, self.highest, now);
        election.set_externals(externals.iter().copied());
        self.election = Some(election);
    }

    pub(super) fn crash(&mut self) {
        self.election = None;
    }

    /// Keeps what must survive.
    pub(super) fn store(&mut self) {
        let seen = self.election.as_ref().map_or(Epoch(0), Election::highest_epoch);
        self.highest = self.highest.max(seen);
        let _ = self.fence.admit(self.fence.highest().max(self.highest));
    }

    /// A message as it goes out.
    pub(super) fn frame(&mut self, message: Message, broadcast: bool) -> Option<Payload> {
        let claim = self.election.as_ref()?.claim();
        self.sequence += u64::from(broadcast);
        let via = if broadcast { Channel::Datagram { sequence: self.sequence } } else { Channel::Stream };
        Some(Payload::Frame { frame: Frame { from: self.me, via, claim, message }, authentic: true })
    }

    pub(super) fn acting(&self, now: Instant) -> Option<Epoch> {
        self.election.as_ref().and_then(|election| election.acting(now))
    }

    /// Its name at the database: one process, not one machine.
    pub(super) fn holder(&self, host: usize) -> u64 {
        ((host as u64) << 32) | self.me.boot.0
    }
}

fn role(i: usize, n: usize) -> Role {
    let fifth = n / 5;
    match n - i {
        left if left <= fifth => Role::External,
        left if left <= 2 * fifth => Role::Dispatcher,
        _ => Role::Eligible,
    }
}

fn address(i: usize, role: Role) -> IpAddr {
    let network = if role == Role::External { 203 } else { 10 };
    IpAddr::V4(Ipv4Addr::new(network, 0, (i / 250) as u8, (i % 250) as u8 + 1))
}

/// The machine at an address.
pub(super) fn host_at(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(v4) => usize::from(v4.octets()[2]) * 250 + usize::from(v4.octets()[3]) - 1,
        IpAddr::V6(_) => usize::MAX,
    }
}
