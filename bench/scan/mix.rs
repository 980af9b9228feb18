//! The mail that is sent: sizes by one of three laws, a share of it infected, no two messages alike.
//!
//! Text is random words; what is longer than a page carries its bytes as one attachment, base64. The same seed gives every
//! side messages of the same sizes and kinds in the same order, but never the same bytes: clamd remembers what it has seen.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_sim::rng::Rng;

/// How large messages are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// 4 KiB each, nothing infected.
    Even,
    /// The paper's: 90 % N(2 000, 400²), 10 % N(50 000, 10 000²) bytes.
    DualGaussian,
    /// 99 % of 4 KiB, 1 % of 10 MB.
    HeavyTailed,
}

/// What a message is counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Small,
    Large,
    Infected,
}

/// A message as it goes over the wire, between DATA and the final dot.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) class: Class,
    /// Its header, the line that makes it unlike all others, and its text.
    pub(crate) head: Arc<str>,
    /// What follows; shared among messages.
    pub(crate) tail: Arc<str>,
}

/// Of a hundred messages of a mix.
const INFECTED: f64 = 0.02;
const EVEN: usize = 4 << 10;
const HUGE: usize = 10_000_000;
/// One in each hundred, so that runs of a few hundred messages have as many large ones as they should; but at any place of
/// its hundred, for mail keeps no such order: large messages come close upon each other, and far apart.
const HUGE_EVERY: usize = 100;
/// Longer messages have an attachment.
const PAGE: usize = 12_000;

/// Makes messages.
pub(crate) struct Writer {
    /// Decides on kinds and sizes.
    rng: Rng,
    /// Fills messages; another one for each writer.
    fill: Rng,
    mix: Mix,
    /// What large messages carry.
    ballast: Ballast,
    infected: Vec<(String, Vec<u8>)>,
}

impl Writer {
    pub(crate) fn new(mix: Mix, seed: u64) -> Writer {
        static WRITERS: AtomicU64 = AtomicU64::new(1 << 32);
        let (rng, mut fill) = (Rng::new(seed), Rng::new(WRITERS.fetch_add(1, Ordering::Relaxed)));
        let ballast = Ballast::new(&mut fill, if mix == Mix::HeavyTailed { HUGE } else { 100_000 });
        Writer { rng, fill, mix, ballast, infected: infected() }
    }

    /// `count` messages.
    pub(crate) fn write(&mut self, count: usize) -> Vec<Message> {
        let mut turn_of_the_large = 0;
        let messages = (0..count).map(|number| {
            if number.is_multiple_of(HUGE_EVERY) {
                turn_of_the_large = number + self.rng.below(HUGE_EVERY.min(count - number) as u64) as usize;
            }
            self.message(number == turn_of_the_large)
        });
        messages.collect()
    }

    fn message(&mut self, turn_of_the_large: bool) -> Message {
        let (class, size) = match self.mix {
            Mix::Even => return self.text(EVEN),
            Mix::DualGaussian if self.rng.chance(0.1) => (Class::Large, self.rng.normal(50_000.0, 10_000.0)),
            Mix::DualGaussian => (Class::Small, self.rng.normal(2_000.0, 400.0)),
            Mix::HeavyTailed if turn_of_the_large => (Class::Large, HUGE as f64),
            Mix::HeavyTailed => (Class::Small, EVEN as f64),
        };
        if class == Class::Small && self.rng.chance(INFECTED) {
            return self.infected();
        }
        let size = size.max(700.0) as usize;
        if size <= PAGE { self.text(size) } else { self.attached(size) }
    }

    fn text(&mut self, size: usize) -> Message {
        let mut head = self.header("text/plain; charset=us-ascii");
        head.push_str("\r\n");
        while head.len() < size {
            self.line(&mut head);
        }
        Message { class: Class::Small, head: head.into(), tail: "".into() }
    }

