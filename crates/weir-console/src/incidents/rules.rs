//! The rules that find signs of trouble in a look at the gates. They do no I/O: the look and the time are passed in.
//!
//! A sign that opens an incident is stronger than one that keeps it open, so that an incident at the limit does not open and close again
//! and again.

use super::kind::IncidentKind;
use super::tally::Tally;
use crate::pulse::Pulse;
use crate::words::{count, now, seconds, size};
use std::collections::{BTreeMap, BTreeSet};
use weir_foundation::date::rfc3339;
use weir_foundation::supervision::{GateName, GateView};
use weir_foundation::upkeep::Disk;
use weir_lab::operations::{LabStatus, Term};
use weir_store::records::{MalwareCount, VirusCount};

/// Viruses and malware are counted over this time.
pub(super) const LATELY_S: i64 = 600;
/// They are compared with this time.
pub(super) const DAY_S: i64 = 86_400;
/// This many mails with one virus in [`LATELY_S`] are a burst, if they are also [`UNUSUAL`] times the usual number; with fewer than the second number it
/// is over.
const BURST_MIN: i64 = 10;
const BURST_GOES_ON: i64 = 3;
const UNUSUAL: f64 = 3.0;
/// This many waiting requests for each slot of a backend are a flood, wherever they come from.
const FLOOD_PER_SLOT: f64 = 8.0;
/// A new leader is a sign for this long; this many terms of office in [`LATELY_S`] are one even if the leader is the same.
const NEW_LEADER_S: i64 = 120;
const TERMS_MANY: usize = 3;
/// A certificate should have been renewed this long before it expires.
const CERTIFICATE_LEFT_S: i64 = 14 * 86_400;

/// Something that is wrong at the moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sign {
    pub(super) kind: IncidentKind,
    /// Its subject; empty if there are several, or if the kind says everything.
    pub(super) subject: String,
    /// What is seen, in sentences.
    pub(super) says: Vec<String>,
    /// How bad it is, by the measure of its kind.
    pub(super) height: f64,
    /// Whether this is enough to open an incident, and not only to continue one.
    pub(super) opens: bool,
    /// Whether it is not reported, because it is reported as one of many.
    pub(super) untold: bool,
    /// Those whom it is about, if it is about several.
    pub(super) names: Vec<String>,
}

impl Sign {
    pub(super) fn new(kind: IncidentKind, subject: &str, says: String, height: f64) -> Sign {
        Sign {
            kind,
            subject: super::story::cut(subject, super::story::SUBJECT_MAX),
            says: vec![says],
            height,
            opens: true,
            untold: false,
            names: Vec::new(),
        }
    }

    fn opens_if(self, opens: bool) -> Sign {
        Sign { opens, ..self }
    }
}

/// Everything that is wrong according to one look.
#[derive(Debug, Default)]
pub(super) struct LookFindings {
    pub(super) signs: Vec<Sign>,
    /// Kinds for which this look cannot say whether a sign is gone.
    pub(super) blind: BTreeSet<IncidentKind>,
    /// How many more of a kind there are than there are signs.
    pub(super) more: BTreeMap<IncidentKind, u64>,
    pub(super) tally: Tally,
}

/// Counts from the records, in addition to a look; None where counting failed or there is nothing to count.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) viruses: Option<Vec<VirusCount>>,
    pub(super) malware: Option<MalwareCount>,
}

/// What this look says.
pub(super) fn look(pulse: &Pulse, counts: &Counts, now_s: i64) -> LookFindings {
    let mut seen = LookFindings { tally: Tally::of(pulse), ..LookFindings::default() };
    stopped(&mut seen, pulse);
    flooded(&mut seen, pulse);
    scanners(&mut seen, pulse);
    match &counts.viruses {
        Some(viruses) => seen.signs.extend(viruses.iter().filter_map(virus)),
        None => drop(seen.blind.insert(IncidentKind::Virus)),
    }
    match &counts.malware {
        Some(malware) => seen.signs.extend(in_the_lab(malware)),
        None => drop(seen.blind.insert(IncidentKind::Malware)),
    }
    match &pulse.lab {
        Some(lab) => seen.signs.extend(leader(lab, now_s)),
        None if wants(pulse, GateName::Lab) => drop(seen.blind.insert(IncidentKind::Leader)),
        None => {}
    }
    match &pulse.disk {
        Some(disk) => seen.signs.extend(filling(disk)),
        None => drop(seen.blind.insert(IncidentKind::Disk)),
    }
    seen.signs.extend(pulse.gates.iter().filter(|gate| gate.has_failed()).map(failed));
    if pulse.gates.is_empty() {
        seen.blind.insert(IncidentKind::Gate);
    }
    certificates(&mut seen, pulse);
    guessed(&mut seen, pulse);
    seen
}

