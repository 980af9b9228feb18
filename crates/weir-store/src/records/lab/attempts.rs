//! Attempts and results in the records. Only the acting leader writes them, with one fenced statement for each batch.

use super::fenced::{fence_in_postgres, fenced_in_sqlite};
use super::leader::Fence;
use super::samples::NewSample;
use crate::records::{Database, RecordsError, in_time, read};
use serde::{Deserialize, Serialize};
use sqlx::Row;

macro_rules! nobody_knows {
    () => {
        "nothing speaks against it, and nobody says that it is harmless: it was not run, and no scanner vouches for it"
    };
}
/// The one reason for "unknown" that is no doubt: nothing was found, and nothing was kept from being looked at. A text or picture of which that is
/// all there is to say takes nothing from the sample in which it was found.
pub const NOBODY_KNOWS: &str = nobody_knows!();

/// A sample that was assigned to a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Its number, made by the leader: never used again.
    pub id: i64,
    /// The sample.
    pub sample: i64,
    /// The epoch in which it was assigned.
    pub epoch: i64,
    /// The machine.
    pub node: String,
    /// The VM.
    pub vm: String,
    /// The plugins, as JSON pairs of name and version.
    pub plugins: String,
    /// When that was written, by the database's clock, as the lease is: a leader that hung cannot claim that it was before its term
    /// ended. The value in a batch is ignored.
    pub started_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// How: empty while it runs.
    pub outcome: String,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptEnd {
    /// The attempt.
    pub id: i64,
    /// One word: `done`, `failed`, `expired`, `lost`, `cancelled`, `satisfied`; or `refused: WHY`, `lacks: WHY`. An attempt that a leader left
    /// running is `abandoned`, or `interrupted` if its sample cannot be the reason.
    pub outcome: String,
    /// When.
    pub ended_at: i64,
}

/// The result of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRow {
    /// The attempt.
    pub attempt: i64,
    /// The plugin.
    pub plugin: String,
    /// Its version.
    pub version: String,
    /// The sample.
    pub sample: i64,
    /// The sample's hash.
    pub hash: String,
    /// 1 if it counts, as the first valid one does.
    pub accepted: i64,
    /// `done` or `failed`.
    pub outcome: String,
    /// The report.
    pub report: String,
    /// What a leader must know of it, as JSON.
    pub brief: String,
    /// When it came.
    pub at: i64,
}

/// A change of a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SampleChange {
    /// The sample.
    pub id: i64,
    /// Its state from now on.
    pub state: String,
    /// Why, in words.
    pub why: String,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// How bad it is. A worse verdict that came from its children stays, and the samples in which it was found become no better. None of them is clean
    /// if it is not: what is in a sample and was not seen is a doubt about the sample.
    pub verdict: i64,
    /// Why, as a JSON list of sentences.
    pub reasons: String,
}

/// What a leader wants to write, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabBatch {
    /// Samples that are assigned.
    pub attempts: Vec<AttemptRow>,
    /// Attempts that ended.
    pub ends: Vec<AttemptEnd>,
    /// Results that came in.
    pub results: Vec<ResultRow>,
    /// Samples that changed.
    pub changes: Vec<SampleChange>,
    /// Samples that were found in others. One whose ticket is known already is not added again.
    pub children: Vec<NewSample>,
    /// At most this many with the same root; more are not added.
    pub children_max: i64,
}

impl LabBatch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
            && self.ends.is_empty()
            && self.results.is_empty()
            && self.changes.is_empty()
            && self.children.is_empty()
    }

    fn parameters(&self) -> [String; 5] {
        // Rows are plain text and numbers: there is nothing in them that JSON cannot say.
        let json = |rows: serde_json::Result<String>| rows.unwrap_or_default();
        [
            json(serde_json::to_string(&self.attempts)),
            json(serde_json::to_string(&self.ends)),
            json(serde_json::to_string(&self.results)),
            json(serde_json::to_string(&self.changes)),
            json(serde_json::to_string(&self.children)),
        ]
    }
}

/// A result that may count for another sample of the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownResult {
    /// The attempt that brought it.
    pub attempt: i64,
    /// Whose it is.
    pub plugin: String,
    /// And of which version.
    pub version: String,
    /// The sample that was analysed.
    pub sample: i64,
    /// The name it came with; none if the sample is forgotten.
    pub name: Option<String>,
}

