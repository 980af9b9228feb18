//! What a sample did when it ran, as a plugin in a VM reports it (docs/lab.md).
//!
//! It comes from a guest that ran malware, so unknown fields are left out and lists are cut, and a report of any other form counts as one
//! without behaviour.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;
use weir_guest::behaviour::{Behaviour, Capture, LISTED_MAX, Process, SCREENS_MAX};
use weir_guest::pcap;

/// What was seen, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The VM.
    #[serde(default)]
    pub machine: String,
    /// How the VM was run: by the processor itself or in software.
    #[serde(default)]
    pub accelerator: String,
    /// What it did.
    #[serde(flatten)]
    pub seen: Behaviour,
}

#[derive(Deserialize)]
struct Reported<Full> {
    full: Full,
}

#[derive(Deserialize)]
struct Captured {
    capture: Option<Capture>,
}

/// A field that every report of behaviour has.
#[derive(Deserialize)]
struct Sign {
    #[serde(rename = "processes")]
    _processes: IgnoredAny,
}

impl Acted {
    /// The behaviour in a report, if it has one. The packets themselves are fetched one at a time ([`Acted::packets`]).
    pub fn of(report: &RawValue) -> Option<Acted> {
        serde_json::from_str::<Reported<Sign>>(report.get()).ok()?;
        let Reported { full: mut acted } = serde_json::from_str::<Reported<Acted>>(report.get()).ok()?;
        let seen = &mut acted.seen;
        seen.processes.truncate(LISTED_MAX);
        seen.files.truncate(LISTED_MAX);
        seen.network.truncate(LISTED_MAX);
        seen.persistence.truncate(LISTED_MAX);
        seen.acts.truncate(LISTED_MAX);
        seen.registry.truncate(LISTED_MAX);
        seen.windows.truncate(LISTED_MAX);
        seen.modules.truncate(LISTED_MAX);
        seen.screens.truncate(SCREENS_MAX);
        seen.capture.iter_mut().for_each(|capture| capture.pcap.clear());
        Some(acted)
    }

    /// The packets of a report, as a pcap file. Whoever made the report may have written anything there, so anything that is not a valid pcap
    /// file counts as missing.
    pub fn packets(report: &RawValue) -> Option<Vec<u8>> {
        let Reported { full: Captured { capture } } = serde_json::from_str(report.get()).ok()?;
        pcap::checked(&capture?.pcap)
    }

    /// Every process once, with its depth: parents before their children. A process belongs to the last one before it with its
    /// parent's number, because numbers are used again and a guest may lie.
    pub fn tree(&self) -> Vec<(usize, &Process)> {
        let processes = &self.seen.processes;
        let mut latest: HashMap<u32, usize> = HashMap::new();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
        let mut open = Vec::new();
        for (at, process) in processes.iter().enumerate() {
            match latest.get(&process.parent).filter(|_| process.parent != process.pid) {
                Some(parent) => children[*parent].push(at),
                None => open.push((0, at)),
            }
            latest.insert(process.pid, at);
        }
        open.reverse();
        let mut tree = Vec::with_capacity(processes.len());
        while let Some((depth, at)) = open.pop() {
            tree.push((depth, &processes[at]));
            open.extend(children[at].iter().rev().map(|child| (depth + 1, *child)));
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(processes: Vec<Process>) -> Acted {
        Acted { seen: Behaviour { processes, ..Behaviour::default() }, ..Acted::default() }
    }

    fn process(pid: u32, parent: u32) -> Process {
        Process { pid, parent, ..Process::default() }
    }

    fn shape(processes: &[(u32, u32)]) -> Vec<(usize, u32)> {
        let acted = acted(processes.iter().map(|(pid, parent)| process(*pid, *parent)).collect());
        acted.tree().iter().map(|(depth, process)| (*depth, process.pid)).collect()
    }

    #[test]
    fn a_tree_has_everybody_once_under_who_started_them() {
        let list = [(7, 1), (8, 7), (9, 8), (10, 7), (8, 7), (11, 8)];
        assert_eq!(shape(&list), [(0, 7), (1, 8), (2, 9), (1, 10), (1, 8), (2, 11)]);
        // A circle, a process that is its own parent, a parent that comes later.
        let lies = [(5, 6), (6, 5), (5, 6), (20, 20), (30, 31), (31, 1)];
        assert_eq!(shape(&lies), [(0, 5), (1, 6), (2, 5), (0, 20), (0, 30), (0, 31)]);
    }

    #[test]
    fn a_tree_of_liars_takes_no_longer() {
        let many = (0..200_000).map(|n| process(if n % 2 == 0 { 7 } else { n }, if n % 2 == 0 { 1 } else { 7 }));
        assert_eq!(acted(many.collect()).tree().len(), 200_000);
    }

    #[test]
    fn packets_are_fetched_apart_and_only_if_they_are_some() {
        let pcap = pcap::encoded(&pcap::record(b"hello", 5, std::time::Duration::from_secs(1)));
        let report = |pcap: &str| {
            let capture = serde_json::json!({ "pcap": pcap, "packets": 1, "cut": true });
            let report = serde_json::json!({ "full": { "processes": [], "capture": capture } });
            RawValue::from_string(report.to_string()).unwrap()
        };
        let good = report(&pcap);
        assert_eq!(Acted::packets(&good).map(|file| file.len()), Some(24 + 16 + 5));
        let told = Acted::of(&good).unwrap().seen.capture.unwrap();
        assert_eq!((told.pcap.as_str(), told.packets, told.cut), ("", 1, true));
        assert_eq!(Acted::packets(&report("TVqQAAM=")), None);
        assert_eq!(Acted::packets(&RawValue::from_string("{\"full\":{}}".into()).unwrap()), None);
    }

    #[test]
    fn other_reports_have_none() {
        let of = |text: &str| Acted::of(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(of(r#"{"success":true,"full":{"type":"x"}}"#), None);
        assert_eq!(of(r#"{"success":true,"full":{"processes":[{"pid":"seven"}]}}"#), None);
        let some = of(r#"{"full":{"machine":"m","processes":[{"pid":7,"user":null}],"more":1}}"#).unwrap();
        assert_eq!((some.machine.as_str(), some.seen.processes[0].pid), ("m", 7));
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(of(&format!("{{\"full\":{text}}}")), Some(some));
    }
}
