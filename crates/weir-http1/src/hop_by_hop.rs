//! Fields that concern one connection only, and are not passed on (RFC 9110 section 7.6.1).

use http::header::{self, HeaderMap, HeaderName};

use super::field_lines::is;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether a field concerns one connection only, whatever its case.
#[inline]
pub fn is_hop_by_hop(name: &str) -> bool {
    match name.len() {
        2 => is(name, "te"),
        7 => is(name, "upgrade"),
        10 => is(name, "connection") || is(name, "keep-alive"),
        16 => is(name, "proxy-connection"),
        17 => is(name, "transfer-encoding"),
        _ => false,
    }
}

/// Takes off what concerns one connection only, and whatever `Connection` names.
pub fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| is_hop_by_hop(name.as_str())) {
        return;
    }
    if headers.contains_key(header::CONNECTION) {
        let listed: Vec<HeaderName> = names(headers, header::CONNECTION).filter_map(|name| name.parse().ok()).collect();
        // What frames the message, says where it goes or who asks is passed on, whatever `Connection` says.
        let keep = [header::HOST, header::CONTENT_LENGTH, header::COOKIE, header::SET_COOKIE, header::AUTHORIZATION];
        // So is what a proxy says of its client: the client may have named it here to have it removed.
        let removed = |name: &&HeaderName| !keep.contains(name) && !describes_client(name.as_str());
        for name in listed.iter().filter(removed) {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

/// The elements of a field that is a list of names, over all of its lines.
pub fn names(headers: &HeaderMap, list: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a proxy describes its client in this field: `Forwarded`, `X-Forwarded-For` and its like, and also `X_Forwarded_For`, which CGI servers cannot
/// tell from the real one.
#[inline]
pub fn describes_client(name: &str) -> bool {
    match name.as_bytes() {
        [b'x' | b'X', b'-' | b'_', b'f' | b'F' | b'r' | b'R', ..] => {
            let name = name.to_ascii_lowercase().replace('_', "-");
            name == "x-real-ip" || is_x_forwarded(&name)
        }
        _ => is(name, "forwarded"),
    }
}

/// Whether it is a field of the message's framing or of its connection, written with `_`. It means nothing to HTTP, but CGI servers cannot tell it from the
/// real one, and might follow it.
#[inline]
pub fn is_disguised(name: &str) -> bool {
    matches!(name.len(), 10 | 14 | 16 | 17) && name.contains('_') && {
        let name = name.replace('_', "-");
        is(&name, "content-length") || is_hop_by_hop(&name)
    }
}

/// Whether it is `X-Forwarded-For` or its like, as proxies spell them.
pub fn is_x_forwarded(name: &str) -> bool {
    let begins = name.get(..12).is_some_and(|begin| begin.eq_ignore_ascii_case("x-forwarded-"));
    begins && !name.contains('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_in_disguise_is_seen() {
        for name in ["Content_Length", "transfer_encoding", "TRANSFER_ENCODING", "Keep_Alive", "proxy_connection"] {
            assert!(is_disguised(name), "{name}");
        }
        for name in ["content-length", "Transfer-Encoding", "content_type", "x_content_length", "user_agent_x"] {
            assert!(!is_disguised(name), "{name}");
        }
    }
}
