//! The header of a request on its way to a backend.
//!
//! Hop-by-hop fields are taken off ([`weir_http1::hop_by_hop`]), the client's address, scheme and host are written into `X-Forwarded-*`
//! ([`super::origin`]), and `Via` is added. An upgrade is passed on if its protocol is configured.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri, Version, request};
use hyper::ext::Protocol;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::IpAddr;

use weir_http1::hop_by_hop::{describes_client, is_disguised, is_hop_by_hop, names, strip};

use super::origin::{Origin, VIA_11};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Some CGI servers take this for the variable `HTTP_PROXY`.
const PROXY: HeaderName = HeaderName::from_static("proxy");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const VIA_20: HeaderValue = HeaderValue::from_static("2.0 weir");

/// Whether a request asks for another protocol on its stream (RFC 8441).
pub(super) fn is_on_stream(parts: &request::Parts) -> bool {
    parts.extensions.get::<Protocol>().is_some()
}

/// Which of the known upgrades a request asks for. Any other is not passed on: behind it a server could take requests that nobody has checked, as
/// with h2c.
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
    // Without randomness the key is a bad one, which does no harm: it only proves that the server has read it.
    let _ = SystemRandom::new().fill(&mut key);
    let key =
        HeaderValue::from_str(&STANDARD.encode(key)).unwrap_or(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="));
    parts.method = Method::GET;
    parts.headers.insert(header::SEC_WEBSOCKET_KEY, key);
}

/// Where a request comes from: the connection, and the client that its peer names.
pub(super) struct Source<'a> {
    pub(super) origin: &'a Origin,
    pub(super) client: IpAddr,
}

/// Makes a request ready for the backend.
pub(super) fn outgoing(
    parts: &mut request::Parts,
    host: HeaderValue,
    source: &Source<'_>,
    upgrade: Option<HeaderValue>,
) {
    let via = if parts.version == Version::HTTP_2 { VIA_20 } else { VIA_11 };
    let headers = &mut parts.headers;
    let trailers = take_off(headers, source.origin);
    forwarded(headers, &host, source);
    headers.append(header::VIA, via);
    // Without an authority in the target, Host is in the header already.
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

/// Removes what is not for the backend. Returns whether the client accepts trailers.
fn take_off(headers: &mut HeaderMap, origin: &Origin) -> bool {
    let ours = |name: &str| is_hop_by_hop(name) || matches!(name, "expect" | "proxy" | "http2-settings");
    // Most requests have none of these, so the names are checked in one pass instead of one for each.
    if !headers.keys().any(|name| ours(name.as_str()) || origin.is_untrusted(name.as_str())) {
        return false;
    }
    let trailers = headers.get(header::TE).is_some_and(has_trailers);
    strip(headers);
    headers.remove(header::EXPECT);
    headers.remove(PROXY);
    headers.remove(HTTP2_SETTINGS);
    let names: Vec<HeaderName> = headers.keys().filter(|name| origin.is_untrusted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    trailers
}

/// The trailers of a request that may be passed on: those that its field `Trailer` names, except those that belong into a head (RFC 9110 section 6.5.1).
/// Some servers put trailers among the fields of the head, so trailers must not say who asks, for whom, or how long the message is.
pub(super) fn trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let named = names(headers, header::TRAILER).take(TRAILERS_MAX);
    let named = named.filter_map(|name| name.parse().ok());
    named.filter(|name: &HeaderName| !belongs_into_head(name)).collect()
}

fn belongs_into_head(name: &HeaderName) -> bool {
    let text = name.as_str();
    text.starts_with("content-")
        || text.starts_with("proxy")
        || is_hop_by_hop(text)
        || describes_client(text)
        || is_disguised(text)
        || matches!(
            text,
            "authorization"
                | "cache-control"
                | "cookie"
                | "expect"
                | "host"
                | "max-forwards"
                | "range"
                | "set-cookie"
                | "trailer"
        )
}

/// The largest number of trailers that a request may name.
const TRAILERS_MAX: usize = 64;

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

fn forwarded(headers: &mut HeaderMap, host: &HeaderValue, source: &Source<'_>) {
    let Source { origin, client } = *source;
    let scheme = HeaderValue::from_static(origin.scheme());
    if !origin.listed {
        headers.insert(X_FORWARDED_FOR, origin.peer.clone());
        headers.insert(X_FORWARDED_PROTO, scheme);
        if !host.is_empty() {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        return;
    }
    // Several lines are one list (RFC 9110 section 5.3); servers that read only one line must see all of it.
    let (lines, told) = (headers.get_all(X_FORWARDED_FOR).iter(), origin.told(client));
    let hops = lines.map(HeaderValue::as_bytes).chain(told.as_ref().map(String::as_bytes));
    let hops: Vec<&[u8]> = hops.chain([origin.peer.as_bytes()]).collect();
    if let Ok(list) = HeaderValue::from_bytes(&hops.join(&b", "[..])) {
        headers.insert(X_FORWARDED_FOR, list);
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
    headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::forwarded::Trail;
    use http::Request;
    use weir_http1::request_check::check;

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
        let host = check(&parts, false).unwrap();
        let upgrade = upgrade(&parts, &known());
        let origin = Origin::new(HeaderValue::from_static("192.0.2.1"), trail, true);
        outgoing(&mut parts, host, &Source { origin: &origin, client: CLIENT.parse().unwrap() }, upgrade);
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
    fn an_absolute_target_becomes_a_path_and_a_host() {
        let absolute = passed(parts(|b| b.uri("http://A.example/p?q").header("host", "a.example")), false);
        assert_eq!(
            (absolute.uri.to_string().as_str(), &absolute.headers["host"]),
            ("/p?q", &HeaderValue::from_static("A.example"))
        );
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
    fn trailers_that_belong_into_a_head_are_not_passed_on() {
        let named = [
            ("x-sum, ETag", vec!["x-sum", "etag"]),
            ("Host, content-length, Transfer-Encoding, te, trailer, cookie, authorization", vec![]),
            ("X-Forwarded-For, x_forwarded_for, X-Real-IP, forwarded, content_length, proxy", vec![]),
            ("a b, x-sum,,", vec!["x-sum"]),
        ];
        for (list, passed) in named {
            let headers = HeaderMap::from_iter([(header::TRAILER, HeaderValue::from_static(list))]);
            assert_eq!(trailers(&headers), passed, "{list}");
        }
    }

    #[test]
    fn split_cookies_are_one_line() {
        let parts =
            passed(parts(|b| b.uri("/").header("host", "a").header("cookie", "a=1").header("cookie", "b=2")), false);
        assert_eq!(parts.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
