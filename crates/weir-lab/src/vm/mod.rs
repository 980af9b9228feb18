//! VMs in which samples run: QEMU, driven over QMP, with our agent inside.
//!
//! Every VM has a worker, which restores it from its snapshot ahead of need, asks its agent whether that worked, and only then calls it
//! free. A sample makes it dirty, however it ends: it is restored again before anybody hears that it is free. What the guest says may be
//! hostile, and is bounded. Nothing leaves the guest: it has no network device. The agent and its protocol are in `weir-guest`
//! (`docs/guest-protocol.md`).

mod accelerator;
mod agent_connection;
mod cell;
mod evidence;
mod failure;
mod host_ticks;
mod identity;
mod orphans;
mod qemu;
mod qmp;
mod report;
mod rules;
mod snapshots;
mod spawner;
mod start_error;
mod starvation;
mod vm_rule;
mod worker;

pub use accelerator::{Accelerator, Choice};
pub use failure::VmFailure;
pub use start_error::VmStartError;
pub use starvation::Starved;
pub use vm_rule::{Guests, System, VmRule};
pub use worker::{Phase, Vm};

use crate::tasks::Task;
use snapshots::Snapshots;
use start_error::program_is_here;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_settings::{Section, settings};

/// One VM as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSettings {
    /// Its name on this machine.
    pub name: String,
    /// What it boots.
    pub boot: Boot,
    pub memory_mib: u32,
    /// Its tags, which plugins may require.
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
        kernel: PathBuf,
        /// The file system.
        initrd: PathBuf,
    },
    /// A disk image in QEMU's format, with an agent that starts automatically.
    Image(PathBuf),
}

impl Boot {
    /// The disk from which a kernel of ours boots, which is beside its initial file system; a guest of somebody else may have none.
    pub(crate) fn disk(&self) -> Option<PathBuf> {
        match self {
            Boot::Kernel { initrd, .. } => Some(initrd.with_file_name(DISK)).filter(|disk| disk.exists()),
            Boot::Image(_) => None,
        }
    }
}

/// The names of all rules of behaviour.
#[cfg(test)]
pub(crate) fn rule_names() -> impl Iterator<Item = &'static str> {
    rules::rule_names()
}

/// The name of that disk.
pub(crate) const DISK: &str = "root.squashfs";

/// How a VM becomes clean again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revert {
    /// The same QEMU loads the snapshot again; a new one is started after anything unusual.
    InPlace,
    /// A new QEMU for every sample.
    Process,
    /// Not at all: for guests that clean up themselves.
    None,
}

settings! {
    /// The VMs of this machine.
    #[check(VmsSettings::check)]
    pub struct VmsSettings {
        /// The VMs of this machine: a name, and what differs from a guest of ours with 256 MiB, such as "vm1 memory=256 tags=linux
        /// revert=process", "win system=windows" for the guest that runs Windows programs by Wine, or "real image=/srv/win.qcow2
        /// memory=4096 tags=windows plugins=run-real"; `weir up --demo` has two if there is a guest
        pub rules as "vms": Vec<VmRule> = list([], 64, "VMs"),
        /// The folder with the guest that `make guest` builds (vmlinuz and initrd); without it target/guest, guest beside this
        /// program or /usr/share/weir/guest
        pub guest: Option<PathBuf> = path().optional(),
        /// The folder with the guest that `make guest-windows` builds; without it target/guest-windows, guest-windows beside this program
        /// or /usr/share/weir/guest-windows
        pub guest_windows: Option<PathBuf> = path().optional(),
        pub common: Common = part(),
        /// Whether other machines of this lab have VMs: samples that are taken in here want them too
        pub elsewhere as "vms_elsewhere": bool = flag(false),
        /// Whether other machines of this lab have VMs that run Windows programs
        pub windows_elsewhere as "vms_windows_elsewhere": bool = flag(false),
    }
}

settings! {
    /// Settings that all VMs of a machine share.
    #[derive(PartialEq, Eq)]
    pub struct Common {
        /// The folder for snapshots, with a folder for each VM.
        pub home: PathBuf = fixed(PathBuf::new()),
        /// The program that runs VMs
        pub qemu: PathBuf = text("qemu-system-x86_64", "a program")
            .valid(|text| if text.is_empty() { Err("a program is expected".into()) } else { Ok(()) })
            .map(PathBuf::from),
        /// With what VMs run; auto is KVM if a guest boots with it
        pub accelerator as "vm_accelerator": Choice = choice([
            ("auto", Choice::Auto),
            ("kvm", Choice::Fixed(Accelerator::Kvm)),
            ("tcg", Choice::Fixed(Accelerator::Tcg)),
        ]),
        /// How long a sample in a VM is watched, if it does not end before
        pub watch as "vm_watch": Duration = duration("1m", "1s"..="1h"),
        /// Whether VMs may run without a sandbox around QEMU (no bubblewrap, or no namespaces): malware that breaks out of a guest is
        /// then a user of this machine
        pub unconfined as "vm_unconfined": bool = flag(false),
    }
}

impl VmsSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        let names: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            section.blame("vms", format!("{:?} is there twice", twice.1), "give every VM its own name");
        }
    }
}

impl Common {
    /// Programs that VMs need and that are missing on this machine.
    pub fn missing_programs(&self) -> impl Iterator<Item = PathBuf> {
        let programs = [self.qemu.clone(), "qemu-img".into(), "setpriv".into()];
        let cell = (!self.unconfined).then(|| PathBuf::from(cell::BUBBLEWRAP));
        programs.into_iter().chain(cell).filter(|program| !program_is_here(program))
    }
}

/// The VMs of this machine, and the tasks that run them: the VMs start when these run. A QEMU that an earlier process left running is killed.
pub fn start(common: Common, vms: Vec<VmSettings>) -> Result<(Vec<Vm>, Vec<Task>), VmStartError> {
    if let Some(program) = common.missing_programs().next() {
        return Err(VmStartError::NoProgram(program));
    }
    if !common.unconfined && !cell::is_possible() {
        return Err(VmStartError::NoCell);
    }
    let closed = vms.iter().find_map(identity::unreadable_image);
    if let Some(image) = closed {
        return Err(VmStartError::ClosedImage(image));
    }
    let prepared = prepare(&common.home).map_err(|error| VmStartError::Folder(common.home.clone(), error));
    let common = Common { home: prepared?, ..common };
    orphans::kill(&common.home);
    Ok(unchecked(common, vms))
}

/// The folder of the VMs, as an absolute path, because QEMU is started in the folder of its VM.
fn prepare(home: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(home)?;
    // A QEMU works in its own folder below this one, and cannot go further up, nor to its neighbours.
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700))?;
    std::path::absolute(home)
}

/// The VMs, whether they can work or not.
pub(crate) fn unchecked(common: Common, vms: Vec<VmSettings>) -> (Vec<Vm>, Vec<Task>) {
    let snapshots = Arc::new(Snapshots::new(common));
    let (others, known) = (Arc::clone(&snapshots), vms.clone());
    drop(tokio::task::spawn_blocking(move || others.forget_others(&known)));
    vms.into_iter().map(|settings| Vm::new(settings, Arc::clone(&snapshots))).unzip()
}
