//! A private Dovecot that checks passwords, on a Unix socket of its own.

use crate::spawn_bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server. It only checks passwords; its users are in a file.
#[derive(Debug)]
pub struct Dovecot {
    folder: tempfile::TempDir,
    server: Option<Child>,
}

impl Dovecot {
    /// Starts one with these users and passwords.
    pub fn start(users: &[(&str, &str)]) -> Dovecot {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines: String = users.iter().map(|(name, password)| format!("{name}:{{PLAIN}}{password}\n")).collect();
        std::fs::write(folder.path().join("users"), lines).expect("users");
        std::fs::write(folder.path().join("dovecot.conf"), configuration(folder.path())).expect("a configuration");
        // Its helper processes run as other users and need access to the folder.
        let opened = Command::new("chmod").arg("755").arg(folder.path()).status();
        assert!(opened.is_ok_and(|status| status.success()));
        let mut dovecot = Dovecot { folder, server: None };
        dovecot.restart();
        dovecot
    }

    /// A field of the only mail in a Maildir whose Message-ID contains `id`, as `doveadm fetch` prints it, without empty lines at its end;
    /// none if there is no such mail yet. No server runs for this.
    pub fn fetch(maildir: &Path, id: &str, field: &str) -> Option<String> {
        let owner = std::fs::metadata(maildir).ok()?.uid().to_string();
        let home = tempfile::tempdir().expect("a temporary folder");
        let configuration = home.path().join("dovecot.conf");
        let (at, mail) = (home.path().display(), maildir.display());
        let lines =
            format!("base_dir = {at}\nlog_path = {at}/log\nmail_location = maildir:{mail}:INDEX=MEMORY\nssl = no\n");
        std::fs::write(&configuration, lines).expect("a configuration");
        run_quietly(Command::new("chown").arg("-R").arg(&owner).arg(home.path()));
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &owner, "--regid", "65534", "--clear-groups", "doveadm", "-c"]).arg(&configuration);
        command
            .args(["-f", "pager", "fetch", field, "HEADER", "Message-ID", id])
            .env("USER", "mail")
            .env("HOME", home.path());
        let output = command.output().expect("doveadm runs: is dovecot-core installed?");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // The output is the name of the field, then its text.
        let text = said.split_once(&format!("{field}:"))?.1;
        let text = text.strip_prefix('\n').or(text.strip_prefix(' ')).unwrap_or(text);
        Some(text.replace("\r\n", "\n").trim_end_matches('\n').to_owned())
    }

    /// The socket for logins.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("run/weir-login")
    }

    /// Stops it, and all processes that it started.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // Terminated in an orderly way, the master ends its helpers; if it were killed, they would stay.
        let _ = Command::new("kill").arg(server.id().to_string()).status();
        let _ = server.wait();
    }

    /// Starts it (again), and waits until it listens.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=TERM", "dovecot", "-F", "-c"]).arg(self.folder.path().join("dovecot.conf"));
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(spawn_bound(command));
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "Dovecot did not start: is dovecot-core installed? Run `make setup`");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets it hang: it runs, but does not answer.
    pub fn freeze(&self) {
        self.signal_all("-STOP");
    }

    /// Ends the hanging.
    pub fn thaw(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, signal: &str) {
        let Some(server) = &self.server else { return };
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &server.id().to_string()]).output();
        let children = String::from_utf8_lossy(&children.expect("ps runs").stdout).into_owned();
        let pids: Vec<&str> = children.split_whitespace().collect();
        let sent = Command::new("kill").arg(signal).arg(server.id().to_string()).args(pids).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        self.thaw();
        self.stop();
    }
}

fn run_quietly(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
}

fn configuration(folder: &Path) -> String {
    let user =
        String::from_utf8_lossy(&Command::new("id").arg("-un").output().expect("id runs").stdout).trim().to_owned();
    let folder = folder.display();
    // No protocols, so nothing listens except the socket below. Our own user takes the place of all of Dovecot's users.
    format!(
        "base_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\nprotocols =\nssl = no\n\
         default_internal_user = {user}\ndefault_login_user = {user}\n\
         auth_mechanisms = plain\nauth_username_format = %Lu\nauth_failure_delay = 1 secs\n\
         passdb {{\n  driver = passwd-file\n  args = scheme=PLAIN {folder}/users\n}}\n\
         userdb {{\n  driver = passwd-file\n  args = {folder}/users\n  default_fields = uid=65534 gid=65534 home=/nonexistent\n}}\n\
         service auth {{\n  user = {user}\n  unix_listener weir-login {{\n    mode = 0666\n  }}\n}}\n\
         service stats {{\n  client_limit = 100\n}}\nservice anvil {{\n  client_limit = 200\n}}\n"
    )
}
