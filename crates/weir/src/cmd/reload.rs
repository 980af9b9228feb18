//! `weir reload`: tells the running process to read its configuration again.

use crate::assembly::{RELOAD, ReloadOutcome};
use crate::control::Asking;
use std::io::Write;

/// Make the running Weir read its configuration again
///
/// Routes, backends, servers, queues and limits of the web gate change at once, and so do certificates: no connection
/// is closed, requests in progress are finished where they are, and requests that wait keep their place.
///
/// If [throttle], [notices] or [delivery] has changed, the mail gate is restarted while its sockets stay open: messages
/// that are being received are finished, nobody is refused, and no waiting mail is lost. If the mail gate does not
/// accept its new settings, it keeps the old ones, and the exit code is 1.
///
/// All other changed settings are listed; they need `weir restart`. A configuration with a problem changes nothing.
///
/// The signal SIGHUP does the same.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        if !control.is_running() {
            anyhow::bail!(
                "Weir is not running on this data folder, so there is nothing to reload\n  hint: Weir reads the \
                 configuration when you start it with `weir up`"
            );
        }
        let outcome = control.ask(&RELOAD, &())?;
        self.asking.answer(out, &outcome, print)?;
        if outcome.mail_refused {
            anyhow::bail!(
                "the mail gate did not accept the new settings and keeps the old ones\n  hint: correct the file and \
                 reload again; until then `weir status` shows this problem"
            );
        }
        Ok(())
    }
}

fn print(out: &mut dyn Write, outcome: &ReloadOutcome) -> anyhow::Result<()> {
    writeln!(out, "The configuration was read again.\n")?;
    match &outcome.web {
        None => writeln!(out, "  {:<12} is not running", "web gate")?,
        Some(web) => {
            for (what, names) in [("added", &web.added), ("removed", &web.removed), ("kept", &web.kept)] {
                if !names.is_empty() {
                    writeln!(out, "  {what:<12} {}", names.join(", "))?;
                }
            }
            writeln!(out, "  {:<12} {}", "routes", web.routes)?;
        }
    }
    if let Some(mail) = &outcome.mail {
        writeln!(out, "  {:<12} {mail}", "mail gate")?;
    }
    if !outcome.restart.is_empty() {
        let restart = outcome.restart.join(", ");
        writeln!(out, "\nChanged in the file, but in force only after a restart: {restart}")?;
    }
    Ok(())
}
