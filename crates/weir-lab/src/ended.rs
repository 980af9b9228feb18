//! Samples in the order in which they ended, for whoever is told of each.

use crate::desk::{LabError, SampleLine};
use crate::node::Node;

impl Node {
    /// Samples that ended after this one (when, and its number), in that order.
    pub async fn ended_after(&self, after: (i64, i64), most: i64) -> Result<Vec<SampleLine>, LabError> {
        let mut samples = Vec::new();
        for (_, id) in self.records().lab_ended(after, most).await? {
            samples.push(self.page(&id.to_string()).await?.sample);
        }
        Ok(samples)
    }
}
