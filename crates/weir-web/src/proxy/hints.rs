//! Interim answers (103 Early Hints and the like) between a server and a client of HTTP/1.
//!
//! Whoever reads the server's answer leaves them here, and whoever writes to the client takes them, both in the same task. A server may send as many as it
//! likes; what goes beyond the bound of one request is left out, which does no harm to what they are for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;

use super::lines::Lines;

/// Those of the request that a connection is at.
#[derive(Debug, Default)]
pub(super) struct Hints {
    waiting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    /// Octets of this request so far.
    octets: usize,
}

/// Octets of all interim answers to one request.
const OCTETS_MAX: usize = 16 << 10;

impl Hints {
    /// Another request begins.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        if state.octets > 0 {
            *state = State::default();
            self.waiting.store(false, Ordering::Relaxed);
        }
    }

    /// An interim answer has come. Whether to go on is between the server and us, and is not told.
    pub(super) fn add(&self, status: StatusCode, lines: &Lines) {
        if status == StatusCode::CONTINUE {
            return;
        }
        let head = format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default());
        let octets = head.len() + lines.text().len() + 2;
        let mut state = self.lock();
        if state.octets + octets <= OCTETS_MAX {
            state.octets += octets;
            state.text.extend_from_slice(head.as_bytes());
            state.text.extend_from_slice(lines.text());
            state.text.extend_from_slice(b"\r\n");
            self.waiting.store(true, Ordering::Relaxed);
        }
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
        let (hints, mut lines) = (Hints::default(), Lines::new());
        lines.add("Link", b"</a.css>; rel=preload");
        hints.add(StatusCode::CONTINUE, &lines);
        assert!(hints.take().is_empty());
        hints.add(StatusCode::EARLY_HINTS, &lines);
        assert_eq!(hints.take(), b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        assert!(hints.take().is_empty());
        (0..10_000).for_each(|_| hints.add(StatusCode::EARLY_HINTS, &lines));
        let much = hints.take().len();
        assert!(much > OCTETS_MAX / 2 && much <= OCTETS_MAX);
        hints.add(StatusCode::EARLY_HINTS, &lines);
        assert!(hints.take().is_empty());
        hints.begin();
        hints.add(StatusCode::EARLY_HINTS, &lines);
        assert!(!hints.take().is_empty());
    }
}