fn wants(pulse: &Pulse, gate: GateName) -> bool {
    pulse.gates.iter().any(|view| view.gate == gate)
}

fn stopped(seen: &mut LookFindings, pulse: &Pulse) {
    let Some(status) = &pulse.status else {
        seen.blind.insert(IncidentKind::Stopped);
        return;
    };
    let before = seen.signs.len();
    seen.signs.extend(pulse.stopped().map(|busy| {
        let says = format!("{} is {}.", busy.user, busy.throttle.in_words.trim_end_matches('.'));
        Sign::new(IncidentKind::Stopped, &busy.user, says, busy.throttle.held as f64)
    }));
    // A look names only the first of them, so it cannot say whether the others are still stopped.
    let unnamed = (status.totals.stopped.max(0) as u64).saturating_sub((seen.signs.len() - before) as u64);
    if unnamed > 0 {
        seen.more.insert(IncidentKind::Stopped, unnamed);
        seen.blind.insert(IncidentKind::Stopped);
    }
}

fn flooded(seen: &mut LookFindings, pulse: &Pulse) {
    let Some(web) = &pulse.web else {
        if wants(pulse, GateName::Web) {
            seen.blind.insert(IncidentKind::Flood);
        }
        return;
    };
    for queue in web.backends.iter().map(|backend| &backend.queue) {
        let (waiting, slots) = (queue.waiting as f64, f64::from(queue.slots.max(1)));
        // Many networks with a few requests each are not an attack for the gate, but a flood all the same.
        let opens = queue.pressure.attack || waiting >= FLOOD_PER_SLOT * slots;
        if opens || waiting >= slots {
            let sign = Sign::new(IncidentKind::Flood, &queue.backend, String::new(), waiting);
            let says = queue.pressure.sentences();
            seen.signs.push(Sign { says, ..sign }.opens_if(opens));
        }
    }
}

fn scanners(seen: &mut LookFindings, pulse: &Pulse) {
    let Some(feeds) = &pulse.feeds else {
        let mail_is_up = pulse.gates.iter().any(|view| view.gate == GateName::Mail && view.is_up());
        if !mail_is_up {
            seen.blind.insert(IncidentKind::Scanner);
        }
        return;
    };
    let down: Vec<_> = feeds.scanners.iter().filter(|scanner| !scanner.up).collect();
    let mut says: Vec<String> = Vec::new();
    if let Some(outage) = &feeds.outage {
        let waiting = count(feeds.unscanned() as u64, "mail");
        let problem = outage.problem.trim_end_matches('.');
        says.push(format!("Scans have failed for {}: {problem}. {waiting} wait.", seconds(outage.for_s)));
    }
    says.extend(down.iter().map(|scanner| {
        format!("The scanner {} does not answer: {}.", scanner.scanner, scanner.problem.trim_end_matches('.'))
    }));
    if !says.is_empty() {
        let height = down.len() as f64 + if feeds.outage.is_some() { 10.0 } else { 0.0 };
        seen.signs.push(Sign { says, ..Sign::new(IncidentKind::Scanner, "", String::new(), height) });
    }
}

/// Whether this many lately are far more than usual, by the day before.
fn is_unusual(lately: i64, day: i64) -> bool {
    let before = (day - lately).max(0) as f64;
    lately as f64 > UNUSUAL * before * LATELY_S as f64 / DAY_S as f64
}

fn virus(found: &VirusCount) -> Option<Sign> {
    let opens = found.lately >= BURST_MIN && is_unusual(found.lately, found.day);
    let name = found.name.strip_prefix("infected: ").unwrap_or(&found.name);
    (found.lately >= BURST_GOES_ON).then(|| {
        let says = format!(
            "{} with \"{}\" came within ten minutes, from {} to {}.",
            count(found.lately, "mail"),
            name,
            count(found.senders, "sender"),
            count(found.recipients, "recipient")
        );
        Sign::new(IncidentKind::Virus, name, says, found.lately as f64).opens_if(opens)
    })
}

