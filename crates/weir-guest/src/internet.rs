//! All of the internet that a sample meets: every name has an address, every address answers.
//!
//! Every address is this machine (`guest/init`). A port is served from the moment that a sample calls it; what speaks HTTP
//! gets a small page, what else comes is read and thrown away. Nothing leaves: there is no other interface.

use crate::record::Record;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use weir_guest::behaviour::TEXT_MAX;

/// Ports and resolvers that are served at most.
const SERVED_MAX: usize = 128;
/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 64;
/// A connection that says nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(30);
const HEAD_MAX: usize = 16 * 1024;
const STACK: usize = 128 * 1024;
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n<html></html>\n";

/// The internet.
#[derive(Debug)]
pub(crate) struct Internet {
    record: Arc<Record>,
    served: Mutex<BTreeSet<(bool, SocketAddr)>>,
    connections: Arc<AtomicUsize>,
}

impl Internet {
    /// With what nearly every sample calls.
    pub(crate) fn start() -> Internet {
        let (record, served, connections) = Default::default();
        let internet = Internet { record, served, connections };
        internet.expect(SocketAddr::from(([192, 0, 2, 53], 53)));
        for port in [80, 443, 8080] {
            internet.expect(SocketAddr::from(([192, 0, 2, 1], port)));
        }
        internet
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// A sample is about to call this address: somebody should be there. This machine itself is as empty as any.
    pub(crate) fn expect(&self, to: SocketAddr) {
        if to.ip().is_loopback() || to.ip().is_unspecified() || to.port() == 0 {
            return;
        }
        // A server hears all addresses; a resolver must answer from the address that was asked.
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, to.port()));
        let dns = to.port() == 53;
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.len() < SERVED_MAX && served.insert((true, any)) {
            self.serve(any);
        }
        if dns && served.len() < SERVED_MAX && served.insert((false, to)) {
            self.resolve(to);
        }
    }

    fn serve(&self, at: SocketAddr) {
        let Ok(listener) = TcpListener::bind(at) else { return };
        let (record, connections) = (Arc::clone(&self.record), Arc::clone(&self.connections));
        start(move || {
            for stream in listener.incoming().flatten() {
                if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                    connections.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let (record, connections) = (Arc::clone(&record), Arc::clone(&connections));
                let serve = move || {
                    converse(stream, &record);
                    connections.fetch_sub(1, Ordering::AcqRel);
                };
                start(serve);
            }
        });
    }

    fn resolve(&self, at: SocketAddr) {
        let Ok(socket) = UdpSocket::bind(at) else { return };
        let record = Arc::clone(&self.record);
        start(move || {
            let mut question = [0; 1500];
            loop {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                if let Some(answer) = answer(&question[..length], &record) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
    }
}

/// A thread, if there is still room for one.
fn start(work: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new().stack_size(STACK).spawn(work);
}

/// Serves one connection.
fn converse(mut stream: TcpStream, record: &Record) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let Ok(at) = stream.local_addr() else { return };
    let at = SocketAddr::new(at.ip().to_canonical(), at.port());
    let (mut head, mut piece) = (Vec::new(), [0; 2048]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        if head.len() < HEAD_MAX {
            head.extend_from_slice(&piece[..length]);
        }
        if let Some((request, host)) = request(&head) {
            record.requests(at, request, host);
            let _ = stream.write_all(PAGE);
            return;
        }
    }
}

/// Method and path, and the host that was named, once a whole head is there.
fn request(head: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let end = text.find("\r\n\r\n").or_else(|| text.find("\n\n"))?;
    let mut lines = text[..end].lines();
    let mut words = lines.next()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/") {
        return None;
    }
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim().chars().take(255).collect())
    });
    let request = format!("{method} {path}").chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
    Some((request, host.unwrap_or_default()))
}

/// An address for every name; nothing for other questions.
fn answer(question: &[u8], record: &Record) -> Option<Vec<u8>> {
    let (name, end) = name(question, 12)?;
    let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
    let address = address_of(&name);
    record.asks(&name, address.into());
    let mut answer = Vec::with_capacity(end + 20);
    answer.extend_from_slice(question.get(..2)?);
    let given = u8::from(kind == 1);
    // A response, recursion desired and available, no error; one question and at most one answer.
    answer.extend_from_slice(&[0x81, 0x80, 0, 1, 0, given, 0, 0, 0, 0]);
    answer.extend_from_slice(question.get(12..end + 4)?);
    if given == 1 {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    Some(answer)
}

/// A name of a question, and where it ends.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() > 255 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        let label = message.get(at..at + length)?;
        name.extend(label.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }));
        at += length;
    }
}

/// The same name has the same address, in a network that is nobody's (198.18.0.0/15).
fn address_of(name: &str) -> Ipv4Addr {
    let hash = name
        .to_ascii_lowercase()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, ..] = hash.to_le_bytes();
    Ipv4Addr::new(198, 18 + (a & 1), b, c.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_addresses() {
        let record = Record::default();
        let mut question = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        question.extend_from_slice(b"\x04evil\x07example\x00\x00\x01\x00\x01");
        let reply = answer(&question, &record).unwrap();
        assert_eq!(&reply[..8], &[0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1]);
        assert_eq!(reply[reply.len() - 4..], address_of("evil.example").octets());
        let behaviour = record.take();
        assert_eq!((behaviour.network[0].what.as_str(), behaviour.network[0].to.as_str()), ("dns", "evil.example"));
        for cut in 0..question.len() {
            let _ = answer(&question[..cut], &record);
        }
        assert_eq!(answer(&[0xff; 40], &record), None);
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        assert_eq!(request(b"GET /x HTTP/1.1\r\nHost: a.example\r\n"), None);
        let whole = request(b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(whole, Some(("GET /x".into(), "a.example".into())));
        assert_eq!(request(b"NICK bot\r\n\r\n"), None);
    }

    #[test]
    fn the_page_says_its_length() {
        let text = std::str::from_utf8(PAGE).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1;
        assert!(text.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(!address_of("x").is_loopback());
    }
}
