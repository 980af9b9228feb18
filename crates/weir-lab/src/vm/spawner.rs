//! The thread that starts QEMUs. The kernel kills a process of ours when the *thread* that started it ends, so that must be
//! one that lives as long as we do.

use std::io;
use std::sync::{OnceLock, mpsc};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct SpawnRequest {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Child>>,
}

/// Starts a program that is killed when this process ends, however it ends.
pub(super) async fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let gone = || io::Error::other("no thread starts VMs");
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, wanted) = mpsc::channel::<SpawnRequest>();
        let spawned = std::thread::Builder::new().name("vm-parent".into()).spawn(move || {
            for SpawnRequest { mut command, runtime, answer } in wanted {
                let _inside = runtime.enter();
                let _ = answer.send(command.spawn());
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread can be started for VMs");
        }
        requests
    });
    let (answer, spawned_child) = oneshot::channel();
    spawner.send(SpawnRequest { command, runtime: Handle::current(), answer }).map_err(|_| gone())?;
    spawned_child.await.map_err(|_| gone())?
}
