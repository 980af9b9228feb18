//! Quarantined mail: one row per recipient, so that one of them may decide without the others; people see one entry per message.
//!
//! A row is *kept* until a person decides or its time is over. Then the relay that has the body sends or deletes the mail, and removes the
//! row only when that is durable.

use super::{Database, Fate, RecordsError, read, write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::Row;

/// One recipient of one quarantined message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineRow {
    /// The message, by the id of the spool.
    pub message: String,
    /// The recipient's place in the message's envelope.
    pub place: i64,
    /// The relay that keeps the body.
    pub relay: String,
    /// Which quarantine: `virus`, `ext`, `spam`, `error` or `limit`.
    pub queue: String,
    /// What should happen to it; [`Fate::Held`] while it is kept.
    pub fate: Fate,
    /// The recipient's address.
    pub recipient: String,
    /// The envelope sender.
    pub sender: String,
    /// The subject, cut to a line.
    pub subject: String,
    /// The client that submitted it.
    pub source: String,
    /// The user who sent it; empty for mail from outside.
    pub owner: String,
    /// Where the letter came from: `submitted`, `received` or `released`.
    pub origin: String,
    /// Bytes of the message.
    pub size: i64,
    /// Since when it is here.
    pub at: i64,
    /// Why, in a line.
    pub reason: String,
    /// Who decided; empty while nobody has.
    pub decided_by: String,
    /// To whom it is released instead of the recipient; empty for the recipient.
    #[serde(default)]
    pub release_to: String,
}

/// Quarantined mail, newest first, the recipients of a message together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantined {
    /// The rows: a list is cut between messages, never inside one, except if a single message has more recipients than a list has rows.
    pub rows: Vec<QuarantineRow>,
    /// There is more than this.
    pub more: bool,
}

/// Which quarantined mail; fields that are empty or zero match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuarantineFilter {
    /// Of this message.
    pub message: String,
    /// In this quarantine.
    pub queue: String,
    /// To this recipient.
    pub recipient: String,
    /// From this envelope sender.
    pub sender: String,
    /// That came before this.
    pub before: i64,
    /// With this anywhere in its id, subject, sender, recipient, user or reason.
    pub text: String,
}

/// How much there is in one quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineTotal {
    /// Which.
    pub queue: String,
    /// Messages.
    pub messages: i64,
    /// Their bytes.
    pub bytes: i64,
    /// When the oldest came.
    pub oldest_at: i64,
}

/// Most rows in one list: ten megabytes or so.
const ROWS_MAX: usize = 20_000;

const COLUMNS: &str = "message, place, relay, queue, fate, recipient, sender, subject, source, owner, origin, size, at, reason, \
                       decided_by, release_to";

macro_rules! quarantine_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(QuarantineRow {
                message: row.try_get(0)?,
                place: row.try_get(1)?,
                relay: row.try_get(2)?,
                queue: row.try_get(3)?,
                fate: Fate::parse(row.try_get(4)?)?,
                recipient: row.try_get(5)?,
                sender: row.try_get(6)?,
                subject: row.try_get(7)?,
                source: row.try_get(8)?,
                owner: row.try_get(9)?,
                origin: row.try_get(10)?,
                size: row.try_get(11)?,
                at: row.try_get(12)?,
                reason: row.try_get(13)?,
                decided_by: row.try_get(14)?,
                release_to: row.try_get(15)?,
            })
        }
    };
}

/// The filter's part of a statement; its five parameters come first. Conditions that match everything are left out, so that an index can be used for
/// the others.
fn filtered(filter: &QuarantineFilter) -> String {
    let texts = [
        ("message", "$1", &filter.message),
        ("queue", "$2", &filter.queue),
        ("recipient", "$3", &filter.recipient),
        ("sender", "$4", &filter.sender),
    ];
    let text = |(column, place, wanted): (&str, &str, &String)| {
        if wanted.is_empty() { format!("{place} = ''") } else { format!("{column} = {place}") }
    };
    let time = if filter.before == 0 { "cast($5 as bigint) = 0" } else { "at < cast($5 as bigint)" };
    format!("{} and {time}", texts.map(text).join(" and "))
}

