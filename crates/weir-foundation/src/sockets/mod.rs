//! Listening sockets that outlive the gate that accepts from them, and even the process.
//!
//! While nobody accepts from a socket, its clients wait in the kernel's queue; once it is closed, they are refused. Therefore a gate does
//! not own the sockets on which it listens. It asks for one here ([`listen`]) and gets a copy. The socket itself stays open until [`close`]
//! while the gate is restarted, and [`hand_over`] passes all sockets to the next process. [`inherit`] takes the sockets that a former
//! process or systemd passed to this one ([`inherited`]).
//!
//! Only sockets that are asked for under a supervisor are kept, because only then is the gate known. Elsewhere, in tests and tools,
//! [`listen`] just opens a socket.

pub mod inherited;
mod unix;

pub use unix::{listen_unix, receive_unix};

use crate::supervision::{self, GateName};
use inherited::Inherited;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use unix::KeptUnix;

/// How many connections the kernel keeps waiting for us while nobody accepts them.
const BACKLOG: i32 = 4_096;

/// The sockets that are kept open. This list is global because file descriptors belong to the whole process.
static KEPT: Mutex<Vec<KeptSocket>> = Mutex::new(Vec::new());

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// At a port.
    Tcp(SocketAddr),
    /// At a path.
    Unix(PathBuf),
}

struct KeptSocket {
    /// Not known for a socket from systemd until a gate asks for it.
    gate: Option<GateName>,
    /// The address that was asked for; its port may be 0.
    asked: SocketAddr,
    socket: TcpListener,
    /// Whether a gate accepts from a copy of it.
    in_use: bool,
}

/// A socket that listens on `address`: the one that is kept for it, or else a new one. It does not block.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let mut sockets = listen_shared(address, 1)?;
    sockets.pop().ok_or_else(|| io::Error::other("no socket was opened"))
}

/// At least `count` sockets that share `address`, so that each of `count` threads can accept from its own. Connections must be accepted
/// from all of them, because the kernel spreads connections over them.
pub fn listen_shared(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let Some(gate) = supervision::current_gate() else { return open_shared(address, count, false) };
    let mut kept = lock();
    let mut sockets = Vec::new();
    let is_meant = choose(&kept, gate, address);
    for one in kept.iter_mut().filter(|one| is_meant(one)) {
        // Several listeners may ask for port 0. Each must get its own socket back, so this one does not take more than it needs.
        if sockets.len() == count && address.port() == 0 {
            break;
        }
        sockets.push(copy(&one.socket)?);
        (one.gate, one.asked, one.in_use) = (Some(gate), address, true);
    }
    // Another listener of this gate may have a socket for both versions of IP, as systemd passes it. Then this listener accepts from it
    // too.
    let shares = |one: &&KeptSocket| one.gate == Some(gate) && one.in_use && one.covers(address);
    if let Some(both) = kept.iter().find(shares).filter(|_| sockets.is_empty()) {
        sockets.push(copy(&both.socket)?);
    }
    if sockets.is_empty() {
        // `[::]` normally takes connections of both versions of IP. If we listen on 0.0.0.0 with this port already, it must take only IPv6,
        // or it would not get the port.
        let ipv4_is_ours = kept.iter().any(|one| is_everywhere_on(one.asked, address.port()));
        for socket in open_shared(address, count, ipv4_is_ours)? {
            sockets.push(copy(&socket)?);
            kept.push(KeptSocket { gate: Some(gate), asked: address, socket, in_use: true });
        }
    }
    // There may be fewer sockets than threads, because systemd passes only one. Then threads share a socket.
    while let Some(last) = sockets.last().filter(|_| sockets.len() < count) {
        sockets.push(copy(last)?);
    }
    Ok(sockets)
}

/// Tests whether a socket could listen on `address` now. It is bound for a moment but never listens, so another program that wants the
/// address meanwhile is not refused.
pub fn could_listen(address: SocketAddr) -> io::Result<()> {
    bound(address, false, false).map(drop)
}

/// Keeps the sockets that were passed to this process for the gates that will ask for them.
pub fn inherit(passed: Vec<Inherited>) {
    for one in passed {
        match one {
            Inherited::Tcp { gate, asked, socket } => lock().push(KeptSocket { gate, asked, socket, in_use: false }),
            Inherited::Unix { gate, path, socket } => unix::lock().push(KeptUnix::inherited(gate, path, socket)),
        }
    }
}

