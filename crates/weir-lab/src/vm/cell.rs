//! The sandbox (*cell*) around a QEMU process. A sample that has broken out of its guest finds only the programs of the system and the
//! folder of its VM.
//!
//! bubblewrap makes it: namespaces of its own for files, processes, network, messages and the host's name, so that there is no data folder, no
//! control socket, no other VM and no network. If Weir is root, QEMU runs in it as a user of its own without any capability; otherwise the
//! cell is made in a user namespace. The cell ends with our process. If no cell can be made, there are no VMs, unless the configuration
//! explicitly allows VMs without one.

use super::accelerator::Accelerator;
use super::{Boot, VmSettings, identity};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use tokio::process::Command;

pub(super) const BUBBLEWRAP: &str = "bwrap";
/// The path of the VM's folder, as QEMU sees it.
const INSIDE: &str = "/vm";
/// What a program needs of the system.
const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf"];

/// Whether sandboxes for QEMU can be made on this machine: found out by making one, once.
pub(super) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut command = std::process::Command::new(BUBBLEWRAP);
        command.args(namespaces()).args(system()).args(["--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// The sandbox around QEMU: what is put before its command line.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) settings: &'a VmSettings,
    pub(super) accelerator: Accelerator,
    /// The folder of the VM.
    pub(super) folder: &'a Path,
    pub(super) program: &'a Path,
}

impl Cell<'_> {
    /// A command that starts QEMU in it; QEMU's arguments are appended.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(BUBBLEWRAP);
        command.args(self.words(rustix::process::geteuid().is_root()));
        command
    }

    /// The arguments of `bwrap`, for root or for an ordinary user.
    fn words(&self, root: bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        say(&namespaces());
        if root {
            // Only what is needed to become another user.
            say(&["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
        }
        words.extend(system());
        let mut say = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        say(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        if self.accelerator == Accelerator::Kvm {
            say(&["--dev-bind", "/dev/kvm", "/dev/kvm"]);
        }
        for path in self.more() {
            words.extend(["--ro-bind".into(), path.clone().into_os_string(), path.into_os_string()]);
        }
        words.extend([OsString::from("--bind"), self.folder.as_os_str().to_owned()]);
        words.extend([INSIDE, "--chdir", INSIDE, "--", "setpriv", "--no-new-privs"].map(OsString::from));
        if root {
            words.extend(identity::words(self.settings, self.accelerator).into_iter().map(OsString::from));
        }
        words.extend([OsString::from("--"), self.program.as_os_str().to_owned()]);
        words
    }

    /// Files that are elsewhere: an image, or a QEMU in another place.
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

/// The processes below one, the deepest last: the sandbox has a few of its own before QEMU.
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
    use crate::vm::{Guests, VmRule};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::SocketAddr;

    /// A user who is not root; root can act as this user.
    const ORDINARY: u32 = 65_534;

    /// The output of a script that plays a QEMU which a sample has taken over: in its sandbox, with its user, its folder and its namespaces.
    fn drill(rule: &str, folder: &Path, root: bool, script: &str) -> String {
        let guests = Guests { linux: Some("/x".into()), windows: Some("/x".into()) };
        let settings = rule.parse::<VmRule>().unwrap().settings(&guests).unwrap();
        let program = Path::new("/usr/bin/python3");
        let cell = Cell { settings: &settings, accelerator: Accelerator::Tcg, folder, program };
        let mut command = std::process::Command::new("setpriv");
        if !root && rustix::process::geteuid().is_root() {
            let user = ORDINARY.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg("--").arg(BUBBLEWRAP).args(cell.words(root));
        let output = command.args(["-c", script]).stdin(Stdio::null()).output().expect("bubblewrap is here");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// What the script finds, each on a line: none of the things that it must not find.
    const BURGLAR: &str = r#"
import ctypes, os, socket, sys
data, port, outer = DATA, PORT, OUTER
def found(what, act):
    try:
        got = act()
        print("FOUND " + what + ": " + str(got))
    except Exception as error:
        print("no " + what)
def connect(kind, where):
    s = socket.socket(kind, socket.SOCK_STREAM); s.settimeout(2); s.connect(where); return where
found("data folder", lambda: os.listdir(data))
found("mail", lambda: open(data + "/spool/mail").read())
found("other VM", lambda: open(data + "/lab/vms/vm2/state.qcow2").read())
found("control socket", lambda: connect(socket.AF_UNIX, data + "/control.sock"))
found("abstract socket", lambda: connect(socket.AF_UNIX, "\0weir-drill-" + str(port)))
found("network", lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
found("interface", lambda: [n for _, n in socket.if_nameindex() if n != "lo"] or 1/0)
found("outer process", lambda: os.kill(outer, 0))
found("its memory", lambda: open("/proc/%d/environ" % outer).read())
found("capability", lambda: [l for l in open("/proc/self/status") if l.startswith("CapEff") and l.split()[1].strip("0")] or 1/0)
found("mount", lambda: 1 if ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 else 1/0)
found("home", lambda: [d for d in ("/home", "/root", "/var", "/run", "/srv", "/etc/shadow") if os.path.exists(d)] or 1/0)
found("other process", lambda: [p for p in os.listdir("/proc") if p.isdigit() and int(p) > 20] or 1/0)
found("written system", lambda: open("/usr/x", "w"))
open("/vm/own", "w").write("x")
print("own folder: " + ",".join(sorted(os.listdir("/vm"))), "user: %d" % os.getuid())
"#;

    #[test]
    fn who_breaks_out_of_a_guest_finds_nothing() {
        assert!(is_possible(), "bubblewrap works here (tools/setup installs it)");
        let data = tempfile::tempdir().unwrap();
        // Even if everybody is allowed to enter.
        std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for part in ["lab/vms/vm1", "lab/vms/vm2", "spool"] {
            std::fs::create_dir_all(data.path().join(part)).unwrap();
        }
        for (name, content) in [("spool/mail", "secret"), ("lab/vms/vm2/state.qcow2", "other disk")] {
            std::fs::write(data.path().join(name), content).unwrap();
        }
        let folder = data.path().join("lab/vms/vm1");
        std::fs::write(folder.join("state.qcow2"), "disk").unwrap();
        let _control = std::os::unix::net::UnixListener::bind(data.path().join("control.sock")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let name = SocketAddr::from_abstract_name(format!("weir-drill-{port}")).unwrap();
        let _abstract = std::os::unix::net::UnixListener::bind_addr(&name).unwrap();
        let script = BURGLAR.replace("DATA", &format!("{:?}", data.path())).replace("PORT", &port.to_string());
        let script = script.replace("OUTER", &std::process::id().to_string());

        let is_root = rustix::process::geteuid().is_root();
        let users = [true, false].into_iter().filter(|root| is_root || !root);
        for (rule, root) in users.flat_map(|root| [("vm1", root), ("vm1 system=windows", root)]) {
            let user = if root { identity::of_qemu_named("vm1").unwrap() } else { ORDINARY };
            if is_root {
                std::os::unix::fs::chown(&folder, Some(user), Some(user)).unwrap();
            }
            let seen = drill(rule, &folder, root, &script);
            eprintln!("{rule} as {}:\n{seen}", if root { "root" } else { "an ordinary user" });
            assert!(!seen.contains("FOUND"), "{seen}");
            assert_eq!(seen.lines().filter(|line| line.starts_with("no ")).count(), 14, "{seen}");
            let own = seen.lines().last().unwrap_or_default();
            assert!(own.starts_with("own folder: own,state.qcow2"), "{seen}");
            assert!(!is_root || own.ends_with(&format!("user: {user}")), "{seen}");
            std::fs::remove_file(folder.join("own")).unwrap();
        }
    }
}
