//! The lab's scheduler decision: 64 run queues, groups of VMs, attempts (section 5 of Branco and Barbosa,
//! *Distributed Malware Analysis Scheduling*).
//!
//! A sample enters the run queue of its directory. [`Scheduler`] chooses samples from the lowest run queue that
//! some machine can serve, puts them in that machine's *current* queue and starts them on a free VM that supports
//! one of their plugins. What remains to run goes to *next*, or back to *current* if its priority says so.
//! An attempt has THRESHOLD from its start; then the sample goes to the tail of its run queue, and after
//! too many attempts that brought nothing to quarantine.
//!
//! Left to others: names of plugins, tags and submitters, storage, the wire, who may report what.
//! `docs/algorithms/runq.md` tells the whole story.

mod attempts;
mod class_set;
mod deferral;
mod demand;
mod dispatch;
mod group;
mod lane;
mod list;
mod needs;
mod needs_class;
mod output;
mod pool;
mod priority;
mod run_queues;
mod sample;
mod scheduler;
mod settings;
mod slab;
mod view;
mod vm;
mod why;

pub use attempts::ResultStatus;
pub use class_set::ClassSet;
pub use deferral::{Deferrals, Hindrance, Rest};
pub use group::{GroupId, Strain, VMS_MAX, VmId};
pub use needs::{Needs, Offer, PluginId, Plugins, Tags};
pub use needs_class::ClassId;
pub use output::{Assignment, Output, StopReason};
pub use priority::{Directory, PriorityClass, PriorityRules, QUEUES};
pub use run_queues::{RunQueues, Servable};
pub use sample::{AttemptId, Sample, SampleEnd, SampleId, SubmitterId, Waiting};
pub use scheduler::{Scheduler, Submission};
pub use settings::{RunqRefusal, Settings};
pub use slab::{Slab, SlabKey};
pub use view::{SampleView, VmStatus, Whereabouts};
pub use why::{Unmet, Why};
