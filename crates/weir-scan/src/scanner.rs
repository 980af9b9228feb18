//! What a scanner is to the panel, and how one is added.
//!
//! A scanner is one file and one row. The file holds three things: a [`ScannerKind`] (its name, and how its sections of the configuration are read), its
//! settings, which are [`Configured`], and the [`Scanner`] that these start. The row is in [`REGISTRY`](crate::registry::REGISTRY).
//! Everything else (deadlines, remembered answers, scanners of single feeds, status pages, alarms) uses these traits and knows no scanner by name.
//!
//! A scanner never decides what happens to a message. It returns an [`Answer`]: clean, bad, not opened, or failed.

use crate::content::Content;
use crate::examine::Report;
use crate::health::Health;
use crate::inspect::About;
use crate::made::Made;
use crate::memory_bounds::Bounds;
use crate::samples::Candidate;
pub use crate::start_error::StartError;
use crate::verdict::{Finding, Outcome};
use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_settings::Reader;

/// A future behind a pointer, so that scanners of all kinds fit into one list.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of scanner: a row of the registry.
pub struct ScannerKind {
    /// Its name.
    pub name: &'static str,
    /// Declares and reads its sections of the configuration; none if it is off.
    pub read: fn(&mut Reader<'_>, &mut Common) -> Option<Box<dyn Configured>>,
}

/// What scanners share while the configuration is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Common {
    /// Into how many feeds mail goes.
    pub feeds: usize,
    /// How many answers are remembered, of each scanner.
    pub memory: Bounds,
}

/// The settings of a scanner that is on.
pub trait Configured: Any + fmt::Debug + Send + Sync {
    /// Starts it. Called inside a runtime.
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>>;

    /// What it is shown of a message.
    fn wants(&self) -> Wants {
        Wants::Message
    }

    /// Feeds, counted from 0, that have scanners of this kind of their own.
    fn own_feeds(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// What a scanner is shown of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// The message as the client sent it. The same mail to many is then the same content, and is scanned once.
    Message,
    /// The message with the Received field that we wrote on top of it. Then all scanners see that field.
    MessageWithTrace,
    /// Each attachment by itself, decoded by a worker; archives are handed over as they are.
    Attachments,
}

/// Looks at content. Calls may overlap.
pub trait Scanner: fmt::Debug + Send + Sync + 'static {
    /// Its name, in findings and on status pages.
    fn name(&self) -> &'static str;

    /// The names under which it reports, if they are others than its own: several looks may be one scan.
    fn reports_as(&self) -> Vec<&'static str> {
        vec![self.name()]
    }

    /// Whether content of this length is shown to it. What it is not shown it says nothing about.
    fn looks_at(&self, length: u64) -> bool {
        let _ = length;
        true
    }

    /// Whether it weighs who sent a message, and says nothing about a file alone.
    fn judges_senders(&self) -> bool {
        false
    }

    /// How long the panel waits for its answer.
    fn deadline(&self, length: u64) -> Duration;

    /// Looks at the content. If its answers are remembered, a scan goes on after the deadline and its late answer counts for the next attempt.
    fn scan<'a>(&'a self, content: &'a Content, about: &'a About) -> Later<'a, Answer>;

    /// The panel has waited for so long and goes on without an answer: what it says of that.
    fn gave_up(&self, waited: Duration) -> String {
        format!("{} did not answer within {} s", self.name(), waited.as_secs())
    }

    /// Whether mail goes on without it when it fails.
    fn is_optional(&self) -> bool {
        false
    }

    /// Under which key its answers are remembered now. Without one it is asked each time, as those must be that weigh the envelope too.
    fn memo_key(&self) -> Option<MemoKey> {
        None
    }

    /// Which signatures or rules are in force, if it can tell.
    fn version(&self) -> Option<String> {
        None
    }

    /// How it is: one row an address. Nothing for those that are only known by their answers.
    fn health(&self) -> Vec<Health> {
        Vec::new()
    }

    /// A scanner of this feed's own (counted from 0), which is asked before this one.
    fn for_feed(&self, feed: usize) -> Option<Arc<dyn Scanner>> {
        let _ = feed;
        None
    }

    /// Itself, if it can also open messages for others.
    fn opener(&self) -> Option<&dyn Opener> {
        None
    }
}

