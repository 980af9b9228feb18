//! Golden snapshots: a guest that has booted and whose agent waits. Each is made once and copied for every VM.

use super::accelerator::{self, Accelerator};
use super::qemu::{Qemu, Start};
use super::{Boot, Common, VmSettings, identity};
use sha2::{Digest, Sha256};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{Mutex, OnceCell};

/// A guest of ours boots within this, also without KVM and on a busy machine.
const BOOT_MAX: Duration = Duration::from_secs(180);
/// Somebody else's image may take longer.
const BOOT_MAX_IMAGE: Duration = Duration::from_secs(1800);
/// After the agent has answered, what the kernel still has to do in the background.
const SETTLE: Duration = Duration::from_millis(300);
/// Changes when the way of starting QEMU changes: a snapshot fits one set of devices.
const DEVICES: &str = "1";

/// The golden snapshots of this machine.
#[derive(Debug)]
pub(super) struct Goldens {
    common: Common,
    accelerator: OnceCell<Accelerator>,
    version: OnceCell<String>,
    /// One is made at a time.
    making: Mutex<()>,
}

impl Goldens {
    pub(super) fn new(common: Common) -> Goldens {
        Goldens { common, accelerator: OnceCell::new(), version: OnceCell::new(), making: Mutex::new(()) }
    }

    pub(super) fn common(&self) -> &Common {
        &self.common
    }

    /// With what guests run here.
    pub(super) async fn accelerator(&self, settings: &VmSettings) -> Accelerator {
        *self.accelerator.get_or_init(|| accelerator::find(self, settings)).await
    }

    /// The folder of a VM.
    pub(super) fn folder(&self, settings: &VmSettings) -> PathBuf {
        self.common.home.join(&settings.name)
    }

    /// A fresh copy of the snapshot in the folder of a VM.
    pub(super) async fn copy(&self, settings: &VmSettings) -> io::Result<PathBuf> {
        let accelerator = self.accelerator(settings).await;
        let limit = if matches!(settings.boot, Boot::Image(_)) { BOOT_MAX_IMAGE } else { BOOT_MAX };
        let golden = self.make(settings, accelerator, limit).await?;
        let folder = self.folder(settings);
        std::fs::create_dir_all(&folder)?;
        let (settings, to) = (settings.clone(), folder.clone());
        let furnished = tokio::task::spawn_blocking(move || {
            std::fs::copy(golden, to.join("state.qcow2"))?;
            furnish(&settings, &to, accelerator)
        });
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
        let golden = self.path(settings, accelerator).await?;
        if golden.exists() {
            return Ok(golden);
        }
        tracing::info!(vm = settings.name, accelerator = accelerator.name(), "a guest boots to become a snapshot");
        let folder = self.common.home.join(".making");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let made = self.boot(settings, accelerator, &folder, limit).await;
        let kept = made.and_then(|()| std::fs::rename(folder.join("state.qcow2"), &golden));
        let _ = std::fs::remove_dir_all(&folder);
        kept.map(|()| golden)
    }

    async fn boot(
        &self,
        settings: &VmSettings,
        accelerator: Accelerator,
        folder: &Path,
        limit: Duration,
    ) -> io::Result<()> {
        create_disk(settings, folder).await?;
        furnish(settings, folder, accelerator)?;
        let (program, folder) = (self.common.qemu.as_path(), folder.to_owned());
        let mut qemu = Qemu::start(Start { program, settings, accelerator, folder, restored: false }).await?;
        let answered = async {
            let hello = qemu.line()?.hello();
            tokio::time::timeout(limit, hello).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        };
        if let Err(error) = answered.await {
            let console = qemu.console().await;
            return Err(io::Error::other(format!("the guest did not come up ({error}); its console: {console}")));
        }
        tokio::time::sleep(SETTLE).await;
        qemu.keep().await?;
        qemu.quit().await
    }

    /// Forgets a snapshot that does not work: the next one who wants it makes another.
    pub(super) async fn remove(&self, settings: &VmSettings) {
        let accelerator = self.accelerator(settings).await;
        if let Ok(golden) = self.path(settings, accelerator).await {
            let _ = std::fs::remove_file(golden);
        }
    }

    async fn path(&self, settings: &VmSettings, accelerator: Accelerator) -> io::Result<PathBuf> {
        let version = self.version.get_or_try_init(|| version(&self.common.qemu)).await?;
        Ok(self.common.home.join(name(settings, accelerator, version)?))
    }

    /// Removes snapshots that no VM of these has.
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
        let is_golden = |name: &str| name.starts_with("golden-") && name.ends_with(".qcow2");
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_golden(&name) && !known.contains(&Some(name)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The name of a snapshot: another guest, memory, program or accelerator has another.
fn name(settings: &VmSettings, accelerator: Accelerator, version: &str) -> io::Result<String> {
    let mut hash = Sha256::new();
    let files: Vec<&PathBuf> = match &settings.boot {
        Boot::Kernel { kernel, initrd } => vec![kernel, initrd],
        Boot::Image(image) => vec![image],
    };
    for path in files {
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

/// Puts what QEMU opens into the folder where it works, as its own if it is not root.
fn furnish(settings: &VmSettings, folder: &Path, accelerator: Accelerator) -> io::Result<()> {
    if let Boot::Kernel { kernel, initrd } = &settings.boot {
        for (from, name) in [(kernel, "vmlinuz"), (initrd, "initrd")] {
            let to = folder.join(name);
            std::fs::copy(from, &to).map_err(|error| unreadable(from, &error))?;
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644))?;
        }
    }
    if let Some(user) = identity::of_qemu(settings, accelerator) {
        for path in [folder.to_owned(), folder.join("state.qcow2")] {
            std::os::unix::fs::chown(&path, Some(user), Some(user))?;
        }
    }
    Ok(())
}

async fn version(qemu: &Path) -> io::Result<String> {
    let output = Command::new(qemu).arg("--version").kill_on_drop(true).output().await;
    Ok(String::from_utf8_lossy(&output.map_err(|error| unreadable(qemu, &error))?.stdout).into_owned())
}

fn version_now(qemu: &Path) -> io::Result<String> {
    let output = std::process::Command::new(qemu).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
