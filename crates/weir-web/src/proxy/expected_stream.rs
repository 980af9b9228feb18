//! Which requests will become streams, as far as one can tell before a server is asked.
//!
//! Where streams hold slots (`streams=slots`), each keeps one of the server's workers busy, and a worker that has begun does not notice at once that
//! nobody listens. So a stream that is too many must not get to the server. An upgrade says what it is, and so does a request that accepts
//! nothing but events. All others are known by their path, once it has answered with events. Segments with digits count as the same, because they are
//! mostly numbers of things. The table of paths is small; the path that was used longest ago is forgotten first.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};

use http::header;

use crate::identity::Fields;

/// What a request will probably be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ExpectedStream {
    pub(super) likely: bool,
    /// Its path, where paths are remembered.
    pub(super) path: Option<PathKey>,
}

/// A path without what tells one thing from another.
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

impl StreamPaths {
    pub(super) fn expect(&self, path: &str, fields: &(impl Fields + ?Sized)) -> ExpectedStream {
        let key = self.key(path);
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

    fn is_known(&self, key: PathKey) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = known.iter().rposition(|known| *known == key) else { return false };
        if let Some(used) = known.remove(at) {
            known.push_back(used);
        }
        true
    }

    fn key(&self, path: &str) -> PathKey {
        let mut hasher = self.hasher.build_hasher();
        for segment in path.split('/') {
            let varies = segment.bytes().any(|octet| octet.is_ascii_digit());
            hasher.write(if varies { b"*" } else { segment.as_bytes() });
            hasher.write_u8(b'/');
        }
        PathKey(hasher.finish())
    }
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
    use http::{HeaderMap, HeaderValue};

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
            assert_eq!(StreamPaths::default().expect("/", &accepting(kinds)).likely, likely, "{kinds:?}");
        }
    }

    #[test]
    fn a_path_that_answered_with_events_is_remembered_and_the_table_stays_small() {
        let (paths, any) = (StreamPaths::default(), accepting(&["*/*"]));
        let learn = |path: &str| paths.remember(paths.expect(path, &any).path.unwrap());
        let likely = |path: &str| paths.expect(path, &any).likely;
        assert!(!likely("/rooms/17/events"));
        learn("/rooms/17/events");
        assert!(likely("/rooms/17/events") && likely("/rooms/a9-4/events"));
        assert!(!likely("/rooms/17") && !likely("/rooms/17/events/") && !likely("/rooms/new/events"));
        for number in 0..2 * PATHS {
            let letters: String = number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            learn(&format!("/{letters}"));
            assert!(likely("/rooms/17/events"), "what is used stays");
        }
        assert!(!likely("/a") && paths.known.lock().unwrap().len() == PATHS);
    }
}
