//! Why the VMs of the configuration cannot be started on this machine.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum VmStartError {
    #[error(
        "the lab has VMs (lab.vms) and {0} is not here\n  hint: install qemu-system-x86, qemu-utils, util-linux and bubblewrap, or take the VMs out"
    )]
    NoProgram(PathBuf),
    #[error(
        "no cell can be made around QEMU here: bubblewrap does not work (namespaces are forbidden?)\n  hint: allow them, or say lab.vm_unconfined = true if whoever breaks out of a guest may be a user of this machine"
    )]
    NoCell,
    #[error("the image {0} is readable for its owner only, and QEMU is another user\n  hint: chmod a+r {0}")]
    ClosedImage(PathBuf),
    #[error("the VM {0} has no guest to boot\n  hint: `make guest` builds one; lab.guest says where it is")]
    NoGuest(String),
    #[error(
        "the VM {0} has no guest for Windows to boot\n  hint: `make guest-windows` builds one; lab.guest_windows says where it is"
    )]
    NoWindowsGuest(String),
    #[error("the folder of the lab's VMs {0} cannot be used: {1}")]
    Folder(PathBuf, io::Error),
}

/// Whether a program can be found: by its path, or by its name in `PATH`.
pub(super) fn program_is_here(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}
