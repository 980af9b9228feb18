//! Wine's server: it keeps the registry in memory, and writes it down when it is told to end.

use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The one that was there before any sample: another of its name knows nothing of what was said to this one.
#[derive(Debug)]
pub(crate) struct WineServer(OwnedFd);

impl WineServer {
    /// The one that runs now.
    pub(crate) fn find() -> Option<WineServer> {
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = entries.filter_map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            name.starts_with("wineserver").then_some(pid)
        });
        WineServer::of(Pid::from_raw(pids.next()?)?)
    }

    fn of(pid: Pid) -> Option<WineServer> {
        pidfd_open(pid, PidfdFlags::empty()).ok().map(WineServer)
    }

    /// Has it write the registry down and end, within `limit`; `meanwhile` is called all the time. False if it was gone before, was killed, or did not end: then
    /// somebody has kept it from writing, by a call of Linux for example.
    ///
    /// `wineserver -k` asks for the same in another way: the server first waits until all programs have ended, and is killed if that
    /// takes long, with the registry in memory. On SIGTERM it writes at once.
    pub(crate) fn end(&self, limit: Duration, mut meanwhile: impl FnMut()) -> bool {
        let begun = Instant::now();
        let told = pidfd_send_signal(&self.0, Signal::TERM);
        // It may have been stopped.
        let woken = pidfd_send_signal(&self.0, Signal::CONT);
        if told.and(woken).is_err() {
            return false;
        }
        loop {
            let ended = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            match ended {
                Ok(Some(status)) => return WaitIdStatus::exited(&status),
                // It is somebody else's child, and only known to have gone.
                Err(_) if pidfd_send_signal(&self.0, Signal::CONT).is_err() => return true,
                Ok(None) | Err(_) if begun.elapsed() < limit => {}
                Ok(None) | Err(_) => return false,
            }
            meanwhile();
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// A program that has set itself up when this returns. Nobody waits for it but the code under test; it is gone with this process.
    #[allow(clippy::zombie_processes)]
    fn server(script: &str) -> WineServer {
        let script = format!("{script}; echo; while :; do sleep 0.05; done");
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        WineServer::of(Pid::from_child(&child)).unwrap()
    }

    fn end(server: &WineServer) -> bool {
        server.end(Duration::from_secs(60), || {})
    }

    #[test]
    fn a_server_that_writes_for_a_while_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("weir-server-{}", std::process::id()));
        let slow = server(&format!("trap 'sleep 2; touch {folder:?}; exit 1' TERM"));
        assert!(end(&slow));
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn one_that_is_stopped_is_woken() {
        let stopped = server("trap 'exit 1' TERM");
        pidfd_send_signal(&stopped.0, Signal::STOP).unwrap();
        assert!(end(&stopped));
    }

    #[test]
    fn one_that_was_killed_or_does_not_end_is_told_on() {
        let killed = server(":");
        pidfd_send_signal(&killed.0, Signal::KILL).unwrap();
        assert!(!end(&killed));
        assert!(!end(&killed), "it is gone");
        let deaf = server("trap '' TERM");
        assert!(!deaf.end(Duration::from_millis(200), || {}));
        pidfd_send_signal(&deaf.0, Signal::KILL).unwrap();
        end(&deaf);
    }
}
