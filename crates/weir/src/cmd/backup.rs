//! `weir backup` and `weir restore`: a consistent copy while running, and the way back.

use crate::answer::{bytes, count, number, print_json, text, time};
use crate::control::{Asking, Place, refuse_other_owner};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use weir_foundation::backup::restore;
use weir_mail::desk::settle_restored;
use weir_store::folder::DataFolder;

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// A new or empty folder; Weir itself writes there. Mail that was delivered into DATA/mail is not part of it
    folder: PathBuf,
    #[command(flatten)]
    asking: Asking,
}

impl BackupArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let folder = std::path::absolute(&self.folder)?;
        let done = self.asking.reach()?.post("/backup", &json!({ "folder": folder }))?;
        if self.asking.json {
            return print_json(out, &done);
        }
        let (held, size) = (count(number(&done, "held_files"), "held message"), bytes(number(&done, "bytes")));
        writeln!(out, "A backup of {} is in {} ({size}, {held}).", time(&done, "at"), text(&done, "folder"))?;
        note(out, &done)
    }
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// A folder that `weir backup` has written
    folder: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let data = std::path::absolute(self.place.folder()?)?;
        refuse_other_owner(&data)?;
        let folder = DataFolder::open(&data)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(restore(&self.folder, &folder, settle_restored));
        let done = done.map_err(|error| anyhow::anyhow!("{error}\n  hint: {}", error.hint()))?;
        let done: Value = serde_json::to_value(done)?;
        if self.json {
            return print_json(out, &done);
        }
        writeln!(
            out,
            "The backup of {} is restored in {}: {} in transit, {} held.",
            time(&done, "at"),
            text(&done, "data"),
            count(number(&done, "messages"), "message"),
            count(number(&done, "held_recipients"), "recipient")
        )?;
        match number(&done, "struck_out") {
            0 => {}
            gone => writeln!(
                out,
                "{} were settled while the backup was made, and are struck out.",
                count(gone, "held recipient")
            )?,
        }
        writeln!(out, "Mail that was on its way when the backup was made may be sent a second time.")?;
        note(out, &done)
    }
}

fn note(out: &mut dyn Write, done: &Value) -> anyhow::Result<()> {
    match text(done, "note") {
        "" => Ok(()),
        note => Ok(writeln!(out, "Note: {note}.")?),
    }
}