/// Opens messages behind a fence, and keeps to the rules that people made.
pub trait Opener: Send + Sync {
    /// One file of the content, decoded; none if it is not there.
    fn extract<'a>(&'a self, content: &'a Content, wanted: &'a Candidate)
    -> Later<'a, Result<Option<Vec<u8>>, String>>;

    /// Every attachment of the content, and how many more there are than are named.
    fn attachments<'a>(&'a self, content: &'a Content) -> Later<'a, Result<(Vec<Candidate>, usize), String>>;

    /// Takes these rules into force, instead of those before. Rules that do not compile change nothing.
    fn adopt<'a>(&'a self, made: &'a Made) -> Later<'a, Result<(), StartError>>;
}

/// Under what a scanner's answers are remembered, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoKey {
    /// Everything beside the content that the answer depends on.
    pub version: Arc<str>,
    /// How long an answer counts at most; zero for not at all.
    pub keep: Duration,
}

/// How a scan ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Looked at as a whole; nothing found.
    Clean,
    /// Something bad was found.
    Bad(Vec<Found>),
    /// Nobody looked inside: too large, too deep, locked. Never the same as clean.
    NotOpened {
        /// Why, in words.
        reason: String,
    },
    /// The scanner could not look; it is worth trying again.
    Failed {
        /// What went wrong.
        problem: String,
    },
    /// A report of several looks, each under its own name.
    Several(Box<Report>),
}

/// Something bad, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What it is.
    pub harm: Harm,
    /// Which part of the message; empty for the whole.
    pub place: String,
}

/// What a scanner can hold against a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Harm {
    /// Unwanted mail.
    Spam {
        /// The scanner's own measure.
        score: f64,
        /// What it takes to be spam.
        threshold: f64,
    },
    /// The policy does not let it through: why.
    Forbidden(String),
    /// Malware: its name.
    Infected(String),
}

impl Answer {
    /// One thing about the whole of the content.
    pub fn bad(harm: Harm) -> Answer {
        Answer::Bad(vec![Found { harm, place: String::new() }])
    }

    /// As findings under these names; the first speaks for what is bad.
    pub(crate) fn report(self, names: &[&'static str], took: Duration) -> Report {
        let finding = |scanner: &str, outcome: Outcome, place: String| Finding {
            scanner: scanner.into(),
            outcome: outcome.plain(),
            place,
            took,
        };
        let each = |outcome: Outcome| names.iter().map(|name| finding(name, outcome.clone(), String::new())).collect();
        let findings = match self {
            Answer::Several(report) => return *report,
            Answer::Clean => each(Outcome::Clean),
            Answer::NotOpened { reason } => each(outcome_of_not_opened(reason)),
            Answer::Failed { problem } => each(Outcome::Failed { problem }),
            Answer::Bad(found) => {
                let name = names.first().copied().unwrap_or_default();
                found.into_iter().map(|Found { harm, place }| finding(name, harm.into(), place)).collect()
            }
        };
        Report { findings, ..Report::default() }
    }
}

/// What counts for content that a scanner did not open: today the same as for content beyond a limit, so that `scan.on_limit` decides. This is
/// the one place that says so.
fn outcome_of_not_opened(reason: String) -> Outcome {
    Outcome::NotScanned { limit: reason }
}

impl From<Harm> for Outcome {
    fn from(harm: Harm) -> Outcome {
        match harm {
            Harm::Spam { score, threshold } => Outcome::Spam { score, threshold },
            Harm::Forbidden(reason) => Outcome::Forbidden { reason },
            Harm::Infected(name) => Outcome::Infected { name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_opened_is_not_clean() {
        let report = Answer::NotOpened { reason: "it has a password".into() }.report(&["one", "two"], Duration::ZERO);
        let outcomes: Vec<_> =
            report.findings.iter().map(|found| (found.scanner.as_str(), found.outcome.to_string())).collect();
        let said = "not scanned: it has a password".to_owned();
        assert_eq!(outcomes, [("one", said.clone()), ("two", said)]);
    }

    #[test]
    fn words_of_strangers_are_made_fit_to_show() {
        let report = Answer::bad(Harm::Infected("a\u{1b}[2Jb".into())).report(&["one"], Duration::ZERO);
        assert_eq!(report.findings[0].outcome, Outcome::Infected { name: "a·[2Jb".into() });
    }
}
