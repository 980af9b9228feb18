//! A private Pebble, Let's Encrypt's authority for tests, with its own name server, in which every name stands for this machine.

use crate::free_port;
use crate::{TestAuthority, spawn_bound, wait_until_it_listens};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// The authority. Its port is known before it is started, so that its clients can be configured first.
#[derive(Debug)]
pub struct Pebble {
    folder: tempfile::TempDir,
    /// Signs the certificate of Pebble's own HTTPS server.
    own: TestAuthority,
    port: u16,
    management_port: u16,
    dns: Mutex<Option<(Child, u16, u16)>>,
    server: Mutex<Option<Child>>,
}

/// Where Pebble checks names, and how it behaves.
#[derive(Debug, Clone, Default)]
pub struct PebbleMood {
    /// The port of HTTP-01.
    pub http_port: u16,
    /// The port of TLS-ALPN-01.
    pub tls_port: u16,
    /// How long its certificates are valid; 0 for five years.
    pub valid_s: u32,
    /// The percentage of good nonces that it refuses.
    pub bad_nonces: u32,
    /// How many seconds it waits before it checks a name.
    pub sleep_s: u32,
}

impl Pebble {
    /// A Pebble that does not run yet.
    pub fn new() -> Pebble {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = TestAuthority::new();
        let (port, management_port) = (free_port(), free_port());
        Pebble { folder, own, port, management_port, dns: Mutex::default(), server: Mutex::default() }
    }

    /// The address that its directory will have.
    pub fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// The certificate that its clients must trust.
    pub fn ca_file(&self) -> PathBuf {
        self.own.certificate()
    }

    /// Starts or restarts it. It forgets everything that it knew.
    pub fn start(&self, mood: &PebbleMood) {
        self.stop();
        let (chain, key) = self.own.sign("localhost", &["localhost"]);
        let (port, management, PebbleMood { http_port, tls_port, valid_s, .. }) =
            (self.port, self.management_port, mood);
        let validity = if *valid_s > 0 { format!(", \"certificateValidityPeriod\": {valid_s}") } else { String::new() };
        let config = format!(
            "{{\"pebble\": {{\"listenAddress\": \"127.0.0.1:{port}\", \"managementListenAddress\": \"127.0.0.1:{management}\",\n\
             \"certificate\": {chain:?}, \"privateKey\": {key:?}, \"httpPort\": {http_port}, \"tlsPort\": {tls_port},\n\
             \"ocspResponderURL\": \"\", \"externalAccountBindingRequired\": false{validity}}}}}"
        );
        let file = self.folder.path().join("pebble.json");
        std::fs::write(&file, config).expect("a configuration");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "pebble", "-config"]).arg(file);
        command.args(["-dnsserver", &format!("127.0.0.1:{}", self.name_server().0)]);
        command.env("PEBBLE_WFE_NONCEREJECT", mood.bad_nonces.to_string());
        match mood.sleep_s {
            0 => command.env("PEBBLE_VA_NOSLEEP", "1"),
            seconds => command.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = spawn_bound(command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        wait_until_it_listens(&mut server, address, "pebble");
        *self.server.lock().expect("no panic while held") = Some(server);
    }

    /// Kills it without warning.
    pub fn stop(&self) {
        if let Some(mut server) = self.server.lock().expect("no panic while held").take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// The port of its name server, and the port at which records can be set. The name server is started if it does not run yet.
    pub fn name_server(&self) -> (u16, u16) {
        let mut running = self.dns.lock().expect("no panic while held");
        let (_, dns, management) = running.get_or_insert_with(|| {
            let (dns, management) = (free_port(), free_port());
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig=KILL", "pebble-challtestsrv", "-http01", "", "-https01", "", "-tlsalpn01", ""]);
            command.args(["-dns01", &format!("127.0.0.1:{dns}"), "-management", &format!("127.0.0.1:{management}")]);
            command.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut server = spawn_bound(command);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, management));
            wait_until_it_listens(&mut server, address, "pebble (pebble-challtestsrv)");
            (server, dns, management)
        });
        (*dns, *management)
    }
}

impl Default for Pebble {
    fn default() -> Pebble {
        Pebble::new()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        if let Some((mut server, ..)) = self.dns.lock().expect("no panic while held").take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
