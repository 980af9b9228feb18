//! `weir config`: shows the settings in force and where each comes from.

use crate::config::{ConfigArg, Loaded, as_markdown, as_toml};
use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Config {
    /// Show the settings that differ from their defaults, or all settings
    Show(ShowArgs),
}

impl Config {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Config::Show(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Print every setting with its meaning, bounds and source, as a file to start from
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print every setting as JSON
    #[arg(long)]
    json: bool,
    /// Print the reference page docs/config.md, which does not depend on your configuration
    #[arg(long, conflicts_with_all = ["all", "json", "config"])]
    markdown: bool,
}

impl ShowArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.markdown {
            write!(out, "{}", as_markdown(&Loaded::defaults()))?;
            return Ok(());
        }
        let loaded = self.config.load()?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &loaded.settings)?;
            writeln!(out)?;
        } else {
            let page = as_toml(&loaded, self.all);
            let nothing = "# every setting has its default; `weir config show --all` lists them\n";
            write!(out, "{}", if page.is_empty() { nothing } else { &page })?;
        }
        Ok(())
    }
}
