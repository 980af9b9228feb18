//! A private Unbound: a resolver that checks the signatures of a private [`Knot`].

use crate::knot::free_port;
use crate::{Knot, spawn_bound};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A resolver on a port of its own.
#[derive(Debug)]
pub struct Unbound {
    folder: tempfile::TempDir,
    server: Child,
    address: SocketAddr,
}

impl Unbound {
    /// Starts one that knows the zones of this server, which signs them.
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
        // The server stands in sbin, which is not on everybody's path.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut unbound = Unbound { folder, server: spawn_bound(command), address };
        unbound.wait();
        unbound
    }

    /// Where it listens, by UDP and by TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = self.server.try_wait().ok().flatten();
            assert!(ended.is_none(), "unbound ended ({ended:?}): is Debian's package unbound installed? (tools/setup)");
            assert!(begun.elapsed() < Duration::from_secs(120), "unbound does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.folder.path().exists());
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
