//! How far the recipients of a message have come.
//!
//! Recipients of one message can have different fates, and can be on their way under different ids, because mail that leaves a delay queue
//! or a quarantine continues under a new id. Each line says how many recipients it is about, so a state is dropped when no recipient is in
//! it any more. Each recipient is held, or on its way under one of the ids, or it is known how that ended. A recipient that is in none of
//! these parts is on its way under the first id. There are no more parts than ids.

use crate::diary::DiaryLine;
use serde::{Deserialize, Serialize};

pub(super) const HELD: &str = "held";
/// The states after which nothing more happens.
const ENDS: [&str; 3] = ["delivered", "bounced", "deleted"];
/// The text for mail of which another server keeps the other recipients.
const TAKEN_OVER: &str = "another server asked";
/// The text for mail that was deleted in the quarantine, and not in the delay queue.
const FROM_QUARANTINE: &str = " from quarantine";

/// What has happened to the recipients of a message so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fates {
    held: u64,
    /// For how many it is known how it ended.
    ended: u64,
    /// Where the recipients are who are in no part.
    rest: String,
    parts: Vec<SplitPart>,
    /// Which of [`ENDS`] at least one recipient has reached.
    ends: [bool; ENDS.len()],
}

/// Recipients that are under way under one of the other ids: which id, how many, and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SplitPart(usize, u64, String);

/// The same in the form in which it is stored, without the ends, which the state names.
pub(super) type WrittenFates = (u64, u64, String, Vec<SplitPart>);

/// A line that moves recipients.
pub(super) struct Move<'a> {
    pub(super) line: &'a DiaryLine,
    /// Where it moves them.
    pub(super) state: &'static str,
    /// Which of the message's ids it is about, and which it names as the one before.
    pub(super) id: usize,
    pub(super) before: usize,
    /// How many recipients the message has.
    pub(super) all: u64,
}

impl Move<'_> {
    /// How many recipients the line is about; if it does not say, `otherwise`.
    fn counted(&self, otherwise: u64) -> u64 {
        Some(concerns(self.line)).filter(|count| *count > 0).unwrap_or(otherwise)
    }
}

/// How many recipients a line is about; 0 if it does not say.
pub(super) fn concerns(line: &DiaryLine) -> u64 {
    line.facts.as_ref().map_or(0, |facts| facts.concerns)
}

impl Fates {
    /// Applies a line.
    pub(super) fn apply(&mut self, moved: &Move<'_>) {
        let Move { line, state, id, all, .. } = *moved;
        match line.event.as_str() {
            "held" => {
                self.held = moved.counted(all).min(all);
                if line.text.starts_with(TAKEN_OVER) {
                    self.ended = all - self.held;
                }
            }
            "delivered" | "undeliverable" => self.end(id, moved.counted(1), all),
            "dropped" => self.drop_from_queue(moved),
            "deleted" if self.held > 0 && !line.text.contains(FROM_QUARANTINE) => {
                let gone = moved.counted(self.held).min(self.held);
                self.held -= gone;
                self.ended += gone;
            }
            "deleted" => self.end(id, moved.counted(all), all),
            "released" => {
                let going = moved.counted(self.held).min(self.held);
                self.held -= going;
                self.go_on(id, going, state);
            }
            "freed" => self.free(moved),
            _ => self.be(id, state),
        }
        ENDS.iter().zip(&mut self.ends).filter(|(end, _)| **end == state).for_each(|(_, here)| *here = true);
    }

    /// Where they are, in words; several with commas if their fates differ.
    pub(super) fn state(&self, all: u64) -> String {
        let held = (self.held > 0).then_some(HELD);
        let rest = Some(self.rest.as_str()).filter(|_| self.left(all) > 0);
        let parts = self.parts.iter().filter(|part| part.1 > 0).map(|part| part.2.as_str());
        let ends = ENDS.into_iter().zip(self.ends).filter(|(_, here)| *here).map(|(end, _)| end);
        let mut states: Vec<&str> = Vec::new();
        for state in held.into_iter().chain(rest).chain(parts).chain(ends) {
            if !state.is_empty() && !states.contains(&state) {
                states.push(state);
            }
        }
        states.join(", ")
    }

