//! What a sample did in the order in which it did it: processes, files, the network, the registry, ways to stay, and what else was seen, each
//! with the techniques of MITRE ATT&CK that it is a case of.
//!
//! An event has a technique only if a rule of the same report names it and the rule is based on that event. The list is bounded because all
//! of its parts are. Events without a time come last, in the order of the report.

use super::behaviour::Acted;
use super::{Merged, attack};
use std::collections::BTreeSet;
use weir_guest::behaviour::{Act, FileChange, Network, Persistence, Process, RegistryChange};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEvent {
    /// When, in milliseconds since the sample began.
    pub at_ms: Option<u64>,
    /// `process`, `file`, `network`, `registry`, `stays` or `act`.
    pub kind: &'static str,
    /// Which process did it; 0 if that is not known.
    pub pid: u32,
    /// What happened, in words.
    pub text: String,
    /// Ids of techniques, such as `T1053.003`.
    pub techniques: BTreeSet<&'static str>,
}

/// A rule that matched, and its evidence.
struct Hit<'a> {
    rule: &'a str,
    evidence: &'a str,
}

impl Merged {
    /// The events of one run, in order.
    pub fn timeline(&self, acted: &Acted) -> Vec<TimelineEvent> {
        let findings = self.techniques.iter().flat_map(|technique| &technique.findings);
        let hits: Vec<Hit<'_>> = findings.filter_map(|finding| hit(finding)).collect();
        let seen = &acted.seen;
        let mut known: Vec<EventWithRules<'_>> = Vec::new();
        known.extend(seen.processes.iter().map(process));
        known.extend(seen.files.iter().map(|change| file(change, &seen.sample)));
        known.extend(seen.network.iter().map(network));
        known.extend(seen.registry.iter().map(registry));
        known.extend(seen.persistence.iter().map(way));
        known.extend(seen.acts.iter().map(act));
        let mut events: Vec<TimelineEvent> =
            known.into_iter().map(|(event, rules)| event.named(&rules, &hits)).collect();
        events.sort_by_key(|event| event.at_ms.unwrap_or(u64::MAX));
        events
    }
}

/// Parses `plugin: rule: evidence`, the form of findings.
fn hit(finding: &str) -> Option<Hit<'_>> {
    let mut parts = finding.splitn(3, ": ");
    let (_, rule, evidence) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Hit { rule, evidence })
}

/// A shorter evidence is not enough to recognise an event.
const EVIDENCE_MIN: usize = 4;

impl TimelineEvent {
    /// Adds the techniques of those rules that matched and that fit this event: because it is of their kind, or because they name it.
    fn named(mut self, rules: &[&str], hits: &[Hit<'_>]) -> TimelineEvent {
        let names_it = |hit: &Hit<'_>| match hit.evidence {
            short if short.len() < EVIDENCE_MIN => false,
            // Ways to stay are separate events.
            _ if hit.rule.starts_with("stays") => false,
            // A process stands for the file that it runs, and not for every file in its arguments.
            path if self.kind == "process" && is_path(path) => self.text.starts_with(path),
            some => self.text.contains(some),
        };
        let fits = |hit: &&Hit<'_>| rules.contains(&hit.rule) || names_it(hit);
        let found = hits.iter().filter(fits).flat_map(|hit| attack::of_rule(hit.rule));
        let ways = rules.iter().filter(|_| self.kind == "stays").flat_map(|rule| attack::of_rule(rule));
        self.techniques = found.chain(ways).map(|(id, _)| *id).collect();
        self
    }
}

fn is_path(evidence: &str) -> bool {
    !evidence.contains(' ') && (evidence.starts_with('/') || evidence.get(1..3) == Some(":\\"))
}

/// An event, and the rules that are about events of its kind.
type EventWithRules<'a> = (TimelineEvent, Vec<&'a str>);

fn event(at_ms: Option<u64>, kind: &'static str, pid: u32, text: String) -> TimelineEvent {
    TimelineEvent { at_ms, kind, pid, text, techniques: BTreeSet::new() }
}

fn process(process: &Process) -> EventWithRules<'_> {
    let command = process.arguments.join(" ");
    let text = match (command.is_empty(), command.starts_with(&process.path)) {
        (true, _) => process.path.clone(),
        (_, true) => command,
        (_, false) => format!("{} ({command})", process.path),
    };
    (event(process.at_ms, "process", process.pid, text), Vec::new())
}

fn file<'a>(change: &'a FileChange, sample: &str) -> EventWithRules<'a> {
    let to = change.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
    let text = format!("{} {}{to}", change.what, change.path);
    let rules = match change {
        own if own.what == "deleted" && own.path == sample => vec!["deletes-itself"],
        others if others.existed => vec!["encrypts", "changes-many"],
        _ => Vec::new(),
    };
    (event(change.at_ms, "file", change.pid, text), rules)
}

