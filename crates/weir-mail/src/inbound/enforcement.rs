//! Decides from the results of SPF, DKIM and DMARC whether a message is accepted, kept for a person to look at, refused, or deferred.
//!
//! Only *pass* counts in a sender's favour. The policy of a domain for mail that fails is followed as far as the settings say; our own
//! domains are refused from strangers unless SPF or a signature of ours confirms them, whether or not they publish a policy. A stranger is
//! told before its message is taken, so nobody gets a bounce for what was forged. Mail of a listed peer was already accepted by that peer,
//! so it is kept instead of refused. Our own domains in such mail are left to the peer, because its users write from everywhere.

use super::authenticity::Evaluation;
use super::authenticity::dmarc::{DmarcResult, Finding, Wish};
use crate::delivery::route::canonical;
use crate::domains::Domains;
use std::fmt;
use std::str::FromStr;
use weir_settings::{settings, text_value};
use weir_smtp::reply::{Reply, Status};

settings! {
    /// What follows from authenticity.
    #[derive(PartialEq, Eq)]
    pub struct EnforcementSettings {
        /// What is done with mail that fails DMARC: what the domain in From asks for, with its percentage; at most quarantine; or nothing
        pub dmarc: DmarcMode = choice([
            ("as published", DmarcMode::Published),
            ("quarantine", DmarcMode::Quarantine),
            ("off", DmarcMode::Off),
        ]),
        /// The same for single domains in From, such as "example.org off"; a leading dot means everything below
        pub overrides as "dmarc_overrides": Vec<DmarcOverride> = list([], 10_000, "domains"),
        /// Mail from outside in the name of our own domains: refused unless SPF or DKIM confirms it, in the envelope and in From;
        /// only in the envelope; or not checked
        pub own_senders: OwnSenders = choice([
            ("authenticated", OwnSenders::Authenticated),
            ("envelope", OwnSenders::Envelope),
            ("any", OwnSenders::Any),
        ]),
        /// Our own domains.
        pub ours: Domains = fixed(Domains::default()),
    }
}

/// How far the wishes of domains are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmarcMode {
    /// As they publish them.
    Published,
    /// Nothing is refused; it is quarantined instead.
    Quarantine,
    /// Not at all.
    Off,
}

/// Which names of ours strangers must not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSenders {
    /// Neither in the envelope nor in From.
    Authenticated,
    /// Not in the envelope.
    Envelope,
    /// They may use them.
    Any,
}

/// Another way for one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmarcOverride {
    /// The domain; with a dot before it, everything below it.
    pub domain: String,
    /// How far its wish is followed.
    pub mode: DmarcMode,
}

text_value!(DmarcOverride: "\"example.org off\"");

impl FromStr for DmarcOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<DmarcOverride, String> {
        let wrong = || {
            format!(
                "{text:?} is not an override: write a domain and off, quarantine or as published, such as \"example.org off\""
            )
        };
        let (domain, mode) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let modes = [DmarcMode::Off, DmarcMode::Quarantine, DmarcMode::Published];
        let mode = modes.into_iter().find(|known| known.to_string() == mode.trim()).ok_or_else(wrong)?;
        let bare = domain.strip_prefix('.').unwrap_or(domain);
        if bare.is_empty() || bare.contains(['@', ',', '"']) {
            return Err(wrong());
        }
        Ok(DmarcOverride { domain: canonical(domain), mode })
    }
}

impl fmt::Display for DmarcOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.domain, self.mode)
    }
}

impl fmt::Display for DmarcMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DmarcMode::Published => "as published",
            DmarcMode::Quarantine => "quarantine",
            DmarcMode::Off => "off",
        })
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is taken.
    Take,
    /// It is taken and kept for a person, for this reason.
    Hold(String),
    /// It is refused.
    Refuse(Reply),
    /// The sender is to try again.
    Defer(Reply),
}

/// What may be said of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    /// The envelope sender; empty for none.
    pub(super) sender: &'a str,
    pub(super) evaluation: &'a Evaluation,
    /// Which of a hundred messages it is, for domains that mean only some.
    pub(super) number: u8,
}

