//! (to come)

use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, _out: &mut dyn Write) -> anyhow::Result<()> {
        anyhow::bail!("not built yet")
    }
}
