//! Makes a report from what the agent in the guest reports. Text from the guest is treated as data only, and cut if it is too long.

use super::agent_connection::Findings;
use super::{evidence, rules};
use crate::active;
use crate::file_type;
use crate::job::{Artifact, Job, Level, Report, Summary, Taxonomy};
use crate::report::{Acted, is_foreign};
use serde_json::value::to_raw_value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_guest::behaviour::{ARGUMENTS_MAX, Behaviour, LISTED_MAX, OUTPUT_MAX, SCREENS_MAX, Screen, TEXT_MAX};
use weir_guest::pcap;

/// The most observables of a report.
const OBSERVABLES_MAX: usize = 200;
/// The most that is told of the beginning of a file that was not sent, in hexadecimal digits.
const BEGIN_MAX: usize = 512;

/// The report of a sample that ran in this VM. The files that it left are in the job.
pub(super) fn of(findings: Findings, job: &Job, vm: &str, accelerator: &str) -> serde_json::Result<Report> {
    let Findings { behaviour, files } = findings;
    let mut programs: Vec<String> =
        files.iter().filter(|(file, path)| is_program(job, file, path)).map(|(_, path)| path.clone()).collect();
    let mut seen = tame(behaviour);
    let (more, unopened) = unsent(&seen);
    programs.extend(more);
    seen.left_out = seen.left_out.saturating_add(unopened);
    let full = Acted { machine: vm.to_owned(), accelerator: accelerator.to_owned(), seen };
    let seen = &full.seen;
    let mut artifacts: Vec<Artifact> = files.into_iter().map(|(file, path)| dropped(file, &path)).collect();
    artifacts.extend(observables(seen));
    Ok(Report {
        success: true,
        error_message: String::new(),
        full: to_raw_value(&full)?,
        summary: Summary { taxonomies: taxonomies(seen, &programs) },
        artifacts,
    })
}

/// Whether a file that the sample left can run, or is of an unknown kind. Text, pictures and archives do nothing by
/// themselves.
fn is_program(job: &Job, file: &str, path: &str) -> bool {
    let kind = job.open_output(file).and_then(|mut file| file_type::of_source(&mut file));
    kind.map_or(true, |kind| kind == "application/octet-stream" || active::kind(kind, path).is_some())
}

/// Of the files that were too many or too large to be sent: those that are programs by their beginning or name, and how many of the others
/// somebody should have opened. Text, pictures and the like are left to themselves, or every program that writes many files would be in doubt.
fn unsent(seen: &Behaviour) -> (Vec<String>, u64) {
    let (mut programs, mut unopened) = (Vec::new(), 0);
    for (file, place) in seen.files.iter().zip(seen.places()) {
        let Some(path) = place.filter(|_| !file.begins.is_empty()) else { continue };
        let kind = file_type::of(&octets(&file.begins));
        match active::kind(kind, &path) {
            Some(_) => programs.push(path),
            None if kind == "application/octet-stream" => programs.push(path),
            None => unopened += u64::from(!file_type::is_passive(kind)),
        }
    }
    (programs, unopened)
}

