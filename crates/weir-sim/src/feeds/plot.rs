//! The experiments as charts.

use super::{Paper, Report, Sizes, Tuned};
use weir_chart::{Axis, Chart, sheet};
use weir_core::feeds::SizeTable;

/// Waits by feed, one group of bars a feed, and the sizes with the limits of the first report.
pub fn report_svg(reports: &[Report], sizes: &Sizes) -> String {
    let strategies: Vec<&str> = reports.iter().map(|r| r.strategy.as_str()).collect();
    let feeds = reports.first().map_or(0, |r| r.per_feed.len());
    let waits = |title: &str, of: &dyn Fn(&Report, usize) -> f64| {
        let axis = Axis::linear("feed", "").range(0.5, feeds as f64 + 0.5);
        let mut chart = Chart::new(title, axis, Axis::linear("wait", "s"));
        for (i, report) in reports.iter().enumerate() {
            let bars = (0..report.per_feed.len()).map(|f| (beside(f + 1, i, reports.len()), of(report, f)));
            chart = chart.bars(format!("{}, feed {feeds}:", report.strategy), bars);
        }
        chart
    };
    let charts = [
        waits("Mean wait by feed", &|r, f| r.per_feed[f].mean_wait_s),
        waits("95 % of messages wait no longer", &|r, f| r.per_feed[f].p95_wait_s),
        sizes_chart(sizes, reports.first().map_or(&[], |r| &r.limits)),
    ];
    sheet(&format!("Feeds: {}", strategies.join(", ")), &charts)
}

/// Each strategy with the default limits, the paper's method and the limits found.
pub fn tuned_svg(tuned: &Tuned, sizes: &Sizes) -> String {
    let axis = Axis::linear("strategy", "").range(0.5, tuned.strategies.len() as f64 + 0.5);
    let mut chart = Chart::new("Mean wait by strategy", axis, Axis::linear("mean wait", "s"));
    type Row<'a> = (&'a str, &'a dyn Fn(usize) -> Option<f64>);
    let of = |i: usize| &tuned.strategies[i];
    let rows: [Row<'_>; 3] = [
        ("default limits", &|i| of(i).default.mean_wait_s),
        ("the paper's method", &|i| of(i).paper_method.mean_wait_s),
        ("global search", &|i| Some(of(i).mean_wait_s)),
    ];
    for (k, (name, wait)) in rows.iter().enumerate() {
        let bars = (0..tuned.strategies.len()).filter_map(|i| Some((beside(i + 1, k, 3), wait(i)?)));
        chart = chart.bars(*name, bars);
    }
    for (i, found) in tuned.strategies.iter().enumerate() {
        chart = chart.mark(found.strategy.as_str(), i as f64 + 0.5);
    }
    let title = format!("Limits found: {} {:?}", tuned.strategy, tuned.limits);
    sheet(&title, &[chart, sizes_chart(sizes, &tuned.limits)])
}

/// The ladder of policies, and Figures 6 and 7 with the stand-in.
pub fn paper_svg(paper: &Paper) -> String {
    let mut ladder = Chart::new(
        "Dual-Gaussian example: mean wait",
        Axis::linear("", "").range(0.0, 1.0),
        Axis::log("mean wait", "s"),
    );
    for policy in &paper.policies {
        let short = policy
            .name
            .replace(", limits from a global search", ", global")
            .replace("the paper's optimum limits", "paper's limits");
        let name: String =
            short.replace(", preemptive (a bound)", "").replace("one queue, first come first served", "first come");
        ladder = ladder.line(name, [(0.0, policy.mean_wait_s), (1.0, policy.mean_wait_s)]);
    }
    let server = || Axis::linear("mail server (stand-in sizes)", "").range(1.0, 3.0);
    let mut waits = Chart::new("As Figure 6: mean wait by server", server(), Axis::log("mean wait", "s"));
    let mut rates = Chart::new("As Figure 7: largest rate by server", server(), Axis::log("λ max", "messages/s"));
    for k in 0..paper.servers.first().map_or(0, |s| s.strategies.len()) {
        let of = |server: &super::Server| server.strategies[k].clone();
        let name = paper.servers[0].strategies[k].name.replace(", best limits", "");
        let wait = paper.servers.iter().filter_map(|s| Some((s.server as f64, of(s).mean_wait_s?)));
        waits = waits.line(name.as_str(), wait);
        rates = rates.line(name, paper.servers.iter().map(|s| (s.server as f64, of(s).lambda_max)));
    }
    rates = rates.dashed("bound", paper.servers.iter().map(|s| (s.server as f64, s.lambda_bound)));
    let sizes = [sizes_chart(&Sizes::DualGaussian, &[]), sizes_chart(&Sizes::HeavyTailed, &[])];
    sheet("Mail scanning feeds: the paper's examples", &[vec![ladder, waits, rates], sizes.to_vec()].concat())
}

/// Where the k-th of n bars stands in a group.
fn beside(group: usize, k: usize, n: usize) -> f64 {
    group as f64 + (k as f64 - (n as f64 - 1.0) / 2.0) * 0.3
}

/// How many messages have which size, on a logarithmic scale, with the limits as marks.
fn sizes_chart(sizes: &Sizes, limits: &[u64]) -> Chart {
    let table = sizes.fine_table();
    let title = format!("Sizes: {}", sizes.name());
    let mut chart =
        Chart::new(title, Axis::log("size", "bytes"), Axis::linear("share of messages", "% a step of 12 %"));
    chart = chart.steps("", steps(&table));
    for (i, limit) in limits.iter().enumerate().filter(|(_, limit)| **limit > 0) {
        chart = chart.mark(format!("s{}", i + 1), *limit as f64);
    }
    chart
}

fn steps(table: &SizeTable) -> Vec<(f64, f64)> {
    let ratio = 10f64.powf(0.05);
    let end = table.largest() * ratio;
    let from = std::iter::successors(Some(table.smallest() / ratio), |size| Some(size * ratio));
    from.take_while(|size| *size <= end).map(|size| (size, 100.0 * table.between(size, size * ratio).p)).collect()
}