    pub(super) fn written(&self) -> WrittenFates {
        (self.held, self.ended, self.rest.clone(), self.parts.clone())
    }

    /// The fates that were stored beside this state. Older rows do not say where the rest is, but the state does.
    pub(super) fn read(written: WrittenFates, state: &str) -> Fates {
        let (held, ended, mut rest, parts) = written;
        let has = |end: &str| state.split(", ").any(|one| one == end);
        if rest.is_empty() {
            let under_way = |one: &&str| *one != HELD && !ENDS.contains(one);
            rest = state.split(", ").find(under_way).unwrap_or_default().to_owned();
        }
        Fates { held, ended, rest, parts, ends: ENDS.map(has) }
    }

    /// How many are in no part.
    fn left(&self, all: u64) -> u64 {
        let parts = self.parts.iter().map(|part| part.1).sum::<u64>();
        all.saturating_sub(self.held).saturating_sub(self.ended).saturating_sub(parts)
    }

    fn part(&mut self, id: usize) -> Option<&mut SplitPart> {
        self.parts.iter_mut().find(|part| part.0 == id)
    }

    /// How many are under way under an id.
    fn under_way(&mut self, id: usize, all: u64) -> u64 {
        self.part(id).map(|part| part.1).unwrap_or_else(|| self.left(all))
    }

    /// This many recipients of an id, or as many as there are, have reached an end.
    fn end(&mut self, id: usize, count: u64, all: u64) {
        let count = count.min(self.under_way(id, all));
        if let Some(part) = self.part(id) {
            part.1 -= count;
        }
        self.ended += count;
    }

    /// No recipient of the id is tried again, so an attempt that was under way moves nobody any more.
    fn drop_from_queue(&mut self, moved: &Move<'_>) {
        let Move { line, id, all, .. } = *moved;
        // Older lines do not say how many. Of a part nobody is left in any case.
        let every = line.facts.is_none() || self.part(id).is_some();
        self.end(id, if every { all } else { concerns(line) }, all);
    }

    /// Some leave the quarantine under a new id. Their number may be different then, because one other address may get it for all of them.
    fn free(&mut self, moved: &Move<'_>) {
        let Move { line, state, id, before, all } = *moved;
        let leave = moved.counted(all).min(self.under_way(before, all));
        let go = line.facts.as_ref().map_or(0, |facts| facts.recipients);
        let go = if go > 0 { go.min(leave) } else { leave };
        if let Some(part) = self.part(before) {
            part.1 -= leave;
        }
        self.ended += leave - go;
        self.go_on(id, go, state);
    }

    /// This many continue under an id.
    fn go_on(&mut self, id: usize, count: u64, state: &str) {
        if count > 0 && id > 0 && self.part(id).is_none() {
            self.parts.push(SplitPart(id, 0, String::new()));
        }
        if let Some(part) = self.part(id) {
            part.1 += count;
        }
        self.be(id, state);
    }

