//! Samples in the order in which they ended: for whoever is told of each.

use super::SampleRecords;
use crate::records::{RecordsError, read};

impl SampleRecords {
    /// When samples ended and which, after this one.
    pub async fn ended(&self, (at, id): (i64, i64), most: i64) -> Result<Vec<(i64, i64)>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_as(
            "select ended_at, id from lab_samples where ended_at >= $1 and (ended_at > $1 or id > $2) order by ended_at, id limit $3")
            .bind(at).bind(id).bind(most).fetch_all(pool).await?))
    }
}
