//! A sample on its way: what it asks for, where it is, how it ends.
//!
//! ```text
//! Queued ──choose──► Waiting (current, next or idle of a group) ──start──► Running
//!   ▲                   │ machine gone                                       │
//!   └───────────────────┴── THRESHOLD, failure, nothing more here for it ────┤
//!   │                                                                        ▼
//!   └──────── cancelled, unserviceable ──────────────► Ended(done, quarantined, unserviceable, cancelled)
//! ```
//!
//! A late first result may still turn *quarantined* or *unserviceable* into *done*; the other two are final.

use super::list::{Linked, Links};
use super::needs_class::ClassId;
use super::priority::Directory;
use super::slab::SlabKey;
use crate::time::Instant;

/// A sample that the scheduler knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SampleId(pub SlabKey);

/// Who submitted a sample: a hash of the name made with a secret, so that nobody can choose collisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubmitterId(pub u64);

/// One run of a sample on a VM. Its results carry this id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId {
    /// The sample.
    pub sample: SampleId,
    /// Its first run is 1.
    pub number: u32,
}

/// How a sample ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampleEnd {
    /// Every plugin has an accepted result.
    Done,
    /// As many attempts as allowed brought nothing.
    Quarantined,
    /// No machine could serve it for longer than the patience allows.
    Unserviceable,
    /// Somebody cancelled it.
    Cancelled,
}

/// The three queues of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Waiting {
    /// Runs in order, as VMs become free.
    Current,
    /// Becomes *current* when *current* holds nothing that a free VM could run.
    Next,
    /// Runs when the other two are empty.
    Idle,
}

/// Where a sample is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SampleState {
    /// In no list: it is not queued yet, or was put off.
    Nowhere,
    Queued {
        lane: u32,
    },
    Waiting {
        group: u32,
        list: Waiting,
    },
    Running {
        group: u32,
        vm: u8,
    },
    Ended(SampleEnd),
}

/// A sample as the slab holds it: small, because a million of them wait.
#[derive(Clone, Debug)]
pub struct Sample {
    pub(super) links: Links,
    pub(super) place: SampleState,
    pub(super) submitter: SubmitterId,
    /// When it entered its run queue.
    pub(super) queued_at: Instant,
    /// Grows with each entry into a run queue.
    pub(super) ticket: u64,
    /// What was asked for.
    pub(super) asked: ClassId,
    /// The part of it that is still to be run.
    pub(super) class: ClassId,
    /// Attempts started.
    pub(super) started: u32,
    /// Attempts that brought no result.
    pub(super) charged: u8,
    pub(super) directory: Directory,
}

impl Sample {
    /// A sample that is in no list yet.
    pub fn new(directory: Directory, submitter: SubmitterId, class: ClassId) -> Sample {
        Sample {
            links: Links::LOOSE,
            place: SampleState::Nowhere,
            submitter,
            queued_at: Instant::ZERO,
            ticket: 0,
            asked: class,
            class,
            started: 0,
            charged: 0,
            directory,
        }
    }
}

impl Linked for Sample {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}
