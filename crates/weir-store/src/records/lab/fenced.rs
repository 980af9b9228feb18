//! Fenced transactions: each begins by checking that the leader's lease is still valid (its epoch, its holder, the database's clock), and
//! changes nothing if it is not.

use super::Fence;
use crate::records::RecordsError;
use sqlx::SqliteConnection;

/// Runs `$work` with SQLite's one writer if the fence's lease is alive. Returns `Some` with the result once it is committed.
///
/// It runs in a task of its own: the caller may be dropped half-way, and that must not leave the one writer in an open transaction.
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
                // A transaction that was begun must not stay open. If none was begun, SQLite returns an error, which is ignored.
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

/// Begins a transaction. Returns whether the lease is alive.
pub(super) async fn begins_in_sqlite(connection: &mut SqliteConnection, fence: &Fence) -> Result<bool, RecordsError> {
    let alive = sqlx::query(
        "begin immediate;
         select epoch from lab_leader
         where epoch = ? and holder = ? and expires_at > cast(unixepoch('subsec') * 1000 as integer);",
    );
    Ok(!alive.bind(fence.epoch).bind(&fence.holder).fetch_all(connection).await?.is_empty())
}

/// The lease with the epoch `$1` and the holder `$2`, if it is alive. It locks the row: a machine that wants to take over waits until the
/// transaction has ended.
macro_rules! fence_in_postgres {
    () => {
        "select epoch from lab_leader where epoch = $1 and holder = $2
         and expires_at > (extract(epoch from clock_timestamp()) * 1000)::bigint for share"
    };
}
pub(super) use fence_in_postgres;
