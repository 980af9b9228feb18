//! A picture of one run: who led when, how many faults were in force, how many messages it took.

use super::Options;
use super::lab::ElectionLab;
use crate::input::InputError;
use weir_chart::{Axis, Chart};

/// The run of the first seed as an SVG document.
pub fn plot(options: &Options) -> Result<String, InputError> {
    options.check()?;
    let mut lab = ElectionLab::new(options, options.seed);
    lab.tally.record = true;
    let _ = lab.run();
    let end = lab.world.now().as_secs_f64();
    let heading = format!("{} machines, seed {}, faults: {}", options.nodes, options.seed, options.faults);
    Ok(weir_chart::sheet(&heading, &[leaders(&lab, end), faults(&lab, end), messages(&lab, end)]))
}

fn time(end: f64) -> Axis {
    Axis::linear("time", "s").range(0.0, end)
}

fn leaders(lab: &ElectionLab, end: f64) -> Chart {
    let title = format!("Who acted (0 = nobody; the best is node {})", lab.best() + 1);
    let mut steps = vec![(0.0, 0.0)];
    steps.extend(lab.tally.leaders.iter().map(|(at, leader)| (*at, leader.map_or(0.0, |host| host as f64 + 1.0))));
    let last = steps.last().map_or(0.0, |step| step.1);
    steps.push((end, last));
    Chart::new(title, time(end), Axis::linear("node", "").range(0.0, lab.real as f64)).steps("acting node", steps)
}

fn faults(lab: &ElectionLab, end: f64) -> Chart {
    let mut turns: Vec<(f64, f64)> = Vec::new();
    for episode in &lab.plan.episodes {
        turns.push((episode.from.as_secs_f64(), 1.0));
        turns.push((episode.until.as_secs_f64(), -1.0));
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut steps = vec![(0.0, 0.0)];
    let mut in_force = 0.0;
    for (at, turn) in turns {
        in_force += turn;
        steps.push((at, in_force));
    }
    steps.push((end, in_force));
    let healed = steps.iter().rev().nth(1).map_or(0.0, |step| step.0);
    Chart::new("Faults in force", time(end), Axis::linear("faults", ""))
        .steps("faults", steps)
        .mark("all healed", healed)
}

fn messages(lab: &ElectionLab, end: f64) -> Chart {
    let mut counts = vec![0.0; end as usize + 1];
    for at in &lab.tally.sent_at {
        if let Some(count) = counts.get_mut(*at as usize) {
            *count += 1.0;
        }
    }
    let bars = counts.into_iter().enumerate().map(|(second, count)| (second as f64 + 0.5, count));
    Chart::new("Messages in each second", time(end), Axis::linear("messages", "")).bars("", bars)
}
