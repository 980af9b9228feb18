//! Reads the head of a plain request, that is, of a request without a body.
//!
//! Plain is GET or HEAD of HTTP/1.1 with one host, a path of ordinary characters, and no field that concerns a body, the connection or another
//! protocol. Everything else is *other*: hyper reads it from its first octet and refuses what has to be refused. So this reader lets nothing
//! through that hyper would refuse, and no request that it reads has a body in which another could hide.
//!
//! Linear in the octets of the head; nothing is allocated.

use std::mem::MaybeUninit;

use http::Method;

use super::Field;
use super::field_lines::is;
use super::hop_by_hop::is_hop_by_hop;
use super::request_check::{is_host, octets};

/// A plain request.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// GET or HEAD.
    pub method: Method,
    /// The path with its query.
    pub target: &'a str,
    /// The value of Host.
    pub host: &'a str,
    /// All fields, in their order.
    pub fields: &'a [Field<'a>],
    /// How many octets it takes.
    pub length: usize,
}

/// What the octets begin with.
#[derive(Debug)]
pub enum HeadStatus<'a> {
    /// A head that is not complete.
    Begun,
    /// Something for hyper.
    Other,
    /// A plain request.
    Plain(RequestHead<'a>),
}

/// As many fields as hyper reads.
pub const FIELDS: usize = 100;

/// Room for the fields, on the caller's stack.
pub type Room<'a> = [MaybeUninit<Field<'a>>; FIELDS];

/// Reads the head that `octets` begin with.
pub fn read<'a>(octets: &'a [u8], room: &'a mut Room<'a>) -> HeadStatus<'a> {
    let mut request = httparse::Request::new(&mut []);
    match httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut request, octets, room) {
        Ok(httparse::Status::Complete(length)) => plain(request, length).map_or(HeadStatus::Other, HeadStatus::Plain),
        Ok(httparse::Status::Partial) => HeadStatus::Begun,
        Err(_) => HeadStatus::Other,
    }
}

fn plain<'a>(request: httparse::Request<'a, 'a>, length: usize) -> Option<RequestHead<'a>> {
    let httparse::Request { method, path, version, headers } = request;
    let method = match method? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        _ => return None,
    };
    let target = path.filter(|target| version == Some(1) && is_plain_target(target.as_bytes()))?;
    let fields: &'a [Field<'a>] = headers;
    Some(RequestHead { method, target, host: only_host(fields)?, fields, length })
}

/// The one host, if no field is in the way.
fn only_host<'a>(fields: &'a [Field<'a>]) -> Option<&'a str> {
    let (mut host, mut cookies) = (None, 0);
    for field in fields {
        if is(field.name, "host") {
            if host.replace(field.value).is_some() {
                return None;
            }
        } else if is(field.name, "cookie") {
            cookies += 1;
        } else if is_in_the_way(field) {
            return None;
        }
    }
    // Several lines of cookies are to be joined.
    let host = host.filter(|host| cookies < 2 && is_host(host))?;
    str::from_utf8(host).ok()
}

/// Fields that change what the request is, or that take more than to be passed on.
fn is_in_the_way(field: &Field<'_>) -> bool {
    match field.name.len() {
        5 => is(field.name, "proxy"),
        6 => is(field.name, "expect"),
        7 => is(field.name, "upgrade") || is(field.name, "trailer"),
        10 if is(field.name, "connection") => !field.value.eq_ignore_ascii_case(b"keep-alive"),
        14 => is(field.name, "content-length") || is(field.name, "http2-settings"),
        _ => is_hop_by_hop(field.name),
    }
}

/// Whether all octets are such as RFC 3986 has in a path, or such as browsers and programs write into a query; hyper is asked about the others.
fn is_plain_target(target: &[u8]) -> bool {
    target.first() == Some(&b'/') && target.len() < TARGET_BYTES && {
        let (path, query) = target.split_at(target.iter().position(|octet| *octet == b'?').unwrap_or(target.len()));
        path.iter().all(|octet| PLAIN[usize::from(*octet)]) && query.iter().all(|octet| IN_QUERY[usize::from(*octet)])
    }
}

const TARGET_BYTES: usize = 16 << 10;

const PLAIN: [bool; 256] = octets(b"-._~%!$&'()*+,;=:@/");
/// The last of these belong into no address, but programs send them and servers take them.
const IN_QUERY: [bool; 256] = octets(b"-._~%!$&'()*+,;=:@/?\"<>[]{}|\\^`");

impl RequestHead<'_> {
    /// The path without its query.
    #[inline]
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_plain(text: &str) -> bool {
        let mut room = [const { MaybeUninit::uninit() }; FIELDS];
        matches!(read(text.as_bytes(), &mut room), HeadStatus::Plain(_))
    }

    #[test]
    fn whatever_is_not_plain_is_for_hyper() {
        for text in [
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\"# HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /<?x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /?x#y HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\r\nHost: \0\r\n\r\n\r\n",
        ] {
            let plain = is_plain(text);
            // A head whose lines end with LF alone is one for hyper too, and a plain one.
            assert_eq!(plain, text.contains("1.1\nHost"), "{text:?}");
        }
        for field in [
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
            "transfer-encoding: identity",
            "Upgrade: websocket",
            "Connection: close",
            "Connection: keep-alive, x",
            "Keep-Alive: 3",
            "Proxy-Connection: x",
            "Proxy: x",
            "TE: trailers",
            "Trailer: x",
            "Expect: 100-continue",
            "HTTP2-Settings: x",
            "Cookie: a=b\r\nCookie: c=d",
            "A b: c",
            ": c",
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            assert!(!is_plain(&text), "{field}");
        }
        assert!(is_plain(
            "GET /?q=<a href=\"x\">|{y}[z]^\\` HTTP/1.1\r\nHost: a\r\n\r\n".replace("a h", "a+h").as_str()
        ));
        let many = "A: b\r\n".repeat(100);
        assert!(!is_plain(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")));
    }

    proptest! {
        #[test]
        fn no_octets_do_harm(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut room = [const { MaybeUninit::uninit() }; FIELDS];
            let _ = read(&octets, &mut room);
        }
    }
}
