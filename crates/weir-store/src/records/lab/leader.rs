//! The row of the lease: it has one holder at a time and an epoch that only grows, and expires by the database's clock.

use crate::records::{Database, RecordsError, in_time, read, write};
use sqlx::Row;

/// The epoch and node in whose name a leader writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The epoch of its lease.
    pub epoch: i64,
    /// The node.
    pub holder: String,
}

/// The answer to a request for the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseReply {
    /// It is ours, with this epoch, from now.
    Granted {
        /// The epoch.
        epoch: i64,
    },
    /// Another node holds it, for this many milliseconds.
    Refused {
        /// Milliseconds.
        free_in_ms: i64,
    },
}

/// Who leads the lab, and the lease. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaderRecords {
    pub(in crate::records) db: Database,
}

impl LeaderRecords {
    /// Takes the lease if nobody holds it (or its end is further away than two leases: the clock was set back), and writes the new epoch
    /// into the history.
    pub async fn acquire(&self, holder: &str, lease_ms: i64) -> Result<LeaseReply, RecordsError> {
        let granted: Option<i64> = match &self.db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                let sql = sqlx::query_scalar(ACQUIRE_SQLITE).bind(lease_ms).bind(holder);
                let epoch = sql.fetch_optional(&mut *connection).await?;
                if let Some(epoch) = epoch {
                    sqlx::query(HISTORY_SQLITE).bind(epoch).bind(holder).execute(&mut *connection).await?;
                }
                epoch
            }
            Database::Postgres(pool) => {
                let sql = sqlx::query_scalar(ACQUIRE_POSTGRES).bind(lease_ms).bind(holder);
                in_time(async { Ok(sql.fetch_optional(pool).await?) }).await?
            }
        };
        match granted {
            Some(epoch) => Ok(LeaseReply::Granted { epoch }),
            None => Ok(LeaseReply::Refused { free_in_ms: self.lease_left().await? }),
        }
    }

    /// Renews a live lease; false if it is over.
    pub async fn renew(&self, fence: &Fence, lease_ms: i64) -> Result<bool, RecordsError> {
        let sql = self.db.either(RENEW_SQLITE, RENEW_POSTGRES);
        let renewed: Option<i64> = write!(self, pool => sqlx::query_scalar(sql)
            .bind(fence.epoch).bind(&fence.holder).bind(lease_ms).fetch_optional(pool).await?);
        Ok(renewed.is_some())
    }

    /// Ends a lease now; nothing happens if it is over already.
    pub async fn release(&self, fence: &Fence) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("update lab_leader set expires_at = 0 where epoch = $1 and holder = $2")
            .bind(fence.epoch).bind(&fence.holder).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Whether the database can be written; changes nothing.
    pub async fn probe(&self) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("update lab_leader set epoch = epoch where one = 0").execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Who holds the lease, with which epoch, and for how many more milliseconds; the last holder if nobody does.
    pub async fn current(&self) -> Result<(Fence, i64), RecordsError> {
        let sql = self.db.either(
            "select epoch, holder, max(expires_at - cast(unixepoch('subsec') * 1000 as integer), 0) from lab_leader",
            "select epoch, holder, greatest(expires_at - (extract(epoch from clock_timestamp()) * 1000)::bigint, 0) from lab_leader",
        );
        let of = |epoch, holder, left| Ok((Fence { epoch, holder }, left));
        read!(self, pool => {
            let row = sqlx::query(sql).fetch_one(pool).await?;
            of(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)
        })
    }

    /// Which epochs there were: number, holder, and when it began in milliseconds.
    pub async fn history(&self, most: i64) -> Result<Vec<(i64, String, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select epoch, holder, acquired_at from lab_history order by epoch desc limit $1")
            .bind(most).fetch_all(pool).await?))
    }

    async fn lease_left(&self) -> Result<i64, RecordsError> {
        Ok(self.current().await?.1)
    }
}

// A lease that ends later than any that is given was given before the clock was set back, and would be valid for as long as the difference.
// Taking it is safe, because the new epoch fences the old one. The limit is twice the lease, so that machines whose settings differ a little do
// not take it from each other.
//
// If machines are registered, only they may lead: one that was removed must not. A lab of one machine registers none: its row, which exists if it is
// drained, has no key.
//
// This is one statement. If the program is killed before the history is written, the epoch is still taken and never used again.
const ACQUIRE_SQLITE: &str = "update lab_leader set epoch = epoch + 1, holder = $2,
  expires_at = cast(unixepoch('subsec') * 1000 as integer) + $1
  where (expires_at <= cast(unixepoch('subsec') * 1000 as integer)
    or expires_at > cast(unixepoch('subsec') * 1000 as integer) + 2 * $1)
  and (exists (select 1 from lab_nodes where node = $2) or not exists (select 1 from lab_nodes where fingerprint <> '')) returning epoch";
const HISTORY_SQLITE: &str = "insert into lab_history (epoch, holder, acquired_at)
  values ($1, $2, cast(unixepoch('subsec') * 1000 as integer))";
const ACQUIRE_POSTGRES: &str = "with taken as (update lab_leader set epoch = epoch + 1, holder = $2,
    expires_at = (extract(epoch from clock_timestamp()) * 1000)::bigint + $1
    where (expires_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint
      or expires_at > (extract(epoch from clock_timestamp()) * 1000)::bigint + 2 * $1)
    and (exists (select 1 from lab_nodes where node = $2) or not exists (select 1 from lab_nodes where fingerprint <> '')) returning epoch)
  insert into lab_history (epoch, holder, acquired_at)
  select epoch, $2, (extract(epoch from clock_timestamp()) * 1000)::bigint from taken returning epoch";
const RENEW_SQLITE: &str = "update lab_leader set expires_at = cast(unixepoch('subsec') * 1000 as integer) + $3
  where epoch = $1 and holder = $2 and expires_at > cast(unixepoch('subsec') * 1000 as integer)
  and (exists (select 1 from lab_nodes where node = $2) or not exists (select 1 from lab_nodes where fingerprint <> '')) returning epoch";
const RENEW_POSTGRES: &str =
    "update lab_leader set expires_at = (extract(epoch from clock_timestamp()) * 1000)::bigint + $3
  where epoch = $1 and holder = $2 and expires_at > (extract(epoch from clock_timestamp()) * 1000)::bigint
  and (exists (select 1 from lab_nodes where node = $2) or not exists (select 1 from lab_nodes where fingerprint <> '')) returning epoch";
