//! The relays that share these records, and when each was last known to be alive.

use super::{Database, RecordsError, read, write};

/// The relays that share these records, and when each was last alive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RelayRecords {
    pub(in crate::records) db: Database,
}

impl RelayRecords {
    /// Says that `relay` is alive.
    pub async fn alive(&self, relay: &str, now: i64) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query(
            "insert into relays (relay, seen_at) values ($1, $2) on conflict (relay) do update set seen_at = excluded.seen_at")
            .bind(relay).bind(now).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// When `relay` was last alive.
    pub async fn seen(&self, relay: &str) -> Result<Option<i64>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select seen_at from relays where relay = $1")
            .bind(relay).fetch_optional(pool).await?))
    }

    /// Relays that were last seen before `time`.
    pub async fn silent_since(&self, time: i64) -> Result<Vec<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select relay from relays where seen_at < $1 order by relay")
            .bind(time).fetch_all(pool).await?))
    }
}
