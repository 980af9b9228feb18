//! Throttle states, and the one transaction in which decisions are made.
//!
//! A decision reads the states of everybody in its batch, lets the caller run the core's machine on them, and
//! writes states and held mail back together. On PostgreSQL the rows are locked first, in order of name, so
//! that several relays are one throttle and never deadlock.

use super::correspondents::{ASK_SQLITE, PastMailAsked, PastMailFound, find_in_postgres};
use super::held::HeldRow;
use super::{Database, Fate, RecordsError, begin_in_postgres, in_time, read, write};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{PgPool, Row, SqliteConnection};
use std::sync::LazyLock;

/// The throttle of one identity (a user, or a client address).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleRow {
    /// Whose throttle.
    pub identity: String,
    /// The machine's state as its owner wrote it; empty for one never seen.
    pub state: String,
    /// When the next held entry is due.
    pub next_deadline: Option<i64>,
    /// How many entries are held.
    pub held: i64,
    /// Since when the identity is stopped.
    pub stopped_at: Option<i64>,
    /// Which notices were sent in this episode: a number whose meaning only the caller knows.
    pub notified: i64,
    /// When the row was last written.
    pub updated_at: i64,
}

/// What a decision changes in addition to the states.
#[derive(Debug, Default, Clone)]
pub struct Changes {
    /// Entries to be held from now on.
    pub hold: Vec<HeldRow>,
    /// Entries whose fate is decided: to be sent or dropped.
    pub decide: Vec<(String, i64, Fate)>,
    /// What learn-only mode saw.
    pub learned: Vec<Learned>,
}

/// What the throttle would have done to one identity on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Whose.
    pub identity: String,
    /// Days since the Unix epoch.
    pub day: i64,
    /// Mails seen.
    pub mails: i64,
    /// Recipients seen.
    pub recipients: i64,
    /// Recipients that would have been held.
    pub would_hold: i64,
    /// Times that the user would have been stopped.
    pub would_stop: i64,
}

macro_rules! throttle_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(ThrottleRow {
                identity: row.try_get(0)?,
                state: row.try_get(1)?,
                next_deadline: row.try_get(2)?,
                held: row.try_get(3)?,
                stopped_at: row.try_get(4)?,
                notified: row.try_get(5)?,
                updated_at: row.try_get(6)?,
            })
        }
    };
}

/// The throttles' states. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ThrottleRecords {
    pub(in crate::records) db: Database,
}

impl ThrottleRecords {
    /// Runs `decide` on the states of `identities` and writes back the changed states, all or nothing.
    ///
    /// `decide` gets one row for each identity, in the given order; each identity must be named once. It runs
    /// at most once, and the transaction may still fail after it, so it must not have effects of its own.
    pub async fn decide<T>(
        &self,
        identities: &[String],
        decide: impl FnOnce(&mut [ThrottleRow]) -> (Changes, T),
    ) -> Result<T, RecordsError> {
        self.decide_knowing(identities, &PastMailAsked::default(), |rows, _| decide(rows)).await
    }

