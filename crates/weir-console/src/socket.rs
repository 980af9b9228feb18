//! The control socket: serves the API to root and to the owner of the data folder.
//!
//! A Unix socket of mode 0600 in a folder of mode 0700; in addition, the kernel says who is at the other end, and only root and the owner
//! of the folder are served. Requests carry their [`Actor`] from there. Connections are bounded in number, and a header that does not come
//! ends its connection.

use crate::serving::{self, Accepts};
use axum::Router;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};
use weir_foundation::Actor;

const CONNECTIONS_MAX: usize = 64;

/// A socket that listens; its file is removed when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

impl ControlSocket {
    /// Listens at `path`. The caller holds the folder's lock, so a file that exists there belongs to no running process.
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
        serving::serve(&self, router, CONNECTIONS_MAX).await;
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

impl Accepts for ControlSocket {
    type Stream = UnixStream;
    type Who = Actor;

    async fn accept(&self) -> io::Result<Option<(UnixStream, Actor)>> {
        let (stream, _) = self.listener.accept().await?;
        let actor = self.admit(&stream);
        Ok(actor.map(|actor| (stream, actor)))
    }
}

/// The name of a user of this machine in the audit trail.
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

/// Why the control socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the control socket {} cannot be made: {}", path.display(), problem(path, source))]
pub struct SocketError {
    path: PathBuf,
    source: io::Error,
}

fn problem(path: &Path, source: &io::Error) -> String {
    // The kernel's limit for the path of a socket is 107 bytes.
    match path.as_os_str().len() {
        length if length > 107 => {
            format!("its path has {length} bytes, the system allows 107; use a shorter data folder")
        }
        _ => source.to_string(),
    }
}