impl EnforcementSettings {
    /// What becomes of a stranger's message.
    pub(super) fn judge(&self, case: Case<'_>) -> Judgement {
        if case.evaluation.too_many_authors {
            return Judgement::Refuse(Reply::new(
                550,
                Status(5, 6, 0),
                "From names more domains than can be asked about",
            ));
        }
        if let Some((name, silent)) = self.own_names(case) {
            return own_name_used(name, silent);
        }
        match self.gravest(case, |_| true) {
            Some((finding, Wish::Reject)) => Judgement::Refuse(refusal(finding)),
            Some((finding, Wish::Quarantine)) => Judgement::Hold(reason(finding)),
            Some((_, Wish::None)) | None => match self.undecided(case.evaluation) {
                Some(finding) => Judgement::Defer(deferral(&finding.domain)),
                None => Judgement::Take,
            },
        }
    }

    /// Why a message that a listed peer has taken is kept, if it is. Its users may write as us from everywhere.
    pub(super) fn hold_of_relayed(&self, case: Case<'_>) -> Option<String> {
        if case.evaluation.too_many_authors {
            return Some("DMARC: From names more domains than can be asked about".to_owned());
        }
        // Ours are left out before the gravest is looked for: a name of ours beside that of a bank must not hide what the bank wants.
        let gravest = self.gravest(case, |finding| !self.ours.contain(&finding.domain));
        gravest.filter(|(_, wish)| *wish != Wish::None).map(|(finding, _)| reason(finding))
    }

    /// A name of ours that is used and that nobody confirms; whether that is only because the DNS did not tell.
    fn own_names<'a>(&self, case: Case<'a>) -> Option<(&'a str, bool)> {
        let envelope = case.sender.rsplit_once('@').map(|(_, domain)| domain);
        let envelope = envelope.filter(|_| self.own_senders != OwnSenders::Any);
        let authors = case.evaluation.dmarc.iter().map(|finding| finding.domain.as_str());
        let authors = authors.filter(|_| self.own_senders == OwnSenders::Authenticated);
        let used = envelope.into_iter().chain(authors).find(|domain| self.ours.contain(domain))?;
        let mut ours = case.evaluation.confirmed.iter().filter(|one| self.ours.contain(&one.domain));
        if ours.clone().any(|one| one.passed) {
            return None;
        }
        Some((used, ours.next().is_some()))
    }

    /// Among the domains in From that count, the one with the gravest wish that is followed.
    fn gravest<'a>(&self, case: Case<'a>, counts: impl Fn(&Finding) -> bool) -> Option<(&'a Finding, Wish)> {
        let followed = |finding: &Finding| {
            let wish = finding.wish_for(case.number);
            match self.mode_for(&finding.domain) {
                DmarcMode::Published => wish,
                DmarcMode::Quarantine => wish.min(Wish::Quarantine),
                DmarcMode::Off => Wish::None,
            }
        };
        let findings = case.evaluation.dmarc.iter().filter(|finding| counts(finding));
        let findings = findings.map(|finding| (finding, followed(finding)));
        findings.max_by_key(|(_, wish)| *wish)
    }

    /// A domain that wants something done with mail that fails, and of which the DNS did not tell whether this does.
    fn undecided<'a>(&self, evaluation: &'a Evaluation) -> Option<&'a Finding> {
        evaluation.dmarc.iter().find(|finding| {
            finding.result == DmarcResult::TempError
                && finding.wish > Wish::None
                && self.mode_for(&finding.domain) != DmarcMode::Off
        })
    }

    fn mode_for(&self, domain: &str) -> DmarcMode {
        let names = |rule: &&DmarcOverride| match rule.domain.strip_prefix('.') {
            Some(above) => domain.strip_suffix(above).is_some_and(|rest| rest.ends_with('.')),
            None => rule.domain == domain,
        };
        // The nearest name counts, wherever it stands.
        let nearest = self.overrides.iter().filter(names).max_by_key(|rule| rule.domain.trim_start_matches('.').len());
        nearest.map_or(self.dmarc, |rule| rule.mode)
    }
}

