//! A private Unbound: a resolver that checks the signatures of a private [`Knot`].

use crate::free_port;
use crate::{Knot, spawn_bound, wait_until_it_listens};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

/// A resolver on a port of its own.
#[derive(Debug)]
pub struct Unbound {
    _folder: tempfile::TempDir,
    server: Child,
    address: SocketAddr,
}

impl Unbound {
    /// Starts one that resolves the zones of this server, which signs them.
    pub fn start(knot: &Knot) -> Unbound {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (at, port, zones) = (folder.path().display(), address.port(), knot.address().port());
        std::fs::write(folder.path().join("anchor"), knot.anchor()).expect("an anchor");
        let lines = format!(
            "server:\n  interface: 127.0.0.1@{port}\n  do-daemonize: no\n  use-syslog: no\n  logfile: \"{at}/log\"\n  chroot: \"\"\n  \
             username: \"\"\n  directory: \"{at}\"\n  pidfile: \"{at}/pid\"\n  do-not-query-localhost: no\n  do-ip6: no\n  \
             trust-anchor-file: \"{at}/anchor\"\n  module-config: \"validator iterator\"\n  qname-minimisation: no\n\
             remote-control:\n  control-enable: no\n\
             stub-zone:\n  name: \".\"\n  stub-addr: 127.0.0.1@{zones}\n\
             stub-zone:\n  name: \"unsigned.example.\"\n  stub-addr: 127.0.0.1@{zones}\n"
        );
        let configuration = folder.path().join("unbound.conf");
        std::fs::write(&configuration, lines).expect("a configuration");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "unbound", "-d", "-c"]).arg(configuration);
        // The server is in a sbin folder, which may not be in the path.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut server = spawn_bound(command);
        wait_until_it_listens(&mut server, address, "unbound");
        Unbound { _folder: folder, server, address }
    }

    /// Its address for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
