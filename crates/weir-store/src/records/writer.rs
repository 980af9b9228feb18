//! SQLite's one writing connection, which callers use in turn.
//!
//! It is not a pool, because a pool checks its connection before and after each use, and each check goes to the connection's thread and
//! back.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::timeout;

/// A caller that waits longer than this is told that the records do not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct SqliteWriter {
    /// None once it is closed.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
    options: Arc<SqliteConnectOptions>,
    /// Whether somebody has begun a transaction and not reported its end.
    unfinished: Arc<AtomicBool>,
}

impl SqliteWriter {
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<SqliteWriter, sqlx::Error> {
        let connection = Arc::new(Mutex::new(Some(options.connect().await?)));
        Ok(SqliteWriter { connection, options: Arc::new(options.clone()), unfinished: Arc::default() })
    }

    /// Waits for its turn.
    pub(crate) async fn lock(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, sqlx::Error> {
        let guard = timeout(PATIENCE, self.connection.lock()).await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let mut guard = MutexGuard::try_map(guard, Option::as_mut).map_err(|_| sqlx::Error::PoolClosed)?;
        if self.unfinished.load(Ordering::SeqCst) {
            // The caller that began it was dropped half-way, as happens to the tasks of a gate that restarts. The next writes must not become
            // part of that transaction, and be rolled back with it. If it had not begun yet, SQLite returns an error.
            let _ = sqlx::query("rollback").execute(&mut *guard).await;
            self.set_unfinished(false);
        }
        if is_stuck(&mut guard).await {
            tracing::warn!("the records are opened again after a transaction that could not be ended");
            *guard = self.options.connect().await?;
        }
        Ok(guard)
    }

    /// Call with true when a statement begins a transaction that nobody rolls back if its future is dropped; with false when it has ended.
    pub(super) fn set_unfinished(&self, unfinished: bool) {
        self.unfinished.store(unfinished, Ordering::SeqCst);
    }

    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the records were not closed in order");
        }
    }
}

/// Whether the driver assumes a transaction that does not exist.
///
/// On a full disk SQLite rolls back by itself. The driver's own `ROLLBACK` then fails, and the driver still counts one open transaction:
/// single statements would still be executed, but no transaction would ever begin again. A rollback may also be in progress;
/// it is finished when the connection answers.
async fn is_stuck(connection: &mut SqliteConnection) -> bool {
    connection.is_in_transaction() && (connection.ping().await.is_err() || connection.is_in_transaction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_that_sqlite_has_rolled_back_by_itself_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("a.db")).create_if_missing(true);
        let writer = SqliteWriter::open(&options).await.unwrap();
        sqlx::query("create table a (b)").execute(&mut *writer.lock().await.unwrap()).await.unwrap();
        {
            let mut connection = writer.lock().await.unwrap();
            let mut begun = connection.begin_with("begin immediate").await.unwrap();
            sqlx::query("insert into a values (1)").execute(&mut *begun).await.unwrap();
            // As SQLite does on a full disk.
            sqlx::query("rollback").execute(&mut *begun).await.unwrap();
        }
        let mut connection = writer.lock().await.unwrap();
        let mut next = connection.begin_with("begin immediate").await.unwrap();
        sqlx::query("insert into a values (2)").execute(&mut *next).await.unwrap();
        next.commit().await.unwrap();
        let found: Vec<i64> = sqlx::query_scalar("select b from a").fetch_all(&mut *connection).await.unwrap();
        assert_eq!(found, [2]);
    }
}