    fn be(&mut self, id: usize, state: &str) {
        match self.part(id) {
            Some(part) => state.clone_into(&mut part.2),
            None => state.clone_into(&mut self.rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diary::Facts;

    /// A message with this many recipients, and what happened to it.
    struct Story {
        all: u64,
        fates: Fates,
    }

    impl Story {
        fn new(all: u64) -> Story {
            let mut story = Story { all, fates: Fates::default() };
            assert_eq!(story.then(0, "accepted", "accepted", None), "accepted");
            story
        }

        /// The state after a line about the id of this number. It may be about so many recipients, of whom so many are left afterwards.
        fn then(&mut self, id: usize, event: &str, state: &'static str, count: Option<(u64, u64)>) -> String {
            let line = DiaryLine::new("x", event, "");
            let line = match count {
                Some((concerns, recipients)) => line.with(Facts { concerns, recipients, ..Facts::default() }),
                None => line,
            };
            self.with(id, state, &line)
        }

        fn with(&mut self, id: usize, state: &'static str, line: &DiaryLine) -> String {
            self.fates.apply(&Move { line, state, id, before: 0, all: self.all });
            let state = self.fates.state(self.all);
            let read = Fates::read(self.fates.written(), &state);
            assert_eq!(read.state(self.all), state, "{:?}", self.fates);
            state
        }
    }

    #[test]
    fn of_several_ids_one_can_be_dropped() {
        let mut story = Story::new(120);
        assert_eq!(story.then(0, "held", "held", Some((105, 0))), "held, accepted");
        assert_eq!(story.then(0, "deferred", "deferred", Some((15, 0))), "held, deferred");
        assert_eq!(story.then(1, "released", "released", Some((50, 0))), "held, deferred, released");
        assert_eq!(story.then(1, "dropped", "deleted", Some((50, 0))), "held, deferred, deleted");
        assert_eq!(story.then(1, "deferred", "deferred", Some((50, 0))), "held, deferred, deleted", "it was under way");
        assert_eq!(story.then(1, "delivered", "delivered", None), "held, deferred, delivered, deleted", "so was this");
        assert_eq!(story.then(0, "deferred", "deferred", Some((15, 0))), "held, deferred, delivered, deleted");
        assert_eq!(story.then(0, "delivered", "delivered", Some((14, 0))), "held, deferred, delivered, deleted");
        assert_eq!(story.then(0, "dropped", "deleted", Some((1, 0))), "held, delivered, deleted");
        assert_eq!(story.then(0, "deferred", "deferred", None), "held, delivered, deleted");
        assert_eq!(story.then(2, "released", "released", Some((55, 0))), "released, delivered, deleted");
        assert_eq!(story.then(2, "delivered", "delivered", Some((55, 0))), "delivered, deleted");
    }

    #[test]
    fn what_is_freed_for_another_address_is_delivered_when_that_has_it() {
        let mut story = Story::new(5);
        assert_eq!(story.then(0, "quarantined", "quarantined", None), "quarantined");
        assert_eq!(story.then(1, "freed", "released", Some((5, 1))), "released");
        assert_eq!(story.then(1, "delivered", "delivered", None), "delivered");
    }

    #[test]
    fn what_stays_in_quarantine_is_still_shown() {
        let mut story = Story::new(5);
        story.then(0, "quarantined", "quarantined", None);
        assert_eq!(story.then(1, "freed", "released", Some((2, 2))), "quarantined, released");
        assert_eq!(story.then(1, "scanned", "scanned", None), "quarantined, scanned");
        assert_eq!(story.then(1, "delivered", "delivered", Some((2, 0))), "quarantined, delivered");
        assert_eq!(story.then(2, "freed", "released", Some((2, 1))), "quarantined, released, delivered");
        assert_eq!(story.then(2, "delivered", "delivered", None), "quarantined, delivered");
        let deleted = DiaryLine::new("x", "deleted", "1 recipient deleted from quarantine by op");
        let one = Facts { concerns: 1, ..Facts::default() };
        assert_eq!(story.with(0, "deleted", &deleted.with(one)), "delivered, deleted");
    }

    #[test]
    fn older_lines_and_rows_do_not_count() {
        let mut story = Story::new(3);
        story.then(0, "delivered", "delivered", None);
        assert_eq!(story.then(0, "deferred", "deferred", None), "deferred, delivered");
        assert_eq!(story.then(0, "dropped", "deleted", None), "delivered, deleted");
        let older = |held, ended, state: &str| Fates::read((held, ended, String::new(), Vec::new()), state);
        let mut story = Story { all: 9, fates: older(4, 1, "held, deferred, delivered") };
        assert_eq!(story.fates.state(9), "held, deferred, delivered");
        assert_eq!(story.then(3, "deferred", "deferred", None), "held, deferred, delivered", "an id of before");
        assert_eq!(story.then(4, "released", "released", Some((4, 0))), "deferred, released, delivered");
        let mut story = Story { all: 2, fates: older(0, 0, "quarantined") };
        assert_eq!(story.then(1, "freed", "released", None), "released");
        assert_eq!(story.then(1, "delivered", "delivered", Some((2, 0))), "delivered");
    }
}
