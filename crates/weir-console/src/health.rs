//! Is everything all right? One verdict over all gates, with its reasons.
//!
//! `weir status`, the API and the overview are computed from the same snapshot by the same rules, so they cannot disagree. A value that
//! could not be read counts as a problem, never as healthy. A flood that the web gate holds off, or mail that the throttle delays, needs
//! nobody's attention: it is mentioned, but does not change the verdict. Nothing is probed for this: a server that was not used yet is
//! reported as not tried, and not as working.

mod known_visitors;
mod next_hops;

use crate::pulse::{CertificateView, Pulse};
use crate::words::{count, now, parsed, seconds, size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::supervision::{GateName, GateView};
use weir_foundation::upkeep::{BackupAge, Disk};
use weir_lab::operations::LabStatus;
use weir_mail::operations::MailStatus;
use weir_mail::scan::FeedsStatus;
use weir_tls::CertificateState;
use weir_web::view::{BackendView, ServerView, Status};

/// How many stopped users are named; the others are counted.
const STOPPED_NAMED: usize = 5;
/// A certificate should be renewed this long before it expires.
const CERTIFICATE_LEFT_S: i64 = 14 * 86_400;
/// How many servers are named that were not tried yet.
const UNTRIED_NAMED: usize = 2;
const TEN_YEARS_S: i64 = 3_650 * 86_400;

/// Whether something needs a person, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthVerdict {
    /// It does what it should.
    Well,
    /// Somebody should look or decide; meanwhile it does what it should.
    Look,
    /// Something does not work.
    Failing,
}

/// Whether everything works, and what needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The worst of all parts.
    pub verdict: HealthVerdict,
    /// The same as a sentence.
    pub says: String,
    /// Each part in a line.
    pub parts: Vec<PartHealth>,
    /// What needs a person, the worst first.
    pub problems: Vec<HealthProblem>,
}

/// The state of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartHealth {
    /// `mail`, `scan`, `web`, `lab`, `backup`, `certificates`, `disk` or `incidents`; and `console` while there are no pages.
    pub part: String,
    /// The worst of its problems.
    pub verdict: HealthVerdict,
    /// Its state in words.
    pub says: String,
}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthProblem {
    /// The part it belongs to.
    pub part: String,
    /// How serious it is.
    pub verdict: HealthVerdict,
    /// The problem in words.
    pub says: String,
    /// The page of the console where something can be done about it; empty if there is none.
    pub page: String,
}

/// A part whose state is being collected.
struct HealthPart {
    name: &'static str,
    /// What is said if nothing is wrong.
    says: Vec<String>,
    problems: Vec<HealthProblem>,
    /// Servers that were not used yet, so that nothing is known of them.
    untried: Vec<String>,
}

impl HealthPart {
    fn empty(name: &'static str) -> HealthPart {
        HealthPart { name, says: Vec::new(), problems: Vec::new(), untried: Vec::new() }
    }

    fn new(name: &'static str, pulse: &Pulse) -> HealthPart {
        let mut part = HealthPart::empty(name);
        for (of, problem) in &pulse.problems {
            if *of == name {
                part.look(format!("Weir cannot look at a part of itself ({name}): {problem}"), "");
            }
        }
        part
    }

    fn say(&mut self, words: impl Into<String>) {
        self.says.push(words.into());
    }

    fn look(&mut self, says: impl Into<String>, page: impl Into<String>) {
        self.problem(HealthVerdict::Look, says.into(), page.into());
    }

    fn fail(&mut self, says: impl Into<String>, page: impl Into<String>) {
        self.problem(HealthVerdict::Failing, says.into(), page.into());
    }

    fn problem(&mut self, verdict: HealthVerdict, says: String, page: String) {
        self.problems.push(HealthProblem { part: self.name.to_owned(), verdict, says, page });
    }

