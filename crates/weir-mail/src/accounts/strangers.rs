//! A short-lived cache of names that have no account.
//!
//! Where users are identified by client address, every mail looks up its address, and few addresses have an account. So "no account" is
//! remembered for a moment. An existing account is always read again, so that changes take effect at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a no is believed.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Names remembered; when there are more, all are forgotten.
const NAMES_MAX: usize = 10_000;

/// Names without an account.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    names: Mutex<HashMap<Box<str>, Instant>>,
}

impl Strangers {
    pub(super) fn has(&self, name: &str, now: Instant) -> bool {
        self.names().get(name).is_some_and(|since| now.saturating_duration_since(*since) < BELIEVED_FOR)
    }

    pub(super) fn note(&self, name: &str, now: Instant) {
        let mut names = self.names();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), now);
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_believed_for_a_moment_and_room_is_bounded() {
        let (strangers, now) = (Strangers::default(), Instant::now());
        assert!(!strangers.has("192.0.2.1", now));
        strangers.note("192.0.2.1", now);
        assert!(strangers.has("192.0.2.1", now) && !strangers.has("192.0.2.2", now));
        assert!(!strangers.has("192.0.2.1", now + BELIEVED_FOR));
        (0..NAMES_MAX + 5).for_each(|name| strangers.note(&name.to_string(), now));
        assert!(strangers.names().len() <= NAMES_MAX);
    }
}