/// Notes that the gate has stopped. Its sockets stay open for the next time it asks.
pub fn keep(gate: GateName) {
    lock().iter_mut().filter(|one| one.gate == Some(gate)).for_each(|one| one.in_use = false);
    unix::lock().iter_mut().filter(|one| one.gate == Some(gate)).for_each(|one| one.in_use = false);
}

/// Closes the sockets of a gate that does not accept from them. From now on its clients are refused at once.
pub fn close(gate: GateName) {
    lock().retain(|one| one.in_use || one.gate != Some(gate));
    unix::lock().retain(|one| one.in_use || one.gate != Some(gate));
}

/// Closes all sockets. Copies that are in use stay open until their gates stop.
pub fn close_all() {
    lock().clear();
    unix::lock().clear();
}

/// Closes the sockets that were passed to this process but that no gate has asked for. Returns their addresses.
pub fn close_unused() -> Vec<Address> {
    let (mut kept, mut kept_unix) = (lock(), unix::lock());
    let tcp = kept.iter().filter(|one| !one.in_use).map(|one| Address::Tcp(one.asked));
    let unused = tcp.chain(kept_unix.iter().filter(|one| !one.in_use).map(KeptUnix::address)).collect();
    kept.retain(|one| one.in_use);
    kept_unix.retain(|one| one.in_use);
    unused
}

