//! Reads the head of a server's response, and finds out how the end of its body is marked (RFC 9112 section 6.3).
//!
//! Strict where two readers could disagree: two lengths, a length beside chunks, a length that is no number and codings other than chunks are
//! refused.
//! Linear in the octets of the head, which the caller bounds. In a map, values share the head's octets. As lines ([`FieldLines`]) they are copied
//! to where they go out again, without a map between.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use super::Field;
use super::body_framing::{BodyFraming, Chunks};
use super::field_lines::{FieldLines, is};
use super::fields::{FramingFields, head_end, is_close, is_keep_alive, put, put_shared};
use super::hop_by_hop::{is_hop_by_hop, strip};
use super::refused::Refused;

/// What a head says besides its fields.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The reason phrase, if it is not the usual one for this status.
    pub reason: Option<Bytes>,
    /// How far the body goes.
    pub framing: BodyFraming,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
}

/// As many fields as a response may have.
const FIELDS: usize = 100;

/// Where the fields of a response are put.
#[derive(Debug)]
pub enum FieldsInto<'a> {
    /// Into a map.
    Map(&'a mut HeaderMap),
    /// As lines, without those of the connection.
    Lines(&'a mut FieldLines),
}

/// Takes a head off `input` and replaces what is in `into` by its fields; None if the head is not complete. `method` is that of the
/// request.
pub fn take(input: &mut BytesMut, method: &Method, into: FieldsInto<'_>) -> Result<Option<ResponseHead>, Refused> {
    match into {
        FieldsInto::Map(headers) => take_map(input, method, headers),
        FieldsInto::Lines(lines) => take_lines(input, method, lines),
    }
}

fn take_map(input: &mut BytesMut, method: &Method, headers: &mut HeaderMap) -> Result<Option<ResponseHead>, Refused> {
    let Some(end) = head_end(input) else { return Ok(None) };
    let octets = input.split_to(end).freeze();
    headers.clear();
    match read(&octets, method, |fields, _| put_shared(&octets, fields, headers))? {
        Some((head, length)) if length == end => Ok(Some(head)),
        _ => Err(Refused::ResponseHead),
    }
}

fn take_lines(input: &mut BytesMut, method: &Method, lines: &mut FieldLines) -> Result<Option<ResponseHead>, Refused> {
    // A response does not begin with an empty line.
    if matches!(input.first(), Some(b'\r' | b'\n')) {
        return Err(Refused::ResponseHead);
    }
    lines.clear();
    let read = read(input, method, |fields, status| put_lines(fields, status, lines))?;
    Ok(read.map(|(head, length)| {
        input.advance(length);
        head
    }))
}

/// Reads a head, with what `put` notes of its fields, and its length; None if it is not complete.
fn read(
    octets: &[u8],
    method: &Method,
    put: impl FnOnce(&[Field<'_>], StatusCode) -> Result<FramingFields, Refused>,
) -> Result<Option<(ResponseHead, usize)>, Refused> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, octets, &mut fields);
    let length = match parsed.map_err(|_| Refused::ResponseHead)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default()).map_err(|_| Refused::ResponseHead)?;
    let said = put(response.headers, status)?;
    let latest = response.version == Some(1);
    let head = ResponseHead {
        status,
        reason: response.reason.and_then(|text| reason(status, text)),
        framing: framing(&said, status, method)?,
        keep_alive: latest && !said.close && status != StatusCode::SWITCHING_PROTOCOLS,
    };
    Ok(Some((head, length)))
}

