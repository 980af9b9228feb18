//! The samples that were submitted, and how each ended.

use super::fenced::{fence_in_postgres, fenced_in_sqlite};
use super::leader::Fence;
use crate::records::{Database, RecordsError, begin_in_postgres, in_time, read, write};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use std::time::Duration;

/// A sample that is submitted. Its content is stored before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSample {
    /// Made by the submitter, different for every submission. The same ticket twice is one sample.
    pub ticket: String,
    /// SHA-256 of its content.
    pub hash: String,
    /// Its size in bytes.
    pub size: i64,
    /// The name it came with.
    pub name: String,
    /// Who submits it.
    pub submitter: String,
    /// The directory, that is the priority.
    pub directory: i64,
    /// Its type by content.
    pub file_type: String,
    /// The plugins to run, as JSON pairs of name and version.
    pub needs: String,
    /// The tags that VMs must have, as a JSON list.
    pub tags: String,
    /// The sample in which it was found.
    pub parent: Option<i64>,
    /// The sample that was submitted, of which this one is a part.
    #[serde(default)]
    pub root: Option<i64>,
    /// In how many samples it was found, one inside the other.
    pub depth: i64,
    /// 1 if results of the same content do not count.
    pub forced: i64,
    /// When it came.
    pub arrived_at: i64,
    /// The choices that were made for it, as JSON; empty if none were.
    #[serde(default)]
    pub choices: String,
    /// 1 if because of these choices it is not analysed in the usual way: its verdict is not used for the same content elsewhere.
    #[serde(default)]
    pub partial: i64,
}

/// A sample as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleRow {
    /// Its number.
    pub id: i64,
    /// What was submitted.
    pub given: NewSample,
    /// `queued`, `done`, `quarantined`, `unserviceable` or `cancelled`.
    pub state: String,
    /// Why, in words; may be empty.
    pub why: String,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// How bad it is, its children included: 0 unknown, 1 clean, 2 suspicious, 3 malicious.
    pub verdict: i64,
    /// Why, as a JSON list of sentences about itself alone.
    pub reasons: String,
}

/// Samples of one priority that have not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    /// The directory, that is the priority.
    pub directory: i64,
    /// How many.
    pub samples: i64,
    /// How many of them are with a machine.
    pub running: i64,
    /// When the oldest came.
    pub oldest_at: i64,
}

/// A sample that has not ended, with everything that a new leader must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSample {
    /// The sample.
    pub sample: SampleRow,
    /// Plugins whose result is accepted, as JSON triples of name, version and brief.
    pub have: String,
    /// The same of plugins with an accepted result for another sample of the same content, unless this one is forced; and fourth the name of
    /// that sample, or null if it is forgotten.
    pub cached: String,
    /// Attempts that have failed, expired or were lost with their machine without an accepted result; including those that
    /// a leader left running, because one of them may have crashed it. The plugins of each, as a JSON list of texts.
    pub charged: String,
}

/// Which samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleFilter {
    /// Whose hash begins like this; empty for all.
    pub hash: String,
    /// In this state; empty for all.
    pub state: String,
    /// With this verdict; none for all.
    pub verdict: Option<i64>,
    /// With a lower number than this; for the next page.
    pub before: Option<i64>,
}

/// In the order in which [`sample_row`] reads them.
macro_rules! columns {
    () => {
        "id, ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, depth, forced, arrived_at, state, why, ended_at, root, verdict, reasons, choices, partial"
    };
}

macro_rules! sample_row {
    ($row:expr) => {
        SampleRow {
            id: $row.try_get(0)?,
            given: NewSample {
                ticket: $row.try_get(1)?,
                hash: $row.try_get(2)?,
                size: $row.try_get(3)?,
                name: $row.try_get(4)?,
                submitter: $row.try_get(5)?,
                directory: $row.try_get(6)?,
                file_type: $row.try_get(7)?,
                needs: $row.try_get(8)?,
                tags: $row.try_get(9)?,
                parent: $row.try_get(10)?,
                root: $row.try_get(17)?,
                depth: $row.try_get(11)?,
                forced: $row.try_get(12)?,
                arrived_at: $row.try_get(13)?,
                choices: $row.try_get(20)?,
                partial: $row.try_get(21)?,
            },
            state: $row.try_get(14)?,
            why: $row.try_get(15)?,
            ended_at: $row.try_get(16)?,
            verdict: $row.try_get(18)?,
            reasons: $row.try_get(19)?,
        }
    };
}

/// The lab's samples. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SampleRecords {
    pub(in crate::records) db: Database,
}

