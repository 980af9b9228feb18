//! What a sample did where it was run, as a plugin in a VM reports it (docs/lab.md).
//!
//! It comes from a guest that ran malware: unknown fields are left out, lists are cut, and a report of another form has none.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use weir_guest::behaviour::{Behaviour, LISTED_MAX, Process};

/// What was seen, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The VM.
    #[serde(default)]
    pub machine: String,
    /// How the guest ran.
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

/// What every report of behaviour has.
#[derive(Deserialize)]
struct Sign {
    #[serde(rename = "processes")]
    _processes: IgnoredAny,
}

impl Acted {
    /// That of a report, if it has one.
    pub fn of(report: &RawValue) -> Option<Acted> {
        serde_json::from_str::<Reported<Sign>>(report.get()).ok()?;
        let Reported { full: mut acted } = serde_json::from_str::<Reported<Acted>>(report.get()).ok()?;
        let seen = &mut acted.seen;
        seen.processes.truncate(LISTED_MAX);
        seen.files.truncate(LISTED_MAX);
        seen.network.truncate(LISTED_MAX);
        seen.persistence.truncate(LISTED_MAX);
        seen.acts.truncate(LISTED_MAX);
        Some(acted)
    }

    /// The processes that nobody in the list started, then those that one of them started, and so on: how deep each is.
    pub fn tree(&self) -> Vec<(usize, &Process)> {
        let processes = &self.seen.processes;
        let known: HashSet<u32> = processes.iter().map(|process| process.pid).collect();
        let is_root = |process: &Process| process.parent == process.pid || !known.contains(&process.parent);
        let mut open: Vec<(usize, &Process)> =
            processes.iter().rev().filter(|process| is_root(process)).map(|process| (0, process)).collect();
        let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
        for process in processes.iter().filter(|process| !is_root(process)) {
            children.entry(process.parent).or_default().push(process);
        }
        let mut tree = Vec::new();
        while let Some((depth, process)) = open.pop() {
            tree.push((depth, process));
            // Numbers are used again, and a guest may lie: the first of a number has all children of it.
            let its = children.remove(&process.pid).unwrap_or_default();
            open.extend(its.into_iter().rev().map(|child| (depth + 1, child)));
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

    #[test]
    fn a_tree_has_everybody_once() {
        let processes = [(7, 1), (8, 7), (9, 8), (10, 7), (8, 7), (20, 20), (30, 31), (31, 30)];
        let acted = acted(processes.map(|(pid, parent)| process(pid, parent)).to_vec());
        let tree: Vec<(usize, u32)> = acted.tree().iter().map(|(depth, process)| (*depth, process.pid)).collect();
        assert_eq!(
            tree,
            [(0, 7), (1, 8), (2, 9), (1, 10), (1, 8), (0, 20)],
            "two that started each other have no beginning"
        );
    }

    #[test]
    fn a_tree_of_liars_takes_no_longer() {
        let many = (0..200_000).map(|n| process(if n % 2 == 0 { 7 } else { n }, if n % 2 == 0 { 1 } else { 7 }));
        assert_eq!(acted(many.collect()).tree().len(), 200_000);
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
