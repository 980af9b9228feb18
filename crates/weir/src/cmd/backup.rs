//! `weir backup` and `weir restore`: makes a consistent copy while Weir runs, and restores one.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::{Asking, refuse_other_owner};
use crate::folder_args::FolderArgs;
use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_console::api::whole::{BACKUP, BackupTo};
use weir_foundation::OperationError;
use weir_foundation::backup::{Passphrase, SoundBackup, verify};
use weir_mail::operations::settle_restored;
use weir_store::folder::DataFolder;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    verb: Option<BackupVerb>,
    /// A new or empty folder for the backup; the running Weir writes it. The backup contains the configuration file,
    /// but not the mail that was delivered into DATA/mail
    #[arg(required_unless_present = "into")]
    folder: Option<PathBuf>,
    /// A folder for several backups: this one becomes a folder in it, named by its time, and shares unchanged files
    /// with the newest backup there
    #[arg(long, value_name = "FOLDER", conflicts_with = "folder")]
    into: Option<PathBuf>,
    /// Keep this many backups in the folder of --into, and remove the oldest ones
    #[arg(long, value_name = "N", requires = "into", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// A file whose first line is a passphrase: every file of the backup is encrypted with it, and nobody can read the
    /// backup without it [default: store.backup_passphrase_file, if it is set]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Subcommand)]
enum BackupVerb {
    /// Compare every file of a backup with the checksum that was recorded when the backup was made
    Verify {
        /// A folder written by `weir backup`
        folder: PathBuf,
        /// A file whose first line is the passphrase: also check that it decrypts every file
        #[arg(long, value_name = "FILE")]
        passphrase_file: Option<PathBuf>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

impl BackupArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(BackupVerb::Verify { folder, passphrase_file, json }) = &self.verb {
            return check(out, folder, passphrase_file.as_deref(), *json);
        }
        let folder = self.into.as_deref().or(self.folder.as_deref()).context("give a folder for the backup")?;
        let folder = std::path::absolute(folder)?;
        let passphrase = passphrase(self.passphrase_file.as_deref())?;
        let passphrase = passphrase.map(|text| text.expose().to_owned()).unwrap_or_default();
        let to = BackupTo { folder, into: self.into.is_some(), keep: self.keep.unwrap_or(0), passphrase };
        let done = self.asking.reach()?.ask(&BACKUP, &to)?;
        if self.asking.json {
            return print_answer(out, &done);
        }
        let (held, size) = (count(done.held_files, "held message"), bytes(done.bytes));
        let (at, folder) = (time(&done.manifest.at), done.folder.display());
        let sealed = if done.manifest.sealed.is_some() { ", encrypted with a passphrase" } else { "" };
        writeln!(out, "A backup of {at} is in {folder} ({size}, {held}{sealed}).")?;
        if let Some(since) = &done.since {
            writeln!(out, "Files that have not changed are shared with {}.", since.display())?;
        }
        for removed in &done.removed {
            writeln!(out, "The old backup {} was removed.", removed.display())?;
        }
        note(out, &done.note)
    }
}

/// The passphrase is read here and not by the running process, because the file may be readable only for root.
fn passphrase(file: Option<&Path>) -> anyhow::Result<Option<Passphrase>> {
    file.map(Passphrase::read).transpose().map_err(|error| told(&error))
}

fn told(error: &OperationError) -> anyhow::Error {
    anyhow::anyhow!("{error}\n  hint: {}", error.hint())
}

fn check(out: &mut dyn Write, folder: &Path, passphrase_file: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let passphrase = passphrase(passphrase_file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(verify(folder, passphrase.as_ref())).map_err(|error| told(&error))?;
    match json {
        true => print_answer(out, &found)?,
        false => found.problems.iter().try_for_each(|problem| writeln!(out, "{problem}"))?,
    }
    let many = found.problems.len();
    anyhow::ensure!(many == 0, "{} is damaged or was changed: {}", folder.display(), count(many, "difference"));
    if json {
        return Ok(());
    }
    let (at, size) = (time(&found.manifest.at), bytes(found.bytes));
    writeln!(out, "The backup of {at} is intact ({size}).")?;
    note(out, &found.note)
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// A folder written by `weir backup`
    folder: PathBuf,
    /// A file whose first line is the passphrase of the backup, if it is encrypted
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    place: FolderArgs,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let data = std::path::absolute(self.place.existing_folder()?)?;
        refuse_other_owner(&data)?;
        let passphrase = passphrase(self.passphrase_file.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // This comes before the data folder is made, so that a wrong passphrase changes nothing.
        let sound =
            runtime.block_on(SoundBackup::check(&self.folder, passphrase.as_ref())).map_err(|error| told(&error))?;
        let folder = DataFolder::open(&data)?;
        let done = runtime.block_on(sound.restore(&folder, settle_restored)).map_err(|error| told(&error))?;
        if self.json {
            return print_answer(out, &done);
        }
        writeln!(
            out,
            "The backup of {} was restored to {}: {} in transit, {} held.",
            time(&done.manifest.at),
            done.data.display(),
            count(done.mail.messages, "message"),
            count(done.mail.held_recipients, "recipient")
        )?;
        match done.mail.struck_out {
            0 => {}
            gone => writeln!(
                out,
                "Left out because they were settled while the backup was being made: {}.",
                count(gone, "held recipient")
            )?,
        }
        writeln!(out, "Mail that was being delivered when the backup was made may be sent a second time.")?;
        if let Some(file) = &done.configuration {
            writeln!(
                out,
                "The configuration from the backup is in {}. It is not used: compare it with yours.",
                file.display()
            )?;
        }
        note(out, &done.note)
    }
}

fn note(out: &mut dyn Write, note: &str) -> anyhow::Result<()> {
    match note {
        "" => Ok(()),
        note => Ok(writeln!(out, "Note: {note}.")?),
    }
}
