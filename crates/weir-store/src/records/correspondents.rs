//! The correspondents of each user: whom they have written to, and who has written to them. The rows are packed, so that ten thousand users
//! with two thousand correspondents each take about two hundred megabytes.
//!
//! weir-mail `throttle/correspondents.rs` defines what is in a pack. A pack is changed under the lock of its owner's throttle, so that
//! several relays on one PostgreSQL never lose each other's changes.

use super::{Database, RecordsError, begin_in_postgres, in_time, read, write};
use serde::Serialize;
use sqlx::{Connection, PgPool, Row, SqliteConnection};
use std::collections::BTreeMap;

/// The name of a pack of correspondents: its user, and which of that user's packs.
pub type PackName = (String, i64);

/// Packs by their names; a pack that was never written is missing.
pub type Packs = BTreeMap<PackName, Vec<u8>>;

/// What a decision needs to know of past mail.
#[derive(Debug, Clone, Default)]
pub struct PastMailAsked {
    /// Packs of correspondents.
    pub packs: Vec<PackName>,
    /// Addresses of ours to which somebody may have written.
    pub addresses: Vec<String>,
}

/// What is known of past mail.
#[derive(Debug, Clone, Default)]
pub struct PastMailFound {
    /// The packs that there are.
    pub packs: Packs,
    /// For each of these addresses who wrote to it, as a text whose meaning only the caller knows.
    pub letters: BTreeMap<String, String>,
}

impl PastMailAsked {
    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty() && self.addresses.is_empty()
    }

    /// The two parameters of the queries.
    pub(super) fn parameters(&self) -> [String; 2] {
        [serde_json::json!(self.packs).to_string(), serde_json::json!(self.addresses).to_string()]
    }
}

/// The two queries for SQLite; their rows are distinguished by the number of columns.
pub(super) const ASK_SQLITE: &str = "select c.owner, c.pack, c.entries from json_each(?) as asked
    join correspondents as c on c.owner = asked.value ->> 0 and c.pack = asked.value ->> 1;
  select address, entries from letters where address in (select value from json_each(?));";
const PACKS_POSTGRES: &str = "select c.owner, c.pack, c.entries from jsonb_array_elements($1::jsonb) as asked
    join correspondents as c on c.owner = asked ->> 0 and c.pack = (asked ->> 1)::bigint";
const LETTERS_POSTGRES: &str =
    "select address, entries from letters where address in (select jsonb_array_elements_text($1::jsonb))";
const KEEP_SQLITE: &str = "insert into correspondents (owner, pack, entries)
  select value ->> 'owner', value ->> 'pack', unhex(value ->> 'entries') from json_each(?) where true
  on conflict (owner, pack) do update set entries = excluded.entries;";
const KEEP_POSTGRES: &str = "insert into correspondents (owner, pack, entries)
  select owner, pack, decode(entries, 'hex') from jsonb_to_recordset($1::jsonb) as x(owner text, pack bigint, entries text)
  on conflict (owner, pack) do update set entries = excluded.entries";

/// Correspondents of users. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CorrespondentRecords {
    pub(in crate::records) db: Database,
}

impl CorrespondentRecords {
    /// Reads these packs, lets `change` change and add some, and writes what it returns, all or nothing.
    pub async fn change(&self, asked: &[PackName], change: impl FnOnce(Packs) -> Packs) -> Result<(), RecordsError> {
        let asked = PastMailAsked { packs: asked.to_vec(), addresses: Vec::new() };
        match &self.db {
            Database::Sqlite { write, .. } => {
                let mut connection = write.lock().await?;
                change_in_sqlite(&mut connection, &asked, change).await
            }
            Database::Postgres(pool) => in_time(change_in_postgres(pool, &asked, change)).await,
        }
    }

