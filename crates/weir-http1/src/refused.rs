//! The list of everything that the gate refuses: each kind of request that it does not pass on and each kind of response that it does not
//! accept.
//!
//! A refusal has a reason, the section of the standard that it rests on, and a status. A refused request closes its connection, unless the rule
//! says otherwise, because what follows on it cannot be trusted. A refused response is a `502` for the client, and the connection to the server is
//! given up.
//!
//! hyper reads whatever is not a plain request ([`super::request_head`]), and refuses some of it before it comes here: a request line, a field or a
//! version that it cannot parse (400), a head that is too large or has too many fields (431), a target that is too long (414), a
//! `Content-Length` that is no number and a `Transfer-Encoding` that does not end with `chunked` (400). The time and size limits of bodies
//! are settings, and are enforced in the gate itself.

use std::fmt;

use http::StatusCode;

/// Something that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A request with CONNECT (but for RFC 8441) or TRACE.
    Method,
    /// A request with `:protocol` that is no CONNECT.
    ProtocolWithoutConnect,
    /// A CONNECT to a protocol that is not configured.
    UnknownProtocol,
    /// A request for something that is neither a path nor `*` with OPTIONS.
    Target,
    /// A request with more than one Host.
    SeveralHosts,
    /// A request of HTTP/1.1 or later without a host.
    NoHost,
    /// A request whose target and Host name different hosts.
    HostsDiffer,
    /// A request whose host has octets that no host has.
    HostName,
    /// A request with both Content-Length and Transfer-Encoding.
    RequestLengths,
    /// A request with a length of so many digits that it cannot be followed, or behind one.
    RequestLength,
    /// A request with a transfer coding besides chunked.
    TransferCoding,
    /// A request whose head is longer than it may be.
    RequestTooLarge,
    /// A response whose head cannot be parsed.
    ResponseHead,
    /// A response whose lengths disagree, or are no numbers.
    ResponseLength,
    /// A response with a transfer coding besides chunked.
    ResponseCoding,
    /// A response whose head does not end.
    ResponseTooLarge,
    /// A response whose chunks or trailers cannot be parsed.
    Chunk,
    /// A response that broke off before.
    Broken,
    /// A `101` that nobody asked for.
    Switched,
    /// A success without a tunnel for a client that asked for one on a stream.
    NoTunnel,
}

/// Why something is refused, and how it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What the client is answered.
    pub status: StatusCode,
    /// Whether the client's connection ends with it.
    pub closes: bool,
    /// Where the standard says so.
    pub section: &'static str,
    /// The reason in words, for the log.
    pub reason: &'static str,
}

impl Refused {
    /// Everything that is refused: requests first, then responses.
    pub const ALL: [Refused; 20] = [
        Refused::Method,
        Refused::ProtocolWithoutConnect,
        Refused::UnknownProtocol,
        Refused::Target,
        Refused::SeveralHosts,
        Refused::NoHost,
        Refused::HostsDiffer,
        Refused::HostName,
        Refused::RequestLengths,
        Refused::RequestLength,
        Refused::TransferCoding,
        Refused::RequestTooLarge,
        Refused::ResponseHead,
        Refused::ResponseLength,
        Refused::ResponseCoding,
        Refused::ResponseTooLarge,
        Refused::Chunk,
        Refused::Broken,
        Refused::Switched,
        Refused::NoTunnel,
    ];

    /// The list.
    pub const fn rule(self) -> Rule {
        match self {
            Refused::Method => {
                request(StatusCode::METHOD_NOT_ALLOWED, "RFC 9110 9.3.6 and 9.3.8", "CONNECT and TRACE are not served")
            }
            Refused::ProtocolWithoutConnect => {
                request(StatusCode::BAD_REQUEST, "RFC 8441 4", "a protocol, and no CONNECT")
            }
            Refused::UnknownProtocol => Rule {
                closes: false,
                ..request(StatusCode::NOT_IMPLEMENTED, "RFC 9110 15.6.2", "a protocol that is not configured")
            },
            Refused::Target => request(StatusCode::BAD_REQUEST, "RFC 9112 3.2", "the target is no path"),
            Refused::SeveralHosts => request(StatusCode::BAD_REQUEST, "RFC 9112 3.2", "more than one Host"),
            Refused::NoHost => request(StatusCode::BAD_REQUEST, "RFC 9112 3.2", "no Host"),
            Refused::HostsDiffer => {
                request(StatusCode::BAD_REQUEST, "RFC 9112 3.2.2, RFC 9113 8.3.1", "the target and Host disagree")
            }
            Refused::HostName => request(StatusCode::BAD_REQUEST, "RFC 3986 3.2.2", "the host is no host name"),
            Refused::RequestLengths => {
                request(StatusCode::BAD_REQUEST, "RFC 9112 6.3", "both a length and a transfer coding")
            }
            Refused::RequestLength => request(StatusCode::BAD_REQUEST, "RFC 9112 6.3", "a length of too many digits"),
            Refused::TransferCoding => {
                request(StatusCode::NOT_IMPLEMENTED, "RFC 9112 6.1", "a transfer coding besides chunked")
            }
            Refused::RequestTooLarge => {
                request(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "RFC 6585 5", "the head is too large")
            }
            Refused::ResponseHead => response("RFC 9112 4 and 5", "the head is not valid HTTP"),
            Refused::ResponseLength => response("RFC 9112 6.3", "the length is not clear"),
            Refused::ResponseCoding => response("RFC 9112 6.1", "a transfer coding besides chunked"),
            Refused::ResponseTooLarge => response("RFC 9110 5.4", "the head is too large"),
            Refused::Chunk => response("RFC 9112 7.1", "the chunks are not valid"),
            Refused::Broken => response("RFC 9112 8", "it broke off before"),
            Refused::Switched => response("RFC 9110 15.2.2", "it switches protocols, and nobody asked"),
            Refused::NoTunnel => response("RFC 8441 5", "it is a success without a tunnel"),
        }
    }
}

const fn request(status: StatusCode, section: &'static str, reason: &'static str) -> Rule {
    Rule { status, closes: true, section, reason }
}

const fn response(section: &'static str, reason: &'static str) -> Rule {
    Rule { status: StatusCode::BAD_GATEWAY, closes: false, section, reason }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule().reason)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_reason_a_section_and_a_status_of_its_own_side() {
        for (at, refused) in Refused::ALL.into_iter().enumerate() {
            let Rule { status, closes, section, reason } = refused.rule();
            assert_eq!(refused as usize, at, "the list is in the order of the enum");
            assert!(section.starts_with("RFC ") && !reason.is_empty(), "{refused:?}");
            let of_request = at < Refused::ResponseHead as usize;
            assert_eq!(status == StatusCode::BAD_GATEWAY, !of_request, "{refused:?}");
            assert!(!closes || of_request, "{refused:?}");
        }
    }
}
