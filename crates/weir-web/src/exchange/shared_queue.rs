//! The trait by which the exchange talks to a backend's queue: it takes reports from the queue for other front-ends, and gives it their
//! reports.

use std::sync::Arc;
use weir_core::fair::{PeerId, Profile, Report};

/// The id of a backend: a keyed hash of its name, so it is the same on every front-end of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// One backend's scheduler, as the exchange sees it.
pub trait SharedQueue: Send + Sync {
    /// It is the same on every front-end of the cluster.
    fn id(&self) -> QueueId;
    /// Takes at most `most` reports for the others into `out`.
    fn drain(&self, most: usize, out: &mut Vec<Report>);
    /// A report of another front-end; see [`weir_core::fair::Fair::hear`].
    fn hear(&self, peer: PeerId, number: u64, report: &Report);
    /// A front-end has fallen silent; see [`weir_core::fair::Fair::forget_peer`].
    fn forget_peer(&self, peer: PeerId);
    /// Everything is to be reported again, because a front-end is new or has returned.
    fn report_all(&self);
    /// A new history profile.
    fn adopt(&self, profile: &Arc<Profile>);
}
