//! The fields of a response as HTTP/1 writes them: one after another, each on its line.
//!
//! Used for responses that go out as they came in, without a map of headers in between. The reader must have checked names and values.

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
    /// What it says of caches.
    cached: Cached,
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
        (self.dated, self.sized, self.events, self.unbuffered) = (false, false, false, false);
        self.cached = Cached::default();
    }

    /// All lines, each with its end.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether shared caches may keep it, and give it to others.
    #[inline]
    pub fn is_for_shared_caches(&self) -> bool {
        self.cached.is_shared()
    }

    /// What the cookie of this name is, if it gives the client one.
    pub fn given_cookie(&self, name: &str) -> Option<&[u8]> {
        let lines = self.text.split(|octet| *octet == b'\n');
        let fields = lines.filter_map(|line| line.split_at_checked(SET_COOKIE.len()));
        let mut cookies = fields.filter(|(field, _)| field.eq_ignore_ascii_case(SET_COOKIE));
        cookies.find_map(|(_, value)| given_in(value, name))
    }

    /// The value of the first field of this name.
    pub fn find(&self, name: &str) -> Option<&[u8]> {
        self.text.split(|octet| *octet == b'\n').find_map(|line| {
            let (field, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":").filter(|_| field.eq_ignore_ascii_case(name.as_bytes()))?;
            Some(value.trim_ascii())
        })
    }

    /// Adds a field.
    #[inline]
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.dated |= is(name, "date");
        self.sized |= is(name, "content-length");
        self.events |= is(name, "content-type") && is_of_events(value);
        self.cached.note(name, value);
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

/// With this field a server tells a proxy whether to buffer its response. nginx introduced it, and many servers send it.
const BUFFERING: &str = "x-accel-buffering";

/// Whether a response with these headers is to be passed on as it comes.
pub fn is_unbuffered(headers: &HeaderMap) -> bool {
    headers.get(BUFFERING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"no"))
}

/// What a response says of caches (RFC 9111 section 5.2.2). If it does not mention caches, we do not count it as cacheable, although a
/// cache might guess that it is.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    /// It is for one client, or to be kept by nobody.
    private: bool,
    public: bool,
    expires: bool,
    /// Some kind of shared cache is told in a field of its own that it may keep it, whatever the others are told.
    targeted: bool,
}

impl Cached {
    #[inline]
    fn note(&mut self, name: &str, value: &[u8]) {
        if is(name, "cache-control") {
            let (public, private) = control(value);
            self.public |= public;
            self.private |= private;
        } else if is_targeted(name) {
            let (public, private) = control(value);
            self.targeted |= public && !private;
        } else if is(name, "x-accel-expires") {
            self.targeted |= lasts(value);
        } else if is(name, "expires") {
            self.expires |= is_late(value);
        }
    }

    fn is_shared(self) -> bool {
        self.targeted || ((self.public || self.expires) && !self.private)
    }
}

/// Whether a field is meant for one kind of shared cache, which goes by it and not by `Cache-Control`: `CDN-Cache-Control` and its like (RFC 9213), and
/// the older ones of Varnish, Fastly and Akamai.
#[inline]
fn is_targeted(name: &str) -> bool {
    let of_target = || name.get(name.len().saturating_sub(14)..).is_some_and(|end| is(end, "-cache-control"));
    is(name, "surrogate-control") || is(name, "edge-control") || of_target()
}

/// Whether a list of directives says that anybody's cache may keep the response, and whether it says that it must not.
fn control(list: &[u8]) -> (bool, bool) {
    let (mut public, mut private) = (false, false);
    for word in list.split(|octet| *octet == b',').map(<[u8]>::trim_ascii) {
        let (name, value) = match word.iter().position(|octet| *octet == b'=') {
            Some(at) => (&word[..at], word[at + 1..].trim_ascii()),
            None => (word, &b""[..]),
        };
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        private |= is(b"private") || is(b"no-store");
        let until = is(b"max-age") || is(b"s-maxage") || is(b"cache-maxage");
        public |= is(b"public") || is(b"immutable") || is(b"!no-store") || (until && lasts(value));
    }
    (public, private)
}

/// Whether a number of seconds is more than 0.
fn lasts(value: &[u8]) -> bool {
    value.iter().any(|octet| (b'1'..=b'9').contains(octet))
}

/// Whether an `Expires` may lie ahead: servers that want nothing kept write 0, -1 or a date of the last century.
fn is_late(date: &[u8]) -> bool {
    date.get(12..16).is_some_and(|year| year.starts_with(b"20") && year.iter().all(u8::is_ascii_digit))
}

