//! When the same content is handed in several times at once, the results of the first sample count for those that wait behind it.
//!
//! Results that the database had when a sample was taken in count from the beginning. This module remembers the results that came since: a
//! bounded number, for as long as this leader acts.

use super::tracked_sample::TrackedSample;
use super::{Decision, Now, PluginName};
use crate::verdict::Brief;
use std::collections::HashMap;
use weir_core::runq::{Assignment, PluginId};
use weir_store::samples::SampleHash;

/// How many results are remembered.
const RECENT_MAX: usize = 1_024;
/// How many of them one commit may have before further samples of the same content are analysed in the usual way: a thousand may end at once.
const BATCH_MAX: usize = 1_000;

/// The recent results of plugins, by their numbers, for each content and each way in which names have it run or read.
pub(super) type RecentResults = HashMap<(SampleHash, u32, String), Brief>;

impl Decision {
    /// A plugin has returned a result that counts.
    pub(super) fn remember(&mut self, held: &TrackedSample, plugin: &PluginName, brief: &Brief) {
        let Some(number) = self.plugins.find(plugin).filter(|_| !self.rules.never_caches(plugin)) else { return };
        // What had no room where this sample was may have some elsewhere.
        if brief.partial {
            return;
        }
        if self.recent_results.len() >= RECENT_MAX {
            self.recent_results.clear();
        }
        let reading = self.rules.reading(plugin, &held.name);
        self.recent_results.insert((held.hash, number, reading), brief.clone());
    }

    /// Whether all results that an attempt would return have come for the same content in the meantime: then nothing is started.
    pub(super) fn is_known(&mut self, now: Now, start: &Assignment) -> bool {
        let Some(known) = self.known(start) else { return false };
        let sample = start.attempt.sample;
        for (plugin, mut brief) in known {
            if let Some(parent) = self.samples.get(&sample).cloned() {
                self.add_children(now, &parent, &mut brief);
                let name = self.plugins.name(plugin.number().into());
                let vouches = name.is_some_and(|name| self.rules.vouches(name, &parent));
                if let Some(held) = self.samples.get_mut(&sample) {
                    held.learn(&brief.findings, vouches);
                }
            }
            self.scheduler.known(now.clock, sample, plugin);
        }
        // It may need other plugins, on other machines.
        if self.scheduler.put_off(now.clock, start.attempt) {
            self.scheduler.resume(now.clock, sample);
        }
        // The VM was not told anything and is as clean as before.
        self.scheduler.ready(now.clock, start.vm);
        true
    }

    fn known(&self, start: &Assignment) -> Option<Vec<(PluginId, Brief)>> {
        let held = self.samples.get(&start.attempt.sample).filter(|held| !held.is_of_its_own())?;
        let of = |plugin: PluginId| {
            let reading = self.rules.reading(self.plugins.name(plugin.number().into())?, &held.name);
            let known = self.recent_results.get(&(held.hash, plugin.number().into(), reading))?;
            Some((plugin, known.clone()))
        };
        let known: Vec<(PluginId, Brief)> = start.plugins.iter().map(of).collect::<Option<_>>()?;
        // What another brought elsewhere would be left out of this sample without a word.
        let too_deep = held.depth >= self.rules.depth_max && known.iter().any(|(_, brief)| !brief.children.is_empty());
        (!too_deep && !known.is_empty() && self.batch_len() < BATCH_MAX).then_some(known)
    }
}
