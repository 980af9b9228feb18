//! `weir incidents`: lists what went wrong, and tells the story of one incident.

use crate::answer::time;
use crate::control::Asking;
use crate::table::Table;
use std::io::Write;
use weir_console::api::incidents::{LIST, SHOW};
use weir_console::incidents::Incident;

/// Longer texts of strangers are cut off.
const TEXT_MAX: usize = 400;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tell the story of the incident with this number, instead of listing all incidents
    incident: Option<i64>,
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        match self.incident {
            Some(id) => self.asking.answer(out, &control.ask_of(&SHOW, &id.to_string(), &())?, story),
            None => self.asking.answer(out, &control.ask(&LIST, &())?, list),
        }
    }
}

fn list(out: &mut dyn Write, incidents: &Vec<Incident>) -> anyhow::Result<()> {
    if incidents.is_empty() {
        writeln!(out, "No incidents.")?;
        return Ok(());
    }
    let mut table = Table::new(&[">NUMBER", "BEGAN (UTC)", "ENDED (UTC)", "WHAT"]);
    for incident in incidents {
        let ended = incident.ended.as_deref().map_or_else(|| "still open".to_owned(), time);
        table.row([incident.id.to_string(), time(&incident.began), ended, tame(&incident.headline())]);
    }
    table.write(out)?;
    writeln!(out, "\n`weir incidents NUMBER` tells the story of one.")?;
    Ok(())
}

fn story(out: &mut dyn Write, incident: &Incident) -> anyhow::Result<()> {
    writeln!(out, "{}", tame(&incident.headline()))?;
    match &incident.ended {
        Some(ended) => writeln!(out, "It began at {} UTC and ended at {} UTC.", time(&incident.began), time(ended))?,
        None => writeln!(out, "It began at {} UTC and is still open.", time(&incident.began))?,
    }
    writeln!(out, "\nWhat happened")?;
    for line in &incident.seen {
        writeln!(out, "  {}  {}", time(&line.at), tame(&line.text))?;
    }
    if !incident.names.is_empty() {
        writeln!(out, "\nThe accounts (`weir user show NAME`)\n  {}", tame(&incident.names.join(", ")))?;
    }
    writeln!(out, "\nWhat Weir did\n  {}", incident.weir_did)?;
    writeln!(out, "\nWhat people did")?;
    if incident.people_did.is_empty() {
        writeln!(out, "  Nobody has changed anything that has to do with it.")?;
    }
    for act in &incident.people_did {
        let (who, what) = (tame(&act.actor), tame(&format!("{} {} {}", act.action, act.subject, act.detail)));
        writeln!(out, "  {}  {who}: {}", time(&act.at), what.trim_end())?;
    }
    if incident.people_did_more > 0 {
        writeln!(out, "  and {} more: see `weir audit`", incident.people_did_more)?;
    }
    writeln!(out, "\nWhat it cost others")?;
    for sentence in &incident.cost {
        writeln!(out, "  {sentence}")?;
    }
    if incident.is_open() {
        writeln!(out, "\nWhat you can do\n  {}", incident.to_do)?;
    }
    Ok(())
}

/// Makes text of strangers safe for the terminal, which could otherwise obey control characters in it.
fn tame(text: &str) -> String {
    weir_scan::plain::shown(text, TEXT_MAX)
}
