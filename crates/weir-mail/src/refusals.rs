//! Records mail that a door or the port for mail from outside has refused, so that message tracking finds it. There is no other record of
//! such mail.
//!
//! A refused client tries again, and a worm tries a hundred times a second, so the notes are bounded for each client and in total.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_smtp::reply::Reply;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::spool::Spool;

/// A door or port that refuses mail.
#[derive(Debug)]
pub(crate) struct RefusingDoor {
    /// How mail comes by it, as messages are found by.
    gate: &'static str,
    /// What it is called in a sentence.
    words: &'static str,
    /// Lines in one stretch of time about one user or client.
    each_max: u32,
    /// The same about all of them.
    all_max: u32,
}

/// A server of the site's own asks at these two.
pub(crate) static MILTER: RefusingDoor = RefusingDoor { gate: "milter", words: "milter", each_max: 30, all_max: 600 };
pub(crate) static POLICY: RefusingDoor =
    RefusingDoor { gate: "policy", words: "policy service", each_max: 30, all_max: 600 };
/// Here strangers decide how much there is to refuse, so less is written down: it must not push mail that was taken out of what is remembered.
pub(crate) static INBOUND: RefusingDoor =
    RefusingDoor { gate: "inbound", words: "port for mail from outside", each_max: 6, all_max: 120 };

const STRETCH: Duration = Duration::from_secs(60);

/// Recipients that are named; more are counted. A refused message may have a thousand, and lines are all that is bounded otherwise.
const NAMED_MAX: usize = 50;

/// Writes down what one door refuses.
pub(crate) struct Refusals {
    spool: Spool,
    door: &'static RefusingDoor,
    written: Mutex<WrittenRefusals>,
}

#[derive(Default)]
struct WrittenRefusals {
    since: Option<Instant>,
    all: u32,
    each: HashMap<String, u32>,
}

impl Refusals {
    pub(crate) fn new(spool: Spool, door: &'static RefusingDoor) -> Refusals {
        Refusals { spool, door, written: Mutex::default() }
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
        let Some(last) = written.counts(who, Instant::now(), self.door) else { return };
        drop(written);
        // A full disk takes no more lines either.
        let Ok(draft) = self.spool.draft() else { return };
        let more = if last { "; more of the same minute are not written down" } else { "" };
        let text = format!("by the {}: {said}{more}", self.door.words);
        let facts = Facts { gate: self.door.gate.to_owned(), ..shortened(facts) };
        self.spool.diary().note(DiaryLine::new(draft.id(), event, text).with(facts));
    }
}

/// The same with an end to how many recipients are named.
fn shortened(mut facts: Facts) -> Facts {
    facts.recipients = facts.recipients.max(facts.to.len() as u64);
    facts.to.truncate(NAMED_MAX);
    facts
}

impl WrittenRefusals {
    /// Counts one more of this one: whether it is the last that is written, or nothing if it is not written.
    fn counts(&mut self, who: &str, now: Instant, door: &RefusingDoor) -> Option<bool> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= STRETCH) {
            *self = WrittenRefusals { since: Some(now), ..WrittenRefusals::default() };
        }
        if self.all >= door.all_max {
            return None;
        }
        let count = self.each.entry(who.to_owned()).or_default();
        if *count >= door.each_max {
            return None;
        }
        *count += 1;
        self.all += 1;
        Some(*count == door.each_max || self.all == door.all_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::diary::Diary;
    use weir_store::spool::Options;

    #[tokio::test]
    async fn what_a_stranger_is_refused_is_short_however_many_it_was_for() {
        let folder = tempfile::tempdir().unwrap();
        let diary = folder.path().join("diary");
        let (spool, _) = Spool::open(folder.path().join("spool"), Options::default()).unwrap();
        let spool = spool.with_diary(Diary::open(&diary, 1 << 20).unwrap());
        let to = (0..1_000).map(|number| format!("{number}{}@example.org", "x".repeat(60))).collect();
        let facts = Facts { to, client: "192.0.2.7".into(), ..Facts::default() };
        Refusals::new(spool.clone(), &INBOUND).write("refused", "554 5.7.1 no", facts);
        spool.diary().settle();
        let files = std::fs::read_dir(&diary).unwrap();
        let written: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        assert!(written.contains("\"recipients\":1000") && written.contains("\"49xxx"), "{written}");
        assert!(written.len() < 6_000 && !written.contains("\"50xxx"), "{}", written.len());
    }

    #[test]
    fn a_worm_that_comes_again_fills_nothing() {
        let (mut written, now) = (WrittenRefusals::default(), Instant::now());
        let counted: Vec<Option<bool>> = (0..100).map(|_| written.counts("ann", now, &MILTER)).collect();
        assert_eq!(counted.iter().flatten().count(), MILTER.each_max as usize);
        assert_eq!((counted[0], counted[MILTER.each_max as usize - 1], counted[99]), (Some(false), Some(true), None));
        assert_eq!(written.counts("bob", now, &MILTER), Some(false));
        let all = (0..10_000).filter_map(|n| written.counts(&n.to_string(), now, &MILTER)).count();
        assert_eq!(all, (MILTER.all_max - MILTER.each_max - 1) as usize);
        assert!(written.each.len() <= MILTER.all_max as usize + 1);
        assert_eq!(written.counts("ann", now + STRETCH, &MILTER), Some(false), "a minute later");
    }
}
