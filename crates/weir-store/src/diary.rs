//! The diary: a log of what happened to each message, for `weir trace` and `weir find`.
//!
//! A line is a JSON object in a file: when, which message, what, and what else it is about (another message, a sample, a Message-ID).
//! Writing a line never blocks: lines go through a bounded channel to one thread, which writes them in batches and does not sync. A kill
//! loses what was in the channel, and a power cut what was not on the disk yet; what must not be lost is in the records and the spool. When
//! lines come faster than they can be written, or cannot be written because the disk is full, they are dropped, and the diary says how many.
//! The total size of the files is bounded: the oldest file is removed first. A query reads all of them, once for each step from one message
//! to the next. [`crate::tracking`] reads them as they grow and makes an index of them.

mod facts;
mod tail;

pub use facts::Facts;
pub(crate) use tail::{DiaryPart, DiaryPosition, read_on};

use crate::unless_gone;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many lines may wait to be written.
const WAITING_MAX: usize = 2_048;
/// The size limit is divided among this many files.
const FILES: u64 = 8;
/// The longest text of one line, in characters, and the largest number of things that a line is about.
const TEXT_MAX: usize = 1_000;
const ABOUT_MAX: usize = 40;
/// How many lines one answer has at most.
const LINES_MAX: usize = 5_000;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// How long a caller waits for the writer.
const PATIENCE: Duration = Duration::from_secs(2);

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiaryLine {
    /// When, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// The message.
    pub id: String,
    /// What happened, in a word.
    pub event: String,
    /// And in words; a line with facts may leave them to those.
    pub text: String,
    /// What else it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// What the line says about the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<Facts>>,
}

impl DiaryLine {
    /// A line with the present time.
    // Ids are small, of several kinds, and at hand.
    #[allow(clippy::needless_pass_by_value)]
    pub fn new(id: impl ToString, event: &str, text: impl Into<String>) -> DiaryLine {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        DiaryLine { at, id: id.to_string(), event: event.to_owned(), text: text.into(), ..DiaryLine::default() }
    }

    /// The same with facts about the message.
    #[must_use]
    pub fn with(self, facts: Facts) -> DiaryLine {
        DiaryLine { facts: Some(Box::new(facts)), ..self }
    }

    /// The same with words, if only facts were written.
    fn told(mut self) -> DiaryLine {
        if let (true, Some(facts)) = (self.text.is_empty(), &self.facts) {
            self.text = facts.in_words();
        }
        self
    }

    /// The same, also about these.
    #[must_use]
    pub fn about(mut self, things: impl IntoIterator<Item = impl Into<String>>) -> DiaryLine {
        self.about.extend(things.into_iter().map(Into::into).filter(|thing: &String| !thing.is_empty()));
        self
    }

    /// The same at another time.
    #[must_use]
    pub fn at(self, at: u64) -> DiaryLine {
        DiaryLine { at: i64::try_from(at).unwrap_or(i64::MAX), ..self }
    }

    /// Limits the texts, because strangers may have written them.
    fn bounded(mut self) -> DiaryLine {
        let cut = |text: &str| -> String {
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_MAX).collect()
        };
        self.text = cut(&self.text);
        self.facts = self.facts.map(|facts| Box::new(facts.bounded()));
        self.about.truncate(ABOUT_MAX);
        self.about.iter_mut().for_each(|thing| *thing = cut(thing));
        self
    }
}

/// The diary. Cheap to clone; the default one keeps nothing.
#[derive(Debug, Clone, Default)]
pub struct Diary {
    open: Option<Arc<Open>>,
}

#[derive(Debug)]
struct Open {
    lines: SyncSender<DiaryRequest>,
    lost: Arc<AtomicU64>,
}

enum DiaryRequest {
    Line(DiaryLine),
    /// Answered when everything before it is in the file.
    Settle(SyncSender<()>),
}

