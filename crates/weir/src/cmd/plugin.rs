//! `weir plugin`: what the lab starts to look at a sample.

use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which plugin
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    plugin: String,
    /// The job folder: input/input.json and input/attachment are read, output/output.json is written
    job: PathBuf,
}

/// Those that run as processes.
fn names() -> Vec<&'static str> {
    weir_analysis::PLUGINS.iter().filter(|plugin| plugin.is_process()).map(|plugin| plugin.name).collect()
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Ok(weir_analysis::run(&self.plugin, &self.job)?)
    }
}
