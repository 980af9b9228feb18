//! What a plugin sees of the machine: the system's programs, its own folder and its job, all read-only except `output/`, and a `/tmp` and a
//! `/dev/shm` of its own, both bounded.
//!
//! Nothing else is there: no home, no data folder, no keys, no other sample. bubblewrap makes the view where it works; otherwise this
//! module makes it from the same list.

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What programs need of a system; of its settings only those for finding libraries and for the clock.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];
/// Where the old root is while the new one is made.
const OLD: &str = "/.old";

/// What is visible in the sandbox, and where the plugin works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::dispatcher) struct View {
    /// Only readable. What does not exist outside does not exist inside.
    reads: Vec<BindMount>,
    /// The working directory.
    job: PathBuf,
    /// The one folder that can be written.
    pub(super) output: Option<BindMount>,
    /// The size of `/tmp`, and that of `/dev/shm`.
    pub(super) tmp_bytes: u64,
}

/// A file or folder of the machine, and where it is visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BindMount {
    from: PathBuf,
    to: PathBuf,
}

impl BindMount {
    /// With its own name. Links on the way to it need not exist inside.
    fn own(path: &Path) -> BindMount {
        let to = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        BindMount { from: to.canonicalize().unwrap_or_else(|_| to.clone()), to }
    }

    /// As it is, even if it is a link.
    fn system(path: &str) -> BindMount {
        BindMount { from: path.into(), to: path.into() }
    }
}

impl View {
    pub(super) fn new(weir: &Path, plugin: &Path, job: &Path, extra: &[&Path]) -> View {
        let own = [weir, plugin, job].into_iter().chain(extra.iter().copied());
        // An empty folder, or the whole machine, is no folder of its own.
        let own = own.filter(|path| path.file_name().is_some()).map(BindMount::own);
        let reads: Vec<BindMount> = SYSTEM.iter().map(|path| BindMount::system(path)).chain(own).collect();
        let job = BindMount::own(job).to;
        View { reads, output: Some(BindMount::own(&job.join("output"))), job, tmp_bytes: 64 << 20 }
    }

    /// The arguments that make bubblewrap show this. One that is root keeps what it needs to become another user.
    pub(super) fn bubblewrap(&self, root: bool) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        let mut say =
            |words: &[&dyn AsRef<std::ffi::OsStr>]| all.extend(words.iter().map(|word| word.as_ref().to_owned()));
        say(&[&"--unshare-ipc", &"--unshare-pid", &"--unshare-net", &"--unshare-uts", &"--unshare-cgroup-try"]);
        say(&[&"--die-with-parent", &"--new-session", &"--hostname", &"weir"]);
        if root {
            say(&[&"--cap-drop", &"ALL", &"--cap-add", &"CAP_SETUID", &"--cap-add", &"CAP_SETGID"]);
        }
        let size = self.tmp_bytes.to_string();
        say(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
        say(&[&"--perms", &"1777", &"--size", &size, &"--tmpfs", &"/dev/shm", &"--remount-ro", &"/dev"]);
        say(&[&"--perms", &"1777", &"--size", &size, &"--tmpfs", &"/tmp"]);
        // Folders on the way to what is shown would not be accessible to other users if they were created implicitly.
        let on_the_way: BTreeSet<&Path> = self.reads.iter().flat_map(|shown| shown.to.ancestors().skip(1)).collect();
        for folder in on_the_way.into_iter().filter(|folder| folder.file_name().is_some()) {
            say(&[&"--perms", &"0755", &"--dir", &folder]);
        }
        for BindMount { from, to } in &self.reads {
            match fs::read_link(from) {
                Ok(target) => say(&[&"--symlink", &target, to]),
                Err(_) => say(&[&"--ro-bind-try", from, to]),
            }
        }
        if let Some(BindMount { from, to }) = &self.output {
            say(&[&"--bind", from, to]);
        }
        say(&[&"--remount-ro", &"/", &"--chdir", &self.job]);
        all
    }

