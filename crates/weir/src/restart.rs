//! A restart that refuses no client: this program replaces itself with the one that is installed now.
//!
//! All gates are stopped as for any stop. But the listening sockets stay open and are handed to the next program, which runs in the same
//! process. Clients that connect in between wait in the kernel's queue. Under systemd, `systemctl restart` has the same effect: there,
//! systemd keeps the sockets ([`crate::service_manager`]).

use crate::assembly::needs;
use crate::config::Loaded;
use crate::folder_args::FolderArgs;
use anyhow::Context;
use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use weir_foundation::sockets;
use weir_foundation::sockets::Address;
use weir_foundation::sockets::inherited::{from_former, from_systemd};
use weir_tls::Tls;

/// The variable that passes our process id and our sockets to the next program.
const HANDED_OVER: &str = "WEIR_SOCKETS";

/// How this program was started, so that it can be started again.
pub(crate) struct Invocation {
    /// Its path when it started. A package may have put a newer program there since.
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Takes the sockets that systemd or a former program passed to this process. Call it first.
pub(crate) fn take_sockets() -> anyhow::Result<()> {
    let variable = |name| env::var(name).unwrap_or_default();
    let (count, pid) = (variable("LISTEN_FDS"), variable("LISTEN_PID"));
    sockets::inherit(from_systemd(&count, &pid).context("the sockets that systemd passed cannot be used")?);
    let handed_over = variable(HANDED_OVER);
    // Other programs that we start see the variable as well, but it names another process.
    if let Some((pid, described)) = handed_over.split_once(' ')
        && pid.parse() == Ok(std::process::id())
    {
        sockets::inherit(from_former(described).context("the sockets of the previous program cannot be used")?);
    }
    Ok(())
}

/// Tries what can still go wrong with a valid configuration when its gates start: certificates that cannot be read, and addresses that
/// another program uses. Ports on which this process listens already are handed over, so they need no test.
fn gates_could_start(loaded: &Loaded) -> anyhow::Result<()> {
    for files in needs::certificates(loaded) {
        Tls::load(files).context("a certificate cannot be used")?;
    }
    let mut ours = Vec::new();
    sockets::for_each(|address, _| {
        if let Address::Tcp(address) = address {
            ours.push(address.port());
        }
    });
    for address in needs::addresses(loaded).into_iter().filter(|address| !ours.contains(&address.port())) {
        TcpListener::bind(address).with_context(|| format!("nothing can listen at {address}"))?;
    }
    Ok(())
}

impl Invocation {
    pub(crate) fn new() -> anyhow::Result<Invocation> {
        let path = env::current_exe().context("the path of the running program cannot be found")?;
        Ok(Invocation { path, arguments: env::args_os().collect() })
    }

    /// Whether the installed program would start with the present configuration.
    pub(crate) fn check(&self, place: &FolderArgs) -> anyhow::Result<()> {
        let mut check = Command::new(&self.path);
        check.arg("check");
        if let Some(config) = place.config_file() {
            check.arg("--config").arg(config);
        }
        let output = check.output().with_context(|| format!("{} cannot be started", self.path.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("the configuration cannot be used: {}", said.trim());
        }
        gates_could_start(&place.load()?)
    }

    /// Replaces this program. It returns only if that is not possible.
    pub(crate) fn replace_this(&self) -> anyhow::Error {
        let described = match sockets::hand_over() {
            Ok(described) => described,
            Err(error) => return anyhow::Error::new(error).context("the sockets cannot be handed over"),
        };
        let mut command = Command::new(&self.path);
        command.args(self.arguments.iter().skip(1)).env(HANDED_OVER, format!("{} {described}", std::process::id()));
        if let Some(name) = self.arguments.first() {
            command.arg0(name);
        }
        anyhow::Error::new(command.exec()).context(format!("{} cannot be started", self.path.display()))
    }
}
