//! Interim responses (103 Early Hints and the like) between a server and a client of HTTP/1.
//!
//! The reader of the server's response puts them here, and the writer to the client takes them, both in the same task. A server may send any number;
//! beyond the bound of one request they are left out, which does no harm, because they are only hints.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use weir_http1::field_lines::FieldLines;
use weir_http1::write::write_interim;

/// The interim responses to the request that a connection is serving.
#[derive(Debug, Default)]
pub(super) struct InterimResponses {
    waiting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    /// Octets of this request so far.
    octets: usize,
}

/// Octets of all interim responses to one request.
const OCTETS_MAX: usize = 16 << 10;

impl InterimResponses {
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        if state.octets > 0 {
            *state = State::default();
            self.waiting.store(false, Ordering::Relaxed);
        }
    }

    /// An interim response has come. 100 (Continue) concerns only the server and us, and is not passed on.
    pub(super) fn add(&self, status: StatusCode, lines: &FieldLines) {
        if status == StatusCode::CONTINUE {
            return;
        }
        let mut state = self.lock();
        let begun = state.text.len();
        write_interim(&mut state.text, status, lines);
        let octets = state.octets + state.text.len() - begun;
        if octets > OCTETS_MAX {
            state.text.truncate(begun);
            return;
        }
        state.octets = octets;
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// What is to be written to the client.
    pub(super) fn take(&self) -> Vec<u8> {
        if !self.waiting.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().text)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_taken_once_and_are_bounded() {
        let (interim, mut lines) = (InterimResponses::default(), FieldLines::new());
        lines.add("Link", b"</a.css>; rel=preload");
        interim.add(StatusCode::CONTINUE, &lines);
        assert!(interim.take().is_empty());
        interim.add(StatusCode::EARLY_HINTS, &lines);
        assert_eq!(interim.take(), b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        assert!(interim.take().is_empty());
        (0..10_000).for_each(|_| interim.add(StatusCode::EARLY_HINTS, &lines));
        let much = interim.take().len();
        assert!(much > OCTETS_MAX / 2 && much <= OCTETS_MAX);
        interim.add(StatusCode::EARLY_HINTS, &lines);
        assert!(interim.take().is_empty());
        interim.begin();
        interim.add(StatusCode::EARLY_HINTS, &lines);
        assert!(!interim.take().is_empty());
    }
}
