//! VMs in which samples run: QEMU, driven over QMP, with our agent inside.
//!
//! Every VM has a keeper, which restores it from the golden snapshot ahead of need, asks its agent whether that worked, and
//! only then calls it free. A sample makes it dirty, however it ends: it is restored again before anybody hears that it is
//! free. What the guest says is hostile and bounded. Nothing leaves the guest: it has no network device. The agent and
//! its protocol are in `weir-guest` (`docs/guest-protocol.md`).

mod accelerator;
mod birth;
mod golden;
mod identity;
mod keeper;
mod line;
mod qemu;
mod qmp;
mod report;
mod strays;

pub use accelerator::{Accelerator, Choice};
pub use keeper::{Phase, Vm, VmFailure};
pub use report::is_foreign;

use golden::Goldens;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One VM as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSettings {
    /// Its name on this machine.
    pub name: String,
    /// What it boots.
    pub boot: Boot,
    /// Its memory.
    pub memory_mib: u32,
    /// What it has that plugins may want.
    pub tags: Vec<String>,
    /// The plugins that may run in it; empty for all that run in VMs.
    pub plugins: Vec<String>,
    /// How it becomes clean again.
    pub revert: Revert,
    /// Whether samples run as root.
    pub root: bool,
}

/// What a VM boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// A kernel with its initial file system.
    Kernel {
        /// The kernel.
        kernel: PathBuf,
        /// The file system.
        initrd: PathBuf,
    },
    /// A disk image in QEMU's format, with an agent that starts by itself.
    Image(PathBuf),
}

/// How a VM becomes clean again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revert {
    /// The same QEMU loads the snapshot again; a new one after anything unusual.
    InPlace,
    /// A new QEMU for every sample.
    Process,
    /// Not at all: for guests that clean up themselves.
    None,
}

/// What all VMs of a machine share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// Where snapshots are kept, and a folder for each VM.
    pub home: PathBuf,
    /// The program.
    pub qemu: PathBuf,
    /// With what it runs.
    pub accelerator: Choice,
    /// How long a sample is watched.
    pub watch: Duration,
}

/// Starts the VMs of this machine: they come up in the background. What an earlier process left running is killed.
pub fn start(common: Common, vms: Vec<VmSettings>) -> io::Result<Vec<Vm>> {
    std::fs::create_dir_all(&common.home)?;
    // QEMU starts in the folder of its VM.
    let common = Common { home: std::path::absolute(&common.home)?, ..common };
    strays::kill(&common.home);
    let goldens = Arc::new(Goldens::new(common));
    let (others, known) = (Arc::clone(&goldens), vms.clone());
    drop(tokio::task::spawn_blocking(move || others.forget_others(&known)));
    Ok(vms.into_iter().map(|settings| Vm::start(settings, Arc::clone(&goldens))).collect())
}
