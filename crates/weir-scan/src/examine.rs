//! What happens to a message inside a worker: the walk, with YARA, the attachment policy and the list of blocked contents looking at
//! everything it finds.

use crate::attachments::Judgement;
use crate::attachments::policy::Policy;
use crate::budget::{Budget, Exceeded, Limits};
use crate::file_name;
use crate::made::{Blocked, Blocklist};
use crate::plain::shown;
use crate::samples::{self, Candidate, Picker, SamplePolicy, Sort};
use crate::suspicion::{self, Action};
use crate::verdict::{Finding, Outcome};
use crate::walk::{self, File, NestedPath, Oddity, Visit};
use crate::wishes::Wishes;
use crate::yara::{Externals, RuleFile, Rules, RulesError, Severity};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// What a worker is told once, when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// All rules; none switches YARA off.
    pub rules: Vec<RuleFile>,
    /// What may be attached.
    pub policy: Policy,
    /// What a message may cost.
    pub limits: Limits,
    /// What is worth an analysis.
    #[serde(default)]
    pub samples: SamplePolicy,
    /// Contents that do not pass.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
}

impl Default for Setup {
    fn default() -> Setup {
        let rules = vec![RuleFile::embedded()];
        let (policy, limits, samples) = (Policy::default(), Limits::default(), SamplePolicy::default());
        Setup { rules, policy, limits, samples, blocked: Vec::new() }
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// At least one a scanner.
    pub findings: Vec<Finding>,
    /// What is worth an analysis.
    pub suspicious: Vec<String>,
    /// Files that are to be analysed, if nobody condemns the message.
    #[serde(default)]
    pub samples: Vec<Candidate>,
    /// How many more there are.
    #[serde(default)]
    pub samples_left_out: usize,
    /// What a spam filter asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wishes: Option<Wishes>,
}

/// A scanner reports at most so many findings; the first of the gravest say enough.
const FINDINGS_MAX: usize = 8;
const SUSPICIOUS_MAX: usize = 16;
/// What is suspicious is told in a sentence.
const WHY_MAX: usize = 800;

/// Looks at messages, one after the other.
#[derive(Debug)]
pub struct Examiner {
    rules: Option<Rules>,
    policy: Policy,
    limits: Limits,
    samples: SamplePolicy,
    blocklist: Blocklist,
}

impl Examiner {
    /// Compiles the rules.
    pub fn new(setup: Setup) -> Result<Examiner, RulesError> {
        let rules = (!setup.rules.is_empty()).then(|| Rules::compile(&setup.rules)).transpose()?;
        let blocklist = Blocklist::new(&setup.blocked);
        Ok(Examiner { rules, policy: setup.policy, limits: setup.limits, samples: setup.samples, blocklist })
    }

    /// Looks at one message. Never fails: what could not be looked at is a finding.
    pub fn examine(&mut self, message: &[u8]) -> Report {
        self.look(message, false)
    }

    /// Looks at something that may be a file of any kind or a message: at both, since nobody says which it is.
    pub fn examine_file(&mut self, data: &[u8]) -> Report {
        self.look(data, true)
    }

    fn look(&mut self, message: &[u8], is_file: bool) -> Report {
        let begun = Instant::now();
        if let Some(report) = self.too_large(message.len() as u64) {
            return report;
        }
        let mut budget = Budget::new(&self.limits);
        let mut look = Look::new(self);
        let raw = Externals { kind: "message", is_message: true, ..Externals::default() };
        let walked = look
            .scan(&NestedPath::default(), None, message, &raw, &budget)
            .and_then(|()| walk::walk(message, &mut budget, &mut look))
            .and_then(|()| if is_file { walk::walk_unnamed(message, &mut budget, &mut look) } else { Ok(()) });
        look.report(walked.err(), begun.elapsed())
    }

    /// Whether a message of this length is opened at all.
    pub(crate) fn fits(&self, length: u64) -> bool {
        length <= self.limits.message_bytes
    }

    /// Writes one file of a message, by its hash and size; whether it is there.
    pub(crate) fn extract(&self, message: &[u8], wanted: (&str, u64), out: &mut dyn Write) -> io::Result<bool> {
        samples::extract(message, &self.limits, wanted, out)
    }

    /// Every attachment of a message, and how many more there are.
    pub(crate) fn attachments(&self, message: &[u8]) -> (Vec<Candidate>, usize) {
        samples::attachments(message, &self.limits)
    }

    /// What there is to say about a message of this length if it need not be read at all.
    pub fn too_large(&mut self, length: u64) -> Option<Report> {
        let most = self.limits.message_bytes;
        (length > most).then(|| Look::new(self).report(Some(Exceeded::Message(most)), Duration::ZERO))
    }
}

/// One message being looked at.
struct Look<'e> {
    examiner: &'e mut Examiner,
    yara: Vec<(Outcome, String)>,
    attachments: Vec<(Outcome, String)>,
    blocked: Vec<(Outcome, String)>,
    suspicious: Vec<String>,
    picker: Picker,
    in_rules: Duration,
}

