//! Reads past mail, that is, what people really sent, from an mbox, a Maildir or a Postfix log, and makes a trace for the throttle from it.
//!
//! Each source is read once, line by line; bodies are never kept. What cannot be used is counted with its reason.
//! Times become seconds since the earliest mail of all sources; the wall clock of that mail is kept, so that results
//! can name real dates. Nothing in a source can panic the reader or grow its memory beyond stated limits (5 million
//! mails, 20 million recipients, 256 KiB of header a mail, 64 KiB a log line): hostile bytes end up among the skipped.

mod address;
mod caps;
mod collected;
mod envelope;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod kind;
mod lines;
mod maildir;
mod mbox;
mod picture;
mod postfix;
mod recipients;
mod replay;
mod skipped;
mod wall;

pub use caps::{OutlyingDay, ProposedCaps, UserDay};
pub use collected::Wanted;
pub use kind::SourceKind;
pub use picture::pictures;
pub use replay::{QueueLine, Replay, StoppedBy, UserReplay, replay, replay_at};
pub use skipped::{Case, Reason, Skipped, printable};
pub use wall::Wall;

use collected::{CollectError, Collected, ReplayableMail};
use postfix::Anchor;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_core::time::Instant;
use weir_sim::input::InputError;
use weir_sim::trace::Mail;

/// Mail that was sent, in the order in which it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastMail {
    /// When the earliest mail was sent: the zero of the mails' times.
    pub start: Wall,
    /// The mails.
    pub mails: Vec<Mail>,
    /// What each of them is called where it was found, in the same order.
    pub origins: Vec<MailOrigin>,
    /// Names of the sources.
    pub sources: Vec<String>,
    /// What could not be used.
    pub skipped: Skipped,
}

/// Where a mail was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailOrigin {
    /// Which of the sources.
    pub source: usize,
    /// The queue id, the file name, or the line where the mail begins.
    pub name: Box<str>,
}

/// Reads sources one after the other.
#[derive(Debug)]
pub struct Reader {
    /// The kind of every source; if none is given, each is recognised by its content.
    kind: Option<SourceKind>,
    /// For logs that do not write the year: the year of their last line.
    year: Option<i32>,
    collected: Collected,
}

/// This many bytes are enough to recognise the kind of a file.
const PEEK: usize = 64 * 1024;

impl Reader {
    /// A reader of the mail that is `wanted`.
    pub fn new(kind: Option<SourceKind>, year: Option<i32>, wanted: Wanted) -> Reader {
        let canonical = |text: &String| address::canonical(text).unwrap_or_else(|| text.clone());
        let ignored_recipients = wanted.ignored_recipients.iter().map(canonical).collect();
        Reader { kind, year, collected: Collected::new(Wanted { ignored_recipients, ..wanted }) }
    }

    /// Reads a file or a folder.
    pub fn path(&mut self, path: &Path) -> Result<(), InputError> {
        let unreadable = |error| InputError::unreadable(path, &error);
        let data = std::fs::metadata(path).map_err(unreadable)?;
        if data.is_dir() {
            return self.folder(path);
        }
        if is_device(&data) {
            return Err(kind::refused(path, "is a device, not a file", "give a file, or '-' for standard input"));
        }
        let written = data.modified().ok().and_then(wall_of).unwrap_or_else(now);
        let input = BufReader::with_capacity(PEEK, File::open(path).map_err(unreadable)?);
        self.stream(path, input, written)
    }

    /// Reads an open source called `name`, which was last written at `written`.
    pub fn stream(&mut self, name: &Path, mut input: impl BufRead, written: Wall) -> Result<(), InputError> {
        self.collected.sources.push(name.display().to_string());
        let beginning = input.fill_buf().map_err(|error| InputError::unreadable(name, &error))?;
        if beginning.is_empty() {
            self.collected.skip(Reason::EmptyFile, || "no bytes at all".into());
            return Ok(());
        }
        kind::refuse_compressed(name, beginning)?;
        let kind = self.kind.map_or_else(|| SourceKind::of(name, beginning), Ok)?;
        let anchor = self.year.map_or(Anchor::Written(written), Anchor::Year);
        let result = match kind {
            SourceKind::Mbox => mbox::read(input, &mut self.collected),
            SourceKind::Postfix => postfix::read(input, anchor, &mut self.collected),
            SourceKind::Maildir => {
                return Err(kind::refused(
                    name,
                    "is a file, and a Maildir is a folder",
                    "give the folder that holds cur/",
                ));
            }
        };
        result.map_err(|trouble| explain(name, &trouble))
    }

    /// The mails of all sources, in order of time.
    pub fn finish(self) -> Result<PastMail, InputError> {
        let Collected { mut mails, skipped, sources, .. } = self.collected;
        mails.sort_by_key(|mail| mail.at);
        let Some(start) = mails.first().map(|mail| mail.at) else { return Err(nothing(&sources, &skipped)) };
        let (mut traced, mut origins) = (Vec::with_capacity(mails.len()), Vec::with_capacity(mails.len()));
        for ReplayableMail { at, user, to, source, name } in mails {
            traced.push(Mail { at: Instant(at.0.abs_diff(start.0)), user, to });
            origins.push(MailOrigin { source, name });
        }
        Ok(PastMail { start, mails: traced, origins, sources, skipped })
    }

    fn folder(&mut self, path: &Path) -> Result<(), InputError> {
        if self.kind.is_some_and(|kind| kind != SourceKind::Maildir) {
            return Err(kind::refused(path, "is a folder", "only a Maildir is a folder; leave --kind out"));
        }
        let folders = maildir::folders(path).map_err(|error| InputError::unreadable(path, &error))?;
        if folders.is_empty() {
            let hint = "give a folder that holds cur/ and new/, a .Sent folder, or one such folder a user";
            return Err(kind::refused(path, "is a folder but no Maildir", hint));
        }
        for folder in folders {
            self.collected.sources.push(folder.path.display().to_string());
            maildir::read(&folder, &mut self.collected).map_err(|trouble| explain(&folder.path, &trouble))?;
        }
        Ok(())
    }
}

impl PastMail {
    /// The wall clock at a time of the trace.
    pub fn wall(&self, at: Instant) -> Wall {
        Wall(self.start.0.saturating_add(i64::try_from(at.0).unwrap_or(i64::MAX)))
    }
}

/// The wall clock now, for sources that have no time of their own.
pub fn now() -> Wall {
    wall_of(SystemTime::now()).unwrap_or(Wall(0))
}

fn wall_of(time: SystemTime) -> Option<Wall> {
    Wall::from_unix_seconds(i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?)
}

#[cfg(unix)]
fn is_device(data: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    data.file_type().is_char_device() || data.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    false
}

fn explain(path: &Path, trouble: &CollectError) -> InputError {
    let hint = match trouble {
        CollectError::Io(_) => "check the path and its permissions",
        CollectError::TooMuch => "replay it in parts, such as one month at a time",
    };
    kind::refused(path, &trouble.to_string(), hint)
}

fn nothing(sources: &[String], skipped: &Skipped) -> InputError {
    let counts: Vec<String> =
        skipped.cases().map(|(reason, case)| format!("{} × {}", case.count, reason.words())).collect();
    let skipped = if counts.is_empty() { String::new() } else { format!("; skipped: {}", counts.join(", ")) };
    let hint = "give a mailbox of sent mail or a Postfix log; --kind forces how it is read";
    InputError::new(sources.join(", "), format!("no mail found{skipped}"), hint)
}

#[cfg(test)]
mod tests;
