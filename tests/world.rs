//! A root of its own for a script, made by bubblewrap: it can read the programs of this machine, has an empty network, and everything else
//! is new. Ports such as 80 are free there, and files such as /etc/nginx belong to the test.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The world, before a script runs in it.
pub(crate) struct World {
    command: Command,
    etc: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        let etc = tempfile::tempdir().expect("a temporary folder");
        // The users of this machine, except the one that only an installed Weir adds.
        for name in ["passwd", "group"] {
            let text = fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
            let kept: String =
                text.lines().filter(|line| !line.starts_with("weir:")).map(|line| format!("{line}\n")).collect();
            fs::write(etc.path().join(name), kept).expect("it is ours");
        }
        let mut command = Command::new("bwrap");
        command.args(["--die-with-parent", "--unshare-net", "--unshare-pid", "--cap-add", "ALL"]);
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
        for path in [
            "/usr",
            "/etc/alternatives",
            "/etc/ssl",
            "/etc/perl",
            "/etc/ld.so.cache",
            "/etc/services",
            "/etc/protocols",
            "/etc/nsswitch.conf",
        ] {
            command.args(["--ro-bind-try", path, path]);
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            command.args(["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
        }
        for folder in
            ["/etc/weir", "/var/lib", "/var/log", "/var/backups", "/var/spool", "/var/tmp", "/srv", "/home/you"]
        {
            command.args(["--dir", folder]);
        }
        command.args([
            "--clearenv",
            "--setenv",
            "PATH",
            "/usr/local/bin:/usr/bin:/usr/sbin",
            "--setenv",
            "HOME",
            "/home/you",
        ]);
        let mut world = World { command, etc };
        fs::write(world.etc.path().join("resolv.conf"), "nameserver 127.0.0.1\n").expect("it is ours");
        fs::write(world.etc.path().join("hosts"), "127.0.0.1 localhost\n").expect("it is ours");
        for name in ["passwd", "group", "resolv.conf", "hosts"] {
            let from = world.etc.path().join(name);
            world.read(&from, &format!("/etc/{name}"));
        }
        world
    }

    /// A path of this machine that the script may change.
    pub(crate) fn bind(&mut self, from: &Path, to: &str) -> &mut World {
        self.command.arg("--bind").arg(from).arg(to);
        self
    }

    /// A path of this machine that the script may read.
    pub(crate) fn read(&mut self, from: &Path, to: &str) -> &mut World {
        self.command.arg("--ro-bind").arg(from).arg(to);
        self
    }

    /// Runs a bash script to its end.
    pub(crate) fn run(&mut self, script: &str) -> Output {
        self.command.args(["bash", "-c", script]).stdin(Stdio::null());
        self.command.output().expect("bwrap is needed: run `make setup`")
    }
}
