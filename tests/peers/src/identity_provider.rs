//! A private OpenID Connect provider: the unmodified package `oidc-provider` for Node.js, or one of our own that lies.
//!
//! `tools/setup` installs the package into `target/oidc-provider`.

use crate::{TestAuthority, free_port, spawn_bound, wait_until_it_listens};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The provider. Its client is `weir`. Its people are `ann`, `bob`, `cat` and `admin`, in the groups that its script names.
#[derive(Debug)]
pub struct TestIdentityProvider {
    port: u16,
    certificate: (PathBuf, PathBuf),
    server: Option<Child>,
}

impl TestIdentityProvider {
    /// The secret of its client.
    pub const SECRET: &str = "a secret: with /+% in it";

    /// A provider that has an address but does not run yet.
    pub fn new(authority: &TestAuthority) -> TestIdentityProvider {
        TestIdentityProvider {
            port: free_port(),
            certificate: authority.sign("provider", &["localhost"]),
            server: None,
        }
    }

    /// Its issuer, which is its name for itself.
    pub fn issuer(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Starts the real one. It sends people back to `redirect`, with tokens that are signed by this algorithm.
    pub fn start(&mut self, redirect: &str, algorithm: &str) {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oidc-provider");
        assert!(home.join("ready").exists(), "oidc-provider is not in target/oidc-provider: run `make setup`");
        let home = home.canonicalize().expect("a folder");
        let (certificate, key) = self.certificate.clone();
        let mut command = node("oidc_provider.mjs");
        command.arg(home).arg(self.port.to_string()).arg(certificate).arg(key).args([redirect, algorithm]);
        self.run(command);
    }

    /// Starts the one that lies.
    pub fn start_lying(&mut self) {
        let (certificate, key) = self.certificate.clone();
        let mut command = node("lying_provider.mjs");
        command.arg(self.port.to_string()).arg(certificate).arg(key);
        self.run(command);
    }

    fn run(&mut self, command: Command) {
        self.stop();
        let mut server = spawn_bound(command);
        wait_until_it_listens(&mut server, SocketAddr::from(([127, 0, 0, 1], self.port)), "nodejs");
        self.server = Some(server);
    }

    /// Stops it.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Lets it hang: it runs, but does not answer.
    pub fn freeze(&self) {
        let Some(server) = &self.server else { return };
        let sent = Command::new("kill").arg("-STOP").arg(server.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }
}

impl Drop for TestIdentityProvider {
    fn drop(&mut self) {
        self.stop();
    }
}

fn node(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=KILL", "node"]).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(script));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
