//! Figures about the scheduling, for status pages and metrics.

use super::{Decision, Now};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::runq::{SampleEnd, VmStatus};

/// The leader's figures. Counts begin with its term of office.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabFigures")]
pub struct Figures {
    /// The run queues that are not empty.
    pub queues: Vec<QueueFigures>,
    /// Machines that are plugged in.
    pub machines: usize,
    /// VMs that wait for a sample.
    pub vms_free: usize,
    /// VMs that analyse.
    pub vms_in_use: usize,
    /// VMs that return to their snapshot, or have not reported their state.
    pub vms_on_revert: usize,
    /// Attempts that were assigned.
    pub attempts: i64,
    /// Attempts that are charged to their samples: expired, failed, lost.
    pub attempts_lost: u64,
    /// Samples that ended, by how.
    pub ended: EndedCounts,
}

/// One run queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabRunQueue")]
pub struct QueueFigures {
    /// Its number: the lowest goes first.
    pub queue: u8,
    /// Samples in it.
    pub samples: usize,
    /// How long the oldest has been in it.
    pub oldest_wait_ms: u64,
}

/// Samples that ended in a term, by how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabEnded")]
pub struct EndedCounts {
    /// Every plugin returned a result.
    pub done: u64,
    /// As many attempts as allowed returned nothing.
    pub quarantined: u64,
    /// No machine could run it.
    pub unserviceable: u64,
    /// Somebody cancelled it.
    pub cancelled: u64,
}

impl EndedCounts {
    pub(super) fn count(&mut self, end: SampleEnd) {
        match end {
            SampleEnd::Done => self.done += 1,
            SampleEnd::Quarantined => self.quarantined += 1,
            SampleEnd::Unserviceable => self.unserviceable += 1,
            SampleEnd::Cancelled => self.cancelled += 1,
        }
    }
}

impl Decision {
    /// Its figures. Costs O(queues, lanes and VMs).
    pub fn figures(&self, now: Now) -> Figures {
        let mut figures = Figures {
            queues: self.queue_figures(now),
            machines: self.machines.len(),
            attempts: self.attempts_given,
            attempts_lost: self.attempts_lost,
            ended: self.ended_count,
            ..Figures::default()
        };
        for (_, _, status) in self.scheduler.groups().flat_map(|group| self.scheduler.vms(group)) {
            match status {
                VmStatus::Free => figures.vms_free += 1,
                VmStatus::InUse(_) => figures.vms_in_use += 1,
                VmStatus::OnRevert => figures.vms_on_revert += 1,
            }
        }
        figures
    }

    fn queue_figures(&self, now: Now) -> Vec<QueueFigures> {
        let queues = self.scheduler.run_queues();
        let filled = (0..64_u8).filter(|queue| queues.bits() >> queue & 1 != 0 || queues.queue_len(*queue) > 0);
        let figures = filled.map(|queue| {
            let oldest = self.scheduler.oldest(queue).map(|since| now.clock.since(since)).unwrap_or_default();
            let oldest_wait_ms = u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX);
            QueueFigures { queue, samples: queues.queue_len(queue), oldest_wait_ms }
        });
        figures.collect()
    }
}
