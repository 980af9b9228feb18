//! A private clamd with a handful of signatures of its own; nothing is downloaded.

use crate::{free_port, spawn_bound};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's test files, all of which contain the same small program.
pub const TEST_FILES: &str = "/usr/share/clamav-testfiles";

/// The server, on a Unix socket and on a port of loopback.
#[derive(Debug)]
pub struct Clamd {
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
}

impl Clamd {
    /// Starts one that knows EICAR and the test files' program.
    pub fn start() -> Clamd {
        Clamd::start_with("")
    }

    /// Starts one with further lines in its configuration, such as `MaxThreads 4`. It opens archives deeper than usual, and reports
    /// archives that it does not open completely.
    pub fn start_with(more: &str) -> Clamd {
        Clamd::start_plain(&format!("MaxRecursion 30\nAlertExceedsMax yes\n{more}"))
    }

    /// Starts one with so many made-up signatures that a scan costs as much as on a real site. None of them matches anything. With only two
    /// signatures, clamd would have less to do than any clamd in use. ClamAV's own database has several million, most of them hashes.
    pub fn start_with_database(more: &str) -> Clamd {
        Clamd::start_in(made_up_database(), &format!("MaxRecursion 30\nAlertExceedsMax yes\n{more}"))
    }

    /// Starts one with clamd's own limits, which it does not report when they are reached, and further lines in its configuration.
    pub fn start_plain(more: &str) -> Clamd {
        Clamd::start_in(tempfile::tempdir().expect("a temporary folder"), more)
    }

    fn start_in(folder: tempfile::TempDir, more: &str) -> Clamd {
        let signatures = folder.path().join("signatures");
        std::fs::create_dir_all(&signatures).expect("a folder");
        let eicar: String = eicar().bytes().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(signatures.join("eicar.ndb"), format!("Eicar-Test-Signature:0:0:{eicar}\n"))
            .expect("signatures");
        std::fs::write(signatures.join("clam.hdb"), clam_exe()).expect("signatures");
        let port = free_port();
        std::fs::write(folder.path().join("clamd.conf"), configuration(folder.path(), port, more))
            .expect("a configuration");
        let mut clamd = Clamd { folder, port, server: None };
        clamd.restart();
        clamd
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("clamd.ctl")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts it (again) and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig=KILL", "clamd", "--foreground", "--config-file"])
            .arg(self.folder.path().join("clamd.conf"));
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(spawn_bound(command));
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "clamd did not start: is clamav-daemon installed? Run `make setup`");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets it hang: the kernel accepts connections, but nothing answers.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Ends the hanging.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Adds a signature for some text, and makes it read the signature.
    pub fn learn(&self, name: &str, text: &str) {
        let text: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let file = self.folder.path().join(format!("signatures/{name}.ndb"));
        std::fs::write(file, format!("{name}:0:*:{text}\n")).expect("signatures");
        self.signal("-USR2");
    }

    fn signal(&self, signal: &str) {
        if let Some(pid) = self.pid() {
            let sent = Command::new("kill").arg(signal).arg(pid.to_string()).status();
            assert!(sent.is_ok_and(|status| status.success()), "kill runs");
        }
    }
}

impl Drop for Clamd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The test file that every scanner must find. It is in two pieces here, so that no scanner reports this source file.
pub fn eicar() -> String {
    [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR", "-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"].concat()
}

/// A folder with signatures for parts of files and of programs, and with hashes of whole files.
fn made_up_database() -> tempfile::TempDir {
    const PIECES: u64 = 60_000;
    const HASHES: u64 = 300_000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let signatures = folder.path().join("signatures");
    std::fs::create_dir(&signatures).expect("a folder");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut octets = |count: u64| -> String {
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..count).map(|_| format!("{:02x}", next() >> 56)).collect()
    };
    let piece = |number: u64| format!("Made.Up-{number}:{}:*:{}\n", number % 2, octets(12 + number % 28));
    std::fs::write(signatures.join("pieces.ndb"), (0..PIECES).map(piece).collect::<String>()).expect("signatures");
    let hash = |number: u64| format!("{}:{}:Made.Up.Hash-{number}:73\n", octets(32), 1_000 + number * 7);
    std::fs::write(signatures.join("hashes.hsb"), (0..HASHES).map(hash).collect::<String>()).expect("signatures");
    folder
}

/// The signature of the program that is in all test files: `md5:length:name`.
fn clam_exe() -> String {
    let path = Path::new(TEST_FILES).join("clam.exe");
    let sum = Command::new("md5sum").arg(&path).output().expect("md5sum runs");
    assert!(sum.status.success(), "{} is missing: is clamav-testfiles installed? Run `make setup`", path.display());
    let sum = String::from_utf8_lossy(&sum.stdout).split(' ').next().unwrap_or("").to_owned();
    format!("{sum}:{}:Clamav.Test.File-6\n", std::fs::metadata(path).map_or(0, |meta| meta.len()))
}

fn configuration(folder: &Path, port: u16, more: &str) -> String {
    let folder = folder.display();
    format!(
        "Foreground yes\nLocalSocket {folder}/clamd.ctl\nTCPSocket {port}\nTCPAddr 127.0.0.1\nDatabaseDirectory {folder}/signatures\n\
         TemporaryDirectory {folder}\nLogFile {folder}/log\nSelfCheck 0\nDetectPUA no\nBytecode no\n{more}\n"
    )
}