impl SampleRecords {
    /// Hands in samples; their numbers, in order.
    pub async fn submit(&self, samples: &[NewSample]) -> Result<Vec<i64>, RecordsError> {
        if samples.is_empty() {
            return Ok(Vec::new());
        }
        let rows = serde_json::to_string(samples).unwrap_or_default();
        let sql = self.db.either(SUBMIT_SQLITE, SUBMIT_POSTGRES);
        write!(self, pool => sqlx::query(sql).bind(&rows).execute(pool).await.map(drop)?);
        let tickets: Vec<&str> = samples.iter().map(|sample| sample.ticket.as_str()).collect();
        let tickets = serde_json::json!(tickets).to_string();
        let sql = self.db.either(
            "select s.id, j.key + 0 from json_each($1) j join lab_samples s on s.ticket = j.value order by 2",
            "select s.id, j.place from jsonb_array_elements_text($1::jsonb) with ordinality as j(ticket, place)
             join lab_samples s on s.ticket = j.ticket order by j.place",
        );
        let found: Vec<i64> = write!(self, pool => sqlx::query(sql).bind(&tickets).fetch_all(pool).await?.iter()
            .map(|row| row.try_get(0)).collect::<Result<_, _>>()?);
        match found.len() == samples.len() {
            true => Ok(found),
            false => Err(RecordsError::Corrupt("samples that were handed in are not there".into())),
        }
    }

    /// Samples that have not ended, with a number above `after`, by number: what a leader must schedule.
    pub async fn open(&self, after: i64, most: i64) -> Result<Vec<OpenSample>, RecordsError> {
        let sql = self.db.either(OPEN_SQLITE, OPEN_POSTGRES);
        Ok(read!(self, pool => sqlx::query(sql).bind(after).bind(most).fetch_all(pool).await?.iter()
            .map(|row| Ok::<_, sqlx::Error>(OpenSample { sample: sample_row!(row), have: row.try_get(22)?, charged: row.try_get(23)?, cached: row.try_get(24)? }))
            .collect::<Result<_, _>>()?))
    }

    /// How many samples have not ended, with a number up to `last`.
    pub async fn open_count(&self, last: i64) -> Result<i64, RecordsError> {
        let sql = "select count(*) from lab_samples where ended_at is null and id <= $1";
        Ok(read!(self, pool => sqlx::query_scalar(sql).bind(last).fetch_one(pool).await?))
    }

