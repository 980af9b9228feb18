//! Snapshots: a guest that has booted and whose agent waits. Each is made once and copied for every VM.

use super::accelerator::{Accelerator, Choice, KvmFailure};
use super::qemu::{Qemu, Start};
use super::{Boot, Common, DISK, VmSettings, host_ticks, identity};
use sha2::{Digest, Sha256};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::sync::{Mutex, OnceCell};

/// A guest of ours boots within this time, also with Windows in it, without KVM and on a busy machine.
const BOOT_MAX: Duration = Duration::from_secs(1200);
/// The image of somebody else may take longer.
const BOOT_MAX_IMAGE: Duration = Duration::from_secs(1800);
/// The pause after the agent has answered, for what the kernel still does in the background. During it the guest's clock is compared with
/// ours.
const SETTLE: Duration = Duration::from_secs(2);
/// How much faster or slower a guest's clock may seem, in hundredths, because answers of a busy machine come late.
const PACE: std::ops::RangeInclusive<u128> = 60..=160;
/// A guest measures the speed of its clock when it boots, and on a busy machine the result may be wrong. Then it is booted again, at most
/// this often.
const BOOTS_MAX: u32 = 3;
/// Changes when the way of starting QEMU changes, because a snapshot fits one set of devices only.
const DEVICES: &str = "3";

/// A guest that can boot with KVM does so within this time.
const TEST_BOOT: Duration = Duration::from_secs(15);
/// The guest with Windows in it is recognised by its large disk, and starts much more.
const LARGE: u64 = 200 << 20;
const TEST_BOOT_LARGE: Duration = Duration::from_secs(120);
/// Somebody else's image may take longer.
const TEST_BOOT_IMAGE: Duration = Duration::from_secs(300);

/// The snapshots of this machine.
#[derive(Debug)]
pub(super) struct Snapshots {
    common: Common,
    accelerator: OnceCell<Accelerator>,
    version: OnceCell<String>,
    /// Held while one is made, so that one is made at a time.
    making: Mutex<()>,
}

impl Snapshots {
    pub(super) fn new(common: Common) -> Snapshots {
        Snapshots { common, accelerator: OnceCell::new(), version: OnceCell::new(), making: Mutex::new(()) }
    }

    pub(super) fn common(&self) -> &Common {
        &self.common
    }

    /// How guests are run here.
    pub(super) async fn accelerator(&self, settings: &VmSettings) -> Accelerator {
        *self.accelerator.get_or_init(|| self.find_accelerator(settings)).await
    }

    /// Finds out what works, once for each start of this machine: a failed test boot is remembered.
    async fn find_accelerator(&self, settings: &VmSettings) -> Accelerator {
        if let Choice::Fixed(accelerator) = self.common.accelerator {
            return accelerator;
        }
        let opened = std::fs::File::options().read(true).write(true).open("/dev/kvm");
        let failure = KvmFailure::of(&self.common.home);
        if opened.is_err() || failure.is_known() {
            return Accelerator::Tcg;
        }
        let is_large =
            settings.boot.disk().and_then(|disk| disk.metadata().ok()).is_some_and(|disk| disk.len() > LARGE);
        let limit = match &settings.boot {
            Boot::Image(_) => TEST_BOOT_IMAGE,
            Boot::Kernel { .. } if is_large => TEST_BOOT_LARGE,
            Boot::Kernel { .. } => TEST_BOOT,
        };
        match self.make(settings, Accelerator::Kvm, limit).await {
            Ok(_) => Accelerator::Kvm,
            Err(error) => {
                tracing::warn!(%error, "KVM is there and does not work: VMs run with TCG");
                failure.remember();
                Accelerator::Tcg
            }
        }
    }

    pub(super) fn folder(&self, settings: &VmSettings) -> PathBuf {
        self.common.home.join(&settings.name)
    }

    /// A new copy of the snapshot in the folder of a VM.
    pub(super) async fn copy(&self, settings: &VmSettings) -> io::Result<PathBuf> {
        let accelerator = self.accelerator(settings).await;
        let limit = if matches!(settings.boot, Boot::Image(_)) { BOOT_MAX_IMAGE } else { BOOT_MAX };
        let snapshot = self.make(settings, accelerator, limit).await?;
        let folder = self.folder(settings);
        let (settings, to) = (settings.clone(), folder.clone());
        let furnished = tokio::task::spawn_blocking(move || lay_out(&snapshot, &settings, &to, accelerator));
        furnished.await.map_err(io::Error::other)??;
        Ok(folder)
    }

