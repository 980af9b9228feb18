//! From what the agent tells to a report: nothing of the guest's words goes further than it may.

use super::agent_connection::Findings;
use super::rules;
use crate::job::{Artifact, Level, Report, Summary, Taxonomy};
use crate::report::{Acted, is_foreign};
use serde_json::value::to_raw_value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_guest::behaviour::{ARGUMENTS_MAX, Behaviour, LISTED_MAX, OUTPUT_MAX, TEXT_MAX};

/// The most observables of a report.
const OBSERVABLES_MAX: usize = 200;
const NAMESPACE: &str = "run-linux";

/// The report of a sample that ran in this VM.
pub(super) fn of(findings: Findings, vm: &str, accelerator: &str) -> serde_json::Result<Report> {
    let Findings { behaviour, files } = findings;
    let seen = tame(behaviour);
    let full = Acted { machine: vm.to_owned(), accelerator: accelerator.to_owned(), seen };
    let seen = &full.seen;
    let mut artifacts: Vec<Artifact> = files.into_iter().map(|(file, path)| dropped(file, &path)).collect();
    artifacts.extend(observables(seen));
    Ok(Report {
        success: true,
        error_message: String::new(),
        full: to_raw_value(&full)?,
        summary: Summary { taxonomies: taxonomies(seen) },
        artifacts,
    })
}

/// Cuts a text. A zero character, or what would read as one, fits into no report.
fn fit(text: &mut String, most: usize) {
    *text = text.chars().take(most).collect::<String>().replace('\0', "\u{fffd}").replace("\\u0000", "\\u 0000");
}

/// Within the bounds that a good agent keeps by itself.
fn tame(mut seen: Behaviour) -> Behaviour {
    fit(&mut seen.ended, 64);
    fit(&mut seen.output, OUTPUT_MAX);
    let all = [seen.processes.len(), seen.files.len(), seen.network.len(), seen.persistence.len(), seen.acts.len()];
    let over: usize = all.iter().map(|count| count.saturating_sub(LISTED_MAX)).sum();
    seen.left_out = seen.left_out.saturating_add(over as u64);
    seen.processes.truncate(LISTED_MAX);
    for process in &mut seen.processes {
        fit(&mut process.path, TEXT_MAX);
        fit(&mut process.ended, 64);
        process.arguments.truncate(ARGUMENTS_MAX);
        process.arguments.iter_mut().for_each(|argument| fit(argument, TEXT_MAX));
    }
    seen.files.truncate(LISTED_MAX);
    for file in &mut seen.files {
        fit(&mut file.path, TEXT_MAX);
        fit(&mut file.what, 64);
        file.to.as_mut().into_iter().for_each(|to| fit(to, TEXT_MAX));
        file.sha256.as_mut().into_iter().for_each(|sha256| fit(sha256, 64));
    }
    seen.network.truncate(LISTED_MAX);
    for network in &mut seen.network {
        for text in [&mut network.what, &mut network.to, &mut network.detail, &mut network.host] {
            fit(text, TEXT_MAX);
        }
    }
    seen.persistence.truncate(LISTED_MAX);
    for persistence in &mut seen.persistence {
        fit(&mut persistence.path, TEXT_MAX);
        fit(&mut persistence.what, 64);
    }
    seen.acts.truncate(LISTED_MAX);
    for act in &mut seen.acts {
        fit(&mut act.what, 64);
        fit(&mut act.detail, TEXT_MAX);
    }
    seen
}