/// Attempts on samples, and their results. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AttemptRecords {
    pub(in crate::records) db: Database,
}

impl AttemptRecords {
    /// Writes a batch if the fence's lease is alive; false if it is not, and then nothing was written.
    pub async fn commit(&self, fence: &Fence, batch: &LabBatch) -> Result<bool, RecordsError> {
        let (parameters, children_max) = (batch.parameters(), batch.children_max);
        match &self.db {
            Database::Sqlite { write, .. } => {
                let written = fenced_in_sqlite!(write, fence, connection =>
                    write_in_sqlite(connection, &parameters, children_max).await?);
                Ok(written?.is_some())
            }
            Database::Postgres(pool) => {
                let sql = sqlx::query_scalar::<_, i64>(COMMIT_POSTGRES).bind(fence.epoch).bind(&fence.holder);
                let sql = parameters.into_iter().fold(sql, |sql, json| sql.bind(json)).bind(children_max);
                Ok(in_time(async { Ok(sql.fetch_one(pool).await?) }).await? == 1)
            }
        }
    }

    /// Ends the attempts that earlier terms left running, because nobody else would. Returns how many; none if the fence's lease is not alive. Results
    /// that they still bring are accepted all the same.
    ///
    /// An attempt that ran on the machine that led may have crashed it: it is `abandoned`, and charged like those that are lost. One that
    /// ran elsewhere did not, nor did one of a term that this very process held (those from `own_since` on): it is `interrupted`,
    /// and not charged. This happens three times at most, in case that its report is what crashes leaders.
    pub async fn abandon(&self, fence: &Fence, own_since: i64) -> Result<Option<i64>, RecordsError> {
        match &self.db {
            Database::Sqlite { write, .. } => {
                let (epoch, holder) = (fence.epoch, fence.holder.clone());
                let abandoned = fenced_in_sqlite!(write, fence, connection => {
                    let sql = sqlx::query(ABANDON_SQLITE).bind(epoch).bind(holder).bind(own_since);
                    sql.execute(&mut *connection).await?.rows_affected()
                });
                Ok(abandoned?.map(|ended| i64::try_from(ended).unwrap_or(i64::MAX)))
            }
            Database::Postgres(pool) => {
                let sql = sqlx::query_as::<_, (i64, i64)>(ABANDON_POSTGRES)
                    .bind(fence.epoch)
                    .bind(&fence.holder)
                    .bind(own_since);
                let (alive, ended) = in_time(async { Ok(sql.fetch_one(pool).await?) }).await?;
                Ok((alive == 1).then_some(ended))
            }
        }
    }

    /// The attempts of a sample, in order.
    pub async fn of_sample(&self, sample: i64) -> Result<Vec<AttemptRow>, RecordsError> {
        macro_rules! attempt {
            () => {
                |row| {
                    Ok::<_, sqlx::Error>(AttemptRow {
                        id: row.try_get(0)?,
                        sample: row.try_get(1)?,
                        epoch: row.try_get(2)?,
                        node: row.try_get(3)?,
                        vm: row.try_get(4)?,
                        plugins: row.try_get(5)?,
                        started_at: row.try_get(6)?,
                        ended_at: row.try_get(7)?,
                        outcome: row.try_get(8)?,
                    })
                }
            };
        }
        Ok(read!(self, pool => sqlx::query(
            "select id, sample, epoch, node, vm, plugins, started_at, ended_at, outcome from lab_attempts where sample = $1 order by id")
            .bind(sample).fetch_all(pool).await?.iter().map(attempt!()).collect::<Result<_, _>>()?))
    }

