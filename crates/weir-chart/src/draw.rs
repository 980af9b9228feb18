//! Draws a chart as SVG elements.

use crate::axis::{Scale, number};
use crate::label::spread;
use crate::{Chart, Series, Style};
use std::fmt::Write;

/// How much room a chart has, and for what.
#[derive(Debug, Clone, Copy)]
struct Frame {
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    plot_height: f64,
    /// Part of a page, which has the title and the colours.
    inline: bool,
}

/// A chart of its own.
const SHEET: Frame =
    Frame { width: 920.0, left: 64.0, right: 190.0, top: 52.0, bottom: 48.0, plot_height: 240.0, inline: false };

impl Frame {
    fn inline(width: f64, height: f64) -> Frame {
        let (top, bottom) = (24.0, 22.0);
        let plot_height = (height - top - bottom).max(20.0);
        Frame { width, left: 36.0, right: 96.0, top, bottom, plot_height, inline: true }
    }

    fn height(&self) -> f64 {
        self.top + self.plot_height + self.bottom
    }

    fn plot_width(&self) -> f64 {
        (self.width - self.left - self.right).max(20.0)
    }
}

const LABEL_GAP: f64 = 14.0;
/// Between the end of a line and its name.
const NAME_GAP: f64 = 8.0;
/// Between a label beside the axis and the axis.
const TICK_GAP: f64 = 8.0;
/// What a character of such a label takes at most.
const DIGIT_WIDTH: f64 = 8.5;
/// What a character of a name beside the plot takes at most, and how many the value behind the name has.
const LETTER_WIDTH: f64 = 7.0;
const VALUE_LENGTH: usize = 4;
/// What a label below the axis takes.
const LABEL_WIDTH: f64 = 56.0;
/// A chart labels so many line ends; a crowd beyond that is drawn thin and without names.
const LABELS_MAX: usize = 14;
/// Stripes of a page's chart that say their values.
const POINTED: usize = 48;

