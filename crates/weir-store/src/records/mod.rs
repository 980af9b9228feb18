//! Records: everything that must survive except mail in transit. Users, throttle states, held mail, audit, the lab.
//!
//! SQLite (WAL, `synchronous=FULL`) inside the data folder by default, PostgreSQL by URL when several
//! machines share it. Statements are written once where both databases understand them, and once for each
//! where they do not; batches travel as one JSON parameter. SQLite has one writing connection, so a write never
//! meets a lock. Times are nanoseconds since the Unix epoch.

mod audit;
mod correspondents;
mod held;
mod incidents;
mod lab;
mod quarantine;
mod relays;
mod rules;
mod schema;
mod secrets;
mod senders;
mod throttles;
mod tokens;
mod totals;
mod users;
mod values;
mod writer;

pub use audit::{AuditCheck, AuditFilter, AuditLine, AuditRecords, BegunChange};
pub use correspondents::{CorrespondentRecords, PackName, Packs, PastMailAsked, PastMailFound};
pub use held::{ASKED_BY_SERVER, Fate, HeldFilter, HeldRecords, HeldRow};
pub use incidents::{IncidentRecords, IncidentRow};
pub use lab::*;
pub use quarantine::{QuarantineFilter, QuarantineRecords, QuarantineRow, QuarantineTotal, Quarantined, VirusCount};
pub use relays::RelayRecords;
pub use rules::{NewRule, RuleRecords, RuleRow};
pub use secrets::SecretRecords;
pub use senders::{SenderRecords, SenderRow};
pub use throttles::{Changes, Learned, ThrottleRecords, ThrottleRow};
pub use tokens::TokenRecords;
pub use totals::Totals;
pub use users::{UserRecords, UserRow};
pub use values::ValueRecords;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A server that has not answered after this time counts as unreachable, because it may hang without the connection breaking.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The records of one site. Cheap to clone.
///
/// The content is read and written by noun: [`Records::users`], [`Records::held`] and so on. Code that needs one noun gets
/// only that one, so its arguments show what it touches.
#[derive(Debug, Clone)]
pub struct Records {
    db: Database,
}

#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite { write: writer::SqliteWriter, read: sqlx::SqlitePool },
    Postgres(sqlx::PgPool),
}

impl Database {
    /// A separate SQLite file, for data that can be built again: a power cut may lose its newest part. The caller creates the tables.
    pub(crate) async fn sqlite_beside(path: &Path) -> Result<Database, RecordsError> {
        let options = sqlite_options(path).synchronous(SqliteSynchronous::Normal);
        let write = writer::SqliteWriter::open(&options).await?;
        let read = sqlite_pool().connect_with(options.read_only(true)).await?;
        Ok(Database::Sqlite { write, read })
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Database::Postgres(_))
    }

    /// One of two lists of statements: SQLite's or PostgreSQL's.
    pub(crate) fn either_list(
        &self,
        sqlite: &'static [&'static str],
        postgres: &'static [&'static str],
    ) -> &'static [&'static str] {
        match self {
            Database::Sqlite { .. } => sqlite,
            Database::Postgres(_) => postgres,
        }
    }

    /// One of two statements: SQLite's or PostgreSQL's.
    pub(crate) fn either(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Database::Sqlite { .. } => sqlite,
            Database::Postgres(_) => postgres,
        }
    }
}

/// The same expression for both databases: `$pool` is the pool to read from.
macro_rules! read {
    ($records:expr, $pool:ident => $body:expr) => {
        match &$records.db {
            $crate::records::Database::Sqlite { read: $pool, .. } => $body,
            $crate::records::Database::Postgres($pool) => $crate::records::in_time(async { Ok($body) }).await?,
        }
    };
}

/// The same expression for both databases: `$pool` is what to write to, and good for one statement.
macro_rules! write {
    ($records:expr, $pool:ident => $body:expr) => {
        match &$records.db {
            $crate::records::Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                let $pool = &mut *connection;
                $body
            }
            $crate::records::Database::Postgres($pool) => $crate::records::in_time(async { Ok($body) }).await?,
        }
    };
}
pub(crate) use read;
use write;

impl Records {
    pub(crate) fn of(db: Database) -> Records {
        Records { db }
    }

    /// The database itself.
    pub(crate) fn database(&self) -> Database {
        self.db.clone()
    }

    /// Opens the SQLite file at `path`, creating it if it does not exist.
    pub async fn sqlite(path: &Path) -> Result<Records, RecordsError> {
        if path.parent().is_some_and(is_elsewhere) {
            return Err(RecordsError::Elsewhere(path.to_owned()));
        }
        // SQLite reports only an "I/O error" if a file cannot be made longer.
        Records::open_sqlite(path).await.map_err(|error| {
            let full = error.is_about_the_disk() && path.parent().is_some_and(is_full);
            if full { RecordsError::Full(path.to_owned()) } else { error }
        })
    }

