//! Real peers for tests: private servers in temporary folders, on free ports, which end with the test process.
//!
//! If a peer is missing, the test fails with a sentence that says what to install; it is never skipped.

mod amavis;
mod clamd;
mod dns;
mod dovecot;
mod exim;
mod gunicorn;
mod identity_provider;
mod knot;
mod nats;
mod pebble;
mod planned_clamd;
mod ports;
mod postfix;
mod postgres;
mod rspamd;
mod slapd;
mod spamd;
mod test_authority;
mod unbound;

pub use amavis::Amavis;
pub use clamd::{Clamd, TEST_FILES, eicar};
pub use dns::{Mood, NameServer, Record};
pub use dovecot::Dovecot;
pub use exim::Exim;
pub use gunicorn::Gunicorn;
pub use identity_provider::TestIdentityProvider;
pub use knot::Knot;
pub use nats::Nats;
pub use pebble::{Pebble, PebbleMood};
pub use planned_clamd::PlannedClamd;
pub use ports::free_port;
pub use postfix::Postfix;
pub use postgres::Postgres;
pub use rspamd::Rspamd;
pub use slapd::Slapd;
pub use spamd::Spamd;
pub use test_authority::TestAuthority;
pub use unbound::Unbound;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Starts a server that the kernel kills when this process ends, however it ends.
fn spawn_bound(mut command: Command) -> Child {
    let (sender, receiver) = mpsc::channel();
    // The kernel sends the signal when the *thread* that started the server ends, so that thread never ends.
    std::thread::spawn(move || {
        let _ = sender.send(command.spawn());
        loop {
            std::thread::park();
        }
    });
    receiver.recv().expect("the thread answers").unwrap_or_else(|error| panic!("a server did not start: {error}"))
}

/// Waits until a server listens. If the server ends instead, `package` is what should be installed.
fn wait_until_it_listens(server: &mut Child, address: SocketAddr, package: &str) {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        let ended = server.try_wait().ok().flatten();
        assert!(ended.is_none(), "{package} ended ({ended:?}): is Debian's package installed? (tools/setup)");
        assert!(begun.elapsed() < Duration::from_secs(120), "{package} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes a folder when this process ends, however it ends, because what a `static` owns is never dropped.
fn remove_at_end(folder: &Path) {
    let mut command = Command::new("sh");
    // Its standard input is closed when our process ends. The server whose folder this is ends then too, and may need a moment for that.
    command.args(["-c", "cat; sleep 0.2; rm -rf -- \"$1\"", "sh"]).arg(folder).stdin(Stdio::piped());
    let watcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh runs");
    std::mem::forget(watcher);
}

/// A command that runs `program` as `user` if we are root. It ends with its parent.
fn bound_command(user: &str, program: PathBuf) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if is_root() {
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    }
    command.arg(program);
    command
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}
