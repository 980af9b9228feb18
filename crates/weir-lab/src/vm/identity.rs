//! The user that QEMU runs as. If we are root, QEMU is not, so that a sample that breaks out of its guest has no rights; and each VM has a
//! user of its own, so that it cannot reach the other VMs either.

use super::accelerator::Accelerator;
use super::{Boot, VmSettings};
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// User ids that nobody else has; those of plugins are below them.
const USERS_FROM: u32 = 2_102_000_000;
const USERS: u32 = 1_000_000;
/// The user without rights, for systems where those user ids do not exist.
const NOBODY: u32 = 65_534;
const KVM: &str = "/dev/kvm";

/// The user that QEMU becomes; None if it keeps our own.
pub(super) fn of_qemu(settings: &VmSettings, accelerator: Accelerator) -> Option<u32> {
    let may = accelerator == Accelerator::Tcg || kvm_group().is_some();
    of_qemu_named(&settings.name).filter(|_| may)
}

/// The same for a VM of this name, if access to KVM does not prevent it.
pub(super) fn of_qemu_named(name: &str) -> Option<u32> {
    rustix::process::geteuid().is_root().then(|| {
        let known = |map: &str| std::fs::read_to_string(map).unwrap_or_default();
        let own = own(name);
        let can_be = ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| is_mapped(&known(map), own));
        if can_be { own } else { NOBODY }
    })
}

/// The image of a VM that its QEMU will not be able to read.
pub(super) fn unreadable_image(settings: &VmSettings) -> Option<PathBuf> {
    let Boot::Image(image) = &settings.boot else { return None };
    let is_closed = std::fs::metadata(image).is_ok_and(|about| about.mode() & 0o004 == 0);
    (rustix::process::geteuid().is_root() && is_closed).then(|| image.clone())
}

/// The arguments of `setpriv` that make it this user.
pub(super) fn words(settings: &VmSettings, accelerator: Accelerator) -> Vec<String> {
    let Some(user) = of_qemu(settings, accelerator) else { return Vec::new() };
    let groups = match kvm_group().filter(|_| accelerator == Accelerator::Kvm) {
        Some(group) => vec!["--groups".to_owned(), group.to_string()],
        None => vec!["--clear-groups".to_owned()],
    };
    [vec!["--reuid".to_owned(), user.to_string(), "--regid".to_owned(), user.to_string()], groups].concat()
}

/// A VM's own user id, the same at every start.
fn own(name: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let [a, b, c, d, ..] = digest;
    USERS_FROM + u32::from_le_bytes([a, b, c, d]) % USERS
}

/// Whether this user id exists here: a container may have only some of them.
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| (first..first.saturating_add(count)).contains(&user.into()))
    })
}

/// The group that may use KVM, if there is one.
fn kvm_group() -> Option<u32> {
    let about = std::fs::metadata(KVM).ok()?;
    (about.mode() & 0o060 == 0o060).then(|| about.gid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vm_is_somebody_else_where_there_are_enough_users() {
        assert_eq!(own("vm1"), own("vm1"));
        assert!(own("vm1") != own("vm2") && (USERS_FROM..USERS_FROM + USERS).contains(&own("vm1")));
        let all = "         0          0 4294967295\n";
        let few = "         0     100000      65536\n      70000          0          1\n";
        assert!(is_mapped(all, own("vm1")) && !is_mapped(few, own("vm1")));
        assert!(is_mapped(few, NOBODY) && is_mapped(few, 70_000) && !is_mapped("", 0) && !is_mapped("x", 0));
    }
}