fn network(call: &Network) -> EventWithRules<'_> {
    let host = if call.host.is_empty() { String::new() } else { format!(" ({})", call.host) };
    let detail = if call.detail.is_empty() { String::new() } else { format!(": {}", call.detail) };
    let text = format!("{} {}{host}{detail}", call.what, call.to);
    let rules = if call.what == "listen" { vec!["listens"] } else { Vec::new() };
    (event(call.at_ms, "network", call.pid, text), rules)
}

fn registry(change: &RegistryChange) -> EventWithRules<'_> {
    let data = if change.data.is_empty() { String::new() } else { format!(" = {}", change.data) };
    (event(change.at_ms, "registry", 0, format!("{} {}\\{}{data}", change.what, change.key, change.name)), Vec::new())
}

fn way(way: &Persistence) -> EventWithRules<'_> {
    (event(way.at_ms, "stays", 0, format!("{}: {}", way.what, way.path)), vec![&way.what])
}

fn act(act: &Act) -> EventWithRules<'_> {
    let rules: &[&str] = match act.what.as_str() {
        "takes-orders" => &["takes-orders", "takes-windows-orders"],
        "second-stage" => &["runs-fetched"],
        "sleeps" => &["waits"],
        "kills" => &["kills-others"],
        "traces" => &["traces-others", "hinders-tracing"],
        "named" => &["pretends"],
        "preloads" => &["preloads"],
        "device" => &["writes-devices"],
        "setuid" => &["makes-setuid"],
        "loads" => &["loads-module"],
        "reboots" => &["reboots"],
        "sniffs" => &["sniffs"],
        "writes-memory" | "remote-thread" => &["injects"],
        "hooks-keys" => &["logs-keys"],
        "looks" => &["looks-for-analysts"],
        "unprotects" => &["steals"],
        "wallpaper" => &["changes-wallpaper"],
        "kills-windows" => &["kills-windows"],
        _ => &[],
    };
    let text = if act.detail.is_empty() { act.what.clone() } else { format!("{} {}", act.what, act.detail) };
    (event(act.at_ms, "act", act.pid, text), rules.to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::Technique;
    use super::*;
    use weir_guest::behaviour::Behaviour;

    #[test]
    fn events_are_in_order_and_have_what_the_rules_say() {
        let mut merged = super::super::tests::merged();
        let technique = |id, findings: &[&str]| {
            let findings = findings.iter().map(|finding| (*finding).to_owned()).collect();
            Technique { id, name: "x", findings }
        };
        merged.techniques = vec![
            technique("T1105", &["run-linux: runs-fetched: /tmp/x"]),
            technique("T1053.003", &["run-linux: stays: cron"]),
            technique("T1071", &["run-linux: raw-address: 203.0.113.7:80"]),
        ];
        let seen = Behaviour {
            processes: vec![
                Process { pid: 7, path: "/home/user/s".into(), at_ms: Some(0), ..Process::default() },
                Process {
                    pid: 8,
                    path: "/tmp/x".into(),
                    arguments: vec!["/tmp/x".into(), "-d".into()],
                    at_ms: Some(90),
                    ..Process::default()
                },
            ],
            network: vec![Network {
                what: "connect".into(),
                to: "203.0.113.7:80".into(),
                at_ms: Some(30),
                ..Network::default()
            }],
            persistence: vec![Persistence { path: "/etc/cron.d/x".into(), what: "cron".into(), at_ms: Some(100) }],
            acts: vec![
                Act { what: "missing".into(), detail: "nc".into(), ..Act::default() },
                // No rule is about it here.
                Act { what: "kills".into(), detail: "9 1".into(), at_ms: Some(20), ..Act::default() },
            ],
            ..Behaviour::default()
        };
        let acted = Acted { seen, ..Acted::default() };
        let events = merged.timeline(&acted);
        let told: Vec<(Option<u64>, &str, &str, Vec<&str>)> = events
            .iter()
            .map(|event| (event.at_ms, event.kind, event.text.as_str(), event.techniques.iter().copied().collect()))
            .collect();
        assert_eq!(
            told,
            [
                (Some(0), "process", "/home/user/s", vec![]),
                (Some(20), "act", "kills 9 1", vec![]),
                (Some(30), "network", "connect 203.0.113.7:80", vec!["T1071"]),
                (Some(90), "process", "/tmp/x -d", vec!["T1105"]),
                (Some(100), "stays", "cron: /etc/cron.d/x", vec!["T1053.003"]),
                (None, "act", "missing nc", vec![]),
            ]
        );
    }
}
