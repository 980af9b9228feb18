//! `weir restart`: the program that is installed now takes over from the one that runs.

use crate::assembly::RESTART;
use crate::control::Asking;
use std::io::Write;

/// Starts the installed program anew, in the place of the one that runs and with its arguments.
///
/// Use it after an upgrade, or for settings that `weir reload` does not change. Messages and requests that are under way are finished first; clients that
/// come meanwhile wait and are not refused. If the configuration has a problem, everything runs on. SIGUSR2 does the same.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach_running("program")?;
        control.ask(&RESTART, &())?;
        self.asking.answer(out, &(), |out, ()| {
            writeln!(out, "Restarting. What is under way is finished first; new clients wait.")?;
            Ok(())
        })
    }
}
