//! Senders that people allow or block, by address or by domain with everything below it.
//!
//! The nearest name counts: an address before its domain, a domain before the one above it. A blocked sender is refused, by the name in
//! the envelope and by those in From; mail that a listed peer has already accepted is kept for a person instead. An allowed sender is
//! excused from the spam filters and from nothing else, and only if SPF, DKIM or DMARC confirms the domain, because anybody can write a
//! name.
//!
//! The list is in memory. A change by this process counts at once, one by another relay on the same records within seconds.

use super::authenticity::Evaluation;
use super::authenticity::dmarc::DmarcResult;
use crate::letter::Allowed;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_core::address::canonical_with_tag;
use weir_smtp::reply::{Reply, Status};
use weir_store::records::{Records, RecordsError, SenderRecords};

/// How often one looks whether another relay has changed them.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What people said of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderRule {
    /// It is no spam.
    Allow,
    /// It is not taken.
    Block,
}

/// The list. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SenderList {
    records: SenderRecords,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: RwLock<Arc<SenderRules>>,
    looked: Mutex<Instant>,
    looking: AtomicBool,
}

impl SenderList {
    /// The list of these records, as it is now. If it cannot be read nobody is on it, and it is tried again.
    pub async fn open(records: &Records) -> SenderList {
        let shared =
            Shared { rules: RwLock::default(), looked: Mutex::new(Instant::now()), looking: AtomicBool::new(false) };
        let list = SenderList { records: records.senders(), shared: Arc::new(shared) };
        if let Err(error) = list.read().await {
            tracing::error!(%error, "senders that are allowed or blocked are not known yet");
        }
        list
    }

    /// Reads the list again.
    pub async fn read(&self) -> Result<(), RecordsError> {
        let rules = self.records.all().await?;
        let rule = |word: &str| if word == "allow" { SenderRule::Allow } else { SenderRule::Block };
        let rules = SenderRules(rules.into_iter().map(|row| (row.who, rule(&row.rule))).collect());
        *self.shared.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        Ok(())
    }

