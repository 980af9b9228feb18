//! Builds the lab from the section `[lab]`: either a lab of this machine alone, which elects itself and also analyses, or one machine of a
//! lab of several.

use super::{machine_name, plugins, vms};
use crate::config::Config;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use weir_core::election::ProcessingIndex;
use weir_foundation::Foundation;
use weir_lab::cluster::alone::alone;
use weir_lab::cluster::index;
use weir_lab::cluster::membership::Membership;
use weir_lab::dispatcher::Dispatcher;
use weir_lab::node::Node;
use weir_lab::site::{self, Parts, SiteError};
use weir_lab::tasks::Task;
use weir_lab::{LabSettings, LabStartError};
use weir_store::records::{Records, RecordsError};
use weir_store::samples::Samples;

/// A sample that did not arrive completely within this time will not arrive any more.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);
/// How many samples are fetched from other machines at the same time.
const FETCHES_MAX: usize = 64;

/// A lab that is ready to run. It does nothing before its tasks are started. It ends when they are stopped, after [`Node::resign`].
pub(crate) struct ReadyLab {
    pub(crate) node: Node,
    /// A short description of its VMs, printed at the start.
    pub(crate) about: String,
    /// Its tasks, in the order in which they are to be started.
    pub(crate) tasks: Vec<Task>,
}

/// Prepares the lab; none if it is not enabled.
pub(crate) async fn lab(config: &Config, foundation: &Foundation) -> Result<Option<ReadyLab>, LabStartError> {
    let lab = &config.lab;
    if !lab.enabled {
        return Ok(None);
    }
    let home = foundation.folder.path().join("lab");
    let samples = samples(lab, &home)?;
    let plugins = plugins::plugins(config).map_err(|error| LabStartError::Plugins(format!("{error:#}")))?;
    let plugins = vms::if_any(plugins, &lab.vms);
    let records = match &lab.records {
        Some(url) => Records::postgres(url).await?,
        None => foundation.records.clone(),
    };
    let mut several = match lab.site(credentials(&home)) {
        Some(settings) => {
            let membership = Membership::open(&settings.folder, settings.at()).map_err(SiteError::from)?;
            Some((membership, settings))
        }
        None => None,
    };
    let name = several.as_ref().map_or_else(machine_name, |(membership, _)| membership.name.clone());
    let index = processing_index(lab, &records, &name).await?;
    if let Some((_, settings)) = &mut several {
        settings.index = index;
    }
    let work = lab.dispatcher(&home, &plugins, index);
    let (fetch, wanted) = mpsc::channel(FETCHES_MAX);
    let jobs = work.jobs.clone();
    let dispatcher = Dispatcher::new(work, samples.clone(), several.as_ref().map(|_| fetch));
    let dispatcher = dispatcher.map_err(|error| LabStartError::Jobs(jobs, error))?;
    let vms::Vms { vms, mut tasks, about } = vms::prepare(&lab.vms, &home)?;
    tasks.extend(dispatcher.add_vms(vms));
    let node = Node::new(lab.node(&home, name, plugins), records.clone(), samples).with(dispatcher.clone());
    let Some((membership, settings)) = several else {
        let (elector, ends) = alone(node.name(), index, lab.election, records).await?;
        tasks.push(Task::new("lab election", elector.run()));
        tasks.push(Task::new("lab node", node.clone().serve(ends, Some(dispatcher))));
        return Ok(Some(ReadyLab { node, about, tasks }));
    };
    let node = node.with_membership(membership.clone());
    let parts = Parts { node: node.clone(), dispatcher, wanted };
    tasks.extend(site::tasks(&membership, settings, records, parts).await?);
    Ok(Some(ReadyLab { node, about, tasks }))
}

/// Everything that is configured for the lab but cannot work on this machine, as text.
pub(crate) fn lab_problems(config: &Config) -> Vec<String> {
    match config.lab.enabled {
        true => vms::problems(&config.lab.vms).iter().map(ToString::to_string).collect(),
        false => Vec::new(),
    }
}

fn samples(lab: &LabSettings, home: &Path) -> Result<Samples, LabStartError> {
    let folder = lab.samples.clone().unwrap_or_else(|| home.join("samples"));
    let opened = Samples::open(&folder).and_then(|samples| samples.sweep(LEFT_BEHIND).map(|_| samples));
    opened.map_err(|error| LabStartError::Samples(folder, error))
}

/// The folder with a machine's identity in its lab.
pub(crate) fn credentials(home: &Path) -> PathBuf {
    home.join("node")
}

/// The processing index that is configured, or else measured. A measurement replaces the stored value only if it differs clearly.
async fn processing_index(lab: &LabSettings, records: &Records, name: &str) -> Result<ProcessingIndex, RecordsError> {
    if let Some(index) = lab.processing_index {
        return Ok(ProcessingIndex(index));
    }
    let nodes = records.lab_nodes().all().await?;
    let stored = nodes.into_iter().find(|node| node.node == name).and_then(|node| node.processing_index);
    let stored = stored.and_then(|index| u16::try_from(index).ok()).map(ProcessingIndex);
    Ok(index::measure(stored))
}
