//! The audit trail: who did what to whom, and when. Only ever added to.

use super::{Database, RecordsError, read, write};
use sqlx::Row;

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When.
    pub at: i64,
    /// Who: a login, `cli:root`, or `weir` itself.
    pub actor: String,
    /// What, such as `held.release`.
    pub action: String,
    /// To whom or what: an identity, a message id.
    pub subject: String,
    /// More, in words.
    pub detail: String,
}

/// The audit trail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AuditRecords {
    pub(in crate::records) db: Database,
}

impl AuditRecords {
    /// Adds a line.
    pub async fn write(&self, line: &AuditLine) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("insert into audit (at, actor, action, subject, detail) values ($1, $2, $3, $4, $5)")
            .bind(line.at).bind(&line.actor).bind(&line.action).bind(&line.subject).bind(&line.detail)
            .execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Adds many lines, all or nothing.
    pub async fn write_all(&self, lines: &[AuditLine]) -> Result<(), RecordsError> {
        let line = |line: &AuditLine| {
            serde_json::json!({ "at": line.at, "actor": line.actor, "action": line.action,
            "subject": line.subject, "detail": line.detail })
        };
        let json = serde_json::json!(lines.iter().map(line).collect::<Vec<_>>()).to_string();
        let sql = self.db.either(
            "insert into audit (at, actor, action, subject, detail) select value ->> 'at', value ->> 'actor', value ->> 'action',
             value ->> 'subject', value ->> 'detail' from json_each($1)",
            "insert into audit (at, actor, action, subject, detail) select x.at, x.actor, x.action, x.subject, x.detail from
             jsonb_to_recordset($1::jsonb) as x(at bigint, actor text, action text, subject text, detail text)",
        );
        write!(self, pool => sqlx::query(sql).bind(&json).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Lines after the one with this number, oldest first, each with its number.
    pub async fn after(&self, number: i64, most: i64) -> Result<Vec<(i64, AuditLine)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select id, at, actor, action, subject, detail from audit where id > $1 order by id limit $2")
            .bind(number).bind(most).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, AuditLine {
                at: row.try_get(1)?, actor: row.try_get(2)?, action: row.try_get(3)?, subject: row.try_get(4)?, detail: row.try_get(5)?,
            }))).collect::<Result<_, _>>()?))
    }

    /// The number of the newest line; 0 if there is none.
    pub async fn last(&self) -> Result<i64, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select cast(coalesce(max(id), 0) as bigint) from audit")
            .fetch_one(pool).await?))
    }

    /// The newest lines about `subject` (all subjects if empty), newest first.
    pub async fn trail(&self, subject: &str, most: i64) -> Result<Vec<AuditLine>, RecordsError> {
        // Two statements: with both in one, no index would serve either.
        let sql = match subject {
            "" => "select at, actor, action, subject, detail from audit where $1 = '' order by id desc limit $2",
            _ => "select at, actor, action, subject, detail from audit where subject = $1 order by id desc limit $2",
        };
        Ok(read!(self, pool => sqlx::query(sql)
            .bind(subject).bind(most).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(AuditLine {
                at: row.try_get(0)?, actor: row.try_get(1)?, action: row.try_get(2)?, subject: row.try_get(3)?, detail: row.try_get(4)?,
            })).collect::<Result<_, _>>()?))
    }
}
