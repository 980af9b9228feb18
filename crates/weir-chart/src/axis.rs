//! An axis: its name and unit, its scale, the range it must show, and where its ticks stand.

/// One axis of a chart.
#[derive(Debug, Clone)]
pub struct Axis {
    name: String,
    unit: String,
    log: bool,
    ago: bool,
    from: Option<f64>,
    to: Option<f64>,
}

impl Axis {
    /// A linear axis, such as `Axis::linear("time", "s")`. It includes zero unless told otherwise.
    pub fn linear(name: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { name: name.into(), unit: unit.into(), log: false, ago: false, from: None, to: None }
    }

    /// A logarithmic axis; values that are not positive are not drawn.
    pub fn log(name: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { log: true, ..Axis::linear(name, unit) }
    }

    /// The last `minutes` up to now: values are minutes, and 0 is now.
    pub fn ago(minutes: f64) -> Axis {
        Axis { ago: true, ..Axis::linear("time", "min") }.range(-minutes, 0.0)
    }

    /// What stands at a tick.
    pub(crate) fn tick(&self, value: f64) -> String {
        match self.ago {
            true if value == 0.0 => "now".into(),
            true if value.abs() < 1.0 || (value.abs() < 2.0 && value.fract() != 0.0) => {
                format!("−{} s", number((value.abs() * 60.0).round()))
            }
            true if value.abs() >= DAYS_FROM => format!("−{} d", number(value.abs() / 1_440.0)),
            true if value.abs() >= HOURS_FROM => format!("−{} h", number(value.abs() / 60.0)),
            true => format!("−{} min", number(value.abs())),
            false => number(value),
        }
    }

    /// Shows at least this range, whatever the data.
    #[must_use]
    pub fn range(mut self, from: f64, to: f64) -> Axis {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }

    pub(crate) fn caption(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, self.unit) }
    }

    /// A value of this axis in words, for whoever points at it.
    pub(crate) fn said(&self, value: f64) -> String {
        let rounded = if self.ago { (value * 60.0).round() / 60.0 } else { value };
        match self.ago {
            true if rounded.abs() < 2.0 && rounded != 0.0 => format!("−{} s", number((rounded.abs() * 60.0).round())),
            true => self.tick(if rounded.abs() < HOURS_FROM { rounded.round() } else { rounded }),
            false => number(value),
        }
    }

    pub(crate) fn accepts(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// Fits the axis to `values`.
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let seen = values.filter(|v| self.accepts(*v));
        let (mut low, mut high) = seen.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        for wanted in [self.from, self.to].into_iter().flatten().filter(|v| self.accepts(*v)) {
            (low, high) = (low.min(wanted), high.max(wanted));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match (self.log, self.ago) {
            (true, _) => Scale::log(low, high),
            (false, true) => Scale::linear(low.min(0.0), high.max(0.0), clock_step),
            (false, false) => Scale::linear(low.min(0.0), high.max(0.0), nice_step),
        }
    }
}

/// A range with its ticks, mapping values to 0 … 1.
#[derive(Debug)]
pub(crate) struct Scale {
    log: bool,
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    fn linear(low: f64, high: f64, step: fn(f64) -> f64) -> Scale {
        let high = if high > low { high } else { low + 1.0 };
        let step = step((high - low) / 5.0);
        let first = (low / step).floor();
        let last = (high / step - 1e-9).ceil();
        let ticks = (0..=((last - first) as usize).min(20)).map(|i| (first + i as f64) * step).collect();
        Scale { log: false, low: first * step, high: last * step, ticks }
    }

    fn log(low: f64, high: f64) -> Scale {
        let first = low.log10().floor();
        let last = high.log10().ceil().max(first + 1.0);
        let every = ((last - first) / 8.0).ceil().max(1.0);
        let count = ((last - first) / every) as usize;
        let ticks = (0..=count).map(|i| 10f64.powf(first + every * i as f64)).collect();
        Scale { log: true, low: 10f64.powf(first).max(f64::MIN_POSITIVE), high: 10f64.powf(last), ticks }
    }

