//! Listening sockets that were passed to this process: by systemd (`LISTEN_FDS`), or by the program that it replaced.
//!
//! Unsafe code is allowed here because a number from the environment becomes a file descriptor that we own. This is sound only if nothing
//! else in this process has that descriptor. So each of the two functions is called once, before anything else is opened. A number that is
//! not a listening socket is an error.
#![allow(unsafe_code)]

use crate::supervision::GateName;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// A listening socket from another process.
#[derive(Debug)]
pub enum Inherited {
    /// A TCP socket.
    Tcp {
        /// The gate that it belongs to, if that is known.
        gate: Option<GateName>,
        /// The address that the gate asked for.
        asked: SocketAddr,
        /// The socket.
        socket: TcpListener,
    },
    /// A Unix socket.
    Unix {
        /// The gate that it belongs to, if that is known.
        gate: Option<GateName>,
        /// The path.
        path: PathBuf,
        /// The socket.
        socket: UnixListener,
    },
}

/// The address in the description of a Unix socket, whose path is known from the socket itself.
pub(super) const AT_A_PATH: &str = "unix";

/// The first descriptor that systemd passes.
const FIRST: RawFd = 3;
const MOST: RawFd = 4_096;

/// The sockets that systemd passed. `count` is the value of `LISTEN_FDS`, `pid` that of `LISTEN_PID`: the process that they are meant for.
pub fn from_systemd(count: &str, pid: &str) -> io::Result<Vec<Inherited>> {
    if pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: RawFd = count.parse().map_err(|_| bad("LISTEN_FDS is not a number", count))?;
    (FIRST..FIRST + count.clamp(0, MOST)).map(|number| inherited(take(number)?, None, None)).collect()
}

/// The sockets that the program before this one in the same process passed, as described by [`super::hand_over`].
pub fn from_former(described: &str) -> io::Result<Vec<Inherited>> {
    described.split_whitespace().map(read).collect()
}

/// Describes a socket for the next program: descriptor, gate, address. From now on the socket stays open when that program starts.
pub(super) fn describe(gate: Option<GateName>, asked: &dyn Display, socket: BorrowedFd<'_>) -> io::Result<String> {
    fcntl_setfd(socket, FdFlags::empty())?;
    let gate = gate.map_or_else(|| "-".to_owned(), |gate| gate.to_string());
    Ok(format!("{}={gate}={asked}", socket.as_raw_fd()))
}

fn read(described: &str) -> io::Result<Inherited> {
    let wrong = || bad("a socket that was handed over is not described as it should be", described);
    let mut parts = described.splitn(3, '=');
    let mut part = || parts.next().ok_or_else(wrong);
    let number: RawFd = part()?.parse().map_err(|_| wrong())?;
    let gate = part()?.parse().ok();
    let asked = Some(part()?).filter(|asked| *asked != AT_A_PATH);
    let asked = asked.map(|asked| asked.parse().map_err(|_| wrong())).transpose()?;
    inherited(take(number)?, gate, asked)
}

/// Recognises what kind of socket this is. `asked` is the address that the gate asked for, if that is not the one at which the socket
/// listens.
fn inherited(socket: OwnedFd, gate: Option<GateName>, asked: Option<SocketAddr>) -> io::Result<Inherited> {
    if socket_domain(&socket)? == AddressFamily::UNIX {
        let socket = UnixListener::from(socket);
        let path = socket.local_addr()?.as_pathname().map(PathBuf::from);
        let path = path.ok_or_else(|| bad("this socket has no path", &socket.as_raw_fd().to_string()))?;
        return Ok(Inherited::Unix { gate, path, socket });
    }
    let socket = TcpListener::from(socket);
    let asked = asked.map_or_else(|| socket.local_addr(), Ok)?;
    Ok(Inherited::Tcp { gate, asked, socket })
}

fn take(number: RawFd) -> io::Result<OwnedFd> {
    let wrong = || bad("this file descriptor is no listening socket", &number.to_string());
    if number < FIRST {
        return Err(wrong());
    }
    // SAFETY: it is borrowed only for two system calls, which fail if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !socket_acceptconn(borrowed).map_err(|_| wrong())? {
        return Err(wrong());
    }
    // Programs that we start must not inherit our ports.
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the calls above have shown that it is open, and the process that started us says that it is for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn bad(what: &str, value: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, IntoRawFd};

    #[test]
    fn a_socket_is_found_by_its_description() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = socket.local_addr().unwrap();
        let asked: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let described = describe(Some(GateName::Mail), &asked, socket.as_fd()).unwrap();
        let number = socket.into_raw_fd();
        assert_eq!(described, format!("{number}=mail=127.0.0.1:0"));
        let passed = from_former(&described).unwrap().remove(0);
        let Inherited::Tcp { gate, asked: told, socket } = passed else { panic!("{passed:?}") };
        assert_eq!((gate, told), (Some(GateName::Mail), asked));
        assert_eq!(socket.local_addr().unwrap(), bound);

        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("a door");
        let socket = UnixListener::bind(&at).unwrap();
        let described = describe(Some(GateName::Web), &AT_A_PATH, socket.as_fd()).unwrap();
        assert_eq!(described, format!("{}=web=unix", socket.into_raw_fd()));
        let passed = from_former(&described).unwrap().remove(0);
        let Inherited::Unix { gate, path, .. } = passed else { panic!("{passed:?}") };
        assert_eq!((gate, path), (Some(GateName::Web), at));
    }

    #[test]
    fn what_is_no_listening_socket_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        for wrong in
            [format!("{number}=mail=127.0.0.1:0"), "1=mail=127.0.0.1:0".into(), "9999=-=[::1]:1".into(), "x".into()]
        {
            assert!(from_former(&wrong).is_err(), "{wrong}");
        }
        assert!(from_systemd("many", &std::process::id().to_string()).is_err());
        assert!(from_systemd("1", "1").unwrap().is_empty(), "it is for another process");
    }
}
