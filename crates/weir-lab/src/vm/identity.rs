//! As whom QEMU runs: not as root, if we are root, so that a sample that breaks out of its guest is nobody.

use super::accelerator::Accelerator;
use super::{Boot, VmSettings};
use std::os::unix::fs::MetadataExt;

/// The user who has nothing.
const NOBODY: u32 = 65_534;
const KVM: &str = "/dev/kvm";

/// The user that QEMU becomes; none if it stays who we are. An image is somebody's own file, which nobody else may be able to read.
pub(super) fn of_qemu(settings: &VmSettings, accelerator: Accelerator) -> Option<u32> {
    let ours = matches!(settings.boot, Boot::Kernel { .. });
    let may = accelerator == Accelerator::Tcg || kvm_group().is_some();
    (rustix::process::geteuid().is_root() && ours && may).then_some(NOBODY)
}

/// How `setpriv` makes it that user.
pub(super) fn words(settings: &VmSettings, accelerator: Accelerator) -> Vec<String> {
    let Some(user) = of_qemu(settings, accelerator) else { return Vec::new() };
    let groups = match kvm_group().filter(|_| accelerator == Accelerator::Kvm) {
        Some(group) => vec!["--groups".to_owned(), group.to_string()],
        None => vec!["--clear-groups".to_owned()],
    };
    [vec!["--reuid".to_owned(), user.to_string(), "--regid".to_owned(), user.to_string()], groups].concat()
}

/// The group that may use KVM, if there is one.
fn kvm_group() -> Option<u32> {
    let about = std::fs::metadata(KVM).ok()?;
    (about.mode() & 0o060 == 0o060).then(|| about.gid())
}