    /// From now on it is recorded who writes to these addresses.
    pub async fn open_letters(&self, addresses: &[String]) -> Result<(), RecordsError> {
        let json = serde_json::json!(addresses).to_string();
        let sql = self.db.either(
            "insert into letters (address, entries) select value, '' from json_each($1) where true on conflict do nothing",
            "insert into letters (address, entries) select a, '' from jsonb_array_elements_text($1::jsonb) as a order by a
               on conflict do nothing",
        );
        write!(self, pool => sqlx::query(sql).bind(&json).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Somebody wrote to an address: `entry` is put first there, and at most this many characters are kept in all. Nothing happens
    /// for an address that was not opened.
    pub async fn add_letter(&self, address: &str, entry: &str, most: i64) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query(
            "update letters set entries = substr($2 || replace(entries, $2, ''), 1, cast($3 as integer)) where address = $1")
            .bind(address).bind(entry).bind(most).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// How many octets the packs of one user have.
    pub async fn octets(&self, owner: &str) -> Result<i64, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select cast(coalesce(sum(length(entries)), 0) as bigint) from correspondents where owner = $1")
            .bind(owner).fetch_one(pool).await?))
    }
}

#[derive(Serialize)]
struct KeptPack {
    owner: String,
    pack: i64,
    entries: String,
}

fn kept(packs: Packs) -> Option<String> {
    let hex = |entries: &[u8]| entries.iter().map(|octet| format!("{octet:02x}")).collect();
    let rows: Vec<KeptPack> =
        packs.into_iter().map(|((owner, pack), entries)| KeptPack { owner, pack, entries: hex(&entries) }).collect();
    // Rows consist of plain text and numbers, which JSON can always express.
    (!rows.is_empty()).then(|| serde_json::to_string(&rows).unwrap_or_default())
}

async fn change_in_sqlite(
    connection: &mut SqliteConnection,
    asked: &PastMailAsked,
    change: impl FnOnce(Packs) -> Packs,
) -> Result<(), RecordsError> {
    // If the caller is dropped, this is rolled back, because the connection is shared.
    let mut tx = connection.begin_with("begin immediate").await?;
    let [packs, letters] = asked.parameters();
    let rows = sqlx::query(ASK_SQLITE).bind(packs).bind(letters).fetch_all(&mut *tx).await?;
    let mut found = PastMailFound::default();
    for row in &rows {
        found.packs.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
    }
    if let Some(json) = kept(change(found.packs)) {
        sqlx::query(KEEP_SQLITE).bind(json).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

async fn change_in_postgres(
    pool: &PgPool,
    asked: &PastMailAsked,
    change: impl FnOnce(Packs) -> Packs,
) -> Result<(), RecordsError> {
    let mut owners: Vec<&str> = asked.packs.iter().map(|(owner, _)| owner.as_str()).collect();
    owners.sort_unstable();
    owners.dedup();
    let mut tx = begin_in_postgres(pool).await?;
    sqlx::query("select 1 from throttles where identity in (select jsonb_array_elements_text($1::jsonb)) order by identity for update")
        .bind(serde_json::json!(owners).to_string())
        .fetch_all(&mut *tx)
        .await?;
    let found = find_in_postgres(&mut tx, asked).await?;
    if let Some(json) = kept(change(found.packs)) {
        sqlx::query(KEEP_POSTGRES).bind(json).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// What is known of past mail, within a transaction.
pub(super) async fn find_in_postgres(
    connection: &mut sqlx::PgConnection,
    asked: &PastMailAsked,
) -> Result<PastMailFound, RecordsError> {
    let mut found = PastMailFound::default();
    let [packs, letters] = asked.parameters();
    if !asked.packs.is_empty() {
        for row in sqlx::query(PACKS_POSTGRES).bind(packs).fetch_all(&mut *connection).await? {
            found.packs.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        }
    }
    if !asked.addresses.is_empty() {
        for row in sqlx::query(LETTERS_POSTGRES).bind(letters).fetch_all(&mut *connection).await? {
            found.letters.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    Ok(found)
}
