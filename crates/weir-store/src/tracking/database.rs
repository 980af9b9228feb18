//! The tables of tracked messages, in SQLite and in PostgreSQL.
//!
//! Each message is a row with two texts: what is known about it, and what happened to it. The words by which it is found are in a full-text
//! index. SQLite's index keeps neither a copy of the words nor their positions, so it is a third of the usual size.

use super::message::{Act, TrackedMessage};
use super::search::{MessageFilter, first_place};
use super::words::{WantedWords, of_message};
use crate::diary::DiaryPosition;
use crate::records::{Database, RecordsError, begin_in_postgres, in_time, read};
use sqlx::Connection;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SQLITE: &str = "
create table if not exists tracked (place integer primary key, message text not null);
create table if not exists tracked_acts (place integer primary key, acts text not null);
create table if not exists tracked_ids (id text primary key, place integer not null) without rowid;
create virtual table if not exists tracked_words using
  fts5(words, content='', contentless_delete=1, detail=none, tokenize=\"ascii tokenchars '@.:-_+'\");
create table if not exists tracked_positions (relay text primary key, position text not null);";

const POSTGRES: &str = "
create table if not exists tracked (place bigint primary key, message text not null, words tsvector not null);
create index if not exists tracked_words on tracked using gin (words);
create table if not exists tracked_acts (place bigint primary key, acts text not null);
create table if not exists tracked_ids (id text primary key, place bigint not null);
create table if not exists tracked_positions (relay text primary key, position text not null);";

/// A message and what happened to it.
pub(super) type Tracked = (TrackedMessage, Vec<Act>);

/// The changes of one batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// By place; true if the message is new.
    pub(super) messages: BTreeMap<i64, (Tracked, bool)>,
    /// How far the diary has been read after this batch.
    pub(super) position: DiaryPosition,
}

/// Runs statements in one transaction of either database.
macro_rules! in_transaction {
    ($db:expr, $tx:ident => $body:expr) => {
        match $db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                let mut transaction = connection.begin_with("begin immediate").await?;
                let $tx = &mut transaction;
                $body;
                transaction.commit().await?;
            }
            Database::Postgres(pool) => {
                let mut transaction = begin_in_postgres(pool).await?;
                let $tx = &mut transaction;
                $body;
                transaction.commit().await?;
            }
        }
    };
}

/// The tables. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct TrackingDatabase {
    pub(super) db: Database,
}

