//! Held mail: one row for each recipient in a delay queue.
//!
//! A row is *held* until the queue reaches it or a person decides; then the relay that has the body sends or drops the mail. The relay
//! removes the row only when that is durable.

use super::{Database, RecordsError, read, write};
use serde::{Deserialize, Serialize};
use sqlx::Row;

/// The name in place of a relay if no relay keeps the body: another mail server asked about a recipient, and has the mail itself.
pub const ASKED_BY_SERVER: &str = "(another server)";

/// One recipient of one held mail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRow {
    /// The owner of the delay queue.
    pub identity: String,
    /// The entry in it.
    pub entry: i64,
    /// What should happen to it.
    pub fate: Fate,
    /// The message, by the id of the spool.
    pub message: String,
    /// The relay that keeps the body.
    pub relay: String,
    /// The recipient's address.
    pub recipient: String,
    /// The recipient's place in the message's envelope.
    pub place: i64,
    /// The envelope sender.
    pub sender: String,
    /// The subject, cut to a line.
    pub subject: String,
    /// The client address that submitted it.
    pub source: String,
    /// Bytes of the message.
    pub size: i64,
    /// Since when it is held.
    pub held_at: i64,
}

/// Held → Go or Drop; the row is removed when its relay has done that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// In the delay queue.
    #[default]
    Held,
    /// Its time has come, or a person released it: its relay must send it.
    Go,
    /// A person deleted it: its relay must remove it.
    Drop,
}

impl Fate {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Fate::Held => "held",
            Fate::Go => "go",
            Fate::Drop => "drop",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Fate, sqlx::Error> {
        match text {
            "held" => Ok(Fate::Held),
            "go" => Ok(Fate::Go),
            "drop" => Ok(Fate::Drop),
            other => Err(sqlx::Error::Protocol(format!("no such fate: {other}"))),
        }
    }
}

/// Which held rows.
#[derive(Debug, Clone, Default)]
pub struct HeldFilter {
    /// Of this identity; all if empty.
    pub identity: String,
    /// Of this message; all if empty.
    pub message: String,
    /// To this recipient; all if empty.
    pub recipient: String,
}

macro_rules! held_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(HeldRow {
                identity: row.try_get(0)?,
                entry: row.try_get(1)?,
                fate: Fate::parse(row.try_get(2)?)?,
                message: row.try_get(3)?,
                relay: row.try_get(4)?,
                recipient: row.try_get(5)?,
                place: row.try_get(6)?,
                sender: row.try_get(7)?,
                subject: row.try_get(8)?,
                source: row.try_get(9)?,
                size: row.try_get(10)?,
                held_at: row.try_get(11)?,
            })
        }
    };
}

/// Held mail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HeldRecords {
    pub(in crate::records) db: Database,
}

impl HeldRecords {
    /// Held rows in the order of their queues, at most `most`.
    pub async fn list(&self, filter: &HeldFilter, most: i64) -> Result<Vec<HeldRow>, RecordsError> {
        // Conditions that match everything are left out, so that an index can be used for the others; without any condition, the index of the order
        // is used.
        let HeldFilter { identity, message, recipient } = filter;
        let restricted = match (identity.is_empty(), message.is_empty(), recipient.is_empty()) {
            (true, true, true) => "identity >= $1 and $2 = '' and $3 = ''",
            (true, false, true) => "message = $2 and $1 = '' and $3 = ''",
            (true, true, false) => "recipient = $3 and $1 = '' and $2 = ''",
            (true, false, false) => "message = $2 and recipient = $3 and $1 = ''",
            (false, _, _) => "identity = $1 and ($2 = '' or message = $2) and ($3 = '' or recipient = $3)",
        };
        let sql = sqlx::AssertSqlSafe(format!(
            "select identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at from held
             where fate = 'held' and {restricted} order by identity, entry limit $4"
        ));
        Ok(read!(self, pool => sqlx::query(sql)
            .bind(&filter.identity).bind(&filter.message).bind(&filter.recipient).bind(most)
            .fetch_all(pool).await?.iter().map(held_row!()).collect::<Result<_, _>>()?))
    }