/// What these hexadecimal digits say; what is none of them ends it.
fn octets(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map_while(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Cuts a text.
fn fit(text: &mut String, most: usize) {
    *text = text.chars().take(most).collect();
}

/// Applies the limits that a good agent keeps anyway.
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
        fit(&mut file.begins, BEGIN_MAX);
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
    seen.capture = seen.capture.filter(|capture| pcap::checked(&capture.pcap).is_some());
    tame_windows(&mut seen);
    seen
}

/// The same for the lists that only Windows has.
fn tame_windows(seen: &mut Behaviour) {
    fit(&mut seen.system, 64);
    seen.registry.truncate(LISTED_MAX);
    for change in &mut seen.registry {
        for text in [&mut change.key, &mut change.name, &mut change.what, &mut change.data] {
            fit(text, TEXT_MAX);
        }
    }
    for texts in [&mut seen.windows, &mut seen.modules] {
        texts.truncate(LISTED_MAX);
        texts.iter_mut().for_each(|text| fit(text, TEXT_MAX));
    }
    // An incomplete picture is left out.
    seen.screens.retain(Screen::is_picture);
    seen.screens.truncate(SCREENS_MAX);
}

/// A file that the sample left is a child.
fn dropped(file: String, path: &str) -> Artifact {
    let mut name: String =
        path.rsplit(['/', '\\']).next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    fit(&mut name, 255);
    Artifact { data_type: "file".into(), file: Some(file), filename: Some(name), ..Artifact::default() }
}

fn taxonomies(seen: &Behaviour, programs: &[String]) -> Vec<Taxonomy> {
    let is_windows = seen.system == "windows";
    let finding = |level, predicate: &str, value: String| Taxonomy {
        level,
        namespace: if is_windows { "run-windows" } else { "run-linux" }.into(),
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
    let doubts = evidence::doubts(seen, programs);
    if points == 0 && doubts.is_empty() {
        let system = if is_windows { "Wine" } else { "Linux" };
        let words = format!("it ran to its end in {system}, found what it looked for, and did only harmless things");
        findings.push(finding(Level::Safe, "clean", words));
    }
    // A sample with points that is not suspicious is not clean either, and the reasons are its rules.
    let doubtful = |hit: &rules::Hit| format!("{}: {}", hit.rule, hit.evidence);
    let small = hits.iter().filter(|_| whole == Level::Info).map(doubtful);
    findings.extend(doubts.into_iter().chain(small).map(|doubt| finding(Level::Unknown, "not clean", doubt)));
    // A rule is no more serious than all of them together, and at most suspicious unless it is enough alone.
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

/// Indicators for others: names, addresses that were not made up by the guest, pages.
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
    let scheme = if detail.split(' ').nth(2) == Some("(TLS)") { "https" } else { "http" };
    Some(format!("{scheme}://{}{path}", if host.is_empty() { to } else { host }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_guest::behaviour::{Capture, FileChange, Network, Persistence, Process};

    fn job(home: &tempfile::TempDir) -> Job {
        let input = crate::job::Input::new("s.sh", "text/x-shellscript");
        let job = Job::prepare(&home.path().join("job"), &input, &mut &b"x"[..]).unwrap();
        std::fs::write(job.folder().join("output/dropped-1"), "hello").unwrap();
        std::fs::write(job.folder().join("output/dropped-2"), b"MZ\x90\0\x03").unwrap();
        job
    }

    fn findings() -> Findings {
        let network = |what: &str, to: &str, detail: &str, host: &str| Network {
            pid: 7,
            what: what.into(),
            to: to.into(),
            detail: detail.into(),
            host: host.into(),
            at_ms: None,
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
            persistence: vec![Persistence { path: "/etc/cron.d/x".into(), what: "cron".into(), at_ms: None }],
            output: "a\0b \\u0000".into(),
            ..Behaviour::default()
        };
        Findings { behaviour, files: vec![("dropped-1".into(), "/tmp/x".into())] }
    }

    #[test]
    fn a_report_reads_as_one() {
        let home = tempfile::tempdir().unwrap();
        let report = of(findings(), &job(&home), "vm1", "tcg").unwrap();
        let text = serde_json::to_string(&report).unwrap();
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
    fn only_what_was_seen_whole_and_did_nothing_bad_is_clean() {
        let process = Process { pid: 6, path: "/home/user/s".into(), ended: "exit 0".into(), ..Process::default() };
        let (ended, output) = ("exit 0".to_owned(), "hello".to_owned());
        let quiet = || Behaviour {
            ended: ended.clone(),
            output: output.clone(),
            processes: vec![process.clone()],
            ..Behaviour::default()
        };
        let says = |seen: &Behaviour| taxonomies(seen, &[]).iter().map(|found| found.level).max();
        assert_eq!(says(&quiet()), Some(Level::Safe));
        for ended in ["exit 127", "exit 1", "signal 9", "watched 60 s", ""] {
            assert_eq!(says(&Behaviour { ended: ended.into(), ..quiet() }), Some(Level::Unknown), "{ended}");
        }
        assert_eq!(says(&Behaviour { left_out: 1, ..quiet() }), Some(Level::Unknown), "not all was seen");
        assert_eq!(says(&Behaviour { processes: Vec::new(), ..quiet() }), Some(Level::Unknown), "nothing ran");
        let listens = Network { what: "listen".into(), to: "0.0.0.0:80".into(), ..Network::default() };
        let listening = Behaviour { network: vec![listens], ..quiet() };
        assert_eq!(says(&listening), Some(Level::Unknown), "a point is not none");
        let words: Vec<String> = taxonomies(&listening, &[]).into_iter().map(|found| found.value).collect();
        assert!(words.contains(&"listens: 0.0.0.0:80".to_owned()), "{words:?}");
    }

    #[test]
    fn a_program_that_is_left_behind_is_a_doubt() {
        let home = tempfile::tempdir().unwrap();
        let files = vec![("dropped-1".into(), "/tmp/notes".into()), ("dropped-2".into(), "/tmp/x\0.exe".into())];
        let report = of(Findings { behaviour: Behaviour::default(), files }, &job(&home), "vm1", "tcg").unwrap();
        let report = Report::read(serde_json::to_string(&report).unwrap().as_bytes()).unwrap();
        let doubts = report.summary.taxonomies.iter().map(|found| found.value.as_str());
        let doubts: Vec<&str> = doubts.filter(|doubt| doubt.contains("programs")).collect();
        assert_eq!(doubts, ["it left programs: /tmp/x\0.exe"]);
        assert_eq!(report.artifacts[1].filename.as_deref(), Some("x.exe"));
    }

    /// What was too many or too large to be sent is judged by its beginning: a program is named, and data of a program that writes much is no
    /// doubt.
    #[test]
    fn a_program_among_what_was_not_sent_is_a_doubt_and_text_is_none() {
        let home = tempfile::tempdir().unwrap();
        let job = job(&home);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let file = |path: &str, begins: &[u8]| FileChange {
            path: path.into(),
            what: "written".into(),
            begins: hex(begins),
            ..FileChange::default()
        };
        let doubts = |files: Vec<FileChange>| {
            let process = Process { pid: 6, path: "/home/user/s".into(), ..Process::default() };
            let (ended, output) = ("exit 0".into(), "hello".into());
            let behaviour = Behaviour { ended, output, processes: vec![process], files, ..Behaviour::default() };
            let report = of(Findings { behaviour, files: Vec::new() }, &job, "vm1", "tcg").unwrap();
            let doubts = report.summary.taxonomies.into_iter().filter(|found| found.level == Level::Unknown);
            doubts.map(|found| found.value).collect::<Vec<_>>()
        };
        assert_eq!(
            doubts(vec![file("/tmp/a.log", b"all is well\n"), file("/tmp/b.png", b"\x89PNG\r\n\x1a\n")]),
            [""; 0]
        );
        let moved = FileChange {
            path: "/home/user/d".into(),
            what: "renamed".into(),
            to: Some("/home/user/e".into()),
            ..FileChange::default()
        };
        assert_eq!(
            doubts(vec![file("/home/user/d/x", b"\x7fELF\x02\x01\x01\0\0"), moved]),
            ["it left programs: /home/user/e/x"]
        );
        assert_eq!(doubts(vec![file("/tmp/x", b"#!/bin/sh\n")]), ["it left programs: /tmp/x"]);
        assert_eq!(doubts(vec![file("/tmp/x.hta", b"hello")]), ["it left programs: /tmp/x.hta"]);
        assert_eq!(doubts(vec![file("/tmp/x.bin", b"\0\x01\x02")]), ["it left programs: /tmp/x.bin"]);
        assert_eq!(doubts(vec![file("/tmp/x.zip", b"PK\x03\x04")]), ["more happened than was written down"]);
    }

    #[test]
    fn a_capture_that_is_none_is_not_kept() {
        let of = |pcap: String| {
            let capture = Some(Capture { pcap, packets: 1, cut: false });
            tame(Behaviour { capture, ..Behaviour::default() }).capture
        };
        assert_eq!(of("TVqQAAMAAAAEAAAA//8AALgAAAA=".into()), None);
        let packet = pcap::record(b"hello", 5, std::time::Duration::from_secs(1));
        assert!(of(pcap::encoded(&packet)).is_some());
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
