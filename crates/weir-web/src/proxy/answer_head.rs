//! The head of a server's answer, and how far its body goes (RFC 9112 section 6.3).
//!
//! Strict where two readers could disagree: two lengths, a length beside chunks and a length that is no number are no answer at all.
//! Linear in the octets of the head, which the caller bounds. In a map, values share the head's octets; as lines ([`Lines`]) they are copied
//! to where they go out again, without a map between.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use hyper::ext::ReasonPhrase;

use super::answer_body::{Chunks, Framing};
use super::headers::{incoming, is_private};
use super::lines::{Lines, is};

/// What a head says, besides its fields.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// Where it is not the usual one.
    pub(super) reason: Option<ReasonPhrase>,
    pub(super) framing: Framing,
    /// Whether the connection can be used again.
    pub(super) keep: bool,
}

/// As many fields as an answer may have.
const FIELDS: usize = 100;

/// Where an answer's fields are put.
pub(super) enum Fields<'a> {
    Map(&'a mut HeaderMap),
    Lines(&'a mut Lines),
}

/// Takes a head off `input` and puts its fields in the place of what is in `into`; None if it is not complete. The method is that of
/// the request.
pub(super) fn take(input: &mut BytesMut, method: &Method, into: Fields<'_>) -> Result<Option<Head>, BadAnswer> {
    match into {
        Fields::Map(headers) => take_map(input, method, headers),
        Fields::Lines(lines) => take_lines(input, method, lines),
    }
}

fn take_map(input: &mut BytesMut, method: &Method, headers: &mut HeaderMap) -> Result<Option<Head>, BadAnswer> {
    let Some(end) = end(input) else { return Ok(None) };
    let octets = input.split_to(end).freeze();
    headers.clear();
    let shared = |value: &[u8]| HeaderValue::from_maybe_shared(octets.slice_ref(value)).ok();
    match read(&octets, method, |fields, _| put(fields, headers, shared))? {
        Some((head, length)) if length == end => Ok(Some(head)),
        _ => Err(BadAnswer::Head),
    }
}

fn take_lines(input: &mut BytesMut, method: &Method, lines: &mut Lines) -> Result<Option<Head>, BadAnswer> {
    // An empty line is no beginning of an answer.
    if matches!(input.first(), Some(b'\r' | b'\n')) {
        return Err(BadAnswer::Head);
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
    put: impl FnOnce(&[httparse::Header<'_>], StatusCode) -> Result<Said, BadAnswer>,
) -> Result<Option<(Head, usize)>, BadAnswer> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut answer = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut answer, octets, &mut fields);
    let length = match parsed.map_err(|_| BadAnswer::Head)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = StatusCode::from_u16(answer.code.unwrap_or_default()).map_err(|_| BadAnswer::Head)?;
    let said = put(answer.headers, status)?;
    let latest = answer.version == Some(1);
    let head = Head {
        status,
        reason: answer.reason.and_then(|text| reason(status, text)),
        framing: said.framing(status, method)?,
        keep: latest && !said.close && status != StatusCode::SWITCHING_PROTOCOLS,
    };
    Ok(Some((head, length)))
}

/// Where the empty line ends.
pub(super) fn end(input: &[u8]) -> Option<usize> {
    let ends = memchr::memchr_iter(b'\n', input).map(|at| at + 1);
    ends.filter_map(|at| match input.get(at..)? {
        [b'\n', ..] => Some(at + 1),
        [b'\r', b'\n', ..] => Some(at + 2),
        _ => None,
    })
    .next()
}

/// Copies fields into a map.
pub(super) fn fields(
    octets: &Bytes,
    fields: &[httparse::Header<'_>],
    headers: &mut HeaderMap,
) -> Result<(), BadAnswer> {
    let shared = |value: &[u8]| HeaderValue::from_maybe_shared(octets.slice_ref(value)).ok();
    put(fields, headers, shared).map(drop)
}

/// What the fields say of the body and the connection.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    coded: bool,
    chunked: bool,
    close: bool,
}

fn put(
    fields: &[httparse::Header<'_>],
    headers: &mut HeaderMap,
    value: impl Fn(&[u8]) -> Option<HeaderValue>,
) -> Result<Said, BadAnswer> {
    let mut said = Said::default();
    headers.reserve(fields.len());
    for field in fields {
        if said.note(field.name, field.value)? {
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| BadAnswer::Head)?;
        headers.append(name, value(field.value).ok_or(BadAnswer::Head)?);
    }
    Ok(said)
}

/// The same as lines, without what concerns this connection alone.
fn put_lines(fields: &[httparse::Header<'_>], status: StatusCode, lines: &mut Lines) -> Result<Said, BadAnswer> {
    let names_others = |field: &httparse::Header<'_>| {
        is(field.name, "connection") && !is_keep_alive(field.value) && !is_close(field.value)
    };
    if fields.iter().any(names_others) {
        // They must go with it.
        let mut headers = HeaderMap::new();
        let said = put(fields, &mut headers, |value| HeaderValue::from_bytes(value).ok())?;
        incoming(&mut headers);
        lines.add_all(&headers);
        return Ok(said);
    }
    let mut said = Said::default();
    for field in fields {
        let done = said.note(field.name, field.value)? || is_private(field.name);
        let useless = status == StatusCode::NO_CONTENT && is(field.name, "content-length");
        if !done && !useless {
            lines.add(field.name, field.value);
        }
    }
    Ok(said)
}

fn is_keep_alive(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"keep-alive")
}

fn is_close(word: &[u8]) -> bool {
    word.trim_ascii().eq_ignore_ascii_case(b"close")
}

fn last(list: &[u8]) -> &[u8] {
    list.rsplit(|octet| *octet == b',').next().unwrap_or_default().trim_ascii()
}

impl Said {
    /// Takes notice of a field. Whether it has served its purpose: it was said before, or concerns this connection alone.
    fn note(&mut self, name: &str, value: &[u8]) -> Result<bool, BadAnswer> {
        if is(name, "content-length") {
            return self.length(value);
        }
        if is(name, "transfer-encoding") {
            (self.coded, self.chunked) = (true, last(value).eq_ignore_ascii_case(b"chunked"));
            return Ok(true);
        }
        if is(name, "connection") {
            self.close |= value.split(|octet| *octet == b',').any(is_close);
            // Whatever else it names is taken off with it.
            return Ok(is_keep_alive(value) || is_close(value));
        }
        Ok(false)
    }

    /// Whether it was said before.
    fn length(&mut self, text: &[u8]) -> Result<bool, BadAnswer> {
        let text = std::str::from_utf8(text).unwrap_or_default().trim_ascii();
        let digits = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
        let length = text.parse().ok().filter(|_| digits).ok_or(BadAnswer::Length)?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(BadAnswer::Length),
            before => Ok(before.is_some()),
        }
    }

    fn framing(&self, status: StatusCode, method: &Method) -> Result<Framing, BadAnswer> {
        let bare = matches!(status.as_u16(), 100..200 | 204 | 304);
        Ok(match self.length {
            _ if bare || *method == Method::HEAD => Framing::Length(0),
            Some(_) if self.coded => return Err(BadAnswer::Length),
            Some(length) => Framing::Length(length),
            None if self.chunked => Framing::Chunks(Chunks::Size),
            None => Framing::UntilClose,
        })
    }
}

fn reason(status: StatusCode, text: &str) -> Option<ReasonPhrase> {
    if text.is_empty() || status.canonical_reason() == Some(text) {
        return None;
    }
    ReasonPhrase::try_from(Bytes::copy_from_slice(text.as_bytes())).ok()
}

/// Why what a server says is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum BadAnswer {
    #[error("the head is not valid HTTP")]
    Head,
    #[error("the length is not clear")]
    Length,
    #[error("the chunks are not valid")]
    Chunk,
    #[error("the head is too large")]
    TooLarge,
    #[error("it broke off before")]
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<(Head, HeaderMap)>, BadAnswer> {
        let (mut input, mut headers) = (BytesMut::from(text.as_bytes()), HeaderMap::new());
        take(&mut input, &Method::GET, Fields::Map(&mut headers)).map(|head| head.map(|head| (head, headers)))
    }

    fn head(text: &str) -> (Head, HeaderMap) {
        read(&format!("HTTP/1.1 {text}\r\n\r\n")).unwrap().unwrap()
    }

    #[test]
    fn a_head_is_taken_off_and_the_rest_stays() {
        let mut input = BytesMut::from(&b"HTTP/1.1 200 OK\r\nA: b\r\na: c \r\nContent-Length: 2\r\n\r\nhi"[..]);
        let mut headers = HeaderMap::from_iter([(header::VIA, HeaderValue::from_static("1"))]);
        let head = take(&mut input, &Method::GET, Fields::Map(&mut headers)).unwrap().unwrap();
        assert!(!headers.contains_key(header::VIA));
        assert_eq!((head.status, head.keep, &input[..]), (StatusCode::OK, true, &b"hi"[..]));
        assert!(head.reason.is_none() && matches!(head.framing, Framing::Length(2)));
        assert_eq!(headers.get_all("a").iter().collect::<Vec<_>>(), ["b", "c"]);
    }

    fn lines(text: &str) -> Result<(Head, Lines), BadAnswer> {
        let mut input = BytesMut::from(format!("HTTP/1.1 {text}\r\n\r\n").as_bytes());
        let mut lines = Lines::default();
        take(&mut input, &Method::GET, Fields::Lines(&mut lines)).map(|head| (head.unwrap(), lines))
    }

    #[test]
    fn lines_are_passed_on_but_for_those_of_the_connection() {
        let (head, said) =
            lines("200 OK\r\nDate: x\r\nKeep-Alive: 3\r\nConnection: keep-alive\r\nContent-Length: 2").unwrap();
        assert!(head.keep && said.dated && said.sized);
        assert_eq!(said.text(), b"Date: x\r\nContent-Length: 2\r\n");
        let (head, said) = lines("200 OK\r\nX-Own: 1\r\nB: c\r\nConnection: x-own, close\r\nUpgrade: h2c").unwrap();
        assert!(!head.keep);
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
            let shown = |head: Result<Head, BadAnswer>| head.map(|head| (head.framing, head.keep));
            assert_eq!(shown(by_map), shown(by_lines), "{text}");
        }
    }

    #[test]
    fn the_body_goes_as_far_as_the_head_says() {
        assert!(matches!(head("200 OK").0.framing, Framing::UntilClose));
        assert!(matches!(head("204 No\r\nContent-Length: 5").0.framing, Framing::Length(0)));
        assert!(matches!(head("304 x\r\nTransfer-Encoding: chunked").0.framing, Framing::Length(0)));
        assert!(matches!(head("200 x\r\nTransfer-Encoding: gzip, Chunked").0.framing, Framing::Chunks(_)));
        assert!(matches!(head("200 x\r\nTransfer-Encoding: chunked, gzip").0.framing, Framing::UntilClose));
        let (twice, headers) = head("200 x\r\nContent-Length: 5\r\nContent-Length: 5");
        assert!(matches!(twice.framing, Framing::Length(5)));
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
                BadAnswer::Length,
                "{lengths}"
            );
        }
    }

    #[test]
    fn connections_end_where_they_say_so() {
        assert!(!head("200 OK\r\nConnection: x, Close").0.keep);
        let (kept, headers) = head("200 OK\r\nConnection: Keep-Alive");
        assert!(kept.keep && headers.is_empty());
        assert!(!head("101 Switching Protocols").0.keep);
        assert!(!read("HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap().0.keep);
    }

    #[test]
    fn unusual_reasons_are_kept() {
        assert_eq!(head("200 Fine").0.reason.unwrap().as_bytes(), b"Fine");
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
            let _ = take(&mut input, &Method::GET, Fields::Map(&mut HeaderMap::new()));
            let _ = take(&mut BytesMut::from(&octets[..]), &Method::GET, Fields::Lines(&mut Lines::default()));
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
            prop_assert!(read(&text[..cut.min(text.len() - 1)]).unwrap().is_none());
        }
    }
}