/// The condition for the filter's words: its sixth parameter, a pattern. It selects messages, and all recipients of each are shown.
const WORDED: &str =
    "($6 = '' or lower(message || ' ' || subject || ' ' || sender || ' ' || recipient || ' ' || owner || ' ' || reason)
    like $6 escape '!')";

/// The messages that match a filter, newest first.
fn messages_of(filtered: &str, most: &str) -> String {
    format!(
        "select message from quarantine where fate = 'held' and {filtered} and {WORDED}
         group by message order by max(at) desc, message limit {most}"
    )
}

/// Quarantined mail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct QuarantineRecords {
    pub(in crate::records) db: Database,
}

impl QuarantineRecords {
    /// Adds mail, all or nothing. Rows that exist already are not changed, because mail may be scanned twice after a kill.
    pub async fn add(&self, rows: &[QuarantineRow]) -> Result<(), RecordsError> {
        let json = serde_json::to_string(rows).unwrap_or_default();
        write!(self, pool => sqlx::query(self.db.either(ADD_SQLITE, ADD_POSTGRES)).bind(&json).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// What is kept of at most `most` messages.
    pub async fn list(&self, filter: &QuarantineFilter, most: usize) -> Result<Quarantined, RecordsError> {
        let filtered = filtered(filter);
        let sql = format!(
            "select {COLUMNS} from quarantine where fate = 'held' and {filtered} and message in ({})
             order by at desc, message, place limit $8",
            messages_of(&filtered, "$7")
        );
        let sql = sqlx::AssertSqlSafe(sql);
        // One more of each shows whether there is more.
        let (messages, rows) = (most.saturating_add(1) as i64, ROWS_MAX as i64 + 1);
        let found: Vec<QuarantineRow> = read!(self, pool => sqlx::query(sql)
            .bind(&filter.message).bind(&filter.queue).bind(&filter.recipient).bind(&filter.sender).bind(filter.before)
            .bind(self.pattern(&filter.text)).bind(messages).bind(rows)
            .fetch_all(pool).await?.iter().map(quarantine_row!()).collect::<Result<_, _>>()?);
        Ok(Quarantined::cut(found, most))
    }

    /// A pattern that finds `text` anywhere; empty if `text` is. SQLite ignores case for ASCII only.
    fn pattern(&self, text: &str) -> String {
        let lower = if self.db.is_shared() { text.to_lowercase() } else { text.to_ascii_lowercase() };
        let plain = lower.replace('!', "!!").replace('%', "!%").replace('_', "!_");
        if plain.is_empty() { plain } else { format!("%{plain}%") }
    }

    /// Decides about rows that are still kept; returns how many there were.
    pub async fn decide(&self, rows: &[(String, i64)], fate: Fate, actor: &str) -> Result<u64, RecordsError> {
        self.decide_for(rows, fate, actor, "").await
    }

    /// As [`QuarantineRecords::decide`]; what is released is sent to somebody else instead of its recipients.
    pub async fn decide_for(
        &self,
        rows: &[(String, i64)],
        fate: Fate,
        actor: &str,
        release_to: &str,
    ) -> Result<u64, RecordsError> {
        let keys: Vec<_> =
            rows.iter().map(|(message, place)| serde_json::json!({ "message": message, "place": place })).collect();
        let json = serde_json::json!(keys).to_string();
        let sql = self.db.either(DECIDE_SQLITE, DECIDE_POSTGRES);
        Ok(write!(self, pool => sqlx::query(sql).bind(&json).bind(fate.as_str()).bind(actor).bind(release_to)
            .execute(pool).await?.rows_affected()))
    }

    /// Drops everything of these messages that is still kept; returns how many rows that was.
    pub async fn remove(&self, messages: &[String], actor: &str) -> Result<u64, RecordsError> {
        let json = serde_json::json!(messages).to_string();
        let sql = self.db.either(
            "update quarantine set fate = 'drop', decided_by = $2 where fate = 'held' and message in (select value from json_each($1))",
            "update quarantine set fate = 'drop', decided_by = $2 where fate = 'held'
               and message in (select jsonb_array_elements_text($1::jsonb))",
        );
        Ok(write!(self, pool => sqlx::query(sql).bind(&json).bind(actor).execute(pool).await?.rows_affected()))
    }

    /// Rows that `relay` must carry out: of messages after `after`, in order.
    pub async fn decided(&self, relay: &str, after: &str, most: i64) -> Result<Vec<QuarantineRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from quarantine where relay = $1 and fate <> 'held' and message > $2 order by message, place limit $3"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(relay).bind(after).bind(most)
            .fetch_all(pool).await?.iter().map(quarantine_row!()).collect::<Result<_, _>>()?))
    }

    /// Removes rows that have been carried out; returns how many rows of their message are left.
    pub async fn done(&self, message: &str, places: &[i64]) -> Result<i64, RecordsError> {
        let json = serde_json::json!(places).to_string();
        let sql = self.db.either(
            "delete from quarantine where message = $1 and fate <> 'held' and place in (select value from json_each($2))",
            "delete from quarantine where message = $1 and fate <> 'held'
               and place in (select cast(jsonb_array_elements_text($2::jsonb) as bigint))",
        );
        write!(self, pool => sqlx::query(sql).bind(message).bind(&json).execute(pool).await.map(drop)?);
        Ok(write!(self, pool => sqlx::query_scalar("select count(*) from quarantine where message = $1")
            .bind(message).fetch_one(pool).await?))
    }

    /// Messages that `relay` keeps in one quarantine, or in all if that is empty, oldest first, with their bytes and since when: for
    /// retention.
    pub async fn oldest(&self, relay: &str, queue: &str, most: i64) -> Result<Vec<(String, i64, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select message, max(size), min(at) from quarantine where relay = $1 and fate = 'held' and ($2 = '' or queue = $2)
             group by message order by min(at), message limit $3")
            .bind(relay).bind(queue).bind(most).fetch_all(pool).await?))
    }

    /// All messages of which `relay` has a row.
    pub async fn messages(&self, relay: &str) -> Result<Vec<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select distinct message from quarantine where relay = $1")
            .bind(relay).fetch_all(pool).await?))
    }

    /// How much each quarantine holds; of one relay, or of all if it is empty.
    pub async fn totals(&self, relay: &str) -> Result<Vec<QuarantineTotal>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select queue, count(*), cast(sum(size) as bigint), min(at) from
               (select message, min(queue) as queue, max(size) as size, min(at) as at from quarantine
                where fate = 'held' and ($1 = '' or relay = $1) group by message) as entries
             group by queue order by queue")
            .bind(relay).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(QuarantineTotal {
                queue: row.try_get(0)?, messages: row.try_get(1)?, bytes: row.try_get(2)?, oldest_at: row.try_get(3)?,
            })).collect::<Result<_, _>>()?))
    }

    /// The names of the viruses in infected mail that came at `day` or later, without the name of the file, which the sender chooses.
    /// Names that came most often at `lately` or later come first; at most `most` names. At most `COUNTED_MAX` recipients are
    /// counted.
    pub async fn viruses(&self, lately: i64, day: i64, most: i64) -> Result<Vec<VirusCount>, RecordsError> {
        let sql = self.db.either(VIRUSES_SQLITE, VIRUSES_POSTGRES);
        let rows: Vec<(String, i64, i64, i64, i64)> = read!(self, pool => sqlx::query_as(sql)
            .bind(lately).bind(day).bind(COUNTED_MAX).bind(most).fetch_all(pool).await?);
        let count = |(name, lately, day, senders, recipients)| VirusCount { name, lately, day, senders, recipients };
        Ok(rows.into_iter().map(count).collect())
    }

    /// Spam from outside that `relay` keeps and that came from the first time on and before the second, of recipients after
    /// `after`, in order of recipient: for digests.
    pub async fn digest(
        &self,
        relay: &str,
        (since, until): (i64, i64),
        after: &str,
        most: i64,
    ) -> Result<Vec<QuarantineRow>, RecordsError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "select {COLUMNS} from quarantine where fate = 'held' and queue = 'spam' and origin = 'received' and relay = $1
             and at >= $2 and at < $3 and recipient > $4 order by recipient, at limit $5"
        ));
        Ok(read!(self, pool => sqlx::query(sql).bind(relay).bind(since).bind(until).bind(after).bind(most)
            .fetch_all(pool).await?.iter().map(quarantine_row!()).collect::<Result<_, _>>()?))
    }
}

