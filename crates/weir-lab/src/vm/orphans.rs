//! Kills QEMU processes that an earlier process of Weir left behind.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that was killed has ended within this time.
const END_MAX: Duration = Duration::from_secs(2);

/// Kills every QEMU that belongs to VMs below this folder.
pub(super) fn kill(home: &Path) {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    for pid in pids.filter(|pid| is_ours(*pid, home)) {
        // The number may belong to another process by now. The handle always means the same process, so it is checked again.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if is_ours(pid, home) {
            let killed = pidfd_send_signal(&held, Signal::KILL);
            tracing::warn!(pid = pid.as_raw_nonzero().get(), ?killed, "a VM of an earlier process was still running");
            await_end(pid, home);
        }
    }
}

/// Until it has ended it keeps files open that the next one needs.
fn await_end(pid: Pid, home: &Path) {
    let begun = Instant::now();
    while is_ours(pid, home) && begun.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A QEMU works in the folder of its VM.
fn is_ours(pid: Pid, home: &Path) -> bool {
    let about = format!("/proc/{}", pid.as_raw_nonzero());
    let line = std::fs::read(format!("{about}/cmdline")).unwrap_or_default();
    let is_qemu = line.split(|byte| *byte == 0).any(|word| word.windows(4).any(|part| part == b"qemu"));
    // If the folder is gone, the kernel says so behind its name.
    is_qemu && std::fs::read_link(format!("{about}/cwd")).is_ok_and(|folder| folder.starts_with(home) && folder != home)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_our_own_are_killed() {
        let home = tempfile::tempdir().unwrap();
        let (ours, other) = (home.path().join("vm1"), tempfile::tempdir().unwrap());
        std::fs::create_dir(&ours).unwrap();
        let start = |folder: &Path| {
            Command::new("sh")
                .args(["-c", "while :; do sleep 0.1; done", "qemu-pretended"])
                .current_dir(folder)
                .spawn()
                .unwrap()
        };
        let (mut ours, mut other) = (start(&ours), start(other.path()));
        // Until the child process executes the program.
        while !is_ours(Pid::from_child(&ours), home.path()) {
            std::thread::yield_now();
        }
        kill(home.path());
        assert!(!ours.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
