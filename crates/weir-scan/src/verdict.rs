//! Findings and the verdict.
//!
//! Every scanner ends with an [`Outcome`] for the whole message, or with one for each of several parts of it. "Not scanned" is an outcome
//! of its own, and never means "clean". A [`Verdict`] holds what all scanners found, and the gravest finding decides.

use crate::samples::Candidate;
use crate::wishes::Wishes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What a scanner found, in order from harmless to grave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Looked at as a whole; nothing found.
    Clean,
    /// Unwanted mail.
    Spam {
        /// The scanner's own measure.
        score: f64,
        /// From this score on, mail is spam.
        threshold: f64,
    },
    /// Larger, deeper or longer than may be looked at.
    NotScanned {
        /// Which bound was met, in words.
        limit: String,
    },
    /// The scanner could not look: it is to be tried again.
    Failed {
        /// What went wrong.
        problem: String,
    },
    /// The policy does not let it through.
    Forbidden {
        /// Which rule, and on what.
        reason: String,
    },
    /// Malware.
    Infected {
        /// The name of what was found.
        name: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Clean => out.write_str("clean"),
            Outcome::Spam { score, threshold } => write!(out, "spam, score {score:.1} of {threshold:.1}"),
            Outcome::NotScanned { limit } => write!(out, "not scanned: {limit}"),
            Outcome::Failed { problem } => write!(out, "failed: {problem}"),
            Outcome::Forbidden { reason } => write!(out, "forbidden: {reason}"),
            Outcome::Infected { name } => write!(out, "infected: {name}"),
        }
    }
}

/// The longest reason in characters: a sentence, not a page.
const WORDS_MAX: usize = 400;

impl Outcome {
    /// The same, with words that are short and fit to show: strangers wrote some of them.
    pub fn plain(self) -> Outcome {
        let plain = |text: String| crate::plain::shown(&text, WORDS_MAX);
        match self {
            Outcome::Clean | Outcome::Spam { .. } => self,
            Outcome::NotScanned { limit } => Outcome::NotScanned { limit: plain(limit) },
            Outcome::Failed { problem } => Outcome::Failed { problem: plain(problem) },
            Outcome::Forbidden { reason } => Outcome::Forbidden { reason: plain(reason) },
            Outcome::Infected { name } => Outcome::Infected { name: plain(name) },
        }
    }

    /// How many bytes its words take.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Outcome::Clean | Outcome::Spam { .. } => 0,
            Outcome::NotScanned { limit: text }
            | Outcome::Failed { problem: text }
            | Outcome::Forbidden { reason: text }
            | Outcome::Infected { name: text } => text.len(),
        }
    }

    /// From 0 for clean to 5 for infected.
    pub(crate) fn gravity(&self) -> u8 {
        match self {
            Outcome::Clean => 0,
            Outcome::Spam { .. } => 1,
            Outcome::NotScanned { .. } => 2,
            Outcome::Failed { .. } => 3,
            Outcome::Forbidden { .. } => 4,
            Outcome::Infected { .. } => 5,
        }
    }
}

/// What one scanner says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The scanner: `clamav`, `yara`, `attachments`, `rules`, `rspamd`, `spamassassin`.
    pub scanner: String,
    /// What it found.
    pub outcome: Outcome,
    /// Which part of the message, as a path of names: `invoice.zip > invoice.pdf.exe`. Empty for the whole.
    #[serde(default)]
    pub place: String,
    /// How long it took; zero if the answer was known.
    pub took: Duration,
}

/// What all scanners together say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What each said.
    pub findings: Vec<Finding>,
    /// Why the content looks suspicious, though it is not forbidden. Such mail is worth an analysis; empty if nothing is suspicious.
    #[serde(default)]
    pub suspicious: Vec<String>,
    /// Files that are to be analysed before it passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Candidate>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub samples_left_out: usize,
    /// What a spam filter asks to be done with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wishes: Option<Wishes>,
    /// Which signatures and rules were used.
    #[serde(default)]
    pub version: String,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Verdict {
    /// The finding that decides; none if nobody looked, and then nothing may pass.
    pub fn gravest(&self) -> Option<&Finding> {
        let mut gravest: Option<&Finding> = None;
        for finding in &self.findings {
            if gravest.is_none_or(|known| finding.outcome.gravity() > known.outcome.gravity()) {
                gravest = Some(finding);
            }
        }
        gravest
    }

    /// Whether it may pass: somebody looked, and all found it clean.
    pub fn is_clean(&self) -> bool {
        self.gravest().is_some_and(|finding| finding.outcome == Outcome::Clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(outcome: Outcome) -> Finding {
        Finding { scanner: "yara".into(), outcome, place: String::new(), took: Duration::ZERO }
    }

    #[test]
    fn nobody_looked_is_not_clean() {
        assert!(!Verdict::default().is_clean());
    }

    #[test]
    fn the_gravest_decides_and_the_first_of_equals() {
        let infected = |name: &str| finding(Outcome::Infected { name: name.into() });
        let failed = finding(Outcome::Failed { problem: "hangs".into() });
        let findings = vec![finding(Outcome::Clean), infected("one"), failed, infected("two")];
        let verdict = Verdict { findings, ..Verdict::default() };
        assert_eq!(verdict.gravest(), Some(&infected("one")));
        assert!(!verdict.is_clean());
    }

    #[test]
    fn a_failed_scanner_beside_a_clean_one_is_not_clean() {
        let findings = vec![finding(Outcome::Clean), finding(Outcome::Failed { problem: "hangs".into() })];
        assert!(!Verdict { findings, ..Verdict::default() }.is_clean());
    }
}
