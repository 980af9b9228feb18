//! The drawing itself: a chart to SVG elements.

use crate::axis::{Scale, number};
use crate::label::spread;
use crate::{Chart, Series, Style};
use std::fmt::Write;

const WIDTH: f64 = 920.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 48.0;
const PLOT_HEIGHT: f64 = 240.0;
const CHART_HEIGHT: f64 = TOP + PLOT_HEIGHT + BOTTOM;
const LABEL_GAP: f64 = 14.0;
/// A chart labels so many line ends; a crowd beyond that is drawn thin and without names.
const LABELS_MAX: usize = 14;

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
    let height = head + CHART_HEIGHT * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">{STYLE}<rect width=\"{WIDTH}\" height=\"{height}\" class=\"ground\"/>\n"
    );
    if !heading.is_empty() {
        text(&mut svg, (LEFT, 24.0), "class=\"h\"", heading);
    }
    for (i, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", head + CHART_HEIGHT * i as f64);
        Drawing::new(chart).draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

struct Drawing<'a> {
    chart: &'a Chart,
    x: Scale,
    y: Scale,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart) -> Drawing<'a> {
        let points = || chart.series.iter().flat_map(|s| &s.points);
        let x = chart.x.scale(points().map(|p| p.0).chain(chart.marks.iter().map(|m| m.1)));
        let y = chart.y.scale(points().map(|p| p.1).chain(chart.levels.iter().map(|l| l.1)));
        Drawing { chart, x, y }
    }

    fn draw(&self, svg: &mut String) {
        text(svg, (LEFT, 20.0), "class=\"t\"", &self.chart.title);
        self.axes(svg);
        if self.chart.series.iter().all(|s| s.points.is_empty()) {
            let middle = (LEFT + self.plot_width() / 2.0, TOP + PLOT_HEIGHT / 2.0);
            text(svg, middle, "class=\"faint\" text-anchor=\"middle\"", "no data yet");
        }
        for series in &self.chart.series {
            self.series(svg, series);
        }
        self.limits(svg);
        self.line_ends(svg);
    }

    fn axes(&self, svg: &mut String) {
        let (right, bottom) = (LEFT + self.plot_width(), TOP + PLOT_HEIGHT);
        for tick in &self.y.ticks {
            let y = self.py(*tick);
            let _ = write!(svg, "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            text(svg, (LEFT - 8.0, y + 4.0), "class=\"faint\" text-anchor=\"end\"", &number(*tick));
        }
        for tick in &self.x.ticks {
            let x = self.px(*tick);
            let _ =
                write!(svg, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>", bottom + 5.0);
            text(svg, (x, bottom + 18.0), "class=\"faint\" text-anchor=\"middle\"", &number(*tick));
        }
        text(svg, (right, bottom + 36.0), "class=\"faint\" text-anchor=\"end\"", &self.chart.x.caption());
        text(svg, (LEFT - 48.0, TOP - 14.0), "class=\"faint\"", &self.chart.y.caption());
        svg.push('\n');
    }

    fn series(&self, svg: &mut String, series: &Series) {
        let visible = |p: &&(f64, f64)| self.chart.x.accepts(p.0) && self.chart.y.accepts(p.1);
        let points: Vec<(f64, f64)> =
            series.points.iter().filter(visible).map(|p| (self.px(p.0), self.py(p.1))).collect();
        let colour = colour(series.colour);
        match series.style {
            Style::Line => self.path(svg, &points, &format!("class=\"l{}\" stroke=\"{colour}\"", self.crowd())),
            Style::Steps => {
                self.path(svg, &steps(&points), &format!("class=\"l{}\" stroke=\"{colour}\"", self.crowd()));
            }
            Style::Dashed => self.path(svg, &points, &format!("class=\"d\" stroke=\"{colour}\"")),
            Style::Dots => points.iter().for_each(|(x, y)| {
                let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }),
            Style::Bars => self.bars(svg, &points, colour),
        }
        svg.push('\n');
    }

    fn path(&self, svg: &mut String, points: &[(f64, f64)], attributes: &str) {
        let coordinates: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(svg, "<polyline {attributes} points=\"{}\"/>", coordinates.join(" "));
    }

    fn bars(&self, svg: &mut String, points: &[(f64, f64)], colour: &str) {
        let nearest = points.windows(2).map(|w| (w[1].0 - w[0].0).abs()).fold(40.0, f64::min);
        let (width, bottom) = ((nearest * 0.8).max(1.0), TOP + PLOT_HEIGHT);
        for (x, y) in points {
            let (left, height) = (x - width / 2.0, bottom - y);
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
            );
        }
    }

    fn limits(&self, svg: &mut String) {
        let (right, bottom) = (LEFT + self.plot_width(), TOP + PLOT_HEIGHT);
        for (name, level) in &self.chart.levels {
            let y = self.py(*level);
            let _ = write!(svg, "<line class=\"lim\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            text(svg, (LEFT + 4.0, y - 4.0), "class=\"faint\"", name);
        }
        for (name, mark) in &self.chart.marks {
            let x = self.px(*mark);
            let _ = write!(svg, "<line class=\"lim\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
            text(svg, (x + 4.0, TOP + 12.0), "class=\"faint\"", name);
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
        let wanted: Vec<f64> = named.iter().map(|(_, last)| self.py(last.1) - TOP).collect();
        for ((series, last), y) in named.iter().zip(spread(&wanted, LABEL_GAP, PLOT_HEIGHT)) {
            let place = (LEFT + self.plot_width() + 8.0, TOP + y + 4.0);
            let style = format!("style=\"fill:{}\"", colour(series.colour));
            text(svg, place, &style, &format!("{} {}", series.name, number(last.1)));
        }
        svg.push('\n');
    }

    fn crowd(&self) -> &'static str {
        if self.chart.series.len() > LABELS_MAX { " thin" } else { "" }
    }

    fn plot_width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    fn px(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * self.plot_width()
    }

    fn py(&self, value: f64) -> f64 {
        TOP + (1.0 - self.y.place(value)) * PLOT_HEIGHT
    }
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
    for c in content.chars() {
        match c {
            '&' => svg.push_str("&amp;"),
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            c if c.is_control() => svg.push(' '),
            c => svg.push(c),
        }
    }
    svg.push_str("</text>");
}