fn in_the_lab(found: &MalwareCount) -> Option<Sign> {
    (found.lately > 0).then(|| {
        let names: Vec<String> = found.newest.iter().map(|(id, name)| format!("{name} (sample {id})")).collect();
        let says = format!(
            "The lab found {} within ten minutes: {}.",
            count(found.lately, "malicious sample"),
            names.join(", ")
        );
        Sign::new(IncidentKind::Malware, "", says, found.lately as f64).opens_if(is_unusual(found.lately, found.day))
    })
}

fn leader(lab: &LabStatus, now_s: i64) -> Option<Sign> {
    let within = |term: &&Term, seconds: i64| now_s - term.began_ms / 1_000 < seconds;
    let terms = lab.terms.iter().filter(|term| within(term, LATELY_S)).count();
    let changed = lab
        .terms
        .iter()
        .zip(lab.terms.iter().skip(1))
        .find(|(new, old)| new.leader != old.leader && within(new, NEW_LEADER_S));
    let says = match (&lab.leader, changed) {
        (None, _) => "No machine leads the lab: samples are accepted and wait.".to_owned(),
        (Some(_), Some((new, old))) => {
            let began = rfc3339(new.began_ms.saturating_mul(1_000_000));
            format!("{} leads the lab instead of {}, since {}.", new.leader, old.leader, began)
        }
        (Some(leader), None) if terms >= TERMS_MANY => {
            format!("The lab had {terms} terms of office within ten minutes. {leader} leads now.")
        }
        (Some(_), None) => return None,
    };
    Some(Sign::new(IncidentKind::Leader, "", says, terms as f64))
}

fn filling(disk: &Disk) -> Option<Sign> {
    // It is over when a quarter more is free than the amount at which it was opened.
    let goes_on = Disk { free_bytes: disk.free_bytes / 5 * 4, ..*disk }.is_short();
    goes_on.then(|| {
        let says = format!("{} of {} are free.", size(disk.free_bytes), size(disk.size_bytes));
        let used = 1.0 - disk.free_bytes as f64 / disk.size_bytes.max(1) as f64;
        Sign::new(IncidentKind::Disk, "", says, 100.0 * used).opens_if(disk.is_short())
    })
}

fn failed(gate: &GateView) -> Sign {
    let why = gate.last_failure.as_deref().unwrap_or("it does not say why");
    let says = format!("{} does not run: {}.", gate.gate, why.trim_end_matches('.'));
    Sign::new(IncidentKind::Gate, &gate.gate.to_string(), says, 1.0)
}

fn guessed(seen: &mut LookFindings, pulse: &Pulse) {
    let Some(gate) = pulse.status.as_ref().and_then(|status| status.gate.as_ref()) else {
        seen.blind.insert(IncidentKind::Guessing);
        return;
    };
    seen.signs.extend(gate.guessed_at.iter().map(|guessed| {
        let wrong = &guessed.wrong;
        let says = format!(
            "{} for {} from {}, such as {}.",
            count(wrong.count, "failed login"),
            guessed.name,
            count(wrong.networks, "network"),
            wrong.from.join(", ")
        );
        Sign::new(IncidentKind::Guessing, &guessed.name, says, wrong.count as f64)
    }));
}