const SET_COOKIE: &[u8] = b"set-cookie:";

/// The cookie of this name that a value of `Set-Cookie` sets; none if it deletes the cookie.
fn given_in<'a>(value: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let given = value.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
    let content = given.split(|octet| *octet == b';').next().unwrap_or_default().trim_ascii();
    let ends = given.to_ascii_lowercase().windows(9).any(|word| word == b"max-age=0");
    (!content.is_empty() && content != b"\"\"" && !ends).then_some(content)
}

/// What the cookie of this name is, if a response with these headers gives the client one.
pub fn given_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers.get_all(header::SET_COOKIE).iter().find_map(|value| given_in(value.as_bytes(), name))
}

/// Whether a shared cache may keep a response with these headers.
pub fn is_for_shared_caches(headers: &HeaderMap) -> bool {
    let mut cached = Cached::default();
    headers.iter().for_each(|(name, value)| cached.note(name.as_str(), value.as_bytes()));
    cached.is_shared()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caches_may_give_to_anybody_is_known() {
        for (control, shared) in [
            ("public, max-age=3", true),
            ("max-age=3, S-MaxAge=9", true),
            ("max-age=3", true),
            ("Max-Age=\"30\"", true),
            ("max-age=0, must-revalidate", false),
            ("immutable", true),
            ("private, max-age=3", false),
            ("max-age=3, no-store", false),
            ("no-cache", false),
            ("private, x-public", false),
            ("s-maxage", false),
        ] {
            let mut lines = FieldLines::new();
            lines.add("Cache-Control", control.as_bytes());
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static(control))]);
            assert_eq!((lines.is_for_shared_caches(), is_for_shared_caches(&headers)), (shared, shared), "{control}");
            lines.add("Cache-Control", b"private");
            assert!(!lines.is_for_shared_caches(), "{control}, and private");
            lines.clear();
            lines.add("Expires", b"-1");
            lines.add("Expires", b"Thu, 19 Nov 1981 08:52:00 GMT");
            assert!(!lines.is_for_shared_caches());
            lines.add("Expires", b"Thu, 01 Jan 2099 00:00:00 GMT");
            assert!(lines.is_for_shared_caches());
        }
    }

    #[test]
    fn what_one_kind_of_cache_is_told_counts_whatever_the_others_are_told() {
        for (name, value, shared) in [
            ("CDN-Cache-Control", "max-age=60", true),
            ("Cloudflare-CDN-Cache-Control", "public, max-age=60", true),
            ("CDN-Cache-Control", "max-age=0", false),
            ("CDN-Cache-Control", "no-store, max-age=60", false),
            ("Surrogate-Control", "max-age=60, content=\"ESI/1.0\"", true),
            ("Surrogate-Control", "no-store", false),
            ("Edge-Control", "!no-store, max-age=1d", true),
            ("Edge-Control", "cache-maxage=1d", true),
            ("Edge-Control", "cache-maxage=0s", false),
            ("Edge-Control", "!no-store", true),
            ("Edge-Control", "bypass-cache", false),
            ("X-Accel-Expires", "60", true),
            ("X-Accel-Expires", "@0", false),
            ("X-Cache", "max-age=60", false),
        ] {
            let mut lines = FieldLines::new();
            lines.add(name, value.as_bytes());
            lines.add("Cache-Control", b"private, no-store");
            let mut headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("private"))]);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static(value));
            let said = (lines.is_for_shared_caches(), is_for_shared_caches(&headers));
            assert_eq!(said, (shared, shared), "{name}: {value}");
        }
    }

    #[test]
    fn cookies_that_are_given_are_known_from_those_that_are_taken_away() {
        for (value, given) in [
            ("sid=abc; Path=/", Some("abc")),
            ("sid=abc", Some("abc")),
            ("sid=; Path=/", None),
            ("sid=\"\"; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0", None),
            ("xsid=abc", None),
            ("sid2=abc", None),
            ("other=sid=abc", None),
        ] {
            let mut lines = FieldLines::new();
            lines.add("X", b"sid=abc");
            lines.add("SET-cookie", value.as_bytes());
            let headers = HeaderMap::from_iter([(header::SET_COOKIE, HeaderValue::from_static(value))]);
            let given = given.map(str::as_bytes);
            assert_eq!((lines.given_cookie("sid"), given_cookie(&headers, "sid")), (given, given), "{value}");
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
