//! The experiments as charts.

use super::{Exponential, Paper, PaperServer, PerFeed, Report, ServerStrategy, Sizes, Tuned};
use weir_chart::{Axis, Chart, sheet};
use weir_core::feeds::{Limits, SizeTable};

/// Waits by feed, a group of bars (or a dot of each line) a feed, and the sizes with the limits.
pub fn report_svg(reports: &[Report], sizes: &Sizes) -> String {
    let strategies: Vec<&str> = reports.iter().map(|r| r.strategy.as_str()).collect();
    let charts = [
        waits_chart("Mean wait by feed", reports, |feed| feed.mean_wait_s),
        waits_chart("95 % of messages wait no longer", reports, |feed| feed.p95_wait_s),
        sizes_chart(sizes, reports.first().map_or(&[], |r| &r.limits)),
    ];
    sheet(&format!("Feeds by {}", strategies.join(", ")), &charts)
}

fn waits_chart(title: &str, reports: &[Report], wait_s: impl Fn(&PerFeed) -> f64) -> Chart {
    let feeds = reports.first().map_or(0, |r| r.per_feed.len());
    let mut chart = Chart::new(title, Axis::linear("feed", "").range(0.5, feeds as f64 + 0.5), Axis::log("wait", "s"));
    for (i, report) in reports.iter().enumerate() {
        let used = || report.per_feed.iter().filter(|feed| wait_s(feed) > 0.0);
        let name = format!("{} q{}", report.strategy, used().last().map_or(0, |feed| feed.feed));
        // Many groups of bars would cover one another.
        chart = match feeds {
            ..=6 => chart.bars(name, used().map(|feed| (beside(feed.feed, i, reports.len(), 0.3), wait_s(feed)))),
            _ => chart.line(name, used().map(|feed| (feed.feed as f64, wait_s(feed)))),
        };
    }
    chart
}

/// Each strategy with the default limits, the paper's method and the limits found.
pub fn tuned_svg(tuned: &Tuned, sizes: &Sizes) -> String {
    let axis = Axis::linear("strategy", "").range(0.5, tuned.strategies.len() as f64 + 0.5);
    let mut chart = Chart::new("Mean wait by strategy", axis, Axis::log("mean wait", "s"));
    type Row<'a> = (&'a str, &'a dyn Fn(usize) -> Option<f64>);
    let of = |i: usize| &tuned.strategies[i];
    let rows: [Row<'_>; 3] = [
        ("default limits", &|i| of(i).default.mean_wait_s),
        ("the paper's method", &|i| of(i).paper_method.mean_wait_s),
        ("global search", &|i| Some(of(i).mean_wait_s)),
    ];
    for (k, (name, wait)) in rows.iter().enumerate() {
        let bars = (0..tuned.strategies.len()).filter_map(|i| Some((beside(i + 1, k, 3, 0.2), wait(i)?)));
        chart = chart.bars(*name, bars);
    }
    for (i, found) in tuned.strategies.iter().enumerate() {
        chart = chart.mark(found.strategy.as_str(), i as f64 + 0.5);
    }
    let title = format!("Limits found: {} {:?}", tuned.strategy, tuned.limits);
    sheet(&title, &[chart, sizes_chart(sizes, &tuned.limits)])
}

/// The policies, all messages against the largest, and Figures 6 and 7 with the stand-in.
pub fn paper_svg(paper: &Paper) -> String {
    let axes = (Axis::log("mean wait of the largest 5 %", "s"), Axis::log("mean wait of all", "s"));
    let mut policies = Chart::new("Dual-Gaussian example: who waits how long", axes.0, axes.1);
    for policy in &paper.policies {
        let name = ["one queue, ", ", no limits", " limits", "preemptive "]
            .iter()
            .fold(policy.name.clone(), |n, w| n.replace(w, ""));
        policies = policies.dots(name, [(policy.largest_5_percent_wait_s, policy.mean_wait_s)]);
        if let Some(paper_s) = policy.paper_s {
            policies = policies.level(format!("the paper's {paper_s:.2}"), paper_s);
        }
    }
    let waits = servers_chart(paper, "As Figure 6: mean wait", Axis::log("mean wait", "s"), |s| s.mean_wait_s);
    let rates = Axis::log("λ max", "messages/s");
    let mut rates = servers_chart(paper, "As Figure 7: the largest rate", rates, |s| Some(s.lambda_max));
    rates = rates.dots("bound", paper.servers.iter().map(|s| (s.server as f64, s.lambda_bound)));
    let [gaussian, stand_in] = [Sizes::dual_gaussian(), Sizes::heavy_tailed()].map(|sizes| sizes_chart(&sizes, &[]));
    sheet("Mail scanning feeds: the paper's examples", &[policies, waits, rates, gaussian, stand_in])
}

fn servers_chart(paper: &Paper, title: &str, y: Axis, value: impl Fn(&ServerStrategy) -> Option<f64>) -> Chart {
    let mut chart = Chart::new(title, Axis::linear("mail server (stand-in sizes)", "").range(0.5, 3.5), y);
    let count = paper.servers.first().map_or(0, |s| s.strategies.len());
    for k in 0..count {
        let row = |server: &PaperServer| server.strategies.get(k).and_then(&value);
        let bars = paper.servers.iter().filter_map(|s| Some((beside(s.server, k, count, 0.2), row(s)?)));
        chart = chart
            .bars(paper.servers[0].strategies[k].name.replace(", best limits", "").replace(", no limits", ""), bars);
    }
    chart
}

/// Where the k-th of n bars stands in a group.
fn beside(group: usize, k: usize, n: usize, step: f64) -> f64 {
    group as f64 + (k as f64 - (n as f64 - 1.0) / 2.0) * step
}

/// How many messages have which size, on a logarithmic scale, with the limits as marks.
fn sizes_chart(sizes: &Sizes, limits: &[u64]) -> Chart {
    let table = sizes.fine_table();
    let title = format!("Sizes: {}", sizes.name());
    let mut chart = Chart::new(
        title,
        Axis::log("size", "bytes"),
        Axis::linear("share of messages", "% in a twentieth of a decade"),
    );
    chart = chart.steps("", steps(table)).line("exponential", model(table));
    let mut named = 0.0;
    for (i, limit) in limits.iter().enumerate().filter(|(_, limit)| (1..Limits::UNLIMITED).contains(*limit)) {
        let limit = *limit as f64;
        // Names of limits that stand close would cover one another.
        let name = if limit > named * 1.25 { format!("s{}", i + 1) } else { String::new() };
        named = if name.is_empty() { named } else { limit };
        chart = chart.mark(name, limit);
    }
    chart
}

/// The same of the exponential model (the paper's Figures 5 and 8).
fn model(table: &SizeTable) -> Vec<(f64, f64)> {
    let model = Exponential::fit(table);
    let share = |size: f64| 100.0 * (model.share_below(size * RATIO) - model.share_below(size));
    steps(table).into_iter().map(|(size, _)| (size, share(size))).collect()
}

/// A twentieth of a decade.
const RATIO: f64 = 1.122_018_454_301_963_4;

fn steps(table: &SizeTable) -> Vec<(f64, f64)> {
    let ratio = RATIO;
    let end = table.largest() * ratio;
    let from = std::iter::successors(Some(table.smallest() / ratio), |size| Some(size * ratio));
    from.take_while(|size| *size <= end).map(|size| (size, 100.0 * table.between(size, size * ratio).p)).collect()
}