    /// Samples, the newest first.
    pub async fn list(&self, filter: &SampleFilter, most: i64) -> Result<Vec<SampleRow>, RecordsError> {
        // A range, so that an index can be used: no hexadecimal digit is above `g`. Without a hash there is no range, because the database would use
        // that index for a range over all hashes too, and then sort a million samples by number.
        let (from, to) = (filter.hash.clone(), format!("{}g", filter.hash));
        let (hash, id) = match filter.hash.as_str() {
            "" => ("$1 < $2", "id"),
            // The plus sign keeps the database from using the index of ids: few samples have a given beginning, and it would search
            // all of them.
            _ => ("hash >= $1 and hash < $2", "+id"),
        };
        let state = if filter.state.is_empty() { "$3 = ''" } else { "state = $3" };
        let verdict = if filter.verdict.is_none() { "$5 < 0" } else { "verdict = $5" };
        let sql = sqlx::AssertSqlSafe(format!(
            concat!(
                "select ",
                columns!(),
                " from lab_samples where {hash} and {state} and {id} < $4 and {verdict} order by {id} desc limit $6"
            ),
            hash = hash,
            state = state,
            id = id,
            verdict = verdict
        ));
        Ok(read!(self, pool => sqlx::query(sql)
            .bind(from).bind(to).bind(&filter.state).bind(filter.before.unwrap_or(i64::MAX)).bind(filter.verdict.unwrap_or(-1)).bind(most)
            .fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(sample_row!(row))).collect::<Result<_, _>>()?))
    }

    /// One sample.
    pub async fn find(&self, id: i64) -> Result<Option<SampleRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(concat!("select ", columns!(), " from lab_samples where id = $1"))
            .bind(id).fetch_optional(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(sample_row!(row)))
            .next().transpose()?))
    }

    /// The samples that were found in one, in order.
    pub async fn children(&self, parent: i64, most: i64) -> Result<Vec<SampleRow>, RecordsError> {
        Ok(
            read!(self, pool => sqlx::query(concat!("select ", columns!(), " from lab_samples where parent = $1 order by id limit $2"))
            .bind(parent).bind(most).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(sample_row!(row)))
            .collect::<Result<_, _>>()?),
        )
    }

    /// The tickets of all samples that were found in these, however deep, each with the one that was submitted.
    pub async fn families(&self, roots: &[i64]) -> Result<Vec<(i64, String)>, RecordsError> {
        let roots = serde_json::json!(roots).to_string();
        let sql = self.db.either(
            "select root, ticket from lab_samples where root in (select value from json_each($1))",
            "select root, ticket from lab_samples where root in (select jsonb_array_elements_text($1::jsonb)::bigint)",
        );
        Ok(read!(self, pool => sqlx::query_as(sql).bind(&roots).fetch_all(pool).await?))
    }

    /// What waits in each priority, the most urgent first.
    pub async fn queue(&self) -> Result<Vec<QueueRow>, RecordsError> {
        let rows: Vec<(i64, i64, i64, i64)> = read!(self, pool => sqlx::query_as(
            "select directory, count(*), count(a.sample), min(arrived_at)
             from lab_samples s left join (select distinct sample from lab_attempts where ended_at is null) a on a.sample = s.id
             where s.ended_at is null group by directory order by directory").fetch_all(pool).await?);
        let row = |(directory, samples, running, oldest_at)| QueueRow { directory, samples, running, oldest_at };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Samples that wait for a machine: the most urgent first, the oldest of a priority first.
    pub async fn waiting(&self, most: i64) -> Result<Vec<SampleRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(concat!("select ", columns!(), " from lab_samples s where ended_at is null
             and not exists (select 1 from lab_attempts a where a.sample = s.id and a.ended_at is null) order by directory, id limit $1"))
            .bind(most).fetch_all(pool).await?.iter().map(|row| Ok::<_, sqlx::Error>(sample_row!(row))).collect::<Result<_, _>>()?))
    }

    /// How many samples are in each state.
    pub async fn states(&self) -> Result<Vec<(String, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as("select state, count(*) from lab_samples group by state order by state")
            .fetch_all(pool).await?))
    }

    /// Which of these hashes no sample has.
    pub async fn strays(&self, hashes: &[String]) -> Result<Vec<String>, RecordsError> {
        let hashes = serde_json::json!(hashes).to_string();
        let sql = self.db.either(
            "select value from json_each($1) where not exists (select 1 from lab_samples s where s.hash = value)",
            "select hash from (select jsonb_array_elements_text($1::jsonb) as hash) as given
             where not exists (select 1 from lab_samples s where s.hash = given.hash)",
        );
        Ok(read!(self, pool => sqlx::query_scalar(sql).bind(&hashes).fetch_all(pool).await?))
    }

    /// Forgets up to `most` samples that ended longer than `keep` ago by the database's clock, with their attempts and results;
    /// none if the fence's lease is not alive. A result stays as long as another sample has the same content, because that sample may rely
    /// on it.
    pub async fn prune(&self, fence: &Fence, keep: Duration, most: i64) -> Result<Option<Pruned>, RecordsError> {
        let keep = i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX);
        match &self.db {
            Database::Sqlite { write, .. } => {
                fenced_in_sqlite!(write, fence, connection => prune_in_sqlite(connection, keep, most).await?)
            }
            Database::Postgres(pool) => in_time(prune_in_postgres(pool, fence, keep, most)).await,
        }
    }
}

/// What was forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many samples.
    pub samples: usize,
    /// The hashes that no sample has any more.
    pub hashes: Vec<String>,
}

/// The statements between the fence and the commit, the same for both databases except for how lists are written.
macro_rules! prune {
    ($connection:expr, $old:expr, $numbers:expr, $texts:expr) => {{
        let old: Vec<(i64, String)> = $old.fetch_all(&mut *$connection).await?;
        let ids = serde_json::json!(old.iter().map(|(id, _)| id).collect::<Vec<_>>()).to_string();
        let hashes = serde_json::json!(old.iter().map(|(_, hash)| hash).collect::<Vec<_>>()).to_string();
        for statement in [
            concat!("delete from lab_samples where id in ", $numbers),
            concat!("delete from lab_attempts where sample in ", $numbers),
            concat!("delete from lab_results where accepted = 0 and sample in ", $numbers),
        ] {
            sqlx::query(statement).bind(&ids).execute(&mut *$connection).await?;
        }
        let gone = concat!(
            "select distinct hash from (",
            $texts,
            ") as old where not exists (select 1 from lab_samples s where s.hash = old.hash)"
        );
        let gone: Vec<String> = sqlx::query_scalar(gone).bind(&hashes).fetch_all(&mut *$connection).await?;
        let hashes = serde_json::json!(gone).to_string();
        let results = concat!("delete from lab_results where hash in (", $texts, ")");
        sqlx::query(results).bind(&hashes).execute(&mut *$connection).await?;
        Pruned { samples: old.len(), hashes: gone }
    }};
}

