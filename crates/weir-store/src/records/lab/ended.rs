//! Samples in the order in which they ended, for the webhook, which reports each of them once; and how much malware was found lately.

use super::SampleRecords;
use crate::records::{RecordsError, read};

/// How many rows are read to count malware: a busy lab is counted by its newest samples.
const COUNTED_MAX: i64 = 20_000;

/// Malware that the lab found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MalwareCount {
    /// Samples with that verdict that ended lately.
    pub lately: i64,
    /// The same within the day.
    pub day: i64,
    /// Some of them: their numbers and names, the newest first.
    pub newest: Vec<(i64, String)>,
}

impl SampleRecords {
    /// Samples that were submitted and found to be malicious, and ended at `day` or later; `newest` of them are named.
    pub async fn malware(&self, lately: i64, day: i64, newest: i64) -> Result<MalwareCount, RecordsError> {
        let counted = "select cast(coalesce(sum(case when ended_at >= $1 then 1 else 0 end), 0) as bigint), count(*)
            from (select ended_at, verdict, parent from lab_samples where ended_at >= $2 order by ended_at desc limit $3) as ended
            where verdict = 3 and parent is null";
        let (lately_found, day_found): (i64, i64) = read!(self, pool => sqlx::query_as(counted)
            .bind(lately).bind(day).bind(COUNTED_MAX).fetch_one(pool).await?);
        let names = "select id, name from lab_samples where ended_at >= $1 and verdict = 3 and parent is null
            order by ended_at desc limit $2";
        let newest = read!(self, pool => sqlx::query_as(names).bind(lately).bind(newest).fetch_all(pool).await?);
        Ok(MalwareCount { lately: lately_found, day: day_found, newest })
    }

    /// When samples ended, and which, after this one.
    pub async fn ended(&self, (at, id): (i64, i64), most: i64) -> Result<Vec<(i64, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select ended_at, id from lab_samples where ended_at >= $1 and (ended_at > $1 or id > $2) order by ended_at, id limit $3")
            .bind(at).bind(id).bind(most).fetch_all(pool).await?))
    }
}
