//! What the lab knows about contents, by their hashes. The mail gate asks this while mail waits for a verdict.

use super::SampleRecords;
use crate::records::{RecordsError, read};
use sqlx::Row;

/// A sample with a content that was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpinionRow {
    /// SHA-256 of the content.
    pub hash: String,
    /// The sample.
    pub sample: i64,
    /// The name it came with: by another name the same content may be opened in another way.
    pub name: String,
    /// The type of its content, as the name has it.
    pub file_type: String,
    /// `queued`, `done`, `quarantined`, `unserviceable` or `cancelled`.
    pub state: String,
    /// Why, in words; may be empty.
    pub why: String,
    /// How bad it is: 0 unknown, 1 clean, 2 suspicious, 3 malicious.
    pub verdict: i64,
    /// When it ended; none while it or something that was found in it has not.
    pub ended_at: Option<i64>,
    /// It is malicious, and nobody has had the content analysed again since: that counts, whatever came later and by whatever name.
    pub stands: bool,
}

/// How many samples of one content are told: first the newest for each ending that its names have, because the ending says what opens it.
const TOLD_MAX: i64 = 256;

/// `LIST` stands for the hashes. Malware stays malware, though a later analysis may see nothing: the newest sample that is malicious comes first,
/// unless somebody had the content analysed again (`forced`) after that and it has ended.
const OPINIONS: &str = "with trimmed as (
    select s.*, lower(rtrim(name, '. ')) as plain from lab_samples s where partial = 0 and hash in (LIST)),
  ranked as (
    select trimmed.*, row_number() over (partition by hash, case when plain like '%.%'
        then substr(plain, length(rtrim(plain, replace(plain, '.', ''))) + 1) else '' end order by id desc) as place_of_ending,
      row_number() over (partition by hash, case when state = 'done' then verdict else -1 end order by id desc) as place_of_verdict
    from trimmed),
  mine as (select ranked.*, row_number() over (partition by hash order by place_of_ending, id desc) as place from ranked)
  select hash, id, state, why, verdict,
    case when exists (select 1 from lab_samples c where c.root = coalesce(mine.root, mine.id) and c.ended_at is null)
      then null else ended_at end,
    name, file_type,
    cast(case when state = 'done' and verdict = 3 and place_of_verdict = 1 and not exists (select 1 from lab_samples f
        where f.hash = mine.hash and f.partial = 0 and f.forced = 1 and f.id > mine.id and f.state = 'done'
          and not exists (select 1 from lab_samples c where c.root = coalesce(f.root, f.id) and c.ended_at is null))
      then 1 else 0 end as bigint) as stands
  from mine where place <= $2 or (state = 'done' and verdict = 3 and place_of_verdict = 1)
  order by hash, stands desc, id desc";

impl SampleRecords {
    /// The samples with each of these contents, those that count most first: malware, and then the newest. Samples that were analysed in another
    /// way than usual do not count, because a submitter must not choose what others are told about a content. A sample whose children have not
    /// ended has not ended either, because their verdicts count for it.
    pub async fn opinions(&self, hashes: &[String]) -> Result<Vec<OpinionRow>, RecordsError> {
        let hashes = serde_json::json!(hashes).to_string();
        let list = self.db.either("select value from json_each($1)", "select jsonb_array_elements_text($1::jsonb)");
        let sql = sqlx::AssertSqlSafe(OPINIONS.replace("LIST", list));
        Ok(read!(self, pool => sqlx::query(sql).bind(&hashes).bind(TOLD_MAX).fetch_all(pool).await?.iter()
            .map(|row| Ok::<_, sqlx::Error>(OpinionRow {
                hash: row.try_get(0)?, sample: row.try_get(1)?, state: row.try_get(2)?, why: row.try_get(3)?, verdict: row.try_get(4)?,
                ended_at: row.try_get(5)?, name: row.try_get(6)?, file_type: row.try_get(7)?, stands: row.try_get::<i64, _>(8)? == 1,
            })).collect::<Result<_, _>>()?))
    }
}
