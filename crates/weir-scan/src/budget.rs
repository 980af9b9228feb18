//! What one message may cost: bytes, ratio, depth, entries and time, for everything that is inside it together.
//!
//! Code that unpacks something asks the budget before each piece. When it is spent the walk ends with [`Exceeded`], which becomes "not
//! scanned" in words, never "clean". Time is the thread's own processor time: a busy machine changes no verdict.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::time::Duration;
use weir_settings::settings;

settings! {
    /// The bounds.
    #[derive(PartialEq, Eq, Serialize, Deserialize)]
    pub struct Limits {
        /// A larger message is not scanned
        pub message_bytes as "message_size": u64 = size("100MiB", "1KiB"..="4GiB"),
        /// Messages and multiparts inside each other
        pub levels: u32 = number(64, 1..=200),
        /// Parts of all messages together
        pub parts: u32 = number(10_000, 1..=1_000_000),
        /// The header of one part
        pub header_bytes as "header": u64 = size("1MiB", "1KiB"..="64MiB"),
        /// Archives inside each other
        pub depth: u32 = number(8, 0..=32),
        /// Files in all archives together
        pub entries: u32 = number(10_000, 0..=1_000_000),
        /// The unpacked size of all archives together
        pub bytes as "unpacked": u64 = size("512MiB", "1MiB"..="64GiB"),
        /// How much of that may be in memory at once
        pub held_bytes as "unpacked_at_once": u64 = size("256MiB", "1MiB"..="16GiB"),
        /// How many bytes one packed byte may unpack to, beyond the first 8 MiB
        pub ratio: u32 = number(250, 1..=100_000),
        /// Processor time for one message
        pub time as "processor_time": Duration = duration("20s", "1s"..="10m"),
    }
}

/// Small things compress as they like.
pub const RATIO_FREE_BYTES: u64 = 8 << 20;

/// Between two looks at the clock.
const PIECE: usize = 64 << 10;

/// What is left for one message.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    begun: Duration,
    parts: u32,
    entries: u32,
    bytes: u64,
    held: u64,
    /// Where unpacking reads into; made once, since archives have many small members.
    piece: Vec<u8>,
}

impl Budget {
    /// A full one; its time runs from now.
    pub fn new(limits: &Limits) -> Budget {
        Budget {
            limits: limits.clone(),
            begun: processor_time(),
            parts: 0,
            entries: 0,
            bytes: 0,
            held: 0,
            piece: Vec::new(),
        }
    }

    /// The bounds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// One more part of a message.
    pub fn part(&mut self) -> Result<(), Exceeded> {
        self.parts += 1;
        if self.parts > self.limits.parts { Err(Exceeded::Parts(self.limits.parts)) } else { Ok(()) }
    }

    /// One more member of an archive.
    pub fn entry(&mut self) -> Result<(), Exceeded> {
        self.entries += 1;
        if self.entries > self.limits.entries { Err(Exceeded::Entries(self.limits.entries)) } else { self.time() }
    }

    /// Whether there is time left.
    pub fn time(&self) -> Result<(), Exceeded> {
        if self.left().is_zero() { Err(Exceeded::Time(self.limits.time)) } else { Ok(()) }
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.limits.time.saturating_sub(processor_time().saturating_sub(self.begun))
    }

    /// When the time ends, for a reader that cannot ask the budget while it reads.
    pub(crate) fn clock(&self) -> CpuDeadline {
        CpuDeadline { end: self.begun.saturating_add(self.limits.time) }
    }

    /// Whether an archive may be opened at this depth.
    pub fn depth(&self, depth: u32) -> Result<(), Exceeded> {
        if depth > self.limits.depth { Err(Exceeded::Depth(self.limits.depth)) } else { Ok(()) }
    }

    /// `more` bytes come into memory. They are given back with [`Budget::release`].
    pub fn hold(&mut self, more: usize) -> Result<(), Exceeded> {
        let bytes = self.bytes.saturating_add(more as u64);
        if bytes > self.limits.bytes {
            return Err(Exceeded::Bytes(self.limits.bytes));
        }
        self.room(more)?;
        self.bytes = bytes;
        self.held += more as u64;
        Ok(())
    }

    /// Whether `more` bytes would fit, before they are made.
    pub fn room(&self, more: usize) -> Result<(), Exceeded> {
        if self.held.saturating_add(more as u64) > self.limits.held_bytes {
            return Err(Exceeded::Held(self.limits.held_bytes));
        }
        Ok(())
    }

    /// What is in memory now.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// A reader crashed, and what it held is gone.
    pub(crate) fn held_again(&mut self, held: u64) {
        self.held = held;
    }