/// A file that the sample left is a child.
fn dropped(file: String, path: &str) -> Artifact {
    let mut name: String = path.rsplit('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    fit(&mut name, 255);
    Artifact { data_type: "file".into(), file: Some(file), filename: Some(name), ..Artifact::default() }
}

fn taxonomies(seen: &Behaviour) -> Vec<Taxonomy> {
    let finding = |level, predicate: &str, value: String| Taxonomy {
        level,
        namespace: NAMESPACE.into(),
        predicate: predicate.into(),
        value,
    };
    let mut findings = vec![finding(Level::Info, "ended", seen.ended.clone())];
    let hits = rules::hits(seen);
    let points: u32 = hits.iter().map(|hit| hit.points).sum();
    let whole = rules::level(points);
    if points > 0 {
        let each: Vec<String> = hits.iter().map(|hit| format!("{} {}", hit.rule, hit.points)).collect();
        findings.push(finding(whole, "points", format!("{points} of {}: {}", rules::MALICIOUS, each.join(", "))));
    }
    if points == 0 && ran_to_its_end(seen) {
        findings.push(finding(Level::Safe, "clean", "it ran to its end, and no rule applies".into()));
    }
    // A rule is no graver than all of them together, and no more than suspicious unless it is enough by itself.
    findings.extend(
        hits.into_iter()
            .map(|hit| finding(whole.min(Level::Suspicious).max(rules::level(hit.points)), hit.rule, hit.evidence)),
    );
    let called: BTreeSet<&str> = seen.network.iter().filter(|n| n.what != "listen").map(|n| n.to.as_str()).collect();
    if !called.is_empty() {
        findings.push(finding(Level::Info, "calls", called.len().to_string()));
    }
    findings
}

/// Whether it did what it wanted, and all of that was seen. One that was ended, or could not do it here, may do more elsewhere.
fn ran_to_its_end(seen: &Behaviour) -> bool {
    seen.ended == "exit 0" && !seen.processes.is_empty() && seen.left_out == 0
}

/// What others could look for: names, addresses that were not ours to give, pages.
fn observables(seen: &Behaviour) -> Vec<Artifact> {
    let mut found: BTreeSet<(&str, String)> = BTreeSet::new();
    for network in &seen.network {
        let address: Option<SocketAddr> = network.to.parse().ok();
        match network.what.as_str() {
            "dns" => {
                found.insert(("domain", network.to.clone()));
            }
            "http" => found.extend(url(&network.host, &network.to, &network.detail).map(|url| ("url", url))),
            "connect" | "send" => {
                found.extend(address.filter(|to| is_foreign(to.ip())).map(|to| ("ip", to.ip().to_string())));
            }
            _ => {}
        }
    }
    let artifact =
        |(kind, data): (&str, String)| Artifact { data_type: kind.into(), data: Some(data), ..Artifact::default() };
    found.into_iter().take(OBSERVABLES_MAX).map(artifact).collect()
}

fn url(host: &str, to: &str, detail: &str) -> Option<String> {
    let path = detail.split(' ').nth(1)?;
    if path.starts_with("http") {
        return Some(path.to_owned());
    }
    Some(format!("http://{}{path}", if host.is_empty() { to } else { host }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_guest::behaviour::{FileChange, Network, Persistence, Process};

    fn findings() -> Findings {
        let network = |what: &str, to: &str, detail: &str, host: &str| Network {
            pid: 7,
            what: what.into(),
            to: to.into(),
            detail: detail.into(),
            host: host.into(),
        };
        let behaviour = Behaviour {
            ended: "exit 0".into(),
            processes: vec![
                Process { pid: 6, path: "/home/user/s".into(), ..Process::default() },
                Process { pid: 7, path: "/tmp/x".into(), ..Process::default() },
            ],
            files: vec![FileChange { path: "/tmp/x".into(), what: "written".into(), ..FileChange::default() }],
            network: vec![
                network("dns", "evil.example", "198.18.1.2", ""),
                network("connect", "198.18.1.2:80", "", "evil.example"),
                network("connect", "10.1.2.3:4444", "", ""),
                network("http", "198.18.1.2:80", "GET /x", "evil.example"),
            ],
            persistence: vec![Persistence { path: "/etc/cron.d/x".into(), what: "cron".into() }],
            output: "a\0b \\u0000".into(),
            ..Behaviour::default()
        };
        Findings { behaviour, files: vec![("dropped-1".into(), "/tmp/x".into())] }
    }

    #[test]
    fn a_report_reads_as_one() {
        let report = of(findings(), "vm1", "tcg").unwrap();
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("\\u0000"), "{text}");
        let report = Report::read(text.as_bytes()).unwrap();
        let full: serde_json::Value = serde_json::from_str(report.full.get()).unwrap();
        assert_eq!(
            (&full["machine"], &full["accelerator"], &full["ended"]),
            (&json!("vm1"), &json!("tcg"), &json!("exit 0"))
        );
        let suspicious: Vec<_> = report.summary.taxonomies.iter().filter(|t| t.level == Level::Suspicious).collect();
        let said: Vec<_> = suspicious.iter().map(|t| (t.predicate.as_str(), t.value.as_str())).collect();
        let points = "8 of 10: stays 5, runs-written 3";
        assert_eq!(said, [("points", points), ("stays", "cron"), ("runs-written", "/tmp/x")]);
        let data: Vec<_> = report.artifacts.iter().map(|a| (a.data_type.as_str(), a.data.as_deref())).collect();
        let expected = [
            ("file", None),
            ("domain", Some("evil.example")),
            ("ip", Some("10.1.2.3")),
            ("url", Some("http://evil.example/x")),
        ];
        assert_eq!(data, expected);
        assert_eq!(report.artifacts[0].filename.as_deref(), Some("x"));
    }

    #[test]
    fn only_what_ran_to_its_end_and_did_nothing_is_clean() {
        let process = Process { pid: 6, path: "/home/user/s".into(), ended: "exit 0".into(), ..Process::default() };
        let quiet = || Behaviour { ended: "exit 0".into(), processes: vec![process.clone()], ..Behaviour::default() };
        let says = |seen: &Behaviour| taxonomies(seen).iter().map(|found| found.level).max();
        assert_eq!(says(&quiet()), Some(Level::Safe));
        for ended in ["exit 127", "exit 1", "signal 9", "watched 60 s", ""] {
            assert_eq!(says(&Behaviour { ended: ended.into(), ..quiet() }), Some(Level::Info), "{ended}");
        }
        assert_eq!(says(&Behaviour { left_out: 1, ..quiet() }), Some(Level::Info), "not all was seen");
        assert_eq!(says(&Behaviour { processes: Vec::new(), ..quiet() }), Some(Level::Info), "nothing ran");
        let listens = Network { what: "listen".into(), to: "0.0.0.0:80".into(), ..Network::default() };
        assert_eq!(says(&Behaviour { network: vec![listens], ..quiet() }), Some(Level::Info), "a point is not none");
    }

    #[test]
    fn no_name_of_a_file_makes_a_report_unreadable() {
        let files = vec![("dropped-1".into(), "/tmp/\\u0000".into()), ("dropped-2".into(), "/tmp/a\0".into())];
        let report = of(Findings { behaviour: Behaviour::default(), files }, "vm1", "tcg").unwrap();
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("\\u0000") && !text.contains('\0'), "{text}");
    }

    #[test]
    fn a_guest_that_says_too_much_is_cut() {
        let process = Process { arguments: vec!["x".repeat(5000); 100], ..Process::default() };
        let behaviour = Behaviour { processes: vec![process; 1000], ..Behaviour::default() };
        let tame = tame(behaviour);
        assert_eq!((tame.processes.len(), tame.left_out), (LISTED_MAX, 1000 - LISTED_MAX as u64));
        assert_eq!(
            (tame.processes[0].arguments.len(), tame.processes[0].arguments[0].len()),
            (ARGUMENTS_MAX, TEXT_MAX)
        );
    }
}