    /// The sample of an attempt, the machine that it was assigned to, and its plugins, as JSON pairs of name and version.
    pub async fn place(&self, attempt: i64) -> Result<Option<(i64, String, String)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as("select sample, node, plugins from lab_attempts where id = $1")
            .bind(attempt).fetch_optional(pool).await?))
    }

    /// The results of a sample, accepted and not, in order of plugin and time.
    pub async fn results(&self, sample: i64) -> Result<Vec<ResultRow>, RecordsError> {
        Ok(read!(self, pool => sqlx::query(
            "select attempt, plugin, version, sample, hash, accepted, outcome, report, brief, at from lab_results
             where sample = $1 order by plugin, at, attempt")
            .bind(sample).fetch_all(pool).await?.iter().map(result_row!()).collect::<Result<_, _>>()?))
    }

    /// The latest accepted reports of a plugin, the newest first: sample, hash and report. Only the latest samples are searched, `most` of them.
    pub async fn latest_of(&self, plugin: &str, most: i64) -> Result<Vec<(i64, String, String)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select sample, hash, report from lab_results where plugin = $1 and accepted = 1
               and sample > (select coalesce(max(id), 0) from lab_samples) - $2 order by sample desc")
            .bind(plugin).bind(most).fetch_all(pool).await?))
    }

    /// Accepted results of a content, the latest first, without what they say.
    pub async fn known(&self, hash: &str, most: i64) -> Result<Vec<KnownResult>, RecordsError> {
        let rows: Vec<(i64, String, String, i64, Option<String>)> = read!(self, pool => sqlx::query_as(
            "select r.attempt, r.plugin, r.version, r.sample, o.name from lab_results r left join lab_samples o on o.id = r.sample
             where r.accepted = 1 and r.hash = $1 order by r.at desc, r.attempt desc limit $2")
            .bind(hash).bind(most).fetch_all(pool).await?);
        let known = |(attempt, plugin, version, sample, name)| KnownResult { attempt, plugin, version, sample, name };
        Ok(rows.into_iter().map(known).collect())
    }
}

macro_rules! result_row {
    () => {
        |row| {
            Ok::<_, sqlx::Error>(ResultRow {
                attempt: row.try_get(0)?,
                plugin: row.try_get(1)?,
                version: row.try_get(2)?,
                sample: row.try_get(3)?,
                hash: row.try_get(4)?,
                accepted: row.try_get(5)?,
                outcome: row.try_get(6)?,
                report: row.try_get(7)?,
                brief: row.try_get(8)?,
                at: row.try_get(9)?,
            })
        }
    };
}
use result_row;

async fn write_in_sqlite(
    connection: &mut sqlx::SqliteConnection,
    parameters: &[String; 5],
    children_max: i64,
) -> Result<(), RecordsError> {
    let [attempts, ends, results, changes, children] = parameters;
    for (sql, json) in [
        (ATTEMPTS_SQLITE, attempts),
        (ENDS_SQLITE, ends),
        (RESULTS_SQLITE, results),
        (CHANGES_SQLITE, changes),
        (RAISE_SQLITE, changes),
        (DOUBT_SQLITE, changes),
    ] {
        if json != "[]" {
            sqlx::query(sql).bind(json).execute(&mut *connection).await?;
        }
    }
    if children != "[]" {
        sqlx::query(CHILDREN_SQLITE).bind(children).bind(children_max).execute(connection).await?;
    }
    Ok(())
}

// The last nanosecond of a millisecond, so that a time from a finer clock is before it.
const ATTEMPTS_SQLITE: &str = "insert into lab_attempts (id, sample, epoch, node, vm, plugins, started_at, outcome)
  select value ->> 'id', value ->> 'sample', value ->> 'epoch', value ->> 'node', value ->> 'vm', value ->> 'plugins',
    cast(unixepoch('subsec') * 1000 as integer) * 1000000 + 999999, '' from json_each($1)";
const ENDS_SQLITE: &str = "update lab_attempts set ended_at = x.ended_at, outcome = x.outcome from
  (select value ->> 'id' as id, value ->> 'ended_at' as ended_at, value ->> 'outcome' as outcome from json_each($1)) as x
  where lab_attempts.id = x.id and lab_attempts.ended_at is null";
// Which attempts are charged, in a form for both databases: $2 and $3 are the present leader and the first term of its process.
macro_rules! blamed {
    () => {
        "case when (exists (select 1 from lab_history h where h.epoch = a.epoch and h.holder = a.node) and not (a.node = $2 and a.epoch >= $3))
      or (select count(*) from lab_attempts i where i.sample = a.sample and i.outcome = 'interrupted') >= 3
    then 'abandoned' else 'interrupted' end"
    };
}
const ABANDON_SQLITE: &str = concat!(
    "update lab_attempts as a set outcome = ",
    blamed!(),
    ",
    ended_at = cast(unixepoch('subsec') * 1000 as integer) * 1000000 where ended_at is null and epoch < $1"
);
const RESULTS_SQLITE: &str = "insert into lab_results (attempt, plugin, version, sample, hash, accepted, outcome, report, brief, at)
  select value ->> 'attempt', value ->> 'plugin', value ->> 'version', value ->> 'sample', value ->> 'hash', value ->> 'accepted',
    value ->> 'outcome', value ->> 'report', value ->> 'brief', value ->> 'at' from json_each($1) where true on conflict do nothing";
