//! Unix sockets at a path, for streams and for datagrams. A socket file that no program listens on any more is replaced.
//!
//! Stream sockets outlive their gate, as TCP sockets do. Datagrams that are sent while nobody reads them are lost.

use super::Address;
use crate::supervision::{self, GateName};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The owner of the socket and its group may connect.
const MODE: u32 = 0o660;

/// The sockets that are kept open.
static KEPT: Mutex<Vec<KeptUnix>> = Mutex::new(Vec::new());

/// A stream socket and its file.
pub(super) struct KeptUnix {
    pub(super) gate: Option<GateName>,
    path: PathBuf,
    /// Device and inode of the file: somebody may have removed it, or put another one there.
    file: Option<(u64, u64)>,
    pub(super) socket: UnixListener,
    pub(super) in_use: bool,
}

impl KeptUnix {
    pub(super) fn inherited(gate: Option<GateName>, path: PathBuf, socket: UnixListener) -> KeptUnix {
        KeptUnix { gate, file: file_at(&path), path, socket, in_use: false }
    }

    pub(super) fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    fn is_for(&self, gate: GateName, path: &Path) -> bool {
        !self.in_use && self.path == path && self.gate.is_none_or(|owner| owner == gate)
    }
}

pub(super) fn lock() -> MutexGuard<'static, Vec<KeptUnix>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream socket at this path: the one that is kept for it, or else a new one. It does not block.
pub fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    let Some(gate) = supervision::current_gate() else { return open(path) };
    let mut kept = lock();
    // If the file of a socket is gone, no client can find the socket.
    kept.retain(|one| !one.is_for(gate, path) || (one.file.is_some() && one.file == file_at(path)));
    let place = match kept.iter().position(|one| one.is_for(gate, path)) {
        Some(place) => place,
        None => {
            kept.push(KeptUnix::inherited(Some(gate), path.to_owned(), open(path)?));
            kept.len() - 1
        }
    };
    let one = &mut kept[place];
    let copy = one.socket.try_clone()?;
    copy.set_nonblocking(true)?;
    (one.gate, one.in_use) = (Some(gate), true);
    Ok(copy)
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok().filter(|found| found.file_type().is_socket())?;
    Some((found.dev(), found.ino()))
}

fn open(path: &Path) -> io::Result<UnixListener> {
    make_way(path, || UnixStream::connect(path).is_ok())?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}

/// A datagram socket at this path. It does not block.
pub fn receive_unix(path: &Path) -> io::Result<UnixDatagram> {
    make_way(path, || UnixDatagram::unbound().and_then(|socket| socket.connect(path)).is_ok())?;
    let socket = UnixDatagram::bind(path)?;
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    Ok(socket)
}

/// Removes a socket file that is left over. Other files stay, and so does a socket that is in use.
fn make_way(path: &Path, is_used: impl Fn() -> bool) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if is_used() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_left_over_makes_way_and_one_in_use_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (stream, datagram) = (folder.path().join("s"), folder.path().join("d"));
        let (listener, socket) = (listen_unix(&stream).unwrap(), receive_unix(&datagram).unwrap());
        assert_eq!(listen_unix(&stream).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(receive_unix(&datagram).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((listener, socket));
        assert!(listen_unix(&stream).is_ok() && receive_unix(&datagram).is_ok());
        let file = folder.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(listen_unix(&file).is_err() && receive_unix(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
