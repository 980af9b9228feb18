//! The picture of a scenario, as in the thesis's Figures 4-3 to 4-5: rates over time, ideals dashed.

use super::interval::SchedulerOutcome;
use super::scenario::Scenario;
use super::simulation::Timeline;
use weir_chart::{Axis, Chart, sheet};

/// One chart of all servers together, then one for each server, as an SVG document.
pub fn chart(scenario: &Scenario, outcome: &SchedulerOutcome, timeline: &Timeline) -> String {
    let heading = format!("Service under {}", format!("{:?}", outcome.scheduler).to_uppercase());
    let rates = |client: usize, server: Option<usize>| {
        let name = &scenario.clients[client].name;
        let here = outcome.intervals.iter().filter(|interval| interval.rates.contains_key(name));
        here.flat_map(|interval| timeline.rates(client, server, (interval.from_s, interval.to_s))).collect::<Vec<_>>()
    };
    let mut all = blank(scenario, "all servers together; dashed: the ideal share");
    for (i, client) in scenario.clients.iter().enumerate() {
        all = all.line(&client.name, rates(i, None)).dashed("", ideal_steps(outcome, &client.name));
    }
    let mut charts = vec![all];
    for (j, server) in scenario.servers.iter().enumerate() {
        let mut one = blank(scenario, &format!("at {}", server.name));
        for (i, client) in scenario.clients.iter().enumerate() {
            // A client that does not use the server keeps its place in the order of colours.
            let points = if client.servers.contains(&server.name) { rates(i, Some(j)) } else { Vec::new() };
            one = one.line(&client.name, points);
        }
        charts.push(one);
    }
    sheet(&heading, &charts)
}

fn blank(scenario: &Scenario, title: &str) -> Chart {
    let time = Axis::linear("time", "s").range(0.0, scenario.duration_s);
    Chart::new(title, time, Axis::linear("rate", "work units/s"))
}

fn ideal_steps(outcome: &SchedulerOutcome, client: &str) -> Vec<(f64, f64)> {
    let known = outcome.intervals.iter().filter_map(|i| Some((i, *i.ideal.get(client)?)));
    known.flat_map(|(interval, ideal)| [(interval.from_s, ideal), (interval.to_s, ideal)]).collect()
}
