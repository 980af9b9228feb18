//! The client's address in the words of the proxies before us: X-Forwarded-For, or Forwarded (RFC 7239).
//!
//! Each proxy adds the address that it saw at the right end. So the list is read from the right, as long as each hop is a listed proxy. The
//! first address that is not listed is the client; anything to its left could have been written by anybody. Reading stops at an entry that
//! cannot be parsed, and then the last hop that was read stands for the client.
//!
//! Only the configured header is read: a proxy that writes one of them lets clients write the other. At most [`HOPS`] hops.

use super::fields::Fields;
use http::{HeaderName, header};
use std::net::{IpAddr, SocketAddr};

/// The header in which the listed proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trail {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
    /// Neither: listed proxies use the PROXY protocol.
    None,
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED: HeaderName = header::FORWARDED;

/// How many addresses are read at most.
pub const HOPS: usize = 32;

/// The client behind `peer`, which is a listed proxy.
pub fn client(peer: IpAddr, headers: &(impl Fields + ?Sized), trail: Trail, listed: impl Fn(IpAddr) -> bool) -> IpAddr {
    match trail {
        Trail::XForwardedFor => {
            let lines = headers.lines(&X_FORWARDED_FOR).rev();
            last_unlisted(peer, lines.flat_map(|line| line.rsplit(|byte| *byte == b',')).map(bare_address), listed)
        }
        Trail::Forwarded => {
            let lines = headers.lines(&FORWARDED).rev();
            last_unlisted(peer, lines.flat_map(Elements::of).map(|element| element.and_then(for_address)), listed)
        }
        Trail::None => peer,
    }
}

fn last_unlisted(peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>, listed: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut known = peer;
    for hop in hops.take(HOPS) {
        let Some(hop) = hop else { break };
        known = hop.to_canonical();
        if !listed(known) {
            break;
        }
    }
    known
}

/// The elements of a `Forwarded` line from the right; `None` means that from here on they cannot be told apart.
struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl Elements<'_> {
    fn of(line: &[u8]) -> Elements<'_> {
        Elements { rest: Some(line) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let line = self.rest.take()?;
        let mut quoted = false;
        for (place, byte) in line.iter().enumerate().rev() {
            match byte {
                b'"' => quoted = !quoted,
                // Seen from the right, an escaped quote looks like a real one: a client could end a quoted host name with it.
                b'\\' => return Some(None),
                b',' if !quoted => {
                    let (rest, element) = line.split_at(place);
                    self.rest = Some(rest);
                    return Some(element.get(1..));
                }
                _ => {}
            }
        }
        Some((!quoted).then_some(line))
    }
}

/// The address of an element's one `for` pair.
fn for_address(element: &[u8]) -> Option<IpAddr> {
    let mut quoted = false;
    let pairs = element.split(|byte| {
        quoted ^= *byte == b'"';
        *byte == b';' && !quoted
    });
    let mut nodes = pairs.filter_map(|pair| {
        let (name, value) = pair.trim_ascii().split_at_checked(4)?;
        name.eq_ignore_ascii_case(b"for=").then_some(value)
    });
    let (node, None) = (nodes.next()?, nodes.next()) else { return None };
    let unquoted = node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\""));
    bare_address(unquoted.unwrap_or(node))
}

