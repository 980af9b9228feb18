//! What a process and its descendants have used of the processor, and what they have in memory.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// A family of processes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Processor time, also of children that have ended.
    pub(crate) cpu: Duration,
    pub(crate) processes: usize,
    rss_kib: u64,
    pss_kib: u64,
}

impl Usage {
    /// Of this process and all below it.
    pub(crate) fn of(root: u32) -> Usage {
        let all = processes();
        let mut usage = Usage::default();
        let mut family = vec![root];
        while let Some(id) = family.pop() {
            let Some(process) = all.get(&id) else { continue };
            usage.processes += 1;
            usage.cpu += process.cpu;
            let memory = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
            usage.rss_kib += kib(&memory, "Rss:");
            usage.pss_kib += kib(&memory, "Pss:");
            family.extend(all.iter().filter(|(_, other)| other.parent == id).map(|(id, _)| *id));
        }
        usage
    }

    /// Resident memory; what processes share counts for each of them.
    pub(crate) fn rss_mb(&self) -> f64 {
        self.rss_kib as f64 * 1024.0 / 1e6
    }

    /// Resident memory; what processes share is divided among them.
    pub(crate) fn pss_mb(&self) -> f64 {
        self.pss_kib as f64 * 1024.0 / 1e6
    }
}

/// The most that a process ever had in memory.
pub(crate) fn peak_mb(id: u32) -> f64 {
    kib(&fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default(), "VmHWM:") as f64 * 1024.0 / 1e6
}

struct Process {
    parent: u32,
    cpu: Duration,
}

fn processes() -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| Some((id, process(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?))).collect()
}

/// Reads a line of /proc/ID/stat; the name in parentheses may hold anything.
fn process(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // After state and parent come eleven others, then user, system, and both of children that were waited for.
    let ticks: u64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    let cpu = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    Some(Process { parent: fields.get(1)?.parse().ok()?, cpu })
}

fn kib(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