    /// The line about it: what is wrong comes first.
    fn line(&self) -> PartHealth {
        let wrong = self.problems.iter().map(|problem| problem.says.as_str());
        let untried = (!self.untried.is_empty()).then(|| format!("not tried yet: {}", list(&self.untried)));
        let says: Vec<&str> = wrong.chain(untried.as_deref()).chain(self.says.iter().map(String::as_str)).collect();
        let verdict = self.problems.iter().map(|problem| problem.verdict).max().unwrap_or(HealthVerdict::Well);
        PartHealth { part: self.name.to_owned(), verdict, says: says.join("; ") }
    }
}

impl Health {
    /// The state as seen in a pulse.
    pub(crate) fn of(pulse: &Pulse) -> Health {
        let parts = [
            mail(pulse),
            scan(pulse),
            web(pulse),
            lab(pulse),
            backup(pulse),
            certificates(pulse),
            disk(pulse),
            incidents(pulse),
        ];
        let parts: Vec<HealthPart> =
            parts.into_iter().chain(directory(pulse)).chain(audit(pulse)).chain(console(pulse)).collect();
        let lines: Vec<PartHealth> = parts.iter().map(HealthPart::line).collect();
        let untried: Vec<String> = parts.iter().flat_map(|part| part.untried.clone()).collect();
        let mut problems: Vec<HealthProblem> = parts.into_iter().flat_map(|part| part.problems).collect();
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.verdict));
        let verdict = lines.iter().map(|line| line.verdict).max().unwrap_or(HealthVerdict::Well);
        Health { verdict, says: sentence(verdict, &problems, &untried), parts: lines, problems }
    }

    /// The state of a data folder for which no process runs.
    pub fn of_nothing() -> Health {
        let says = "Weir does not run".to_owned();
        let problem = HealthProblem { part: "weir".into(), verdict: HealthVerdict::Failing, says, page: String::new() };
        let problems = vec![problem];
        Health {
            verdict: HealthVerdict::Failing,
            says: sentence(HealthVerdict::Failing, &problems, &[]),
            parts: Vec::new(),
            problems,
        }
    }
}

