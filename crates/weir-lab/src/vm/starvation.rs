//! Measures whether a VM got enough processor time. A guest that is late because other programs had the processor is not at fault, and
//! neither is its sample.
//!
//! The kernel counts for every thread how long it was ready and had to wait. A sample cannot make its own VM wait: it has one processor, and
//! QEMU's other threads do little. If the kernel does not count this, no VM counts as starved.

use std::fs;
use std::time::{Duration, Instant};

/// The threads of a VM's QEMU waited for at least this part of the time.
const PART: u32 = 3;

/// Observes a VM from now on.
#[derive(Debug)]
pub(super) struct Starvation {
    pid: Option<u32>,
    begun: Instant,
    waited: Duration,
}

/// How long it waited for a processor, and in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starved {
    /// For a processor.
    pub waited: Duration,
    /// The whole time.
    pub of: Duration,
}

impl Starvation {
    pub(super) fn begin(pid: Option<u32>) -> Starvation {
        Starvation { pid, begun: Instant::now(), waited: pid.map(waited).unwrap_or_default() }
    }

    /// Whether it had to wait too much until now.
    pub(super) fn found(&self) -> Option<Starved> {
        let waited = self.pid.map(waited)?.saturating_sub(self.waited);
        judged(waited, self.begun.elapsed())
    }
}

fn judged(waited: Duration, of: Duration) -> Option<Starved> {
    (waited * PART >= of && !waited.is_zero()).then_some(Starved { waited, of })
}

/// How long all threads of a process have waited together.
fn waited(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let all = tasks.filter_map(|task| read(&fs::read_to_string(task.path().join("schedstat")).ok()?));
    all.fold(Duration::ZERO, Duration::saturating_add)
}

/// `nanoseconds that it ran, nanoseconds that it waited, how often`
fn read(line: &str) -> Option<Duration> {
    line.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_waits_for_a_third_of_the_time_is_starved() {
        let s = Duration::from_secs;
        assert_eq!(judged(s(20), s(60)), Some(Starved { waited: s(20), of: s(60) }));
        assert_eq!(judged(s(19), s(60)), None);
        assert_eq!(judged(s(0), s(0)), None);
        assert_eq!(read("132299 3932761 2\n"), Some(Duration::from_nanos(3_932_761)));
        assert_eq!((read(""), read("a b c")), (None, None));
    }

    /// Two that compute without a pause on one processor have half of it each.
    #[test]
    fn the_kernel_says_who_waited() {
        let spin = || Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn();
        let (Ok(mut one), Ok(mut other)) = (spin(), spin()) else { return };
        let seen = Starvation::begin(Some(one.id()));
        let begun = Instant::now();
        // As long as this machine needs for it, but at most a minute.
        while seen.found().is_none() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let found = seen.found();
        for child in [&mut one, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(found.is_some(), "{seen:?}");
        assert_eq!(Starvation::begin(None).found(), None);
    }
}
