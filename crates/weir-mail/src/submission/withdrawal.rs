//! Handles a refusal whose state is unclear: the sender was told "try again later", but the records may hold entries of the letter.
//!
//! A database that fails in the middle of a commit does not say whether the commit took effect. The letter stays in the spool until the
//! records have answered and hold nothing of it. So there is never an entry without its message: if the process is killed meanwhile, the
//! next start finds the letter and carries on; its sender, who tries again, then sends it twice. If the letter stopped its
//! user and nothing else waits, the account is locked: a stop does not end because a disk is full.

use super::Submission;
use crate::accounts::stop_lock;
use crate::throttle::{ThrottleCommand, ThrottlingError};
use std::time::Duration;
use weir_store::records::{HeldFilter, RecordsError};
use weir_store::spool::MessageId;

/// Between two attempts; it doubles.
const WAIT_FIRST: Duration = Duration::from_millis(200);
const WAIT_LONGEST: Duration = Duration::from_secs(10);

impl Submission {
    /// Takes a refused letter back, now or when the records answer again. Does not wait.
    pub(super) fn withdraw(&self, id: MessageId, identity: &str) {
        let (submission, identity) = (self.clone(), identity.to_owned());
        tokio::spawn(async move {
            let mut wait = WAIT_FIRST;
            while let Err(error) = submission.take_back(id, &identity).await {
                if let WithdrawalError::Throttle(ThrottlingError::Ended) = error {
                    // The gate is stopping; the next start finds the letter.
                    return;
                }
                tracing::debug!(%id, %error, "a refused message cannot be taken back yet");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_LONGEST);
            }
            let _ = submission.shared.spool.finish(id);
        });
    }

    async fn take_back(&self, id: MessageId, identity: &str) -> Result<(), WithdrawalError> {
        let (records, throttling) = (&self.shared.records, &self.shared.throttling);
        // A commit that is still under way holds the lock on this throttle; whoever has it next sees what became of it.
        throttling.command(identity, ThrottleCommand::Drain).await?;
        let filter = HeldFilter { message: id.to_string(), ..HeldFilter::default() };
        let entries: Vec<i64> = records.held().list(&filter, i64::MAX).await?.iter().map(|row| row.entry).collect();
        if !entries.is_empty() {
            let now = (self.shared.clock.0)();
            stop_lock::before_taking_back(records, identity, entries.len(), now).await?;
            throttling.command(identity, ThrottleCommand::Delete(entries)).await?;
        }
        records.held().strike(&filter.message).await?;
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum WithdrawalError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Throttle(#[from] ThrottlingError),
}
