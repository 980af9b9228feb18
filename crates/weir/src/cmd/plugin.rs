//! `weir plugin`: what the lab starts to look at a sample.

use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which plugin
    #[arg(value_enum)]
    plugin: Which,
    /// The job folder
    job: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    /// What a file is, its SHA-256 and how random it looks
    Identify,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self.plugin {
            Which::Identify => Ok(weir_lab::identify::run(&self.job)?),
        }
    }
}
