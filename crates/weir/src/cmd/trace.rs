//! `weir trace`: one id, one timeline.

use crate::answer::{count, list, text, texts};
use crate::control::{Asking, encoded};
use serde_json::Value;
use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A message by its id (as the sender was told, or held, or quarantined) or its Message-ID, or a sample by its SHA-256
    id: String,
    #[command(flatten)]
    asking: Asking,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let trace = self.asking.reach()?.get(&format!("/trace/{}", encoded(&self.id)))?;
        self.asking.answer(out, &trace, print)
    }
}

fn print(out: &mut dyn Write, trace: &Value) -> anyhow::Result<()> {
    let (messages, samples, lines) = (texts(trace, "messages"), list(trace, "samples"), list(trace, "lines"));
    let parts = [(messages.len(), "message"), (samples.len(), "sample")];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| count(*number as u64, noun)).collect();
    let about = if parts.is_empty() { "what is known".to_owned() } else { parts.join(", ") };
    writeln!(out, "The way of {}: {about}.\n", tame(text(trace, "id")))?;
    for line in lines {
        let at = text(line, "at").replace('T', " ");
        // With one message there is nothing to tell apart.
        let message = if messages.len() > 1 { format!("{:<20}  ", text(line, "message")) } else { String::new() };
        writeln!(
            out,
            "{}  {message}{:<10}  {}",
            at.trim_end_matches('Z'),
            text(line, "stage"),
            tame(text(line, "text"))
        )?;
    }
    for place in texts(trace, "now") {
        writeln!(out, "\nNow: {}", tame(&place))?;
    }
    for note in texts(trace, "notes") {
        writeln!(out, "\nNote: {}", tame(&note))?;
    }
    Ok(())
}

/// Text of strangers on a terminal: nothing in it is obeyed.
fn tame(text: &str) -> String {
    weir_scan::plain::shown(text, usize::MAX)
}
