//! The election of a lab of one machine, which nobody can contest.
//!
//! The lease keeps two leaders apart. In a lab of one machine there is no second leader: only this process writes the embedded database,
//! because it holds the lock of the data folder. So the lease lives as long as the process: it does not run out, however little processor
//! time the machine gets, and so no attempts under way are lost. A lease that an earlier process left is ended at the start, so that nobody
//! has to wait for it.
//!
//! On PostgreSQL another machine may use the same database, if only by mistake. There we wait for a lease held under another name to end,
//! and our own lease is shorter.

use super::elector::{ElectionNetwork, Elector, Ends, now};
use std::net::IpAddr;
use std::time::Duration;
use weir_core::election::{
    Boot, Claim, Election, Epoch, KeyId, Message, NodeId, Origin, Priority, ProcessingIndex, Role, Settings,
};
use weir_store::records::{Records, RecordsError};

/// The shortest lease on an embedded database: longer than any machine hangs.
const LEASE_MIN: Duration = Duration::from_secs(24 * 3600);
/// The shortest lease on PostgreSQL, which is also the longest wait for a machine of another name.
const LEASE_MIN_SHARED: Duration = Duration::from_secs(60);

/// The network of a lab of one machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl ElectionNetwork for Alone {
    fn broadcast(&mut self, _: Claim, _: Message) {}
    fn send(&mut self, _: IpAddr, _: Claim, _: Message) {}
    fn sweep(&mut self, _: Claim, _: Message) {}
    fn hang_up(&mut self) {}
}

/// The election of a lab of one machine. The caller holds the lock of the data folder that the records are in.
pub async fn alone(
    holder: &str,
    index: ProcessingIndex,
    settings: Settings,
    records: Records,
) -> Result<(Elector<Alone>, Ends), RecordsError> {
    let (earlier, _) = records.lab_leader().current().await?;
    if !records.is_shared() || earlier.holder == holder {
        records.lab_leader().release(&earlier).await?;
    }
    let lease_min = if records.is_shared() { LEASE_MIN_SHARED } else { LEASE_MIN };
    let settings = Settings { lease: settings.lease.max(lease_min), ..settings };
    Ok(with_lease(holder, index, settings, records))
}

/// The same with the lease as configured.
pub(crate) fn with_lease(
    holder: &str,
    index: ProcessingIndex,
    settings: Settings,
    records: Records,
) -> (Elector<Alone>, Ends) {
    let me = Origin {
        id: NodeId(1),
        key: KeyId([0; 32]),
        role: Role::Eligible,
        priority: Priority(10),
        address: [127, 0, 0, 1].into(),
        boot: Boot(1),
    };
    let at = now();
    let mut election = Election::new(me, index, settings, Epoch(0), at);
    election.alone(at);
    Elector::new(election, records, holder, settings, Alone)
}

#[cfg(test)]
mod tests {
    use super::super::elector::Post;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lab_of_one_begins_at_once_after_a_crash_and_its_lease_lasts() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        for (holder, epoch) in [("old-name", 1), ("new-name", 2)] {
            let begun = tokio::time::Instant::now();
            let (elector, mut ends) =
                alone(holder, ProcessingIndex(1), Settings::default(), records.clone()).await.unwrap();
            let task = tokio::spawn(elector.run());
            ends.post.wait_for(|post| matches!(post, Post::Acting(fence) if fence.epoch == epoch)).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(600), "{:?}", begun.elapsed());
            let (fence, left_ms) = records.lab_leader().current().await.unwrap();
            assert_eq!(fence.holder, holder);
            assert!(left_ms > 3_600_000, "{left_ms}");
            // It ends like a process that is killed, with its lease alive.
            task.abort();
        }
    }
}
