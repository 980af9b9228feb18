//! Control groups: the kernel limits the memory and the number of all processes of a plugin together, and gives them one common
//! share of the processor.
//!
//! They are used where this process may make groups: with version 2 beside or below its own group (a service with
//! `Delegate=cpu memory pids`, or root), with version 1 below the roots of the controllers (root). Elsewhere only the limits of
//! single processes and the checks of [`watch`](super::watch) apply.
//!
//! The controllers for memory and processes are required; `cpu` is not, so a machine without it still gets groups. With it, a fork
//! bomb of a thousand processes gets half the share of one of our threads, and the lab goes on working.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A group is removed when the kernel has buried its last process: tried so often, so long apart.
const BURIALS: u32 = 40;
const BURIAL: Duration = Duration::from_millis(25);

/// A family's share of the processors in version 2, where a group has 100 by default.
const WEIGHT: &str = "50";
/// The same in version 1, where a group and a thread have 1024 by default.
const SHARES: &str = "512";

/// Where groups can be made on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher) enum Hierarchy {
    /// Version 2.
    Two(PathBuf),
    /// Version 1, where every controller has a hierarchy of its own.
    One {
        memory: PathBuf,
        pids: PathBuf,
        /// Our own group: a family must not leave the share that somebody has given us.
        cpu: Option<PathBuf>,
    },
}

/// The group of one family; gone when it is dropped.
#[derive(Debug)]
pub(in crate::dispatcher) struct Group {
    folders: Vec<PathBuf>,
    /// Where the kernel writes down that it had to kill somebody.
    kills: PathBuf,
}

impl Hierarchy {
    /// That of this machine, if there is one; looked for once.
    pub(in crate::dispatcher) fn of_this_machine() -> Option<&'static Hierarchy> {
        static FOUND: OnceLock<Option<Hierarchy>> = OnceLock::new();
        let find = || {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            Hierarchy::candidates(Path::new("/sys/fs/cgroup"), &own)
                .into_iter()
                .find(|hierarchy| hierarchy.group(64 << 20, 16).is_ok())
        };
        FOUND.get_or_init(find).as_ref()
    }

    fn candidates(root: &Path, own: &str) -> Vec<Hierarchy> {
        let mut all = Vec::new();
        let unified = own.lines().find_map(|line| line.strip_prefix("0::/"));
        for mounted in [root.to_path_buf(), root.join("unified")] {
            if let Some(own) = unified.filter(|_| mounted.join("cgroup.controllers").exists()) {
                let own = mounted.join(own);
                // A group with processes in it cannot have groups with controllers below it: so beside comes first.
                all.extend(
                    own.parent()
                        .filter(|above| above.starts_with(&mounted))
                        .map(|above| Hierarchy::Two(above.to_owned())),
                );
                all.push(Hierarchy::Two(own));
            }
        }
        let cpu = own.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(":/")?;
            controllers.split(',').any(|name| name == "cpu").then(|| root.join("cpu").join(group))
        });
        let cpu = cpu.filter(|group| group.join("cpu.shares").exists());
        all.push(Hierarchy::One { memory: root.join("memory"), pids: root.join("pids"), cpu });
        all
    }

    /// A new group.
    pub(in crate::dispatcher) fn group(&self, memory: u64, processes: u32) -> io::Result<Group> {
        static GROUPS: AtomicU64 = AtomicU64::new(0);
        let name = format!("weir-plugin-{}-{}", std::process::id(), GROUPS.fetch_add(1, Ordering::Relaxed));
        // The fence has processes of its own.
        let (memory, processes) = (memory.to_string(), (u64::from(processes) + 4).to_string());
        match self {
            Hierarchy::Two(above) => {
                // May be done already, or not be ours to do: what counts is whether the files are there.
                let _ = fs::write(above.join("cgroup.subtree_control"), "+memory +pids");
                let _ = fs::write(above.join("cgroup.subtree_control"), "+cpu");
                let folder = above.join(name);
                let group = Group::made(vec![folder.clone()], folder.join("memory.events"))?;
                fs::write(existing(&folder, "memory.max")?, memory)?;
                fs::write(existing(&folder, "pids.max")?, processes)?;
                let _ = existing(&folder, "cpu.weight").and_then(|weight| fs::write(weight, WEIGHT));
                let _ = fs::write(folder.join("memory.swap.max"), "0");
                let _ = fs::write(folder.join("memory.oom.group"), "1");
                Ok(group)
            }
            Hierarchy::One { memory: memories, pids, cpu } => {
                let (first, second) = (memories.join(&name), pids.join(&name));
                let mut group = Group::made(vec![first.clone(), second.clone()], first.join("memory.oom_control"))?;
                fs::write(existing(&first, "memory.limit_in_bytes")?, memory)?;
                fs::write(existing(&second, "pids.max")?, processes)?;
                if let Some(third) = cpu.as_ref().map(|above| above.join(&name))
                    && fs::create_dir(&third).is_ok()
                {
                    group.folders.push(third.clone());
                    let _ = existing(&third, "cpu.shares").and_then(|shares| fs::write(shares, SHARES));
                }
                Ok(group)
            }
        }
    }
}