impl Look<'_> {
    fn new(examiner: &mut Examiner) -> Look<'_> {
        Look {
            examiner,
            yara: Vec::new(),
            attachments: Vec::new(),
            blocked: Vec::new(),
            suspicious: Vec::new(),
            picker: Picker::default(),
            in_rules: Duration::ZERO,
        }
    }

    fn scan(
        &mut self,
        place: &NestedPath,
        file: Option<&File<'_>>,
        data: &[u8],
        known: &Externals<'_>,
        budget: &Budget,
    ) -> Result<(), Exceeded> {
        let Some(rules) = &mut self.examiner.rules else { return Ok(()) };
        let begun = Instant::now();
        let (matches, whole) = rules.scan(data, known, budget.left());
        self.in_rules += begun.elapsed();
        for found in matches {
            let outcome = match found.severity {
                Severity::Infected => Outcome::Infected { name: found.rule },
                Severity::Forbidden => Outcome::Forbidden { reason: format!("{} ({})", found.description, found.rule) },
                Severity::Suspicious => {
                    self.suspect(place, &found.rule, &found.rule, Action::Header);
                    if let Some(file) = file {
                        self.picker.suspicious(&self.examiner.samples, file, &found.rule);
                    }
                    continue;
                }
            };
            note(&mut self.yara, outcome, place);
        }
        if whole { Ok(()) } else { Err(Exceeded::Time(budget.limits().time)) }
    }

    fn judged(&mut self, place: &NestedPath, judgement: Judgement) {
        match judgement {
            Judgement::Finding(outcome) => note(&mut self.attachments, outcome, place),
            Judgement::Suspicious(why) => self.suspect(place, &why, &why, Action::Header),
        }
    }

    /// Something is suspicious by a rule: kept or told, as the site says, unless a lab looks at it.
    fn suspect(&mut self, place: &NestedPath, rule: &str, why: &str, usual: Action) {
        let policy = &self.examiner.policy;
        match policy.suspicion.action(rule, usual) {
            Action::Pass => return,
            Action::Quarantine if policy.enabled && !self.examiner.samples.sorts.contains(&Sort::Suspicious) => {
                let reason =
                    if rule == why { format!("suspicious: {why}") } else { format!("suspicious: {why} ({rule})") };
                note(&mut self.attachments, Outcome::Forbidden { reason }, place);
            }
            Action::Quarantine | Action::Header => {}
        }
        let text = match place.to_string() {
            place if place.is_empty() => shown(why, WHY_MAX),
            place => shown(&format!("{place}: {why}"), WHY_MAX),
        };
        if self.suspicious.len() < SUSPICIOUS_MAX && !self.suspicious.contains(&text) {
            self.suspicious.push(text);
        }
    }

    fn report(mut self, exceeded: Option<Exceeded>, took: Duration) -> Report {
        let (yara_on, policy_on) = (self.examiner.rules.is_some(), self.examiner.policy.enabled);
        let in_rules = self.in_rules;
        let (samples, samples_left_out) = std::mem::take(&mut self.picker).ended();
        let suspicious = std::mem::take(&mut self.suspicious);
        let mut report = Report { suspicious, samples, samples_left_out, ..Report::default() };
        let scanners = [
            ("yara", std::mem::take(&mut self.yara), yara_on, in_rules),
            ("attachments", std::mem::take(&mut self.attachments), policy_on, took.saturating_sub(in_rules)),
        ];
        for (scanner, mut found, on, took) in scanners {
            if let Some(exceeded) = exceeded {
                found.push((Outcome::NotScanned { limit: exceeded.to_string() }, String::new()));
            }
            if found.is_empty() {
                found.push((Outcome::Clean, String::new()));
            }
            let finding = |(outcome, place)| Finding { scanner: scanner.into(), outcome, place, took };
            report.findings.extend(found.into_iter().map(finding).filter(|_| on));
        }
        // Finding nothing here says nothing about the rest of the message, so there is no `Clean`: only known contents are reported.
        let known = |(outcome, place)| Finding { scanner: "rules".into(), outcome, place, took: Duration::ZERO };
        report.findings.extend(self.blocked.into_iter().map(known));
        report
    }
}

