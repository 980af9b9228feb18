//! Mail that waits for the laboratory, for lists and pages.

use super::{Detention, PendingEntry};
use crate::scan::ScanShared;
use crate::scan::laboratory::LabWay;
use crate::scan::state::WaitingLetter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::time::Instant;
use weir_foundation::date::Date;

/// Mail that waits for the laboratory, as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pending")]
pub struct PendingView {
    /// Messages that wait.
    pub messages: usize,
    /// Their size.
    pub bytes: u64,
    /// How long the oldest has waited.
    pub oldest_s: f64,
    /// How long a message waits at most.
    pub wait_s: u64,
    /// What becomes of it then: `quarantine` or `pass`.
    #[schemars(extend("enum" = ["quarantine", "pass"]))]
    pub then: String,
    /// Whether the laboratory answers.
    pub answers: bool,
    /// Since the start.
    pub counts: PendingCounts,
}

/// What became of mail that waited, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingCounts {
    /// It came.
    pub arrived: u64,
    /// The verdict let it pass.
    pub passed: u64,
    /// The verdict kept it.
    pub quarantined: u64,
    /// There was no verdict in time, or no room to wait: the policy decided.
    pub undecided: u64,
}

/// A letter that waits for the laboratory.
pub(in crate::scan) struct PendingLetter {
    pub(in crate::scan) waiting: WaitingLetter,
    pub(in crate::scan) until: Instant,
    /// What it waits for, in words.
    pub(in crate::scan) told: String,
}

impl ScanShared {
    /// Letters that wait here, oldest first.
    pub(in crate::scan) fn pending_letters(&self) -> Vec<PendingLetter> {
        let Some(way) = &self.lab else { return Vec::new() };
        let then = way.settings.on_late.word();
        let told = |entry: &PendingEntry| {
            let Detention { since, until, .. } = entry.detention;
            let (since, until) = (Date::new(Instant(since)), Date::new(Instant(until)));
            let problem =
                if entry.problem.is_empty() { String::new() } else { format!(" (at the moment: {})", entry.problem) };
            let names = entry.detention.names();
            format!("waits for the lab's verdict on {names} since {since} until {until}, then it is {then}{problem}")
        };
        let pending = self.pending();
        let letter = |entry: &PendingEntry| PendingLetter {
            waiting: entry.waiting.clone(),
            until: Instant(entry.detention.until),
            told: told(entry),
        };
        pending.entries.values().map(letter).collect()
    }

    pub(in crate::scan) fn pending_view(&self) -> Option<PendingView> {
        let LabWay { settings, .. } = self.lab.as_ref()?;
        let now = self.now();
        let pending = self.pending();
        let oldest = pending.entries.values().map(|entry| entry.detention.since).min();
        Some(PendingView {
            messages: pending.entries.len(),
            bytes: pending.bytes,
            oldest_s: oldest.map_or(0.0, |since| now.since(Instant(since)).as_secs_f64()),
            wait_s: settings.wait.as_secs(),
            then: settings.on_late.key().to_owned(),
            answers: pending.silences == 0,
            counts: pending.counts,
        })
    }
}