/// Calls `each` for all sockets that are kept, with the address at which each listens.
pub fn for_each(mut each: impl FnMut(Address, BorrowedFd<'_>)) {
    for one in lock().iter() {
        if let Ok(address) = one.socket.local_addr() {
            each(Address::Tcp(address), one.socket.as_fd());
        }
    }
    unix::lock().iter().for_each(|one| each(one.address(), one.socket.as_fd()));
}

/// Leaves the sockets open for the program that replaces this one. Returns the text that [`inherited::from_former`] reads.
pub fn hand_over() -> io::Result<String> {
    let (kept, kept_unix) = (lock(), unix::lock());
    let tcp = kept.iter().map(|one| inherited::describe(one.gate, &one.asked, one.socket.as_fd()));
    let unix = kept_unix.iter().map(|one| inherited::describe(one.gate, &inherited::AT_A_PATH, one.socket.as_fd()));
    Ok(tcp.chain(unix).collect::<io::Result<Vec<_>>>()?.join(" "))
}

/// Chooses the kept sockets for an address: those that were opened for it, or else one that takes both versions of IP and so listens there
/// as well. If `0.0.0.0` and `[::]` have a socket each, neither gets the other's.
fn choose(kept: &[KeptSocket], gate: GateName, address: SocketAddr) -> impl Fn(&KeptSocket) -> bool + use<> {
    let has_its_own = kept.iter().any(|one| one.is_free_for(gate) && one.asked == address);
    move |one| one.is_free_for(gate) && if has_its_own { one.asked == address } else { one.covers(address) }
}

impl KeptSocket {
    fn is_free_for(&self, gate: GateName) -> bool {
        !self.in_use && self.gate.is_none_or(|owner| owner == gate)
    }

    /// A socket on all addresses of IPv6 usually takes connections of IPv4 as well; systemd passes only that one.
    fn covers(&self, address: SocketAddr) -> bool {
        is_everywhere(self.asked, address) && takes_both_versions(&self.socket)
    }
}

/// Whether both mean all addresses, on the same port.
fn is_everywhere(kept: SocketAddr, asked: SocketAddr) -> bool {
    kept.port() == asked.port() && asked.port() != 0 && kept.ip().is_unspecified() && asked.ip().is_unspecified()
}

/// Whether this is a socket of IPv6 that also takes connections of IPv4.
fn takes_both_versions(socket: &TcpListener) -> bool {
    let is_ipv6 = socket.local_addr().is_ok_and(|bound| bound.is_ipv6());
    is_ipv6 && SockRef::from(socket).only_v6().is_ok_and(|only| !only)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn copy(socket: &TcpListener) -> io::Result<TcpListener> {
    let copy = socket.try_clone()?;
    copy.set_nonblocking(true)?;
    Ok(copy)
}

fn is_everywhere_on(asked: SocketAddr, port: u16) -> bool {
    asked.is_ipv4() && asked.ip().is_unspecified() && asked.port() == port && port != 0
}

fn open_shared(address: SocketAddr, count: usize, only_v6: bool) -> io::Result<Vec<TcpListener>> {
    let open = |address, shared| open(address, shared, only_v6);
    if count == 1 {
        return Ok(vec![open(address, false)?]);
    }
    // Sockets that share their port share it with other programs of the same user too, without an error. This one does not share, so it
    // fails if the port is taken.
    drop(open(address, false)?);
    let mut sockets = vec![open(address, true)?];
    let bound = sockets[0].local_addr()?;
    while sockets.len() < count {
        sockets.push(open(bound, true)?);
    }
    Ok(sockets)
}

fn open(address: SocketAddr, shared: bool, only_v6: bool) -> io::Result<TcpListener> {
    let socket = bound(address, shared, only_v6)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn bound(address: SocketAddr, shared: bool, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if only_v6 && address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn lock() -> MutexGuard<'static, Vec<KeptSocket>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervision::Supervisor;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use tokio::sync::mpsc::unbounded_channel;

    /// The list is global, so tests that use it run one at a time.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn a_socket_waits_for_its_gate_until_it_is_closed() {
        let _turn = TURN.lock().await;
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mail = Supervisor::new(GateName::Mail, 0, unbounded_channel().0);
        let web = Supervisor::new(GateName::Web, 0, unbounded_channel().0);
        let open = |address| async move { listen(address).unwrap() };
        let (first, second) = (mail.scope(open(any)).await, mail.scope(open(any)).await);
        let addresses = [first.local_addr().unwrap(), second.local_addr().unwrap()];
        assert_ne!(addresses[0], addresses[1]);
        drop((first, second));
        keep(GateName::Mail);
        let waits = TcpStream::connect(addresses[1]).expect("it waits, though nobody accepts");
        let of_web = web.scope(open(any)).await;
        assert!(!addresses.contains(&of_web.local_addr().unwrap()), "another gate's");
        let again = [mail.scope(open(any)).await, mail.scope(open(any)).await];
        assert_eq!(again.each_ref().map(|socket| socket.local_addr().unwrap()), addresses);
        let (_, peer) = again[1].accept().unwrap();
        assert_eq!(peer, waits.local_addr().unwrap());

        drop(again);
        keep(GateName::Mail);
        close(GateName::Web);
        assert!(TcpStream::connect(of_web.local_addr().unwrap()).is_ok(), "it is in use");
        close(GateName::Mail);
        assert!(TcpStream::connect(addresses[0]).is_err());
        let shared = web.scope(async { listen_shared(any, 3).unwrap() }).await;
        let ports: Vec<u16> = shared.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert!(ports.len() == 3 && ports.iter().all(|port| *port == ports[0]), "{ports:?}");
        let taken = SocketAddr::from(([127, 0, 0, 1], ports[0]));
        assert_eq!(open_shared(taken, 2, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((shared, of_web));
        close_all();
        assert!(TcpStream::connect(taken).is_err());

        let one = open_shared(any, 1, false).unwrap().remove(0);
        let bound = one.local_addr().unwrap();
        inherit(vec![Inherited::Tcp { gate: None, asked: bound, socket: one }]);
        let threads = web.scope(async { listen_shared(bound, 2).unwrap() }).await;
        assert!(threads.len() == 2 && threads.iter().all(|socket| socket.local_addr().unwrap() == bound));
        assert_eq!(close_unused(), []);
        keep(GateName::Web);
        assert_eq!(close_unused(), [Address::Tcp(bound)]);
    }

    #[tokio::test]
    async fn a_socket_at_a_path_waits_for_its_gate_too() {
        let _turn = TURN.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door");
        let lab = Supervisor::new(GateName::Lab, 0, unbounded_channel().0);
        let open = || lab.scope(async { listen_unix(&path) });
        let first = open().await.unwrap();
        assert_eq!(open().await.unwrap_err().kind(), io::ErrorKind::AddrInUse, "it is in use");
        drop(first);
        keep(GateName::Lab);
        let waits = UnixStream::connect(&path).expect("it waits, though nobody accepts");
        let again = open().await.unwrap();
        assert!(again.accept().is_ok(), "the one who waited");
        drop((waits, again));
        // Somebody removed the file, so no client could find the socket that is kept.
        keep(GateName::Lab);
        std::fs::remove_file(&path).unwrap();
        drop(open().await.unwrap());
        assert!(UnixStream::connect(&path).is_ok());
        keep(GateName::Lab);
        assert_eq!(close_unused(), [Address::Unix(path.clone())]);
        assert!(UnixStream::connect(&path).is_err());
    }

    #[test]
    fn all_addresses_are_the_same_in_both_families() {
        let same = |one: &str, other: &str| is_everywhere(one.parse().unwrap(), other.parse().unwrap());
        assert!(same("[::]:25", "0.0.0.0:25"));
        assert!(!same("[::]:25", "0.0.0.0:587"));
        assert!(!same("127.0.0.1:25", "0.0.0.0:25"));
        assert!(!same("[::]:0", "0.0.0.0:0"), "each gets a free port of its own");
    }

    fn everywhere(ip: &str, port: u16) -> SocketAddr {
        format!("{ip}:{port}").parse().unwrap()
    }

    /// A port that is free in both versions of IP; none if the machine has no IPv6.
    fn free_port() -> Option<u16> {
        TcpListener::bind("[::]:0").ok()?.local_addr().ok().map(|address| address.port())
    }

    /// Listens as the recipes do: `listen = ["0.0.0.0:25", "[::]:25"]`. Sockets that are kept or handed over are found again, each by its
    /// own address.
    #[tokio::test]
    async fn both_versions_of_ip_can_have_the_same_port_again_and_again() {
        let _turn = TURN.lock().await;
        let lab = Supervisor::new(GateName::Lab, 0, unbounded_channel().0);
        let Some(port) = free_port() else { return };
        let [four, six] = [everywhere("0.0.0.0", port), everywhere("[::]", port)];
        for count in [1, 2] {
            for start in ["fresh", "reloaded", "in the other order", "reloaded again"] {
                let order = if start == "in the other order" { [six, four] } else { [four, six] };
                let both = async { order.map(|address| listen_shared(address, count)) };
                let opened = lab.scope(both).await;
                for (address, sockets) in order.iter().zip(&opened) {
                    let sockets = sockets.as_ref().unwrap_or_else(|error| panic!("{start}, {address}: {error}"));
                    assert_eq!(sockets.len(), count, "{start}, {address}");
                    assert!(sockets.iter().all(|socket| socket.local_addr().unwrap() == *address), "{start}");
                }
                drop(opened);
                keep(GateName::Lab);
            }
            close(GateName::Lab);
        }
    }

    /// systemd listens on `[::]` once, for both versions of IP.
    #[tokio::test]
    async fn a_socket_for_both_versions_of_ip_serves_who_asks_for_one_of_them() {
        let _turn = TURN.lock().await;
        let console = Supervisor::new(GateName::Console, 0, unbounded_channel().0);
        let Some(port) = free_port() else { return };
        let [four, six] = [everywhere("0.0.0.0", port), everywhere("[::]", port)];
        let passed = |only_v6| {
            let socket = open(six, false, only_v6).unwrap();
            inherit(vec![Inherited::Tcp { gate: Some(GateName::Console), asked: six, socket }]);
        };
        passed(false);
        for _ in 0..2 {
            let socket = console.scope(async { listen(four) }).await.unwrap();
            assert_eq!(socket.local_addr().unwrap(), six);
            keep(GateName::Console);
        }
        close(GateName::Console);
        for (start, order) in [("passed", [four, six]), ("fresh", [six, four])] {
            if start == "passed" {
                passed(false);
            }
            let opened = console.scope(async { order.map(listen) }).await;
            assert!(opened.iter().all(Result::is_ok), "{start}: {opened:?}");
            drop(opened);
            keep(GateName::Console);
            close(GateName::Console);
        }
        passed(true);
        let socket = console.scope(async { listen(four) }).await.unwrap();
        assert_eq!(socket.local_addr().unwrap(), four, "nobody of IPv4 would come to the other");
        drop(socket);
        keep(GateName::Console);
        close(GateName::Console);
    }
}
