//! A private Postfix with its own configuration, queue and data, in a folder of its own. The system's Postfix is not touched.

use crate::spawn_bound;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The services that every Postfix needs, without a chroot.
const SERVICES: &str = "
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
smtp unix - - n - - smtp
lmtp unix - - n - - lmtp
local unix - n n - - local
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
";

/// What it needs besides a recipe: its folders, and access for this machine only. On a very slow machine, even its own helpers may answer
/// too late, so it tries again soon.
const BASE: &str = "
compatibility_level = 3.6
queue_directory = FOLDER/queue
data_directory = FOLDER/data
maillog_file = FOLDER/log/mail.log
maillog_file_prefixes = FOLDER
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
alias_database =
disable_dns_lookups = yes
smtp_host_lookup = native
notify_classes =
queue_run_delay = 10s
minimal_backoff_time = 10s
maximal_backoff_time = 20s
";

/// The server.
#[derive(Debug)]
pub struct Postfix {
    folder: tempfile::TempDir,
    master: Option<Child>,
}

impl Postfix {
    /// Starts one with these lines in `main.cf` and `master.cf`, besides what every Postfix needs. `FOLDER` in them stands for its folder.
    /// Returns when it listens on `port`, and on every other port of 127.0.0.1 that `master` names.
    pub fn start(main: &str, master: &str, port: u16) -> Postfix {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path();
        for name in ["etc", "queue", "data", "log", "mail"] {
            std::fs::create_dir(path.join(name)).expect("the folder is ours");
        }
        let fill = |text: &str| text.replace("FOLDER", &path.display().to_string());
        std::fs::write(path.join("etc/main.cf"), fill(&format!("{BASE}{main}"))).expect("main.cf");
        std::fs::write(path.join("etc/master.cf"), fill(&format!("{SERVICES}{master}"))).expect("master.cf");
        // Its helpers run as other users and need access to their folders.
        run(Command::new("chmod").args(["755"]).arg(path));
        run(Command::new("chown").arg(Postfix::compiled_in("mail_owner")).args([path.join("data"), path.join("mail")]));
        run(Command::new("postfix").arg("-c").arg(path.join("etc")).arg("check"));
        let mut postfix = Postfix { master: None, folder };
        postfix.begin(port);
        postfix
    }

    fn begin(&mut self, port: u16) {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=TERM").arg(Path::new(&Postfix::compiled_in("daemon_directory")).join("master"));
        command.arg("-c").arg(self.folder.path().join("etc")).stdout(Stdio::null()).stderr(Stdio::null());
        self.master = Some(spawn_bound(command));
        self.await_port(port);
        // The master opens its ports one after the other, and a busy machine takes its time between two of them.
        let services = std::fs::read_to_string(self.folder.path().join("etc/master.cf")).expect("master.cf");
        let ports = services
            .lines()
            .filter_map(|line| line.strip_prefix("127.0.0.1:")?.split_once(" inet ")?.0.trim().parse().ok());
        ports.for_each(|port| self.await_port(port));
    }

    /// Kills it with all its helpers, like a crash of the machine, and starts it again.
    pub fn kill_and_restart(&mut self, port: u16) {
        let Some(mut master) = self.master.take() else { return };
        let list = format!("/proc/{0}/task/{0}/children", master.id());
        // The master is killed first, because it would start new helpers.
        let helpers = std::fs::read_to_string(list).unwrap_or_default();
        let _ = master.kill();
        let _ = Command::new("kill").arg("-KILL").args(helpers.split_whitespace()).stderr(Stdio::null()).status();
        let _ = master.wait();
        self.begin(port);
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log/mail.log")).unwrap_or_default()
    }

    /// The value of a parameter that was compiled into Postfix; this reads no configuration.
    pub fn compiled_in(parameter: &str) -> String {
        let output = Command::new("postconf").args(["-dh", parameter]).output();
        let output = output.unwrap_or_else(|error| panic!("Postfix is not here ({error}): run `make setup`"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The numeric ids of the user that was compiled in.
    pub fn owner() -> (String, String) {
        let of = |flag: &str| {
            let output =
                Command::new("id").arg(flag).arg(Postfix::compiled_in("mail_owner")).output().expect("id runs");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        (of("-u"), of("-g"))
    }

    /// The files in one of its Maildirs.
    pub fn maildir(&self, under: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join("mail").join(under).join("new");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    fn await_port(&self, port: u16) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < deadline, "Postfix did not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        let Some(mut master) = self.master.take() else { return };
        // Terminated in an orderly way, the master ends its helpers; if it were killed, they would stay.
        let _ = Command::new("kill").arg(master.id().to_string()).status();
        let _ = master.wait();
    }
}

fn run(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; run `make setup`"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "Postfix cannot be set up ({command:?}): run as root\n{said}");
}
