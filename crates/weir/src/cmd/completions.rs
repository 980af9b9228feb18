//! `weir completions` and `weir man`: made from the same definition as the command line itself.

use clap::CommandFactory;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that the script is for
    shell: clap_complete::Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        // The generator panics if it cannot write, for example into a pipe that `head` has closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "weir", &mut script);
        Ok(out.write_all(&script)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, instead of printing weir(1)
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl ManArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let command = crate::Cli::command();
        match &self.dir {
            None => clap_mangen::Man::new(command).render(out)?,
            Some(dir) => {
                std::fs::create_dir_all(dir)
                    .map_err(|e| anyhow::anyhow!("{}: cannot be created: {e}", dir.display()))?;
                clap_mangen::generate_to(command, dir)
                    .map_err(|e| anyhow::anyhow!("{}: cannot be written: {e}", dir.display()))?;
                writeln!(out, "man pages are in {}", dir.display())?;
            }
        }
        Ok(())
    }
}