const VIRUSES_SQLITE: &str = "select name, count(distinct case when at >= $1 then message end), count(distinct message),
    count(distinct sender), count(distinct recipient)
  from (select case when instr(reason, ' in ') > 0 then substr(reason, 1, instr(reason, ' in ') - 1) else reason end as name,
          at, message, sender, recipient from quarantine
        where queue = 'virus' and at >= $2 order by at desc limit $3) as infected
  group by name order by 2 desc, 1 limit $4";
const VIRUSES_POSTGRES: &str = "select name, count(distinct case when at >= $1 then message end), count(distinct message),
    count(distinct sender), count(distinct recipient)
  from (select case when strpos(reason, ' in ') > 0 then substr(reason, 1, strpos(reason, ' in ') - 1) else reason end as name,
          at, message, sender, recipient from quarantine
        where queue = 'virus' and at >= $2 order by at desc limit $3) as infected
  group by name order by 2 desc, 1 limit $4";
/// How many rows are read to count viruses: an outbreak of millions is counted by its newest.
const COUNTED_MAX: i64 = 10_000;

/// How much infected mail came with one virus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirusCount {
    /// The name that the scanners gave.
    pub name: String,
    /// Messages that came lately.
    pub lately: i64,
    /// Messages that came within the day.
    pub day: i64,
    /// From so many senders.
    pub senders: i64,
    /// To so many recipients.
    pub recipients: i64,
}