/// The same as lines, without what concerns this connection alone.
fn put_lines(fields: &[Field<'_>], status: StatusCode, lines: &mut FieldLines) -> Result<FramingFields, Refused> {
    let names_others =
        |field: &Field<'_>| is(field.name, "connection") && !is_keep_alive(field.value) && !is_close(field.value);
    if fields.iter().any(names_others) {
        // They must go with it.
        let mut headers = HeaderMap::new();
        let said = put(fields, &mut headers, |value| HeaderValue::from_bytes(value).ok())?;
        strip(&mut headers);
        lines.add_all(&headers);
        return Ok(said);
    }
    let mut said = FramingFields::default();
    for field in fields {
        let done = said.note(field.name, field.value)? || is_hop_by_hop(field.name);
        let useless = status == StatusCode::NO_CONTENT && is(field.name, "content-length");
        if !done && !useless {
            lines.add(field.name, field.value);
        }
    }
    Ok(said)
}

fn framing(said: &FramingFields, status: StatusCode, method: &Method) -> Result<BodyFraming, Refused> {
    let bare = matches!(status.as_u16(), 100..200 | 204 | 304);
    Ok(match said.length {
        _ if bare || *method == Method::HEAD => BodyFraming::Length(0),
        Some(_) if said.coded => return Err(Refused::ResponseLength),
        Some(length) => BodyFraming::Length(length),
        None if said.coded && !said.chunked => return Err(Refused::ResponseCoding),
        None if said.chunked => BodyFraming::Chunks(Chunks::Size),
        None => BodyFraming::UntilClose,
    })
}

fn reason(status: StatusCode, text: &str) -> Option<Bytes> {
    let usual = text.is_empty() || status.canonical_reason() == Some(text);
    (!usual).then(|| Bytes::copy_from_slice(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<(ResponseHead, HeaderMap)>, Refused> {
        let (mut input, mut headers) = (BytesMut::from(text.as_bytes()), HeaderMap::new());
        take(&mut input, &Method::GET, FieldsInto::Map(&mut headers)).map(|head| head.map(|head| (head, headers)))
    }

    fn head(text: &str) -> (ResponseHead, HeaderMap) {
        read(&format!("HTTP/1.1 {text}\r\n\r\n")).unwrap().unwrap()
    }

    #[test]
    fn a_head_is_taken_off_and_the_rest_stays() {
        let mut input = BytesMut::from(&b"HTTP/1.1 200 OK\r\nA: b\r\na: c \r\nContent-Length: 2\r\n\r\nhi"[..]);
        let mut headers = HeaderMap::from_iter([(header::VIA, HeaderValue::from_static("1"))]);
        let head = take(&mut input, &Method::GET, FieldsInto::Map(&mut headers)).unwrap().unwrap();
        assert!(!headers.contains_key(header::VIA));
        assert_eq!((head.status, head.keep_alive, &input[..]), (StatusCode::OK, true, &b"hi"[..]));
        assert!(head.reason.is_none() && matches!(head.framing, BodyFraming::Length(2)));
        assert_eq!(headers.get_all("a").iter().collect::<Vec<_>>(), ["b", "c"]);
    }

    fn lines(text: &str) -> Result<(ResponseHead, FieldLines), Refused> {
        let mut input = BytesMut::from(format!("HTTP/1.1 {text}\r\n\r\n").as_bytes());
        let mut lines = FieldLines::default();
        take(&mut input, &Method::GET, FieldsInto::Lines(&mut lines)).map(|head| (head.unwrap(), lines))
    }

    #[test]
    fn lines_are_passed_on_but_for_those_of_the_connection() {
        let (head, said) =
            lines("200 OK\r\nDate: x\r\nKeep-Alive: 3\r\nConnection: keep-alive\r\nContent-Length: 2").unwrap();
        assert!(head.keep_alive && said.dated && said.sized);
        assert_eq!(said.text(), b"Date: x\r\nContent-Length: 2\r\n");
        let (head, said) = lines("200 OK\r\nX-Own: 1\r\nB: c\r\nConnection: x-own, close\r\nUpgrade: h2c").unwrap();
        assert!(!head.keep_alive);
        assert_eq!(said.text(), b"b: c\r\n");
        let (_, said) = lines("204 No\r\nContent-Length: 0\r\nContent-Type: text/event-stream").unwrap();
        assert!(said.events && !said.sized);
    }

    #[test]
    fn lines_and_maps_agree() {
        for text in [
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 5",
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
            "200 OK\r\ntransfer-encoding: chunked\r\nContent-Length: 5",
            "200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x",
            "204 No\r\nContent-Length: 5",
            "200 OK\r\nConnection: close",
        ] {
            let by_map = read(&format!("HTTP/1.1 {text}\r\n\r\n")).map(|head| head.unwrap().0);
            let by_lines = lines(text).map(|(head, _)| head);
            let shown = |head: Result<ResponseHead, Refused>| head.map(|head| (head.framing, head.keep_alive));
            assert_eq!(shown(by_map), shown(by_lines), "{text}");
        }
    }

    #[test]
    fn the_body_goes_as_far_as_the_head_says() {
        assert!(matches!(head("200 OK").0.framing, BodyFraming::UntilClose));
        assert!(matches!(head("204 No\r\nContent-Length: 5").0.framing, BodyFraming::Length(0)));
        assert!(matches!(head("304 x\r\nTransfer-Encoding: chunked").0.framing, BodyFraming::Length(0)));
        assert!(matches!(head("200 x\r\nTransfer-Encoding: Chunked ,").0.framing, BodyFraming::Chunks(_)));
        assert!(matches!(head("304 x\r\nTransfer-Encoding: gzip, chunked").0.framing, BodyFraming::Length(0)));
        let (twice, headers) = head("200 x\r\nContent-Length: 5\r\nContent-Length: 5");
        assert!(matches!(twice.framing, BodyFraming::Length(5)));
        assert_eq!(headers.get_all(header::CONTENT_LENGTH).iter().count(), 1);
    }

    #[test]
    fn lengths_that_two_readers_take_differently_are_refused() {
        for lengths in [
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
        ] {
            assert_eq!(
                read(&format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n")).unwrap_err(),
                Refused::ResponseLength,
                "{lengths}"
            );
        }
    }

    #[test]
    fn codings_that_the_client_would_not_be_told_are_refused() {
        for codings in ["gzip, chunked", "gzip", "chunked, gzip", "chunked, chunked", "identity", "xchunked", "", ","] {
            let text = format!("200 OK\r\nTransfer-Encoding: {codings}");
            let refused = read(&format!("HTTP/1.1 {text}\r\n\r\n")).unwrap_err();
            assert_eq!(
                (refused, lines(&text).unwrap_err()),
                (Refused::ResponseCoding, Refused::ResponseCoding),
                "{codings}"
            );
        }
        let twice = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read(twice).unwrap_err(), Refused::ResponseCoding);
    }

    #[test]
    fn connections_end_where_they_say_so() {
        assert!(!head("200 OK\r\nConnection: x, Close").0.keep_alive);
        let (kept, headers) = head("200 OK\r\nConnection: Keep-Alive");
        assert!(kept.keep_alive && headers.is_empty());
        assert!(!head("101 Switching Protocols").0.keep_alive);
        assert!(!read("HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap().0.keep_alive);
    }

    #[test]
    fn unusual_reasons_are_kept() {
        assert_eq!(head("200 Fine").0.reason.unwrap(), "Fine");
        assert!(head("200 ").0.reason.is_none());
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for bad in ["\r\n\r\n", "HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 200 OK\r\nA b\r\n\r\n", "SSH-2.0\r\n\r\n"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let many = "A: b\r\n".repeat(FIELDS + 1);
        assert!(read(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }

    proptest! {
        #[test]
        fn no_octets_do_harm_and_an_incomplete_head_waits(
            octets in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..40,
        ) {
            let mut input = BytesMut::from(&octets[..]);
            let _ = take(&mut input, &Method::GET, FieldsInto::Map(&mut HeaderMap::new()));
            let _ = take(&mut BytesMut::from(&octets[..]), &Method::GET, FieldsInto::Lines(&mut FieldLines::default()));
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
            prop_assert!(read(&text[..cut.min(text.len() - 1)]).unwrap().is_none());
        }
    }
}
