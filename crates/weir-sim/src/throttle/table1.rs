//! The paper's Table 1: how many mails of two real viruses and of a test virus passed, and when they were
//! stopped.
//!
//! The paper does not say where in a period its viruses started. Ours start when the user is first seen, which
//! starts the periods too; beside that stands the range over all starts within a period.

use super::virus::Virus;
use crate::input::InputError;
use serde::Serialize;
use std::time::Duration;
use weir_core::throttle::Params;

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table1 {
    /// Its rows, in the order of the paper's.
    pub rows: Vec<Row>,
}

/// One virus.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub virus: &'static str,
    /// How fast it sends.
    pub rate_per_min: f64,
    /// What the paper saw.
    pub paper: VirusFate,
    /// What we see.
    pub ours: VirusFate,
    /// The least over all starts within a period.
    pub ours_least: VirusFate,
    /// The most over all starts within a period.
    pub ours_most: VirusFate,
    /// Whether ours is within 3 mails, and within 15 % or 2 s of the stopping time.
    pub agrees: bool,
}

/// How a virus fared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VirusFate {
    /// Mails that passed.
    pub passed: u64,
    /// When it was stopped.
    pub stopped_after_s: f64,
}

/// Name, mails a minute, slack spent before, passed and stopping time in the paper.
const PAPER: [(&str, f64, bool, u64, f64); 6] = [
    ("Lovgate.A", 109.0, false, 3, 12.0),
    ("Yaha.E", 455.0, true, 0, 3.0),
    ("test", 60.0, false, 2, 24.0),
    ("test", 10.0, false, 6, 153.0),
    ("test", 5.0, false, 6, 301.0),
    ("test", 2.0, false, 21, 1204.0),
];

/// The parameters of the paper's experiment.
fn params() -> Params {
    Params { working_set: 4, ..Params::default() }
}

/// Repeats the experiment.
pub fn table1() -> Result<Table1, InputError> {
    let rows = PAPER.iter().map(|(virus, rate, slack_spent, passed, stopped_after_s)| {
        let seen = |phase_s: u64| {
            let phase = Duration::from_secs(phase_s);
            fare(&Virus { phase, slack_spent: *slack_spent, ..Virus::new(*rate) })
        };
        let all = (0..60).map(seen).collect::<Result<Vec<VirusFate>, InputError>>()?;
        let paper = VirusFate { passed: *passed, stopped_after_s: *stopped_after_s };
        let ours = seen(0)?;
        Ok(Row {
            virus,
            rate_per_min: *rate,
            paper,
            ours,
            ours_least: extreme(&all, u64::min, f64::min),
            ours_most: extreme(&all, u64::max, f64::max),
            agrees: paper.agrees(ours),
        })
    });
    Ok(Table1 { rows: rows.collect::<Result<_, InputError>>()? })
}

impl VirusFate {
    fn agrees(&self, ours: VirusFate) -> bool {
        let apart_s = (self.stopped_after_s - ours.stopped_after_s).abs();
        self.passed.abs_diff(ours.passed) <= 3 && (apart_s <= 0.15 * self.stopped_after_s || apart_s <= 2.0)
    }
}

fn fare(virus: &Virus) -> Result<VirusFate, InputError> {
    let outbreak = virus.run(params())?;
    let stopped_after_s = outbreak.stopped_after_s.unwrap_or(f64::INFINITY);
    Ok(VirusFate { passed: outbreak.report.passed, stopped_after_s })
}

fn extreme(all: &[VirusFate], passed: fn(u64, u64) -> u64, time: fn(f64, f64) -> f64) -> VirusFate {
    let pick = |a: VirusFate, b: &VirusFate| VirusFate {
        passed: passed(a.passed, b.passed),
        stopped_after_s: time(a.stopped_after_s, b.stopped_after_s),
    };
    all.iter().fold(all[0], pick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_agrees_wherever_in_a_period_the_virus_starts() {
        let table = table1().unwrap();
        assert_eq!(table.rows.len(), 6);
        for row in &table.rows {
            assert!(row.agrees, "{row:?}");
            for bound in [row.ours_least, row.ours_most] {
                assert!(row.paper.agrees(bound), "{row:?}");
            }
        }
    }

    #[test]
    fn another_time_would_not_agree() {
        let paper = VirusFate { passed: 6, stopped_after_s: 153.0 };
        assert!(!paper.agrees(VirusFate { passed: 6, stopped_after_s: 120.0 }));
        assert!(!paper.agrees(VirusFate { passed: 10, stopped_after_s: 153.0 }));
        assert!(paper.agrees(VirusFate { passed: 3, stopped_after_s: 138.0 }));
    }
}
