//! The cell around a QEMU: a sample that has broken out of its guest finds the programs of the system, the folder of its VM, and nothing else.
//!
//! bubblewrap makes it: namespaces of its own for files, processes, network, messages and the host's name, so that there is no data folder, no
//! control socket, no other VM and no network. Where Weir is root, QEMU is a user of its own in it without any capability; elsewhere the cell is made in a
//! user namespace. It goes with us. Where no cell can be made there are no VMs, unless the configuration says so on purpose.

use super::accelerator::Accelerator;
use super::{Boot, VmSettings, identity};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use tokio::process::Command;

pub(super) const BUBBLEWRAP: &str = "bwrap";
/// Where QEMU finds the folder of its VM.
const INSIDE: &str = "/vm";
/// What a program needs of the system.
const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf"];

/// Whether cells can be made on this machine: found out by making one, once.
pub(super) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut command = std::process::Command::new(BUBBLEWRAP);
        command.args(namespaces()).args(system()).args(["--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// What is put before QEMU's command line.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) settings: &'a VmSettings,
    pub(super) accelerator: Accelerator,
    /// The folder of the VM.
    pub(super) folder: &'a Path,
    pub(super) program: &'a Path,
}

impl Cell<'_> {
    /// A command that starts QEMU in it; its arguments follow.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(BUBBLEWRAP);
        command.args(namespaces());
        if rustix::process::geteuid().is_root() {
            // Just enough to become another user.
            command.args(["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
        }
        command.args(system()).args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        for path in self.more() {
            command.arg("--ro-bind").arg(&path).arg(&path);
        }
        if self.accelerator == Accelerator::Kvm {
            command.args(["--dev-bind", "/dev/kvm", "/dev/kvm"]);
        }
        command.arg("--bind").arg(self.folder).args([INSIDE, "--chdir", INSIDE, "--"]);
        command.args(["setpriv", "--no-new-privs"]).args(identity::words(self.settings, self.accelerator));
        command.arg("--").arg(self.program);
        command
    }

    /// Files that are elsewhere: an image, a QEMU of one's own.
    fn more(&self) -> Vec<PathBuf> {
        let image = match &self.settings.boot {
            Boot::Image(image) => std::path::absolute(image).ok(),
            Boot::Kernel { .. } => None,
        };
        let own = Some(self.program).filter(|path| path.is_absolute() && !path.starts_with("/usr"));
        image.into_iter().chain(own.map(Path::to_owned)).collect()
    }
}

fn namespaces() -> Vec<&'static str> {
    let mut all = vec!["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"];
    all.extend(["--die-with-parent", "--new-session", "--hostname", "vm"]);
    all
}

fn system() -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    for path in SYSTEM {
        match std::fs::read_link(path) {
            Ok(target) => all.extend(["--symlink".into(), target.into_os_string(), path.into()]),
            Err(_) => all.extend(["--ro-bind-try".into(), path.into(), path.into()]),
        }
    }
    all
}

/// The processes below one, the deepest last: the cell has a few of its own before QEMU.
pub(super) fn below(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop().filter(|_| all.len() < 64) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children: Vec<u32> = children.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        all.extend(&children);
        open.extend(children);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Revert;

    /// A program that plays a QEMU that a sample has taken over.
    fn drill(folder: &Path, script: &str) -> String {
        let settings = VmSettings {
            name: "vm1".into(),
            boot: Boot::Kernel { kernel: "/x".into(), initrd: "/x".into() },
            memory_mib: 128,
            tags: Vec::new(),
            plugins: Vec::new(),
            revert: Revert::InPlace,
            root: false,
        };
        let cell = Cell { settings: &settings, accelerator: Accelerator::Tcg, folder, program: Path::new("/bin/sh") };
        let mut command = cell.command().into_std();
        let output = command.args(["-c", script]).stdin(Stdio::null()).output().expect("bubblewrap is here");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    #[test]
    fn who_breaks_out_of_a_guest_finds_nothing() {
        assert!(is_possible(), "bubblewrap works here (tools/setup installs it)");
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("lab/vms/vm1");
        for part in ["lab/vms/vm1", "lab/vms/vm2", "spool"] {
            std::fs::create_dir_all(data.path().join(part)).unwrap();
        }
        std::fs::write(data.path().join("spool/mail"), "secret").unwrap();
        std::fs::write(folder.join("state.qcow2"), "disk").unwrap();
        let user = if rustix::process::geteuid().is_root() { identity::of_qemu_named("vm1") } else { None };
        if let Some(user) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(user)).unwrap();
        }
        let data_folder = data.path().display();
        // No data folder, nobody else's VM, no other process, no interface but its own loopback, no capability.
        assert!(drill(&folder, &format!("ls {data_folder} || echo none")).contains("none"));
        assert_eq!(drill(&folder, "ls /vm; ls /home /root /var /run /srv 2>/dev/null").trim(), "state.qcow2");
        let seen = drill(
            &folder,
            "ls /proc | grep -c '^[0-9]'; tail -n +3 /proc/net/dev | cut -d: -f1; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; id -u",
        );
        let lines: Vec<&str> = seen.lines().map(str::trim).collect();
        assert!(lines[0].parse::<u32>().unwrap() < 8, "{seen}");
        assert_eq!(&lines[1..4], ["lo", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"], "{seen}");
        if let Some(user) = user {
            assert_eq!(lines[4], user.to_string(), "{seen}");
        }
        assert!(drill(&folder, "echo x > /vm/own && echo written").contains("written"), "its own folder is its own");
        assert!(drill(&folder, "echo x > /usr/x || echo refused").contains("refused"));
    }
}