    /// When the newest row was held, by the clock of its relay, which may have been ahead then; nothing if there is none.
    pub async fn newest(&self) -> Result<Option<i64>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select max(held_at) from held").fetch_one(pool).await?))
    }

    /// What `relay` has held since a time after `later`, when its clock was ahead, is held since `now`. How many rows that were.
    pub async fn turn_back(&self, relay: &str, later: i64, now: i64) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query("update held set held_at = $3 where relay = $1 and held_at > $2")
            .bind(relay).bind(later).bind(now).execute(pool).await?.rows_affected()))
    }

    /// The entries of `identity` that are kept by one of `relays`.
    pub async fn entries_of_relays(&self, identity: &str, relays: &[String]) -> Result<Vec<i64>, RecordsError> {
        let json = serde_json::json!(relays).to_string();
        let sql = self.db.either(
            "select entry from held where identity = $1 and fate = 'held' and relay in (select value from json_each($2))",
            "select entry from held where identity = $1 and fate = 'held'
               and relay in (select jsonb_array_elements_text($2::jsonb))",
        );
        Ok(read!(self, pool => sqlx::query_scalar(sql).bind(identity).bind(&json).fetch_all(pool).await?))
    }

    /// Rows whose fate is decided and that `relay` must carry out: of messages after `after`, in order.
    pub async fn decided(&self, relay: &str, after: &str, most: i64) -> Result<Vec<HeldRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at from held
             where relay = $1 and fate <> 'held' and message > $2 order by message, place limit $3")
            .bind(relay).bind(after).bind(most)
            .fetch_all(pool).await?.iter().map(held_row!()).collect::<Result<_, _>>()?))
    }

    /// The decision about a recipient that another server asked about, held or decided; the oldest first.
    pub async fn asked(&self, identity: &str, recipient: &str) -> Result<Vec<HeldRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at from held
             where identity = $1 and recipient = $2 and relay = $3 order by entry limit 10")
            .bind(identity).bind(recipient).bind(ASKED_BY_SERVER)
            .fetch_all(pool).await?.iter().map(held_row!()).collect::<Result<_, _>>()?))
    }

    /// Removes decisions about recipients that other servers asked about before `time` and did not ask about again.
    pub async fn forget_asked(&self, time: i64) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query("delete from held where relay = $1 and fate <> 'held' and held_at < $2")
            .bind(ASKED_BY_SERVER).bind(time).execute(pool).await?.rows_affected()))
    }

    /// Removes rows whose decision has been carried out.
    pub async fn done(&self, done: &[(String, i64)]) -> Result<(), RecordsError> {
        let rows: Vec<_> =
            done.iter().map(|(identity, entry)| serde_json::json!({ "identity": identity, "entry": entry })).collect();
        let json = serde_json::json!(rows).to_string();
        let sql = self.db.either(
            "delete from held where (identity, entry) in
               (select value ->> 'identity', value ->> 'entry' from json_each($1)) and fate <> 'held'",
            "delete from held using jsonb_to_recordset($1::jsonb) as x(identity text, entry bigint)
               where held.identity = x.identity and held.entry = x.entry and held.fate <> 'held'",
        );
        write!(self, pool => sqlx::query(sql).bind(&json).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Removes decisions about a message that does not exist, because it was refused in the end.
    pub async fn strike(&self, message: &str) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query("delete from held where message = $1 and fate <> 'held'").bind(message)
            .execute(pool).await?.rows_affected()))
    }

    /// How many rows, held or decided, still need the body of `message`.
    pub async fn of_message(&self, message: &str) -> Result<i64, RecordsError> {
        Ok(
            read!(self, pool => sqlx::query_scalar("select count(*) from held where message = $1").bind(message).fetch_one(pool).await?),
        )
    }

    /// The places of a message's recipients that any row, held or decided, still needs.
    pub async fn places(&self, message: &str) -> Result<Vec<i64>, RecordsError> {
        Ok(
            read!(self, pool => sqlx::query_scalar("select place from held where message = $1 order by place").bind(message).fetch_all(pool).await?),
        )
    }

    /// Which of these messages no row of `relay`, held or decided, needs.
    pub async fn strays(&self, relay: &str, messages: &[String]) -> Result<Vec<String>, RecordsError> {
        let json = serde_json::json!(messages).to_string();
        // The empty text is added so that the database does not use the index by relay, which it would search as a whole for each message.
        let sql = self.db.either(
            "select value from json_each($1) where not exists
               (select 1 from held where held.message = value and held.relay || '' = $2)",
            "select given.message from (select jsonb_array_elements_text($1::jsonb) as message) as given where not exists
               (select 1 from held where held.message = given.message and held.relay || '' = $2)",
        );
        Ok(read!(self, pool => sqlx::query_scalar(sql).bind(&json).bind(relay).fetch_all(pool).await?))
    }

    /// Messages that any row still needs, that `relay` keeps, and of which something was held since `time`.
    pub async fn messages_since(&self, relay: &str, time: i64) -> Result<Vec<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select distinct message from held where relay = $1 and held_at >= $2 order by message")
            .bind(relay).bind(time).fetch_all(pool).await?))
    }
}