    /// The same with the answers to `asked` about past mail, read in the same transaction.
    pub async fn decide_knowing<T>(
        &self,
        identities: &[String],
        asked: &PastMailAsked,
        decide: impl FnOnce(&mut [ThrottleRow], &PastMailFound) -> (Changes, T),
    ) -> Result<T, RecordsError> {
        match &self.db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                write.set_unfinished(true);
                let decided = decide_in_sqlite(&mut connection, identities, asked, decide).await;
                if decided.is_err() {
                    // A transaction that was begun must not stay open. If none was begun, or a full disk has ended it, SQLite returns an error.
                    let _ = sqlx::query("rollback").execute(&mut *connection).await;
                }
                write.set_unfinished(false);
                decided
            }
            Database::Postgres(pool) => in_time(decide_in_postgres(pool, identities, asked, decide)).await,
        }
    }

    /// Identities with an entry due at `now`, the longest due first.
    pub async fn due(&self, now: i64, most: i64) -> Result<Vec<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select identity from throttles where next_deadline <= $1 order by next_deadline limit $2")
            .bind(now).bind(most).fetch_all(pool).await?))
    }

    /// Identities with an entry that will be due, or that are stopped, and that were last written after `time`.
    pub async fn ahead(&self, time: i64, most: i64) -> Result<Vec<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select identity from throttles where next_deadline is not null and updated_at > $1
             union select identity from throttles where stopped_at is not null and updated_at > $1 order by 1 limit $2")
            .bind(time).bind(most).fetch_all(pool).await?))
    }

    /// When the next entry of any user is due.
    pub async fn next_deadline(&self) -> Result<Option<i64>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select min(next_deadline) from throttles").fetch_one(pool).await?))
    }

    /// The throttle of one identity, as it is stored.
    pub async fn find(&self, identity: &str) -> Result<Option<ThrottleRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select identity, state, next_deadline, held, stopped_at, notified, updated_at from throttles where identity = $1")
            .bind(identity).fetch_optional(pool).await?.as_ref().map(throttle_row!()).transpose()?))
    }

    /// Identities that hold mail or are stopped, the most held first.
    pub async fn busy(&self, most: i64) -> Result<Vec<ThrottleRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select identity, state, next_deadline, held, stopped_at, notified, updated_at from throttles
             where held > 0 or stopped_at is not null order by stopped_at is null, held desc, identity limit $1")
            .bind(most).fetch_all(pool).await?.iter().map(throttle_row!()).collect::<Result<_, _>>()?))
    }

    /// Identities that are `lower` but for capitals, and since when each is stopped: stopped ones first, then those of whom something is
    /// held. Letters outside ASCII are compared here, as for accounts (`UserRecords::alike`).
    pub async fn alike(&self, lower: &str) -> Result<Vec<(String, Option<i64>)>, RecordsError> {
        if lower.is_ascii() {
            return Ok(read!(self, pool => sqlx::query_as(
                "select identity, stopped_at from throttles where lower(identity) = $1
                 order by case when stopped_at is not null then 0 when held > 0 then 1 else 2 end, identity desc limit 100")
                .bind(lower).fetch_all(pool).await?));
        }
        let mut found: Vec<(String, Option<i64>)> = read!(self, pool => sqlx::query_as(
            "select identity, stopped_at from throttles where octet_length(identity) > length(identity)
             order by case when stopped_at is not null then 0 when held > 0 then 1 else 2 end, identity desc")
            .fetch_all(pool).await?);
        found.retain(|(identity, _)| identity.to_lowercase() == lower);
        Ok(found)
    }

    /// How many entries each of these identities holds, and since when it is stopped; identities without a throttle are left out.
    pub async fn of(&self, identities: &[String]) -> Result<Vec<(String, i64, Option<i64>)>, RecordsError> {
        let json = serde_json::json!(identities).to_string();
        let sql = self.db.either(
            "select identity, held, stopped_at from throttles where identity in (select value from json_each($1))",
            "select identity, held, stopped_at from throttles where identity in (select jsonb_array_elements_text($1::jsonb))",
        );
        Ok(read!(self, pool => sqlx::query_as(sql).bind(&json).fetch_all(pool).await?))
    }

    /// A notice was written: this one, and those before it, need not be written again in this episode.
    pub async fn told(&self, identity: &str, notice: i64) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query(
            "update throttles set told = $2 where identity = $1 and told < $2 and notified >= $2")
            .bind(identity).bind(notice).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Identities with a notice that was due and never written, and which.
    pub async fn untold(&self, most: i64) -> Result<Vec<(String, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select identity, notified from throttles where notified > told order by identity limit $1")
            .bind(most).fetch_all(pool).await?))
    }

    /// What learn-only mode saw since `day`, the worst first.
    pub async fn learned(&self, day: i64) -> Result<Vec<Learned>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select identity, max(day), cast(sum(mails) as bigint), cast(sum(recipients) as bigint),
             cast(sum(would_hold) as bigint), cast(sum(would_stop) as bigint) from learned
             where day >= $1 group by identity order by 6 desc, 5 desc, 1 limit 1000")
            .bind(day).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(Learned {
                identity: row.try_get(0)?, day: row.try_get(1)?, mails: row.try_get(2)?, recipients: row.try_get(3)?,
                would_hold: row.try_get(4)?, would_stop: row.try_get(5)?,
            })).collect::<Result<_, _>>()?))
    }
}