    /// Makes the snapshot, if there is none yet.
    pub(super) async fn make(
        &self,
        settings: &VmSettings,
        accelerator: Accelerator,
        limit: Duration,
    ) -> io::Result<PathBuf> {
        let _one_at_a_time = self.making.lock().await;
        let snapshot = self.path(settings, accelerator).await?;
        if snapshot.exists() {
            return Ok(snapshot);
        }
        tracing::info!(vm = settings.name, accelerator = accelerator.name(), "a guest boots to become a snapshot");
        let folder = self.common.home.join(".making");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let ticks_khz = if accelerator == Accelerator::Tcg { host_ticks::khz() } else { None };
        let mut made = self.boot(settings, accelerator, ticks_khz, &folder, limit).await;
        for _ in 1..BOOTS_MAX {
            if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
                tracing::info!(vm = settings.name, "the guest's clock runs at the wrong speed: it is booted again");
                // What it was told about its clock may be the reason.
                made = self.boot(settings, accelerator, None, &folder, limit).await;
            }
        }
        let kept = made.and_then(|()| keep(&folder.join("state.qcow2"), &snapshot));
        let _ = std::fs::remove_dir_all(&folder);
        kept.map(|()| snapshot)
    }

    async fn boot(
        &self,
        settings: &VmSettings,
        accelerator: Accelerator,
        ticks_khz: Option<u64>,
        folder: &Path,
        limit: Duration,
    ) -> io::Result<()> {
        let _ = std::fs::remove_file(folder.join(DISK));
        create_disk(settings, folder).await?;
        furnish(settings, folder, accelerator)?;
        let (program, folder) = (self.common.qemu.as_path(), folder.to_owned());
        let unconfined = self.common.unconfined;
        let start = Start { program, settings, accelerator, folder, restored: false, ticks_khz, unconfined };
        let mut qemu = Qemu::start(start).await?;
        let answered = async {
            let hello = qemu.agent()?.hello();
            tokio::time::timeout(limit, hello).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        };
        if let Err(error) = answered.await {
            let console = qemu.console().await;
            return Err(io::Error::other(format!("the guest did not come up ({error}); its console: {console}")));
        }
        keeps_time(&mut qemu).await?;
        qemu.keep().await?;
        qemu.quit().await
    }

    /// Removes a snapshot that does not work: another is made when it is next needed.
    pub(super) async fn remove(&self, settings: &VmSettings) {
        let accelerator = self.accelerator(settings).await;
        if let Ok(snapshot) = self.path(settings, accelerator).await {
            let _ = std::fs::remove_file(snapshot);
        }
    }

    async fn path(&self, settings: &VmSettings, accelerator: Accelerator) -> io::Result<PathBuf> {
        let version = self.version.get_or_try_init(|| version(&self.common.qemu)).await?;
        Ok(self.common.home.join(name(settings, accelerator, version)?))
    }

    /// Removes snapshots that none of these VMs use.
    pub(super) fn forget_others(&self, vms: &[VmSettings]) {
        let mut known = Vec::new();
        if let Ok(version) = version_now(&self.common.qemu) {
            for vm in vms {
                known.extend(
                    [Accelerator::Kvm, Accelerator::Tcg].map(|accelerator| name(vm, accelerator, &version).ok()),
                );
            }
        }
        let entries = std::fs::read_dir(&self.common.home).into_iter().flatten().flatten();
        let is_snapshot = |name: &str| name.starts_with("golden-") && name.ends_with(".qcow2");
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_snapshot(&name) && !known.contains(&Some(name)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Checks that the guest's clock runs as fast as ours, because it decides how long a sample is watched.
async fn keeps_time(qemu: &mut Qemu) -> io::Result<()> {
    let first = qemu.agent()?.hello().await?.clock_ns;
    let begun = Instant::now();
    tokio::time::sleep(SETTLE).await;
    let second = qemu.agent()?.hello().await?.clock_ns;
    let ours = begun.elapsed().as_nanos().max(1);
    let pace = first.zip(second).map(|(first, second)| u128::from(second.saturating_sub(first)) * 100 / ours);
    match pace.filter(|pace| !PACE.contains(pace)) {
        Some(pace) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the guest's clock runs at {pace} %"))),
        None => Ok(()),
    }
}

/// The name of a snapshot: it differs for another guest, memory, program or accelerator.
fn name(settings: &VmSettings, accelerator: Accelerator, version: &str) -> io::Result<String> {
    let mut hash = Sha256::new();
    let files: Vec<&PathBuf> = match &settings.boot {
        Boot::Kernel { kernel, initrd } => vec![kernel, initrd],
        Boot::Image(image) => vec![image],
    };
    for path in files.into_iter().chain(settings.boot.disk().as_ref()) {
        let about = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        hash.update(format!("{}\0{}\0{}.{}\0", path.display(), about.len(), about.mtime(), about.mtime_nsec()));
    }
    hash.update(format!("{} {} {version} {DEVICES}", settings.memory_mib, accelerator.name()));
    let hash = weir_store::hex(&hash.finalize()[..8]);
    Ok(format!("golden-{hash}.qcow2"))
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A disk that the snapshot is kept in; for an image what differs from it.
async fn create_disk(settings: &VmSettings, folder: &Path) -> io::Result<()> {
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2"]);
    match &settings.boot {
        Boot::Image(image) => {
            command.args(["-F", "qcow2", "-b"]).arg(std::path::absolute(image)?).arg("state.qcow2");
        }
        Boot::Kernel { .. } => {
            command.args(["state.qcow2", "1M"]);
        }
    }
    let done = command.current_dir(folder).kill_on_drop(true).output().await;
    let done = done.map_err(|error| unreadable(Path::new("qemu-img"), &error))?;
    let said = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(()) } else { Err(io::Error::other(format!("qemu-img: {}", said()))) }
}

/// Makes the finished snapshot readable for us only: a sample may have taken over its QEMU, and must not reach the files from which the other
/// VMs start.
fn keep(made: &Path, snapshot: &Path) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::os::unix::fs::lchown(made, Some(user), Some(group))?;
    std::fs::set_permissions(made, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(made, snapshot)
}

/// The folder of a VM with everything in it. The old folder belonged to QEMU, which may have left links in it. So the folder is made again,
/// and given to QEMU's user last.
fn lay_out(snapshot: &Path, settings: &VmSettings, folder: &Path, accelerator: Accelerator) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unreadable(folder, &error)),
        _ => {}
    }
    std::fs::create_dir(folder)?;
    std::fs::copy(snapshot, folder.join("state.qcow2"))?;
    furnish(settings, folder, accelerator)
}

