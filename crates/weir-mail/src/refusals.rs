//! What a door or the port for mail from outside refuses is written down where people look for a message: nobody else here knows of it.
//!
//! A refused client tries again, and a worm tries a hundred times a second, so the notes are bounded for each client and in total.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_smtp::reply::Reply;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::spool::Spool;

/// How many lines are written in one stretch of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusalBounds {
    /// About one user or client.
    pub(crate) each: u32,
    /// About all.
    pub(crate) all: u32,
}

/// For doors that a server of the site's own asks at.
const OF_A_DOOR: RefusalBounds = RefusalBounds { each: 30, all: 600 };
const STRETCH: Duration = Duration::from_secs(60);

/// Writes down what one door refuses.
pub(crate) struct Refusals {
    spool: Spool,
    /// How it comes: what the door is called.
    gate: &'static str,
    bounds: RefusalBounds,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    since: Option<Instant>,
    all: u32,
    each: HashMap<String, u32>,
}

impl Refusals {
    pub(crate) fn new(spool: Spool, gate: &'static str) -> Refusals {
        Refusals { spool, gate, bounds: OF_A_DOOR, written: Mutex::default() }
    }

    /// The same within other bounds.
    pub(crate) fn within(self, bounds: RefusalBounds) -> Refusals {
        Refusals { bounds, ..self }
    }

    /// A message was refused, or put off, with these words.
    pub(crate) fn note(&self, reply: &Reply, facts: Facts) {
        let event = if reply.is_temporary() { "deferred" } else { "refused" };
        self.write(event, &format!("{} {}", reply.code(), reply.text()), facts);
    }

    /// The same in other words than a reply.
    pub(crate) fn write(&self, event: &str, said: &str, facts: Facts) {
        let who = if facts.login.is_empty() { &facts.client } else { &facts.login };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = written.counts(who, Instant::now(), self.bounds) else { return };
        drop(written);
        // A full disk takes no more lines either.
        let Ok(draft) = self.spool.draft() else { return };
        let more = if last { "; more of the same minute are not written down" } else { "" };
        let text = format!("by the {}: {said}{more}", door_in_words(self.gate));
        let facts = Facts { gate: self.gate.to_owned(), ..facts };
        self.spool.diary().note(DiaryLine::new(draft.id(), event, text).with(facts));
    }
}

fn door_in_words(gate: &str) -> &'static str {
    match gate {
        "policy" => "policy service",
        "inbound" => "port for mail from outside",
        _ => "milter",
    }
}

impl Written {
    /// Counts one more of this one: whether it is the last that is written, or nothing if it is not written.
    fn counts(&mut self, who: &str, now: Instant, bounds: RefusalBounds) -> Option<bool> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= STRETCH) {
            *self = Written { since: Some(now), ..Written::default() };
        }
        if self.all >= bounds.all {
            return None;
        }
        let count = self.each.entry(who.to_owned()).or_default();
        if *count >= bounds.each {
            return None;
        }
        *count += 1;
        self.all += 1;
        Some(*count == bounds.each || self.all == bounds.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worm_that_comes_again_fills_nothing() {
        let (mut written, now) = (Written::default(), Instant::now());
        let counted: Vec<Option<bool>> = (0..100).map(|_| written.counts("ann", now, OF_A_DOOR)).collect();
        assert_eq!(counted.iter().flatten().count(), OF_A_DOOR.each as usize);
        assert_eq!((counted[0], counted[OF_A_DOOR.each as usize - 1], counted[99]), (Some(false), Some(true), None));
        assert_eq!(written.counts("bob", now, OF_A_DOOR), Some(false));
        let all = (0..10_000).filter_map(|n| written.counts(&n.to_string(), now, OF_A_DOOR)).count();
        assert_eq!(all, (OF_A_DOOR.all - OF_A_DOOR.each - 1) as usize);
        assert!(written.each.len() <= OF_A_DOOR.all as usize + 1);
        assert_eq!(written.counts("ann", now + STRETCH, OF_A_DOOR), Some(false), "a minute later");
    }
}
