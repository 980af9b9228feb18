//! `weir restart`: the program that is installed now takes over from the one that runs.

use crate::assembly::RESTART;
use crate::control::Asking;
use std::io::Write;

/// Replace the running Weir with the installed program, without refusing any client
///
/// Use it after an upgrade, or for settings that `weir reload` cannot change. The new program gets the arguments of the
/// old one. Messages and requests in progress are finished first; clients that connect in the meantime wait and are not
/// refused.
///
/// If the configuration has a problem, nothing is restarted and everything keeps running.
///
/// The signal SIGUSR2 does the same.
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
            writeln!(out, "Restarting. Messages and requests in progress are finished first; new clients wait.")?;
            Ok(())
        })
    }
}
