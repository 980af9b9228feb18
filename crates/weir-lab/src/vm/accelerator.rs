//! KVM or TCG: what works is found out by booting, because a `/dev/kvm` that is there may still hang.

use super::golden::Goldens;
use super::{Boot, VmSettings};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With what QEMU runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU translates every instruction.
    Tcg,
}

/// What the configuration says about that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// KVM if a guest boots with it.
    Auto,
    /// This one.
    Fixed(Accelerator),
}

/// A guest that boots with KVM does so within this.
const TEST_BOOT: Duration = Duration::from_secs(15);
/// Somebody else's image may take longer.
const TEST_BOOT_IMAGE: Duration = Duration::from_secs(300);

impl Accelerator {
    /// As reports say it.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// Finds out what works, once for each start of this machine: a failed test boot is remembered.
pub(super) async fn find(goldens: &Goldens, settings: &VmSettings) -> Accelerator {
    if let Choice::Fixed(accelerator) = goldens.common().accelerator {
        return accelerator;
    }
    let opened = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    let memory = Memory::of(&goldens.common().home);
    if opened.is_err() || memory.kvm_failed() {
        return Accelerator::Tcg;
    }
    let limit = if matches!(settings.boot, Boot::Image(_)) { TEST_BOOT_IMAGE } else { TEST_BOOT };
    let booted = goldens.make(settings, Accelerator::Kvm, limit).await;
    match booted {
        Ok(_) => Accelerator::Kvm,
        Err(error) => {
            tracing::warn!(%error, "KVM is there and does not work: VMs run with TCG");
            memory.remember();
            Accelerator::Tcg
        }
    }
}

/// That KVM failed, for as long as the machine is not started again.
struct Memory {
    file: PathBuf,
    boot: String,
}

impl Memory {
    fn of(home: &Path) -> Memory {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Memory { file: home.join("kvm-failed"), boot }
    }

    fn kvm_failed(&self) -> bool {
        !self.boot.is_empty() && std::fs::read_to_string(&self.file).is_ok_and(|boot| boot == self.boot)
    }

    fn remember(&self) {
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
        let memory = Memory::of(home.path());
        assert!(!memory.kvm_failed());
        memory.remember();
        assert!(Memory::of(home.path()).kvm_failed());
        std::fs::write(home.path().join("kvm-failed"), "an earlier one").unwrap();
        assert!(!memory.kvm_failed());
    }
}