    async fn open_sqlite(path: &Path) -> Result<Records, RecordsError> {
        let options = sqlite_options(path);
        let write = writer::SqliteWriter::open(&options).await?;
        schema::migrate_sqlite(&mut *write.lock().await?).await?;
        let read = sqlite_pool().connect_with(options.read_only(true)).await?;
        Ok(Records { db: Database::Sqlite { write, read } })
    }

    /// Connects to the PostgreSQL database of `url`.
    pub async fn postgres(url: &str) -> Result<Records, RecordsError> {
        let options = PgConnectOptions::from_str(url).map_err(RecordsError::Url)?;
        // A relay that hangs inside a transaction must not block a user's throttle for long.
        let options = options
            .options([("idle_in_transaction_session_timeout", "2s"), ("lock_timeout", "5s")])
            .disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(5));
        let pool = pool.acquire_slow_threshold(SILENT);
        // Even if commits are not durable by default in this database, ours are, because held mail has been acknowledged.
        let pool =
            pool.after_connect(|connection, _| Box::pin(async move { connection.execute(DURABLE).await.map(drop) }));
        let pool = pool.connect_with(options).await?;
        schema::migrate_postgres(&pool).await?;
        Ok(Records { db: Database::Postgres(pool) })
    }

    /// Whether several processes may share these records.
    pub fn is_shared(&self) -> bool {
        self.db.is_shared()
    }

    /// A consistent copy of an embedded database in one file, made while it is in use.
    pub async fn backup(&self, to: &Path) -> Result<(), RecordsError> {
        match &self.db {
            Database::Sqlite { read, .. } => copy_with(&read.connect_options(), to).await,
            Database::Postgres(_) => Err(RecordsError::BackupElsewhere),
        }
    }

    /// Ends all connections.
    pub async fn close(&self) {
        match &self.db {
            Database::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            Database::Postgres(pool) => pool.close().await,
        }
    }

    /// The users of the mail gate.
    pub fn users(&self) -> UserRecords {
        UserRecords { db: self.db.clone() }
    }

    /// The throttles' states.
    pub fn throttles(&self) -> ThrottleRecords {
        ThrottleRecords { db: self.db.clone() }
    }

    /// To whom users have written, and who has written to them.
    pub fn correspondents(&self) -> CorrespondentRecords {
        CorrespondentRecords { db: self.db.clone() }
    }

    /// Held mail.
    pub fn held(&self) -> HeldRecords {
        HeldRecords { db: self.db.clone() }
    }

    /// Quarantined mail.
    pub fn quarantine(&self) -> QuarantineRecords {
        QuarantineRecords { db: self.db.clone() }
    }

    /// The incidents.
    pub fn incidents(&self) -> IncidentRecords {
        IncidentRecords::new(self.db.clone())
    }

    /// The audit trail.
    pub fn audit(&self) -> AuditRecords {
        AuditRecords { db: self.db.clone() }
    }

    /// The rules of the scan that people make.
    pub fn rules(&self) -> RuleRecords {
        RuleRecords { db: self.db.clone() }
    }

    /// One-time tokens, such as those in the links of notices.
    pub fn tokens(&self) -> TokenRecords {
        TokenRecords { db: self.db.clone() }
    }

    /// Secrets that the processes of a site share.
    pub fn secrets(&self) -> SecretRecords {
        SecretRecords { db: self.db.clone() }
    }

    /// Senders that people allow or block.
    pub fn senders(&self) -> SenderRecords {
        SenderRecords { db: self.db.clone() }
    }

    /// The relays that share these records, and when each was last alive.
    pub fn relays(&self) -> RelayRecords {
        RelayRecords { db: self.db.clone() }
    }

    /// Single values, each by relay and name.
    pub fn values(&self) -> ValueRecords {
        ValueRecords { db: self.db.clone() }
    }

    /// The lab's machines.
    pub fn lab_nodes(&self) -> NodeRecords {
        NodeRecords { db: self.db.clone() }
    }

    /// The lab's samples.
    pub fn lab_samples(&self) -> SampleRecords {
        SampleRecords { db: self.db.clone() }
    }

    /// Who leads the lab, and the lease.
    pub fn lab_leader(&self) -> LeaderRecords {
        LeaderRecords { db: self.db.clone() }
    }

    /// Attempts on samples, and their results.
    pub fn lab_attempts(&self) -> AttemptRecords {
        AttemptRecords { db: self.db.clone() }
    }
}

/// A consistent copy of a SQLite file beside the records, made while it is in use.
pub async fn copy_database(from: &Path, to: &Path) -> Result<(), RecordsError> {
    copy_with(&sqlite_options(from).read_only(true), to).await
}

/// Uses a connection of its own: it only reads, and neither writers nor readers wait for a long copy.
async fn copy_with(from: &SqliteConnectOptions, to: &Path) -> Result<(), RecordsError> {
    let mut connection = from.connect().await?;
    let copy = sqlx::query("vacuum into $1").bind(to.to_string_lossy().into_owned());
    copy.execute(&mut connection).await?;
    Ok(connection.close().await?)
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5))
        .disable_statement_logging()
}

/// The pool for readers. A connection to a file does not break by itself, so it is not tested before use.
fn sqlite_pool() -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new().max_connections(2).min_connections(1).test_before_acquire(false);
    pool.acquire_slow_threshold(SILENT)
}