const CHANGES_SQLITE: &str = "update lab_samples set state = x.state, why = x.why, ended_at = x.ended_at, reasons = x.reasons,
    verdict = max(lab_samples.verdict, x.verdict) from
  (select value ->> 'id' as id, value ->> 'state' as state, value ->> 'why' as why, value ->> 'ended_at' as ended_at,
    value ->> 'verdict' as verdict, value ->> 'reasons' as reasons from json_each($1)) as x where lab_samples.id = x.id";
// A sample in which something bad was found is at least as bad. A clean child (1) says nothing about the sample in which it was found.
const RAISE_SQLITE: &str = "with recursive up(id, verdict) as (
    select s.parent, j.value ->> 'verdict' from json_each($1) j join lab_samples s on s.id = j.value ->> 'id'
      where s.parent is not null and j.value ->> 'verdict' > 1
    union select s.parent, up.verdict from up join lab_samples s on s.id = up.id where s.parent is not null)
  update lab_samples set verdict = u.verdict from (select id, max(verdict) as verdict from up group by id) as u
  where lab_samples.id = u.id and lab_samples.verdict < u.verdict";
// Whether a sample ended with a doubt about what is in it.
macro_rules! is_doubtful {
    ($row:literal) => {
        concat!(
            $row,
            ".ended_at is not null and (",
            $row,
            ".state <> 'done' or (",
            $row,
            ".verdict = 0 and ",
            $row,
            ".reasons <> '[\"",
            nobody_knows!(),
            "\"]'))"
        )
    };
}
// No sample is clean (1) that has something doubtful in it: either of the two may end first.
const DOUBT_SQLITE: &str = concat!(
    "with recursive changed as (select s.* from json_each($1) j join lab_samples s on s.id = j.value ->> 'id'),
  doubted(id) as (select s.id from changed s where ",
    is_doubtful!("s"),
    " union select c.id from changed s join lab_samples c on c.root = coalesce(s.root, s.id) where s.verdict = 1 and ",
    is_doubtful!("c"),
    " union select s.parent from doubted join lab_samples s on s.id = doubted.id where s.parent is not null)
  update lab_samples set verdict = 0 where verdict = 1 and id in (select id from doubted)"
);
// A child that exists already, or that two plugins bring at once, takes one of the places of its family, not two.
const CHILDREN_SQLITE: &str = "insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root,
    depth, forced, arrived_at, choices, partial, state, why)
  select value ->> 'ticket', value ->> 'hash', value ->> 'size', value ->> 'name', value ->> 'submitter', value ->> 'directory',
    value ->> 'file_type', value ->> 'needs', value ->> 'tags', value ->> 'parent', value ->> 'root', value ->> 'depth', value ->> 'forced',
    value ->> 'arrived_at', coalesce(value ->> 'choices', ''), coalesce(value ->> 'partial', 0), 'queued', ''
  from (select value, row_number() over (partition by value ->> 'root' order by key) as place
      from (select min(key) as key, value from json_each($1) group by value ->> 'ticket') n
      where not exists (select 1 from lab_samples s where s.ticket = value ->> 'ticket')) x
  where x.place + (select count(*) from lab_samples s where s.root = x.value ->> 'root') <= $2 on conflict (ticket) do nothing";