async fn prune_in_sqlite(
    connection: &mut sqlx::SqliteConnection,
    keep: i64,
    most: i64,
) -> Result<Pruned, RecordsError> {
    let old = sqlx::query_as(
        "select id, hash from lab_samples where ended_at < cast(unixepoch('subsec') * 1000 as integer) * 1000000 - $1
         order by ended_at limit $2",
    );
    Ok(prune!(
        connection,
        old.bind(keep).bind(most),
        "(select value from json_each($1))",
        "select value as hash from json_each($1)"
    ))
}

async fn prune_in_postgres(
    pool: &sqlx::PgPool,
    fence: &Fence,
    keep: i64,
    most: i64,
) -> Result<Option<Pruned>, RecordsError> {
    let mut tx = begin_in_postgres(pool).await?;
    let alive = sqlx::query(fence_in_postgres!()).bind(fence.epoch).bind(&fence.holder);
    if alive.fetch_all(&mut *tx).await?.is_empty() {
        return Ok(None);
    }
    let old = sqlx::query_as(
        "select id, hash from lab_samples
         where ended_at < (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000000 - $1
         order by ended_at limit $2",
    );
    let pruned = prune!(
        tx,
        old.bind(keep).bind(most),
        "(select jsonb_array_elements_text($1::jsonb)::bigint)",
        "select jsonb_array_elements_text($1::jsonb) as hash"
    );
    tx.commit().await?;
    Ok(Some(pruned))
}

const SUBMIT_SQLITE: &str = "insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root,
    depth, forced, arrived_at, choices, partial, state, why)
  select value ->> 'ticket', value ->> 'hash', value ->> 'size', value ->> 'name', value ->> 'submitter', value ->> 'directory',
    value ->> 'file_type', value ->> 'needs', value ->> 'tags', value ->> 'parent', value ->> 'root', value ->> 'depth', value ->> 'forced',
    value ->> 'arrived_at', coalesce(value ->> 'choices', ''), coalesce(value ->> 'partial', 0), 'queued', '' from json_each($1) where true on conflict (ticket) do nothing";
const SUBMIT_POSTGRES: &str = "insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root,
    depth, forced, arrived_at, choices, partial, state, why)
  select ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root, depth, forced, arrived_at, coalesce(choices, ''), coalesce(partial, 0), 'queued', ''
  from jsonb_to_recordset($1::jsonb) as x(ticket text, hash text, size bigint, name text, submitter text, directory bigint,
    file_type text, needs text, tags text, parent bigint, root bigint, depth bigint, forced bigint, arrived_at bigint,
    choices text, partial bigint)
  on conflict (ticket) do nothing";
const OPEN_SQLITE: &str = concat!("select ", columns!(), ",
    (select json_group_array(json_array(plugin, version, brief)) from lab_results r where r.sample = s.id and accepted = 1),
    (select json_group_array(a.plugins) from lab_attempts a where a.sample = s.id and a.outcome in ('', 'abandoned', 'failed', 'expired', 'lost')
      and not exists (select 1 from lab_results r where r.attempt = a.id and r.accepted = 1)),
    (select json_group_array(json_array(r.plugin, r.version, r.brief, o.name)) from lab_results r left join lab_samples o on o.id = r.sample
      where s.forced = 0 and r.hash = s.hash and r.accepted = 1 and r.sample <> s.id)
  from lab_samples s where ended_at is null and s.id > $1 order by s.id limit $2");
const OPEN_POSTGRES: &str = concat!("select ", columns!(), ",
    coalesce((select json_agg(json_build_array(plugin, version, brief))::text from lab_results r where r.sample = s.id and accepted = 1), '[]'),
    coalesce((select json_agg(a.plugins)::text from lab_attempts a where a.sample = s.id and a.outcome in ('', 'abandoned', 'failed', 'expired', 'lost')
      and not exists (select 1 from lab_results r where r.attempt = a.id and r.accepted = 1)), '[]'),
    coalesce((select json_agg(json_build_array(r.plugin, r.version, r.brief, o.name))::text from lab_results r
      left join lab_samples o on o.id = r.sample
      where s.forced = 0 and r.hash = s.hash and r.accepted = 1 and r.sample <> s.id), '[]')
  from lab_samples s where ended_at is null and id > $1 order by id limit $2");
