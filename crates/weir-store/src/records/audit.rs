//! The audit trail in the records: who did what to whom, and when. Lines are only ever added.
//!
//! Each line carries a seal: a hash of the line and of the seal before it. The newest seal and the number of lines stand in a table of
//! their own, written in the same transaction. So it is noticed if somebody removes, changes or inserts a line, even the last one
//! ([`AuditRecords::check`]). It does not protect against somebody who can write to the database and knows how seals are made; against
//! that, compare the newest seal with one that was noted elsewhere.
//!
//! A change is noted before anything is done, and the note is removed when its lines are written. A note that is still there when Weir
//! starts belongs to a change that was interrupted.

use super::{Database, RecordsError, begin_in_postgres, in_time, read, write};
use sha2::{Digest, Sha256};
use sqlx::{Connection, Row};

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When.
    pub at: i64,
    /// Who: a login, `cli:root`, or `weir` itself.
    pub actor: String,
    /// What was done, such as `held.release`.
    pub action: String,
    /// To whom or what it was done: an identity, a message id.
    pub subject: String,
    /// More, in words.
    pub detail: String,
}

/// Which lines of the trail. Empty fields match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// To whom or what it was done.
    pub subject: String,
    /// A part of who did it.
    pub who: String,
    /// The beginning of what was done, such as `held` or `held.release`.
    pub what: String,
    /// Not before this time.
    pub since: Option<i64>,
    /// Before this time.
    pub until: Option<i64>,
}

/// A change that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunChange {
    /// When.
    pub at: i64,
    /// Who asked for it.
    pub actor: String,
    /// What was asked for, such as `POST /api/v1/held/release`.
    pub what: String,
}

/// The result of checking the seals of the trail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditCheck {
    /// Lines from before there were seals.
    pub older: i64,
    /// Lines with a correct seal.
    pub sealed: i64,
    /// The newest seal.
    pub seal: String,
    /// The number of the first line that was changed, and what is wrong with it.
    pub broken: Option<(i64, &'static str)>,
}

impl AuditCheck {
    fn take(&mut self, number: i64, line: &AuditLine, found: Option<String>) {
        let wrong = match found {
            _ if self.broken.is_some() => return,
            None if self.sealed == 0 => {
                self.older += 1;
                return;
            }
            None => "it has no seal: it was not written by Weir",
            Some(found) if found == seal(&self.seal, line) => {
                (self.sealed, self.seal) = (self.sealed + 1, found);
                return;
            }
            Some(_) => "its seal does not fit: it was changed, or a line before it is missing",
        };
        self.broken = Some((number, wrong));
    }
}

const INSERT_SQLITE: &str = "insert into audit (at, actor, action, subject, detail, seal) select value ->> 'at',
 value ->> 'actor', value ->> 'action', value ->> 'subject', value ->> 'detail', value ->> 'seal' from json_each($1)";
const INSERT_POSTGRES: &str = "insert into audit (at, actor, action, subject, detail, seal)
 select x.at, x.actor, x.action, x.subject, x.detail, x.seal from
 jsonb_to_recordset($1::jsonb) as x(at bigint, actor text, action text, subject text, detail text, seal text)";

/// Adds sealed lines inside a transaction.
macro_rules! append {
    ($tx:ident, $lines:ident, $head:expr, $insert:expr) => {
        let head = sqlx::query($head).fetch_one(&mut *$tx).await?;
        let (count, seal): (i64, String) = (head.try_get(0)?, head.try_get(1)?);
        let (json, seal) = sealed_json($lines, seal);
        sqlx::query($insert).bind(&json).execute(&mut *$tx).await?;
        sqlx::query("update audit_head set lines = $1, seal = $2")
            .bind(count + $lines.len() as i64)
            .bind(&seal)
            .execute(&mut *$tx)
            .await?;
    };
}

fn sealed_json(lines: &[AuditLine], mut last: String) -> (String, String) {
    let mut rows = Vec::with_capacity(lines.len());
    for line in lines {
        let line = &storable(line);
        last = seal(&last, line);
        rows.push(serde_json::json!({ "at": line.at, "actor": line.actor, "action": line.action,
            "subject": line.subject, "detail": line.detail, "seal": last }));
    }
    (serde_json::Value::Array(rows).to_string(), last)
}

/// Neither database can store a NUL in a text, and the seal must fit what is stored.
fn storable(line: &AuditLine) -> AuditLine {
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    AuditLine {
        at: line.at,
        actor: text(&line.actor),
        action: text(&line.action),
        subject: text(&line.subject),
        detail: text(&line.detail),
    }
}

/// The seal of a line that follows the one with the seal `before`. Every field goes in with its length, so that no two lines
/// make the same text.
fn seal(before: &str, line: &AuditLine) -> String {
    let mut hash = Sha256::new();
    for field in [before, &line.at.to_string(), &line.actor, &line.action, &line.subject, &line.detail] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    crate::hex(&hash.finalize())
}

/// The audit trail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AuditRecords {
    pub(in crate::records) db: Database,
}