impl Diary {
    /// The diary in this folder (created if it does not exist), of at most this many bytes; 0 for none.
    pub fn open(folder: &Path, bytes_max: u64) -> io::Result<Diary> {
        if bytes_max == 0 {
            return Ok(Diary::default());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (lines, orders) = sync_channel(WAITING_MAX);
        let lost = Arc::<AtomicU64>::default();
        let writer = DiaryWriter::new(folder.to_owned(), (bytes_max / FILES).max(1), Arc::clone(&lost))?;
        std::thread::Builder::new()
            .name("weir-diary".into())
            .stack_size(256 << 10)
            .spawn(move || writer.run(&orders))?;
        Ok(Diary { open: Some(Arc::new(Open { lines, lost })) })
    }

    /// Writes a line. Does not wait; does nothing if no diary is kept.
    pub fn note(&self, line: DiaryLine) {
        let Some(open) = &self.open else { return };
        if let Err(TrySendError::Full(_)) = open.lines.try_send(DiaryRequest::Line(line.bounded())) {
            open.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns when everything that was noted before is in the files, or after a short wait. Blocks.
    pub fn settle(&self) {
        let Some(open) = &self.open else { return };
        let (done, settled) = sync_channel(1);
        if open.lines.send(DiaryRequest::Settle(done)).is_ok() {
            let _ = settled.recv_timeout(PATIENCE);
        }
    }
}

/// The lines about any of these things, oldest first: a message, or something else that a line names. Blocks for as long as it takes to read
/// the whole diary.
pub fn lines_about(folder: &Path, things: &[String]) -> io::Result<Vec<DiaryLine>> {
    // In its line a thing is a complete JSON text, so this text is searched before a line is parsed as JSON.
    let wanted: Vec<String> = things.iter().filter_map(|thing| serde_json::to_string(thing).ok()).collect();
    let fits = |line: &DiaryLine| things.iter().any(|thing| line.id == *thing || line.about.contains(thing));
    let mut found = Vec::new();
    for (_, path) in files(folder)? {
        // The file may have been the oldest, and have been removed meanwhile.
        let Some(file) = unless_gone(File::open(&path))? else { continue };
        for line in BufReader::with_capacity(READ_BYTES, file).split(b'\n') {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            if found.len() < LINES_MAX
                && wanted.iter().any(|thing| text.contains(thing.as_str()))
                && let Ok(line) = serde_json::from_str::<DiaryLine>(&text)
                && fits(&line)
            {
                found.push(line.told());
            }
        }
    }
    found.sort_by_key(|line| line.at);
    Ok(found)
}

/// Copies the diary into another folder, while it may be written. Blocks.
pub fn copy(folder: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for (number, path) in files(folder)? {
        unless_gone(fs::copy(path, to.join(name(number))))?;
    }
    Ok(())
}

/// The thread's side.
struct DiaryWriter {
    folder: PathBuf,
    file_bytes_max: u64,
    file: File,
    number: u64,
    length: u64,
    /// Whether the file may end within a line.
    is_torn: bool,
    lost: Arc<AtomicU64>,
}

impl DiaryWriter {
    fn new(folder: PathBuf, file_bytes_max: u64, lost: Arc<AtomicU64>) -> io::Result<DiaryWriter> {
        let number = files(&folder)?.last().map_or(1, |(number, _)| *number);
        let (file, length) = append(&folder, number)?;
        // A kill may have left an incomplete line.
        Ok(DiaryWriter { folder, file_bytes_max, file, number, length, is_torn: length > 0, lost })
    }

    fn run(mut self, orders: &Receiver<DiaryRequest>) {
        let (mut text, mut failing) = (Vec::new(), false);
        while let Ok(first) = orders.recv() {
            let mut waiting = Vec::new();
            for order in std::iter::once(first).chain(orders.try_iter().take(WAITING_MAX)) {
                match order {
                    DiaryRequest::Line(line) => written(&line, &mut text),
                    DiaryRequest::Settle(done) => waiting.push(done),
                }
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let words = format!("{lost} lines came too fast, or could not be written");
                written(&DiaryLine::new("", "lost", words), &mut text);
            }
            match self.write(&text) {
                Ok(()) => failing = false,
                Err(error) => {
                    // The line about those that were lost before is lost as well, and was counted as one.
                    self.lost.fetch_add(lost.saturating_sub(1), Ordering::Relaxed);
                    // Logged once, because otherwise a full disk would fill the log too.
                    if !failing {
                        tracing::warn!(%error, "the diary cannot be written");
                    }
                    failing = true;
                }
            }
            text.clear();
            text.shrink_to(1 << 20);
            for done in waiting {
                let _ = done.try_send(());
            }
        }
    }

    /// Writes whole lines. Those that cannot be written count as lost.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut kept = 0;
        let done = self.make_room().and_then(|()| self.put(text, &mut kept));
        if done.is_err() {
            let lost = text[kept..].iter().filter(|octet| **octet == b'\n').count();
            self.lost.fetch_add(lost as u64, Ordering::Relaxed);
        }
        done
    }

    /// Goes on in the next file if this one is full, and removes the oldest.
    fn make_room(&mut self) -> io::Result<()> {
        if self.length >= self.file_bytes_max {
            // A disk that is full for a while must not use up numbers, because the oldest files are removed by them.
            let next = self.number + 1;
            (self.file, self.length) = append(&self.folder, next)?;
            (self.number, self.is_torn) = (next, self.length > 0);
            for (number, path) in files(&self.folder)? {
                if number + FILES <= self.number {
                    unless_gone(fs::remove_file(path))?;
                }
            }
        }
        Ok(())
    }

    /// Writes at the end of the file; `kept` says how much of it is there. What a full disk leaves of a line must not spoil the next one, so
    /// that one begins on a line of its own.
    fn put(&mut self, text: &[u8], kept: &mut usize) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            (self.length, self.is_torn) = (self.length + 1, false);
        }
        while *kept < text.len() {
            match self.file.write(&text[*kept..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => {
                    *kept += more;
                    (self.length, self.is_torn) = (self.length + more as u64, !text[..*kept].ends_with(b"\n"));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn written(line: &DiaryLine, text: &mut Vec<u8>) {
    let begun = text.len();
    if serde_json::to_writer(&mut *text, line).is_err() {
        text.truncate(begun);
        return;
    }
    text.push(b'\n');
}

fn append(folder: &Path, number: u64) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(name(number)))?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn name(number: u64) -> String {
    format!("{number:010}.jsonl")
}

/// The files by number; none if there is no folder.
fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for path in entries.map(|entry| Ok::<_, io::Error>(entry?.path())) {
        let path = path?;
        let number = path.extension().filter(|kind| *kind == "jsonl").and(path.file_stem());
        if let Some(number) = number.and_then(|stem| stem.to_str()?.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(folder: &Path, thing: &str) -> Vec<String> {
        lines_about(folder, &[thing.to_owned()]).unwrap().into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_found_by_message_and_by_what_they_are_about() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), 1 << 20).unwrap();
        diary.note(DiaryLine::new("m1", "accepted", "one").about(["<x\"y@z>", ""]).at(7));
        diary.note(DiaryLine::new("m2", "released", "two").about(["m1"]).at(5));
        diary.note(DiaryLine::new("m11", "accepted", "says \"m1\"").at(6));
        diary.settle();
        assert_eq!(about(folder.path(), "m1"), ["two", "one"], "in the order of time");
        assert_eq!(about(folder.path(), "<x\"y@z>"), ["one"]);
        assert_eq!(about(folder.path(), "m9"), Vec::<String>::new());
        drop(diary);
        let again = Diary::open(folder.path(), 1 << 20).unwrap();
        again.note(DiaryLine::new("m2", "delivered", "a\nb"));
        again.settle();
        assert_eq!(about(folder.path(), "m2"), ["two", "a b"], "the next life goes on in the same file");
    }

    #[test]
    fn the_oldest_goes_first_and_no_line_is_endless() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), 16 << 10).unwrap();
        for number in 0..300 {
            diary.note(DiaryLine::new(format!("m{number}"), "accepted", "x".repeat(5_000)));
            diary.settle();
        }
        let kept = files(folder.path()).unwrap();
        let bytes: u64 = kept.iter().map(|(_, path)| path.metadata().unwrap().len()).sum();
        assert!(kept.len() as u64 <= FILES && bytes < 32 << 10, "{} files, {bytes} bytes", kept.len());
        assert!(about(folder.path(), "m0").is_empty());
        assert_eq!(about(folder.path(), "m299"), ["x".repeat(TEXT_MAX)]);
    }

    #[test]
    fn a_copy_says_the_same_and_goes_on() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let diary = Diary::open(folder.path(), 16 << 10).unwrap();
        for number in 0..40 {
            diary.note(DiaryLine::new("m", "accepted", format!("{number} {}", "x".repeat(900))));
            diary.settle();
        }
        let kept = about(folder.path(), "m");
        assert!(kept.len() > 4 && files(folder.path()).unwrap().len() > 2, "more than one file");
        let to = other.path().join("diary");
        copy(folder.path(), &to).unwrap();
        assert_eq!(about(&to, "m"), kept);
        diary.note(DiaryLine::new("m", "delivered", "later"));
        diary.settle();
        assert_eq!(about(&to, "m"), kept, "it is a copy");
        let next = Diary::open(&to, 16 << 10).unwrap();
        next.note(DiaryLine::new("m", "delivered", "elsewhere"));
        next.settle();
        assert_eq!(about(&to, "m").last().map(String::as_str), Some("elsewhere"));
        copy(&folder.path().join("none"), &other.path().join("empty")).unwrap();
        assert!(about(&other.path().join("empty"), "m").is_empty());
    }

