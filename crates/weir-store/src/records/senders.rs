//! Senders that people allow or block, by address or domain. The list holds for all relays on the same records.

use super::{Database, RecordsError, read, write};
use serde::{Deserialize, Serialize};

/// What people decided about a sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderRow {
    /// An address, or a domain with everything below it; in small letters.
    pub who: String,
    /// `allow` or `block`.
    pub rule: String,
    /// Why, in a line.
    pub about: String,
    /// Who decided it.
    pub made_by: String,
    /// When.
    pub made_at: i64,
}

/// Senders that people allow or block. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SenderRecords {
    pub(in crate::records) db: Database,
}

impl SenderRecords {
    /// Whether other relays may change them.
    pub fn is_shared(&self) -> bool {
        self.db.is_shared()
    }

    /// All of them, in the order of names.
    pub async fn all(&self) -> Result<Vec<SenderRow>, RecordsError> {
        let sql = "select who, rule, about, made_by, made_at from sender_rules order by who";
        type Row = (String, String, String, String, i64);
        let rows: Vec<Row> = read!(self, pool => sqlx::query_as(sql).fetch_all(pool).await?);
        let row = |(who, rule, about, made_by, made_at): Row| SenderRow { who, rule, about, made_by, made_at };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Writes the decision about a sender; an earlier one no longer counts.
    pub async fn put(&self, row: &SenderRow) -> Result<(), RecordsError> {
        let sql = "insert into sender_rules (who, rule, about, made_by, made_at) values ($1, $2, $3, $4, $5)
            on conflict (who) do update set rule = excluded.rule, about = excluded.about, made_by = excluded.made_by,
            made_at = excluded.made_at";
        write!(self, pool => sqlx::query(sql).bind(&row.who).bind(&row.rule).bind(&row.about).bind(&row.made_by)
            .bind(row.made_at).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Forgets the decision about a sender; returns whether there was one.
    pub async fn remove(&self, who: &str) -> Result<bool, RecordsError> {
        let sql = "delete from sender_rules where who = $1";
        Ok(write!(self, pool => sqlx::query(sql).bind(who).execute(pool).await?.rows_affected()) > 0)
    }
}
