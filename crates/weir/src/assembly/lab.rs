//! From `[lab]` to a lab: of one machine, which elects itself and analyses beside that, or one machine of several.

use super::{machine_name, plugins, vms};
use crate::config::{Config, Lab};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use weir_core::election::ProcessingIndex;
use weir_core::runq;
use weir_lab::cluster::elector::alone;
use weir_lab::cluster::index;
use weir_lab::cluster::site::{Parts, Site, SiteSettings};
use weir_lab::dispatcher::{Dispatcher, DispatcherSettings};
use weir_lab::intake::IntakeSettings;
use weir_lab::node::{Node, NodeSettings};
use weir_lab::plugin::Plugin;
use weir_lab::wire::ChildLimits;
use weir_mail::gate::Foundation;
use weir_store::records::Records;
use weir_store::samples::Samples;

/// A sample that has been coming in for this long comes no more.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);
/// Samples that are wanted from other machines at once.
const FETCHES_MAX: usize = 64;

/// Starts the lab, if it is enabled, and says a word about its VMs.
pub(crate) async fn lab(config: &Config, foundation: &Foundation) -> anyhow::Result<(Option<Node>, String)> {
    let lab = &config.lab;
    if !lab.enabled {
        return Ok((None, String::new()));
    }
    let home = foundation.folder.path().join("lab");
    let folder = if lab.samples.is_empty() { home.join("samples") } else { PathBuf::from(&lab.samples) };
    let samples = Samples::open(&folder).context("the lab's samples cannot be kept")?;
    samples.sweep(LEFT_BEHIND).context("the lab's samples cannot be kept")?;
    let plugins = vms::if_any(plugins::plugins(config)?, lab);
    let records = foundation.records.clone();
    let slots = match lab.slots {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        slots => slots,
    };
    let several = match site_settings(lab, &home) {
        Some(mut settings) => {
            let site = Site::open(&settings)?;
            settings.index = processing_index(lab, &records, &site.name).await?;
            Some((settings, site))
        }
        None => None,
    };
    let name = several.as_ref().map_or_else(machine_name, |(_, site)| site.name.clone());
    let index = match &several {
        Some((settings, _)) => settings.index,
        None => processing_index(lab, &records, &name).await?,
    };
    let (jobs, tags) = (home.join("jobs"), lab.tags.clone());
    let work = DispatcherSettings { jobs, plugins: plugins.clone(), slots, tags, processing_index: index.0 };
    let (fetch, wanted) = mpsc::channel(FETCHES_MAX);
    let dispatcher = Dispatcher::new(work, samples.clone(), several.as_ref().map(|_| fetch));
    let dispatcher = dispatcher.context("the lab's jobs cannot be prepared")?;
    let vms::Vms { vms, about } = vms::start(lab, &home)?;
    let dispatcher = dispatcher.with_vms(vms);
    let node = Node::new(node_settings(lab, &home, name, plugins), records.clone(), samples).with(dispatcher.clone());
    let Some((settings, site)) = several else {
        let (elector, ends) = alone(node.name(), index, lab.election, records);
        tokio::spawn(elector.run());
        tokio::spawn(node.clone().serve(ends, Some(dispatcher)));
        return Ok((Some(node), about));
    };
    let node = node.at(site.clone());
    site.start(settings, records, Parts { node: node.clone(), dispatcher, wanted }).await?;
    Ok((Some(node), about))
}

fn node_settings(lab: &Lab, home: &Path, node: String, plugins: Vec<Plugin>) -> NodeSettings {
    let (threshold, attempts_max) = (lab.threshold, lab.attempts.min(255) as u8);
    let (ageing, priority) = (lab.ageing, lab.priority);
    NodeSettings {
        node,
        analysis: if lab.analysis.is_empty() { home.join("analysis") } else { PathBuf::from(&lab.analysis) },
        intake: IntakeSettings { settle: lab.settle, size_max: lab.sample_bytes_max, ..IntakeSettings::default() },
        scheduling: runq::Settings { threshold, attempts_max, ageing, priority, ..runq::Settings::default() },
        plugins: plugins.into(),
        keep: lab.keep,
        depth_max: lab.children_depth.min(255) as u8,
        children: ChildLimits { count: lab.children_count, bytes: lab.children_bytes },
    }
}

/// None for a lab of one machine.
fn site_settings(lab: &Lab, home: &Path) -> Option<SiteSettings> {
    let network = lab.network?;
    Some(SiteSettings {
        folder: credentials(home),
        address: network.address,
        port: network.port,
        prefix: network.prefix,
        wide: network.wide,
        election: lab.election,
        index: ProcessingIndex::default(),
        leader_analyses: lab.leader_analyses,
        life: lab.certificate_life,
        entry: lab.entry.clone(),
    })
}

/// Where a machine keeps what makes it one of its lab.
pub(crate) fn credentials(home: &Path) -> PathBuf {
    home.join("node")
}

/// What is set, or what is measured; a measurement moves only if it differs clearly from the stored one.
async fn processing_index(lab: &Lab, records: &Records, name: &str) -> anyhow::Result<ProcessingIndex> {
    if let Some(index) = lab.processing_index {
        return Ok(ProcessingIndex(index));
    }
    let nodes = records.lab_nodes().await.context("the machines of the lab cannot be read")?;
    let stored = nodes.into_iter().find(|node| node.node == name).and_then(|node| node.processing_index);
    let stored = stored.and_then(|index| u16::try_from(index).ok()).map(ProcessingIndex);
    Ok(index::measure(stored))
}
