//! When requests end in the shadow of the queue that observe mode computes ([`super::observe`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::fair::Ticket;

use super::request_table::RequestTable;

/// The ends that are still to come.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    pub(super) ends: BinaryHeap<Reverse<(u64, Ticket)>>,
}

impl Shadow {
    /// The scheduler has chosen a request: its end is known if it has really ended already.
    pub(super) fn dispatched(&mut self, requests: &mut RequestTable, ticket: Ticket, now_ns: u64) {
        if let Some(took_ns) = requests.at(ticket).took_ns {
            self.ends.push(Reverse((now_ns.saturating_add(took_ns), ticket)));
        }
    }
}
