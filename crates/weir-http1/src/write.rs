//! Writes messages as octets: requests to a server, and responses to a client.
//!
//! The reader must have checked names and values. Nothing is allocated except room in the output.

use std::io::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};

use super::field_lines::{FieldLines, write_line};

/// Writes a request whose body is complete.
pub fn write_request(output: &mut Vec<u8>, parts: &request::Parts, body: Option<&Bytes>) {
    // Without the body, a server would take the next request for the body that this length announces.
    write_head(output, parts, |length| body.is_some() || length == "0");
    if let Some(body) = body {
        output.extend_from_slice(body);
    }
}

/// Writes a request whose body and trailers are complete. Its fields say that it comes in chunks.
pub fn write_trailed_request(output: &mut Vec<u8>, parts: &request::Parts, body: &Bytes, trailers: &HeaderMap) {
    // Two lengths in one head are what request smuggling is made of.
    write_head(output, parts, |_| false);
    if !body.is_empty() {
        write_chunk_size(output, body.len());
        output.extend_from_slice(body);
        output.extend_from_slice(b"\r\n");
    }
    output.extend_from_slice(b"0\r\n");
    trailers.iter().for_each(|(name, value)| write_line(output, name.as_str(), value.as_bytes()));
    output.extend_from_slice(b"\r\n");
}

/// Writes the head of a request; `keeps_length` says whether a length is written.
fn write_head(output: &mut Vec<u8>, parts: &request::Parts, keeps_length: impl Fn(&HeaderValue) -> bool) {
    output.extend_from_slice(parts.method.as_str().as_bytes());
    output.push(b' ');
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    output.extend_from_slice(target.as_bytes());
    output.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &parts.headers {
        if *name != header::CONTENT_LENGTH || keeps_length(value) {
            write_line(output, name.as_str(), value.as_bytes());
        }
    }
    output.extend_from_slice(b"\r\n");
}

/// Writes the first line of a response.
#[inline]
pub fn write_status_line(output: &mut Vec<u8>, status: StatusCode, reason: Option<&[u8]>) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(reason.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().as_bytes()));
    output.extend_from_slice(b"\r\n");
}

/// Writes an interim response (RFC 9110 section 15.2), which has nothing but a head.
pub fn write_interim(output: &mut Vec<u8>, status: StatusCode, lines: &FieldLines) {
    write_status_line(output, status, None);
    output.extend_from_slice(lines.text());
    output.extend_from_slice(b"\r\n");
}

/// Writes what comes before the data of a chunk; `\r\n` follows the data.
#[inline]
pub fn write_chunk_size(output: &mut Vec<u8>, size: usize) {
    // Writing to a Vec cannot fail.
    let _ = write!(output, "{size:x}\r\n");
}

/// The end of a body in chunks, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How a client learns where the body of a response ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseFraming {
    /// There is no body.
    Nothing,
    /// By `Content-Length`.
    Length,
    /// By chunks.
    Chunks,
}

impl ResponseFraming {
    /// The framing of the response to a request with this method; `length` is that of the body, where it is known.
    #[inline]
    pub fn of(method: &Method, status: StatusCode, lines: &FieldLines, length: Option<u64>) -> ResponseFraming {
        if *method == Method::HEAD || matches!(status.as_u16(), 100..200 | 204 | 304) {
            ResponseFraming::Nothing
        } else if lines.sized || length.is_some() {
            ResponseFraming::Length
        } else {
            ResponseFraming::Chunks
        }
    }

    /// Adds the field that announces it, unless it is there already.
    #[inline]
    pub fn announce(self, lines: &mut FieldLines, length: Option<u64>) {
        match (self, length) {
            (ResponseFraming::Length, Some(length)) if !lines.sized => {
                lines.add("content-length", length.to_string().as_bytes());
            }
            (ResponseFraming::Chunks, _) => lines.add("transfer-encoding", b"chunked"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn a_length_without_a_body_is_left_out() {
        let request = |length: &str| Request::get("/a?b").header("host", "h").header("content-length", length);
        for (length, body, fields) in
            [("9", None, ""), ("0", None, "content-length: 0\r\n"), ("1", Some("x"), "content-length: 1\r\n")]
        {
            let parts = request(length).body(()).unwrap().into_parts().0;
            let (mut output, body) = (Vec::new(), body.map(Bytes::from));
            write_request(&mut output, &parts, body.as_ref());
            let text = format!("GET /a?b HTTP/1.1\r\nhost: h\r\n{fields}\r\n{}", body.map_or("", |_| "x"));
            assert_eq!(String::from_utf8(output).unwrap(), text);
        }
    }

    #[test]
    fn trailers_follow_the_last_chunk() {
        let request = Request::post("/a").header("transfer-encoding", "chunked").header("content-length", "3");
        let parts = request.body(()).unwrap().into_parts().0;
        let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("x"))]);
        for (body, chunk) in [("abc", "3\r\nabc\r\n"), ("", "")] {
            let mut output = Vec::new();
            write_trailed_request(&mut output, &parts, &Bytes::from_static(body.as_bytes()), &trailers);
            let text = format!("POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\netag: x\r\n\r\n");
            assert_eq!(String::from_utf8(output).unwrap(), text);
        }
    }

    #[test]
    fn the_end_of_a_body_is_announced_once() {
        let announced = |method: &Method, status, length, fields: &[(&str, &str)]| {
            let mut lines = FieldLines::new();
            fields.iter().for_each(|(name, value)| lines.add(name, value.as_bytes()));
            ResponseFraming::of(method, status, &lines, length).announce(&mut lines, length);
            String::from_utf8(lines.text().to_vec()).unwrap()
        };
        let (ok, get) = (StatusCode::OK, &Method::GET);
        assert_eq!(announced(get, ok, Some(3), &[]), "content-length: 3\r\n");
        assert_eq!(announced(get, ok, Some(3), &[("Content-Length", "3")]), "Content-Length: 3\r\n");
        assert_eq!(announced(get, ok, None, &[]), "transfer-encoding: chunked\r\n");
        assert_eq!(announced(&Method::HEAD, ok, None, &[]), "");
        assert_eq!(announced(get, StatusCode::NOT_MODIFIED, None, &[]), "");
    }

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        let mut output = Vec::new();
        write_chunk_size(&mut output, 255);
        assert_eq!(output, b"ff\r\n");
    }
}
