//! A private Knot DNS: an authoritative name server for all names, with the records that a test gives it.

use crate::{free_port, spawn_bound, wait_until_it_listens};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A name server on a port of its own.
#[derive(Debug)]
pub struct Knot {
    folder: tempfile::TempDir,
    server: Child,
    address: SocketAddr,
}

impl Knot {
    /// Starts one with these lines of a zone file. Names are absolute and end with a dot; no other names exist.
    pub fn start(records: &str) -> Knot {
        Knot::serve(records, None)
    }

    /// The same, but it signs these records (DNSSEC), and has others in the zone `unsigned.example.`, which is not signed.
    pub fn start_signed(records: &str, unsigned: &str) -> Knot {
        Knot::serve(&format!("{records}\nunsigned.example. NS ns.test.\n"), Some(unsigned))
    }

    fn serve(records: &str, unsigned: Option<&str>) -> Knot {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let root = format!("ns.test. A 127.0.0.1\n{records}");
        std::fs::write(folder.path().join("zone"), zone(".", &root)).expect("a zone");
        let mut lines = text(folder.path(), address.port());
        if let Some(unsigned) = unsigned {
            let below = zone("unsigned.example.", unsigned);
            std::fs::write(folder.path().join("unsigned"), below).expect("a zone");
            lines.push_str(&signing(folder.path()));
        }
        let configuration = folder.path().join("knot.conf");
        std::fs::write(&configuration, lines).expect("a configuration");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "knotd", "-c"]).arg(configuration);
        // The server is in a sbin folder, which may not be in the path.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut server = spawn_bound(command);
        wait_until_it_listens(&mut server, address, "knot");
        Knot { folder, server, address }
    }

    /// What a resolver must trust to check its signatures: DS records of the root.
    pub fn anchor(&self) -> String {
        let mut command = Command::new("keymgr");
        command.arg("-c").arg(self.folder.path().join("knot.conf")).args([".", "ds"]);
        let output =
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().expect("keymgr runs: it is in Debian's knot");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Its address for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Knot {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn text(folder: &Path, port: u16) -> String {
    let at = folder.display();
    format!(
        "server:\n    rundir: \"{at}\"\n    listen: 127.0.0.1@{port}\ndatabase:\n    storage: \"{at}\"\n\
         log:\n  - target: stderr\n    any: error\nzone:\n  - domain: .\n    storage: \"{at}\"\n    file: zone\n"
    )
}

fn zone(origin: &str, records: &str) -> String {
    // A blank at the beginning of a line would mean the name of the line before.
    let records: String = records.lines().map(|line| format!("{}\n", line.trim())).collect();
    format!("$ORIGIN {origin}\n$TTL 60\n@ SOA ns.test. admin.test. 1 60 60 60 60\n@ NS ns.test.\n{records}")
}

/// Makes the last zone of the configuration signed, and adds one that is not.
fn signing(folder: &Path) -> String {
    let at = folder.display();
    format!(
        "    zonefile-sync: -1\n    dnssec-signing: on\n  - domain: unsigned.example.\n    storage: \"{at}\"\n    \
         file: unsigned\n"
    )
}
