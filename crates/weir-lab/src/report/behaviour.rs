//! What a sample did where it was run, as a plugin in a VM reports it (docs/lab.md).
//!
//! It comes from a guest that ran malware: unknown fields are left out, lists are cut, and a report of another form has none.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Lines of each kind that are kept.
const LINES_MAX: usize = 2000;

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// The VM.
    #[serde(default)]
    pub machine: String,
    /// How the guest ran.
    #[serde(default)]
    pub accelerator: String,
    /// How it ended.
    #[serde(default)]
    pub ended: String,
    /// Processes, in the order in which they began.
    pub processes: Vec<Process>,
    /// Files that were changed.
    #[serde(default)]
    pub files: Vec<FileTouched>,
    /// Whom it tried to reach.
    #[serde(default)]
    pub network: Vec<Networked>,
    /// How it tried to stay.
    #[serde(default)]
    pub persistence: Vec<Persisted>,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub pid: i64,
    /// That of the process that started it.
    pub parent: i64,
    /// Its program.
    pub path: String,
    /// What it was started with.
    pub arguments: Vec<String>,
    /// Whose it was.
    pub user: Option<i64>,
    /// How it ended.
    pub ended: String,
}

/// A file that was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileTouched {
    /// Where.
    pub path: String,
    /// `written`, `deleted` or `renamed`.
    pub what: String,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its hash.
    pub sha256: Option<String>,
}

/// An attempt at the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Networked {
    /// By this process.
    pub pid: i64,
    /// `connect`, `dns`, `http` or `listen`.
    pub what: String,
    /// Whom.
    pub to: String,
    /// More of it.
    pub detail: String,
}

/// An attempt to be started again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Persisted {
    /// Where.
    pub path: String,
    /// How.
    pub what: String,
}

#[derive(Deserialize)]
struct Reported {
    full: Behaviour,
}

impl Behaviour {
    /// That of a report, if it has one.
    pub fn of(report: &RawValue) -> Option<Behaviour> {
        let Reported { mut full } = serde_json::from_str(report.get()).ok()?;
        full.processes.truncate(LINES_MAX);
        full.files.truncate(LINES_MAX);
        full.network.truncate(LINES_MAX);
        full.persistence.truncate(LINES_MAX);
        Some(full)
    }

    /// The processes that nobody in the list started, then those that one of them started, and so on: how deep each is.
    pub fn tree(&self) -> Vec<(usize, &Process)> {
        let known = |pid: i64| self.processes.iter().any(|process| process.pid == pid);
        let is_root = |process: &&Process| process.parent == process.pid || !known(process.parent);
        let mut open: Vec<(usize, &Process)> =
            self.processes.iter().filter(is_root).map(|process| (0, process)).collect();
        open.reverse();
        let (mut tree, mut seen) = (Vec::new(), vec![false; self.processes.len()]);
        while let Some((depth, process)) = open.pop() {
            tree.push((depth, process));
            // Numbers are used again, and a guest may lie: each process is shown once.
            let place = |other: &Process| self.processes.iter().position(|each| std::ptr::eq(each, other));
            place(process).into_iter().for_each(|at| seen[at] = true);
            let children = self.processes.iter().rev().filter(|child| child.parent == process.pid && !is_root(child));
            for child in children {
                let at = place(child).unwrap_or_default();
                if !std::mem::replace(&mut seen[at], true) {
                    open.push((depth + 1, child));
                }
            }
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_everybody_once() {
        let process = |pid, parent| Process { pid, parent, ..Process::default() };
        let processes = vec![
            process(7, 1),
            process(8, 7),
            process(9, 8),
            process(10, 7),
            process(8, 7),
            process(20, 20),
            process(30, 31),
            process(31, 30),
        ];
        let behaviour = Behaviour { processes, ..Behaviour::default() };
        let tree: Vec<(usize, i64)> = behaviour.tree().iter().map(|(depth, process)| (*depth, process.pid)).collect();
        assert_eq!(
            tree,
            [(0, 7), (1, 8), (2, 9), (1, 10), (1, 8), (0, 20)],
            "two that started each other have no beginning"
        );
    }

    #[test]
    fn other_reports_have_none() {
        let of = |text: &str| Behaviour::of(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(of(r#"{"success":true,"full":{"type":"x"}}"#), None);
        assert_eq!(of(r#"{"success":true,"full":{"processes":[{"pid":"seven"}]}}"#), None);
        assert!(of(r#"{"full":{"processes":[],"more":1}}"#).is_some());
    }
}
