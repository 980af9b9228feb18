//! What the fields of a response say about its body and its connection; and a function that puts fields into a map.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::Field;
use super::field_lines::is;
use super::refused::Refused;

/// What the fields say of the body and the connection.
#[derive(Default)]
pub(super) struct FramingFields {
    pub(super) length: Option<u64>,
    /// There is a transfer coding.
    pub(super) coded: bool,
    /// The only transfer coding is `chunked`.
    pub(super) chunked: bool,
    pub(super) close: bool,
}

impl FramingFields {
    /// Takes notice of a field. True if the field is not to be passed on: it was said before, or concerns this connection alone.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) -> Result<bool, Refused> {
        if is(name, "content-length") {
            return self.length(value);
        }
        if is(name, "transfer-encoding") {
            (self.coded, self.chunked) = (true, !self.coded && is_chunked(value));
            return Ok(true);
        }
        if is(name, "connection") {
            self.close |= value.split(|octet| *octet == b',').any(is_close);
            // If it names other fields, they are taken off together with it.
            return Ok(is_keep_alive(value) || is_close(value));
        }
        Ok(false)
    }

    /// Whether it was said before.
    fn length(&mut self, text: &[u8]) -> Result<bool, Refused> {
        let text = std::str::from_utf8(text).unwrap_or_default().trim_ascii();
        let digits = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
        let length = text.parse().ok().filter(|_| digits).ok_or(Refused::ResponseLength)?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(Refused::ResponseLength),
            before => Ok(before.is_some()),
        }
    }
}

/// Whether this list names `chunked` and no other coding. What is inside other codings would reach the client without a word that it is coded.
fn is_chunked(list: &[u8]) -> bool {
    let mut codings = list.split(|octet| *octet == b',').map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
    codings.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// Whether a message with these fields has no transfer coding, or `chunked` alone.
pub fn is_only_chunked(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    lines.next().is_none_or(|line| is_chunked(line.as_bytes())) && lines.next().is_none()
}

pub(super) fn is_keep_alive(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"keep-alive")
}

pub(super) fn is_close(word: &[u8]) -> bool {
    word.trim_ascii().eq_ignore_ascii_case(b"close")
}

/// Puts fields into a map.
pub(super) fn put(
    fields: &[Field<'_>],
    headers: &mut HeaderMap,
    value: impl Fn(&[u8]) -> Option<HeaderValue>,
) -> Result<FramingFields, Refused> {
    let mut said = FramingFields::default();
    headers.reserve(fields.len());
    for field in fields {
        if said.note(field.name, field.value)? {
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Refused::ResponseHead)?;
        headers.append(name, value(field.value).ok_or(Refused::ResponseHead)?);
    }
    Ok(said)
}

/// Puts fields into a map whose values share these octets.
pub(super) fn put_shared(
    octets: &Bytes,
    fields: &[Field<'_>],
    headers: &mut HeaderMap,
) -> Result<FramingFields, Refused> {
    put(fields, headers, |value| HeaderValue::from_maybe_shared(octets.slice_ref(value)).ok())
}

/// Where the empty line behind the fields ends.
#[inline]
pub fn head_end(input: &[u8]) -> Option<usize> {
    let ends = memchr::memchr_iter(b'\n', input).map(|at| at + 1);
    ends.filter_map(|at| match input.get(at..)? {
        [b'\n', ..] => Some(at + 1),
        [b'\r', b'\n', ..] => Some(at + 2),
        _ => None,
    })
    .next()
}
