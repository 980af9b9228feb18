//! Incidents as they are stored. weir-console `incidents/` decides what kinds there are and what a story contains.
//!
//! One relay looks after each incident. If it has not been heard of for a while, another may take over what concerns the whole site.

use super::{Database, RecordsError, read, write};
use sqlx::Row;

/// How many incidents are kept; of those that are over the oldest are removed first. With a story of at most some 20 KiB each, this is less than 50 MB.
const KEPT_MAX: i64 = 2_000;

/// One incident. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncidentRow {
    /// Its number.
    pub id: i64,
    /// Empty if it concerns the whole site, otherwise the relay that it is about.
    pub scope: String,
    /// The relay that is responsible for it.
    pub relay: String,
    /// Which rule opened it.
    pub kind: String,
    /// Whom or what it is about; empty for several.
    pub subject: String,
    /// What happened, in a few words.
    pub title: String,
    /// When it began.
    pub opened_s: i64,
    /// When its relay last wrote it.
    pub seen_s: i64,
    /// When it was over; none while it goes on.
    pub closed_s: Option<i64>,
    /// Its story.
    pub story: String,
}

impl IncidentRow {
    /// What happened, and to whom.
    pub fn headline(&self) -> String {
        match self.subject.as_str() {
            "" => self.title.clone(),
            subject => format!("{}: {subject}", self.title),
        }
    }
}

const COLUMNS: &str = "id, scope, relay, kind, subject, title, opened_s, seen_s, closed_s, story";

macro_rules! incident_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(IncidentRow {
                id: row.try_get(0)?,
                scope: row.try_get(1)?,
                relay: row.try_get(2)?,
                kind: row.try_get(3)?,
                subject: row.try_get(4)?,
                title: row.try_get(5)?,
                opened_s: row.try_get(6)?,
                seen_s: row.try_get(7)?,
                closed_s: row.try_get(8)?,
                story: row.try_get(9)?,
            })
        }
    };
}

/// Incidents. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IncidentRecords {
    db: Database,
    kept: i64,
}

impl IncidentRecords {
    pub(in crate::records) fn new(db: Database) -> IncidentRecords {
        IncidentRecords { db, kept: KEPT_MAX }
    }

    /// The same, but only this many are kept.
    #[must_use]
    pub fn keeping(self, kept: u32) -> IncidentRecords {
        IncidentRecords { kept: kept.into(), ..self }
    }

    /// Opens an incident; returns its number, or None if the same is open already because another relay was faster.
    pub async fn open(&self, new: &IncidentRow) -> Result<Option<i64>, RecordsError> {
        let id: Option<i64> = write!(self, pool => sqlx::query_scalar(
            "insert into incidents (scope, relay, kind, subject, title, opened_s, seen_s, story)
             values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing returning id")
            .bind(&new.scope).bind(&new.relay).bind(&new.kind).bind(&new.subject).bind(&new.title)
            .bind(new.opened_s).bind(new.seen_s).bind(&new.story).fetch_optional(pool).await?);
        if let Some(id) = id {
            write!(self, pool => sqlx::query("delete from incidents where closed_s is not null and id <= $1")
                .bind(id - self.kept).execute(pool).await.map(drop)?);
        }
        Ok(id)
    }

    /// Writes how an incident continues or that it is over; returns whether this relay is still responsible for it.
    pub async fn save(&self, changed: &IncidentRow) -> Result<bool, RecordsError> {
        let rows = write!(self, pool => sqlx::query(
            "update incidents set title = $3, seen_s = $4, closed_s = $5, story = $6 where id = $1 and relay = $2")
            .bind(changed.id).bind(&changed.relay).bind(&changed.title).bind(changed.seen_s).bind(changed.closed_s)
            .bind(&changed.story).execute(pool).await?.rows_affected());
        Ok(rows == 1)
    }

    /// The incidents of `relay`: the open ones, and those that were over at this time or later.
    pub async fn of_relay(&self, relay: &str, closed_after_s: i64) -> Result<Vec<IncidentRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from incidents where relay = $1 and (closed_s is null or closed_s >= $2) order by id"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(relay).bind(closed_after_s)
            .fetch_all(pool).await?.iter().map(incident_row!()).collect::<Result<_, _>>()?))
    }

    /// Takes over incidents of the whole site whose relay has not written them since `silent_s`; returns how many.
    pub async fn take_over(&self, relay: &str, now_s: i64, silent_s: i64) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query(
            "update incidents set relay = $1, seen_s = $2 where closed_s is null and scope = '' and relay <> $1 and seen_s < $3")
            .bind(relay).bind(now_s).bind(silent_s).execute(pool).await?.rows_affected()))
    }

    /// Ends incidents of other relays than `relay` that have not written them since `gone_s`: such a machine does not come back. The
    /// incidents of `relay` itself continue, however long it was down, because it finds out by itself whether they are over.
    pub async fn end_forgotten(&self, relay: &str, gone_s: i64) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query(
            "update incidents set closed_s = seen_s where closed_s is null and seen_s < $1 and relay <> $2")
            .bind(gone_s).bind(relay).execute(pool).await?.rows_affected()))
    }

    /// The newest incidents, open ones first.
    pub async fn newest(&self, most: i64) -> Result<Vec<IncidentRow>, RecordsError> {
        // Open ones first, because they must not be pushed out by those that are over.
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from incidents order by closed_s is not null, id desc limit $1"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(most)
            .fetch_all(pool).await?.iter().map(incident_row!()).collect::<Result<_, _>>()?))
    }

    /// Those that were open at this time or later, the newest first.
    pub async fn since(&self, from_s: i64, most: i64) -> Result<Vec<IncidentRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from incidents where closed_s is null or closed_s >= $1 order by id desc limit $2"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(from_s).bind(most)
            .fetch_all(pool).await?.iter().map(incident_row!()).collect::<Result<_, _>>()?))
    }

    /// Those of a kind about one subject, the newest first.
    pub async fn about(&self, kind: &str, subject: &str, most: i64) -> Result<Vec<IncidentRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from incidents where kind = $1 and subject = $2 order by id desc limit $3"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(kind).bind(subject).bind(most)
            .fetch_all(pool).await?.iter().map(incident_row!()).collect::<Result<_, _>>()?))
    }

    /// The open ones, oldest first, at most `most`; and how many there are in all.
    pub async fn open_now(&self, most: i64) -> Result<(Vec<IncidentRow>, i64), RecordsError> {
        let sql =
            sqlx::AssertSqlSafe(format!("select {COLUMNS} from incidents where closed_s is null order by id limit $1"));
        let rows: Vec<IncidentRow> = read!(self, pool => sqlx::query(sql).bind(most)
            .fetch_all(pool).await?.iter().map(incident_row!()).collect::<Result<_, _>>()?);
        if (rows.len() as i64) < most {
            let count = rows.len() as i64;
            return Ok((rows, count));
        }
        let count: i64 = read!(self, pool => sqlx::query_scalar("select count(*) from incidents where closed_s is null")
            .fetch_one(pool).await?);
        Ok((rows, count))
    }

    /// One of them.
    pub async fn find(&self, id: i64) -> Result<Option<IncidentRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!("select {COLUMNS} from incidents where id = $1"));
        Ok(read!(self, pool => sqlx::query(sql).bind(id)
            .fetch_optional(pool).await?.as_ref().map(incident_row!()).transpose()?))
    }
}
