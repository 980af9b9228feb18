//! `weir reload`: the running process reads its configuration again.

use crate::answer::list;
use crate::control::Asking;
use serde_json::Value;
use std::io::Write;

/// Makes the running process read its configuration again.
///
/// Routes, backends, servers, queues and limits of the web gate, and certificates, are changed while everything runs: no connection is closed, requests that
/// are under way end where they began, and those that wait keep their place. A configuration with a problem changes nothing. SIGHUP does the same.
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
        let outcome = control.post("/reload", &serde_json::json!({}))?;
        self.asking.answer(out, &outcome, print)
    }
}

fn print(out: &mut dyn Write, outcome: &Value) -> anyhow::Result<()> {
    let names = |of: &Value, field: &str| {
        list(of, field).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "The configuration was read again.\n")?;
    let web = &outcome["web"];
    if web.is_null() {
        writeln!(out, "  {:<12} does not run", "web gate")?;
    } else {
        for (what, field) in [("added", "added"), ("removed", "removed"), ("kept", "kept")] {
            let names = names(web, field);
            if !names.is_empty() {
                writeln!(out, "  {what:<12} {names}")?;
            }
        }
        writeln!(out, "  {:<12} {}", "routes", web["routes"])?;
    }
    let restart = names(outcome, "restart");
    if !restart.is_empty() {
        writeln!(out, "\nChanged in the file, but in force only after a restart: {restart}")?;
    }
    Ok(())
}
