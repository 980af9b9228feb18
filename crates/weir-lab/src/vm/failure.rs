//! Why a VM brought no report, and whose fault that is.

use super::Starved;
use std::io;
use std::time::Duration;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum VmFailure {
    /// The sample cannot be read.
    #[error("the sample cannot be read: {0}")]
    Sample(io::Error),
    /// The guest is gone: the sample may have crashed it.
    #[error("the guest died")]
    Died,
    /// The guest did something wrong.
    #[error("{0}")]
    Guest(io::Error),
    /// It took longer than it may.
    #[error("the plugin took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// It was late because other programs used the processor.
    #[error("{why}: this machine was too busy, and its VM waited {} of {} s for a processor", .starved.waited.as_secs(), .starved.of.as_secs())]
    Starved {
        /// What it was late for.
        why: String,
        /// For how long it had to wait for the processor.
        starved: Starved,
    },
    /// This machine failed: the guest could not be run, or what it sent could not be stored.
    #[error("this machine failed its VM: {0}")]
    Host(io::Error),
    /// The VM no longer exists.
    #[error("the VM is no more")]
    Gone,
}

impl VmFailure {
    /// Whether this machine itself is to blame, and the sample had no part in it.
    pub fn is_the_machines(&self) -> bool {
        match self {
            VmFailure::Sample(_) | VmFailure::Host(_) | VmFailure::Gone | VmFailure::Starved { .. } => true,
            VmFailure::Died | VmFailure::Guest(_) | VmFailure::Timeout(_) => false,
        }
    }

    /// Whether the only problem is that it took too long.
    pub(super) fn is_late(&self) -> bool {
        match self {
            VmFailure::Timeout(_) => true,
            VmFailure::Guest(error) => error.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    /// The same, with what is known about who is to blame.
    pub(super) fn explained(self, starved: Option<Starved>) -> VmFailure {
        match starved.filter(|_| self.is_late()) {
            Some(starved) => VmFailure::Starved { why: self.to_string(), starved },
            None => self,
        }
    }
}

/// If something goes wrong on the line to a guest, the guest is to blame.
impl From<io::Error> for VmFailure {
    fn from(error: io::Error) -> VmFailure {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof => VmFailure::Died,
            _ => VmFailure::Guest(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_late_may_say_that_the_machine_was_busy() {
        let starved = Some(Starved { waited: Duration::from_secs(50), of: Duration::from_secs(90) });
        let late = || VmFailure::Guest(io::Error::new(io::ErrorKind::TimedOut, "it brought no report in time"));
        let explained = late().explained(starved);
        assert_eq!(
            explained.to_string(),
            "it brought no report in time: this machine was too busy, and its VM waited 50 of 90 s for a processor"
        );
        assert!(explained.is_the_machines() && !late().explained(None).is_the_machines());
        assert!(VmFailure::Timeout(Duration::from_secs(90)).explained(starved).is_the_machines());
        for other in [VmFailure::Died, VmFailure::Guest(io::Error::other("no report"))] {
            assert!(!other.explained(starved).is_the_machines());
        }
    }
}
