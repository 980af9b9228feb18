//! ClamAV as a scanner of the panel: its settings, what its answers mean, and how it is.

use super::{Clamd, Condition, Settings, State};
use crate::address::Address;
use crate::content::Content;
use crate::health::Health;
use crate::inspect::About;
use crate::scanner::{Answer, Common, Configured, Harm, Later, MemoKey, Scanner, ScannerKind, StartError};
use crate::verdict::Outcome;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_settings::{Reader, Section, kinds};

/// Its row in the registry.
pub(crate) const KIND: ScannerKind = ScannerKind { name: "clamav", read };

/// Signatures without a date may change unseen: answers are then kept only for so long.
const KEPT_UNDATED: Duration = Duration::from_secs(60);

fn read(reader: &mut Reader<'_>, common: &mut Common) -> Option<Box<dyn Configured>> {
    let mut settings = reader.read::<Settings>();
    let is_on = !settings.addresses.is_empty();
    let about = "Scanners on other machines for single feeds, so that more than one machine can scan";
    settings.feeds = reader.section("scan.feeds", about, |s| read_feeds(s, common.feeds, is_on));
    is_on.then(|| Box::new(settings) as Box<dyn Configured>)
}

fn read_feeds(s: &mut Section<'_, '_>, feeds: usize, common: bool) -> Vec<Vec<Address>> {
    let own: Vec<Vec<Address>> = s.key(
        "clamav",
        "Where clamd listens for the first feed, the second, and so on; [] or none for those of scan.clamav, which are asked too where these fail",
        kinds::list([], 32, "lists of addresses"),
    );
    if own.len() > feeds {
        let problem = format!("{} lists for {feeds} feeds", own.len());
        s.blame("clamav", problem, "one list a feed: clamav = [[], [], [], [], [\"scan2.example:3310\"]]");
    }
    if !common && own.iter().any(|addresses| !addresses.is_empty()) {
        let problem = "feeds have scanners of their own, and scan.clamav.addresses is empty".into();
        s.blame("clamav", problem, "name at least one clamd there, for the other feeds and for when these fail");
    }
    own
}

impl Configured for Settings {
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>> {
        Box::pin(async { Ok(Arc::new(Clamd::start(self.clone())) as Arc<dyn Scanner>) })
    }

    fn own_feeds(&self) -> Vec<usize> {
        let feeds = self.feeds.iter().enumerate();
        feeds.filter(|(_, own)| !own.is_empty()).map(|(feed, _)| feed).collect()
    }
}

impl Scanner for Clamd {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn deadline(&self, length: u64) -> Duration {
        self.settings.deadline.of(length)
    }

    fn scan<'a>(&'a self, content: &'a Content, _: &'a About) -> Later<'a, Answer> {
        Box::pin(async { answer(Clamd::scan(self, content).await) })
    }

    fn gave_up(&self, waited: Duration) -> String {
        self.doubt();
        format!("clamd did not answer within {} s", waited.as_secs())
    }

    fn memo_key(&self) -> Option<MemoKey> {
        let (version, dated) = Clamd::version(self);
        // While nobody knows which signatures are in use, no answer is worth keeping.
        let keep = match (version.is_empty(), dated) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::MAX,
            (false, false) => KEPT_UNDATED,
        };
        Some(MemoKey { version: version.into(), keep })
    }

    fn version(&self) -> Option<String> {
        Some(Clamd::version(self).0)
    }

    fn health(&self) -> Vec<Health> {
        let (most, now) = (self.settings.signature_age, SystemTime::now());
        self.conditions().into_iter().map(|condition| clamd_health(condition, most, now)).collect()
    }

    fn for_feed(&self, feed: usize) -> Option<Arc<dyn Scanner>> {
        let addresses = self.settings.feeds.get(feed).filter(|own| !own.is_empty()).cloned()?;
        let settings = Settings { addresses, feeds: Vec::new(), ..self.settings.clone() };
        Some(Arc::new(Clamd::start(settings)))
    }
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Clean => Answer::Clean,
        Outcome::NotScanned { limit } => Answer::NotOpened { reason: limit },
        Outcome::Failed { problem } => Answer::Failed { problem },
        Outcome::Spam { score, threshold } => Answer::bad(Harm::Spam { score, threshold }),
        Outcome::Forbidden { reason } => Answer::bad(Harm::Forbidden(reason)),
        Outcome::Infected { name } => Answer::bad(Harm::Infected(name)),
    }
}

fn clamd_health(Condition { address, state, silent, closed }: Condition, most: Duration, now: SystemTime) -> Health {
    let mut health = Health {
        scanner: "clamav".to_owned(),
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
            let mut advice = Vec::new();
            if silent {
                advice.push("it calls clean what it has not opened: set AlertExceedsMax".to_owned());
            }
            if !closed.is_empty() {
                advice.push(format!("this clamd cannot open {}", closed.join(", ")));
            }
            health.advice = advice.join("; ");
        }
    }
    health
}

#[cfg(test)]
mod tests {
    use super::*;
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
            closed: if silent { vec!["RAR", "TNEF"] } else { Vec::new() },
        };
        let young = clamd_health(condition(false), 7 * day, made + 3 * day);
        assert_eq!((young.up, young.problem.as_str(), young.signature_age_s), (true, "", Some(3 * 86_400)));
        let old = clamd_health(condition(false), 7 * day, made + 9 * day);
        assert_eq!((old.up, old.problem.as_str()), (true, "its signatures are 9 days old"));
        let silent = clamd_health(condition(true), 7 * day, made);
        assert!(silent.problem.is_empty() && silent.advice.contains("AlertExceedsMax"), "{silent:?}");
        assert!(silent.advice.ends_with("this clamd cannot open RAR, TNEF"), "{silent:?}");
    }
}
