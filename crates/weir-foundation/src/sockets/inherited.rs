//! Listening sockets that were passed to this process: by systemd (`LISTEN_FDS`), or by the program that it replaced.
//!
//! Unsafe code is allowed here because a number from the environment becomes a file descriptor of ours. It is right only if nobody else in
//! this process has that descriptor, so both functions are to be called once, before anything else is opened. A number that is no listening
//! TCP socket is an error.
#![allow(unsafe_code)]

use crate::supervision::GateName;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_acceptconn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A listening socket from another process.
#[derive(Debug)]
pub struct Inherited {
    /// Whose it was, if that is known.
    pub gate: Option<GateName>,
    /// The address that was asked for.
    pub asked: SocketAddr,
    /// The socket.
    pub socket: TcpListener,
}

/// The first descriptor that systemd passes.
const FIRST: RawFd = 3;
const MOST: RawFd = 4_096;

/// What systemd passed: `count` is the value of `LISTEN_FDS`, `pid` that of `LISTEN_PID`, which names the process that is meant.
pub fn from_systemd(count: &str, pid: &str) -> io::Result<Vec<Inherited>> {
    if pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: RawFd = count.parse().map_err(|_| bad("LISTEN_FDS is not a number", count))?;
    let take = |number| {
        let socket = take(number)?;
        let asked = socket.local_addr()?;
        Ok(Inherited { gate: None, asked, socket })
    };
    (FIRST..FIRST + count.clamp(0, MOST)).map(take).collect()
}

/// What a former program of this process passed, as [`super::hand_over`] described it.
pub fn from_former(described: &str) -> io::Result<Vec<Inherited>> {
    described.split_whitespace().map(read).collect()
}

/// How the next program finds a socket: descriptor, gate, address. From now on it is not closed when that program starts.
pub(super) fn describe(gate: Option<GateName>, asked: SocketAddr, socket: &TcpListener) -> io::Result<String> {
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
    let asked = part()?.parse().map_err(|_| wrong())?;
    Ok(Inherited { gate, asked, socket: take(number)? })
}

fn take(number: RawFd) -> io::Result<TcpListener> {
    let wrong = || bad("this file descriptor is no listening socket", &number.to_string());
    if number < FIRST {
        return Err(wrong());
    }
    // SAFETY: borrowed only for two system calls, which say so if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !socket_acceptconn(borrowed).map_err(|_| wrong())? {
        return Err(wrong());
    }
    // Programs that we start must not keep our ports.
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, as was just seen, and the process that started us says that it is for us alone.
    Ok(TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

fn bad(what: &str, value: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_socket_is_found_by_its_description() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = socket.local_addr().unwrap();
        let asked: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let described = describe(Some(GateName::Mail), asked, &socket).unwrap();
        let number = socket.into_raw_fd();
        assert_eq!(described, format!("{number}=mail=127.0.0.1:0"));
        let passed = from_former(&described).unwrap().remove(0);
        assert_eq!((passed.gate, passed.asked), (Some(GateName::Mail), asked));
        assert_eq!(passed.socket.local_addr().unwrap(), bound);
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
