//! `weir version`: which version this program is and how it was built. Also `weir ready`: whether Weir is running and serves.

use crate::control::Asking;
use serde::Serialize;
use std::io::Write;
use weir_console::api::whole::STATUS;
use weir_store::folder::FORMAT;

#[derive(clap::Args)]
pub(crate) struct VersionArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// How this program was built. `tools/release` sets the commit and its date; other builds have neither.
#[derive(Serialize)]
struct BuildFacts {
    version: &'static str,
    commit: Option<&'static str>,
    /// The date of the commit and not of the build, so that two builds of it are identical.
    date: Option<&'static str>,
    architecture: &'static str,
    libc: &'static str,
    optimised: bool,
    /// The newest format of the data folder that it can read.
    data_format: u32,
}

const FACTS: BuildFacts = BuildFacts {
    version: env!("CARGO_PKG_VERSION"),
    commit: option_env!("WEIR_BUILD_COMMIT"),
    date: option_env!("WEIR_BUILD_DATE"),
    architecture: std::env::consts::ARCH,
    libc: if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" },
    optimised: !cfg!(debug_assertions),
    data_format: FORMAT,
};

impl VersionArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.json {
            return crate::answer::print_json(out, &FACTS);
        }
        let BuildFacts { version, commit, date, architecture, libc, optimised, data_format } = FACTS;
        writeln!(out, "weir {version}")?;
        writeln!(out, "  commit       {}", commit.unwrap_or("not recorded: a build of your own"))?;
        if let Some(date) = date {
            writeln!(out, "  date         {date}")?;
        }
        let kind = if optimised { "optimised" } else { "for tests" };
        writeln!(out, "  program      {architecture} Linux, C library {libc}, {kind}")?;
        writeln!(out, "  data folder  reads format {data_format} and older")?;
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct ReadyArgs {
    #[command(flatten)]
    asking: Asking,
}

impl ReadyArgs {
    /// For health checks: succeeds if every gate that is switched on is up.
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let status = self.asking.reach_running("process")?.ask(&STATUS, &())?;
        let down: Vec<String> =
            status.gates.iter().filter(|gate| !gate.is_up()).map(|gate| gate.gate.to_string()).collect();
        anyhow::ensure!(down.is_empty(), "not ready: {}", down.join(", "));
        Ok(writeln!(out, "ready")?)
    }
}
