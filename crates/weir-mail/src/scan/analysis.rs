//! Submits attachments of stored mail to the lab, when an operator wants to know what an account has tried to send.

use super::laboratory::{AskedFile, KnownContent, LabWay, Sample, Taken};
use super::{Inspector, ScanShared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_foundation::OperationError;
use weir_scan::content::{Content, ContentDraft};
use weir_scan::samples::Candidate;
use weir_store::diary::DiaryLine;

/// Nobody waits for these: they come after mail that does.
const PRIORITY: u64 = 32;
/// What is not looked into by then is left for the next time; who asks waits for a minute.
const TIME_MAX: Duration = Duration::from_secs(40);
/// Problems that are told.
const PROBLEMS_MAX: usize = 20;

/// A stored message whose attachments are to be analysed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMail {
    /// Its id.
    pub message: String,
    /// Whose it is.
    pub owner: String,
    /// The message itself.
    pub file: PathBuf,
}

/// What became of held mail that was to be analysed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HeldAnalysed")]
pub struct Analysed {
    /// Messages that were looked into.
    pub messages: usize,
    /// Attachments in them, the same ones counted once.
    pub attachments: usize,
    /// Attachments that are new samples of the lab now.
    pub submitted: usize,
    /// Attachments that the lab has, or had, anyway.
    pub known: usize,
    /// The samples, by number.
    pub samples: Vec<i64>,
    /// What was left out, and why.
    pub problems: Vec<String>,
    /// Messages that there was no time for: asking again goes on with them.
    pub messages_left: usize,
}

impl ScanShared {
    pub(super) async fn analyse(&self, mails: &[StoredMail], by: &str) -> Result<Analysed, OperationError> {
        let hint = "set lab.enabled, scan.enabled and scan.lab.enabled";
        let nothing =
            || OperationError::Conflict { what: "no lab is joined to the scan".to_owned(), hint: hint.to_owned() };
        let way = self.lab.as_ref().ok_or_else(nothing)?;
        let inspector = self.inspectors.first().ok_or_else(nothing)?;
        let begun = Instant::now();
        let (mut done, mut seen) = (Analysed::default(), BTreeSet::new());
        for (number, mail) in mails.iter().enumerate() {
            if begun.elapsed() > TIME_MAX {
                done.messages_left = mails.len() - number;
                break;
            }
            done.messages += 1;
            let mut look = MessageLook { way, inspector, by, mail, seen: &mut seen, done: &mut done };
            if let Err(problem) = self.analyse_one(&mut look).await
                && done.problems.len() < PROBLEMS_MAX
            {
                done.problems.push(format!("{}: {problem}", mail.message));
            }
        }
        Ok(done)
    }

    async fn analyse_one(&self, look: &mut MessageLook<'_>) -> Result<(), String> {
        let (file, folder) = (look.mail.file.clone(), self.site.quarantine.clone());
        let content = tokio::task::spawn_blocking(move || read(&file, &folder)).await;
        let content = content.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let (mut files, left_out) = look.inspector.attachments_boxed(&content).await?;
        files.retain(|file| look.seen.insert(file.into()));
        look.done.attachments += files.len();
        let asked: Vec<AskedFile> = files.iter().map(AskedFile::from).collect();
        let known = look.way.laboratory.known(&asked).await?;
        for (file, known) in files.iter().zip(known) {
            match known {
                KnownContent::Open { sample } => self.had(look, file, sample),
                KnownContent::Ended(opinion) => self.had(look, file, opinion.sample),
                KnownContent::Nothing => self.submit_file(look, &content, file).await?,
            }
        }
        if left_out > 0 { Err(format!("{left_out} more attachments are not sent")) } else { Ok(()) }
    }

    async fn submit_file(&self, look: &mut MessageLook<'_>, content: &Content, file: &Candidate) -> Result<(), String> {
        let most = look.way.settings.sample_bytes_max;
        if file.size > most {
            return Err(format!("{} has {} bytes, and at most {most} are sent", file.name, file.size));
        }
        let bytes = look.inspector.extract_boxed(content, file).await?;
        let bytes = bytes.ok_or_else(|| format!("{} is not in the message any more", file.name))?;
        let submitter = format!("held {}", look.mail.owner);
        let (name, passwords) = (file.name.clone(), file.passwords.clone());
        let sample = Sample { content: bytes, name, priority: PRIORITY, submitter, passwords };
        match look.way.laboratory.submit(sample).await? {
            Taken::Queued(sample) => {
                look.done.submitted += 1;
                look.done.samples.push(sample);
                self.note_sample(look, file, sample, "handed to the lab");
                Ok(())
            }
            Taken::NotForUs(why) => Err(format!("{}: {why}", file.name)),
        }
    }

    fn had(&self, look: &mut MessageLook<'_>, file: &Candidate, sample: i64) {
        look.done.known += 1;
        look.done.samples.push(sample);
        self.note_sample(look, file, sample, "known to the lab");
    }

    fn note_sample(&self, look: &MessageLook<'_>, file: &Candidate, sample: i64, how: &str) {
        let text = format!("{} is {how} as sample {sample}, asked for by {}", file.name, look.by);
        let about = [file.sha256.clone(), format!("sample-{sample}")];
        self.site.spool.diary().note(DiaryLine::new(&look.mail.message, "analysed", text).about(about));
    }
}

/// One message that is looked into.
struct MessageLook<'a> {
    way: &'a LabWay,
    inspector: &'a Arc<dyn Inspector>,
    by: &'a str,
    mail: &'a StoredMail,
    /// Contents of messages before.
    seen: &'a mut BTreeSet<AskedFile>,
    done: &'a mut Analysed,
}

/// The workers are given a file of their own.
fn read(file: &Path, folder: &Path) -> std::io::Result<Content> {
    let (mut source, mut draft) = (std::fs::File::open(file)?, ContentDraft::on_disk(folder)?);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match std::io::Read::read(&mut source, &mut buffer)? {
            0 => return draft.seal(),
            length => draft.write(&buffer[..length])?,
        }
    }
}