    #[test]
    fn no_diary_is_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let none = Diary::open(&folder.path().join("none"), 0).unwrap();
        none.note(DiaryLine::new("m", "accepted", ""));
        none.settle();
        assert!(about(&folder.path().join("none"), "m").is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_made_costs_no_older_one() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("diary");
        fs::create_dir(&folder).unwrap();
        let mut writer = DiaryWriter::new(folder.clone(), 10, Arc::default()).unwrap();
        writer.write(b"{}\n{}\n{}\n{}\n").unwrap();
        fs::rename(&folder, home.path().join("away")).unwrap();
        for _ in 0..20 {
            assert!(writer.write(b"{}\n").is_err());
        }
        fs::rename(home.path().join("away"), &folder).unwrap();
        writer.write(b"{}\n").unwrap();
        let numbers: Vec<u64> = files(&folder).unwrap().into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2]);
    }

    #[test]
    fn lines_that_a_full_disk_swallows_are_counted_and_spoil_no_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let line = |id: &str| {
            let mut text = Vec::new();
            written(&DiaryLine::new(id, "accepted", id), &mut text);
            text
        };
        let full = || OpenOptions::new().append(true).open("/dev/full").unwrap();
        let lost = Arc::<AtomicU64>::default();
        let mut writer = DiaryWriter::new(folder.path().to_owned(), 1 << 20, Arc::clone(&lost)).unwrap();
        writer.write(&line("m1")).unwrap();
        let real = std::mem::replace(&mut writer.file, full());
        assert!(writer.write(&[line("m2"), line("m3")].concat()).is_err());
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        // A line of which only half found room.
        writer.file = real;
        writer.put(&line("m4")[..20], &mut 0).unwrap();
        writer.write(&line("m5")).unwrap();
        assert_eq!(["m1", "m2", "m4", "m5"].map(|id| about(folder.path(), id).len()), [1, 0, 0, 1]);
        // The thread counts its own, and those that it wanted to tell about.
        let write = |mut writer: DiaryWriter, file: Option<File>| {
            let (lines, orders) = sync_channel(1);
            lines.send(DiaryRequest::Line(DiaryLine::new("m6", "accepted", ""))).unwrap();
            drop(lines);
            writer.file = file.unwrap_or(writer.file);
            writer.run(&orders);
        };
        write(writer, Some(full()));
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        write(DiaryWriter::new(folder.path().to_owned(), 1 << 20, Arc::clone(&lost)).unwrap(), None);
        let told = lines_about(folder.path(), &[String::new()]).unwrap();
        assert_eq!(
            told.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(),
            ["3 lines came too fast, or could not be written"]
        );
    }

    #[test]
    fn what_is_broken_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0000000003.jsonl"), b"{\"at\":1,\"id\":\"m\n\xff\xfe \"m\"\n").unwrap();
        let diary = Diary::open(folder.path(), 1 << 20).unwrap();
        diary.note(DiaryLine::new("m", "accepted", "whole"));
        diary.settle();
        assert_eq!(about(folder.path(), "m"), ["whole"]);
    }
}
