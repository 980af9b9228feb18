//! Makes the sleeps of a sample short, so that it cannot just wait until the lab stops watching.
//!
//! The time in the memory of the process is changed before the call and put back after it. The clock is moved forward by what was left out,
//! so that the time of day fits. The order of sleeps is kept: of two sleeps the longer one stays the longer, up to twenty seconds.

use crate::peek;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use std::time::Duration;

/// The longest that remains of a sleep.
const MOST: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_millis(100);
/// Time passes this many times as fast for the sample.
const PACE: u32 = 20;
/// No calendar is moved further than this at once.
const MOVED_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How a time stands in memory: seconds and nanoseconds, each of so many octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// Four, in most calls of the 32-bit world.
    Short,
    /// Eight.
    Long,
}

impl TimeForm {
    pub(crate) fn of(short: bool) -> TimeForm {
        if short { TimeForm::Short } else { TimeForm::Long }
    }

    fn octets(self) -> usize {
        match self {
            TimeForm::Short => 8,
            TimeForm::Long => 16,
        }
    }

    fn read(self, bytes: &[u8]) -> Option<Duration> {
        let (first, second) = bytes.split_at_checked(self.octets() / 2)?;
        let word = |half: &[u8]| match self {
            TimeForm::Short => half.try_into().ok().map(|word| i64::from(i32::from_ne_bytes(word))),
            TimeForm::Long => half.try_into().ok().map(i64::from_ne_bytes),
        };
        let (seconds, nanos) = (u64::try_from(word(first)?).ok()?, u32::try_from(word(second)?).ok()?);
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    fn write(self, time: Duration) -> Vec<u8> {
        let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
        match self {
            TimeForm::Short => [(seconds as u32).to_ne_bytes(), nanos.to_ne_bytes()].concat(),
            TimeForm::Long => [seconds.to_ne_bytes(), u64::from(nanos).to_ne_bytes()].concat(),
        }
    }
}

/// A sleep that was made short.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortened {
    at: u64,
    original: Vec<u8>,
    skipped: Duration,
    /// How long it would have been.
    pub(crate) wanted: Duration,
}

/// Makes a sleep short whose time is at this address: a span, or a point of time by a clock. None if it is short, or cannot be changed.
pub(crate) fn shorten(pid: i32, at: u64, until: Option<i32>, form: TimeForm) -> Option<Shortened> {
    let original = peek::bytes(pid, at, form.octets())?;
    let time = form.read(&original)?;
    let now = match until {
        None => Duration::ZERO,
        Some(clock) => Duration::from(clock_gettime(ClockId::from_raw(clock)).ok()?) + ahead(pid, clock),
    };
    let wanted = time.checked_sub(now)?;
    let rest = short(wanted);
    let bytes = form.write(now + rest);
    let skipped = wanted.checked_sub(rest).filter(|skipped| !skipped.is_zero())?;
    peek::write(pid, at, &bytes).then_some(Shortened { at, original, skipped, wanted })
}

/// How far a clock of this process is ahead of ours: it may have been made to believe that the machine is older.
fn ahead(pid: i32, clock: i32) -> Duration {
    let name = match clock {
        libc::CLOCK_MONOTONIC => "monotonic",
        libc::CLOCK_BOOTTIME => "boottime",
        _ => return Duration::ZERO,
    };
    let offsets = std::fs::read_to_string(format!("/proc/{pid}/timens_offsets")).unwrap_or_default();
    let line = offsets.lines().find_map(|line| line.strip_prefix(name));
    let seconds = line.and_then(|rest| rest.split_ascii_whitespace().next()).and_then(|number| number.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

impl Shortened {
    /// The sleep is over: the time is put back, and the calendar goes on.
    pub(crate) fn over(&self, pid: i32) {
        peek::write(pid, self.at, &self.original);
        if let Ok(now) = clock_gettime(ClockId::CLOCK_REALTIME) {
            let then = Duration::from(now) + self.skipped.min(MOVED_MAX);
            let _ = clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(then));
        }
    }
}

fn short(wanted: Duration) -> Duration {
    wanted.min(LEAST + wanted / PACE).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_become_short_and_keep_their_order() {
        let of = |millis| short(Duration::from_millis(millis)).as_millis();
        assert_eq!(
            [of(0), of(50), of(105), of(1000), of(5000), of(60_000), of(u64::MAX)],
            [0, 50, 105, 150, 350, 1000, 1000]
        );
    }

    #[test]
    fn a_time_in_memory_is_changed() {
        let mut time = [3600_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        let (me, at) = (std::process::id() as i32, time.as_mut_ptr() as u64);
        let shortened = shorten(me, at, None, TimeForm::Long).unwrap();
        assert_eq!(shortened.wanted, Duration::new(3600, 5));
        assert_eq!(TimeForm::Long.read(&time), Some(MOST));
        assert_eq!(shortened.original, [3600_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat());
        assert_eq!(shorten(me, 1, None, TimeForm::Long), None);
        let negative = [(-1_i64).to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        assert_eq!(shorten(me, negative.as_ptr() as u64, None, TimeForm::Long), None);
    }

    #[test]
    fn so_is_one_of_a_32_bit_program_and_nothing_behind_it() {
        let mut time = [3600_u32, 5, 77].map(u32::to_ne_bytes).concat();
        let (me, at) = (std::process::id() as i32, time.as_mut_ptr() as u64);
        let shortened = shorten(me, at, None, TimeForm::Short).unwrap();
        assert_eq!(shortened.wanted, Duration::new(3600, 5));
        assert_eq!(TimeForm::Short.read(&time[..8]), Some(MOST));
        assert_eq!(time[8..], 77_u32.to_ne_bytes());
    }
}