/// An address with or without port and brackets.
fn bare_address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    let unbracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match unbracketed {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => text.parse::<SocketAddr>().ok().map(|socket| socket.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    const PEER: &str = "10.0.0.1";

    fn ask(trail: Trail, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        let name = if trail == Trail::Forwarded { "forwarded" } else { "x-forwarded-for" };
        for line in lines {
            headers.append(name, HeaderValue::from_str(line).unwrap());
        }
        let listed = |hop: IpAddr| hop.to_string().starts_with("10.");
        client(PEER.parse().unwrap(), &headers, trail, listed).to_string()
    }

    #[test]
    fn x_forwarded_for_is_read_from_the_right_by_listed_speakers() {
        let xff = |lines: &[&str]| ask(Trail::XForwardedFor, lines);
        assert_eq!(xff(&[]), PEER);
        assert_eq!(xff(&["192.0.2.1"]), "192.0.2.1");
        assert_eq!(xff(&["6.6.6.6, 192.0.2.1, 10.0.0.2"]), "192.0.2.1", "what the client wrote is not read");
        assert_eq!(xff(&["6.6.6.6", "192.0.2.1 ,10.0.0.2"]), "192.0.2.1", "lines are one list");
        assert_eq!(xff(&["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
        assert_eq!(xff(&["192.0.2.1, what, 10.0.0.2"]), "10.0.0.2", "the unreadable ends it");
        assert_eq!(xff(&["192.0.2.1,"]), PEER);
        for text in ["[2001:db8::1]:443", "[2001:db8::1]", "2001:db8::1"] {
            assert_eq!(xff(&[text]), "2001:db8::1");
        }
        assert_eq!(xff(&["192.0.2.1:4711"]), "192.0.2.1");
        assert_eq!(xff(&["::ffff:192.0.2.1"]), "192.0.2.1");
        for text in ["192.0.2.01", "fe80::1%eth0", "[192.0.2.1]", "unknown", "192.0.2.1:port"] {
            assert_eq!(xff(&[text]), PEER, "{text}");
        }
        assert_eq!(xff(&[&format!("192.0.2.1{}", ", 10.0.0.2".repeat(500))]), "10.0.0.2", "a bound on hops");
    }

    #[test]
    fn forwarded_in_the_words_of_its_rfc() {
        let forwarded = |lines: &[&str]| ask(Trail::Forwarded, lines);
        assert_eq!(forwarded(&["for=192.0.2.43"]), "192.0.2.43");
        assert_eq!(forwarded(&["For=\"[2001:db8:cafe::17]:4711\""]), "2001:db8:cafe::17");
        assert_eq!(forwarded(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), "192.0.2.60");
        assert_eq!(forwarded(&["for=6.6.6.6, for=192.0.2.43, for=10.0.0.2"]), "192.0.2.43");
        assert_eq!(forwarded(&["for=6.6.6.6", "proto=https ; FOR=\"192.0.2.9:80\""]), "192.0.2.9");
        for text in ["for=unknown", "for=_hidden", "proto=http", "", "for=1.1.1.1;for=2.2.2.2", "for=\"1.1.1.1"] {
            assert_eq!(forwarded(&[text]), PEER, "{text}");
        }
    }

    #[test]
    fn quotes_hide_nothing_in_forwarded() {
        let forwarded = |line: &str| ask(Trail::Forwarded, &[line]);
        assert_eq!(forwarded("for=6.6.6.6, for=192.0.2.1;host=\"a, for=7.7.7.7;b\""), "192.0.2.1");
        assert_eq!(forwarded("for=\"6.6.6.6, for=192.0.2.1"), "192.0.2.1", "an open quote of the client's");
        assert_eq!(forwarded("for=9.9.9.9;host=\"x\\\", for=7.7.7.7;y=\\\"\""), PEER, "no escapes");
    }

    proptest! {
        /// What a client writes before what the listed proxy has written changes nothing.
        #[test]
        fn nobody_writes_his_own_address(prefix in "[ -~]{0,60}", quoted: bool) {
            let own = "203.0.113.7";
            prop_assert_eq!(ask(Trail::XForwardedFor, &[&format!("{prefix}, {own}")]), own);
            let node = if quoted { format!("\"{own}:99\"") } else { own.to_owned() };
            prop_assert_eq!(ask(Trail::Forwarded, &[&format!("{prefix}, for={node};proto=https")]), own);
        }

        #[test]
        fn any_bytes_give_some_address(lines in prop::collection::vec(prop::collection::vec(32u8..=255, 0..80), 0..4)) {
            let mut headers = HeaderMap::new();
            for line in lines.iter().filter(|line| !line.contains(&127)) {
                headers.append("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
                headers.append("forwarded", HeaderValue::from_bytes(line).unwrap());
            }
            for trail in [Trail::XForwardedFor, Trail::Forwarded, Trail::None] {
                client(PEER.parse().unwrap(), &headers, trail, |_| true);
            }
        }
    }
}
