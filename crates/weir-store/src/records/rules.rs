//! Rules that people added for the scan: blocked contents by their hash, and YARA rules. All relays on the same records apply them.

use super::{Database, RecordsError, read, write};
use serde::{Deserialize, Serialize};
use sqlx::Row;

/// A rule to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRule {
    /// `hash` or `yara`.
    pub kind: String,
    /// A SHA-256 in hexadecimal digits, or the text of a YARA rule.
    pub content: String,
    /// The length of the content that is meant, if it is known.
    pub bytes: Option<i64>,
    /// What a match means: `infected` or `forbidden`.
    pub severity: String,
    /// The sample of the lab that it comes from.
    pub sample: Option<i64>,
    /// Why, in a line.
    pub about: String,
    /// Who made it.
    pub made_by: String,
    /// When.
    pub made_at: i64,
}

/// A rule as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    /// Its number; no number is used twice.
    pub id: i64,
    /// What was made.
    pub rule: NewRule,
}

macro_rules! rule_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(RuleRow {
                id: row.try_get(0)?,
                rule: NewRule {
                    kind: row.try_get(1)?,
                    content: row.try_get(2)?,
                    bytes: row.try_get(3)?,
                    severity: row.try_get(4)?,
                    sample: row.try_get(5)?,
                    about: row.try_get(6)?,
                    made_by: row.try_get(7)?,
                    made_at: row.try_get(8)?,
                },
            })
        }
    };
}

const ALL: &str =
    "select id, kind, content, bytes, severity, sample, about, made_by, made_at from scan_rules order by id";

/// The rules of the scan that people make. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RuleRecords {
    pub(in crate::records) db: Database,
}

impl RuleRecords {
    /// All rules, in order of number.
    pub async fn all(&self) -> Result<Vec<RuleRow>, RecordsError> {
        Ok(
            read!(self, pool => sqlx::query(ALL).fetch_all(pool).await?.iter().map(rule_row!()).collect::<Result<_, _>>()?),
        )
    }

    /// A value that changes whenever a rule is made or removed: the highest number, and how many there are. Numbers are never used twice,
    /// so as long as the highest number stays the same, rules can only be removed.
    pub async fn revision(&self) -> Result<(i64, i64), RecordsError> {
        let sql = "select cast(coalesce(max(id), 0) as bigint), count(*) from scan_rules";
        Ok(read!(self, pool => sqlx::query_as(sql).fetch_one(pool).await?))
    }

    /// Makes a rule; returns its number, or None if there is one for this hash already.
    pub async fn add(&self, rule: &NewRule) -> Result<Option<i64>, RecordsError> {
        Ok(write!(self, pool => sqlx::query_scalar(
            "insert into scan_rules (kind, content, bytes, severity, sample, about, made_by, made_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing returning id")
            .bind(&rule.kind).bind(&rule.content).bind(rule.bytes).bind(&rule.severity).bind(rule.sample).bind(&rule.about)
            .bind(&rule.made_by).bind(rule.made_at).fetch_optional(pool).await?))
    }

    /// Puts a rule back that was removed, under its number.
    pub async fn restore(&self, row: &RuleRow) -> Result<(), RecordsError> {
        let sql = self.db.either(
            "insert into scan_rules (id, kind, content, bytes, severity, sample, about, made_by, made_at)
             values ($9, $1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
            "insert into scan_rules (id, kind, content, bytes, severity, sample, about, made_by, made_at) overriding system value
             values ($9, $1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
        );
        let rule = &row.rule;
        write!(self, pool => sqlx::query(sql).bind(&rule.kind).bind(&rule.content).bind(rule.bytes).bind(&rule.severity)
            .bind(rule.sample).bind(&rule.about).bind(&rule.made_by).bind(rule.made_at).bind(row.id)
            .execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Removes a rule; returns whether there was one.
    pub async fn remove(&self, id: i64) -> Result<bool, RecordsError> {
        Ok(write!(self, pool => sqlx::query("delete from scan_rules where id = $1").bind(id).execute(pool).await?
            .rows_affected())
            > 0)
    }
}