impl TrackingDatabase {
    /// Creates the tables that do not exist yet.
    pub(super) async fn prepare(&self) -> Result<(), RecordsError> {
        match &self.db {
            Database::Sqlite { write, .. } => {
                sqlx::raw_sql(SQLITE).execute(&mut *write.lock().await?).await?;
            }
            Database::Postgres(pool) => {
                let mut transaction = begin_in_postgres(pool).await?;
                // Several relays may start at once.
                sqlx::raw_sql("select pg_advisory_xact_lock(7345922)").execute(&mut *transaction).await?;
                sqlx::raw_sql(POSTGRES).execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
        }
        Ok(())
    }

    /// How far the diary of a relay has been read.
    pub(super) async fn position(&self, relay: &str) -> Result<DiaryPosition, RecordsError> {
        let sql = "select position from tracked_positions where relay = $1";
        let text: Option<String> = read!(self, pool => sqlx::query_scalar(sql).bind(relay).fetch_optional(pool).await?);
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// The places of those ids that are known.
    pub(super) async fn places_of(&self, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, i64>, RecordsError> {
        let sql = self.db.either(
            "select id, place from tracked_ids where id in (select value from json_each($1))",
            "select id, place from tracked_ids where id in (select jsonb_array_elements_text($1::jsonb))",
        );
        let json = serde_json::json!(ids).to_string();
        let rows: Vec<(String, i64)> = read!(self, pool => sqlx::query_as(sql).bind(&json).fetch_all(pool).await?);
        Ok(rows.into_iter().collect())
    }

    /// Which of these places are taken by a message.
    pub(super) async fn taken(&self, places: &BTreeSet<i64>) -> Result<BTreeSet<i64>, RecordsError> {
        if places.is_empty() {
            return Ok(BTreeSet::new());
        }
        let sql = self.db.either(
            "select place from tracked where place in (select value from json_each($1))",
            "select place from tracked where place in (select jsonb_array_elements_text($1::jsonb)::bigint)",
        );
        let json = serde_json::json!(places).to_string();
        let rows: Vec<i64> = read!(self, pool => sqlx::query_scalar(sql).bind(&json).fetch_all(pool).await?);
        Ok(rows.into_iter().collect())
    }

    /// The messages at these places.
    pub(super) async fn messages_at(&self, places: &BTreeSet<i64>) -> Result<Vec<Tracked>, RecordsError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let sql = self.db.either(
            "select t.place, t.message, a.acts from tracked t join tracked_acts a on a.place = t.place
               where t.place in (select value from json_each($1))",
            "select t.place, t.message, a.acts from tracked t join tracked_acts a on a.place = t.place
               where t.place in (select jsonb_array_elements_text($1::jsonb)::bigint)",
        );
        let json = serde_json::json!(places).to_string();
        let rows: Vec<(i64, String, String)> =
            read!(self, pool => sqlx::query_as(sql).bind(&json).fetch_all(pool).await?);
        let tracked = |(place, message, acts): (i64, String, String)| {
            let message = TrackedMessage::read(place, &message)?;
            let acts = message.read_acts(&acts);
            Some((message, acts))
        };
        Ok(rows.into_iter().filter_map(tracked).collect())
    }

    /// Writes a batch and how far the diary is read, all or nothing.
    pub(super) async fn write(&self, relay: &str, batch: &Batch) -> Result<(), RecordsError> {
        let rows: Vec<_> = batch.messages.values().map(|(tracked, _)| row(tracked)).collect();
        let changed = batch.messages.iter().filter(|(_, (_, is_new))| !is_new).map(|(place, _)| *place);
        let ids = batch
            .messages
            .values()
            .flat_map(|((message, _), _)| message.ids.iter().map(|id| (id.as_str(), message.place)));
        let [rows, changed, ids] = [
            serde_json::json!(rows),
            serde_json::json!(changed.collect::<Vec<_>>()),
            serde_json::json!(ids.collect::<Vec<_>>()),
        ];
        let [rows, changed, ids] = [rows.to_string(), changed.to_string(), ids.to_string()];
        let position = serde_json::to_string(&batch.position).unwrap_or_default();
        let with_position = "insert into tracked_positions (relay, position) values ($1, $2)
            on conflict (relay) do update set position = excluded.position";
        let statements = self.db.either_list(&WRITE_SQLITE, &WRITE_POSTGRES);
        in_transaction!(&self.db, tx => {
            for (statement, what) in statements.iter().zip([&changed, &rows, &rows, &rows, &ids]) {
                if !statement.is_empty() && what != "[]" {
                    sqlx::query(*statement).bind(what).execute(&mut **tx).await?;
                }
            }
            sqlx::query(with_position).bind(relay).bind(&position).execute(&mut **tx).await?;
        });
        Ok(())
    }

    /// Messages that match, the newest first.
    pub(super) async fn search(
        &self,
        filter: &MessageFilter,
        most: usize,
    ) -> Result<Vec<TrackedMessage>, RecordsError> {
        let (first, end) = filter.places();
        let question = WantedWords::of(filter);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows: Vec<(i64, String)> = if question.is_empty() {
            let sql =
                "select place, message from tracked where place >= $1 and place < $2 order by place desc limit $3";
            read!(self, pool => sqlx::query_as(sql).bind(first).bind(end).bind(most).fetch_all(pool).await?)
        } else {
            let words = self.either_words(&question);
            let sql = self.db.either(SEARCH_SQLITE, SEARCH_POSTGRES);
            read!(self, pool => sqlx::query_as(sql)
                .bind(&words).bind(first).bind(end).bind(most).fetch_all(pool).await?)
        };
        Ok(rows.iter().filter_map(|(place, text)| TrackedMessage::read(*place, text)).collect())
    }

    fn either_words(&self, question: &WantedWords) -> String {
        match self.db {
            Database::Sqlite { .. } => question.for_sqlite(),
            Database::Postgres(_) => question.for_postgres(),
        }
    }

    /// Octets that are in use.
    pub(super) async fn octets(&self) -> Result<u64, RecordsError> {
        let sql = self.db.either(
            "select (page_count - freelist_count) * page_size
               from pragma_page_count, pragma_freelist_count, pragma_page_size",
            "select pg_relation_size('tracked')",
        );
        let octets: i64 = read!(self, pool => sqlx::query_scalar(sql).fetch_one(pool).await?);
        match &self.db {
            Database::Sqlite { .. } => Ok(u64::try_from(octets).unwrap_or_default()),
            Database::Postgres(pool) => in_time(octets_of_rows(pool, octets)).await,
        }
    }

    /// Forgets up to `most` of the oldest messages, or those before a time if one is given; returns how many.
    pub(super) async fn forget(&self, before_ns: Option<i64>, most: i64) -> Result<usize, RecordsError> {
        let end = before_ns.map_or(i64::MAX, first_place);
        let sql = "select place, message from tracked where place < $1 order by place limit $2";
        let rows: Vec<(i64, String)> =
            read!(self, pool => sqlx::query_as(sql).bind(end).bind(most).fetch_all(pool).await?);
        let Some((last, _)) = rows.last() else { return Ok(0) };
        let messages = rows.iter().filter_map(|(place, text)| TrackedMessage::read(*place, text));
        let ids: Vec<String> = messages.flat_map(|message| message.ids).collect();
        let ids = serde_json::json!(ids).to_string();
        let of_ids = self.db.either(
            "delete from tracked_ids where id in (select value from json_each($1))",
            "delete from tracked_ids where id in (select jsonb_array_elements_text($1::jsonb))",
        );
        let words = self.db.either("delete from tracked_words where rowid <= $1", "");
        in_transaction!(&self.db, tx => {
            sqlx::query(of_ids).bind(&ids).execute(&mut **tx).await?;
            for statement in [words, "delete from tracked_acts where place <= $1", "delete from tracked where place <= $1"] {
                if !statement.is_empty() {
                    sqlx::query(statement).bind(last).execute(&mut **tx).await?;
                }
            }
        });
        Ok(rows.len())
    }
}

/// PostgreSQL reuses the space of deleted rows but does not give it back, so the content of the rows is counted. Rows differ very
/// much in size: a mail to a thousand recipients has a hundred times as many words as one to two. So some pages are sampled, and always the same ones,
/// because with an estimate that jumps too much would be forgotten.
async fn octets_of_rows(pool: &sqlx::PgPool, main_octets: i64) -> Result<u64, RecordsError> {
    let share = (SAMPLE_OCTETS / main_octets.max(1) as f64).min(1.0);
    let sampled: i64 = sqlx::query_scalar(OCTETS_POSTGRES).bind((share * 100.0) as f32).fetch_one(pool).await?;
    Ok((sampled as f64 / share) as u64)
}

/// The part of the table whose rows are sampled: 256 pages.
const SAMPLE_OCTETS: f64 = (2 << 20) as f64;
/// The size of rows: the rows themselves, their words about twice more in the index, and an estimate for ids, places and what PostgreSQL adds. A
/// join would read all acts to find these few.
const OCTETS_POSTGRES: &str = "
    select coalesce(sum(300 + pg_column_size(t.message) + 3 * pg_column_size(t.words)
        + coalesce((select pg_column_size(a.acts) from tracked_acts a where a.place = t.place), 0)), 0)::bigint
    from tracked t tablesample system ($1) repeatable (1)";

/// Place, message, acts and words.
fn row((message, acts): &Tracked) -> (i64, String, String, String) {
    (message.place, message.written(), message.written_acts(acts), of_message(message))
}

/// What a batch takes back, then messages, acts, words and ids.
const WRITE_SQLITE: [&str; 5] = [
    "delete from tracked_words where rowid in (select value from json_each($1))",
    "insert or replace into tracked (place, message) select value ->> 0, value ->> 1 from json_each($1)",
    "insert or replace into tracked_acts (place, acts) select value ->> 0, value ->> 2 from json_each($1)",
    "insert into tracked_words (rowid, words) select value ->> 0, value ->> 3 from json_each($1)",
    "insert or replace into tracked_ids (id, place) select value ->> 0, value ->> 1 from json_each($1)",
];
const WRITE_POSTGRES: [&str; 5] = [
    "",
    "insert into tracked (place, message, words)
       select (x ->> 0)::bigint, x ->> 1, array_to_tsvector(string_to_array(x ->> 3, ' '))
       from jsonb_array_elements($1::jsonb) as x
       on conflict (place) do update set message = excluded.message, words = excluded.words",
    "insert into tracked_acts (place, acts) select (x ->> 0)::bigint, x ->> 2 from jsonb_array_elements($1::jsonb) as x
       on conflict (place) do update set acts = excluded.acts",
    "",
    "insert into tracked_ids (id, place) select x ->> 0, (x ->> 1)::bigint from jsonb_array_elements($1::jsonb) as x
       on conflict (id) do update set place = excluded.place",
];
const SEARCH_SQLITE: &str = "select tracked.place, tracked.message from tracked_words
    cross join tracked on tracked.place = tracked_words.rowid
    where tracked_words match $1 and tracked_words.rowid >= $2 and tracked_words.rowid < $3
    order by tracked_words.rowid desc limit $4";
const SEARCH_POSTGRES: &str = "select place, message from tracked
    where words @@ $1::text::tsquery and place >= $2 and place < $3 order by place desc limit $4";
