//! Clamd's protocol for other programs: what asks clamd today asks the scan by changing one address, and has its feeds, YARA, the policy for
//! attachments and what the lab knows.
//!
//! [`weir_scan::clamd::server`] is the protocol without I/O; this is its sockets, its bounds, and the way of a file into the feeds
//! ([`crate::scan::Scanning::look_at`]). Nothing listens unless it is configured. Files are not kept: one that is larger than a little is
//! a nameless file in the data folder until its answer is given. Paths are not opened: a client that may connect could otherwise have us
//! read what it may not.

mod conversation;
mod settings;
mod socket;
mod stream;

pub use settings::DoorSettings;

use crate::operations::Listener;
use crate::scan::Scanning;
use conversation::converse;
use socket::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stream::Room;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use weir_foundation::{sockets, supervision};

/// Those who accept rest so long after an error, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// What connections share.
pub(crate) struct Door {
    settings: DoorSettings,
    scanning: Scanning,
    /// Where larger files are while they are looked at.
    folder: PathBuf,
    room: Arc<Room>,
    connections: Arc<Semaphore>,
}

/// The door while it is open.
pub(crate) struct OpenDoor {
    pub(crate) listeners: Vec<Listener>,
    tasks: Vec<JoinHandle<()>>,
}

/// Where nobody could listen, and why.
#[derive(Debug)]
pub(crate) enum DoorError {
    Tcp { address: SocketAddr, source: io::Error },
    Unix { path: PathBuf, source: io::Error },
}

impl OpenDoor {
    /// Opens the ports that are configured; none is fine.
    pub(crate) fn open(settings: &DoorSettings, scanning: Scanning, folder: PathBuf) -> Result<OpenDoor, DoorError> {
        let door = Arc::new(Door {
            room: Room::new(settings.streams_size),
            connections: Arc::new(Semaphore::new(settings.connections as usize)),
            settings: settings.clone(),
            scanning,
            folder,
        });
        let mut open = OpenDoor { listeners: Vec::new(), tasks: Vec::new() };
        for address in &settings.listen {
            let listening = tcp_listener(*address).map_err(|source| DoorError::Tcp { address: *address, source })?;
            let (listener, bound) = listening;
            open.add(bound.to_string(), accept_tcp(Arc::clone(&door), listener));
        }
        if let Some(path) = &settings.listen_unix {
            let listener = unix_listener(path).map_err(|source| DoorError::Unix { path: path.clone(), source })?;
            open.add(path.display().to_string(), accept_unix(Arc::clone(&door), listener));
        }
        Ok(open)
    }

    fn add(&mut self, address: String, serving: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(supervision::spawn("clamd door", serving));
        let about = "clamd's protocol, for other programs".to_owned();
        self.listeners.push(Listener { name: "clamd".to_owned(), address, about });
    }

    /// Takes no more connections. What is under way ends with the scan.
    pub(crate) fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        self.close();
    }
}

async fn accept_tcp(door: Arc<Door>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) if door.settings.admits(client.ip()) => {
                let _ = stream.set_nodelay(true);
                begin(&door, Socket::Tcp(stream), named(client));
            }
            Ok((_, client)) => {
                tracing::warn!(%client, "a machine that scan.clamd_door.clients does not name asked about a file");
            }
            Err(error) => after(&error).await,
        }
    }
}

async fn accept_unix(door: Arc<Door>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => begin(&door, Socket::Unix(stream), "this machine".to_owned()),
            Err(error) => after(&error).await,
        }
    }
}

fn named(client: SocketAddr) -> String {
    match client.ip().to_canonical() {
        ip if ip.is_loopback() => "this machine".to_owned(),
        ip => ip.to_string(),
    }
}

async fn after(error: &io::Error) {
    tracing::warn!(%error, "a connection to the clamd door was not accepted");
    tokio::time::sleep(AFTER_ERROR).await;
}

/// Talks to a client, unless too many are there already: clients of clamd try again.
fn begin(door: &Arc<Door>, socket: Socket, client: String) {
    let Ok(place) = Arc::clone(&door.connections).try_acquire_owned() else {
        tracing::warn!(client, "scan.clamd_door.connections are all taken");
        return;
    };
    let door = Arc::clone(door);
    tokio::spawn(async move {
        if let Err(error) = converse(&door, socket, &client).await {
            tracing::debug!(client, %error, "a client of the clamd door is gone");
        }
        drop(place);
    });
}

fn tcp_listener(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::from_std(sockets::listen(address)?)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// A socket at this path, in place of one that nobody listens on any more.
fn unix_listener(path: &Path) -> io::Result<UnixListener> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}