/// The transaction on SQLite: only two requests to the connection's thread, because each costs a turn of the scheduler.
async fn decide_in_sqlite<T>(
    connection: &mut SqliteConnection,
    identities: &[String],
    asked: &PastMailAsked,
    decide: impl FnOnce(&mut [ThrottleRow], &PastMailFound) -> (Changes, T),
) -> Result<T, RecordsError> {
    let names = serde_json::json!(identities).to_string();
    let rows = match asked.is_empty() {
        true => sqlx::query(BEGIN_SQLITE).bind(names).fetch_all(&mut *connection).await?,
        false => {
            let sql = BEGIN_ASKING_SQLITE.as_str();
            let [packs, letters] = asked.parameters();
            sqlx::query(sql).bind(names).bind(packs).bind(letters).fetch_all(&mut *connection).await?
        }
    };
    let (mut found, mut past) = (Vec::with_capacity(identities.len()), PastMailFound::default());
    let throttle: fn(&SqliteRow) -> Result<ThrottleRow, sqlx::Error> = throttle_row!();
    for row in &rows {
        match row.len() {
            2 => drop(past.letters.insert(row.try_get(0)?, row.try_get(1)?)),
            3 => drop(past.packs.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?)),
            _ => found.push(throttle(row)?),
        }
    }
    let mut states = in_order(identities, &mut found);
    let (changes, answer) = decide(&mut states, &past);
    let statements = changes.statements(&states, [UPSERT_SQLITE, HOLD_SQLITE, FATE_SQLITE, LEARN_SQLITE]);
    let sql: String = statements.iter().map(|(sql, _)| *sql).chain(["commit"]).collect();
    let query = statements.into_iter().fold(sqlx::query(sqlx::AssertSqlSafe(sql)), |query, (_, json)| query.bind(json));
    query.execute(connection).await?;
    Ok(answer)
}

