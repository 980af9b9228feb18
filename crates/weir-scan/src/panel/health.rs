//! How the scanners are, for status pages and alarms.

use super::Panel;
use crate::clamd::{Condition, State};
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// How one scanner is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// Its name, as in findings.
    pub scanner: &'static str,
    /// Where it is; empty for workers of our own.
    pub address: String,
    /// Whether it can look at mail.
    pub up: bool,
    /// Its version, or that of its rules.
    pub version: String,
    /// How old its signatures are, in seconds, where they have a date.
    pub signature_age_s: Option<u64>,
    /// What the operator should look at; empty if nothing.
    pub problem: String,
    /// What could be better, without being urgent; empty if nothing.
    pub advice: String,
}

impl Panel {
    /// How each scanner is. Spam scanners are only known by their answers and are not listed.
    pub(super) fn scanners(&self) -> Vec<Health> {
        let mut all: Vec<Health> = self.workers_health().into_iter().collect();
        for clamd in self.clamds.iter().map(|signatures| &signatures.clamd) {
            let most = clamd.settings().signature_age;
            all.extend(
                clamd.conditions().into_iter().map(|condition| clamd_health(condition, most, SystemTime::now())),
            );
        }
        all
    }

    fn workers_health(&self) -> Option<Health> {
        let examination = self.shared.examination.as_ref()?;
        let (count, problem) = examination.rules.health();
        let (started, lost) = examination.pool.counts();
        Some(Health {
            scanner: "workers",
            address: String::new(),
            up: true,
            version: format!("{}, {count} rules, {started} workers started, {lost} lost", examination.rules.version()),
            signature_age_s: None,
            problem: problem.unwrap_or_default(),
            advice: String::new(),
        })
    }
}

fn clamd_health(Condition { address, state, silent }: Condition, most: Duration, now: SystemTime) -> Health {
    let mut health = Health {
        scanner: "clamav",
        address: address.to_string(),
        up: false,
        version: String::new(),
        signature_age_s: None,
        problem: String::new(),
        advice: String::new(),
    };
    match state {
        State::Unknown => health.problem = "not asked yet".into(),
        State::Down(problem) => health.problem = problem,
        State::Up(version) => {
            health.up = true;
            health.version = version.text;
            let age = version.signatures.and_then(|made| now.duration_since(made).ok());
            health.signature_age_s = age.map(|age| age.as_secs());
            if let Some(age) = age.filter(|age| *age > most) {
                health.problem = format!("its signatures are {} days old", age.as_secs() / 86_400);
            }
            if silent {
                health.advice = "it calls clean what it has not opened: set AlertExceedsMax".into();
            }
        }
    }
    health
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::clamd::reply::Version;

    #[test]
    fn old_signatures_are_a_problem() {
        let day = Duration::from_secs(86_400);
        let version = Version::read(b"ClamAV 1.4.6/27450/Sat Nov 14 09:25:12 2026").unwrap();
        let made = version.signatures.unwrap();
        let condition = |silent| Condition {
            address: Address::Host("scan.example".into(), 3310),
            state: State::Up(version.clone()),
            silent,
        };
        let young = clamd_health(condition(false), 7 * day, made + 3 * day);
        assert_eq!((young.up, young.problem.as_str(), young.signature_age_s), (true, "", Some(3 * 86_400)));
        let old = clamd_health(condition(false), 7 * day, made + 9 * day);
        assert_eq!((old.up, old.problem.as_str()), (true, "its signatures are 9 days old"));
        let silent = clamd_health(condition(true), 7 * day, made);
        assert!(silent.problem.is_empty() && silent.advice.contains("AlertExceedsMax"), "{silent:?}");
    }
}