    fn attached(&mut self, size: usize) -> Message {
        let head = self.parts("application/octet-stream", "data.bin");
        let tail = self.ballast.of(size.saturating_sub(head.len()));
        Message { class: Class::Large, head: head.into(), tail }
    }

    fn infected(&mut self) -> Message {
        let (name, content) = self.rng.pick(&self.infected).clone();
        let mut head = self.parts("application/octet-stream", &name);
        head.push_str(&base64(&content));
        Message { class: Class::Infected, head: head.into(), tail: END.into() }
    }

    /// A message of two parts, up to where the second part's bytes begin.
    fn parts(&mut self, kind: &str, name: &str) -> String {
        let mut head = self.header("multipart/mixed; boundary=\"cut\"");
        head.push_str("\r\n--cut\r\nContent-Type: text/plain\r\n\r\n");
        self.line(&mut head);
        let _ = write!(
            head,
            "--cut\r\nContent-Type: {kind}; name=\"{name}\"\r\nContent-Disposition: attachment; \
             filename=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        );
        if kind == "application/octet-stream" && name == "data.bin" {
            let unlike: Vec<u8> = (0..54).map(|_| self.fill.below(256) as u8).collect();
            head.push_str(&base64(&unlike));
        }
        head
    }

    fn header(&mut self, kind: &str) -> String {
        format!(
            "From: Some Body <sender@example.com>\r\nTo: Any One <to@example.net>\r\nSubject: {:x}\r\nDate: Sun, 1 Nov 2026 \
             12:00:00 +0000\r\nMessage-ID: <{:x}@example.com>\r\nMIME-Version: 1.0\r\nContent-Type: {kind}\r\n",
            self.fill.next_u64(),
            self.fill.next_u64()
        )
    }

    fn line(&mut self, text: &mut String) {
        for _ in 0..4 {
            let _ = write!(text, "{:016x} ", self.fill.next_u64());
        }
        text.push_str("\r\n");
    }
}

const END: &str = "--cut--\r\n";

/// Random bytes as base64 of every length that was asked for.
struct Ballast {
    lines: String,
    made: Vec<(usize, Arc<str>)>,
}

impl Ballast {
    fn new(rng: &mut Rng, length: usize) -> Ballast {
        let bytes: Vec<u8> = (0..length * 3 / 4 / 8 + 1).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        Ballast { lines: base64(&bytes), made: Vec::new() }
    }

    /// About so many bytes: whole lines, then the end of the message.
    fn of(&mut self, length: usize) -> Arc<str> {
        let length = (length / LINE * LINE).min(self.lines.len());
        if let Some((_, made)) = self.made.iter().find(|(of, _)| *of == length) {
            return Arc::clone(made);
        }
        let made: Arc<str> = format!("{}{END}", &self.lines[..length]).into();
        self.made.push((length, Arc::clone(&made)));
        made
    }
}

/// A line of 72 characters and its end.
const LINE: usize = 74;

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() / 54 * LINE + LINE);
    for line in bytes.chunks(54) {
        for group in line.chunks(3) {
            let value =
                group.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for place in 0..4 {
                let letter = LETTERS[(value >> (18 - 6 * place) & 63) as usize];
                text.push(if place <= group.len() { letter as char } else { '=' });
            }
        }
        text.push_str("\r\n");
    }
    text
}

/// EICAR, and Debian's test files for ClamAV.
fn infected() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(weir_peers::TEST_FILES);
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("clamav-testfiles ({error}): run `make setup`"));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let read =
        |path: &std::path::PathBuf| Some((path.file_name()?.to_string_lossy().into_owned(), std::fs::read(path).ok()?));
    let mut infected: Vec<_> = files.iter().filter_map(read).collect();
    // As many of the one as of the others.
    let eicar = ("eicar.txt".to_owned(), weir_peers::eicar().into_bytes());
    infected.extend(vec![eicar; infected.len()]);
    infected
}
