//! The fields of a response as HTTP/1 writes them: one after another, each on its line.
//!
//! For responses that go out as they came in, without a map of headers between. Names and values must have been checked by whoever read them.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The lines, and what is known of them without reading them again.
#[derive(Debug, Default)]
pub struct FieldLines {
    text: Vec<u8>,
    /// There is a date.
    pub dated: bool,
    /// There is a length.
    pub sized: bool,
    /// It is a stream of events.
    pub events: bool,
    /// Shared caches may keep it.
    pub shared: bool,
    /// The server wants it passed on as it comes.
    pub unbuffered: bool,
}

/// Whether a name is this one, whatever its case.
#[inline]
pub fn is(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.eq_ignore_ascii_case(known)
}

/// Room for the fields of most responses.
const ROOM: usize = 512;

impl FieldLines {
    /// No fields, with room for those of most responses.
    #[inline]
    pub fn new() -> FieldLines {
        FieldLines { text: Vec::with_capacity(ROOM), ..FieldLines::default() }
    }

    /// Empties it; the room stays.
    #[inline]
    pub fn clear(&mut self) {
        self.text.clear();
        (self.dated, self.sized, self.events, self.shared, self.unbuffered) = (false, false, false, false, false);
    }

    /// All lines, each with its end.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Adds a field.
    #[inline]
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.dated |= is(name, "date");
        self.sized |= is(name, "content-length");
        self.events |= is(name, "content-type") && is_of_events(value);
        self.shared |= is(name, "cache-control") && is_shared(value);
        self.unbuffered |= is(name, BUFFERING) && value.eq_ignore_ascii_case(b"no");
        write_line(&mut self.text, name, value);
    }

    /// Adds all fields of a map except `Connection`.
    pub fn add_all(&mut self, headers: &HeaderMap) {
        let public = headers.iter().filter(|(name, _)| **name != header::CONNECTION);
        public.for_each(|(name, value)| self.add(name.as_str(), value.as_bytes()));
    }

    /// Adds a field from a map.
    #[inline]
    pub fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add(name.as_str(), value.as_bytes());
    }
}

/// Writes a field on its line.
#[inline]
pub fn write_line(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Whether a type of content is that of server-sent events.
fn is_of_events(kind: &[u8]) -> bool {
    kind.starts_with(b"text/event-stream")
}

/// Whether a response with these headers is a stream of server-sent events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| is_of_events(kind.as_bytes()))
}

/// By this field a server tells a proxy whether to buffer its response; nginx has taught servers to send it.
const BUFFERING: &str = "x-accel-buffering";

/// Whether a response with these headers is to be passed on as it comes.
pub fn is_unbuffered(headers: &HeaderMap) -> bool {
    headers.get(BUFFERING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"no"))
}

/// Whether this `Cache-Control` lets a shared cache keep the response (RFC 9111 section 5.2.2).
fn is_shared(control: &[u8]) -> bool {
    let mut words = control.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
    words.any(|word| {
        word.eq_ignore_ascii_case(b"public")
            || word.get(..9).is_some_and(|word| word.eq_ignore_ascii_case(b"s-maxage="))
    })
}

/// Whether a shared cache may keep a response with these headers.
pub fn is_for_shared_caches(headers: &HeaderMap) -> bool {
    headers.get_all(header::CACHE_CONTROL).iter().any(|control| is_shared(control.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caches_may_give_to_anybody_is_known() {
        for (control, shared) in [
            ("public, max-age=3", true),
            ("max-age=3, S-MaxAge=9", true),
            ("max-age=3", false),
            ("private, x-public", false),
            ("s-maxage", false),
        ] {
            let mut lines = FieldLines::new();
            lines.add("Cache-Control", control.as_bytes());
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static(control))]);
            assert_eq!((lines.shared, is_for_shared_caches(&headers)), (shared, shared), "{control}");
            lines.clear();
            assert!(!lines.shared);
        }
    }

    #[test]
    fn what_a_server_wants_passed_on_at_once_is_known() {
        for (value, unbuffered) in [("no", true), ("No", true), ("yes", false), ("not", false)] {
            let mut lines = FieldLines::new();
            lines.add("X-Accel-Buffering", value.as_bytes());
            let headers = HeaderMap::from_iter([(HeaderName::from_static(BUFFERING), HeaderValue::from_static(value))]);
            assert_eq!((lines.unbuffered, is_unbuffered(&headers)), (unbuffered, unbuffered), "{value}");
        }
    }
}
