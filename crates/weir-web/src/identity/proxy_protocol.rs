//! The PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`), without I/O.
//!
//! A listed peer must begin every connection with this header; from any other peer it must not be expected. The caller reads until the
//! header is complete, within its own time limit, and never needs more than [`BYTES_MAX`] bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What the bytes so far mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A header begins, and more must be read.
    NeedMore,
    /// The header is complete; everything behind `consumed` bytes comes from the client.
    Header {
        /// Length of the header.
        consumed: usize,
        /// Where the connection really comes from.
        source: Source,
    },
    /// This is not a header that we accept.
    Refused(ProxyHeaderError),
}

/// Where a connection that a proxy passes on really comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Client(SocketAddr),
    /// From the proxy itself (a health check), or from a client that it does not know: the socket's address counts.
    Own,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    #[error("no PROXY header, though the peer is listed to send one")]
    Missing,
    /// They begin like a header.
    #[error("a malformed PROXY header")]
    Malformed,
    /// More than [`BYTES_MAX`].
    #[error("a PROXY header longer than {BYTES_MAX} bytes")]
    Long,
}

/// The longest header that is accepted.
pub const BYTES_MAX: usize = 4096;
/// The length of a version 1 line with its end.
const LINE_MAX: usize = 107;
const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Reads the header at the start of a connection.
pub fn parse(bytes: &[u8]) -> Outcome {
    if agrees(bytes, SIGNATURE) {
        binary(bytes)
    } else if agrees(bytes, LINE_START) {
        line(bytes)
    } else {
        Outcome::Refused(ProxyHeaderError::Missing)
    }
}

/// Whether `bytes` begin with `start`, as far as both go.
fn agrees(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(a, b)| a == b)
}

fn line(bytes: &[u8]) -> Outcome {
    let seen = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if seen.len() == LINE_MAX { Outcome::Refused(ProxyHeaderError::Malformed) } else { Outcome::NeedMore };
    };
    let text = seen.get(LINE_START.len()..end).and_then(|text| str::from_utf8(text).ok());
    match text.and_then(line_source) {
        Some(source) => Outcome::Header { consumed: end + 2, source },
        None => Outcome::Refused(ProxyHeaderError::Malformed),
    }
}

fn line_source(text: &str) -> Option<Source> {
    let mut words = text.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Source::Own);
    }
    let (source, target): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let port = line_port(words.next()?)?;
    line_port(words.next()?)?;
    let fits = match family {
        "TCP4" => source.is_ipv4() && target.is_ipv4(),
        "TCP6" => source.is_ipv6() && target.is_ipv6(),
        _ => false,
    };
    (fits && words.next().is_none()).then(|| client(source, port))
}

fn line_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

fn binary(bytes: &[u8]) -> Outcome {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return Outcome::NeedMore };
    let [command, family, high, low] = [head[12], head[13], head[14], head[15]];
    let length = usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 {
        return Outcome::Refused(ProxyHeaderError::Malformed);
    }
    if length + 16 > BYTES_MAX {
        return Outcome::Refused(ProxyHeaderError::Long);
    }
    let Some(body) = rest.get(..length) else { return Outcome::NeedMore };
    match binary_source(command & 15, family, body) {
        Some(source) => Outcome::Header { consumed: 16 + length, source },
        None => Outcome::Refused(ProxyHeaderError::Malformed),
    }
}

fn binary_source(command: u8, family: u8, body: &[u8]) -> Option<Source> {
    match (command, family >> 4, family & 15) {
        (0, _, _) => Some(Source::Own),
        (1, 1, 1 | 2) => {
            let (addresses, _) = body.split_first_chunk::<12>()?;
            Some(client(Ipv4Addr::from(*addresses.first_chunk::<4>()?).into(), port(&addresses[8..])?))
        }
        (1, 2, 1 | 2) => {
            let (addresses, _) = body.split_first_chunk::<36>()?;
            Some(client(Ipv6Addr::from(*addresses.first_chunk::<16>()?).into(), port(&addresses[32..])?))
        }
        // Unspecified addresses and Unix sockets: there is no address that could be used.
        (1, 0 | 3, 0..=2) => Some(Source::Own),
        _ => None,
    }
}

