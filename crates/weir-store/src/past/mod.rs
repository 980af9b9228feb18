//! The past of a site for charts: figures of all gates, with a row for each minute of the last week and for each hour of the last two
//! years.
//!
//! weir-console `past.rs` defines what a figure is and how minutes become an hour; here a row is just a text with a time. Rows that are too
//! old are removed when new ones are written, so there are never more than about twenty-eight thousand for a relay. It is in a file of its
//! own: a power cut may lose the last minutes, and nothing else depends on it. With PostgreSQL each relay has its own rows.

use crate::records::{Database, Records, RecordsError, begin_in_postgres, in_time, read};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// How much time a row covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastStep {
    /// A minute, kept for a week.
    Minute,
    /// An hour, kept for two years.
    Hour,
}

impl PastStep {
    /// Seconds from one row to the next.
    pub fn seconds(self) -> i64 {
        match self {
            PastStep::Minute => 60,
            PastStep::Hour => 3_600,
        }
    }

    /// Seconds for which rows are kept.
    fn kept_s(self) -> i64 {
        match self {
            PastStep::Minute => 7 * 86_400,
            PastStep::Hour => 731 * 86_400,
        }
    }
}

/// The past figures. Cheap to clone; the file is opened when it is first needed.
#[derive(Debug, Clone)]
pub struct Past {
    shared: Arc<PastParts>,
}

#[derive(Debug)]
struct PastParts {
    records: Records,
    file: PathBuf,
    relay: String,
    database: OnceCell<PastDatabase>,
}

#[derive(Debug)]
struct PastDatabase {
    db: Database,
}

const TABLE: &str = "create table if not exists past (relay text not null, step bigint not null, at bigint not null,
    figures text not null, primary key (relay, step, at))";

impl Past {
    /// The past of a relay: in this file, or in its records if those are shared.
    pub fn new(records: Records, file: PathBuf, relay: &str) -> Past {
        Past { shared: Arc::new(PastParts { records, file, relay: relay.to_owned(), database: OnceCell::new() }) }
    }

    /// Writes the row of a time, in seconds since the Unix epoch, and forgets what is older than is kept.
    pub async fn write(&self, step: PastStep, at_s: i64, figures: &str) -> Result<(), RecordsError> {
        let (database, relay) = (self.database().await?, &self.shared.relay);
        let old = at_s.saturating_sub(step.kept_s());
        let insert = "insert into past (relay, step, at, figures) values ($1, $2, $3, $4)
            on conflict (relay, step, at) do update set figures = excluded.figures";
        let forget = "delete from past where relay = $1 and step = $2 and at < $3";
        let seconds = step.seconds();
        match &database.db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                let row = sqlx::query(insert).bind(relay).bind(seconds).bind(at_s).bind(figures);
                row.execute(&mut *connection).await?;
                sqlx::query(forget).bind(relay).bind(seconds).bind(old).execute(&mut *connection).await?;
            }
            Database::Postgres(pool) => {
                let written = async {
                    let row = sqlx::query(insert).bind(relay).bind(seconds).bind(at_s).bind(figures);
                    row.execute(pool).await?;
                    sqlx::query(forget).bind(relay).bind(seconds).bind(old).execute(pool).await?;
                    Ok(())
                };
                in_time(written).await?;
            }
        }
        Ok(())
    }

    /// The rows from a time on, the oldest first.
    pub async fn since(&self, step: PastStep, from_s: i64) -> Result<Vec<(i64, String)>, RecordsError> {
        let (database, relay) = (self.database().await?, &self.shared.relay);
        let sql = "select at, figures from past where relay = $1 and step = $2 and at >= $3 order by at";
        Ok(read!(database, pool => sqlx::query_as(sql)
            .bind(relay).bind(step.seconds()).bind(from_s).fetch_all(pool).await?))
    }

    async fn database(&self) -> Result<&PastDatabase, RecordsError> {
        self.shared.database.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<PastDatabase, RecordsError> {
        let db = match self.shared.records.database() {
            shared @ Database::Postgres(_) => shared,
            Database::Sqlite { .. } => Database::sqlite_beside(&self.shared.file).await?,
        };
        match &db {
            Database::Sqlite { write, .. } => {
                sqlx::raw_sql(TABLE).execute(&mut *write.lock().await?).await?;
            }
            Database::Postgres(pool) => {
                let mut transaction = begin_in_postgres(pool).await?;
                // Several relays may start at once.
                sqlx::raw_sql("select pg_advisory_xact_lock(7345923)").execute(&mut *transaction).await?;
                sqlx::raw_sql(TABLE).execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
        }
        Ok(PastDatabase { db })
    }
}
