//! The lab's records: who leads, which machines there are, samples, attempts and results.
//!
//! Every change that a leader makes is one fenced statement: it names the epoch, and does nothing unless that epoch's
//! lease is alive at that moment by the database's clock. On PostgreSQL the fence also locks the lease row, so that nobody can take over
//! until the statement has committed. SQLite has only one writer, which has the same effect.

mod attempts;
mod ended;
mod fenced;
mod leader;
mod nodes;
mod opinions;
mod samples;

pub use attempts::{
    AttemptEnd, AttemptRecords, AttemptRow, KnownResult, LabBatch, NOBODY_KNOWS, ResultRow, SampleChange,
};
pub use ended::MalwareCount;
pub use leader::{Fence, LeaderRecords, LeaseReply};
pub use nodes::{NodeRecords, NodeRow};
pub use opinions::OpinionRow;
pub use samples::{NewSample, OpenSample, Pruned, QueueRow, SampleFilter, SampleRecords, SampleRow};