/// Okabe and Ito's colours, which the colour-blind tell apart; grey for the ninth and on.
const STYLE: &str = "<style>
svg{font:12px system-ui,sans-serif}text{fill:#1f2328}.faint{fill:#59636e}.h{font-size:16px;font-weight:600}
.t{font-size:14px;font-weight:600}.ground{fill:#fff}.g{stroke:#d8dee4}.lim{stroke:#59636e;stroke-dasharray:5 4}
.l{fill:none;stroke-width:1.8;stroke-linejoin:round}.thin{stroke-width:.9;opacity:.6}
.d{fill:none;stroke-width:1.2;stroke-dasharray:5 4}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}.ground{fill:#0d1117}.g{stroke:#30363d}
.lim{stroke:#9198a1}}
</style>";
const PALETTE: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7f3fbf", "#8c6d31"];

pub(crate) fn sheet(heading: &str, charts: &[Chart]) -> String {
    let head = if heading.is_empty() { 0.0 } else { 32.0 };
    let (width, height) = (SHEET.width, head + SHEET.height() * charts.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">{STYLE}<rect width=\"{width}\" height=\"{height}\" class=\"ground\"/>\n"
    );
    if !heading.is_empty() {
        text(&mut svg, (SHEET.left, 24.0), "class=\"h\"", heading);
    }
    for (i, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", head + SHEET.height() * i as f64);
        Drawing::new(chart, SHEET).draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// A chart as part of a page: no colours and no fonts of its own, only classes, so that a page may forbid styles in its text.
pub(crate) fn inline(chart: &Chart, width: f64, height: f64) -> String {
    let frame = Frame::inline(width, height);
    let (width, height) = (frame.width, frame.height());
    let mut svg = format!("<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>");
    escaped(&mut svg, &chart.title);
    svg.push_str("</title>");
    Drawing::new(chart, frame).draw(&mut svg);
    svg.push_str("</svg>");
    svg
}

struct Drawing<'a> {
    chart: &'a Chart,
    frame: Frame,
    x: Scale,
    y: Scale,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart, frame: Frame) -> Drawing<'a> {
        let points = || chart.series.iter().flat_map(|s| &s.points);
        let x = chart.x.scale(points().map(|p| p.0).chain(chart.marks.iter().map(|m| m.1)));
        let y = chart.y.scale(points().map(|p| p.1).chain(chart.levels.iter().map(|l| l.1)));
        let digits = y.ticks.iter().map(|tick| number(*tick).chars().count()).max().unwrap_or(0);
        let left = frame.left.max(digits as f64 * DIGIT_WIDTH + TICK_GAP);
        // Not by the values that happen to be there: the plot of a live page must not change its width.
        let names = chart.series.iter().filter(|series| !series.name.is_empty()).take(LABELS_MAX);
        let longest = names.map(|series| series.name.chars().count() + 1 + VALUE_LENGTH).max().unwrap_or(0);
        let right = (longest as f64 * LETTER_WIDTH + NAME_GAP).min(frame.width / 3.0).max(frame.right);
        Drawing { chart, frame: Frame { left, right, ..frame }, x, y }
    }

    fn draw(&self, svg: &mut String) {
        let Frame { left, top, plot_height, inline, .. } = self.frame;
        if !inline {
            text(svg, (left, 20.0), "class=\"t\"", &self.chart.title);
        }
        self.axes(svg);
        if self.chart.series.iter().all(|s| s.points.is_empty()) {
            let middle = (left + self.frame.plot_width() / 2.0, top + plot_height / 2.0);
            let empty = self.chart.empty.as_deref().unwrap_or("no data yet");
            text(svg, middle, "class=\"faint\" text-anchor=\"middle\"", empty);
        }
        for series in &self.chart.series {
            self.series(svg, series);
        }
        self.limits(svg);
        self.line_ends(svg);
        if inline {
            self.pointers(svg);
        }
    }

    fn axes(&self, svg: &mut String) {
        let (left, right, bottom) = self.edges();
        for tick in &self.y.ticks {
            let y = self.py(*tick);
            let _ = write!(svg, "<line class=\"g\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            text(svg, (left - TICK_GAP, y + 4.0), "class=\"faint\" text-anchor=\"end\"", &number(*tick));
        }
        let every = self.label_every();
        for (from_last, tick) in self.x.ticks.iter().rev().enumerate() {
            let x = self.px(*tick);
            let _ =
                write!(svg, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>", bottom + 5.0);
            if from_last % every == 0 {
                text(svg, (x, bottom + 18.0), "class=\"faint\" text-anchor=\"middle\"", &self.chart.x.tick(*tick));
            }
        }
        if !self.frame.inline {
            text(svg, (right, bottom + 36.0), "class=\"faint\" text-anchor=\"end\"", &self.chart.x.caption());
        }
        let start = if self.frame.inline { 2.0 } else { left - 48.0 };
        text(svg, (start, self.frame.top - 12.0), "class=\"faint\"", &self.chart.y.caption());
        svg.push('\n');
    }

    /// A narrow chart labels every second or third tick, and always the last.
    fn label_every(&self) -> usize {
        let apart = self.frame.plot_width() / self.x.ticks.len().saturating_sub(1).max(1) as f64;
        if self.frame.inline { (LABEL_WIDTH / apart).ceil().max(1.0) as usize } else { 1 }
    }

    fn series(&self, svg: &mut String, series: &Series) {
        let visible = |p: &&(f64, f64)| self.chart.x.accepts(p.0) && self.chart.y.accepts(p.1);
        let points: Vec<(f64, f64)> =
            series.points.iter().filter(visible).map(|p| (self.px(p.0), self.py(p.1))).collect();
        let (line, area) = (self.line_colour(series.colour), self.area_colour(series.colour));
        match series.style {
            Style::Line => self.path(svg, &points, &format!("class=\"l{}{line}", self.crowd())),
            Style::Steps => self.path(svg, &steps(&points), &format!("class=\"l{}{line}", self.crowd())),
            Style::Dashed => self.path(svg, &points, &format!("class=\"d{line}")),
            Style::Dots => points.iter().for_each(|(x, y)| {
                let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" {area}/>");
            }),
            Style::Bars => self.bars(svg, &points, &area),
            Style::Area => self.area(svg, series),
        }
        svg.push('\n');
    }

    fn path(&self, svg: &mut String, points: &[(f64, f64)], attributes: &str) {
        let coordinates: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(svg, "<polyline {attributes} points=\"{}\"/>", coordinates.join(" "));
    }

    /// The rest of a class and its colour, for what is drawn by a pen.
    fn line_colour(&self, index: usize) -> String {
        if self.frame.inline { format!(" c{index}\"") } else { format!("\" stroke=\"{}\"", colour(index)) }
    }

    fn area_colour(&self, index: usize) -> String {
        if self.frame.inline { format!("class=\"f{index}\"") } else { format!("fill=\"{}\"", colour(index)) }
    }

    fn bars(&self, svg: &mut String, points: &[(f64, f64)], colour: &str) {
        let nearest = points.windows(2).map(|w| (w[1].0 - w[0].0).abs()).fold(40.0, f64::min);
        let (width, bottom) = ((nearest * 0.8).max(1.0), self.edges().2);
        for (x, y) in points {
            let (left, height) = (x - width / 2.0, bottom - y);
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {colour}/>"
            );
        }
    }

    /// Between an area and the one below it.
    fn area(&self, svg: &mut String, series: &Series) {
        let upper = series.points.iter().map(|p| (self.px(p.0), self.py(p.1)));
        let lower = series.points.iter().zip(&series.base).rev().map(|(p, base)| (self.px(p.0), self.py(*base)));
        let corners: Vec<String> = upper.chain(lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let class = match self.frame.inline {
            true => format!("class=\"a f{}\"", series.colour),
            false => format!("fill=\"{}\" fill-opacity=\".7\"", colour(series.colour)),
        };
        let _ = write!(svg, "<polygon {class} points=\"{}\"/>", corners.join(" "));
    }

    /// Stripes that say the values below them to whoever points there.
    fn pointers(&self, svg: &mut String) {
        let (left, right, bottom) = self.edges();
        let width = (right - left) / POINTED as f64;
        for column in 0..POINTED {
            let from = left + column as f64 * width;
            let said = self.said_between(from, from + width);
            if !said.is_empty() {
                let (top, height) = (self.frame.top, bottom - self.frame.top);
                let _ = write!(
                    svg,
                    "<rect class=\"p\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"><title>"
                );
                escaped(svg, &said);
                svg.push_str("</title></rect>");
            }
        }
    }

    /// The last value of each series between two places.
    fn said_between(&self, from: f64, to: f64) -> String {
        let mut at = None;
        let mut said = Vec::new();
        for series in self.chart.series.iter().filter(|s| !s.name.is_empty()).take(LABELS_MAX) {
            let inside = |p: &(f64, f64)| (from..=to).contains(&self.px(p.0));
            if let Some(index) = series.points.iter().rposition(inside) {
                let (x, _) = series.points[index];
                at.get_or_insert(x);
                said.push(format!("{} {}", series.name, number(self.y.rounded(own_value(series, index)))));
            }
        }
        at.map_or_else(String::new, |x| format!("{}: {}", self.chart.x.said(x), said.join(", ")))
    }

    fn limits(&self, svg: &mut String) {
        let (left, right, bottom) = self.edges();
        let top = self.frame.top;
        for (name, level) in &self.chart.levels {
            let y = self.py(*level);
            let _ = write!(svg, "<line class=\"lim\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            // At the top of a page's chart stands the caption.
            let below = self.frame.inline && y < top + 10.0;
            text(svg, (left + 4.0, if below { y + 13.0 } else { y - 4.0 }), "class=\"faint\"", name);
        }
        for (name, mark) in &self.chart.marks {
            let x = self.px(*mark);
            let _ = write!(svg, "<line class=\"lim\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>");
            text(svg, (x + 4.0, top + 12.0), "class=\"faint\"", name);
        }
    }

    /// The name and the last value of each series, beside its end.
    fn line_ends(&self, svg: &mut String) {
        let named: Vec<(&Series, (f64, f64))> = self
            .chart
            .series
            .iter()
            .filter(|s| !s.name.is_empty())
            .filter_map(|s| Some((s, *s.points.last()?)))
            .take(LABELS_MAX)
            .collect();
        let middle = |series: &Series, last: (f64, f64)| last.1 - own_value(series, series.points.len() - 1) / 2.0;
        let place = |(series, last): &(&Series, (f64, f64))| match series.style {
            Style::Area => middle(series, *last),
            _ => last.1,
        };
        let wanted: Vec<f64> = named.iter().map(|end| self.py(place(end)) - self.frame.top).collect();
        for ((series, _), y) in named.iter().zip(spread(&wanted, LABEL_GAP, self.frame.plot_height)) {
            let place = (self.edges().1 + NAME_GAP, self.frame.top + y + 4.0);
            let style = match self.frame.inline {
                true => format!("class=\"f{}\"", series.colour),
                false => format!("style=\"fill:{}\"", colour(series.colour)),
            };
            text(
                svg,
                place,
                &style,
                &format!("{} {}", series.name, number(self.y.rounded(own_value(series, series.points.len() - 1)))),
            );
        }
        svg.push('\n');
    }

    fn crowd(&self) -> &'static str {
        if self.chart.series.len() > LABELS_MAX { " thin" } else { "" }
    }

    /// Left, right and bottom of the plot.
    fn edges(&self) -> (f64, f64, f64) {
        let Frame { left, top, plot_height, .. } = self.frame;
        (left, left + self.frame.plot_width(), top + plot_height)
    }

    fn px(&self, value: f64) -> f64 {
        self.frame.left + self.x.place(value) * self.frame.plot_width()
    }

    fn py(&self, value: f64) -> f64 {
        self.frame.top + (1.0 - self.y.place(value)) * self.frame.plot_height
    }
}

/// The value of a point: of an area, how high it is above the one below.
fn own_value(series: &Series, at: usize) -> f64 {
    series.points.get(at).map_or(0.0, |point| point.1 - series.base.get(at).copied().unwrap_or(0.0))
}

fn colour(index: usize) -> &'static str {
    PALETTE.get(index).copied().unwrap_or("#7d8590")
}

fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points.windows(2).flat_map(|w| [w[0], (w[1].0, w[0].1)]);
    corners.chain(points.last().copied()).collect()
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, content: &str) {
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>");
    escaped(svg, content);
    svg.push_str("</text>");
}

fn escaped(svg: &mut String, content: &str) {
    for c in content.chars() {
        match c {
            '&' => svg.push_str("&amp;"),
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            c if c.is_control() => svg.push(' '),
            c => svg.push(c),
        }
    }
}
