//! What is known of a client's connection, and how it is written into the requests that a server is sent.
//!
//! `X-Forwarded-For`, `-Proto` and `-Host` say who the client is. Only listed peers may have begun them, and only in the header that they are known to
//! write ([`Trail`]). `Via` says that the request came through here.

use std::net::IpAddr;

use http::HeaderValue;
use weir_http1::Field;
use weir_http1::field_lines::{is, write_line};
use weir_http1::hop_by_hop::{describes_client, is_disguised, is_x_forwarded};
use weir_http1::request_head::RequestHead;

use crate::identity::forwarded::Trail;

/// What is known of the client and must be written into its requests.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The peer's address as text.
    pub(super) peer: HeaderValue,
    /// Whether the peer is listed, so that it may name clients.
    pub(super) listed: bool,
    /// The field in which a listed peer describes its clients; what it says there is kept.
    trail: Trail,
    tls: bool,
    /// The lines that are the same for every request: who the client is, its scheme, and `Via`.
    lines: Vec<u8>,
}

impl Origin {
    /// `trail` is the field of a listed peer; none for any other.
    pub(super) fn new(peer: HeaderValue, trail: Option<Trail>, tls: bool) -> Origin {
        let mut lines = Vec::new();
        write_line(&mut lines, "X-Forwarded-For", peer.as_bytes());
        write_line(&mut lines, "X-Forwarded-Proto", scheme(tls).as_bytes());
        write_line(&mut lines, "Via", VIA_11.as_bytes());
        Origin { peer, listed: trail.is_some(), trail: trail.unwrap_or(Trail::None), tls, lines }
    }

    /// Whether a field is not passed on: because it describes the client, and anybody may have written it, since the peer is not known to use this field;
    /// or because it is a field of framing written in another way.
    pub(super) fn is_untrusted(&self, name: &str) -> bool {
        let describes = describes_client(name)
            && match self.trail {
                Trail::XForwardedFor => !is_x_forwarded(name),
                Trail::Forwarded => !is(name, "forwarded"),
                Trail::None => true,
            };
        describes || is_disguised(name)
    }

    /// The value of `X-Forwarded-For` when the peer names its client in `Forwarded`: the client, before the peer.
    pub(super) fn told(&self, client: IpAddr) -> Option<String> {
        let told = (self.trail == Trail::Forwarded).then(|| client.to_string());
        told.filter(|client| client.as_bytes() != self.peer.as_bytes())
    }

