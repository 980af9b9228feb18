//! Unix sockets by their path: for streams and for datagrams, in place of a socket that nobody listens on any more.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

/// Who owns the socket and its group may connect.
const MODE: u32 = 0o660;

/// A socket for connections at this path. It does not block.
pub fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    make_way(path, || UnixStream::connect(path).is_ok())?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}

/// A socket for datagrams at this path. It does not block.
pub fn receive_unix(path: &Path) -> io::Result<UnixDatagram> {
    make_way(path, || UnixDatagram::unbound().and_then(|socket| socket.connect(path)).is_ok())?;
    let socket = UnixDatagram::bind(path)?;
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    Ok(socket)
}

/// Removes a socket that is left over. Other files stay, and so does a socket that is in use.
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
