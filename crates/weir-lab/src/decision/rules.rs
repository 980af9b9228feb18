//! What the plugins of the lab ask of a leader: their order, what each sample needs, and how many children there may be.

use super::PluginName;
use super::tracked_sample::TrackedSample;
use crate::active;
use crate::choices::{Choices, plain_version};
use crate::chosen;
use crate::plugin::{Plugin, Run};
use crate::wire::ChildLimits;
use std::sync::Arc;

/// The rules of a lab.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The plugins of the lab.
    pub plugins: Arc<[Plugin]>,
    /// How deeply samples may be nested in samples.
    pub depth_max: u8,
    /// How many samples may be found in one that was submitted, all together; and how many bytes one plugin may return.
    pub children: ChildLimits,
    /// A machine with less free memory gets no samples.
    pub memory_free_min: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        let children = ChildLimits { count: 100, bytes: 256 << 20 };
        Rules { plugins: Arc::from([]), depth_max: 4, children, memory_free_min: 128 << 20 }
    }
}

impl Rules {
    fn plugin(&self, name: &PluginName) -> Option<&Plugin> {
        self.plugins
            .iter()
            .find(|plugin| (plugin.name.as_str(), plugin.version.as_str()) == (&name.0, plain_version(&name.1)))
    }

    /// Whether one of these plugins runs samples in a VM.
    pub(super) fn runs_any(&self, plugins: &[PluginName]) -> bool {
        plugins.iter().any(|name| self.runs(name))
    }

    /// Whether results of this plugin are not used for another sample of the same content.
    pub(super) fn never_caches(&self, name: &PluginName) -> bool {
        self.plugin(name).is_some_and(|plugin| !plugin.cache)
    }

    /// Whether it can call this file safe although it was not run, or not as what its name says. A plugin that this lab does not have cannot,
    /// and neither can one that has run it as something else.
    pub(super) fn vouches(&self, name: &PluginName, held: &TrackedSample) -> bool {
        let is_other = |plugin: &Plugin| plugin.run == Run::Vm && held.otherwise.is_some();
        self.plugin(name).is_some_and(|plugin| plugin.vouches && !is_other(plugin))
    }

    /// Whether this plugin runs samples in a VM.
    pub(super) fn runs(&self, name: &PluginName) -> bool {
        self.plugin(name).is_some_and(|plugin| plugin.run == Run::Vm)
    }

    /// What distinguishes names by which this plugin may say different things of the same content.
    pub(super) fn reading(&self, plugin: &PluginName, name: &str) -> String {
        active::reading(self.runs(plugin), name)
    }

    /// Whether what this plugin says of a content under one name holds under the other.
    pub(super) fn are_alike(&self, plugin: &PluginName, one: &str, other: &str) -> bool {
        self.reading(plugin, one) == self.reading(plugin, other)
    }

    /// What a sample of this type needs under these choices, in the form of the database.
    pub(super) fn needs(&self, file_type: &str, choices: &Choices) -> String {
        chosen::needs(choices, &self.plugins, file_type)
    }

    /// The version under which a result is stored for a sample with these choices.
    pub(super) fn version(&self, name: &PluginName, choices: &Choices) -> String {
        choices.version(&name.0, &name.1, self.runs(name))
    }

    /// Divides the plugins that a sample still needs into those whose turn it is and the rest. It is a plugin's turn when the plugins that it requires have
    /// succeeded and none of a lower stage is left.
    pub(super) fn turn(&self, wanted: Vec<PluginName>) -> (Vec<PluginName>, Vec<PluginName>) {
        let stage = |name: &PluginName| self.plugin(name).map_or(0, |plugin| plugin.stage);
        let plain = |name: &PluginName| self.plugin(name).is_none_or(|plugin| plugin.requires.is_empty());
        let first = wanted.first().map_or(0, stage);
        if wanted.iter().all(|name| plain(name) && stage(name) == first) {
            return (wanted, Vec::new());
        }
        let is_wanted = |required: &String| wanted.iter().any(|(name, _)| name == required);
        let ready = |name: &PluginName| self.plugin(name).is_none_or(|plugin| !plugin.requires.iter().any(is_wanted));
        let Some(lowest) = wanted.iter().filter(|name| ready(name)).map(stage).min() else {
            // They wait for each other, so their order is given up.
            return (wanted, Vec::new());
        };
        let now: Vec<bool> = wanted.iter().map(|name| ready(name) && stage(name) == lowest).collect();
        let (mut turn, mut rest) = (Vec::new(), Vec::new());
        for (name, now) in wanted.into_iter().zip(now) {
            if now { turn.push(name) } else { rest.push(name) }
        }
        (turn, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn plugins_take_turns() {
        let plugin = |name: &str, more: &str| {
            Plugin::parse(&format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"x\"]\n{more}"), Path::new(""))
                .unwrap()
        };
        let plugins = [
            plugin("a", ""),
            plugin("b", "requires = [\"a\"]"),
            plugin("c", "stage = 2"),
            plugin("d", ""),
            plugin("e", "requires = [\"f\"]"),
            plugin("f", "requires = [\"e\"]"),
        ];
        let rules = Rules { plugins: plugins.into(), ..Rules::default() };
        let names = |names: &str| -> Vec<PluginName> {
            names.split_whitespace().map(|name| (name.into(), "1".into())).collect()
        };
        let turns = |wanted: &str| {
            let (mut all, mut left) = (Vec::new(), names(wanted));
            while !left.is_empty() {
                let (turn, rest) = rules.turn(left);
                all.push(turn.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "));
                left = rest;
            }
            all
        };
        assert_eq!(turns("a b c d"), ["a d", "b", "c"]);
        assert_eq!(turns("b c"), ["b", "c"], "what b requires is there already");
        assert_eq!(turns("a d unknown"), ["a d unknown"]);
        assert_eq!(turns("e f"), ["e f"]);
        assert_eq!(turns(""), [] as [&str; 0]);
    }
}
