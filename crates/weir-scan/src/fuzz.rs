//! Entries for fuzzers: the walk through messages and archives, clamd's replies, and what clients ask in clamd's place.
//!
//! Each takes arbitrary bytes and panics if a promise is broken. The tests run them on stable with fixed seeds, `fuzz/` with
//! coverage.

use crate::attachments::name;
use crate::attachments::policy::Policy;
use crate::budget::{Budget, Exceeded, Limits};
use crate::clamd::reply::{REPLY_MAX, Scanned, Version, threads};
use crate::clamd::server::{ClamdCommand, Garbled, Question, Questions};
use crate::plain;
use crate::walk::{self, File, NestedPath, Oddity, Visit};
use std::time::Duration;

/// Small enough that every bound is met now and then.
fn limits() -> Limits {
    Limits {
        message_bytes: 1 << 20,
        levels: 8,
        parts: 50,
        header_bytes: 2048,
        depth: 4,
        entries: 30,
        bytes: 4 << 20,
        held_bytes: 2 << 20,
        ratio: 100,
        time: Duration::from_secs(20),
    }
}

/// Counts what it is shown, and checks it.
#[derive(Default)]
struct Counter {
    files: u32,
    bytes: u64,
}

impl Visit for Counter {
    fn file(&mut self, place: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded> {
        self.files += 1;
        self.bytes += file.data.len() as u64;
        assert!(place.to_string().chars().all(plain::is_plain), "{place}");
        let _ = Policy::default().judge(file);
        budget.time()
    }

    fn odd(&mut self, place: &NestedPath, oddity: Oddity) {
        assert!(place.to_string().len() < 4000);
        let _ = Policy::default().judge_oddity(&oddity);
    }
}

/// A message.
pub fn message(data: &[u8]) {
    let (limits, mut counter) = (limits(), Counter::default());
    let walked = walk::walk(data, &mut Budget::new(&limits), &mut counter);
    check(walked, &counter, &limits, data.len());
}

/// A file, whose first octet says nothing: archives of all kinds begin behind it.
pub fn archive(data: &[u8]) {
    let Some((_, data)) = data.split_first() else { return };
    let (limits, mut counter) = (limits(), Counter::default());
    let walked = walk::walk_file(&["file".to_owned()], data, &mut Budget::new(&limits), &mut counter);
    check(walked, &counter, &limits, data.len());
}

fn check(walked: Result<(), Exceeded>, counter: &Counter, limits: &Limits, length: usize) {
    assert!(!matches!(walked, Err(Exceeded::Time(_))), "a small input took {:?}", limits.time);
    // Each part can be seen once as it is, once a further encoding, twice more if that is base64, and once for a file in its text.
    let files = 8 * limits.parts + 4 * limits.entries + 6;
    assert!(counter.files <= files, "{} files", counter.files);
    let most = limits.bytes + limits.held_bytes + u64::from(files) * length as u64;
    assert!(counter.bytes <= most, "{} bytes", counter.bytes);
}

/// What a client asks in clamd's place is understood in the same way however it is cut, and every reply is one. The first octet says how it is cut.
pub fn clamd_door(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    assert_eq!(asked(data, usize::MAX), asked(data, usize::from(*cut) + 1), "the cuts changed what was understood");
}

/// All questions, pieces of a stream put together, each with its reply to the text `data`; and why no more was listened to.
fn asked(data: &[u8], size: usize) -> (Vec<(ClamdCommand, Vec<u8>)>, Option<Garbled>) {
    let (mut questions, mut found) = (Questions::default(), Vec::<(ClamdCommand, Vec<u8>)>::new());
    let (text, mut announced) = (String::from_utf8_lossy(data), false);
    for piece in data.chunks(size) {
        questions.feed(piece);
        loop {
            // The octet that a descriptor comes with.
            if announced && !questions.skip() {
                break;
            }
            announced = false;
            let Question { asked, form } = match questions.next_question() {
                Ok(Some(question)) => question,
                Ok(None) => break,
                Err(garbled) => return (found, Some(garbled)),
            };
            announced = asked == ClamdCommand::Descriptor;
            let reply = form.write(&text);
            let inside = &reply[..reply.len() - 1];
            assert!(inside.iter().all(|octet| !octet.is_ascii_control()), "a reply is one line");
            match (found.last_mut(), asked) {
                (Some((ClamdCommand::Piece(before), _)), ClamdCommand::Piece(more)) => before.extend(more),
                (_, asked) => found.push((asked, reply)),
            }
        }
    }
    (found, None)
}

/// What clamd says, and file names.
pub fn clamd(data: &[u8]) {
    if let Ok(Scanned::Clean) = Scanned::read(data) {
        assert_eq!(data, b"stream: OK", "only this is clean");
    }
    if let Ok(Scanned::Found(text) | Scanned::Limit(text) | Scanned::Error(text)) = Scanned::read(data) {
        assert!(data.len() <= REPLY_MAX && text.chars().count() <= 200 && text.chars().all(plain::is_plain));
    }
    let _ = Version::read(data);
    assert!(threads(data).is_none_or(|most| (1..=10_000).contains(&most)));
    let opinion = crate::rspamd::read(data).map(|reading| {
        let lines = reading.wishes.lines();
        assert!(lines.lines().all(|line| line.contains(": ")) && lines.is_empty() != lines.ends_with("\r\n"));
        reading.opinion
    });
    for said in [opinion, crate::spamd::read(data)] {
        if let Err(why) = said {
            assert!(why.chars().count() <= 300 && why.chars().all(plain::is_plain), "{why:?}");
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = name::fault(text, &Policy::default());
        let _ = crate::file_name::extension(text);
    }
}
