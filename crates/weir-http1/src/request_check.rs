//! Whether a parsed request may be passed on: its method, target, transfer coding and host.
//!
//! For requests of HTTP/1 and HTTP/2 that hyper has read. What two readers could understand differently is refused ([`Refused`]).

use http::header::{self, HeaderValue};
use http::{Method, Version, request};

use super::fields::is_only_chunked;
use super::refused::Refused;

/// The host of a request that may be passed on. `extended` is true for a request with `:protocol`, as in RFC 8441.
pub fn check(parts: &request::Parts, extended: bool) -> Result<HeaderValue, Refused> {
    let connects = parts.method == Method::CONNECT;
    if (connects && !extended) || parts.method == Method::TRACE {
        return Err(Refused::Method);
    }
    if !connects && extended {
        return Err(Refused::ProtocolWithoutConnect);
    }
    let path = parts.uri.path();
    let whole_server = path == "*" && parts.method == Method::OPTIONS;
    if !path.starts_with('/') && !whole_server {
        return Err(Refused::Target);
    }
    // hyper takes the chunks off and leaves what is inside as it is, and the server would not be told that this is compressed (RFC 9112 section 6.1).
    if !is_only_chunked(&parts.headers) {
        return Err(Refused::TransferCoding);
    }
    let host = host(parts)?;
    if !is_host(host.as_bytes()) {
        return Err(Refused::HostName);
    }
    Ok(host)
}

/// One host, said once (RFC 9112 section 3.2); an absolute target and an HTTP/2 authority must agree with the header.
fn host(parts: &request::Parts) -> Result<HeaderValue, Refused> {
    let mut said = parts.headers.get_all(header::HOST).iter();
    let header = said.next();
    if said.next().is_some() {
        return Err(Refused::SeveralHosts);
    }
    match (parts.uri.authority(), header) {
        (None, Some(host)) => Ok(host.clone()),
        (None, None) if parts.version <= Version::HTTP_10 => Ok(HeaderValue::from_static("")),
        (None, None) => Err(Refused::NoHost),
        (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
            Err(Refused::HostsDiffer)
        }
        (Some(authority), _) => HeaderValue::from_str(authority.as_str()).map_err(|_| Refused::HostName),
    }
}

/// Whether all octets are such as a host has (RFC 3986 section 3.2.2).
#[inline]
pub fn is_host(host: &[u8]) -> bool {
    host.len() <= 260 && host.iter().all(|byte| HOST_OCTETS[usize::from(*byte)])
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn checked(build: impl FnOnce(request::Builder) -> request::Builder) -> Result<HeaderValue, Refused> {
        check(&build(Request::builder()).body(()).unwrap().into_parts().0, false)
    }

    #[test]
    fn one_host_and_only_one() {
        assert_eq!(checked(|b| b.uri("/")), Err(Refused::NoHost));
        assert_eq!(checked(|b| b.uri("/").header("host", "a").header("host", "a")), Err(Refused::SeveralHosts));
        assert_eq!(checked(|b| b.uri("http://a/").header("host", "b")), Err(Refused::HostsDiffer));
        for host in ["a b", "a/b", "user@a"] {
            assert_eq!(checked(|b| b.uri("/").header("host", host)), Err(Refused::HostName), "{host}");
        }
        assert!(checked(|b| b.uri("/").version(Version::HTTP_10)).is_ok());
    }

    #[test]
    fn chunks_are_the_only_transfer_coding() {
        let coded = |lines: &[&str]| {
            checked(|b| {
                lines.iter().fold(b.uri("/").header("host", "a"), |b, line| b.header("transfer-encoding", *line))
            })
        };
        assert!(coded(&[]).is_ok() && coded(&["Chunked"]).is_ok() && coded(&[", chunked ,"]).is_ok());
        for lines in [&["gzip, chunked"][..], &["gzip", "chunked"], &["identity, chunked"], &["chunked, chunked"]] {
            assert_eq!(coded(lines), Err(Refused::TransferCoding), "{lines:?}");
        }
    }

    #[test]
    fn methods_and_targets_that_are_not_for_a_proxy_are_refused() {
        assert_eq!(checked(|b| b.method("TRACE").uri("/").header("host", "a")), Err(Refused::Method));
        assert_eq!(checked(|b| b.method("CONNECT").uri("a:80").header("host", "a:80")), Err(Refused::Method));
        assert_eq!(checked(|b| b.method("GET").uri("*").header("host", "a")), Err(Refused::Target));
        assert!(checked(|b| b.method("OPTIONS").uri("*").header("host", "a")).is_ok());
        let get = Request::get("/").header("host", "a").body(()).unwrap().into_parts().0;
        assert_eq!(check(&get, true), Err(Refused::ProtocolWithoutConnect));
    }
}
