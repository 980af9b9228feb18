//! Names that could not be resolved, remembered for a while, so that a queue full of mail for a dead domain does not cause a flood of DNS
//! queries. At most [`ENTRIES_MAX`] are kept; the oldest are removed first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_core::time::Instant;

use weir_smtp::outcome::{DeliveryOutcome, Fate};

/// The most names remembered.
pub const ENTRIES_MAX: usize = 10_000;
const TEMPORARY: Duration = Duration::from_secs(30);
const PERMANENT: Duration = Duration::from_secs(300);

/// Names that could not be resolved.
#[derive(Debug, Default)]
pub struct FailureCache {
    known: HashMap<Box<str>, (DeliveryOutcome, Instant)>,
    order: VecDeque<(Instant, Box<str>)>,
}

impl FailureCache {
    /// Why a name failed not long ago.
    pub fn find(&mut self, name: &str, now: Instant) -> Option<DeliveryOutcome> {
        self.known.get(name).filter(|(_, until)| *until > now).map(|(outcome, _)| outcome.clone())
    }

    /// Remembers a failure.
    pub fn add(&mut self, name: &str, outcome: &DeliveryOutcome, now: Instant) {
        let until = now + if outcome.fate == Fate::Permanent { PERMANENT } else { TEMPORARY };
        self.known.insert(name.into(), (outcome.clone(), until));
        self.order.push_back((until, name.into()));
        while self.order.len() > ENTRIES_MAX || self.order.front().is_some_and(|(until, _)| *until <= now) {
            let Some((until, name)) = self.order.pop_front() else { return };
            // A newer failure of the same name has its own place in the order.
            if self.known.get(&name).is_some_and(|(_, newest)| *newest <= until) {
                self.known.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_smtp::outcome::Status;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn failures_are_forgotten_in_time_and_bounded_in_number() {
        let mut cache = FailureCache::default();
        let (temporary, permanent) =
            (DeliveryOutcome::temporary(Status(4, 4, 3), "x"), DeliveryOutcome::permanent(Status(5, 1, 2), "y"));
        cache.add("a", &temporary, at(0));
        cache.add("b", &permanent, at(0));
        assert_eq!(
            (cache.find("a", at(29)), cache.find("a", at(31)), cache.find("b", at(31))),
            (Some(temporary.clone()), None, Some(permanent))
        );
        for number in 0..ENTRIES_MAX * 3 {
            cache.add(&number.to_string(), &temporary, at(1));
        }
        assert!(cache.known.len() <= ENTRIES_MAX && cache.order.len() <= ENTRIES_MAX);
        assert!(cache.find("0", at(1)).is_none() && cache.find("29999", at(1)).is_some());
    }

    #[test]
    fn a_newer_failure_is_not_forgotten_with_the_older() {
        let mut cache = FailureCache::default();
        let temporary = DeliveryOutcome::temporary(Status(4, 4, 3), "x");
        cache.add("a", &temporary, at(0));
        cache.add("a", &temporary, at(20));
        cache.add("b", &temporary, at(35));
        assert!(cache.find("a", at(40)).is_some());
    }
}
