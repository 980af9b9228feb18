//! Names that differ only in capitals.
//!
//! A mail server that vouches for its users hands on what the client typed, and so does Dovecot if it is told to. `ANN` must not have
//! another throttle than `ann`, nor escape her lock. An account of exactly this name counts; then one that differs in capitals alone; then
//! a throttle, for many users have no account here. Of several throttles a stopped one counts, so that no spelling leads around a stop.

use weir_store::records::{RecordsError, ThrottleRecords, UserRecords};

/// Under which name somebody is known here, if at all.
pub(crate) async fn known_as(
    users: &UserRecords,
    throttles: &ThrottleRecords,
    name: &str,
) -> Result<Option<String>, RecordsError> {
    let lower = name.to_lowercase();
    let accounts = users.alike(&lower).await?;
    if let Some(account) = accounts.iter().find(|account| *account == name).or(accounts.first()) {
        return Ok(Some(account.clone()));
    }
    Ok(throttles.alike(&lower).await?.into_iter().next())
}
