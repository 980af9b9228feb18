//! What must hold in every history of a lab. The database has every term of office and every attempt.

use std::process::Command;

/// All times in these queries are by the database's clock.
const NOTHING: [(&str, &str); 5] = [
    (
        "a term began before the one before it",
        "lab_history a join lab_history b on b.epoch > a.epoch where b.acquired_at < a.acquired_at",
    ),
    ("an attempt of no term", "lab_attempts where epoch not in (select epoch from lab_history)"),
    (
        "something was assigned in a term that was over",
        "lab_attempts a join lab_history h on h.epoch > a.epoch where a.started_at / 1000000 > h.acquired_at",
    ),
    (
        "two results count",
        "(select 1 from lab_results where accepted = 1 group by sample, plugin, version having count(*) > 1) x",
    ),
    (
        "more attempts are charged than a sample has",
        "(select 1 from lab_attempts where outcome in ('failed', 'expired', 'lost') group by sample having count(*) > 3) x",
    ),
];

/// The number that a query returns.
#[track_caller]
pub(super) fn count(records: &str, question: &str) -> i64 {
    let answer = Command::new("psql").args([records, "-At", "-c", question]).output().expect("psql runs");
    let text = String::from_utf8_lossy(&answer.stdout);
    let trouble = String::from_utf8_lossy(&answer.stderr);
    text.trim().parse().unwrap_or_else(|_| panic!("{question}: {text}{trouble}"))
}

/// Checks: at most one leader for each epoch, epochs grow, nothing is assigned in a term that is over, and only one result of each plugin
/// counts.
#[track_caller]
pub(super) fn holds(records: &str) {
    for (broken, from) in NOTHING {
        assert_eq!(count(records, &format!("select count(*) from {from}")), 0, "{broken}");
    }
}
