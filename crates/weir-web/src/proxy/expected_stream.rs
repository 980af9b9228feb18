//! Which requests will become streams, as far as one can tell before a server is asked.
//!
//! Where streams hold slots (`streams=slots`), each keeps one of the server's workers busy, and a worker that has begun does not notice at once that
//! nobody listens. So a stream that is too many must not get to the server. An upgrade says what it is, and so does a request that accepts
//! nothing but events. All others are known by their route, method and path, once that has answered with events, and until it answers with
//! something else. Paths are read as routes read them, so that no other spelling is another path. Segments that are numbers of things count as
//! the same. The table of paths is small; the path that was used longest ago is forgotten first.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use http::header;

use crate::admission::Class;
use crate::identity::Fields;
use crate::route;

/// What a request will probably be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ExpectedStream {
    pub(super) likely: bool,
    /// Its path, where paths are remembered.
    pub(super) path: Option<PathKey>,
}

/// A path of a route, asked for with a method, without what tells one thing from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathKey(u64);

/// Paths of one backend that have answered with events.
#[derive(Debug, Default)]
pub(super) struct StreamPaths {
    hasher: RandomState,
    /// The one that was used last is at the end.
    known: Mutex<VecDeque<PathKey>>,
}

/// How many paths are remembered.
const PATHS: usize = 256;
/// A segment with digits is at least so long if it is a name that nobody thought of.
const RANDOM_LENGTH: usize = 16;

impl StreamPaths {
    pub(super) fn expect(&self, class: Class, path: &str, fields: &(impl Fields + ?Sized)) -> ExpectedStream {
        let key = self.key(class, path);
        ExpectedStream { likely: accepts_only_events(fields) || self.is_known(key), path: Some(key) }
    }

    /// This path has answered with events.
    pub(super) fn remember(&self, key: PathKey) {
        if self.is_known(key) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PATHS {
            known.pop_front();
        }
        known.push_back(key);
    }

    /// This path has answered with something else: what it answers with depends on more than the path.
    pub(super) fn forget(&self, key: PathKey) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| *known != key);
    }

    fn is_known(&self, key: PathKey) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = known.iter().rposition(|known| *known == key) else { return false };
        if let Some(used) = known.remove(at) {
            known.push_back(used);
        }
        true
    }

    fn key(&self, class: Class, path: &str) -> PathKey {
        let mut hasher = self.hasher.build_hasher();
        class.hash(&mut hasher);
        for segment in route::meant(path).split('/') {
            hasher.write(if is_number(segment) { b"*" } else { segment.as_bytes() });
            hasher.write_u8(b'/');
        }
        PathKey(hasher.finish())
    }
}

/// Whether a segment of a path is the number of a thing, in digits, as a UUID or as a long random name. The name of a file is not.
fn is_number(segment: &str) -> bool {
    let digits = segment.bytes().any(|octet| octet.is_ascii_digit());
    let hexadecimal = segment.bytes().all(|octet| octet.is_ascii_hexdigit() || octet == b'-');
    digits && (hexadecimal || (segment.len() >= RANDOM_LENGTH && !segment.contains('.')))
}

/// As browsers ask for server-sent events. Who takes something else as well may be answered with that.
fn accepts_only_events(fields: &(impl Fields + ?Sized)) -> bool {
    let mut some = false;
    let only = fields.lines(&header::ACCEPT).flat_map(|line| line.split(|octet| *octet == b',')).all(|kind| {
        let kind = kind.split(|octet| *octet == b';').next().unwrap_or_default().trim_ascii();
        some = true;
        kind.eq_ignore_ascii_case(b"text/event-stream")
    });
    some && only
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, Method};

    fn accepting(kinds: &[&'static str]) -> HeaderMap {
        kinds.iter().map(|kind| (header::ACCEPT, HeaderValue::from_static(kind))).collect()
    }

    #[test]
    fn who_accepts_nothing_but_events_asks_for_a_stream() {
        for (kinds, likely) in [
            (&["text/event-stream"][..], true),
            (&["Text/Event-Stream; q=1"], true),
            (&["text/event-stream", "text/event-stream"], true),
            (&["application/json, text/event-stream"], false),
            (&["text/event-stream", "*/*"], false),
            (&["*/*"], false),
            (&[], false),
        ] {
            let class = Class::new(0, &Method::GET);
            assert_eq!(StreamPaths::default().expect(class, "/", &accepting(kinds)).likely, likely, "{kinds:?}");
        }
    }

    #[test]
    fn a_path_that_answered_with_events_is_remembered_and_the_table_stays_small() {
        let (paths, any) = (StreamPaths::default(), accepting(&["*/*"]));
        let get = Class::new(0, &Method::GET);
        let learn = |path: &str| paths.remember(paths.expect(get, path, &any).path.unwrap());
        let likely = |path: &str| paths.expect(get, path, &any).likely;
        assert!(!likely("/rooms/17/events"));
        learn("/rooms/17/events");
        assert!(likely("/rooms/17/events") && likely("/rooms/a9-4/events"));
        assert!(likely("/rooms/kx83hdfgnzmpqrst/events") && !likely("/rooms/v2.js/events"));
        assert!(!likely("/rooms/17") && !likely("/rooms/17/events/") && !likely("/rooms/new/events"));
        for other in [Class::new(1, &Method::GET), Class::new(0, &Method::POST)] {
            assert!(!paths.expect(other, "/rooms/17/events", &any).likely, "another route or method");
        }
        for number in 0..2 * PATHS {
            let letters: String = number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            learn(&format!("/{letters}"));
            assert!(likely("/rooms/17/events"), "what is used stays");
        }
        for spelling in ["/rooms/17/%65vents", "//rooms/17/./events", "/rooms/x/../17/events"] {
            assert!(likely(spelling), "{spelling}");
        }
        paths.forget(paths.expect(get, "/rooms/18/events", &any).path.unwrap());
        assert!(!likely("/rooms/17/events"), "it answers with something else as well");
        learn("/rooms/17/events");
        assert!(!likely("/a") && paths.known.lock().unwrap().len() == PATHS);
    }
}
