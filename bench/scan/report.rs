//! The table for the reader, then figures and ratios for the machine.

use crate::round::Round;
use std::fmt;

/// What a run showed.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<String>,
    figures: Vec<String>,
    ratios: Vec<String>,
}

impl Report {
    /// What the next rows are about.
    pub(crate) fn title(&mut self, text: &str) {
        self.rows.push(format!("\n{text}"));
    }

    /// The medians of one side's rounds.
    pub(crate) fn row(&mut self, name: &str, rounds: &[Round]) {
        let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
        let ms = |value: fn(&Round) -> f64| {
            let value = of(value) * 1e3;
            if value.is_nan() { "-".to_owned() } else { format!("{value:.1}") }
        };
        let infected: usize = rounds.iter().map(|round| round.infected).sum();
        let leaked: usize = rounds.iter().map(|round| round.leaked).sum();
        self.rows.push(format!(
            "{name:<22} {:>9.1} {:>9} {:>9} {:>9} {:>9} {:>10.2} {:>8.1} {:>8.1} {:>12}",
            of(|round| round.per_s),
            ms(|round| round.small.mean_s),
            ms(|round| round.small.p95_s),
            ms(|round| round.large.mean_s),
            ms(|round| round.large.p95_s),
            of(|round| round.cpu_s),
            of(|round| round.rss_mb),
            of(|round| round.pss_mb),
            format!("{} of {infected}", infected - leaked),
        ));
    }

    /// A line of its own below the title.
    pub(crate) fn line(&mut self, text: String) {
        self.rows.push(text);
    }

    /// A closing line `figure NAME VALUE`.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push(format!("figure {name} {value:.2}"));
    }

    /// A closing line `ratio NAME VALUE`.
    pub(crate) fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.push(format!("ratio {name} {value:.2}"));
    }
}

/// The median over rounds of one side's value ÷ the other's within a round.
pub(crate) fn ratio(above: &[Round], below: &[Round], value: fn(&Round) -> f64) -> f64 {
    median(above.iter().zip(below).map(|(above, below)| value(above) / value(below)))
}

/// The middle one; the mean of the two in the middle of an even number.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Mail scanned by Weir, and by Amavis or Rspamd with Postfix, the same clamd for all, rounds taken in turn, medians."
        )?;
        writeln!(
            f,
            "Times in system in ms, from due at the client to arrived at the sink; processor and memory without clamd's."
        )?;
        writeln!(
            f,
            "{:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>8} {:>12}",
            "", "messages/s", "small", "p95", "large", "p95", "CPU s/1000", "RSS MB", "PSS MB", "caught"
        )?;
        let lines = self.rows.iter().map(String::as_str).chain([""]);
        let lines = lines.chain(self.figures.iter().chain(&self.ratios).map(String::as_str));
        lines.into_iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
