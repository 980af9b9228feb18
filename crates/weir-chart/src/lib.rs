//! Charts as SVG text.
//!
//! Numbers go in and one string comes out; there are no dependencies. Axes carry units, gridlines are few, each line is labelled at its end
//! rather than in a legend, and limits and ideals are thin dashed lines. A chart that is a file of its own brings its colours, and follows
//! the reader's choice of light or dark; one inside a page has the colours of the page. A chart without data says so.

mod axis;
mod draw;
mod label;

pub use axis::Axis;

/// One chart.
#[derive(Debug, Clone)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    levels: Vec<(String, f64)>,
    marks: Vec<(String, f64)>,
    empty: Option<String>,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    /// Where an area begins, point by point: on top of the one before it. Empty for everything else.
    base: Vec<f64>,
    style: Style,
    /// Which of the palette's colours; series that belong together share one.
    colour: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Line,
    Steps,
    Dashed,
    Dots,
    Bars,
    Area,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart { title: title.into(), x, y, series: Vec::new(), levels: Vec::new(), marks: Vec::new(), empty: None }
    }

    /// A line through the points, named at its end.
    #[must_use]
    pub fn line(self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        self.series(name, points, Style::Line)
    }

    /// A value that holds from each point to the next.
    #[must_use]
    pub fn steps(self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        self.series(name, points, Style::Steps)
    }

    /// Separate dots.
    #[must_use]
    pub fn dots(self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        self.series(name, points, Style::Dots)
    }

    /// Bars from zero, one for each point, as wide as the distance between points allows.
    #[must_use]
    pub fn bars(self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        self.series(name, points, Style::Bars)
    }

    /// Areas on top of each other, all with a value at each `x`: parts of a whole.
    #[must_use]
    pub fn stack<'a>(mut self, x: &[f64], parts: impl IntoIterator<Item = (&'a str, Vec<f64>)>) -> Chart {
        let mut base = vec![0.0; x.len()];
        for (name, values) in parts {
            let known = |value: Option<&f64>| value.copied().filter(|value| value.is_finite()).unwrap_or(0.0);
            let top: Vec<f64> = base.iter().enumerate().map(|(at, below)| below + known(values.get(at))).collect();
            self = self.series(name, x.iter().copied().zip(top.iter().copied()), Style::Area);
            if let Some(last) = self.series.last_mut() {
                last.base = base;
            }
            base = top;
        }
        self
    }

    /// A thin dashed line in the colour of the series before it: its ideal or its model.
    #[must_use]
    pub fn dashed(self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        let colour = self.series.last().map_or(0, |s| s.colour);
        self.dashed_in(colour, name, points)
    }

    /// The same in the colour of the series that is called `of`.
    #[must_use]
    pub fn dashed_for(self, of: &str, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        let colour = self.series.iter().find(|series| series.name == of).map_or(0, |series| series.colour);
        self.dashed_in(colour, name, points)
    }

    fn dashed_in(
        mut self,
        colour: usize,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Chart {
        self = self.series(name, points, Style::Dashed);
        if let Some(last) = self.series.last_mut() {
            last.colour = colour;
        }
        self
    }

    /// A thin dashed horizontal line across the chart: a limit or a threshold.
    #[must_use]
    pub fn level(mut self, name: impl Into<String>, y: f64) -> Chart {
        self.levels.push((name.into(), y));
        self
    }

    /// A thin dashed vertical line across the chart: the moment when something happened.
    #[must_use]
    pub fn mark(mut self, name: impl Into<String>, x: f64) -> Chart {
        self.marks.push((name.into(), x));
        self
    }

    /// The text that is shown while there is no data, such as what would fill the chart.
    #[must_use]
    pub fn when_empty(mut self, words: impl Into<String>) -> Chart {
        self.empty = Some(words.into());
        self
    }

    /// The chart as a part of an HTML page: an `svg` element without styles or colours of its own. The page colours the
    /// classes `c0` … (lines) and `f0` … (areas and labels) by series, `g` (grid), `lim` (limits), `l` and `d` (lines, dashed
    /// ones) and `faint` (captions).
    pub fn to_inline_svg(&self, width: u32, height: u32) -> String {
        draw::inline(self, f64::from(width), f64::from(height))
    }

    /// The chart as a whole SVG document.
    pub fn to_svg(&self) -> String {
        sheet("", std::slice::from_ref(self))
    }

    fn series(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>, style: Style) -> Chart {
        let colour = self.series.iter().filter(|s| s.style != Style::Dashed).count();
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let points = points.into_iter().filter(finite).collect();
        self.series.push(Series { name: name.into(), points, base: Vec::new(), style, colour });
        self
    }
}

