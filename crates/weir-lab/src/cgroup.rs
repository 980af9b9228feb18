//! Control groups: the kernel limits the memory and the number of all processes of a plugin, or of a VM, together, and gives them one
//! common share of the processor.
//!
//! They are used where this process may make groups: with version 2 beside or below its own group (a service with
//! `Delegate=cpu memory pids`, or root), with version 1 below the roots of the controllers (root). Elsewhere only the limits of
//! single processes and the checks of the fence apply.
//!
//! The controllers for memory and processes are required; `cpu` is not, so a machine without it still gets groups. With it, a fork
//! bomb of a thousand processes gets half the share of one of our threads, and the lab goes on working.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A group can be removed only when the kernel has cleaned up its last process: so often it is tried, with this pause in between.
const BURIALS: u32 = 40;
const BURIAL: Duration = Duration::from_millis(25);

/// How the names of our groups begin; the kind, the process that made it and a number follow.
const NAMED: &str = "weir-";

/// Enters as many groups as the first argument says, and then executes the program in the other arguments.
const JOIN: &str = "n=$1; shift; while [ $n -gt 0 ]; do echo $$ > \"$1/cgroup.procs\" || exit 125; shift; n=$((n-1)); done; exec \"$@\"";

/// A family's share of the processors in version 2, where a group has 100 by default.
const WEIGHT: &str = "50";
/// The same in version 1, where a group and a thread have 1024 by default.
const SHARES: &str = "512";

/// Where control groups can be created on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// Version 2.
    Two(PathBuf),
    /// Version 1, where every controller has a hierarchy of its own.
    One {
        memory: PathBuf,
        pids: PathBuf,
        /// Our own group: a family must not get more than the share that we have been given.
        cpu: Option<PathBuf>,
    },
}

/// The control group of one family of processes; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folders: Vec<PathBuf>,
    /// The file in which the kernel counts the processes that it had to kill.
    kills: PathBuf,
}