/// Writing must not make a plain file in a folder that is no group.
fn existing(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let path = folder.join(name);
    fs::metadata(&path).map(|_| path)
}

impl Group {
    fn made(folders: Vec<PathBuf>, kills: PathBuf) -> io::Result<Group> {
        let group = Group { folders: Vec::new(), kills };
        folders.into_iter().try_fold(group, |mut group, folder| {
            fs::create_dir(&folder)?;
            group.folders.push(folder);
            Ok(group)
        })
    }

    pub(in crate::dispatcher) fn folders(&self) -> Vec<PathBuf> {
        self.folders.clone()
    }

    /// Whether nobody of the family is left.
    pub(in crate::dispatcher) fn is_empty(&self) -> bool {
        let left =
            |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
        !self.folders.iter().any(left)
    }

    /// Where to look for [`ran_out`].
    pub(in crate::dispatcher) fn kills(&self) -> PathBuf {
        self.kills.clone()
    }
}

/// Whether the kernel ended one of the family for want of memory.
pub(in crate::dispatcher) fn ran_out(kills: &Path) -> bool {
    let text = fs::read_to_string(kills).unwrap_or_default();
    let count = |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse::<u64>().ok());
    text.lines().filter_map(count).any(|count| count > 0)
}

impl Drop for Group {
    fn drop(&mut self) {
        let folders = std::mem::take(&mut self.folders);
        for folder in &folders {
            let _ = existing(folder, "cgroup.kill").and_then(|kill| fs::write(kill, "1"));
        }
        let left: Vec<PathBuf> = folders.into_iter().filter(|folder| fs::remove_dir(folder).is_err()).collect();
        if left.is_empty() {
            return;
        }
        std::thread::spawn(move || {
            for folder in left {
                let gone = || fs::remove_dir(&folder).is_ok() || !folder.exists();
                if !(0..BURIALS).any(|_| {
                    gone() || {
                        std::thread::sleep(BURIAL);
                        false
                    }
                }) {
                    tracing::warn!(folder = %folder.display(), "a control group cannot be removed");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_groups_are_looked_for() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "memory pids").unwrap();
        let found = Hierarchy::candidates(root.path(), "1:cpu:/x\n0::/system.slice/weir.service/main\n");
        let service = root.path().join("system.slice/weir.service");
        assert_eq!(found[..2], [Hierarchy::Two(service.clone()), Hierarchy::Two(service.join("main"))]);
        assert!(matches!(found[2], Hierarchy::One { cpu: None, .. }));
        assert_eq!(Hierarchy::candidates(root.path(), "")[..], found[2..]);
    }

    #[test]
    fn in_version_1_a_family_stays_in_our_own_group_of_the_processor() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("cpu/starved");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cpu.shares"), "1024").unwrap();
        let cpu = |own: &str| match Hierarchy::candidates(root.path(), own).pop() {
            Some(Hierarchy::One { cpu, .. }) => cpu,
            other => panic!("{other:?}"),
        };
        assert_eq!(cpu("3:memory:/m\n4:cpu,cpuacct:/starved\n"), Some(own));
        assert_eq!(cpu("4:cpuset:/starved\n"), None, "another controller");
        assert_eq!(cpu("4:cpu:/unseen\n"), None);
    }

    #[test]
    fn a_folder_that_is_no_control_group_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        assert!(Hierarchy::Two(root.path().to_owned()).group(1 << 20, 4).is_err(), "no memory.max");
        let one = Hierarchy::One { memory: root.path().join("a"), pids: root.path().join("b"), cpu: None };
        assert!(one.group(1 << 20, 4).is_err());
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "cgroup.subtree_control"), "{left:?}");
    }
}
