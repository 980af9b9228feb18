//! The feeds beside one line, by the simulator: every load and mix that a live run would take days for.

use crate::report::Report;
use weir_sim::feeds::BesideLine;

/// Arrivals of each row.
const ARRIVALS: usize = 400_000;

/// All rows, and a ratio for each.
pub(crate) fn tell(report: &mut Report) {
    report.title(
        "Simulated: mean wait in ms in the feeds and in one line, first come, first served, with the same workers",
    );
    report.line(format!("{:<28} {:>12} {:>12} {:>7}", "workers_mix_load_limits", "feeds", "one line", "ratio"));
    let rows = BesideLine { arrivals: ARRIVALS, seed: 1 }.run();
    for row in &rows {
        let worse = if row.holds() { "" } else { "  WORSE" };
        let (feeds, line) = (row.feeds_s * 1e3, row.line_s * 1e3);
        report.line(format!("{:<28} {feeds:>12.2} {line:>12.2} {:>7.2}{worse}", row.name(), row.ratio()));
        report.ratio(&format!("scan_feeds_vs_fifo_mean_{}", row.name()), row.ratio());
    }
    report.figure("scan_feeds_rows_worse_than_fifo", rows.iter().filter(|row| !row.holds()).count() as f64);
}
