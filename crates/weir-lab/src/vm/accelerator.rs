//! Chooses between KVM and TCG by booting a guest, because KVM may hang even if `/dev/kvm` exists.

use std::path::{Path, PathBuf};

/// How QEMU runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accelerator {
    /// On the processor itself.
    Kvm,
    /// QEMU translates every instruction.
    Tcg,
}

/// The choice in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// KVM if a guest boots with it.
    Auto,
    Fixed(Accelerator),
}

impl Accelerator {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// Remembers that KVM failed, until the lab on this machine is restarted.
pub(super) struct KvmFailure {
    file: PathBuf,
    boot: String,
}

impl KvmFailure {
    pub(super) fn of(home: &Path) -> KvmFailure {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        KvmFailure { file: home.join("kvm-failed"), boot }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.boot.is_empty() && std::fs::read_to_string(&self.file).is_ok_and(|boot| boot == self.boot)
    }

    pub(super) fn remember(&self) {
        if let Err(error) = std::fs::write(&self.file, &self.boot) {
            tracing::warn!(%error, "it cannot be written down that KVM does not work");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_for_one_start_of_the_machine() {
        let home = tempfile::tempdir().unwrap();
        let failure = KvmFailure::of(home.path());
        assert!(!failure.is_known());
        failure.remember();
        assert!(KvmFailure::of(home.path()).is_known());
        std::fs::write(home.path().join("kvm-failed"), "an earlier one").unwrap();
        assert!(!failure.is_known());
    }
}
