//! Predicts which requests will become streams, as far as that can be known before they are sent to a server.
//!
//! Where streams hold slots (`streams=slots`), each keeps one of the server's workers busy, and a worker that has begun does not notice at
//! once that nobody listens. So a stream beyond the limit must not reach the server. An upgrade is certainly a stream, and so is a request
//! that accepts nothing but events. Other requests that accept events are recognised by their route, method and path, once that has
//! answered with events. A path that has also answered with something else predicts nothing from then on. While all requests for a path are
//! refused, no other kind of answer could be noticed, so one request gets through every [`TRIED_EVERY`]. Paths are read as routes read
//! them, so that no other spelling is another path. Segments that are numbers of things count as the same. The table of paths is small; the
//! path that was used longest ago is forgotten first.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header;

use crate::admission::Class;
use crate::identity::Fields;
use crate::route;

/// How a request will probably be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ExpectedStream {
    pub(super) likely: bool,
    /// Its path, where paths are remembered.
    pub(super) path: Option<PathKey>,
}

/// A path of a route with a method, without the parts that distinguish one thing from another of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathKey(u64);

/// Paths of one backend that have answered with events.
#[derive(Debug, Default)]
pub(super) struct StreamPaths {
    hasher: RandomState,
    /// The one that was used last is at the end.
    known: Mutex<VecDeque<KnownPath>>,
}

/// A path that has answered with events.
#[derive(Clone, Copy, Debug)]
struct KnownPath {
    key: PathKey,
    /// It has answered with something else as well.
    is_mixed: bool,
    /// When a request was last let through to see how it is answered.
    tried: Instant,
}

/// How many paths are remembered.
const PATHS: usize = 256;
/// A segment with digits counts as a random name if it has at least this length.
const RANDOM_LENGTH: usize = 16;
/// While all requests of a path are refused, one is let through this often, to see whether it still answers with events.
const TRIED_EVERY: Duration = Duration::from_secs(10);

impl StreamPaths {
    pub(super) fn expect(&self, class: Class, path: &str, fields: &(impl Fields + ?Sized)) -> ExpectedStream {
        let key = self.key(class, path);
        let likely = match accepted(fields) {
            Accepted::OnlyEvents => true,
            Accepted::Events => self.is_expected(key, Instant::now()),
            Accepted::NoEvents => false,
        };
        ExpectedStream { likely, path: Some(key) }
    }

    /// This path has answered with events.
    pub(super) fn remember(&self, key: PathKey) {
        let mut known = self.lock();
        if touch(&mut known, key).is_some() {
            return;
        }
        if known.len() >= PATHS {
            known.pop_front();
        }
        known.push_back(KnownPath { key, is_mixed: false, tried: Instant::now() });
    }

    /// This path has answered with something else, so its answer depends on more than the path.
    pub(super) fn is_mixed(&self, key: PathKey) {
        self.lock().iter_mut().filter(|known| known.key == key).for_each(|known| known.is_mixed = true);
    }

    fn is_expected(&self, key: PathKey, now: Instant) -> bool {
        let mut known = self.lock();
        let Some(path) = touch(&mut known, key).filter(|known| !known.is_mixed) else { return false };
        let is_try = now.saturating_duration_since(path.tried) >= TRIED_EVERY;
        if is_try {
            path.tried = now;
        }
        !is_try
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<KnownPath>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Whether a segment of a path names one thing of many: in digits, as a UUID or as a long random name. The name of a file does not.
fn is_number(segment: &str) -> bool {
    let digits = segment.bytes().any(|octet| octet.is_ascii_digit());
    let hexadecimal = segment.bytes().all(|octet| octet.is_ascii_hexdigit() || octet == b'-');
    digits && (hexadecimal || (segment.len() >= RANDOM_LENGTH && !segment.contains('.')))
}

/// The path, which is used now.
fn touch(known: &mut VecDeque<KnownPath>, key: PathKey) -> Option<&mut KnownPath> {
    let at = known.iter().rposition(|known| known.key == key)?;
    let used = known.remove(at)?;
    known.push_back(used);
    known.back_mut()
}

/// What a request says about events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accepted {
    /// This is how browsers ask for server-sent events.
    OnlyEvents,
    /// It may be answered with them, or with something else.
    Events,
    NoEvents,
}

fn accepted(fields: &(impl Fields + ?Sized)) -> Accepted {
    let (mut only, mut any, mut some) = (true, false, false);
    for kind in fields.lines(&header::ACCEPT).flat_map(|line| line.split(|octet| *octet == b',')) {
        let kind = kind.split(|octet| *octet == b';').next().unwrap_or_default().trim_ascii();
        let is_events = kind.eq_ignore_ascii_case(b"text/event-stream");
        (some, only) = (true, only && is_events);
        any |= is_events || kind == b"*/*" || kind.eq_ignore_ascii_case(b"text/*");
    }
    match (some, only) {
        (true, true) => Accepted::OnlyEvents,
        _ if any || !some => Accepted::Events,
        _ => Accepted::NoEvents,
    }
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
        let json = accepting(&["application/json"]);
        assert!(!paths.expect(get, "/rooms/17/events", &json).likely, "who wants no events gets none");
        let key = paths.key(get, "/rooms/17/events");
        let later = Instant::now() + TRIED_EVERY;
        assert!(!paths.is_expected(key, later) && paths.is_expected(key, later), "one request is let through to see");
        paths.is_mixed(paths.expect(get, "/rooms/18/events", &any).path.unwrap());
        assert!(!likely("/rooms/17/events"), "it answers with something else as well");
        learn("/rooms/17/events");
        assert!(!likely("/rooms/17/events"), "and that stays so");
        assert!(!likely("/a") && paths.lock().len() == PATHS);
    }
}
