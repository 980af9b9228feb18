//! `weir backup` and `weir restore`: a consistent copy while running, and the way back.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::{Asking, refuse_other_owner};
use crate::folder_args::FolderArgs;
use std::io::Write;
use std::path::PathBuf;
use weir_console::api::whole::{BACKUP, BackupTo};
use weir_foundation::backup::restore;
use weir_mail::operations::settle_restored;
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
        let done = self.asking.reach()?.ask(&BACKUP, &BackupTo { folder })?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        let (held, size) = (count(done.held_files, "held message"), bytes(done.bytes));
        let (at, folder) = (time(&done.manifest.at), done.folder.display());
        writeln!(out, "A backup of {at} is in {folder} ({size}, {held}).")?;
        note(out, &done.note)
    }
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// A folder that `weir backup` has written
    folder: PathBuf,
    #[command(flatten)]
    place: FolderArgs,
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
        if self.json {
            return print_answer(out, &done);
        }
        writeln!(
            out,
            "The backup of {} is restored in {}: {} in transit, {} held.",
            time(&done.manifest.at),
            done.data.display(),
            count(done.mail.messages, "message"),
            count(done.mail.held_recipients, "recipient")
        )?;
        match done.mail.struck_out {
            0 => {}
            gone => writeln!(
                out,
                "{} were settled while the backup was made, and are struck out.",
                count(gone, "held recipient")
            )?,
        }
        writeln!(out, "Mail that was on its way when the backup was made may be sent a second time.")?;
        note(out, &done.note)
    }
}

fn note(out: &mut dyn Write, note: &str) -> anyhow::Result<()> {
    match note {
        "" => Ok(()),
        note => Ok(writeln!(out, "Note: {note}.")?),
    }
}
