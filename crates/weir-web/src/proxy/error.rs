//! Why the gate cannot start, or cannot apply new settings.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::server_stream::TrustError;
use crate::identity::SecretError;
use crate::keys::KeyError;
use crate::network_lists::ListError;
use crate::route::RouteError;

/// Why the gate cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on {}: {source}", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The error pages cannot be read.
    #[error("cannot read the error pages in {}: {source}", folder.display())]
    Pages { folder: PathBuf, source: io::Error },
    /// The access log cannot be opened.
    #[error("cannot open the access log {}: {source}", path.display())]
    Log { path: PathBuf, source: io::Error },
    /// The routes cannot be used.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The machine gives no random numbers.
    #[error(transparent)]
    Random(#[from] SecretError),
    /// A list of networks cannot be used.
    #[error(transparent)]
    List(#[from] ListError),
    /// The keys of clients cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The servers of a backend cannot be reached over TLS.
    #[error("backend {backend}: {source}")]
    Trust { backend: String, source: TrustError },
}