fn port(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn client(address: IpAddr, port: u16) -> Source {
    Source::Client(SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(consumed: usize, client: &str) -> Outcome {
        Outcome::Header { consumed, source: Source::Client(client.parse().unwrap()) }
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        [&SIGNATURE[..], &[command, family], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    #[test]
    fn version_1_lines() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET / HTTP/1.1\r\n";
        assert_eq!(parse(line), header(42, "192.0.2.1:56324"));
        assert_eq!(parse(b"PROXY TCP6 2001:db8::1 ::2 5 6\r\n"), header(32, "[2001:db8::1]:5"));
        let own = |consumed| Outcome::Header { consumed, source: Source::Own };
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), own(15));
        assert_eq!(parse(b"PROXY UNKNOWN ffff::1 anything 1 2\r\n"), own(36));
        for wrong in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.1  192.0.2.2 56324 443\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 1\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 1\r\n",
            "PROXY \r\n",
            &format!("PROXY UNKNOWN {}", "x".repeat(100)),
        ] {
            assert_eq!(parse(wrong.as_bytes()), Outcome::Refused(ProxyHeaderError::Malformed), "{wrong}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Outcome::Refused(ProxyHeaderError::Missing));
        assert_eq!(parse(b"\r\n\r\nX"), Outcome::Refused(ProxyHeaderError::Missing));
    }

    #[test]
    fn version_2_headers() {
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0, 80];
        assert_eq!(parse(&v2(0x21, 0x11, &v4)), header(28, "192.0.2.1:4660"));
        let with_more = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        assert_eq!(parse(&v2(0x21, 0x11, &with_more)), header(35, "192.0.2.1:4660"));
        let mut v6 = [0; 36];
        v6[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 9]);
        v6[33] = 7;
        assert_eq!(parse(&v2(0x21, 0x21, &v6)), header(52, "192.0.2.9:7"));
        let own = |bytes: &[u8]| parse(bytes) == Outcome::Header { consumed: bytes.len(), source: Source::Own };
        assert!(
            own(&v2(0x20, 0x11, &v4))
                && own(&v2(0x20, 0, &[]))
                && own(&v2(0x21, 0, &[]))
                && own(&v2(0x21, 0x31, &[0; 216]))
        );
        for (command, family, body) in
            [(0x31, 0x11, &v4[..]), (0x22, 0x11, &v4), (0x21, 0x11, &v4[..11]), (0x21, 0x41, &v4)]
        {
            assert_eq!(parse(&v2(command, family, body)), Outcome::Refused(ProxyHeaderError::Malformed));
        }
        assert_eq!(parse(&v2(0x21, 0x11, &[0; 4081])), Outcome::Refused(ProxyHeaderError::Long));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_outcome(bytes: Vec<u8>, start in 0usize..3) {
            let bytes = [[&b""[..], LINE_START, SIGNATURE][start], &bytes].concat();
            if let Outcome::Header { consumed, .. } = parse(&bytes) {
                prop_assert!(consumed <= bytes.len());
            }
        }

        /// Bytes may come one by one: there is no outcome before the last one, and what follows does not change it.
        #[test]
        fn a_header_in_pieces(source: SocketAddr, second: bool, tail: Vec<u8>) {
            let bytes = if second {
                let body = match source.ip() {
                    IpAddr::V4(v4) => [&v4.octets()[..], &[0; 4], &source.port().to_be_bytes(), &[0; 2]].concat(),
                    IpAddr::V6(v6) => [&v6.octets()[..], &[0; 16], &source.port().to_be_bytes(), &[0; 2]].concat(),
                };
                v2(0x21, if source.is_ipv4() { 0x11 } else { 0x21 }, &body)
            } else {
                let family = if source.is_ipv4() { 4 } else { 6 };
                format!("PROXY TCP{family} {0} {0} {1} 1\r\n", source.ip(), source.port()).into_bytes()
            };
            for cut in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..cut]), Outcome::NeedMore);
            }
            let whole = [&bytes[..], &tail].concat();
            prop_assert_eq!(parse(&whole), Outcome::Header { consumed: bytes.len(), source: client(source.ip(), source.port()) });
        }
    }
}
