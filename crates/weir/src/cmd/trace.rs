//! `weir trace`: the story of one message or sample, by any of its ids.

use crate::answer::{count, time};
use crate::control::Asking;
use std::io::Write;
use weir_console::api::trace::SHOW;
use weir_console::trace::Trace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The id of a message (as the sender was told, or as it is held or quarantined), its Message-ID, or at least the
    /// first 8 digits of a sample's SHA-256
    id: String,
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let trace = self.asking.reach()?.ask_of(&SHOW, &self.id, &())?;
        self.asking.answer(out, &trace, print)
    }
}

fn print(out: &mut dyn Write, trace: &Trace) -> anyhow::Result<()> {
    let mail = &trace.mail;
    let parts = [(mail.messages.len(), "message"), (mail.samples.len(), "sample")];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| count(*number, noun)).collect();
    let about = if parts.is_empty() { "what is known".to_owned() } else { parts.join(", ") };
    writeln!(out, "The history of {}: {about}.\n", tame(&trace.id))?;
    for line in &mail.lines {
        // If there is only one message, its id need not be shown in every line.
        let message = if mail.messages.len() > 1 { format!("{:<20}  ", line.message) } else { String::new() };
        writeln!(out, "{}  {message}{:<10}  {}", time(&line.at), line.stage, tame(&line.text))?;
    }
    for place in &mail.now {
        writeln!(out, "\nNow: {}", tame(place))?;
    }
    for note in &trace.notes {
        writeln!(out, "\nNote: {}", tame(note))?;
    }
    Ok(())
}

/// Makes text of strangers safe for the terminal, which could otherwise obey control characters in it.
fn tame(text: &str) -> String {
    weir_scan::plain::shown(text, usize::MAX)
}
