//! The places in the queue, and which waiting request is dropped when all are taken. That is decided first by lane, and among strangers by
//! network.
//!
//! To the scheduler all strangers are one subnet, which has the longest backlog in a flood. So strangers make room for known visitors.
//! Among strangers the network with the most waiting requests makes room, as between any other subnets ([`Backlog`]).

use weir_core::fair::{Backlog, QueueBounds, Room, Scarce, SubnetKey, Ticket};

use super::standing::is_stranger;
use super::streams::Owner;

/// All requests that wait.
#[derive(Debug, Default)]
pub(super) struct Places {
    lanes: Backlog,
    /// Strangers, by their own networks.
    strangers: Backlog,
}

/// A subnet that has nothing waiting.
const NOBODY: SubnetKey = SubnetKey(0);

impl Places {
    /// Whether one more request of `subnet` may wait in this lane; or which one must leave first.
    pub(super) fn room(&mut self, lane: Owner, subnet: SubnetKey, bytes: u32, bounds: QueueBounds) -> Room {
        match self.lanes.room(lane.subnet, bytes, bounds) {
            Room::After(ticket) if self.strangers.subnet_of(ticket).is_some() => {
                let none = QueueBounds { requests: 0, bytes: u64::MAX };
                match self.strangers.room(NOBODY, 0, none) {
                    Room::After(of_largest) => Room::After(of_largest),
                    Room::Enough | Room::None(_) => Room::After(ticket),
                }
            }
            Room::None(scarce) if is_stranger(lane) => {
                let none = match scarce {
                    Scarce::Requests => QueueBounds { requests: 0, bytes: u64::MAX },
                    Scarce::Bytes => QueueBounds { requests: u64::MAX, bytes: 0 },
                };
                self.strangers.room(subnet, bytes, none)
            }
            room => room,
        }
    }

    /// A request waits from now on.
    pub(super) fn join(&mut self, ticket: Ticket, lane: Owner, subnet: SubnetKey, bytes: u32) {
        self.lanes.join(ticket, lane.subnet, bytes);
        if is_stranger(lane) {
            self.strangers.join(ticket, subnet, bytes);
        }
    }

    /// A request waits no more.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.lanes.leave(ticket);
        self.strangers.leave(ticket);
    }

    /// How many strangers wait.
    pub(super) fn strangers(&self) -> u64 {
        self.strangers.requests()
    }

    /// How much memory they hold.
    pub(super) fn bytes(&self) -> u64 {
        self.lanes.bytes()
    }

    #[cfg(test)]
    pub(super) fn requests(&self) -> u64 {
        self.lanes.requests()
    }

    #[cfg(test)]
    pub(super) fn requests_of(&self, subnet: SubnetKey) -> u64 {
        self.lanes.requests_of(subnet)
    }
}
