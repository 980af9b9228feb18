//! Fields of an answer as an HTTP/1 client reads them: one after another, each on its line.
//!
//! For answers that go out as they came in, without a map of headers between. Names and values must have been checked by whoever read them.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The lines, and what they say that matters here.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: Vec<u8>,
    /// There is a date.
    pub(super) dated: bool,
    /// There is a length.
    pub(super) sized: bool,
    /// It is a stream of events.
    pub(super) events: bool,
    /// Caches may give it to anybody.
    pub(super) shared: bool,
}

/// Whether a name is this one, whatever its case.
#[inline]
pub(super) fn is(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.eq_ignore_ascii_case(known)
}

/// Room for the fields of most answers.
const ROOM: usize = 512;

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { text: Vec::with_capacity(ROOM), ..Lines::default() }
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        (self.dated, self.sized, self.events, self.shared) = (false, false, false, false);
    }

    /// All lines, each with its end.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// A field more.
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        self.dated |= is(name, "date");
        self.sized |= is(name, "content-length");
        self.events |= is(name, "content-type") && is_of_events(value);
        self.shared |= is(name, "cache-control") && is_shared(value);
        write_line(&mut self.text, name, value);
    }

    /// All fields of a map, but for that of the connection.
    pub(super) fn add_all(&mut self, headers: &HeaderMap) {
        let public = headers.iter().filter(|(name, _)| **name != header::CONNECTION);
        public.for_each(|(name, value)| self.add(name.as_str(), value.as_bytes()));
    }

    /// A field of our own.
    pub(super) fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add(name.as_str(), value.as_bytes());
    }
}

/// Writes a field on its line.
pub(super) fn write_line(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Whether a type of content is that of server-sent events.
pub(super) fn is_of_events(kind: &[u8]) -> bool {
    kind.starts_with(b"text/event-stream")
}

/// Whether an answer with these headers is a stream of events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| is_of_events(kind.as_bytes()))
}

/// Whether a cache that serves many may keep what this is said of.
fn is_shared(control: &[u8]) -> bool {
    let mut words = control.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
    words.any(|word| {
        word.eq_ignore_ascii_case(b"public")
            || word.get(..9).is_some_and(|word| word.eq_ignore_ascii_case(b"s-maxage="))
    })
}

/// Whether such a cache may keep an answer with these headers.
pub(super) fn is_for_shared_caches(headers: &HeaderMap) -> bool {
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
            let mut lines = Lines::new();
            lines.add("Cache-Control", control.as_bytes());
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static(control))]);
            assert_eq!((lines.shared, is_for_shared_caches(&headers)), (shared, shared), "{control}");
            lines.clear();
            assert!(!lines.shared);
        }
    }
}