/// Puts the files that QEMU opens into its working directory, owned by its user if it is not root.
fn furnish(settings: &VmSettings, folder: &Path, accelerator: Accelerator) -> io::Result<()> {
    if let Boot::Kernel { kernel, initrd } = &settings.boot {
        for (from, name) in [(kernel, "vmlinuz"), (initrd, "initrd")] {
            let to = folder.join(name);
            std::fs::copy(from, &to).map_err(|error| unreadable(from, &error))?;
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644))?;
        }
    }
    if let Some(disk) = settings.boot.disk() {
        lend(&disk, &folder.join(DISK), settings, accelerator).map_err(|error| unreadable(&disk, &error))?;
    }
    if let Some(user) = identity::of_qemu(settings, accelerator) {
        for path in [folder.join("state.qcow2"), folder.to_owned()] {
            std::os::unix::fs::lchown(&path, Some(user), Some(user))?;
        }
    }
    Ok(())
}

/// Gives a VM the disk that all of them read. It is the same file only if QEMU runs as another user and cannot write to it.
fn lend(disk: &Path, to: &Path, settings: &VmSettings, accelerator: Accelerator) -> io::Result<()> {
    let is_other = identity::of_qemu(settings, accelerator).is_some();
    let is_readable = std::fs::metadata(disk)?.mode() & 0o004 != 0;
    if is_other && is_readable && std::fs::hard_link(disk, to).is_ok() {
        return Ok(());
    }
    std::fs::copy(disk, to)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o444))
}

async fn version(qemu: &Path) -> io::Result<String> {
    let output = Command::new(qemu).arg("--version").kill_on_drop(true).output().await;
    Ok(String::from_utf8_lossy(&output.map_err(|error| unreadable(qemu, &error))?.stdout).into_owned())
}

fn version_now(qemu: &Path) -> io::Result<String> {
    let output = std::process::Command::new(qemu).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Revert;

    #[test]
    fn what_a_qemu_left_in_its_folder_leads_nowhere() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let settings = VmSettings {
            name: "vm1".into(),
            boot: Boot::Kernel { kernel: path("kernel"), initrd: path("kernel") },
            memory_mib: 128,
            tags: Vec::new(),
            plugins: Vec::new(),
            revert: Revert::InPlace,
            root: false,
        };
        for name in ["kernel", "golden", "victim"] {
            std::fs::write(path(name), name).unwrap();
        }
        std::fs::create_dir(path("vm1")).unwrap();
        for name in ["state.qcow2", "vmlinuz", "initrd"] {
            std::os::unix::fs::symlink(path("victim"), path("vm1").join(name)).unwrap();
        }
        let owner = std::fs::metadata(path("victim")).unwrap().uid();
        lay_out(&path("golden"), &settings, &path("vm1"), Accelerator::Tcg).unwrap();
        let victim = std::fs::metadata(path("victim")).unwrap();
        assert_eq!((std::fs::read_to_string(path("victim")).unwrap().as_str(), victim.uid()), ("victim", owner));
        assert_eq!(std::fs::read_to_string(path("vm1/state.qcow2")).unwrap(), "golden");
        // It cannot write to the files from which all VMs start, either.
        let made = path("vm1/state.qcow2");
        keep(&made, &path("kept")).unwrap();
        let kept = std::fs::metadata(path("kept")).unwrap();
        assert_eq!((kept.mode() & 0o777, kept.uid()), (0o600, rustix::process::geteuid().as_raw()));
    }
}
