//! How long something has waited, when the clock cannot be believed.
//!
//! A clock that is set ahead by a month makes everything a month old at once, and so does a machine that was switched off for a month. From
//! inside nobody can tell which it was. Here both are an *absence*: time by the clock in which nobody looked. It does not count as waiting,
//! so what shall be deleted after a week has waited for a week while this relay ran. A clock that is set back takes back as much of the
//! newest absences as it is set back by, and no more: when a machine was off for a month and came up an hour ahead, the month is left.
//!
//! Cost: one small text, and a walk over at most [`ABSENCES_MAX`] absences for each question.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::time::Instant;

/// Less than this is no absence: a restart, a busy machine, a clock that is put right.
const SHORT: Duration = Duration::from_secs(600);
/// Most absences that are told apart; the oldest are taken together.
const ABSENCES_MAX: usize = 50;

/// Since when somebody looks, and when nobody did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absences {
    /// What the clock showed when somebody looked for the first time: nothing is known of before. 0 for never.
    since: u64,
    /// And for the last time.
    looked_at: u64,
    /// When each ended, by the clock, and how long it was; in order.
    absences: Vec<(u64, u64)>,
}

impl Absences {
    /// Reads what [`Absences::write`] wrote; anything else says that nobody has ever looked.
    pub(crate) fn read(text: &str) -> Absences {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// As kept.
    pub(crate) fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Somebody looks while the clock shows `now`. Since the last look at least `passed` has really passed.
    pub(crate) fn look(&mut self, now: Instant, passed: Duration) {
        let expected = Instant(self.looked_at.saturating_add(nanos(passed)));
        let (missed, back) = (now.since(expected), expected.since(now));
        let is_first = self.since == 0;
        self.looked_at = now.0;
        if back > SHORT {
            self.take_back(nanos(back));
        }
        for (end, _) in &mut self.absences {
            *end = (*end).min(now.0);
        }
        self.since = if is_first { now.0 } else { self.since.min(now.0) };
        if missed > SHORT && !is_first {
            self.absences.push((now.0, nanos(missed)));
        }
        if self.absences.len() > ABSENCES_MAX {
            let (_, oldest) = self.absences.remove(0);
            self.absences[0].1 = self.absences[0].1.saturating_add(oldest);
        }
    }

    /// The clock was set back by so much: this much of the newest absences has not been. Not less than what counts as an absence when the
    /// clock is set ahead, or else a clock that goes to and fro would use them up bit by bit.
    fn take_back(&mut self, mut back: u64) {
        while let Some((_, length)) = self.absences.last_mut() {
            if *length > back {
                *length -= back;
                return;
            }
            back -= *length;
            self.absences.pop();
        }
    }

    /// For how long something has waited since the clock showed `since`, absences not counted.
    pub(crate) fn waited(&self, since: Instant, now: Instant) -> Duration {
        let since = Instant(since.0.max(self.since));
        let later = self.absences.iter().filter(|(end, _)| *end > since.0);
        let missed = later.fold(0u64, |sum, (end, length)| sum.saturating_add((*length).min(end - since.0)));
        now.since(since).saturating_sub(Duration::from_nanos(missed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const MINUTE: Duration = Duration::from_secs(60);

    fn at(day: u64, minute: u64) -> Instant {
        Instant((day * DAY + minute * 60) * 1_000_000_000)
    }

    /// Somebody who has looked each minute for the first ten of day 1000.
    fn looking() -> Absences {
        let mut absences = Absences::default();
        (0..10).for_each(|minute| absences.look(at(1_000, minute), MINUTE));
        absences
    }

    fn days(time: Duration) -> u64 {
        time.as_secs() / DAY
    }

    #[test]
    fn a_clock_set_ahead_makes_nothing_old_and_real_time_does() {
        let (mut absences, held) = (looking(), at(1_000, 5));
        assert_eq!(absences.waited(held, at(1_000, 9)), MINUTE * 4);
        absences.look(at(1_030, 0), MINUTE);
        assert_eq!(absences.waited(held, at(1_030, 0)), MINUTE * 5);
        for hour in 1..=24 * 8 {
            absences.look(at(1_030, hour * 60), Duration::from_secs(3_600));
        }
        assert_eq!(days(absences.waited(held, at(1_038, 0))), 8);
        assert_eq!(days(absences.waited(at(1_031, 0), at(1_038, 0))), 7, "what came while it was ahead");
        // It is set right: what waited before has waited for eight days, and what was held at a time that is still to come has not.
        absences.look(at(1_008, 5), MINUTE);
        assert_eq!(days(absences.waited(held, at(1_008, 5))), 8);
        assert_eq!(absences.waited(at(1_031, 0), at(1_008, 5)), Duration::ZERO);
    }

    #[test]
    fn a_clock_set_back_takes_back_no_more_than_it_was_set_back_by() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let held = at(1_000, 5);
        // The machine was off for 30 days and comes up an hour ahead. Then the clock is put right, by less than it was ahead, by just as
        // much, by more; an hour has passed each time.
        let off = || {
            let mut absences = looking();
            absences.look(at(1_030, 60), Duration::ZERO);
            assert_eq!(absences.waited(held, at(1_030, 60)), MINUTE * 4);
            absences
        };
        for (right_after_an_hour, waited) in
            [(at(1_030, 80), MINUTE * 64), (at(1_030, 60), MINUTE * 64), (at(1_030, 0), MINUTE * 64)]
        {
            let mut absences = off();
            absences.look(right_after_an_hour, HOUR);
            assert_eq!(absences.waited(held, right_after_an_hour), waited, "{right_after_an_hour:?}");
            // And time goes on from there.
            let later = Instant(right_after_an_hour.0 + nanos(HOUR));
            absences.look(later, HOUR);
            assert_eq!(absences.waited(held, later), waited + HOUR);
        }
        // Too little to be told from a clock that is put right: waits a little longer, and never less long.
        let mut absences = off();
        (0..20).for_each(|_| absences.look(at(1_030, 55), Duration::ZERO));
        assert_eq!(absences.waited(held, at(1_030, 55)), Duration::ZERO);
        (0..200).for_each(|minute| absences.look(at(1_030, 55 + minute % 2 * 9), Duration::ZERO));
        assert!(absences.waited(held, at(1_030, 64)) < MINUTE * 10, "to and fro");
    }

    #[test]
    fn a_clock_set_back_reaches_over_several_absences() {
        let held = at(1_000, 5);
        let thrice = || {
            let mut absences = looking();
            for (day, passed) in [(1_010, 0), (1_011, 1), (1_031, 0), (1_032, 1), (1_034, 0)] {
                absences.look(at(day, 0), Duration::from_secs(passed * DAY));
            }
            assert_eq!(days(absences.waited(held, at(1_034, 0))), 2);
            absences
        };
        // Ten, twenty and two days nobody looked. Some of the newest, all of it, then some of the one before, then all there are, and more.
        for (day, left) in [(1_033, 3), (1_032, 2), (1_030, 2), (1_013, 2), (1_003, 1), (1_001, 0), (990, 0)] {
            let mut absences = thrice();
            absences.look(at(day, 0), Duration::ZERO);
            assert_eq!(absences.absences.len(), left, "{day}");
            assert!(days(absences.waited(held, at(day, 0))) <= 2, "{day}");
            assert!(absences.absences.is_sorted(), "{absences:?}");
        }
    }

    #[test]
    fn across_a_restart_too_and_nothing_waits_for_ever_on_a_machine_that_is_often_off() {
        let mut absences = Absences::read(&looking().write());
        assert_eq!(absences, looking());
        let held = at(1_000, 5);
        for day in 1..100 {
            // On for eight hours a day.
            absences = Absences::read(&absences.write());
            absences.look(at(1_000 + day, 0), Duration::ZERO);
            (1..=8).for_each(|hour| absences.look(at(1_000 + day, hour * 60), Duration::from_secs(3_600)));
        }
        let waited = days(absences.waited(held, at(1_099, 480)));
        assert!((32..=34).contains(&waited), "{waited}");
        assert!(absences.write().len() < 4_000);
    }

    #[test]
    fn who_has_never_looked_knows_of_nothing_that_has_waited() {
        for text in ["", "null", "{}", "[1]"] {
            let mut absences = Absences::read(text);
            absences.look(at(1_000, 0), Duration::ZERO);
            assert_eq!(absences.waited(at(990, 0), at(1_000, 0)), Duration::ZERO, "{text}");
            assert_eq!(absences.waited(at(1_000, 0), at(1_000, 1)), MINUTE);
        }
    }
}