async fn decide_in_postgres<T>(
    pool: &PgPool,
    identities: &[String],
    asked: &PastMailAsked,
    decide: impl FnOnce(&mut [ThrottleRow], &PastMailFound) -> (Changes, T),
) -> Result<T, RecordsError> {
    let names = serde_json::json!(identities).to_string();
    let mut tx = begin_in_postgres(pool).await?;
    // A row that does not exist cannot be locked, so it is created first.
    sqlx::query(TOUCH_POSTGRES).bind(&names).execute(&mut *tx).await?;
    let rows = sqlx::query(SELECT_POSTGRES).bind(&names).fetch_all(&mut *tx).await?;
    let mut found = rows.iter().map(throttle_row!()).collect::<Result<Vec<_>, sqlx::Error>>()?;
    let mut states = in_order(identities, &mut found);
    let past = find_in_postgres(&mut tx, asked).await?;
    let (changes, answer) = decide(&mut states, &past);
    let statements = [UPSERT_POSTGRES, HOLD_POSTGRES, FATE_POSTGRES, LEARN_POSTGRES];
    for (sql, json) in changes.statements(&states, statements) {
        sqlx::query(sql).bind(json).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(answer)
}

impl Changes {
    /// The statements that carry them out, each with its one JSON parameter; none for what is empty.
    fn statements(&self, states: &[ThrottleRow], sql: [&'static str; 4]) -> Vec<(&'static str, String)> {
        let fates: Vec<_> = self.decide.iter().map(|(identity, entry, fate)| {
            serde_json::json!({ "identity": identity, "entry": entry, "fate": fate.as_str() })
        }).collect();
        let parameters = [json(states), json(&self.hold), json(&fates), json(&self.learned)];
        sql.into_iter().zip(parameters).filter_map(|(sql, json)| Some((sql, json?))).collect()
    }
}

/// The rows as one JSON parameter; none for none.
fn json<T: Serialize>(rows: &[T]) -> Option<String> {
    // Rows consist of plain text and numbers, which JSON can always express.
    (!rows.is_empty()).then(|| serde_json::to_string(rows).unwrap_or_default())
}

fn in_order(identities: &[String], found: &mut [ThrottleRow]) -> Vec<ThrottleRow> {
    let new = |identity: &String| ThrottleRow {
        identity: identity.clone(),
        state: String::new(),
        next_deadline: None,
        held: 0,
        stopped_at: None,
        notified: 0,
        updated_at: 0,
    };
    found.sort_unstable_by(|a, b| a.identity.cmp(&b.identity));
    let find = |identity: &String| found.binary_search_by(|row| row.identity.cmp(identity)).ok();
    identities.iter().map(|identity| find(identity).map_or_else(|| new(identity), |at| found[at].clone())).collect()
}

// SQLite executes several statements at once; each takes the next parameter.
const BEGIN_SQLITE: &str = "begin immediate;
  select identity, state, next_deadline, held, stopped_at, notified, updated_at from throttles
  where identity in (select value from json_each(?));";
static BEGIN_ASKING_SQLITE: LazyLock<String> = LazyLock::new(|| format!("{BEGIN_SQLITE} {ASK_SQLITE}"));
const UPSERT_SQLITE: &str = "insert into throttles (identity, state, next_deadline, held, stopped_at, notified, updated_at)
  select value ->> 'identity', value ->> 'state', value ->> 'next_deadline', value ->> 'held', value ->> 'stopped_at',
    value ->> 'notified', value ->> 'updated_at' from json_each(?) where true
  on conflict (identity) do update set state = excluded.state, next_deadline = excluded.next_deadline,
    held = excluded.held, stopped_at = excluded.stopped_at, notified = excluded.notified, updated_at = excluded.updated_at,
    told = min(throttles.told, excluded.notified);";
const HOLD_SQLITE: &str = "insert into held (identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at)
  select value ->> 'identity', value ->> 'entry', value ->> 'fate', value ->> 'message', value ->> 'relay', value ->> 'recipient',
    value ->> 'place', value ->> 'sender', value ->> 'subject', value ->> 'source', value ->> 'size', value ->> 'held_at'
  from json_each(?);";
const FATE_SQLITE: &str = "update held set fate = decided.fate from
  (select value ->> 'identity' as identity, value ->> 'entry' as entry, value ->> 'fate' as fate from json_each(?)) as decided
  where held.identity = decided.identity and held.entry = decided.entry and held.fate = 'held';";
const LEARN_SQLITE: &str = "insert into learned (identity, day, mails, recipients, would_hold, would_stop)
  select value ->> 'identity', value ->> 'day', value ->> 'mails', value ->> 'recipients', value ->> 'would_hold',
    value ->> 'would_stop' from json_each(?) where true
  on conflict (identity, day) do update set mails = learned.mails + excluded.mails,
    recipients = learned.recipients + excluded.recipients, would_hold = learned.would_hold + excluded.would_hold,
    would_stop = learned.would_stop + excluded.would_stop;";

const TOUCH_POSTGRES: &str = "insert into throttles (identity, state, held, notified, updated_at)
  select name, '', 0, 0, 0 from jsonb_array_elements_text($1::jsonb) as name order by name on conflict (identity) do nothing";
const SELECT_POSTGRES: &str =
    "select identity, state, next_deadline, held, stopped_at, notified, updated_at from throttles
  where identity in (select jsonb_array_elements_text($1::jsonb)) order by identity for update";
const UPSERT_POSTGRES: &str = "update throttles set state = x.state, next_deadline = x.next_deadline, held = x.held,
    stopped_at = x.stopped_at, notified = x.notified, updated_at = x.updated_at, told = least(throttles.told, x.notified)
  from jsonb_to_recordset($1::jsonb) as x(identity text, state text, next_deadline bigint, held bigint, stopped_at bigint,
    notified bigint, updated_at bigint) where throttles.identity = x.identity";
const HOLD_POSTGRES: &str = "insert into held (identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at)
  select identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at
  from jsonb_to_recordset($1::jsonb) as x(identity text, entry bigint, fate text, message text, relay text, recipient text,
    place bigint, sender text, subject text, source text, size bigint, held_at bigint)";
const FATE_POSTGRES: &str = "update held set fate = x.fate from
  jsonb_to_recordset($1::jsonb) as x(identity text, entry bigint, fate text)
  where held.identity = x.identity and held.entry = x.entry and held.fate = 'held'";
const LEARN_POSTGRES: &str = "insert into learned (identity, day, mails, recipients, would_hold, would_stop)
  select identity, day, mails, recipients, would_hold, would_stop from jsonb_to_recordset($1::jsonb) as
    x(identity text, day bigint, mails bigint, recipients bigint, would_hold bigint, would_stop bigint)
  on conflict (identity, day) do update set mails = learned.mails + excluded.mails,
    recipients = learned.recipients + excluded.recipients, would_hold = learned.would_hold + excluded.would_hold,
    would_stop = learned.would_stop + excluded.would_stop";
