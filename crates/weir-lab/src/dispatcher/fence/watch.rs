//! Watches all processes of a plugin: their memory, where the kernel does not limit it for the group, and what they write.
//!
//! It looks ten times a second, so a plugin may exceed its limit for a tenth of a second, within the limits of single processes and files.
//! The cost of a look grows with the number of processes and files, both of which are bounded.

use rustix::param::page_size;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(100);
/// How many files and folders a plugin may leave.
const FILES_MAX: usize = 4096;
/// How many processes are examined.
const FAMILY_MAX: usize = 8192;

/// A family uses more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// All of its memory.
    #[error("the plugin and what it started used more than {} MiB of memory", .0 >> 20)]
    Memory(u64),
    /// All that it wrote.
    #[error("the plugin wrote more than {} MiB into output/", .0 >> 20)]
    Disk(u64),
    /// All files that it made.
    #[error("the plugin made more than {FILES_MAX} files in output/")]
    Files,
}

/// What should be watched.
#[derive(Debug, Clone)]
pub(in crate::dispatcher) struct Watch {
    pub(in crate::dispatcher) first: u32,
    pub(in crate::dispatcher) output: PathBuf,
    /// Where the kernel reports that it had to kill a process, if it counts that.
    pub(in crate::dispatcher) kills: Option<PathBuf>,
    pub(in crate::dispatcher) memory_max: u64,
    pub(in crate::dispatcher) disk_max: u64,
}

impl Watch {
    /// Returns when a limit is exceeded.
    pub(in crate::dispatcher) async fn look_out(self) -> Excess {
        loop {
            tokio::time::sleep(EVERY).await;
            let watch = self.clone();
            if let Ok(Some(excess)) = tokio::task::spawn_blocking(move || watch.look()).await {
                return excess;
            }
        }
    }

    fn look(&self) -> Option<Excess> {
        if self.ran_out() {
            return Some(Excess::Memory(self.memory_max));
        }
        let family = family(self.first);
        // Memory that they share is counted for each, so it is counted in parts only if the total is large.
        let held: u64 = family.iter().map(|pid| resident(*pid)).sum();
        if held > self.memory_max && family.iter().map(|pid| share(*pid)).sum::<u64>() > self.memory_max {
            return Some(Excess::Memory(self.memory_max));
        }
        self.look_at_output()
    }

    /// Whether the kernel had to kill one of them.
    pub(in crate::dispatcher) fn ran_out(&self) -> bool {
        self.kills.as_deref().is_some_and(crate::cgroup::ran_out)
    }

    /// Also called once at the end, because a family may be faster than the watch.
    pub(in crate::dispatcher) fn look_at_output(&self) -> Option<Excess> {
        let (bytes, files) = written(&self.output, self.disk_max);
        match () {
            () if bytes > self.disk_max => Some(Excess::Disk(self.disk_max)),
            () if files > FILES_MAX => Some(Excess::Files),
            () => None,
        }
    }
}

/// A process and all that it started, whatever process is their parent by now inside its namespace.
pub(in crate::dispatcher) fn family(first: u32) -> Vec<u32> {
    let mut all = vec![first];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        at += 1;
        if all.len() > FAMILY_MAX {
            break;
        }
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for children in threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()) {
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    all
}

fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * page_size() as u64
}

/// Its memory, with only its part of what it shares with others.
fn share(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.map_or_else(|| resident(pid), |kib| kib * 1024)
}

/// Bytes and files below a folder; stops counting when it is clearly too much.
fn written(folder: &Path, most: u64) -> (u64, usize) {
    let (mut bytes, mut files, mut folders) = (0, 0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            files += 1;
            // The length of a sparse file is not what it takes on the disk.
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                folders.push(entry.path());
            }
            if bytes > most || files > FILES_MAX {
                return (bytes, files);
            }
        }
    }
    (bytes, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_its_own_family() {
        let own = std::process::id();
        assert_eq!(family(own)[0], own);
        assert!(resident(own) > 1 << 20 && share(own) > 1 << 20);
    }

    #[test]
    fn what_was_written_is_counted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/c"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("usr")).unwrap();
        let (bytes, files) = written(folder.path(), u64::MAX);
        assert!((100_000..200_000).contains(&bytes) && files == 4, "{bytes} {files}");
        let watch =
            |disk_max| Watch { first: 0, output: folder.path().into(), kills: None, memory_max: u64::MAX, disk_max };
        assert_eq!(watch(1 << 20).look_at_output(), None);
        assert_eq!(watch(50_000).look_at_output(), Some(Excess::Disk(50_000)));
    }
}
