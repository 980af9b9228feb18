//! `weir web`: the fair front-end, who waits and who gets what.

mod learn;

use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Web {
    /// Make the history profile from access logs
    Learn(learn::Args),
}

impl Web {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Web::Learn(args) => args.run(out),
        }
    }
}
