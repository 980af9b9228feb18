//! The health of the scanners: for status pages, and for an alarm if the operator should repair something.
//!
//! Mail still flows while one of several scanners is down or signatures grow old, so without an alarm nobody would notice.

use super::ScanShared;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use weir_scan::panel::Health;
use weir_smtp::reception::Alarm;

/// How often one looks. What lasts for two looks is a problem.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl ScanShared {
    /// How each scanner is, each once: feeds share most of them.
    pub(super) fn scanners(&self) -> Vec<Health> {
        let mut all: Vec<Health> = Vec::new();
        for health in self.inspectors.iter().flat_map(|inspector| inspector.scanners()) {
            let known = |other: &Health| other.scanner == health.scanner && other.address == health.address;
            if !all.iter().any(known) {
                all.push(health);
            }
        }
        all
    }
}

/// Rings for each scanner that is ill, once until it is well again.
pub(super) async fn watch(shared: Arc<ScanShared>) {
    let mut ill = Ill::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for alarm in ill.look(&shared.scanners()) {
            shared.alarms.raise(alarm);
        }
    }
}

/// Scanners with a problem, by name and address.
#[derive(Debug, Default)]
struct Ill {
    seen: BTreeSet<(String, String)>,
    told: BTreeSet<(String, String)>,
}

impl Ill {
    fn look(&mut self, scanners: &[Health]) -> Vec<Alarm> {
        let ill = || scanners.iter().filter(|health| !health.problem.is_empty());
        let now: BTreeSet<_> = ill().map(|health| (health.scanner.clone(), health.address.clone())).collect();
        let mut alarms = Vec::new();
        for health in ill() {
            let who = (health.scanner.clone(), health.address.clone());
            if self.seen.contains(&who) && self.told.insert(who) {
                tracing::warn!(
                    scanner = health.scanner,
                    address = health.address,
                    problem = health.problem,
                    "a scanner is ill"
                );
                alarms.push(Alarm::ScannerIll {
                    scanner: health.scanner.as_str().into(),
                    address: health.address.as_str().into(),
                    problem: health.problem.as_str().into(),
                });
            }
        }
        self.told.retain(|who| now.contains(who));
        self.seen = now;
        alarms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(address: &str, problem: &str) -> Health {
        Health {
            scanner: "clamav".to_owned(),
            address: address.to_owned(),
            up: true,
            version: String::new(),
            signature_age_s: None,
            problem: problem.to_owned(),
            advice: String::new(),
        }
    }

    #[test]
    fn what_lasts_is_told_once_until_it_is_mended() {
        let (mut ill, old) = (Ill::default(), "its signatures are 9 days old");
        let both = |problem: &str| [health("a:1", problem), health("b:1", "")];
        assert_eq!(ill.look(&both(old)), []);
        let told = Alarm::ScannerIll { scanner: "clamav".into(), address: "a:1".into(), problem: old.into() };
        assert_eq!(ill.look(&both(old)), [told]);
        assert_eq!(ill.look(&both("its signatures are 10 days old")), []);
        assert_eq!(ill.look(&both("")), []);
        assert_eq!(ill.look(&both(old)), [], "a short fault is none");
        assert_eq!(ill.look(&both(old)).len(), 1);
    }
}