impl Visit for Look<'_> {
    fn file(&mut self, place: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded> {
        self.picker.file(&self.examiner.samples, place, file);
        self.reading(place, file, budget)
    }

    fn reading(&mut self, place: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded> {
        if self.examiner.policy.enabled
            && let Some(judgement) = self.examiner.policy.judge(file)
        {
            if let Judgement::Suspicious(why) = &judgement {
                self.picker.suspicious(&self.examiner.samples, file, why);
            }
            self.judged(place, judgement);
        }
        if file.data.is_empty() {
            return Ok(());
        }
        for rule in suspicion::find(file) {
            self.suspect(place, rule.name, rule.about, rule.action);
            self.picker.suspicious(&self.examiner.samples, file, rule.name);
        }
        if let Some(outcome) = self.examiner.blocklist.find(file.data) {
            note(&mut self.blocked, outcome.clone(), place);
        }
        let name = file.names.first().map_or("", String::as_str);
        let extension = file_name::extension(name).unwrap_or_default();
        let known = Externals {
            name,
            extension: &extension,
            kind: file.kind.word(),
            in_archive: file.in_archive,
            is_message: false,
        };
        self.scan(place, Some(file), file.data, &known, budget)
    }

    fn passwords(&mut self, words: &[String]) {
        self.picker.passwords(words);
    }

    fn odd(&mut self, place: &NestedPath, oddity: Oddity) {
        let policy = &self.examiner.policy;
        let (policy_on, judgement) = (policy.enabled, policy.judge_oddity(&oddity));
        let suspicious = policy_on && matches!(judgement, Some(Judgement::Suspicious(_)));
        self.picker.odd(&self.examiner.samples, place, &oddity, suspicious);
        match judgement {
            Some(judgement) if policy_on => self.judged(place, judgement),
            // Who forbids nothing has still not seen what is inside.
            Some(Judgement::Finding(Outcome::Forbidden { reason: why } | Outcome::NotScanned { limit: why }))
                if oddity.hides() =>
            {
                note(&mut self.yara, Outcome::NotScanned { limit: why }, place);
            }
            _ => {}
        }
    }
}

/// Adds a finding, unless the same was found in the raw message. If there are enough, the last of the least grave gives way to what
/// is graver.
fn note(list: &mut Vec<(Outcome, String)>, outcome: Outcome, place: &NestedPath) {
    let (outcome, place) = (outcome.plain(), place.to_string());
    if let Some(known) = list.iter_mut().find(|(known, _)| *known == outcome) {
        // The nearer place says more.
        if known.1.is_empty() {
            known.1 = place;
        }
        return;
    }
    if list.len() >= FINDINGS_MAX {
        let least = list.iter().enumerate().rev().min_by_key(|(_, (known, _))| known.gravity());
        let Some((at, _)) = least.filter(|(_, (known, _))| known.gravity() < outcome.gravity()) else { return };
        list.remove(at);
    }
    list.push((outcome, place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments::policy::Choice;

    #[test]
    fn what_nobody_opened_is_not_clean_without_a_policy_either() {
        let closed = b"Content-Type: application/x-ms-wim; name=a.wim\r\n\r\nMSWIM\0\0\0".as_slice();
        let piece = b"Content-Type: message/partial; id=1; number=1; total=2\r\n\r\nhello\r\n".as_slice();
        // An inconsistency hides nothing: all of it was looked at.
        let twice = b"Content-Type: text/plain\r\nContent-Type: text/html\r\n\r\nhello\r\n".as_slice();
        let unscanned = |why: &str| Outcome::NotScanned { limit: why.into() };
        let off = Policy { enabled: false, ..Policy::default() };
        let allowed = Policy { closed: Choice::Allow, unreadable: Choice::Allow, ..off.clone() };
        for (message, said) in [
            (closed, unscanned("a WIM image is not opened here")),
            (piece, unscanned("it cannot be read: a piece of a message, whose other pieces come apart")),
            (twice, Outcome::Clean),
        ] {
            for (policy, said) in [(&off, said), (&allowed, Outcome::Clean)] {
                let setup = Setup { policy: policy.clone(), ..Setup::default() };
                let report = Examiner::new(setup).unwrap().examine(message);
                let found: Vec<_> =
                    report.findings.iter().map(|found| (found.scanner.as_str(), &found.outcome)).collect();
                assert_eq!(found, [("yara", &said)]);
            }
        }
    }

    #[test]
    fn what_is_grave_finds_its_place_among_any_number_of_findings() {
        let unscanned = |number: usize| Outcome::NotScanned { limit: number.to_string() };
        let mut list = Vec::new();
        for number in 0..2 * FINDINGS_MAX {
            note(&mut list, unscanned(number), &NestedPath::default());
        }
        let forbidden = Outcome::Forbidden { reason: "evil.js".into() };
        note(&mut list, forbidden.clone(), &NestedPath::default());
        note(&mut list, unscanned(100), &NestedPath::default());
        let found: Vec<Outcome> = list.into_iter().map(|(outcome, _)| outcome).collect();
        let first = (0..FINDINGS_MAX - 1).map(unscanned);
        assert_eq!(found, first.chain([forbidden]).collect::<Vec<_>>());
    }
}