    pub(super) fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }

    /// A plain request as it is sent to the server, without the fields of these names.
    pub(super) fn plain_request(&self, head: &RequestHead<'_>, client: IpAddr, without: &[&str]) -> Vec<u8> {
        let mut text = Vec::with_capacity(head.length + ADDED_BYTES);
        text.extend_from_slice(head.method.as_str().as_bytes());
        text.push(b' ');
        text.extend_from_slice(head.target.as_bytes());
        text.extend_from_slice(b" HTTP/1.1\r\n");
        if self.listed {
            self.write_as_told(&mut text, head, client, without);
        } else {
            self.write_as_seen(&mut text, head, without);
        }
        text.extend_from_slice(b"\r\n");
        text
    }

    /// The fields of a peer that is not listed, without what it says about its own identity.
    fn write_as_seen(&self, text: &mut Vec<u8>, head: &RequestHead<'_>, without: &[&str]) {
        for Field { name, value } in head.fields {
            let left_out = is(name, "connection") || without.iter().any(|other| is(name, other));
            if !left_out && !describes_client(name) && !is_disguised(name) {
                write_line(text, name, value);
            }
        }
        text.extend_from_slice(&self.lines);
        write_line(text, "X-Forwarded-Host", head.host.as_bytes());
    }

    /// The fields of a listed proxy, which may describe its own client in its own header.
    fn write_as_told(&self, text: &mut Vec<u8>, head: &RequestHead<'_>, client: IpAddr, without: &[&str]) {
        let (mut hops, mut scheme, mut host) = (Vec::new(), false, false);
        let left_out = |name: &str| is(name, "connection") || without.iter().any(|other| is(name, other));
        let believed = |field: &&Field<'_>| !left_out(field.name) && !self.is_untrusted(field.name);
        for Field { name, value } in head.fields.iter().filter(believed) {
            if is(name, "x-forwarded-for") {
                // Several lines are one list; servers that read only one line must see all of it.
                hops.extend_from_slice(value);
                hops.extend_from_slice(b", ");
            } else {
                scheme |= is(name, "x-forwarded-proto");
                host |= is(name, "x-forwarded-host");
                write_line(text, name, value);
            }
        }
        if let Some(told) = self.told(client) {
            hops.extend_from_slice(told.as_bytes());
            hops.extend_from_slice(b", ");
        }
        hops.extend_from_slice(self.peer.as_bytes());
        write_line(text, "X-Forwarded-For", &hops);
        if !scheme {
            write_line(text, "X-Forwarded-Proto", self.scheme().as_bytes());
        }
        if !host {
            write_line(text, "X-Forwarded-Host", head.host.as_bytes());
        }
        write_line(text, "Via", VIA_11.as_bytes());
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

pub(super) const VIA_11: HeaderValue = HeaderValue::from_static("1.1 weir");
/// About how many octets the added fields take.
const ADDED_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::mem::MaybeUninit;
    use weir_http1::hop_by_hop::is_hop_by_hop;
    use weir_http1::request_head::{FIELDS, HeadStatus, read};

    fn for_server(text: &str, listed: bool) -> Option<String> {
        for_server_by(text, listed.then_some(Trail::XForwardedFor))
    }

    fn for_server_by(text: &str, trail: Option<Trail>) -> Option<String> {
        let mut room = [const { MaybeUninit::uninit() }; FIELDS];
        let origin = Origin::new(HeaderValue::from_static("192.0.2.1"), trail, true);
        let client = "198.51.100.7".parse().unwrap();
        match read(text.as_bytes(), &mut room) {
            HeadStatus::Plain(head) => Some(String::from_utf8(origin.plain_request(&head, client, &[])).unwrap()),
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
                    X-Forwarded-Proto: gopher\r\nX-Real-Ip: 4\r\nForwarded: for=5\r\nContent_Length: 9\r\ntransfer_encoding: x\r\n\r\n";
        assert_eq!(for_server(text, false).unwrap(), format!("HEAD / HTTP/1.1\r\nhost: a\r\n{ADDED}"));
        let told = for_server(text, true).unwrap();
        assert!(
            told.contains("X-Forwarded-For: 1, 2, 192.0.2.1\r\n") && told.contains("X-Forwarded-Proto: gopher\r\n")
        );
        assert!(told.contains("X-Forwarded-Host: a\r\n") && !told.contains("https"), "{told}");
        for hearsay in ["X_Forwarded_For", "X-Real-Ip", "Forwarded:", "_"] {
            assert!(!told.contains(hearsay), "{told}");
        }
        let told = for_server_by(text, Some(Trail::Forwarded)).unwrap();
        let added = ADDED.replace("For: ", "For: 198.51.100.7, ").replace("Via: 1.1 weir\r\n", "");
        let added = added.replace("a\r\n\r\n", "a\r\nVia: 1.1 weir\r\n\r\n");
        assert_eq!(told, format!("HEAD / HTTP/1.1\r\nhost: a\r\nForwarded: for=5\r\n{added}"));
        let told = for_server_by(text, Some(Trail::None)).unwrap();
        assert_eq!(told, format!("HEAD / HTTP/1.1\r\nhost: a\r\n{}", added.replace("198.51.100.7, ", "")));
    }

    proptest! {
        /// The output is one head of one request, whatever the input was.
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
                prop_assert!(request.headers.iter().all(|field| !is_hop_by_hop(field.name)));
            }
            let cut = text.len() / 2;
            let mut room = [const { MaybeUninit::uninit() }; FIELDS];
            let _ = read(&text.as_bytes()[..cut], &mut room);
        }
    }
}