/// The first of these, and how many more there are.
fn list(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(UNTRIED_NAMED).map(String::as_str).collect();
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn sentence(verdict: HealthVerdict, problems: &[HealthProblem], untried: &[String]) -> String {
    let failing = problems.iter().filter(|problem| problem.verdict == HealthVerdict::Failing).count();
    let needs = |number: usize| if number == 1 { "One thing needs" } else { "things need" };
    match (verdict, failing, problems.len() - failing) {
        (HealthVerdict::Well, ..) if untried.is_empty() => "All is well.".to_owned(),
        (HealthVerdict::Well, ..) => format!("All is well as far as Weir knows; not tried yet: {}.", list(untried)),
        (_, 0, 1) => format!("{} you.", needs(1)),
        (_, 0, look) => format!("{look} {} you.", needs(look)),
        (_, 1, 0) => "NOT WELL: one thing does not work.".to_owned(),
        (_, fail, 0) => format!("NOT WELL: {fail} things do not work."),
        (_, 1, look) => format!("NOT WELL: one thing does not work, and {look} more need you."),
        (_, fail, look) => format!("NOT WELL: {fail} things do not work, and {look} more need you."),
    }
}

/// The pages themselves, if they are not served.
fn console(pulse: &Pulse) -> Option<HealthPart> {
    let mut part = HealthPart::new("console", pulse);
    let wanted = pulse.gates.iter().any(|view| view.gate == GateName::Console);
    (wanted && !serves(&mut part, pulse, GateName::Console)).then_some(part)
}

/// Whether the gate serves; if not, the reason is noted.
fn serves(part: &mut HealthPart, pulse: &Pulse, gate: GateName) -> bool {
    let Some(view) = pulse.gates.iter().find(|view| view.gate == gate) else {
        part.say("off");
        return false;
    };
    match view {
        GateView { state, last_failure, .. } if state == "failed" => {
            let why = last_failure.as_deref().unwrap_or_default();
            part.fail(format!("{gate} does not run: {why}"), "");
        }
        view if !view.is_up() => part.look(format!("{gate} is starting"), ""),
        view => {
            if let Some(why) = &view.refused_settings {
                let says = "uses older settings than those in the file, which it refused:";
                part.look(format!("{gate} {says} {}", why.replace('\n', " ")), "");
            }
            return true;
        }
    }
    false
}

fn mail(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("mail", pulse);
    let serves = serves(&mut part, pulse, GateName::Mail);
    if let Some(status) = &pulse.status {
        stopped(&mut part, pulse, status);
        if serves {
            if let Some(gate) = &status.gate {
                next_hops::look(&mut part, &gate.next_hops);
            }
            spool(&mut part, status);
            guessed(&mut part, status);
        }
    }
    part
}

/// Weir slows down whoever guesses, so nobody has to do anything, but it is mentioned.
fn guessed(part: &mut HealthPart, status: &MailStatus) {
    let guessed = status.gate.as_ref().map_or(&[][..], |gate| gate.guessed_at.as_slice());
    if let Some(first) = guessed.first() {
        let accounts = count(guessed.len() as u64, "account");
        let failed = count(first.wrong.count, "failed login");
        part.say(format!("passwords of {accounts} are being guessed: {failed} for {}", first.name));
    }
}

fn stopped(part: &mut HealthPart, pulse: &Pulse, status: &MailStatus) {
    let totals = &status.totals;
    for busy in pulse.stopped().take(STOPPED_NAMED) {
        let page = format!("/throttle/users/{}", crate::html::Piece(&busy.user));
        part.look(format!("{} {}", busy.user, busy.throttle.in_words), page);
    }
    if totals.stopped as usize > STOPPED_NAMED {
        part.look(format!("{} are stopped in all", count(totals.stopped, "user")), "/throttle");
    }
    match totals.held_recipients {
        0 if status.gate.is_some() => part.say("nothing is held"),
        0 => {}
        held => part.say(format!("{} of {} held", count(held, "recipient"), count(totals.held_messages, "mail"))),
    }
}

fn spool(part: &mut HealthPart, status: &MailStatus) {
    let spool = &status.spool;
    for damage in spool.damage.iter().take(3) {
        part.look(format!("the spool is damaged: {damage}"), "");
    }
    if spool.full {
        part.fail("no mail is accepted (452): the free disk space is below store.free_space", "");
    }
    part.say(match spool.messages {
        0 => "nothing in transit".to_owned(),
        messages => format!("{} in transit ({})", count(messages as u64, "mail"), size(spool.body_bytes)),
    });
}

fn scan(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("scan", pulse);
    let mail_is_up = pulse.gates.iter().any(|view| view.gate == GateName::Mail && view.is_up());
    match &pulse.feeds {
        Some(feeds) if mail_is_up => feeding(&mut part, feeds, pulse.quarantined("")),
        _ => part.say("off"),
    }
    part
}

fn feeding(part: &mut HealthPart, feeds: &FeedsStatus, quarantined: i64) {
    if let Some(outage) = &feeds.outage {
        let for_s = seconds(outage.for_s);
        let says = format!(
            "scans have failed for {for_s}: {}. Mail waits; nothing passes unscanned",
            outage.problem.trim_end_matches('.')
        );
        part.fail(says, "/feeds");
    }
    for scanner in &feeds.scanners {
        match (scanner.up, scanner.problem.as_str()) {
            (false, problem) => part.look(format!("the scanner {} is down: {problem}", scanner.scanner), "/feeds"),
            (true, "") => {}
            (true, problem) => part.look(format!("the scanner {}: {problem}", scanner.scanner), "/feeds"),
        }
    }
    let up = feeds.scanners.iter().filter(|scanner| scanner.up).count();
    if feeds.outage.is_none() {
        part.say(format!("{up} of {} up", count(feeds.scanners.len() as u64, "scanner")));
    }
    part.say(match feeds.unscanned() {
        0 => "nothing waits".to_owned(),
        waiting => format!("{} wait, the oldest for {}", count(waiting as u64, "mail"), seconds(feeds.oldest_s)),
    });
    part.say(format!("{} in quarantine", crate::words::grouped(quarantined.max(0) as u64)));
}

fn web(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("web", pulse);
    if serves(&mut part, pulse, GateName::Web)
        && let Some(web) = &pulse.web
    {
        serving(&mut part, web, pulse);
    }
    part
}

fn serving(part: &mut HealthPart, web: &Status, pulse: &Pulse) {
    web.backends.iter().for_each(|backend| servers(part, backend));
    if let Some(trouble) = web.forward_auth.as_ref().and_then(|door| door.trouble.clone()) {
        part.look(trouble, "/web");
    }
    let all = || web.backends.iter().flat_map(|backend| &backend.servers);
    part.untried
        .extend(all().filter(|server| !server.tried).map(|server| format!("the web server {}", server.address)));
    let up = all().filter(|server| server.up && server.tried).count();
    part.say(format!("{up} of {} up", count(all().count() as u64, "server")));
    web.backends.iter().for_each(|backend| known_visitors::look(part, &backend.queue));
    let draining = all().filter(|server| server.draining).count();
    if draining > 0 {
        part.say(format!("{draining} draining"));
    }
    let flood = web.backends.iter().any(|backend| backend.queue.pressure.attack);
    let waiting = pulse.web_waiting();
    part.say(match (flood, waiting) {
        (true, _) => format!("a flood is held off, {} wait in fair order", count(waiting as u64, "request")),
        (false, 0) => "nobody waits".to_owned(),
        (false, _) => format!("{} wait", count(waiting as u64, "request")),
    });
}

fn servers(part: &mut HealthPart, backend: &BackendView) {
    let name = &backend.queue.backend;
    if backend.servers.iter().all(|server| !server.up) && !backend.servers.is_empty() {
        let first = backend.servers.first().map(unanswered).unwrap_or_default();
        part.fail(format!("no server of {name} answers: {first}"), "/web");
        return;
    }
    for server in &backend.servers {
        if !server.up {
            part.look(
                format!("the server {} of {name} does not answer: {}", server.address, unanswered(server)),
                "/web",
            );
        } else if let Some(trouble) = &server.trouble {
            part.look(
                format!("the server {} of {name} did not answer when it was last asked: {trouble}", server.address),
                "/web",
            );
        } else if server.broken {
            part.look(format!("the server {} of {name} answers with errors", server.address), "/web");
        }
    }
}

/// Since when a server does not answer, and the result of the last attempt.
fn unanswered(server: &ServerView) -> String {
    let since = server.failing_since.as_deref().and_then(parsed).map_or(0, |at| (now() - at).max(0));
    let trouble = server.trouble.as_deref().unwrap_or("nobody knows why");
    format!("{trouble} (for {})", seconds(since as f64))
}

fn lab(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("lab", pulse);
    if serves(&mut part, pulse, GateName::Lab)
        && let Some(lab) = &pulse.lab
    {
        analysing(&mut part, lab, pulse);
    }
    part
}

fn analysing(part: &mut HealthPart, lab: &LabStatus, pulse: &Pulse) {
    match &lab.leader {
        Some(leader) => part.say(format!("{leader} leads")),
        None => part.look("no machine leads the lab: samples are accepted and wait", "/lab"),
    }
    match pulse.samples("quarantined") {
        0 => {}
        aside => {
            let says = format!("{} set aside in the lab: every attempt brought nothing", count(aside, "sample"));
            part.look(says, "/lab?state=quarantined");
        }
    }
    if let Some(figures) = &lab.figures {
        part.say(count(figures.machines, "machine"));
    }
    part.say(match pulse.samples_open() {
        0 => "nothing waits".to_owned(),
        open => format!("{} not done yet", count(open, "sample")),
    });
}

fn backup(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("backup", pulse);
    let Some(age) = &pulse.backup else { return part };
    let ago = seconds(age.age_s as f64);
    match age {
        BackupAge { last: Some(_), .. } if age.is_overdue() => {
            part.look(format!("the last backup is {ago} old; `weir backup` makes the next"), "");
        }
        BackupAge { last: None, .. } if age.is_overdue() => {
            part.look(format!("there was no backup in {ago}; `weir backup` makes the first"), "");
        }
        BackupAge { last: Some(_), .. } => part.say(format!("made {ago} ago")),
        BackupAge { last: None, .. } => part.say("none yet"),
    }
    part
}

fn certificates(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("certificates", pulse);
    for CertificateView { of, ends } in &pulse.certificates {
        match ends {
            Err(problem) => part.fail(format!("the certificate of {of} cannot be used: {problem}"), ""),
            Ok(ends) if *ends < now() => part.fail(format!("the certificate of {of} has ended"), ""),
            Ok(ends) => {
                let left_s = ends - now();
                let says = format!("the certificate of {of} is valid for {} more", seconds(left_s as f64));
                if left_s < CERTIFICATE_LEFT_S {
                    part.look(says, "");
                } else {
                    part.say(format!("{of} for {}", long(left_s)));
                }
            }
        }
    }
    for CertificateState { name, validity, problem } in &pulse.named {
        match (validity, problem) {
            (None, Some(problem)) => part.fail(format!("no certificate for {name} can be got: {problem}"), ""),
            (None, None) => part.say(format!("the one for {name} is not here yet")),
            (Some(_), Some(problem)) => {
                part.look(format!("the certificate for {name} cannot be renewed: {problem}"), "");
            }
            (Some(_), None) => {}
        }
    }
    if pulse.certificates.is_empty() && pulse.named.is_empty() {
        part.say("none are shown to clients");
    }
    part
}

/// The directory, if it cannot be asked.
fn directory(pulse: &Pulse) -> Option<HealthPart> {
    let problem = pulse.directory.as_ref()?;
    let mut part = HealthPart::empty("directory");
    part.fail(format!("nobody of the directory can log in: {problem}"), "");
    Some(part)
}

/// How long a certificate is still valid. One that Weir signs itself expires so late that the time does not matter.
fn long(left_s: i64) -> String {
    match left_s > TEN_YEARS_S {
        true => "more than ten years (signed by Weir itself, so clients will not believe it)".to_owned(),
        false => format!("{} more", seconds(left_s as f64)),
    }
}

fn disk(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("disk", pulse);
    match &pulse.disk {
        None => part.look("the free space of the disk cannot be read", ""),
        Some(disk) => {
            let Disk { free_bytes, size_bytes } = *disk;
            let says = format!("{} of {} free", size(free_bytes), size(size_bytes));
            if disk.is_short() {
                part.look(format!("the disk of the data folder fills: {says}"), "");
            } else {
                part.say(says);
            }
        }
    }
    part
}

/// The open incidents. They do not change the verdict: the gate that an incident concerns says what needs a person.
fn incidents(pulse: &Pulse) -> HealthPart {
    let mut part = HealthPart::new("incidents", pulse);
    let open = &pulse.incidents;
    if open.count == 0 {
        part.say("none open");
        return part;
    }
    let named: Vec<&str> = open.first.iter().map(|(_, headline)| headline.as_str()).collect();
    let more = (open.count - named.len() as i64).max(0);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    part.say(format!("{}: {}{more}", count(open.count, "open incident"), named.join(", ")));
    part
}

/// The audit trail, if it cannot be written: then nobody can change anything.
fn audit(pulse: &Pulse) -> Option<HealthPart> {
    let (_, problem) = pulse.problems.iter().find(|(part, _)| *part == "audit")?;
    let mut part = HealthPart::empty("audit");
    part.fail(format!("nothing can be changed, because the audit trail cannot be written: {problem}"), "");
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_core::time::Instant;
    use weir_foundation::supervision::GateStates;

    /// Nothing runs, and nothing is wrong.
    fn quiet() -> Pulse {
        let disk = Some(Disk { free_bytes: 50 << 30, size_bytes: 100 << 30 });
        let backup = Some(BackupAge { last: None, age_s: 10, due_s: 86_400 });
        Pulse { disk, backup, ..Pulse::blind() }
    }

    fn line(health: &Health, part: &str) -> (HealthVerdict, String) {
        let line = health.parts.iter().find(|line| line.part == part).unwrap();
        (line.verdict, line.says.clone())
    }

    #[test]
    fn a_quiet_site_is_well_and_every_part_says_something() {
        let health = Health::of(&quiet());
        assert_eq!((health.verdict, health.says.as_str()), (HealthVerdict::Well, "All is well."), "{health:?}");
        assert_eq!(health.parts.len(), 8);
        assert!(health.parts.iter().all(|line| !line.says.is_empty()), "{health:?}");
    }

    #[test]
    fn a_certificate_that_cannot_be_got_a_silent_directory_and_an_unwritable_audit_are_said() {
        let named = CertificateState { name: "a.example".into(), validity: None, problem: Some("no answer".into()) };
        let health = Health::of(&Pulse { named: vec![named], ..quiet() });
        assert_eq!(line(&health, "certificates").0, HealthVerdict::Failing, "{health:?}");
        let health = Health::of(&Pulse { directory: Some("no answer".into()), ..quiet() });
        assert!(
            health.verdict == HealthVerdict::Failing && line(&health, "directory").1.contains("no answer"),
            "{health:?}"
        );
        let health = Health::of(&Pulse { problems: vec![("audit", "locked".into())], ..quiet() });
        assert!(health.verdict == HealthVerdict::Failing && line(&health, "audit").1.contains("locked"), "{health:?}");
    }

    #[test]
    fn what_cannot_be_read_is_not_well() {
        let blind = Health::of(&Pulse { problems: vec![("mail", "the database is locked".into())], ..Pulse::blind() });
        assert_eq!(line(&blind, "mail").0, HealthVerdict::Look);
        assert_eq!(line(&blind, "disk").0, HealthVerdict::Look);
        assert_eq!(blind.says, "2 things need you.");
    }

    #[test]
    fn a_gate_that_failed_an_old_backup_and_a_full_disk_are_said() {
        let states = GateStates::default();
        states.starting(GateName::Web, Instant(1));
        states.failed(GateName::Web, "the port is in use", Instant(2), Duration::from_secs(1));
        let gates = states.view(Instant(3)).into_iter().filter(GateView::is_wanted).collect();
        let backup = Some(BackupAge { last: None, age_s: 9 * 86_400, due_s: 86_400 });
        let disk = Some(Disk { free_bytes: 1 << 30, size_bytes: 100 << 30 });
        let health = Health::of(&Pulse { gates, backup, disk, ..Pulse::blind() });
        assert_eq!(health.verdict, HealthVerdict::Failing);
        assert_eq!(health.says, "NOT WELL: one thing does not work, and 2 more need you.");
        assert_eq!(line(&health, "web"), (HealthVerdict::Failing, "web does not run: the port is in use".into()));
        assert!(line(&health, "backup").1.contains("no backup in 9 days"), "{health:?}");
        assert!(line(&health, "disk").1.contains("1 GiB of 100 GiB free"), "{health:?}");
        assert_eq!(health.problems[0].part, "web", "the worst comes first");
    }

    #[test]
    fn certificates_are_said_before_they_end() {
        let of = |ends: Result<i64, String>| {
            let certificates = vec![CertificateView { of: "mail", ends }];
            line(&Health::of(&Pulse { certificates, ..quiet() }), "certificates")
        };
        assert_eq!(of(Ok(now() + 90 * 86_400)).0, HealthVerdict::Well);
        assert_eq!(of(Ok(now() + 3 * 86_400)).0, HealthVerdict::Look);
        assert_eq!(of(Ok(now() - 1)), (HealthVerdict::Failing, "the certificate of mail has ended".into()));
        assert_eq!(of(Err("no certificate in it".into())).0, HealthVerdict::Failing);
    }
}
