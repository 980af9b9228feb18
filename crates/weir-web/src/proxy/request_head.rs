//! The head of a request that has nothing but a head, read from the octets and written for the server.
//!
//! Only what is plain is read here: GET and HEAD of HTTP/1.1, one host, a path of ordinary characters, and no field that speaks of a body, of
//! the connection or of another protocol. Whatever else comes is *other*: hyper reads it from its first octet, and refuses what is to be
//! refused. So no request is judged more kindly here than there, and none that is read here has a body in which another could hide.
//!
//! Linear in the octets of the head; nothing is allocated but what goes out.

use std::mem::MaybeUninit;
use std::net::IpAddr;

use http::Method;
use httparse::Header;

use super::headers::{Origin, VIA_11, is_host, is_private, octets, speaks_of_the_client};
use super::lines::{is, write_line};

/// A plain request.
#[derive(Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) method: Method,
    /// The path with its query.
    pub(super) target: &'a str,
    pub(super) host: &'a str,
    pub(super) fields: &'a [Header<'a>],
    /// How many octets it takes.
    pub(super) length: usize,
}

/// What the octets begin with.
#[derive(Debug)]
pub(super) enum Reading<'a> {
    /// A head that is not complete.
    Begun,
    /// Something for hyper.
    Other,
    Plain(RequestHead<'a>),
}

/// As many fields as hyper reads.
pub(super) const FIELDS: usize = 100;

type Room<'a> = [MaybeUninit<Header<'a>>; FIELDS];

/// Reads the head that `octets` begin with.
pub(super) fn read<'a>(octets: &'a [u8], room: &'a mut Room<'a>) -> Reading<'a> {
    let mut request = httparse::Request::new(&mut []);
    match httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut request, octets, room) {
        Ok(httparse::Status::Complete(length)) => plain(request, length).map_or(Reading::Other, Reading::Plain),
        Ok(httparse::Status::Partial) => Reading::Begun,
        Err(_) => Reading::Other,
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
    let fields: &'a [Header<'a>] = headers;
    Some(RequestHead { method, target, host: only_host(fields)?, fields, length })
}

/// The one host, if no field is in the way.
fn only_host<'a>(fields: &'a [Header<'a>]) -> Option<&'a str> {
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
fn is_in_the_way(field: &Header<'_>) -> bool {
    match field.name.len() {
        5 => is(field.name, "proxy"),
        6 => is(field.name, "expect"),
        7 => is(field.name, "upgrade") || is(field.name, "trailer"),
        10 if is(field.name, "connection") => !field.value.eq_ignore_ascii_case(b"keep-alive"),
        14 => is(field.name, "content-length") || is(field.name, "http2-settings"),
        _ => is_private(field.name),
    }
}

/// Whether all octets are such as RFC 3986 has in a path and a query; hyper is asked about the others.
fn is_plain_target(target: &[u8]) -> bool {
    target.first() == Some(&b'/')
        && target.len() < TARGET_BYTES
        && target.iter().all(|octet| PLAIN[usize::from(*octet)])
}

const TARGET_BYTES: usize = 16 << 10;

const PLAIN: [bool; 256] = octets(b"-._~%!$&'()*+,;=:@/?");

impl RequestHead<'_> {
    /// The path without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    /// The head as the server is sent it.
    pub(super) fn for_server(&self, origin: &Origin, client: IpAddr) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.length + ADDED_BYTES);
        text.extend_from_slice(self.method.as_str().as_bytes());
        text.push(b' ');
        text.extend_from_slice(self.target.as_bytes());
        text.extend_from_slice(b" HTTP/1.1\r\n");
        if origin.listed {
            self.write_as_told(&mut text, origin, client);
        } else {
            self.write_as_seen(&mut text, origin);
        }
        text.extend_from_slice(b"\r\n");
        text
    }

    /// A stranger's fields, without what it says of who it is.
    fn write_as_seen(&self, text: &mut Vec<u8>, origin: &Origin) {
        for Header { name, value } in self.fields {
            if !is(name, "connection") && !speaks_of_the_client(name) {
                write_line(text, name, value);
            }
        }
        text.extend_from_slice(&origin.lines);
        write_line(text, "X-Forwarded-Host", self.host.as_bytes());
    }

    /// The fields of a proxy that is listed, which may speak of its own client in its own header.
    fn write_as_told(&self, text: &mut Vec<u8>, origin: &Origin, client: IpAddr) {
        let (mut hops, mut scheme, mut host) = (Vec::new(), false, false);
        let believed = |field: &&Header<'_>| !is(field.name, "connection") && !origin.is_hearsay(field.name);
        for Header { name, value } in self.fields.iter().filter(believed) {
            if is(name, "x-forwarded-for") {
                // Several lines are one list; servers that look at one line only must see all of it.
                hops.extend_from_slice(value);
                hops.extend_from_slice(b", ");
            } else {
                scheme |= is(name, "x-forwarded-proto");
                host |= is(name, "x-forwarded-host");
                write_line(text, name, value);
            }
        }
        if let Some(told) = origin.told(client) {
            hops.extend_from_slice(told.as_bytes());
            hops.extend_from_slice(b", ");
        }
        hops.extend_from_slice(origin.peer.as_bytes());
        write_line(text, "X-Forwarded-For", &hops);
        if !scheme {
            write_line(text, "X-Forwarded-Proto", origin.scheme().as_bytes());
        }
        if !host {
            write_line(text, "X-Forwarded-Host", self.host.as_bytes());
        }
        write_line(text, "Via", VIA_11.as_bytes());
    }
}

