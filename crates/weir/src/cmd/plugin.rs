//! `weir plugin`: runs one of the lab's own plugins on a sample. The lab starts it.

use std::path::PathBuf;

/// Runs all plugins for one sample after another. For each sample, a line on standard input names the plugins that are wanted.
const ALL: &str = "all";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the plugin
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    plugin: String,
    /// The folder of the job: the plugin reads input/input.json and input/attachment, and writes output/output.json
    job: PathBuf,
}

/// The plugins that run as processes.
fn names() -> Vec<&'static str> {
    let own = weir_analysis::PLUGINS.iter().filter(|plugin| plugin.is_process()).map(|plugin| plugin.name);
    own.chain([ALL]).collect()
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if self.plugin == ALL {
            return Ok(weir_analysis::stay(&self.job, std::io::stdin().lock(), std::io::stdout().lock())?);
        }
        Ok(weir_analysis::run(&self.plugin, &self.job)?)
    }
}
