//! Why a VM brought no report, and whose fault that is.

use std::io;
use std::time::Duration;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum VmFailure {
    /// The sample cannot be read.
    #[error("the sample cannot be read: {0}")]
    Sample(io::Error),
    /// The guest is gone: the sample may have brought it down.
    #[error("the guest died")]
    Died,
    /// What the guest did was wrong.
    #[error("{0}")]
    Guest(io::Error),
    /// It took longer than it may.
    #[error("the plugin took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// This machine could not do what it must: the guest was not let run, or what it sent was not kept.
    #[error("this machine failed its VM: {0}")]
    Host(io::Error),
    /// The VM is no more.
    #[error("the VM is no more")]
    Gone,
}

impl VmFailure {
    /// Whether it is this machine's own fault: the sample had no part in it.
    pub fn is_the_machines(&self) -> bool {
        match self {
            VmFailure::Sample(_) | VmFailure::Host(_) | VmFailure::Gone => true,
            VmFailure::Died | VmFailure::Guest(_) | VmFailure::Timeout(_) => false,
        }
    }
}

/// What went wrong on the line to a guest is the guest's fault.
impl From<io::Error> for VmFailure {
    fn from(error: io::Error) -> VmFailure {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof => VmFailure::Died,
            _ => VmFailure::Guest(error),
        }
    }
}