/// About what the added fields take.
const ADDED_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::forwarded::Trail;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn for_server(text: &str, listed: bool) -> Option<String> {
        for_server_by(text, listed.then_some(Trail::XForwardedFor))
    }

    fn for_server_by(text: &str, trail: Option<Trail>) -> Option<String> {
        let mut room = [const { MaybeUninit::uninit() }; 100];
        let origin = Origin::new(HeaderValue::from_static("192.0.2.1"), trail, true);
        let client = "198.51.100.7".parse().unwrap();
        match read(text.as_bytes(), &mut room) {
            Reading::Plain(head) => Some(String::from_utf8(head.for_server(&origin, client)).unwrap()),
            _ => None,
        }
    }

    const ADDED: &str =
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nVia: 1.1 weir\r\nX-Forwarded-Host: a\r\n\r\n";

    #[test]
    fn a_plain_request_is_passed_on_with_what_we_know() {
        let text = "GET /x?y=%20 HTTP/1.1\r\nHost: a\r\nconnection: Keep-Alive\r\nA: b \r\nVia: z\r\n\r\nGET";
        let passed = for_server(text, false).unwrap();
        assert_eq!(passed, format!("GET /x?y=%20 HTTP/1.1\r\nHost: a\r\nA: b\r\nVia: z\r\n{ADDED}"));
    }

    #[test]
    fn only_listed_peers_say_who_the_client_is() {
        let text = "HEAD / HTTP/1.1\r\nhost: a\r\nX-Forwarded-For: 1\r\nx-forwarded-for: 2\r\nX_Forwarded_For: 3\r\n\
                    X-Forwarded-Proto: gopher\r\nX-Real-Ip: 4\r\nForwarded: for=5\r\n\r\n";
        assert_eq!(for_server(text, false).unwrap(), format!("HEAD / HTTP/1.1\r\nhost: a\r\n{ADDED}"));
        let told = for_server(text, true).unwrap();
        assert!(
            told.contains("X-Forwarded-For: 1, 2, 192.0.2.1\r\n") && told.contains("X-Forwarded-Proto: gopher\r\n")
        );
        assert!(told.contains("X-Forwarded-Host: a\r\n") && !told.contains("https"), "{told}");
        for hearsay in ["X_Forwarded_For", "X-Real-Ip", "Forwarded:"] {
            assert!(!told.contains(hearsay), "{told}");
        }
        let told = for_server_by(text, Some(Trail::Forwarded)).unwrap();
        let added = ADDED.replace("For: ", "For: 198.51.100.7, ").replace("Via: 1.1 weir\r\n", "");
        let added = added.replace("a\r\n\r\n", "a\r\nVia: 1.1 weir\r\n\r\n");
        assert_eq!(told, format!("HEAD / HTTP/1.1\r\nhost: a\r\nForwarded: for=5\r\n{added}"));
        let told = for_server_by(text, Some(Trail::None)).unwrap();
        assert_eq!(told, format!("HEAD / HTTP/1.1\r\nhost: a\r\n{}", added.replace("198.51.100.7, ", "")));
    }

    #[test]
    fn whatever_is_not_plain_is_for_hyper() {
        for text in [
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\"# HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\r\nHost: \0\r\n\r\n\r\n",
        ] {
            let plain = for_server(text, false).is_some();
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
            assert_eq!(for_server(&text, false), None, "{field}");
        }
        let many = "A: b\r\n".repeat(100);
        assert_eq!(for_server(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), false), None);
    }

    proptest! {
        /// What goes out is one head of one request, whatever came in.
        #[test]
        fn nothing_of_a_client_becomes_a_second_request(
            text in "(GET|HEAD|get) /[a-z?\"# ]{0,4} HTTP/1.1(\r\n|\n)Host: [a-z:]{0,3}\r\n([A-Za-z-]{0,9}[:; ]{1,2}[ -~\r\n\t\u{7f}\u{e9}]{0,9}\r\n){0,4}\r\n[a-z]{0,3}",
            listed: bool,
        ) {
            if let Some(passed) = for_server(&text, listed) {
                let mut fields = [httparse::EMPTY_HEADER; 128];
                let mut request = httparse::Request::new(&mut fields);
                let parsed = request.parse(passed.as_bytes()).unwrap();
                prop_assert_eq!(parsed, httparse::Status::Complete(passed.len()));
                prop_assert!(request.headers.iter().all(|field| !is_private(field.name)));
            }
            let cut = text.len() / 2;
            let mut room = [const { MaybeUninit::uninit() }; 100];
            let _ = read(&text.as_bytes()[..cut], &mut room);
        }
    }
}
