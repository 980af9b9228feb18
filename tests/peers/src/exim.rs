//! A private Exim that has mail scanned by clamd's protocol while it accepts it. Its package cannot be installed beside Postfix's, so
//! `tools/setup` unpacks it into `target/exim`.

use crate::{spawn_bound, wait_until_it_listens};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CONFIGURATION: &str = "primary_hostname = exim.example.org
spool_directory = FOLDER/spool
log_file_path = FOLDER/log/%slog
pid_file_path = FOLDER/exim.pid
local_interfaces = 127.0.0.1
daemon_smtp_ports = PORT
tls_advertise_hosts =
host_lookup =
rfc1413_hosts =
keep_environment =
queue_only
av_scanner = clamd:HOST SCANNER
acl_smtp_rcpt = accept
acl_smtp_data = check_data
begin acl
check_data:
  deny malware = *
       message = infected: $malware_name
  accept
";

/// The server. Mail that it accepts stays in its queue.
#[derive(Debug)]
pub struct Exim {
    _folder: tempfile::TempDir,
    server: Child,
    address: SocketAddr,
}

impl Exim {
    /// Starts one that asks `scanner` (`127.0.0.1:3310`).
    pub fn start(scanner: &str) -> Exim {
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/exim");
        assert!(unpacked.join("ready").exists(), "Exim is not in target/exim: run `make setup` as root");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::free_port()));
        let (host, port) = scanner.rsplit_once(':').expect("an address with a port");
        let text = CONFIGURATION.replace("FOLDER", &folder.path().display().to_string());
        let text = text.replace("PORT", &address.port().to_string()).replace("HOST", host).replace("SCANNER", port);
        ["spool", "log"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).expect("it is ours"));
        // It runs as a user of its own, which needs its folders but not its configuration.
        let owned = Command::new("chown").args(["-R", "Debian-exim"]).arg(folder.path()).status();
        assert!(owned.is_ok_and(|status| status.success()), "no user Debian-exim: run `make setup` as root");
        let file = folder.path().join("exim.conf");
        std::fs::write(&file, text).expect("a configuration");
        let libraries = ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib"];
        let libraries = libraries.map(|name| unpacked.join(name).display().to_string()).join(":");
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=TERM").arg(unpacked.join("usr/sbin/exim4")).arg("-C").arg(&file).arg("-bdf");
        command.env("LD_LIBRARY_PATH", libraries).stdout(Stdio::null()).stderr(Stdio::null());
        let mut exim = Exim { _folder: folder, server: spawn_bound(command), address };
        wait_until_it_listens(&mut exim.server, address, "exim4-daemon-heavy");
        exim
    }

    /// The address at which it takes mail.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Exim {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}