fn own_name_used(name: &str, silent: bool) -> Judgement {
    if silent {
        return Judgement::Defer(deferral(name));
    }
    let text = format!("{} is a domain of ours, and neither SPF nor DKIM says that you may use it", printable(name));
    Judgement::Refuse(Reply::new(550, Status(5, 7, 1), text))
}

fn refusal(finding: &Finding) -> Reply {
    let text = format!("{} asks that mail is refused for which neither SPF nor DKIM answers (DMARC)", finding.domain);
    Reply::new(550, Status(5, 7, 26), text)
}

fn deferral(domain: &str) -> Reply {
    let text = format!("the DNS does not tell whether you may send for {}, try again later", printable(domain));
    Reply::new(451, Status(4, 7, 26), text)
}

fn reason(finding: &Finding) -> String {
    format!("DMARC: neither SPF nor DKIM answers for {}, whose policy is {}", finding.domain, finding.wish.as_str())
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::super::authenticity::dmarc::Confirmed;
    use super::*;

    fn finding(domain: &str, result: DmarcResult, wish: Wish, percent: u8) -> Finding {
        Finding { domain: domain.into(), result, wish, percent }
    }

    fn evaluation(dmarc: Vec<Finding>, confirmed: &[(&str, bool)]) -> Evaluation {
        let confirmed = confirmed.iter().map(|(domain, passed)| Confirmed {
            domain: (*domain).into(),
            by_dkim: false,
            passed: *passed,
        });
        Evaluation {
            field: String::new(),
            sender_passed: false,
            confirmed: confirmed.collect(),
            dmarc,
            too_many_authors: false,
        }
    }

    fn code(judgement: &Judgement) -> u16 {
        match judgement {
            Judgement::Take => 250,
            Judgement::Hold(_) => 0,
            Judgement::Refuse(reply) | Judgement::Defer(reply) => reply.code(),
        }
    }

    #[test]
    fn wishes_are_followed_as_far_as_the_settings_say() {
        use DmarcResult::{Fail, Pass, TempError};
        let of = |mode, overrides: &[&str], finding: Finding, number| {
            let overrides = overrides.iter().map(|text| text.parse().unwrap()).collect();
            let settings = EnforcementSettings { dmarc: mode, overrides, ..EnforcementSettings::default() };
            let evaluation = evaluation(vec![finding], &[]);
            code(&settings.judge(Case { sender: "a@b.example", evaluation: &evaluation, number }))
        };
        let bank = |result, wish, percent| finding("a.bank.example", result, wish, percent);
        let published = DmarcMode::Published;
        assert_eq!(of(published, &[], bank(Fail, Wish::Reject, 100), 99), 550);
        assert_eq!(of(published, &[], bank(Pass, Wish::Reject, 100), 0), 250);
        assert_eq!(of(published, &[], bank(Fail, Wish::Quarantine, 100), 0), 0);
        assert_eq!(of(published, &[], bank(Fail, Wish::None, 100), 0), 250);
        // Outside the percentage it is a level less.
        assert_eq!(of(published, &[], bank(Fail, Wish::Reject, 20), 19), 550);
        assert_eq!(of(published, &[], bank(Fail, Wish::Reject, 20), 20), 0);
        assert_eq!(of(published, &[], bank(Fail, Wish::Quarantine, 0), 0), 250);
        assert_eq!(of(DmarcMode::Quarantine, &[], bank(Fail, Wish::Reject, 100), 0), 0);
        assert_eq!(of(DmarcMode::Off, &[], bank(Fail, Wish::Reject, 100), 0), 250);
        assert_eq!(of(DmarcMode::Off, &[], bank(TempError, Wish::Reject, 100), 0), 250);
        assert_eq!(of(published, &[], bank(TempError, Wish::Reject, 100), 0), 451);
        assert_eq!(of(published, &[], bank(TempError, Wish::None, 100), 0), 250, "nobody knows of a wish");
        let overrides = [".bank.example quarantine", "a.bank.example off", "other.example as published"];
        assert_eq!(of(published, &overrides, bank(Fail, Wish::Reject, 100), 0), 250);
        assert_eq!(of(published, &overrides[..1], bank(Fail, Wish::Reject, 100), 0), 0);
        assert_eq!(of(published, &["bank.example off"], bank(Fail, Wish::Reject, 100), 0), 550);
    }

    #[test]
    fn of_several_authors_the_gravest_counts() {
        let settings = EnforcementSettings::default();
        let both = evaluation(
            vec![
                finding("mine.example", DmarcResult::Pass, Wish::Reject, 100),
                finding("bank.example", DmarcResult::Fail, Wish::Reject, 100),
                finding("third.example", DmarcResult::Fail, Wish::Quarantine, 100),
            ],
            &[("mine.example", true)],
        );
        let judged = settings.judge(Case { sender: "", evaluation: &both, number: 0 });
        assert!(matches!(judged, Judgement::Refuse(reply) if format!("{reply:?}").contains("bank.example")));
    }

    #[test]
    fn a_name_of_ours_in_relayed_mail_hides_no_other() {
        let settings = EnforcementSettings { ours: Domains::new(["ours.example"]), ..EnforcementSettings::default() };
        let held = |dmarc: Vec<Finding>| {
            let evaluation = evaluation(dmarc, &[]);
            settings.hold_of_relayed(Case { sender: "", evaluation: &evaluation, number: 0 })
        };
        let fails = |domain, wish| finding(domain, DmarcResult::Fail, wish, 100);
        for wish in [Wish::Quarantine, Wish::Reject] {
            let (bank, ours) = (fails("bank.example", wish), fails("ours.example", Wish::Reject));
            for both in [vec![bank.clone(), ours.clone()], vec![ours, bank]] {
                let why = held(both.clone()).unwrap_or_default();
                assert!(why.contains("bank.example"), "{both:?}: {why:?}");
            }
        }
        assert_eq!(held(vec![fails("ours.example", Wish::Reject)]), None, "the peer's users write from everywhere");
    }

    #[test]
    fn names_of_ours_are_for_those_whom_something_confirms() {
        let judged = |own_senders, sender, authors: &[&str], confirmed| {
            let ours = Domains::new(["example.org", ".example.org"]);
            let settings = EnforcementSettings { own_senders, ours, ..EnforcementSettings::default() };
            let dmarc = authors.iter().map(|name| finding(name, DmarcResult::None, Wish::None, 100)).collect();
            let evaluation = evaluation(dmarc, confirmed);
            code(&settings.judge(Case { sender, evaluation: &evaluation, number: 0 }))
        };
        use OwnSenders::{Any, Authenticated, Envelope};
        assert_eq!(judged(Authenticated, "boss@Example.ORG", &["x.example"], &[("x.example", true)]), 550);
        assert_eq!(judged(Authenticated, "boss@example.org", &["x.example"], &[("example.org", true)]), 250);
        assert_eq!(judged(Authenticated, "boss@example.org", &[], &[("example.org", false)]), 451);
        assert_eq!(judged(Authenticated, "a@x.example", &["sub.example.org"], &[("x.example", true)]), 550);
        assert_eq!(judged(Authenticated, "", &["example.org"], &[]), 550);
        assert_eq!(judged(Authenticated, "a@x.example", &["x.example"], &[]), 250);
        assert_eq!(judged(Envelope, "a@x.example", &["example.org"], &[]), 250);
        assert_eq!(judged(Envelope, "a@example.org", &["x.example"], &[]), 550);
        assert_eq!(judged(Any, "a@example.org", &["example.org"], &[]), 250);
    }

    #[test]
    fn overrides_are_read_as_they_are_written() {
        for text in ["example.org off", ".example.org quarantine", "example.org as published"] {
            assert_eq!(text.parse::<DmarcOverride>().unwrap().to_string(), text);
        }
        for bad in ["example.org", "example.org on", "off", " off", "a@b.example off", ". off", ""] {
            assert!(bad.parse::<DmarcOverride>().is_err(), "{bad}");
        }
    }
}