/// Several charts under one heading, one below the other, as a whole SVG document.
pub fn sheet(heading: &str, charts: &[Chart]) -> String {
    draw::sheet(heading, charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Chart {
        Chart::new("Service", Axis::linear("time", "s"), Axis::linear("rate", "requests/s"))
            .steps("client 1", [(0.0, 4.0), (25.0, 2.7), (125.0, 4.0)])
            .dashed("", [(0.0, 4.0), (125.0, 4.0)])
            .line("client <2>", [(0.0, 4.0), (125.0, 4.01)])
            .level("limit", 5.0)
            .mark("stop", 30.0)
    }

    #[test]
    fn names_are_escaped_and_every_part_is_drawn() {
        let svg = example().to_svg();
        assert!(svg.contains("client &lt;2&gt;") && !svg.contains("<2>"));
        for part in ["time (s)", "rate (requests/s)", "limit", "stop", "client 1"] {
            assert!(svg.contains(part), "{part} is missing");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_chart_inside_a_page_brings_no_style() {
        let svg = example().to_inline_svg(480, 160);
        assert!(!svg.contains("style") && !svg.contains('#'), "{svg}");
        for part in ["viewBox=\"0 0 480 160\"", "class=\"l c1\"", "class=\"f0\"", "<title>Service</title>", "limit"] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        let empty = Chart::new("x", Axis::ago(10.0), Axis::linear("y", "")).when_empty("mail would fill this");
        let svg = empty.to_inline_svg(480, 160);
        assert!(svg.contains("mail would fill this") && svg.contains(">now<") && svg.contains("−10 min"), "{svg}");
    }

    #[test]
    fn a_stack_adds_up_and_says_each_part_by_itself() {
        let axis = Axis::linear("share", "%").range(0.0, 100.0);
        let chart = Chart::new("Shares", Axis::ago(2.0), axis);
        let chart = chart.stack(&[-2.0, -1.0, 0.0], [("known", vec![80.0, 30.0, 30.0]), ("<new>", vec![20.0, 70.0])]);
        let svg = chart.to_inline_svg(480, 160);
        assert_eq!(svg.matches("<polygon class=\"a f").count(), 2, "{svg}");
        assert!(svg.contains(">known 30<") && svg.contains("&lt;new&gt; 0"), "{svg}");
        assert!(svg.contains("−60 s: known 30, &lt;new&gt; 70</title>"), "values under the pointer: {svg}");
        assert!(!chart.to_svg().contains("NaN"));
    }

    #[test]
    fn every_chart_of_a_page_says_its_values_under_the_pointer() {
        let points = (0..3_000).map(|n| (f64::from(n) / -300.0, f64::from(n)));
        let svg = Chart::new("x", Axis::ago(10.0), Axis::linear("held", "recipients"))
            .steps("held", points)
            .to_inline_svg(480, 160);
        let titles = svg.matches("<title>").count();
        assert!((20..80).contains(&titles), "{titles}: enough to point at, and no more");
        assert!(!example().to_svg().contains("class=\"p\""), "a chart of its own has no pointer");
    }

    #[test]
    fn long_numbers_have_their_place_beside_the_axis() {
        let left = |most: f64| {
            let chart = Chart::new("x", Axis::ago(10.0), Axis::linear("y", "")).line("l", [(-1.0, 0.0), (0.0, most)]);
            let svg = chart.to_inline_svg(480, 160);
            let grid = svg.split("class=\"g\" x1=\"").nth(1).and_then(|rest| rest.split('"').next());
            grid.and_then(|x| x.parse::<f64>().ok()).expect("a line of the grid")
        };
        assert_eq!(left(40.0), 36.0);
        assert!(left(5_000.0) >= 40.0, "{}", left(5_000.0));
    }

    #[test]
    fn the_name_beside_a_line_has_room_and_an_ideal_has_the_colour_of_what_it_is_for() {
        let axis = Axis::linear("share", "%").range(0.0, 100.0);
        let chart = Chart::new("Shares", Axis::ago(2.0), axis);
        let chart = chart.stack(&[-2.0, -1.0], [("known", vec![80.0, 30.0]), ("strangers", vec![20.0, 70.0])]);
        let svg = chart.dashed_for("known", "fair to known", [(-2.0, 50.0), (-1.0, 100.0)]).to_inline_svg(480, 160);
        let name = svg.find(">fair to known 100<").expect("the name and the last value");
        let text = &svg[svg[..name].rfind("<text").expect("a text")..name];
        let x = text.split("x=\"").nth(1).and_then(|rest| rest.split('"').next()).and_then(|x| x.parse::<f64>().ok());
        assert!(x.expect("its place") + 17.0 * 7.0 <= 480.0, "{text}");
        assert!(text.contains("class=\"f0\"") && svg.contains("class=\"d c0\""), "{svg}");
    }

    #[test]
    fn strange_data_still_draws() {
        let axis = || (Axis::log("x", ""), Axis::linear("y", ""));
        let (x, y) = axis();
        assert!(Chart::new("empty", x, y).to_svg().contains("no data"));
        for points in [vec![(0.0, 0.0)], vec![(f64::NAN, 1.0)], vec![(1.0, f64::INFINITY)], vec![(1e-300, 1e300)]] {
            let (x, y) = axis();
            let svg = Chart::new("odd", x, y).line("l", points).to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
