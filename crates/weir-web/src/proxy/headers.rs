//! What becomes of headers on their way through.
//!
//! Requests: fields of the connection alone are taken off (RFC 9110 section 7.6.1), as is whatever `Connection` names; the client's
//! address, scheme and host are written down in `X-Forwarded-*`, which only listed peers may have begun, and only in the header that they are
//! known to write ([`Trail`]); `Via` says that we were here.
//! Responses: the same fields are taken off.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri, Version, request};
use hyper::ext::Protocol;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::IpAddr;

use super::lines::{is, write_line};
use crate::identity::forwarded::Trail;

/// Why a request is not passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It is not valid HTTP, or means different things to different readers.
    Bad(&'static str),
    /// CONNECT and TRACE are not for us.
    Method,
}

/// What is known of the client, to be written into its requests.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The peer's address as text.
    pub(super) peer: HeaderValue,
    /// Whether the peer is listed: it speaks for others.
    pub(super) listed: bool,
    /// What it says of them is kept where it is known to write it.
    trail: Trail,
    tls: bool,
    /// All that is always the same, as lines: who the client is, its scheme, and that we were here.
    pub(super) lines: Vec<u8>,
}

impl Origin {
    /// `trail` is that of a listed peer.
    pub(super) fn new(peer: HeaderValue, trail: Option<Trail>, tls: bool) -> Origin {
        let mut lines = Vec::new();
        write_line(&mut lines, "X-Forwarded-For", peer.as_bytes());
        write_line(&mut lines, "X-Forwarded-Proto", scheme(tls).as_bytes());
        write_line(&mut lines, "Via", VIA_11.as_bytes());
        Origin { peer, listed: trail.is_some(), trail: trail.unwrap_or(Trail::None), tls, lines }
    }

    /// Whether a field speaks of the client and the peer is not known to have written it: it comes from anybody then.
    pub(super) fn is_hearsay(&self, name: &str) -> bool {
        speaks_of_the_client(name)
            && match self.trail {
                Trail::XForwardedFor => !is_extended(name),
                Trail::Forwarded => !is(name, "forwarded"),
                Trail::None => true,
            }
    }

    /// The client before the peer, where the peer tells of it in another header than `X-Forwarded-For`.
    pub(super) fn told(&self, client: IpAddr) -> Option<String> {
        let told = (self.trail == Trail::Forwarded).then(|| client.to_string());
        told.filter(|client| client.as_bytes() != self.peer.as_bytes())
    }

