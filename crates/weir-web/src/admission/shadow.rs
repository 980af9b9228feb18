//! The shadow of the queue that observe mode computes ([`super::observe`]): what the server does, and when requests end in the shadow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::fair::Ticket;

use super::request_table::RequestTable;
use super::server_model::ServerModel;

/// What really happens, and the ends that are still to come.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    pub(super) ends: BinaryHeap<Reverse<(u64, Ticket)>>,
    /// What is really at the server.
    pub(super) server: ServerModel,
}

impl Shadow {
    /// The scheduler has chosen a request; if it has really ended already, its end is known.
    pub(super) fn dispatched(&mut self, requests: &mut RequestTable, ticket: Ticket, now_ns: u64) {
        if let Some(took_ns) = requests.at(ticket).took_ns {
            self.ends.push(Reverse((now_ns.saturating_add(took_ns), ticket)));
        }
    }
}
