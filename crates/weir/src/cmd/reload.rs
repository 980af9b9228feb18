//! `weir reload`: tells the running process to read its configuration again.

use crate::assembly::{RELOAD, ReloadOutcome};
use crate::control::Asking;
use std::io::Write;

/// Makes the running process read its configuration again.
///
/// Routes, backends, servers, queues and limits of the web gate, and certificates, are changed while everything runs: no connection is closed, requests that
/// are under way end where they began, and those that wait keep their place. If [throttle], [notices] or [delivery] have changed, the mail gate is started anew
/// with its sockets open: messages that are coming in are finished, nobody is refused, and nothing that waits is lost. What else has changed is named, and needs
/// `weir restart`. A configuration with a problem changes nothing. If the mail gate refuses its new settings it goes on with the old ones, and the
/// exit code is 1. SIGHUP does the same.
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
                "nothing runs on this data folder, so there is nothing to reload\n  hint: the configuration is read when you start it with `weir up`"
            );
        }
        let outcome = control.ask(&RELOAD, &())?;
        self.asking.answer(out, &outcome, print)?;
        if outcome.mail_refused {
            anyhow::bail!(
                "the mail gate refused the new settings and goes by the old ones\n  hint: correct the file and reload again; `weir status` says so until then"
            );
        }
        Ok(())
    }
}

fn print(out: &mut dyn Write, outcome: &ReloadOutcome) -> anyhow::Result<()> {
    writeln!(out, "The configuration was read again.\n")?;
    match &outcome.web {
        None => writeln!(out, "  {:<12} does not run", "web gate")?,
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