    /// A value rounded to what can be seen on the axis, about a tenth of the way between two ticks. Whole numbers stay as they are, and no
    /// value becomes zero.
    pub(crate) fn rounded(&self, value: f64) -> f64 {
        let step = match self.ticks[..] {
            [first, second, ..] if !self.log => second - first,
            _ => return value,
        };
        let unit = 10f64.powf((step.log10() + 1e-9).floor() - 1.0).min(1.0);
        let rounded = (value / unit).round() * unit;
        if rounded.is_finite() && rounded != 0.0 { rounded } else { value }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

/// From so many minutes on, the past is shown in hours, and in days.
const HOURS_FROM: f64 = 120.0;
const DAYS_FROM: f64 = 2.0 * 1_440.0;

/// Steps that a clock and a calendar have, in minutes: five seconds, a quarter of a minute, half of one, and so on.
fn clock_step(rough: f64) -> f64 {
    const STEPS: [f64; 20] = [
        1.0 / 12.0,
        0.25,
        0.5,
        1.0,
        2.0,
        5.0,
        10.0,
        15.0,
        30.0,
        60.0,
        120.0,
        240.0,
        360.0,
        720.0,
        1_440.0,
        2_880.0,
        7.0 * 1_440.0,
        30.0 * 1_440.0,
        73.0 * 1_440.0,
        180.0 * 1_440.0,
    ];
    STEPS.into_iter().find(|step| *step >= rough * 0.999).unwrap_or_else(|| nice_step(rough))
}

/// A number as short as it can be said: 0.25, 12, 3 400, 5M.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".into(),
        s if !(1e-4..1e15).contains(&s) => format!("{value:.0e}"),
        s if s >= 1e6 => format!("{}M", trim(value / 1e6)),
        s if s >= 1e4 => format!("{}k", trim(value / 1e3)),
        _ => trim(value),
    }
}

fn trim(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 1.0 {
        2
    } else {
        4
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_around_the_data() {
        let scale = Axis::linear("", "").scale([3.0, 97.0].into_iter());
        assert_eq!(scale.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let scale = Axis::log("", "").scale([0.3, 40.0].into_iter());
        assert_eq!(scale.ticks.len(), 4);
        assert!((scale.place(1.0) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_past_has_the_steps_of_a_clock() {
        for (minutes, expected) in [
            (1.0, vec!["−1 min", "−45 s", "−30 s", "−15 s", "now"]),
            (2.0, vec!["−2 min", "−90 s", "−1 min", "−30 s", "now"]),
            (10.0, vec!["−10 min", "−8 min", "−6 min", "−4 min", "−2 min", "now"]),
            (1_440.0, vec!["−24 h", "−18 h", "−12 h", "−6 h", "now"]),
            (7.0 * 1_440.0, vec!["−8 d", "−6 d", "−4 d", "−2 d", "now"]),
            (365.0 * 1_440.0, vec!["−365 d", "−292 d", "−219 d", "−146 d", "−73 d", "now"]),
        ] {
            let axis = Axis::ago(minutes);
            let said: Vec<String> = axis.scale([].into_iter()).ticks.iter().map(|tick| axis.tick(*tick)).collect();
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_value_is_said_as_exactly_as_its_axis_is() {
        let said = |high: f64, value: f64| number(Axis::linear("", "").scale([high].into_iter()).rounded(value));
        assert_eq!(said(48.0, 39.93), "40");
        assert_eq!(said(3.0, 2.667), "2.7");
        assert_eq!(said(0.9, 0.123_4), "0.12");
        assert_eq!(said(900.0, 437.0), "437");
        assert_eq!(said(48.0, 0.03), "0.03");
        assert_eq!(number(Axis::log("", "").scale([0.1, 100.0].into_iter()).rounded(2.667)), "2.67");
    }

    #[test]
    fn numbers_are_short() {
        let said: Vec<String> = [0.0, 0.25, 12.0, 2.667, 3400.0, 25_000.0, 5e6].map(number).into();
        assert_eq!(said, ["0", "0.25", "12", "2.67", "3400", "25k", "5M"]);
    }
}
