//! The results of other samples that count for a sample: those of the same content, by names under which a plugin says the same of it. The
//! acting leader uses them in place of an analysis; here they are found again, for pages and reports.

use super::LabError;
use crate::active;
use crate::node::Node;
use crate::plugin::{Plugin, Run};
use std::collections::BTreeMap;
use weir_store::records::{KnownResult, ResultRow, SampleRow};

/// How many results of one content are searched, the latest ones.
const SEARCHED_MAX: i64 = 1_000;

impl Node {
    /// Results for the same content that stand in for results that the sample does not have.
    pub(crate) async fn cached(&self, row: &SampleRow, own: &[ResultRow]) -> Result<Vec<ResultRow>, LabError> {
        let needs: Vec<(String, String)> = serde_json::from_str(&row.given.needs).unwrap_or_default();
        let has = |plugin: &(String, String)| {
            own.iter().any(|result| result.accepted == 1 && (&result.plugin, &result.version) == (&plugin.0, &plugin.1))
        };
        let missing: Vec<_> = needs.into_iter().filter(|plugin| !has(plugin)).collect();
        if missing.is_empty() || row.given.forced != 0 {
            return Ok(Vec::new());
        }
        let known = self.records().lab_attempts().known(&row.given.hash, SEARCHED_MAX).await?;
        // By sample, because the reports of one are read together.
        let mut wanted: BTreeMap<i64, Vec<&KnownResult>> = BTreeMap::new();
        for (name, version) in &missing {
            let is_it = |result: &&KnownResult| (&result.plugin, &result.version) == (name, version);
            if let Some(result) = known.iter().filter(is_it).find(|result| self.counts_for(row, result)) {
                wanted.entry(result.sample).or_default().push(result);
            }
        }
        let mut cached = Vec::new();
        for (sample, known) in wanted {
            let mut brought = self.records().lab_attempts().results(sample).await?;
            brought.retain(|result| {
                known.iter().any(|known| (known.attempt, &known.plugin) == (result.attempt, &result.plugin))
            });
            cached.extend(brought);
        }
        cached.sort_by(|one, other| one.plugin.cmp(&other.plugin));
        Ok(cached)
    }

    /// Whether what a plugin says of another sample holds for this one.
    fn counts_for(&self, row: &SampleRow, result: &KnownResult) -> bool {
        let plugins = &self.settings().plugins;
        let of_it = |plugin: &&Plugin| plugin.name == result.plugin;
        let runs = plugins.iter().filter(of_it).any(|plugin| plugin.run == Run::Vm);
        if plugins.iter().filter(of_it).any(|plugin| !plugin.cache && plugin.version == result.version) {
            return false;
        }
        match &result.name {
            Some(name) => active::reading(runs, name) == active::reading(runs, &row.given.name),
            // The sample is forgotten, and this one has a verdict without a result of its own: it stands on that one.
            None => row.state == "done",
        }
    }
}
