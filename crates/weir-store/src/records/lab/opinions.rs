//! What the lab knows about contents, by their hashes. The mail gate asks this while mail waits for a verdict.

use super::SampleRecords;
use crate::records::{RecordsError, read};
use sqlx::Row;

/// The newest sample with a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpinionRow {
    /// SHA-256 of the content.
    pub hash: String,
    /// The sample.
    pub sample: i64,
    /// `queued`, `done`, `quarantined`, `unserviceable` or `cancelled`.
    pub state: String,
    /// Why, in words; may be empty.
    pub why: String,
    /// How bad it is: 0 unknown, 1 clean, 2 suspicious, 3 malicious.
    pub verdict: i64,
    /// When it ended; none while it or something that was found in it has not.
    pub ended_at: Option<i64>,
}

impl SampleRecords {
    /// The newest sample with each of these contents; none for contents without a sample. A sample that was analysed in another
    /// way than usual does not count, because a submitter must not choose what others are told about a content. A sample whose children have not
    /// ended has not ended either, because their verdicts count for it.
    pub async fn opinions(&self, hashes: &[String]) -> Result<Vec<OpinionRow>, RecordsError> {
        let hashes = serde_json::json!(hashes).to_string();
        let sql = self.db.either(
            "select hash, id, state, why, verdict,
               case when exists (select 1 from lab_samples c where c.root = coalesce(s.root, s.id) and c.ended_at is null)
                 then null else ended_at end
             from lab_samples s where id in (select max(id) from lab_samples
               where partial = 0 and hash in (select value from json_each($1)) group by hash)",
            "select hash, id, state, why, verdict,
               case when exists (select 1 from lab_samples c where c.root = coalesce(s.root, s.id) and c.ended_at is null)
                 then null else ended_at end
             from lab_samples s where id in (select max(id) from lab_samples
               where partial = 0 and hash in (select jsonb_array_elements_text($1::jsonb)) group by hash)",
        );
        Ok(read!(self, pool => sqlx::query(sql).bind(&hashes).fetch_all(pool).await?.iter()
            .map(|row| Ok::<_, sqlx::Error>(OpinionRow {
                hash: row.try_get(0)?, sample: row.try_get(1)?, state: row.try_get(2)?, why: row.try_get(3)?, verdict: row.try_get(4)?,
                ended_at: row.try_get(5)?,
            })).collect::<Result<_, _>>()?))
    }
}