/// Whether the disk of a folder has not even the space for the shared memory of a write-ahead log.
fn is_full(folder: &Path) -> bool {
    const LEAST_BYTES: u64 = 64 * 1024;
    rustix::fs::statvfs(folder).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_BYTES)
}

/// Whether a folder is on a network file system, where SQLite's locks and shared memory do not work.
fn is_elsewhere(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|disk| is_of_the_network(disk.f_type))
}

/// By the kernel's number: NFS, SMB (three generations), AFS, Ceph, Lustre.
fn is_of_the_network(kind: rustix::fs::FsWord) -> bool {
    const NETWORK: [rustix::fs::FsWord; 7] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x00c3_6400, 0x0bd0_0bd0];
    NETWORK.contains(&(kind & 0xffff_ffff))
}

/// Longer than anybody waits for a connection: one line in the log for each of ten thousand waiting tasks would help nobody.
const SILENT: Duration = Duration::from_secs(3600);

const DURABLE: &str =
    "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'";

/// Begins a transaction that is rolled back if its caller is dropped.
///
/// It runs in a task of its own. With sqlx 0.9.0, a caller that is dropped between sending `BEGIN` and the answer leaves the connection inside a
/// transaction that nobody rolls back, and the pool gives it to the next caller, whose writes are then lost. The task waits for the
/// answer, and rolls back a transaction that nobody takes.
pub(crate) async fn begin_in_postgres(
    pool: &sqlx::PgPool,
) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, sqlx::Error> {
    let pool = pool.clone();
    tokio::spawn(async move { pool.begin().await }).await.map_err(|_| sqlx::Error::WorkerCrashed)?
}

/// Returns an error if a server hangs.
pub(crate) async fn in_time<T>(question: impl Future<Output = Result<T, RecordsError>>) -> Result<T, RecordsError> {
    tokio::time::timeout(ANSWER_MAX, question).await.map_err(|_| RecordsError::Silent)?
}

/// Why the records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The database returned an error or cannot be reached.
    #[error("the database answers: {0}")]
    Database(#[from] sqlx::Error),
    /// There is no space for what SQLite writes beside its file.
    #[error("the disk under {} is full; free some space", _0.display())]
    Full(PathBuf),
    /// SQLite works only on the machine's own disk.
    #[error("{} is on a network file system, where SQLite is not safe; use a local disk, or PostgreSQL (store.records)", _0.display())]
    Elsewhere(PathBuf),
    /// The database does not answer.
    #[error("the database has not answered for {} s", ANSWER_MAX.as_secs())]
    Silent,
    /// The URL is not valid.
    #[error("the database URL is wrong: {0}; write postgres://user:password@host/database")]
    Url(sqlx::Error),
    /// Made by a newer program.
    #[error("the database has schema {found}, this program knows up to {known}: use a newer weir")]
    Newer {
        /// What the database says.
        found: i64,
        /// The newest version that we know.
        known: i64,
    },
    /// A row has a value that is not possible.
    #[error("the database holds what no weir writes: {0}")]
    Corrupt(String),
    /// Others change the same row again and again.
    #[error("{0} is being changed all the time; try again")]
    Contended(String),
    /// PostgreSQL has tools of its own.
    #[error("the records are in PostgreSQL: back them up with pg_dump")]
    BackupElsewhere,
}

impl RecordsError {
    /// Whether the disk under the database is full or fails.
    pub fn is_about_the_disk(&self) -> bool {
        if matches!(self, RecordsError::Full(_)) {
            return true;
        }
        let RecordsError::Database(sqlx::Error::Database(error)) = self else { return false };
        let code = error.code().unwrap_or_default();
        // SQLITE_FULL and the family of SQLITE_IOERR; disk_full and io_error of PostgreSQL.
        let sqlite = code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 10 | 13));
        match error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
            Some(_) => matches!(code.as_ref(), "53100" | "58030"),
            None => sqlite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backup_leaves_the_writer_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let (records, copy) = (Records::sqlite(&folder.path().join("a.db")).await.unwrap(), folder.path().join("b.db"));
        records.tokens().add("d1", "release ann", 2, 1).await.unwrap();
        let Database::Sqlite { write, .. } = &records.db else { panic!("this is SQLite") };
        let busy = write.lock().await.unwrap();
        records.backup(&copy).await.unwrap();
        drop(busy);
        let copied = Records::sqlite(&copy).await.unwrap();
        assert_eq!(copied.tokens().purpose("d1", 1).await.unwrap().as_deref(), Some("release ann"));
    }

    #[test]
    fn file_systems_of_the_network_are_told_from_those_of_a_disk() {
        const EXT4: rustix::fs::FsWord = 0xef53;
        const CIFS: rustix::fs::FsWord = 0xff53_4d42;
        assert!(is_of_the_network(rustix::fs::NFS_SUPER_MAGIC) && is_of_the_network(CIFS));
        assert!(!is_of_the_network(EXT4) && !is_elsewhere(tempfile::tempdir().unwrap().path()));
    }
}
