//! SQLite's one writing connection, whose turn everybody waits for.
//!
//! Not a pool: a pool asks its connection whether it is well before and after each use, and every question goes to
//! the connection's thread and back.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::timeout;

/// Whoever waits longer is told that the records do not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct SqliteWriter {
    /// None once it is closed.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
}

impl SqliteWriter {
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<SqliteWriter, sqlx::Error> {
        Ok(SqliteWriter { connection: Arc::new(Mutex::new(Some(options.connect().await?))) })
    }

    /// Waits for its turn.
    pub(super) async fn lock(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, sqlx::Error> {
        let guard = timeout(PATIENCE, self.connection.lock()).await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        MutexGuard::try_map(guard, Option::as_mut).map_err(|_| sqlx::Error::PoolClosed)
    }

    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the records were not closed in order");
        }
    }
}