impl AuditRecords {
    /// Adds a line.
    pub async fn write(&self, line: &AuditLine) -> Result<(), RecordsError> {
        self.write_all(std::slice::from_ref(line)).await
    }

    /// Adds many lines, all or nothing.
    pub async fn write_all(&self, lines: &[AuditLine]) -> Result<(), RecordsError> {
        match &self.db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                let mut tx = connection.begin_with("begin immediate").await?;
                append!(tx, lines, "select lines, seal from audit_head", INSERT_SQLITE);
                Ok(tx.commit().await?)
            }
            Database::Postgres(pool) => {
                in_time(async {
                    let mut tx = begin_in_postgres(pool).await?;
                    // Relays that share the records write one after the other: a seal needs the one before it.
                    append!(tx, lines, "select lines, seal from audit_head for update", INSERT_POSTGRES);
                    Ok(tx.commit().await?)
                })
                .await
            }
        }
    }

    /// Whether a line could be written: begins a transaction, and rolls it back.
    pub async fn try_write(&self) -> Result<(), RecordsError> {
        match &self.db {
            Database::Sqlite { write, .. } => {
                Ok(write.lock().await?.begin_with("begin immediate").await?.rollback().await?)
            }
            Database::Postgres(pool) => in_time(async { Ok(begin_in_postgres(pool).await?.rollback().await?) }).await,
        }
    }

    /// Notes that a change begins; the number that it returns is for [`AuditRecords::ended`].
    pub async fn begun(&self, relay: &str, begun: &BegunChange) -> Result<i64, RecordsError> {
        Ok(write!(self, pool => sqlx::query_scalar(
            "insert into audit_begun (relay, at, actor, what) values ($1, $2, $3, $4) returning id")
            .bind(relay).bind(begun.at).bind(&begun.actor).bind(&begun.what).fetch_one(pool).await?))
    }

    /// The change has ended, and its lines are written.
    pub async fn ended(&self, number: i64) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("delete from audit_begun where id = $1").bind(number).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Changes that this relay began and did not end.
    pub async fn interrupted(&self, relay: &str) -> Result<Vec<(i64, BegunChange)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query("select id, at, actor, what from audit_begun where relay = $1 order by id")
            .bind(relay).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, BegunChange {
                at: row.try_get(1)?, actor: row.try_get(2)?, what: row.try_get(3)?,
            }))).collect::<Result<_, _>>()?))
    }

    /// Reads the whole trail and compares every seal.
    pub async fn check(&self) -> Result<AuditCheck, RecordsError> {
        let (mut check, mut after) = (AuditCheck::default(), 0);
        // This is read first: lines that are added meanwhile come after it.
        let (lines, seal): (i64, String) = read!(self, pool => sqlx::query("select lines, seal from audit_head")
            .fetch_one(pool).await.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)))?);
        while check.broken.is_none() {
            let page = self.sealed(after).await?;
            let Some(last) = page.last() else { break };
            after = last.0;
            for (number, line, found) in page {
                check.take(number, &line, found);
                if check.sealed == lines && check.seal != seal {
                    check.broken.get_or_insert((number, "the newest seal that was written down is another one"));
                }
            }
        }
        if check.sealed < lines && check.broken.is_none() {
            check.broken = Some((after, "the lines that followed this one are missing"));
        }
        Ok(check)
    }

    async fn sealed(&self, after: i64) -> Result<Vec<(i64, AuditLine, Option<String>)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select id, at, actor, action, subject, detail, seal from audit where id > $1 order by id limit 1000")
            .bind(after).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, AuditLine {
                at: row.try_get(1)?, actor: row.try_get(2)?, action: row.try_get(3)?, subject: row.try_get(4)?, detail: row.try_get(5)?,
            }, row.try_get(6)?))).collect::<Result<_, _>>()?))
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

    /// The newest lines that match, newest first.
    pub async fn filtered(&self, filter: &AuditFilter, most: i64) -> Result<Vec<AuditLine>, RecordsError> {
        let AuditFilter { subject, who, what, since, until } = filter;
        Ok(read!(self, pool => sqlx::query(
            "select at, actor, action, subject, detail from audit where ($1 = '' or subject = $1)
             and ($2 = '' or replace(lower(actor), lower($2), '') <> lower(actor))
             and substr(action, 1, length($3)) = $3 and at >= $4 and at < $5 order by id desc limit $6")
            .bind(subject).bind(who).bind(what).bind(since.unwrap_or(i64::MIN)).bind(until.unwrap_or(i64::MAX)).bind(most)
            .fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(AuditLine {
                at: row.try_get(0)?, actor: row.try_get(1)?, action: row.try_get(2)?, subject: row.try_get(3)?, detail: row.try_get(4)?,
            })).collect::<Result<_, _>>()?))
    }

    /// The newest lines about `subject` (all subjects if empty), newest first.
    pub async fn trail(&self, subject: &str, most: i64) -> Result<Vec<AuditLine>, RecordsError> {
        // Two statements, because with both conditions in one statement no index would be used for either.
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
