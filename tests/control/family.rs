//! The processes that Weir started in a test. When Weir is gone, they must be gone too, and the control groups of its plugins must be
//! empty.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The kernel ends them within a moment, but a very slow machine takes longer.
const END_MAX: Duration = Duration::from_secs(180);

/// A process and all its descendants, as they were when this was made.
pub(crate) struct Family {
    first: u32,
    /// Each with its start time, because the number of a process may be used again.
    members: Vec<(u32, String)>,
}

impl Family {
    pub(crate) fn of(first: u32) -> Family {
        let mut members = Vec::new();
        let mut open = vec![first];
        while let Some(pid) = open.pop() {
            for child in children(pid) {
                open.push(child);
                members.extend(started(child).map(|at| (child, at)));
            }
        }
        Family { first, members }
    }

    /// Waits until all except the first process are gone; the caller has ended the first. Removes the empty control groups.
    #[track_caller]
    pub(crate) fn is_gone(&self) {
        let begun = Instant::now();
        let left = || self.members.iter().filter(|(pid, at)| started(*pid).as_ref() == Some(at)).map(|(pid, _)| *pid);
        while left().next().is_some() && begun.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<String> = left().map(|pid| format!("{pid} {}", command_line(pid))).collect();
        let stuck: Vec<PathBuf> = groups(self.first).into_iter().filter(|group| !removed(group)).collect();
        if !std::thread::panicking() {
            assert!(left.is_empty(), "processes were left behind: {left:#?}");
            assert!(stuck.is_empty(), "control groups were left with somebody in them: {stuck:?}");
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// When a process was started; none if it does not exist, or is dead and only waits for its parent.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (words.first() != Some(&"Z")).then(|| words.get(19).map(|at| (*at).to_owned()))?
}

fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// The control groups that a process made for its plugins and VMs.
fn groups(maker: u32) -> Vec<PathBuf> {
    let folders = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let of_maker = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("weir-") && name.contains(&format!("-{maker}-"))
    };
    entries.map(|entry| entry.path()).filter(|path| of_maker(path)).collect()
}

/// Removes a control group. A process that was killed leaves its group only after a moment.
fn removed(group: &Path) -> bool {
    (0..200).any(|_| {
        let gone = fs::remove_dir(group).is_ok() || !group.exists();
        if !gone {
            std::thread::sleep(Duration::from_millis(25));
        }
        gone
    })
}
