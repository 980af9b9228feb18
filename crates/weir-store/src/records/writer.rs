//! SQLite's one writing connection, whose turn everybody waits for.
//!
//! Not a pool: a pool asks its connection whether it is well before and after each use, and every question goes to
//! the connection's thread and back.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::timeout;

/// Whoever waits longer is told that the records do not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct SqliteWriter {
    /// None once it is closed.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
    /// Whether somebody has begun a transaction and not said that it has ended.
    unfinished: Arc<AtomicBool>,
}

impl SqliteWriter {
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<SqliteWriter, sqlx::Error> {
        let connection = Arc::new(Mutex::new(Some(options.connect().await?)));
        Ok(SqliteWriter { connection, unfinished: Arc::default() })
    }

    /// Waits for its turn.
    pub(crate) async fn lock(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, sqlx::Error> {
        let guard = timeout(PATIENCE, self.connection.lock()).await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let mut guard = MutexGuard::try_map(guard, Option::as_mut).map_err(|_| sqlx::Error::PoolClosed)?;
        if self.unfinished.load(Ordering::SeqCst) {
            // Whoever began was dropped half-way, as the tasks of a gate are that restarts. What is written next must not become a
            // part of that transaction, and be undone with it. If it had not come to begin, SQLite says so.
            let _ = sqlx::query("rollback").execute(&mut *guard).await;
            self.set_unfinished(false);
        }
        Ok(guard)
    }

    /// True when a transaction is begun by a statement that nobody rolls back if its future is dropped; false when it has ended.
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
