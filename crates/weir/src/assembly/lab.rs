//! From `[lab]` to a lab of one machine: it elects itself and analyses beside that.

use super::machine_name;
use crate::config::Config;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_core::election::ProcessingIndex;
use weir_core::runq;
use weir_lab::cluster::elector::alone;
use weir_lab::cluster::index;
use weir_lab::dispatcher::{Dispatcher, DispatcherSettings};
use weir_lab::identify;
use weir_lab::intake::IntakeSettings;
use weir_lab::node::{Node, NodeSettings};
use weir_lab::plugin::Plugin;
use weir_mail::gate::Foundation;
use weir_store::samples::Samples;

/// A sample that has been coming in for this long comes no more.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Starts the lab, if it is enabled.
pub(crate) fn lab(config: &Config, foundation: &Foundation) -> anyhow::Result<Option<Node>> {
    let lab = &config.lab;
    if !lab.enabled {
        return Ok(None);
    }
    let home = foundation.folder.path().join("lab");
    let folder = if lab.samples.is_empty() { home.join("samples") } else { PathBuf::from(&lab.samples) };
    let samples = Samples::open(&folder).context("the lab's samples cannot be kept")?;
    samples.sweep(LEFT_BEHIND).context("the lab's samples cannot be kept")?;
    let plugins = plugins(Path::new(&lab.plugins))?;
    let threshold = lab.threshold;
    let settings = NodeSettings {
        node: machine_name(),
        analysis: if lab.analysis.is_empty() { home.join("analysis") } else { PathBuf::from(&lab.analysis) },
        intake: IntakeSettings { size_max: lab.sample_bytes_max, ..IntakeSettings::default() },
        scheduling: runq::Settings {
            threshold,
            attempts_max: lab.attempts.min(255) as u8,
            ..runq::Settings::default()
        },
        plugins: plugins.clone().into(),
        keep: lab.keep,
    };
    let processing_index = lab.processing_index.map_or_else(|| index::measure(None), ProcessingIndex);
    let slots = match lab.slots {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        slots => slots,
    };
    let (jobs, tags) = (home.join("jobs"), lab.tags.clone());
    let work = DispatcherSettings { jobs, plugins, slots, tags, processing_index: processing_index.0 };
    let dispatcher = Dispatcher::new(work, samples.clone(), None).context("the lab's jobs cannot be prepared")?;
    let records = foundation.records.clone();
    let (elector, ends) = alone(&settings.node, processing_index, lab.election, records.clone());
    let node = Node::new(settings, records, samples);
    tokio::spawn(elector.run());
    tokio::spawn(node.clone().serve(ends, Some(dispatcher)));
    Ok(Some(node))
}

/// Our own plugins and those of the folder. A plugin that cannot be used is an error: a lab that silently does less is none.
fn plugins(folder: &Path) -> anyhow::Result<Vec<Plugin>> {
    let weir = std::env::current_exe().context("the path of this program is not known")?;
    let own = vec![identify::plugin(&weir)];
    if folder.as_os_str().is_empty() {
        return Ok(own);
    }
    let (plugins, errors) = Plugin::read_all(folder, own);
    if let Some(error) = errors.first() {
        anyhow::bail!("{error}\n  hint: mend the plugin or take it out of {}", folder.display());
    }
    Ok(plugins)
}