    /// What counts now. Never waits: what another relay has changed is asked for beside this.
    pub(crate) fn now(&self) -> Arc<SenderRules> {
        if self.records.is_shared() && self.is_time_to_look() {
            let list = self.clone();
            tokio::spawn(async move {
                if let Err(error) = list.read().await {
                    tracing::debug!(%error, "senders that are allowed or blocked are not read again");
                }
                list.shared.looking.store(false, Ordering::Release);
            });
        }
        Arc::clone(&self.shared.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_time_to_look(&self) -> bool {
        let mut looked = self.shared.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = looked.elapsed() >= LOOK_EVERY && !self.shared.looking.swap(true, Ordering::AcqRel);
        if due {
            *looked = Instant::now();
        }
        due
    }
}

/// Names and what is said of them.
#[derive(Debug, Default)]
pub(crate) struct SenderRules(BTreeMap<String, SenderRule>);

impl SenderRules {
    /// What is said of an address, and by which entry.
    pub(super) fn of(&self, address: &str) -> Option<(&str, SenderRule)> {
        if self.0.is_empty() {
            return None;
        }
        let address = canonical_with_tag(address).ok()?.to_lowercase();
        let (_, domain) = address.rsplit_once('@')?;
        let above = domain.match_indices('.').map(|(dot, _)| &domain[dot + 1..]);
        let names = [address.as_str(), domain].into_iter().chain(above);
        names.filter_map(|name| self.0.get_key_value(name)).map(|(name, rule)| (name.as_str(), *rule)).next()
    }

    /// Whether anybody is blocked at all.
    pub(crate) fn blocks_any(&self) -> bool {
        self.0.values().any(|rule| *rule == SenderRule::Block)
    }

    /// The entry that blocks one of these addresses.
    pub(crate) fn blocks<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Option<&str> {
        let found = addresses.into_iter().filter_map(|address| self.of(address));
        found.filter(|(_, rule)| *rule == SenderRule::Block).map(|(name, _)| name).next()
    }

    /// The entry that allows one of these addresses, not confirmed yet.
    pub(super) fn allows<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Option<Allowed> {
        addresses.into_iter().find_map(|address| {
            let (by, _) = self.of(address).filter(|(_, rule)| *rule == SenderRule::Allow)?;
            let canonical = canonical_with_tag(address).ok()?;
            let (_, domain) = canonical.rsplit_once('@')?;
            Some(Allowed { by: by.to_owned(), domain: domain.to_lowercase(), confirmed: false })
        })
    }
}

/// The same, if what was found out confirms it.
pub(super) fn confirmed(allowed: Option<&Allowed>, evaluation: &Evaluation) -> Option<Allowed> {
    let allowed = allowed?;
    let speaks = |name: &str| name == allowed.domain || is_below(&allowed.domain, name);
    let confirmed = evaluation.confirmed.iter().any(|one| one.passed && speaks(&one.domain))
        || evaluation.dmarc.iter().any(|one| one.result == DmarcResult::Pass && one.domain == allowed.domain);
    confirmed.then(|| Allowed { confirmed: true, ..allowed.clone() })
}

fn is_below(domain: &str, above: &str) -> bool {
    domain.strip_suffix(above).is_some_and(|rest| rest.ends_with('.'))
}

/// What a stranger hears.
pub(crate) fn refusal(by: &str) -> Reply {
    Reply::new(550, Status(5, 7, 1), format!("mail from {by} is not taken here"))
}

/// Why mail that was taken already is kept.
pub(super) fn reason(by: &str) -> String {
    format!("blocked: mail from {by} is not wanted here")
}

/// A name as it stands on the list: an address, or a domain. `@example.org` and `*.example.org` mean the domain.
pub(crate) fn name(text: &str) -> Result<String, &'static str> {
    let bare = text.trim().trim_start_matches('<').trim_end_matches('>');
    let domain = |domain: &str| {
        let whole = canonical_with_tag(&format!("x@{domain}"))?;
        let name = whole.trim_start_matches("x@").to_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match name.contains('.') && name.chars().all(plain) {
            true => Ok(name),
            false => Err("is no domain; a whole top-level domain cannot be named"),
        }
    };
    match bare.rsplit_once('@') {
        Some(("", rest)) => domain(rest),
        None => domain(bare.trim_start_matches("*.").trim_start_matches('.')),
        Some((local, rest)) => Ok(format!("{}@{}", local.to_lowercase(), domain(rest)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::authenticity::dmarc::{Confirmed, Finding, Wish};
    use SenderRule::{Allow, Block};

    fn rules(list: &[(&str, SenderRule)]) -> SenderRules {
        SenderRules(list.iter().map(|(name, rule)| ((*name).to_owned(), *rule)).collect())
    }

    #[test]
    fn the_nearest_name_counts() {
        let rules = rules(&[("example.org", Block), ("ann@example.org", Allow), ("good.example.org", Allow)]);
        assert_eq!(rules.of("Ann@EXAMPLE.org"), Some(("ann@example.org", Allow)));
        assert_eq!(rules.of("bob@example.org"), Some(("example.org", Block)));
        assert_eq!(rules.of("bob@deep.bad.example.org"), Some(("example.org", Block)));
        assert_eq!(rules.of("bob@deep.good.example.org"), Some(("good.example.org", Allow)));
        for stranger in ["", "bob", "bob@anexample.org", "bob@org", "bob@example.org.evil.example"] {
            assert_eq!(rules.of(stranger), None, "{stranger}");
        }
        assert_eq!(rules.blocks(["ann@example.org", "bob@example.org"]), Some("example.org"));
        assert!(rules.allows(["bob@example.org"]).is_none());
    }

    #[test]
    fn only_who_is_confirmed_is_allowed() {
        let rules = rules(&[("example.org", Allow)]);
        let allowed = |sender: &str| rules.allows([sender]).unwrap();
        let found = |confirmed: &[(&str, bool)], dmarc: Option<DmarcResult>| Evaluation {
            field: String::new(),
            sender_passed: false,
            confirmed: confirmed
                .iter()
                .map(|(domain, passed)| Confirmed { domain: (*domain).into(), by_dkim: true, passed: *passed })
                .collect(),
            dmarc: dmarc
                .map(|result| Finding { domain: "example.org".into(), result, wish: Wish::None, percent: 100 })
                .into_iter()
                .collect(),
            too_many_authors: false,
        };
        let holds = |sender: &str, evaluation: &Evaluation| confirmed(Some(&allowed(sender)), evaluation).is_some();
        assert!(holds("ann@example.org", &found(&[("example.org", true)], None)));
        assert!(holds("ann@mail.example.org", &found(&[("example.org", true)], None)));
        assert!(holds("ann@example.org", &found(&[], Some(DmarcResult::Pass))));
        assert!(!holds("ann@example.org", &found(&[], None)), "nobody said anything");
        assert!(!holds("ann@example.org", &found(&[("example.org", false)], Some(DmarcResult::None))));
        assert!(!holds("ann@example.org", &found(&[("evil.example", true)], Some(DmarcResult::Fail))));
        assert!(
            !holds("ann@example.org", &found(&[("evil.example.org", true)], None)),
            "one below does not speak for all"
        );
        assert!(!holds("ann@example.org", &found(&[("org", false), ("anexample.org", true)], None)));
    }

    #[test]
    fn names_are_written_in_one_way() {
        for (given, written) in [
            ("Example.ORG.", "example.org"),
            ("@example.org", "example.org"),
            ("*.example.org", "example.org"),
            ("<Ann+x@Example.org>", "ann+x@example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(name(given).as_deref(), Ok(written), "{given}");
        }
        for wrong in ["", "org", "*", "*@*", "a b@example.org c", "ann@", "exa mple.org", "example.org, other.org"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
