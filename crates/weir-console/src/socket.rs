//! The control socket: the API for whoever owns the data folder.
//!
//! A Unix socket of mode 0600 in a folder of mode 0700; besides, the kernel says who is at the other end, and only root
//! and the owner of the folder are heard. Requests carry their [`Actor`] from there. Connections are bounded in
//! number, and a header that does not come ends its connection.

use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use weir_mail::desk::Actor;

const CONNECTIONS_MAX: usize = 64;
const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens; its file goes when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

impl ControlSocket {
    /// Listens at `path`. The caller owns the folder's lock, so a file that is there already is a dead one.
    pub fn bind(path: &Path) -> Result<ControlSocket, SocketError> {
        let fail = |source| SocketError { path: path.to_owned(), source };
        let folder = path.parent().unwrap_or(Path::new("."));
        let owner = fs::metadata(folder).map_err(fail)?.uid();
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fail)?;
        Ok(ControlSocket { listener, path: path.to_owned(), owner })
    }

    /// Serves the API for ever; run it as a task.
    pub async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                    continue;
                }
            };
            let Some(actor) = self.admit(&stream) else { continue };
            let router = router.clone();
            tokio::spawn(async move {
                converse(stream, router, actor).await;
                drop(place);
            });
        }
    }

    fn admit(&self, stream: &UnixStream) -> Option<Actor> {
        let uid = stream.peer_cred().ok()?.uid();
        if uid == 0 || uid == self.owner {
            return Some(actor(uid));
        }
        tracing::warn!(uid, "somebody who is neither root nor the owner of the folder knocked at the control socket");
        None
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn converse(stream: UnixStream, router: Router, actor: Actor) {
    let router = named(router, actor);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(64 * 1024);
    let service = TowerToHyperService::new(router);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a conversation on the control socket ended early");
    }
}

/// The router, with the name of who asks on every request.
fn named(router: Router, actor: Actor) -> Router {
    router.layer(axum::middleware::from_fn(move |mut request: Request, next: axum::middleware::Next| {
        let actor = actor.clone();
        async move {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
    }))
}

/// A user of this machine, as the audit trail names them.
pub fn actor(uid: u32) -> Actor {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then_some(name)
    });
    match name {
        Some(name) => Actor::new(&format!("cli:{name}")),
        None => Actor::new(&format!("cli:uid{uid}")),
    }
}

/// Why the control socket is not there.
#[derive(Debug, thiserror::Error)]
#[error("the control socket {} cannot be made: {}", path.display(), problem(path, source))]
pub struct SocketError {
    path: PathBuf,
    source: io::Error,
}

fn problem(path: &Path, source: &io::Error) -> String {
    // The kernel's bound for the path of a socket is 107 bytes.
    match path.as_os_str().len() {
        length if length > 107 => {
            format!("its path has {length} bytes, the system allows 107; use a shorter data folder")
        }
        _ => source.to_string(),
    }
}