    /// Makes this the root of this process, which must be the first one of its namespaces.
    pub(super) fn make(&self) -> io::Result<()> {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        // Every system has this folder. What is below it becomes visible again when the root has changed.
        tmpfs("/tmp", "mode=755")?;
        fs::create_dir(format!("/tmp{OLD}"))?;
        rustix::process::pivot_root("/tmp", format!("/tmp{OLD}"))?;
        std::env::set_current_dir("/")?;
        let old = |path: &Path| Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path));
        folder("/proc", 0o755)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("proc", "/proc", "proc", flags, None::<&CStr>)?;
        devices(&old(Path::new("/dev")), self.tmp_bytes)?;
        folder("/tmp", 0o755)?;
        tmpfs("/tmp", &format!("mode=1777,size={}", self.tmp_bytes))?;
        for BindMount { from, to } in &self.reads {
            show(&old(from), to, MountFlags::RDONLY)?;
        }
        if let Some(BindMount { from, to }) = &self.output {
            show(&old(from), to, MountFlags::empty())?;
        }
        rustix::mount::unmount(OLD, UnmountFlags::DETACH)?;
        fs::remove_dir(OLD)?;
        rustix::mount::mount_remount(
            "/",
            MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
            "",
        )?;
        std::env::set_current_dir(&self.job)
    }
}

/// Shows `from` at `to`; a link stays a link, and what does not exist is left out.
fn show(from: &Path, to: &Path, more: MountFlags) -> io::Result<()> {
    let Ok(what) = fs::symlink_metadata(from) else { return Ok(()) };
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    if what.is_symlink() {
        // A path that is below another of the list exists already.
        return symlink(fs::read_link(from)?, to).or_else(|error| if to.exists() { Ok(()) } else { Err(error) });
    }
    if what.is_dir() {
        fs::create_dir_all(to)?;
    } else if !to.exists() {
        fs::write(to, "")?;
    }
    rustix::mount::mount_bind_recursive(from, to)?;
    // What the mount outside forbids stays forbidden, because without being root nobody may change that.
    let kept = rustix::fs::statvfs(to)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV | more;
    let same = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    same.into_iter().filter(|(is, _)| kept.contains(*is)).for_each(|(_, flag)| flags |= flag);
    rustix::mount::mount_remount(to, flags, "")?;
    Ok(())
}

/// The devices that any program may use, and shared memory of its own.
fn devices(from: &Path, tmp_bytes: u64) -> io::Result<()> {
    folder("/dev", 0o755)?;
    for name in DEVICES {
        let to = Path::new("/dev").join(name);
        fs::write(&to, "")?;
        rustix::mount::mount_bind(from.join(name), &to)?;
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(target), Path::new("/dev").join(name))?;
    }
    folder("/dev/shm", 0o755)?;
    tmpfs("/dev/shm", &format!("mode=1777,size={tmp_bytes}"))
}

fn tmpfs(at: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options).map_err(io::Error::other)?;
    Ok(rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?)
}

fn folder(at: &str, mode: u32) -> io::Result<()> {
    fs::create_dir(at)?;
    fs::set_permissions(at, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_shown() {
        let view =
            View::new(Path::new("/opt/weir"), Path::new(""), Path::new("/data/jobs/7"), &[Path::new("/run/c.sock")]);
        let reads: Vec<&str> = view.reads.iter().map(|shown| shown.to.to_str().unwrap()).collect();
        assert!(reads.contains(&"/run/c.sock") && reads.contains(&"/data/jobs/7"));
        assert!(!reads.iter().any(|path| ["/", "", "/data", "/etc", "/home", "/root", "/var"].contains(path)));
        let said = view.bubblewrap(true);
        let said: Vec<&str> = said.iter().map(|word| word.to_str().unwrap()).collect();
        let writable: Vec<_> = said.windows(3).filter(|words| words[0] == "--bind").collect();
        assert_eq!(writable, [["--bind", "/data/jobs/7/output", "/data/jobs/7/output"]]);
        assert!(
            said.contains(&"--unshare-net") && said.contains(&"--unshare-pid") && said.contains(&"--die-with-parent")
        );
        assert!(said.ends_with(&["--remount-ro", "/", "--chdir", "/data/jobs/7"]));
    }
}
