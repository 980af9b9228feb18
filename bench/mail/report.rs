//! The table for the reader, then figures and ratios for the machine.

use crate::round::Round;
use crate::server::Server;
use std::fmt;

/// What a run showed.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<String>,
    figures: Vec<String>,
    ratios: Vec<String>,
}

impl Report {
    /// A closing line `figure NAME VALUE`.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push(format!("figure {name} {value:.1}"));
    }

    /// The rows and ratios of one load: ours first, then Postfix's, then the sink alone, if that was measured.
    pub(crate) fn compared(
        &mut self,
        (name, about): (&str, &str),
        servers: &[Server; 2],
        rounds: &[Vec<Round>; 2],
        direct: &[f64],
    ) {
        self.rows.push(format!("\n{about}"));
        for (server, rounds) in servers.iter().zip(rounds) {
            self.rows.push(row(server.name(), rounds));
        }
        if !direct.is_empty() {
            self.rows.push(format!("{:<26} {:>10.0}", "smtp-sink alone", median(direct.iter().copied())));
        }
        let [ours, theirs] = rounds;
        let ratio =
            |rate: fn(&Round) -> f64| median(ours.iter().zip(theirs).map(|(our, their)| rate(our) / rate(their)));
        self.ratios.push(format!("ratio mail_accept_{name} {:.2}", ratio(|round| round.accepted_per_s)));
        self.ratios.push(format!("ratio mail_end_to_end_{name} {:.2}", ratio(|round| round.end_to_end_per_s)));
    }
}

fn row(name: &str, rounds: &[Round]) -> String {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
    format!(
        "{name:<26} {:>10.0} {:>12.0} {:>13.3} {:>8.1} {:>8.1} {:>9.0}",
        of(|round| round.accepted_per_s),
        of(|round| round.end_to_end_per_s),
        of(|round| round.cpu_s),
        of(|round| round.usage.rss_mb()),
        of(|round| round.usage.pss_mb()),
        of(|round| round.usage.processes as f64),
    )
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Mail through Weir and through Postfix, rounds taken in turn, medians.")?;
        writeln!(
            f,
            "{:<26} {:>10} {:>12} {:>13} {:>8} {:>8} {:>9}",
            "", "accepted/s", "end to end/s", "CPU s/1000", "RSS MB", "PSS MB", "processes"
        )?;
        let (others, named): (Vec<&String>, Vec<&String>) =
            self.ratios.iter().partition(|line| !NAMED.iter().any(|name| line.contains(name)));
        let lines = self.rows.iter().map(String::as_str).chain([""]);
        let lines = lines.chain(self.figures.iter().chain(others).chain(named).map(String::as_str));
        lines.into_iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The ratios that have a goal come last.
const NAMED: [&str; 5] = [
    "mail_accept_4k ",
    "mail_end_to_end_4k ",
    "mail_end_to_end_100k ",
    "mail_accept_4k_correspondents ",
    "mail_end_to_end_4k_correspondents ",
];