impl Hierarchy {
    /// The hierarchy of this machine, if there is one; it is searched only once.
    pub(crate) fn of_this_machine() -> Option<&'static Hierarchy> {
        static FOUND: OnceLock<Option<Hierarchy>> = OnceLock::new();
        let find = || {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            Hierarchy::candidates(Path::new("/sys/fs/cgroup"), &own)
                .into_iter()
                .find(|hierarchy| hierarchy.group("try", 64 << 20, 16).is_ok())
        };
        FOUND.get_or_init(find).as_ref()
    }

    fn candidates(root: &Path, own: &str) -> Vec<Hierarchy> {
        let mut all = Vec::new();
        let unified = own.lines().find_map(|line| line.strip_prefix("0::/"));
        for mounted in [root.to_path_buf(), root.join("unified")] {
            if let Some(own) = unified.filter(|_| mounted.join("cgroup.controllers").exists()) {
                let own = mounted.join(own);
                // A group with processes in it cannot have groups with controllers below it, so a group beside it is tried first.
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

    /// A new group for a family of this kind, such as `plugin`.
    pub(crate) fn group(&self, kind: &str, memory: u64, processes: u32) -> io::Result<ControlGroup> {
        static GROUPS: AtomicU64 = AtomicU64::new(0);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAMED}{kind}-{}-{number}", std::process::id());
        // The sandbox has processes of its own.
        let (memory, processes) = (memory.to_string(), (u64::from(processes) + 4).to_string());
        match self {
            Hierarchy::Two(above) => {
                // This may be done already, or we may not be allowed to: what counts is whether the files exist.
                let _ = fs::write(above.join("cgroup.subtree_control"), "+memory +pids");
                let _ = fs::write(above.join("cgroup.subtree_control"), "+cpu");
                let folder = above.join(name);
                let group = ControlGroup::made(vec![folder.clone()], folder.join("memory.events"))?;
                fs::write(existing(&folder, "memory.max")?, memory)?;
                fs::write(existing(&folder, "pids.max")?, processes)?;
                let _ = existing(&folder, "cpu.weight").and_then(|weight| fs::write(weight, WEIGHT));
                let _ = fs::write(folder.join("memory.swap.max"), "0");
                let _ = fs::write(folder.join("memory.oom.group"), "1");
                Ok(group)
            }
            Hierarchy::One { memory: memories, pids, cpu } => {
                let (first, second) = (memories.join(&name), pids.join(&name));
                let mut group =
                    ControlGroup::made(vec![first.clone(), second.clone()], first.join("memory.oom_control"))?;
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

impl Hierarchy {
    /// Removes the groups of processes that were killed before they could do so, and kills processes that still run in them.
    pub(crate) fn sweep(&self) {
        let folders: Vec<PathBuf> = self.folders().iter().flat_map(|folder| left_behind(folder)).collect();
        if !folders.is_empty() {
            tracing::warn!(groups = folders.len(), "control groups of processes that were killed are removed");
            drop(ControlGroup { folders, kills: PathBuf::new() });
        }
    }

    /// The folders that groups are made in.
    fn folders(&self) -> Vec<PathBuf> {
        match self {
            Hierarchy::Two(above) => vec![above.clone()],
            Hierarchy::One { memory, pids, cpu } => {
                [memory.clone(), pids.clone()].into_iter().chain(cpu.clone()).collect()
            }
        }
    }
}

/// Groups of ours in this folder whose creator no longer runs.
fn left_behind(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let dead = names.filter(|name| maker(name).is_some_and(|pid| !is_alive(pid))).map(|name| folder.join(name));
    dead.filter(|group| !has_strangers(group)).collect()
}

/// Whether there are processes in it that we cannot see, as in a container: then its creator may run there, too.
fn has_strangers(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.lines().any(|pid| pid == "0"))
}

/// The process that made the group of this name; none if the name is not one that we give.
fn maker(name: &str) -> Option<u32> {
    let mut words = name.strip_prefix(NAMED)?.split('-');
    let (_, maker, number) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    (number.parse::<u64>().is_ok() && words.next().is_none()).then_some(maker)
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Writing must not create a plain file in a folder that is not a group.
fn existing(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let path = folder.join(name);
    fs::metadata(&path).map(|_| path)
}

impl ControlGroup {
    fn made(folders: Vec<PathBuf>, kills: PathBuf) -> io::Result<ControlGroup> {
        let group = ControlGroup { folders: Vec::new(), kills };
        folders.into_iter().try_fold(group, |mut group, folder| {
            fs::create_dir(&folder)?;
            group.folders.push(folder);
            Ok(group)
        })
    }

    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.folders.clone()
    }

    /// The same command, in this group from the start.
    pub(crate) fn with(&self, command: &tokio::process::Command) -> tokio::process::Command {
        let mut joined = tokio::process::Command::new("sh");
        joined.args(["-c", JOIN, "sh"]).arg(self.folders.len().to_string()).args(&self.folders);
        joined.arg(command.as_std().get_program()).args(command.as_std().get_args());
        joined
    }

    /// Whether no process of the family is left.
    pub(crate) fn is_empty(&self) -> bool {
        let left =
            |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
        !self.folders.iter().any(left)
    }

    /// Where to look for [`ran_out`].
    pub(crate) fn kills(&self) -> PathBuf {
        self.kills.clone()
    }
}

/// Whether the kernel ended a process of the family because memory ran out.
pub(crate) fn ran_out(kills: &Path) -> bool {
    let text = fs::read_to_string(kills).unwrap_or_default();
    let count = |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse::<u64>().ok());
    text.lines().filter_map(count).any(|count| count > 0)
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let folders = std::mem::take(&mut self.folders);
        folders.iter().for_each(|folder| kill_all(folder));
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

/// Ends all processes in a group.
fn kill_all(folder: &Path) {
    if existing(folder, "cgroup.kill").and_then(|kill| fs::write(kill, "1")).is_ok() {
        return;
    }
    // Version 1 has no such file.
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids = members.lines().filter_map(|pid| pid.parse().ok()).filter_map(rustix::process::Pid::from_raw);
    for pid in pids {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
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
    fn groups_of_the_dead_are_removed_with_whoever_is_in_them() {
        let Some(hierarchy) = Hierarchy::of_this_machine() else { return };
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let above = hierarchy.folders();
        let left: Vec<PathBuf> =
            above.iter().map(|folder| folder.join(format!("weir-plugin-{}-7", dead.id()))).collect();
        left.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let mut member = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for folder in &left {
            fs::write(folder.join("cgroup.procs"), member.id().to_string()).unwrap();
        }
        let own = hierarchy.group("plugin", 64 << 20, 16).unwrap();
        hierarchy.sweep();
        assert!(!member.wait().unwrap().success(), "it was killed");
        while left.iter().any(|folder| folder.exists()) {
            std::thread::sleep(BURIAL);
        }
        assert!(own.folders().iter().all(|folder| folder.exists()), "its maker lives");
    }

    /// Which version is tested depends on this machine, and is printed; `tools/try-cgroup2` runs this where there is only version 2.
    #[tokio::test]
    async fn a_family_is_bounded_and_nothing_is_left_of_it() {
        let Some(hierarchy) = Hierarchy::of_this_machine() else {
            eprintln!("control groups: none can be made here");
            return;
        };
        let version = if matches!(hierarchy, Hierarchy::Two(_)) { 2 } else { 1 };
        eprintln!("control groups: version {version} is tried");
        let run = async |group: &ControlGroup, script: &str| {
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", script]);
            group.with(&command).status().await.unwrap()
        };
        let group = hierarchy.group("plugin", 32 << 20, 12).unwrap();
        assert!(run(&group, "exit 0").await.success() && !ran_out(&group.kills()));
        let greedy = run(&group, "x=$(head -c 80000000 /dev/zero | tr '\\0' x); echo ${#x}").await;
        assert!(!greedy.success() && ran_out(&group.kills()), "{greedy}");
        let folders = group.folders();
        drop(group);
        // Twelve, and four for the sandbox.
        let group = hierarchy.group("plugin", 64 << 20, 12).unwrap();
        let many = run(&group, "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done").await;
        let members = fs::read_to_string(group.folders()[0].join("cgroup.procs")).unwrap().lines().count();
        assert!(!many.success() && (1..=16).contains(&members), "{many}, {members} are left");
        let all: Vec<PathBuf> = folders.into_iter().chain(group.folders()).collect();
        drop(group);
        while all.iter().any(|folder| folder.exists()) {
            tokio::time::sleep(BURIAL).await;
        }
        eprintln!("control groups: version {version} held");
    }

    #[test]
    fn a_folder_that_is_no_control_group_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        assert!(Hierarchy::Two(root.path().to_owned()).group("plugin", 1 << 20, 4).is_err(), "no memory.max");
        let one = Hierarchy::One { memory: root.path().join("a"), pids: root.path().join("b"), cpu: None };
        assert!(one.group("plugin", 1 << 20, 4).is_err());
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "cgroup.subtree_control"), "{left:?}");
    }
}
