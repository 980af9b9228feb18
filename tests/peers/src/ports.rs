//! Ports for servers that need a fixed one: those that are named in two configurations, and those that stop and start again.
//!
//! A port that the kernel gave for port 0 may be used by somebody else a moment later: as the source of an outgoing connection, of which
//! the tests with floods open thousands, or by a server of another test. So these ports lie below those that the kernel gives out, and each
//! belongs to one process until that ends. The reservation is a Unix socket with the port in its name, which disappears with the process,
//! however it ends.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Servers of the machine itself may use lower ports.
const FIRST: u16 = 10_000;
/// The first port that the kernel gives out, if the system does not tell.
const USUAL_END: u16 = 32_768;

static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A port that is free for TCP and UDP, with IPv4 and IPv6, and stays reserved for this process.
pub fn free_port() -> u16 {
    let end = end();
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes begin at different ports, so that they do not all try the same ones first.
    let begin = std::process::id().wrapping_mul(7919).wrapping_add(reserved.len() as u32);
    let ports = u32::from(end - FIRST);
    for step in 0..ports {
        let port = FIRST + (begin.wrapping_add(step) % ports) as u16;
        if let Some(reservation) = reserve(port).filter(|_| is_free(port)) {
            reserved.push(reservation);
            return port;
        }
    }
    panic!("no port between {FIRST} and {end} is free");
}

fn end() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > 2 * FIRST).unwrap_or(USUAL_END)
}

fn reserve(port: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("weir-test-port-{port}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

fn is_free(port: u16) -> bool {
    // Without IPv6, nothing can use the port there.
    let taken = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && !TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_err_and(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_port_is_given_once_and_not_while_somebody_has_it() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (FIRST..end()).contains(port)));
        let port = *ports.first().expect("a port");
        assert!(reserve(port).is_none() && is_free(port));
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        assert!(!is_free(port));
    }
}
