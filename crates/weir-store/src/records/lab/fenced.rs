//! Transactions behind the fence: they begin by asking for a live lease of the leader's epoch, and change nothing without one.

use super::Fence;
use crate::records::RecordsError;
use sqlx::SqliteConnection;

/// Does `$work` with SQLite's one writer, if the fence's lease is alive; `Some` of what came of it, once it is committed.
///
/// In a task of its own: whoever asked may be dropped half-way, and the one writer must not stand in an open transaction then.
macro_rules! fenced_in_sqlite {
    ($write:expr, $fence:expr, $connection:ident => $work:expr) => {{
        let (write, fence) = ($write.clone(), $fence.clone());
        let task = tokio::spawn(async move {
            let mut writer = write.lock().await?;
            let $connection = &mut *writer;
            let done = async {
                if !$crate::records::lab::fenced::begins_in_sqlite($connection, &fence).await? {
                    return Ok(None);
                }
                let done = $work;
                sqlx::query("commit").execute(&mut *$connection).await?;
                Ok(Some(done))
            };
            let done = done.await;
            if !matches!(done, Ok(Some(_))) {
                // Whatever was begun must not stand open; if nothing was, SQLite says so.
                let _ = sqlx::query("rollback").execute(&mut *writer).await;
            }
            done
        });
        let done: Result<_, RecordsError> =
            task.await.map_err(|_| RecordsError::Database(sqlx::Error::WorkerCrashed))?;
        done
    }};
}
pub(super) use fenced_in_sqlite;

/// Begins a transaction; whether the lease is alive.
pub(super) async fn begins_in_sqlite(connection: &mut SqliteConnection, fence: &Fence) -> Result<bool, RecordsError> {
    let alive = sqlx::query(
        "begin immediate;
         select epoch from lab_leader
         where epoch = ? and holder = ? and expires_at > cast(unixepoch('subsec') * 1000 as integer);",
    );
    Ok(!alive.bind(fence.epoch).bind(&fence.holder).fetch_all(connection).await?.is_empty())
}

/// The lease with the epoch `$1` and the holder `$2`, if it is alive. It locks the row: whoever would take over waits until the
/// transaction has ended.
macro_rules! fence_in_postgres {
    () => {
        "select epoch from lab_leader where epoch = $1 and holder = $2
         and expires_at > (extract(epoch from clock_timestamp()) * 1000)::bigint for share"
    };
}
pub(super) use fence_in_postgres;
