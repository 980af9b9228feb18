//! The story of an incident: what was seen, how bad it became, what people did, and what it cost others. Its length is bounded, whatever
//! happens.

use super::tally::Tally;
use serde::{Deserialize, Serialize};
use weir_foundation::audit::AuditView;

/// How many lines about what was seen are kept, and how long each may be.
const LINES_MAX: usize = 30;
const WORDS_MAX: usize = 300;
/// How many of the things that people did are kept; the others are counted.
const ACTS_MAX: usize = 20;
/// Those whom an incident about several names.
pub(super) const NAMES_MAX: usize = 100;
/// A subject, such as a login or the name of a virus.
pub(super) const SUBJECT_MAX: usize = 120;

/// How an incident went. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Story {
    /// What was seen, the oldest first.
    pub(super) lines: Vec<(i64, String)>,
    /// Lines that were left out.
    pub(super) left_out: u64,
    /// The worst value that was seen, by the measure of its kind.
    pub(super) height: f64,
    /// When its sign was last there.
    pub(super) sign_s: i64,
    /// How often it began again after it had been over.
    pub(super) again: u32,
    /// What people did, and how much more.
    pub(super) acts: Vec<StoryAct>,
    pub(super) more_acts: u64,
    /// The last line of the audit trail that was looked at for it.
    pub(super) acts_up_to: i64,
    /// What the gates did meanwhile for everybody.
    pub(super) tally: Tally,
    /// How often it was opened or closed, and how many of these changes were reported.
    pub(super) changes: u32,
    pub(super) told: u32,
    /// Its changes are not reported, because it is one of many, and there is an incident about all of them.
    pub(super) quiet: bool,
    /// Those whom it is about, if it is about several, in the order in which they were seen.
    pub(super) names: Vec<String>,
}

/// Something that somebody did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoryAct {
    pub(super) at: String,
    pub(super) who: String,
    pub(super) action: String,
    pub(super) subject: String,
    pub(super) detail: String,
}

impl Story {
    /// A story that begins now.
    pub(super) fn begun(words: &[String], height: f64, now_s: i64) -> Story {
        let mut story = Story { height, sign_s: now_s, changes: 1, ..Story::default() };
        words.iter().for_each(|words| story.tell(words, now_s));
        story
    }

    /// Its sign is still there; returns whether it became so much worse that this is reported.
    pub(super) fn goes_on(&mut self, words: &[String], height: f64, now_s: i64) -> bool {
        self.sign_s = now_s;
        // A small increase is not reported.
        let worse = height >= self.height * 1.5 + 1.0;
        if worse {
            self.height = height;
            words.iter().for_each(|words| self.tell(words, now_s));
        }
        worse
    }

    /// It was opened or closed.
    pub(super) fn change(&mut self) {
        self.changes += 1;
        if self.quiet {
            self.told = self.changes;
        }
    }

    /// Its changes should not be reported.
    pub(super) fn keep_quiet(&mut self) {
        (self.quiet, self.told) = (true, self.changes);
    }

    /// It is about these subjects too; returns whether one of them is new.
    pub(super) fn name(&mut self, names: &[String]) -> bool {
        let before = self.names.len();
        for name in names {
            if self.names.len() < NAMES_MAX && !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        self.names.len() > before
    }

    /// One more line. The first half and the last are kept.
    pub(super) fn tell(&mut self, words: &str, now_s: i64) {
        self.lines.push((now_s, cut(words, WORDS_MAX)));
        if self.lines.len() > LINES_MAX {
            self.lines.remove(LINES_MAX / 2);
            self.left_out += 1;
        }
    }

    /// Somebody did something; returns whether this is new.
    pub(super) fn act(&mut self, number: i64, line: &AuditView) -> bool {
        if number <= self.acts_up_to {
            return false;
        }
        self.acts_up_to = number;
        if self.acts.len() >= ACTS_MAX {
            self.more_acts += 1;
            return true;
        }
        self.acts.push(StoryAct {
            at: line.at.clone(),
            who: cut(&line.actor, SUBJECT_MAX),
            action: cut(&line.action, SUBJECT_MAX),
            subject: cut(&line.subject, SUBJECT_MAX),
            detail: cut(&line.detail, WORDS_MAX),
        });
        true
    }

    /// Of a story that a newer Weir wrote, the known parts are read.
    pub(super) fn read(text: &str) -> Story {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub(super) fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The beginning of a text that a stranger may have written, without characters that a terminal or a database cannot handle.
pub(super) fn cut(text: &str, most: usize) -> String {
    let shown = weir_scan::plain::shown(text, most + 1);
    crate::words::cut(&shown, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(action: &str, detail: &str) -> AuditView {
        AuditView {
            at: "2026-11-17T20:00:00Z".into(),
            actor: "ann".into(),
            action: action.into(),
            subject: "bob".into(),
            detail: detail.into(),
        }
    }

    #[test]
    fn a_story_tells_what_is_worse_and_nothing_twice() {
        let mut story = Story::begun(&["ten wait\u{1b}[2J\0\u{202e}".into()], 10.0, 5);
        assert!(!story.goes_on(&["eleven wait".into()], 11.0, 6) && story.goes_on(&["forty wait".into()], 40.0, 7));
        assert!(!story.goes_on(&["ten wait".into()], 10.0, 8), "better is no news");
        assert_eq!(story.lines, [(5, "ten wait·[2J··".to_owned()), (7, "forty wait".to_owned())]);
        assert_eq!((story.sign_s, story.height), (8, 40.0));
        assert!(story.act(3, &line("user.lock", "x")) && !story.act(3, &line("user.lock", "x")), "each line once");
    }

    #[test]
    fn a_story_is_bounded_and_keeps_its_beginning_and_its_end() {
        let mut story = Story::begun(&["first".into()], 1.0, 0);
        (1..500).for_each(|n| story.tell(&"é\"\\".repeat(9_000), n));
        (1..500).for_each(|n| assert!(story.act(n, &line(&"<b>".repeat(999), &"\"".repeat(9_999)))));
        assert_eq!((story.lines.len(), story.acts.len(), story.more_acts), (LINES_MAX, ACTS_MAX, 479));
        assert_eq!((story.lines[0].1.as_str(), story.lines[LINES_MAX - 1].0), ("first", 499));
        assert!(story.written().len() < 48 << 10, "{}", story.written().len());
        assert_eq!(Story::read(&story.written()), story);
        assert_eq!(Story::read("nonsense"), Story::default());
    }
}
