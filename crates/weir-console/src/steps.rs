//! Logins that have given the right password and still need the code of the second factor. They are bounded in number and time, and each
//! can be completed once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_foundation::console_accounts::KnownAccount;
use weir_foundation::secret::fresh_token;

/// How long somebody may take to find the authenticator.
const GOOD_FOR: Duration = Duration::from_secs(300);
/// If there are more of one name, or of all, the oldest of them goes: of all that of the name which has the most, so that whoever has one password
/// and begins without end sends nobody else away.
const OWN_MAX: usize = 20;
const STEPS_MAX: usize = 1_000;

/// All logins that wait for the code.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    open: Mutex<HashMap<String, Step>>,
}

#[derive(Debug)]
struct Step {
    known: KnownAccount,
    begun: Instant,
}

impl Steps {
    /// Somebody has shown the right password; returns what the form for the code must carry.
    pub(crate) fn begin(&self, known: KnownAccount, now: Instant) -> String {
        let key = fresh_token();
        let mut open = self.lock();
        open.retain(|_, step| now.duration_since(step.begun) < GOOD_FOR);
        make_room(&mut open, &known.name);
        open.insert(key.clone(), Step { known, begun: now });
        key
    }

    /// Who has shown the password in this step.
    pub(crate) fn find(&self, key: &str, now: Instant) -> Option<KnownAccount> {
        let open = self.lock();
        open.get(key).filter(|step| now.duration_since(step.begun) < GOOD_FOR).map(|step| step.known.clone())
    }

    /// The code was right.
    pub(crate) fn end(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Step>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_room(open: &mut HashMap<String, Step>, name: &str) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for step in open.values() {
        *counts.entry(&step.known.name).or_default() += 1;
    }
    let crowded = if counts.get(name).is_some_and(|count| *count >= OWN_MAX) {
        Some(name)
    } else if open.len() >= STEPS_MAX {
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
    } else {
        None
    };
    let Some(crowded) = crowded else { return };
    let theirs = open.iter().filter(|(_, step)| step.known.name == crowded);
    let oldest = theirs.min_by_key(|(_, step)| step.begun).map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        open.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_foundation::console_accounts::Role;

    #[test]
    fn a_step_ends_with_its_time_with_its_code_and_when_there_are_too_many() {
        let known = |name: &str| KnownAccount { name: name.into(), role: Role::Admin, stamp: [0; 32], code: true };
        let (steps, now) = (Steps::default(), Instant::now());
        let first = steps.begin(known("ann"), now);
        assert_eq!(steps.find(&first, now).map(|known| known.name).as_deref(), Some("ann"));
        assert_eq!(steps.find("planted", now), None);
        assert_eq!(steps.find(&first, now + GOOD_FOR), None);
        for n in 0..STEPS_MAX {
            steps.begin(known("bob"), now + Duration::from_millis(n as u64 + 1));
        }
        assert!(steps.find(&first, now).is_some() && steps.lock().len() == OWN_MAX + 1, "only bob's own");
        let second = steps.begin(known("ann"), now + Duration::from_secs(1));
        for n in 0..STEPS_MAX - OWN_MAX - 2 {
            steps.begin(known(&n.to_string()), now);
        }
        assert_eq!(steps.lock().len(), STEPS_MAX);
        for n in 0..OWN_MAX - 1 {
            steps.begin(known(&format!("more{n}")), now);
        }
        assert!(steps.find(&first, now).is_some() || steps.find(&second, now).is_some());
        assert_eq!(steps.lock().len(), STEPS_MAX);
        let last = steps.begin(known("eve"), now + Duration::from_secs(2));
        steps.end(&last);
        assert_eq!(steps.find(&last, now), None);
    }
}
