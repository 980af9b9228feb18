//! `weir feeds`: the scan gate's feeds.

use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Feeds {
    /// Find the limits with the least mean wait
    Tune(TuneArgs),
}

impl Feeds {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Feeds::Tune(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct TuneArgs {}

impl TuneArgs {
    fn run(&self, _out: &mut dyn Write) -> anyhow::Result<()> {
        anyhow::bail!("not built yet")
    }
}