    pub(super) fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Some CGI servers take this for the variable `HTTP_PROXY`.
const PROXY: HeaderName = HeaderName::from_static("proxy");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
pub(super) const VIA_11: HeaderValue = HeaderValue::from_static("1.1 weir");
const VIA_20: HeaderValue = HeaderValue::from_static("2.0 weir");

/// A request that may be passed on: its host.
pub(super) fn check(parts: &request::Parts) -> Result<HeaderValue, Fault> {
    let connects = parts.method == Method::CONNECT;
    if (connects && !is_on_stream(parts)) || parts.method == Method::TRACE {
        return Err(Fault::Method);
    }
    if !connects && is_on_stream(parts) {
        return Err(Fault::Bad("a protocol, and no CONNECT"));
    }
    let path = parts.uri.path();
    let whole_server = path == "*" && parts.method == Method::OPTIONS;
    if !path.starts_with('/') && !whole_server {
        return Err(Fault::Bad("the target is no path"));
    }
    let host = host(parts)?;
    if !is_host(host.as_bytes()) {
        return Err(Fault::Bad("the host is no host name"));
    }
    Ok(host)
}

/// One host, said once (RFC 9112 section 3.2); an absolute target and an HTTP/2 authority must agree with the header.
fn host(parts: &request::Parts) -> Result<HeaderValue, Fault> {
    let mut said = parts.headers.get_all(header::HOST).iter();
    let header = said.next();
    if said.next().is_some() {
        return Err(Fault::Bad("more than one Host"));
    }
    match (parts.uri.authority(), header) {
        (None, Some(host)) => Ok(host.clone()),
        (None, None) if parts.version <= Version::HTTP_10 => Ok(HeaderValue::from_static("")),
        (None, None) => Err(Fault::Bad("no Host")),
        (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
            Err(Fault::Bad("the target and Host disagree"))
        }
        (Some(authority), _) => {
            HeaderValue::from_str(authority.as_str()).map_err(|_| Fault::Bad("the host is no host name"))
        }
    }
}

pub(super) fn is_host(host: &[u8]) -> bool {
    host.len() <= 260 && host.iter().all(|byte| HOST_OCTETS[usize::from(*byte)])
}

/// Octets of a host (RFC 3986 section 3.2.2).
const HOST_OCTETS: [bool; 256] = octets(b"-._:[]~%!$&'()*+;=");

/// A table of letters, digits and these others.
pub(super) const fn octets(others: &[u8]) -> [bool; 256] {
    let (mut table, mut at) = ([false; 256], 0);
    while at < 256 {
        table[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// Whether a request wants to make another protocol of its stream (RFC 8441).
pub(super) fn is_on_stream(parts: &request::Parts) -> bool {
    parts.extensions.get::<Protocol>().is_some()
}

/// Which upgrade a request asks for, of those that are known. Any other is not passed on: behind it a server may take requests that nobody has
/// looked at, as with h2c.
pub(super) fn upgrade(parts: &request::Parts, known: &[String]) -> Option<HeaderValue> {
    if let Some(protocol) = parts.extensions.get::<Protocol>() {
        let known = known.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(protocol.as_ref()))?;
        return HeaderValue::from_str(known).ok();
    }
    if parts.version != Version::HTTP_11 || !parts.headers.contains_key(header::UPGRADE) {
        return None;
    }
    let asked = names(&parts.headers, header::CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let mut protocols = names(&parts.headers, header::UPGRADE);
    let protocol = protocols.find(|protocol| known.iter().any(|known| known.eq_ignore_ascii_case(protocol)))?;
    HeaderValue::from_str(protocol).ok().filter(|_| asked)
}

/// A WebSocket on a stream of HTTP/2 (RFC 8441) becomes the handshake of HTTP/1, with a key of our own.
pub(super) fn into_handshake(parts: &mut request::Parts) {
    let mut key = [0; 16];
    // Without randomness it is a bad key, and still one: it proves nothing to anybody but that the server has read it.
    let _ = SystemRandom::new().fill(&mut key);
    let key =
        HeaderValue::from_str(&STANDARD.encode(key)).unwrap_or(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="));
    parts.method = Method::GET;
    parts.headers.insert(header::SEC_WEBSOCKET_KEY, key);
}

/// Makes a request ready for the backend.
pub(super) fn outgoing(
    parts: &mut request::Parts,
    host: HeaderValue,
    (origin, client): (&Origin, IpAddr),
    upgrade: Option<HeaderValue>,
) {
    let via = if parts.version == Version::HTTP_2 { VIA_20 } else { VIA_11 };
    let headers = &mut parts.headers;
    let trailers = take_off(headers, origin);
    forwarded(headers, &host, (origin, client));
    headers.append(header::VIA, via);
    // Where it came as a header it is there already.
    if parts.uri.authority().is_some() {
        headers.insert(header::HOST, host);
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    } else if trailers {
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if headers.len() != headers.keys_len() {
        join_cookies(headers);
    }
    parts.uri = origin_form(std::mem::take(&mut parts.uri));
    parts.version = Version::HTTP_11;
}

/// Takes off what is not for the backend. Whether the client takes trailers.
fn take_off(headers: &mut HeaderMap, origin: &Origin) -> bool {
    let ours = |name: &str| is_private(name) || matches!(name, "expect" | "proxy" | "http2-settings");
    // Most requests have none of these: one look at the names instead of one for each.
    if !headers.keys().any(|name| ours(name.as_str()) || origin.is_hearsay(name.as_str())) {
        return false;
    }
    let trailers = headers.get(header::TE).is_some_and(has_trailers);
    strip(headers);
    headers.remove(header::EXPECT);
    headers.remove(PROXY);
    headers.remove(HTTP2_SETTINGS);
    let names: Vec<HeaderName> = headers.keys().filter(|name| origin.is_hearsay(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    trailers
}

/// HTTP/2 clients may split the cookie header; HTTP/1 servers expect one line (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    let path = uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

fn has_trailers(value: &HeaderValue) -> bool {
    let parts = value.to_str().unwrap_or_default().split(',');
    parts.into_iter().any(|part| part.trim().eq_ignore_ascii_case("trailers"))
}

fn forwarded(headers: &mut HeaderMap, host: &HeaderValue, (origin, client): (&Origin, IpAddr)) {
    let scheme = HeaderValue::from_static(origin.scheme());
    if !origin.listed {
        headers.insert(X_FORWARDED_FOR, origin.peer.clone());
        headers.insert(X_FORWARDED_PROTO, scheme);
        if !host.is_empty() {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        return;
    }
    // Several lines are one list (RFC 9110 section 5.3); servers that look at one line only must see all of it.
    let (lines, told) = (headers.get_all(X_FORWARDED_FOR).iter(), origin.told(client));
    let hops = lines.map(HeaderValue::as_bytes).chain(told.as_ref().map(String::as_bytes));
    let hops: Vec<&[u8]> = hops.chain([origin.peer.as_bytes()]).collect();
    if let Ok(list) = HeaderValue::from_bytes(&hops.join(&b", "[..])) {
        headers.insert(X_FORWARDED_FOR, list);
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
    headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
}

/// Fields in which a proxy speaks of its client, and `X_Forwarded_For` and the like, which CGI servers cannot tell from the real ones.
pub(super) fn speaks_of_the_client(name: &str) -> bool {
    match name.as_bytes() {
        [b'x' | b'X', b'-' | b'_', b'f' | b'F' | b'r' | b'R', ..] => {
            let name = name.to_ascii_lowercase().replace('_', "-");
            name == "x-real-ip" || is_extended(&name)
        }
        _ => is(name, "forwarded"),
    }
}

/// `X-Forwarded-For` and its like, as proxies spell them.
fn is_extended(name: &str) -> bool {
    let begins = name.get(..12).is_some_and(|begin| begin.eq_ignore_ascii_case("x-forwarded-"));
    begins && !name.contains('_')
}

/// Makes a response ready for the client.
pub(super) fn incoming(headers: &mut HeaderMap) {
    strip(headers);
}

/// Fields between two neighbours only, whatever their case.
pub(super) fn is_private(name: &str) -> bool {
    match name.len() {
        2 => is(name, "te"),
        7 => is(name, "upgrade"),
        10 => is(name, "connection") || is(name, "keep-alive"),
        16 => is(name, "proxy-connection"),
        17 => is(name, "transfer-encoding"),
        _ => false,
    }
}

/// What is between two neighbours only.
fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| is_private(name.as_str())) {
        return;
    }
    if headers.contains_key(header::CONNECTION) {
        let listed: Vec<HeaderName> = names(headers, header::CONNECTION).filter_map(|name| name.parse().ok()).collect();
        // What frames the message or says where it goes is never somebody's private matter.
        let keep = [header::HOST, header::CONTENT_LENGTH, header::COOKIE, header::SET_COOKIE, header::AUTHORIZATION];
        // Nor is what a proxy says of its client, who may have named it here to have it forgotten.
        let private = |name: &&HeaderName| !keep.contains(name) && !speaks_of_the_client(name.as_str());
        for name in listed.iter().filter(private) {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

fn names(headers: &HeaderMap, list: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(build: impl FnOnce(request::Builder) -> request::Builder) -> request::Parts {
        build(Request::builder()).body(()).unwrap().into_parts().0
    }

    fn known() -> Vec<String> {
        vec!["websocket".into()]
    }

    const CLIENT: &str = "198.51.100.7";

    fn passed(parts: request::Parts, listed: bool) -> request::Parts {
        passed_by(parts, listed.then_some(Trail::XForwardedFor))
    }

    fn passed_by(mut parts: request::Parts, trail: Option<Trail>) -> request::Parts {
        let host = check(&parts).unwrap();
        let upgrade = upgrade(&parts, &known());
        let origin = Origin::new(HeaderValue::from_static("192.0.2.1"), trail, true);
        outgoing(&mut parts, host, (&origin, CLIENT.parse().unwrap()), upgrade);
        parts
    }

    #[test]
    fn fields_of_the_connection_stay_behind() {
        let parts = passed(
            parts(|b| {
                b.uri("/x?y")
                    .header("host", "a.example")
                    .header("connection", "close, X-Secret, Host, te")
                    .header("x-secret", "1")
                    .header("keep-alive", "3")
                    .header("te", "gzip, Trailers")
                    .header("expect", "100-continue")
                    .header("proxy", "evil")
                    .header("x-kept", "1")
            }),
            false,
        );
        let has = |name: &str| parts.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(has("connection").as_deref(), Some("te"));
        assert_eq!(has("te").as_deref(), Some("trailers"));
        assert_eq!(has("host").as_deref(), Some("a.example"));
        assert_eq!(has("via").as_deref(), Some("1.1 weir"));
        assert_eq!(has("x-kept").as_deref(), Some("1"));
        for gone in ["x-secret", "keep-alive", "expect", "proxy"] {
            assert_eq!(has(gone), None, "{gone}");
        }
    }

    #[test]
    fn only_listed_peers_say_who_the_client_is() {
        let from = |b: request::Builder| {
            b.uri("/")
                .header("host", "a")
                .header("x-forwarded-for", "10.0.0.1")
                .header("x-forwarded-for", "10.0.0.2")
                .header("x_forwarded_for", "10.0.0.3")
                .header("x-forwarded-proto", "gopher")
                .header("forwarded", "for=10.0.0.1")
        };
        let spoofed = passed(parts(from), false);
        assert_eq!(spoofed.headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(spoofed.headers["x-forwarded-proto"], "https");
        assert!(!spoofed.headers.contains_key("forwarded") && !spoofed.headers.contains_key("x_forwarded_for"));
        let told = passed(parts(from), true);
        assert_eq!(told.headers["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.1");
        assert_eq!(told.headers["x-forwarded-proto"], "gopher");
    }

    #[test]
    fn listed_peers_are_believed_only_in_their_own_header() {
        let from = |b: request::Builder| {
            b.uri("/")
                .header("host", "a")
                .header("x-forwarded-for", "10.0.0.5")
                .header("x_forwarded_for", "10.0.0.6")
                .header("x-forwarded-proto", "gopher")
                .header("x-forwarded-port", "70")
                .header("x-real-ip", "10.0.0.7")
                .header("forwarded", "for=198.51.100.7")
        };
        let has = |trail: Trail, name: &str| passed_by(parts(from), Some(trail)).headers.get(name).cloned();
        for (name, extended, forwarded, none) in [
            ("x-forwarded-for", Some("10.0.0.5, 192.0.2.1"), Some("198.51.100.7, 192.0.2.1"), Some("192.0.2.1")),
            ("x-forwarded-proto", Some("gopher"), Some("https"), Some("https")),
            ("x-forwarded-port", Some("70"), None, None),
            ("forwarded", None, Some("for=198.51.100.7"), None),
            ("x_forwarded_for", None, None, None),
            ("x-real-ip", None, None, None),
        ] {
            for (trail, value) in
                [Trail::XForwardedFor, Trail::Forwarded, Trail::None].into_iter().zip([extended, forwarded, none])
            {
                assert_eq!(has(trail, name), value.map(HeaderValue::from_static), "{name} {trail:?}");
            }
        }
    }

    #[test]
    fn a_client_does_not_have_forgotten_what_a_proxy_says_of_it() {
        let told = passed(
            parts(|b| {
                b.uri("/")
                    .header("host", "a")
                    .header("connection", "X-Forwarded-For, x-forwarded-proto")
                    .header("x-forwarded-for", CLIENT)
                    .header("x-forwarded-proto", "gopher")
            }),
            true,
        );
        assert_eq!(told.headers["x-forwarded-for"], "198.51.100.7, 192.0.2.1");
        assert_eq!(told.headers["x-forwarded-proto"], "gopher");
    }

    #[test]
    fn one_host_and_only_one() {
        let bad = |build: &dyn Fn(request::Builder) -> request::Builder| check(&parts(build)).is_err();
        assert!(bad(&|b| b.uri("/")));
        assert!(bad(&|b| b.uri("/").header("host", "a").header("host", "a")));
        assert!(bad(&|b| b.uri("http://a/").header("host", "b")));
        assert!(bad(&|b| b.uri("/").header("host", "a b")));
        assert!(bad(&|b| b.uri("/").header("host", "a/b")));
        assert!(bad(&|b| b.uri("/").header("host", "user@a")));
        assert_eq!(check(&parts(|b| b.method("TRACE").uri("/").header("host", "a"))), Err(Fault::Method));
        let absolute = passed(parts(|b| b.uri("http://A.example/p?q").header("host", "a.example")), false);
        assert_eq!(
            (absolute.uri.to_string().as_str(), &absolute.headers["host"]),
            ("/p?q", &HeaderValue::from_static("A.example"))
        );
        assert!(check(&parts(|b| b.uri("/").version(Version::HTTP_10))).is_ok());
    }

    #[test]
    fn an_upgrade_is_asked_for_by_both_headers() {
        let ask = |b: request::Builder| b.uri("/").header("host", "a").header("upgrade", "websocket");
        assert_eq!(upgrade(&parts(ask), &known()), None);
        let websocket = passed(parts(|b| ask(b).header("connection", "keep-alive, Upgrade")), false);
        assert_eq!(
            (&websocket.headers["connection"], &websocket.headers["upgrade"]),
            (&HeaderValue::from_static("upgrade"), &HeaderValue::from_static("websocket"))
        );
    }

    #[test]
    fn only_known_upgrades_are_passed_on() {
        let ask = |protocols: &'static str| {
            passed(
                parts(|b| {
                    let b = b.uri("/").header("host", "a").header("connection", "Upgrade");
                    b.header("upgrade", protocols).header("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")
                }),
                false,
            )
        };
        for (protocols, known) in [("h2c", None), ("TLS/1.2", None), ("h2c, WebSocket", Some("WebSocket"))] {
            let parts = ask(protocols);
            let upgrade = parts.headers.get("upgrade").map(|value| value.to_str().unwrap());
            assert_eq!((upgrade, parts.headers.contains_key("connection")), (known, known.is_some()), "{protocols}");
            assert!(!parts.headers.contains_key("http2-settings"));
        }
    }

    #[test]
    fn split_cookies_are_one_line() {
        let parts =
            passed(parts(|b| b.uri("/").header("host", "a").header("cookie", "a=1").header("cookie", "b=2")), false);
        assert_eq!(parts.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
