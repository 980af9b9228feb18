//! A private PostgreSQL on a Unix socket: one for each test process, with one database for each test.
//!
//! It does not sync. Tests kill the process and not the machine, and what a killed process wrote is in the page cache.

use crate::{bound_command, is_root, remove_at_end, spawn_bound};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The server.
#[derive(Debug)]
pub struct Postgres {
    folder: tempfile::TempDir,
    programs: PathBuf,
    server: Mutex<Child>,
    /// The address at which it listens; empty for the Unix socket only.
    listen: String,
    /// Whether it syncs.
    durable: bool,
}

static SHARED: OnceLock<Postgres> = OnceLock::new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

impl Postgres {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Postgres {
        SHARED.get_or_init(|| {
            let postgres = Postgres::start();
            remove_at_end(postgres.folder.path());
            postgres
        })
    }

    /// A server that the test can kill and restart.
    pub fn start() -> Postgres {
        Postgres::start_on("")
    }

    /// The same, but it also listens on this address, and accepts everybody without a password.
    pub fn start_on(listen: &str) -> Postgres {
        Postgres::start_so(listen, false)
    }

    /// The same, but every commit is synced.
    pub fn start_durable_on(listen: &str) -> Postgres {
        Postgres::start_so(listen, true)
    }

    fn start_so(listen: &str, durable: bool) -> Postgres {
        let programs = programs();
        let folder = tempfile::tempdir().expect("a temporary folder");
        if is_root() {
            let owned = Command::new("chown").arg("postgres").arg(folder.path()).status();
            assert!(owned.is_ok_and(|s| s.success()), "chown to user postgres: run `make setup`");
        }
        let mut initdb = bound_command("postgres", programs.join("initdb"));
        initdb.args(["-U", "weir", "--auth=trust", "-N", "-E", "UTF8", "-D"]).arg(folder.path().join("data"));
        let made = initdb.output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        if !listen.is_empty() {
            let rules = folder.path().join("data/pg_hba.conf");
            let before = std::fs::read_to_string(&rules).expect("initdb wrote it");
            std::fs::write(&rules, format!("{before}\nhost all all 0.0.0.0/0 trust\n")).expect("it is ours");
        }
        let server = Mutex::new(serve(&programs, folder.path(), (listen, durable)));
        let postgres = Postgres { folder, programs, server, listen: listen.to_owned(), durable };
        postgres.wait();
        postgres
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> String {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let made = self.tool("createdb").arg(&name).output().expect("createdb runs");
        assert!(made.status.success(), "createdb: {}", String::from_utf8_lossy(&made.stderr));
        match self.listen.as_str() {
            "" => format!("postgres:///{name}?host={}&user=weir", self.folder.path().display()),
            address => format!("postgres://weir@{address}/{name}"),
        }
    }

    /// Kills the server without warning.
    pub fn kill(&self) {
        let mut server = self.server.lock().expect("no panic while held");
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Stops the server properly, even if clients are connected.
    pub fn stop(&self) {
        let mut server = self.server.lock().expect("no panic while held");
        let told = Command::new("kill").arg("-INT").arg(server.id().to_string()).status();
        assert!(told.is_ok_and(|status| status.success()), "kill runs");
        let _ = server.wait();
    }

    /// Freezes the server's processes: connections stay open, but nothing answers.
    pub fn freeze(&self) {
        self.signal_all("-STOP");
    }

    /// Lets the processes continue.
    pub fn thaw(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, signal: &str) {
        let id = self.server.lock().expect("no panic while held").id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let mut kill = Command::new("kill");
        // A backend may have ended meanwhile.
        let _ = kill.arg(signal).arg(id.to_string()).args(children.split_whitespace()).stderr(Stdio::null()).status();
    }

    /// Starts it again.
    pub fn restart(&self) {
        let mut server = self.server.lock().expect("no panic while held");
        // Processes that a killed server left behind may need a moment to notice that it is gone.
        for _ in 0..50 {
            *server = serve(&self.programs, self.folder.path(), (&self.listen, self.durable));
            std::thread::sleep(Duration::from_millis(100));
            if matches!(server.try_wait(), Ok(None)) {
                break;
            }
        }
        drop(server);
        self.wait();
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.args(["-U", "weir", "-h"]).arg(self.folder.path());
        command
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let ready = || self.tool("pg_isready").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        while !ready() {
            assert!(Instant::now() < deadline, "PostgreSQL did not become ready within a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(programs: &Path, folder: &Path, (listen, durable): (&str, bool)) -> Child {
    let mut command = bound_command("postgres", programs.join("postgres"));
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    command.arg("-c").arg(format!("listen_addresses={listen}"));
    command.args(["-c", "wal_level=minimal", "-c", "max_wal_senders=0"]);
    match durable {
        true => command.args(["-c", "max_wal_size=1GB"]),
        false => command.args(["-c", "fsync=off", "-c", "max_wal_size=64MB"]),
    };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    spawn_bound(command)
}

fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max();
    newest.expect("PostgreSQL is not installed: run `make setup`")
}