impl Quarantined {
    /// At most `most` messages and [`ROWS_MAX`] of the rows that were found.
    fn cut(mut rows: Vec<QuarantineRow>, most: usize) -> Quarantined {
        let mut whole = 0;
        for message in rows.chunk_by(|a, b| a.message == b.message).take(most) {
            if whole > 0 && whole + message.len() > ROWS_MAX {
                break;
            }
            whole += message.len();
        }
        let end = whole.min(ROWS_MAX);
        let more = end < rows.len();
        rows.truncate(end);
        Quarantined { rows, more }
    }
}

const ADD_SQLITE: &str = "insert into quarantine (message, place, relay, queue, fate, recipient, sender, subject, source, owner,
    origin, size, at, reason, decided_by)
  select value ->> 'message', value ->> 'place', value ->> 'relay', value ->> 'queue', value ->> 'fate', value ->> 'recipient',
    value ->> 'sender', value ->> 'subject', value ->> 'source', value ->> 'owner', value ->> 'origin', value ->> 'size',
    value ->> 'at', value ->> 'reason', value ->> 'decided_by' from json_each($1) where true
  on conflict (message, place) do nothing";
const ADD_POSTGRES: &str = "insert into quarantine (message, place, relay, queue, fate, recipient, sender, subject, source, owner,
    origin, size, at, reason, decided_by)
  select x.message, x.place, x.relay, x.queue, x.fate, x.recipient, x.sender, x.subject, x.source, x.owner, x.origin, x.size,
    x.at, x.reason, x.decided_by
  from jsonb_to_recordset($1::jsonb) as x(message text, place bigint, relay text, queue text, fate text, recipient text,
    sender text, subject text, source text, owner text, origin text, size bigint, at bigint, reason text,
    decided_by text)
  on conflict (message, place) do nothing";
const DECIDE_SQLITE: &str =
    "update quarantine set fate = $2, decided_by = $3, release_to = $4 where fate = 'held' and (message, place) in
    (select value ->> 'message', value ->> 'place' from json_each($1))";
const DECIDE_POSTGRES: &str = "update quarantine set fate = $2, decided_by = $3, release_to = $4
    from jsonb_to_recordset($1::jsonb) as x(message text, place bigint)
    where quarantine.fate = 'held' and quarantine.message = x.message and quarantine.place = x.place";