const ABANDON_POSTGRES: &str = concat!(
    "with fence as (",
    fence_in_postgres!(),
    "),
  ended as (update lab_attempts a set outcome = ",
    blamed!(),
    ", ended_at = (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000000
    from fence where a.ended_at is null and a.epoch < fence.epoch returning 1)
  select (select count(*) from fence), (select count(*) from ended)"
);
// The fence comes first and locks the lease row: a machine that wants to take over waits until this has committed, or this finds
// no lease and writes nothing. A row can be changed only once in a statement, so the change of a sample and the changes that its children cause
// are one; what other parts of the statement write is not seen, so `after` says how the samples are that end now.
const COMMIT_POSTGRES: &str = concat!("with recursive fence as (", fence_in_postgres!(), "),
  attempts as (insert into lab_attempts (id, sample, epoch, node, vm, plugins, started_at, outcome)
    select id, sample, x.epoch, node, vm, plugins, (extract(epoch from clock_timestamp()) * 1000000)::bigint * 1000, ''
    from fence, jsonb_to_recordset($3::jsonb) as x(id bigint, sample bigint, epoch bigint, node text, vm text, plugins text)),
  ends as (update lab_attempts a set ended_at = x.ended_at, outcome = x.outcome from fence, jsonb_to_recordset($4::jsonb)
      as x(id bigint, ended_at bigint, outcome text) where a.id = x.id and a.ended_at is null),
  results as (insert into lab_results (attempt, plugin, version, sample, hash, accepted, outcome, report, brief, at)
    select attempt, plugin, version, sample, hash, accepted, outcome, report, brief, at from fence, jsonb_to_recordset($5::jsonb)
      as x(attempt bigint, plugin text, version text, sample bigint, hash text, accepted bigint, outcome text, report text, brief text, at bigint)
    on conflict do nothing),
  changed as (select * from jsonb_to_recordset($6::jsonb)
      as x(id bigint, state text, why text, ended_at bigint, verdict bigint, reasons text)),
  up(id, verdict) as (select s.parent, c.verdict from changed c join lab_samples s on s.id = c.id
      where s.parent is not null and c.verdict > 1
    union select s.parent, up.verdict from up join lab_samples s on s.id = up.id where s.parent is not null),
  raised as (select id, max(verdict) as verdict from up group by id),
  after as (select c.id, c.state, c.ended_at, c.reasons, s.root, greatest(s.verdict, c.verdict, coalesce(r.verdict, 0)) as verdict
    from changed c join lab_samples s on s.id = c.id left join raised r on r.id = c.id),
  doubted(id) as (select a.id from after a where ", is_doubtful!("a"), "
    union select k.id from after a join lab_samples k on k.root = coalesce(a.root, a.id) where a.verdict = 1 and ", is_doubtful!("k"), "
    union select s.parent from doubted join lab_samples s on s.id = doubted.id where s.parent is not null),
  wanted as (select coalesce(c.id, r.id, d.id) as id, c.id is not null as whole, c.state, c.why, c.ended_at, c.reasons,
      greatest(coalesce(c.verdict, 0), coalesce(r.verdict, 0)) as verdict, d.id is not null as doubted
    from changed c full join raised r on r.id = c.id full join doubted d on d.id = coalesce(c.id, r.id)),
  changes as (update lab_samples s set state = case when w.whole then w.state else s.state end,
      why = case when w.whole then w.why else s.why end, ended_at = case when w.whole then w.ended_at else s.ended_at end,
      reasons = case when w.whole then w.reasons else s.reasons end,
      verdict = case when w.doubted and greatest(s.verdict, w.verdict) = 1 then 0 else greatest(s.verdict, w.verdict) end
    from fence, wanted w where s.id = w.id and (w.whole or s.verdict < w.verdict or (w.doubted and s.verdict = 1))),
  children as (insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root,
      depth, forced, arrived_at, choices, partial, state, why)
    select ticket, hash, size, name, submitter, directory, file_type, needs, tags, parent, root, depth, forced, arrived_at,
      coalesce(choices, ''), coalesce(partial, 0), 'queued', ''
    from fence, (select n.*, row_number() over (partition by n.root order by n.ticket) as place
      from (select distinct on (x.ticket) x.* from jsonb_to_recordset($7::jsonb)
        as x(ticket text, hash text, size bigint, name text, submitter text, directory bigint, file_type text, needs text, tags text,
          parent bigint, root bigint, depth bigint, forced bigint, arrived_at bigint, choices text, partial bigint)) n
      where not exists (select 1 from lab_samples s where s.ticket = n.ticket)) c
    where c.place + (select count(*) from lab_samples s where s.root = c.root) <= $8 on conflict (ticket) do nothing)
  select count(*) from fence");
