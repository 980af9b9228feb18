//! A private NATS server on a free port of the loopback.

use crate::spawn_bound;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The server.
#[derive(Debug)]
pub struct Nats {
    folder: tempfile::TempDir,
    more: Vec<String>,
    port: u16,
    server: Mutex<Child>,
}

impl Nats {
    /// A server without passwords.
    pub fn start() -> Nats {
        Nats::with(&[])
    }

    /// A server with further arguments, such as `--user`.
    pub fn with(more: &[&str]) -> Nats {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let more: Vec<String> = more.iter().map(|argument| (*argument).to_owned()).collect();
        let server = serve(folder.path(), "-1", &more);
        let port = port_of(folder.path());
        Nats { folder, more, port, server: Mutex::new(server) }
    }

    /// The address at which it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server without warning.
    pub fn kill(&self) {
        let mut server = self.server.lock().expect("no panic while held");
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Starts it again on the same port.
    pub fn restart(&self) {
        for entry in std::fs::read_dir(self.folder.path()).expect("its folder").flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        *self.server.lock().expect("no panic while held") =
            serve(self.folder.path(), &self.port.to_string(), &self.more);
        port_of(self.folder.path());
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(folder: &Path, port: &str, more: &[String]) -> Child {
    let mut command = Command::new("setpriv");
    command
        .arg("--pdeathsig=KILL")
        .arg(program())
        .args(["-a", "127.0.0.1", "-p", port, "--ports_file_dir"])
        .arg(folder);
    command.args(more).stdout(Stdio::null()).stderr(Stdio::null());
    spawn_bound(command)
}

/// Reads the port from the file that the server writes when it is ready.
fn port_of(folder: &Path) -> u16 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let file = std::fs::read_dir(folder).ok().into_iter().flatten().flatten().map(|entry| entry.path());
        let file = file.filter(|path| path.extension().is_some_and(|ext| ext == "ports")).max();
        let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let digits = text.split("nats://127.0.0.1:").nth(1).unwrap_or_default();
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(port) = digits.parse() {
            return port;
        }
        assert!(Instant::now() < deadline, "nats-server did not become ready within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn program() -> PathBuf {
    let places = ["/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"];
    let found = places.iter().map(PathBuf::from).find(|place| place.exists());
    found.expect("nats-server is not installed: run `make setup`")
}
