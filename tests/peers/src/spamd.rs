//! A private SpamAssassin daemon with the rules of its package, on a Unix socket of its own. It asks no other server.

use crate::spawn_bound;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server, with at most two children.
#[derive(Debug)]
pub struct Spamd {
    folder: tempfile::TempDir,
    server: Child,
}

impl Spamd {
    /// Starts one and waits until it listens.
    pub fn start() -> Spamd {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // If it is started as root, it changes to another user, which still needs the folder.
        let opened = Command::new("chmod").arg("777").arg(folder.path()).status();
        assert!(opened.is_ok_and(|status| status.success()));
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig=TERM",
            "spamd",
            "--local",
            "--nouser-config",
            "--max-children=2",
            "--syslog=stderr",
        ]);
        command.arg(format!("--socketpath={}/spamd.sock", folder.path().display())).arg("--socketmode=0666");
        command.arg("--cf=use_bayes 0").env("HOME", folder.path());
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let spamd = Spamd { server: spawn_bound(command), folder };
        let deadline = Instant::now() + Duration::from_secs(120);
        while UnixStream::connect(spamd.socket()).is_err() {
            assert!(Instant::now() < deadline, "spamd did not start: is it installed? Run `make setup`");
            std::thread::sleep(Duration::from_millis(50));
        }
        spamd
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("spamd.sock")
    }
}

impl Drop for Spamd {
    fn drop(&mut self) {
        // Terminated in an orderly way, it ends its children; if it were killed, they would stay.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}