fn certificates(seen: &mut LookFindings, pulse: &Pulse) {
    if pulse.certificates.is_empty() {
        seen.blind.insert(IncidentKind::Certificate);
    }
    for certificate in &pulse.certificates {
        let says = match &certificate.ends {
            Err(problem) => format!("The certificate of {} cannot be used: {problem}.", certificate.of),
            Ok(ends) if *ends < now() => format!("The certificate of {} has ended.", certificate.of),
            Ok(ends) if *ends - now() < CERTIFICATE_LEFT_S => {
                format!("The certificate of {} is valid for {} more.", certificate.of, seconds((*ends - now()) as f64))
            }
            Ok(_) => continue,
        };
        seen.signs.push(Sign::new(IncidentKind::Certificate, certificate.of, says, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::CertificateView;
    use std::time::Duration;
    use weir_core::time::Instant;
    use weir_foundation::supervision::GateStates;

    fn signs(pulse: &Pulse) -> Vec<(IncidentKind, bool)> {
        look(pulse, &Counts::default(), 1_000_000).signs.iter().map(|sign| (sign.kind, sign.opens)).collect()
    }

    #[test]
    fn a_look_that_saw_nothing_says_nothing_and_ends_nothing() {
        let seen = look(&Pulse::blind(), &Counts::default(), 1_000_000);
        assert_eq!(seen.signs, []);
        for kind in [
            IncidentKind::Stopped,
            IncidentKind::Scanner,
            IncidentKind::Virus,
            IncidentKind::Malware,
            IncidentKind::Disk,
            IncidentKind::Gate,
        ] {
            assert!(seen.blind.contains(&kind), "{kind:?}");
        }
    }

    #[test]
    fn a_disk_needs_less_to_go_on_filling_than_to_begin() {
        let with = |free: u64| {
            let disk = Some(Disk { free_bytes: free << 20, size_bytes: 100 << 30 });
            signs(&Pulse { disk, ..Pulse::blind() })
        };
        assert_eq!(with(50_000), []);
        assert_eq!(with(1_000), [(IncidentKind::Disk, true)]);
        assert_eq!(with(4_600), [(IncidentKind::Disk, false)], "it has become a little better");
    }

    #[test]
    fn a_gate_that_failed_and_a_certificate_that_ends_are_signs() {
        let states = GateStates::default();
        states.failed(GateName::Web, "the port is in use.", Instant(2), Duration::from_secs(1));
        let gates = states.view(Instant(3));
        let soon = CertificateView { of: "mail", ends: Ok(now() + 86_400) };
        let later = CertificateView { of: "web", ends: Ok(now() + 86_400 * 90) };
        let pulse = Pulse { gates, certificates: vec![soon, later], ..Pulse::blind() };
        let seen = look(&pulse, &Counts::default(), 1_000_000);
        let said: Vec<&str> = seen.signs.iter().map(|sign| sign.says[0].as_str()).collect();
        assert_eq!(said[0], "web does not run: the port is in use.");
        assert!(said.len() == 2 && said[1].starts_with("The certificate of mail is valid for 24 h"), "{said:?}");
    }

    #[test]
    fn a_burst_is_much_more_of_one_virus_than_usual() {
        let count = |lately, day| {
            let name = "Worm<script>\u{1b}".repeat(100);
            virus(&VirusCount { name, lately, day, senders: 1, recipients: 2 }).map(|sign| sign.opens)
        };
        assert_eq!(count(2, 2), None);
        assert_eq!(count(9, 9), Some(false), "enough to go on, not to begin");
        assert_eq!(count(10, 10), Some(true));
        assert_eq!(count(20, 144 * 20), Some(false), "this much comes all day");
        assert_eq!(count(70, 144 * 20), Some(true));
        let found = VirusCount { name: "\u{1b}<b>".repeat(1_000), lately: 10, day: 10, senders: 1, recipients: 2 };
        let subject = virus(&found).unwrap().subject;
        assert!(subject.chars().count() <= 121 && !subject.contains('\u{1b}'), "{subject}");
    }

    #[test]
    fn a_leader_that_was_elected_again_after_a_restart_is_none() {
        let term = |epoch, leader: &str, ago_s: i64| Term {
            epoch,
            leader: leader.into(),
            began_ms: (1_000_000 - ago_s) * 1_000,
        };
        let lab = |leader: Option<&str>, terms| LabStatus {
            leader: leader.map(str::to_owned),
            epoch: 3,
            leads_here: true,
            open: None,
            states: Vec::new(),
            analysis: String::new(),
            plugins: Vec::new(),
            terms,
            figures: None,
            vacant_ms: None,
        };
        let says = |lab: LabStatus| leader(&lab, 1_000_000).map(|sign| sign.says[0].clone());
        assert_eq!(says(lab(Some("a"), vec![term(2, "a", 10), term(1, "a", 50)])), None, "a restart");
        assert_eq!(says(lab(Some("b"), vec![term(2, "b", 500), term(1, "a", 5_000)])), None, "long ago");
        let changed = says(lab(Some("b"), vec![term(2, "b", 10), term(1, "a", 5_000)])).unwrap();
        assert!(changed.starts_with("b leads the lab instead of a, since 1970-"), "{changed}");
        assert!(says(lab(None, Vec::new())).unwrap().starts_with("No machine leads"));
        let many = vec![term(3, "a", 10), term(2, "a", 50), term(1, "a", 90)];
        assert!(says(lab(Some("a"), many)).unwrap().contains("3 terms of office"));
    }
}