    /// They are gone again.
    pub fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes as u64);
    }

    /// Reads a packed member to its end. The caller releases the length of what it gets, also of a part of it.
    pub fn unpack(&mut self, packed: u64, from: &mut dyn Read) -> Unpacked {
        let (mut data, mut piece) = (Vec::new(), std::mem::take(&mut self.piece));
        piece.resize(PIECE, 0);
        let end = loop {
            let read = match from.read(&mut piece) {
                Ok(0) => break UnpackEnd::Whole,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break UnpackEnd::Broken(error.to_string()),
            };
            let checked = self.ratio(packed, (data.len() + read) as u64).and_then(|()| self.time());
            if let Err(exceeded) = checked.and_then(|()| self.hold(read)) {
                // The last piece is not kept, so it is not held either.
                break UnpackEnd::Exceeded(exceeded);
            }
            grow(&mut data, read, self.limits.held_bytes.saturating_sub(self.held));
            data.extend_from_slice(&piece[..read]);
        };
        self.piece = piece;
        Unpacked { data, end }
    }

    fn ratio(&self, packed: u64, out: u64) -> Result<(), Exceeded> {
        let most = packed.saturating_mul(u64::from(self.limits.ratio)).max(RATIO_FREE_BYTES);
        if out > most { Err(Exceeded::Ratio(self.limits.ratio)) } else { Ok(()) }
    }
}

/// Makes room for more: twice as much, as vectors do, but not beyond what may still be held. Smaller steps would need less
/// room at a time and far more in all: what is too small is left behind, and a worker's addresses are bounded.
fn grow(data: &mut Vec<u8>, more: usize, room: u64) {
    if data.capacity() - data.len() < more {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        data.reserve_exact(more.max(data.len().min(more.saturating_add(room))));
    }
}

/// What came out of a member.
#[derive(Debug)]
pub struct Unpacked {
    /// All of it, or as far as it went.
    pub data: Vec<u8>,
    /// How it ended.
    pub end: UnpackEnd,
}

/// How unpacking ended.
#[derive(Debug)]
pub enum UnpackEnd {
    /// At the end.
    Whole,
    /// What is packed is damaged, in words.
    Broken(String),
    /// The budget is spent.
    Exceeded(Exceeded),
}

/// When the time of a message ends, for the thread that reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuDeadline {
    end: Duration,
}

impl CpuDeadline {
    pub(crate) fn is_over(self) -> bool {
        processor_time() >= self.end
    }
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Which bound was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The message is too large.
    #[error("the message is larger than {} MiB", .0 >> 20)]
    Message(u64),
    /// Too many levels.
    #[error("more than {0} messages inside each other")]
    Levels(u32),
    /// Too many parts.
    #[error("more than {0} parts")]
    Parts(u32),
    /// A header is too long.
    #[error("a header of more than {} KiB", .0 >> 10)]
    Header(u64),
    /// Archives too deep.
    #[error("more than {0} archives inside each other")]
    Depth(u32),
    /// Too many members.
    #[error("more than {0} files in archives")]
    Entries(u32),
    /// Too much comes out.
    #[error("unpacks to more than {} MiB", .0 >> 20)]
    Bytes(u64),
    /// Too much at once.
    #[error("needs more than {} MiB at once", .0 >> 20)]
    Held(u64),
    /// Too much comes out of too little.
    #[error("unpacks to more than {0} times its size")]
    Ratio(u32),
    /// An archive wants a dictionary that is too large.
    #[error("an archive that needs {} MiB to unpack", .0 >> 20)]
    Dictionary(u64),
    /// It takes too long.
    #[error("takes more than {} s of processor time", .0.as_secs())]
    Time(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limits: &Limits) -> Budget {
        Budget::new(limits)
    }

    #[test]
    fn a_stream_of_zeros_ends_at_the_ratio() {
        let mut budget = budget(&Limits::default());
        let unpacked = budget.unpack(1000, &mut io::repeat(0));
        assert!(matches!(unpacked.end, UnpackEnd::Exceeded(Exceeded::Ratio(250))), "{:?}", unpacked.end);
        assert_eq!(unpacked.data.len() as u64, RATIO_FREE_BYTES);
        assert!(unpacked.data.capacity() <= 2 * unpacked.data.len());
    }

    #[test]
    fn what_is_released_counts_in_the_sum_but_is_not_held() {
        let mut budget = budget(&Limits { bytes: 100, held_bytes: 60, ..Limits::default() });
        budget.hold(50).unwrap();
        budget.release(50);
        budget.hold(50).unwrap();
        budget.release(50);
        assert_eq!(budget.hold(1), Err(Exceeded::Bytes(100)));
    }

    #[test]
    fn what_does_not_fit_is_not_made() {
        let mut budget = budget(&Limits { held_bytes: 200 << 10, ..Limits::default() });
        let unpacked = budget.unpack(1 << 20, &mut io::repeat(0));
        assert!(matches!(unpacked.end, UnpackEnd::Exceeded(Exceeded::Held(_))), "{:?}", unpacked.end);
        assert!(unpacked.data.len() <= 200 << 10, "{} bytes were kept", unpacked.data.len());
        assert_eq!(budget.room(200 << 10), Err(Exceeded::Held(200 << 10)));
    }

    #[test]
    fn too_much_at_once_is_refused() {
        let mut budget = budget(&Limits { held_bytes: 60, ..Limits::default() });
        budget.hold(60).unwrap();
        assert_eq!(budget.hold(1), Err(Exceeded::Held(60)));
    }

    #[test]
    fn time_ends() {
        let budget = budget(&Limits { time: Duration::ZERO, ..Limits::default() });
        assert_eq!(budget.time(), Err(Exceeded::Time(Duration::ZERO)));
    }
}
