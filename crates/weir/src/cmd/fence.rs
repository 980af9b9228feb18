//! `weir fence`: the lab starts each plugin through it. It builds the sandbox around itself and then executes the plugin.

use anyhow::Context;
use std::ffi::OsString;
use weir_lab::dispatcher::fence::{FenceSpec, NOT_STARTED};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The description of the sandbox, as Weir itself writes it
    spec: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let spec: FenceSpec =
            serde_json::from_str(&self.spec).context("this verb is for Weir itself, which starts it")?;
        let code = spec.run(&self.program).unwrap_or_else(|failure| {
            eprintln!("error: {failure}");
            NOT_STARTED
        });
        // The exit code is that of the plugin.
        std::process::exit(code.into())
    }
}
