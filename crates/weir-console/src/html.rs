//! Builds HTML in which every value is escaped; forgetting it does not compile.
//!
//! [`html!`](crate::html!) takes a literal with a `{}` for every value. Text is always escaped; only another [`Html`] is inserted as
//! it is, and an `Html` is made only by this macro and by our own charts. The compiler counts the `{}` and refuses one in a tag
//! outside quotes, or at the beginning of an address. Characters that a browser would obey rather than show (controls, changes
//! of direction) become a dot.

use std::fmt::{self, Display, Write as _};
use weir_chart::Chart;

/// Finished markup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

/// Markup from a literal and values.
#[macro_export]
macro_rules! html {
    ($template:literal $(, $value:expr)* $(,)?) => {{
        const TEMPLATE: $crate::html::Template =
            $crate::html::Template::checked($template, <[&str]>::len(&[$(stringify!($value)),*]));
        TEMPLATE.fill(&[$(&$value as &dyn $crate::html::Show),*])
    }};
}

impl Html {
    /// A chart, which writes its own markup and escapes its own words.
    pub fn chart(chart: &Chart, width: u32, height: u32) -> Html {
        Html(chart.to_inline_svg(width, height))
    }

    /// A style sheet that is written in the program; nothing of it comes from anywhere else.
    pub fn style(sheet: &'static str) -> Html {
        Html(format!("<style>{sheet}</style>"))
    }

    /// A page of the guide, whose text is in the program; its reader escapes what is written as markup.
    pub(crate) fn of_guide(rendered: String) -> Html {
        Html(rendered)
    }

    /// Nothing.
    pub fn none() -> Html {
        Html::default()
    }

    /// Appends more.
    pub fn push(&mut self, more: &Html) {
        self.0.push_str(&more.0);
    }

    /// The markup without the texts of its times, which the browser updates by itself: `5 s ago` is not a change.
    pub(crate) fn without_times(&self) -> String {
        let markup = self.as_str();
        let mut settled = String::with_capacity(markup.len());
        let mut rest = markup;
        while let Some((before, time)) = rest.split_once("<time ") {
            let (element, after) = time.split_once("</time>").unwrap_or((time, ""));
            let attributes = element.split_once('>').map_or(element, |(attributes, _)| attributes);
            settled.push_str(before);
            settled.push_str(attributes);
            rest = after;
        }
        settled.push_str(rest);
        settled
    }

    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text of it.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Html {
        let mut whole = Html::default();
        parts.into_iter().for_each(|part| whole.push(&part));
        whole
    }
}

/// A literal with holes.
#[derive(Debug, Clone, Copy)]
pub struct Template(&'static str);

impl Template {
    /// Refuses at compile time a wrong number of values, a hole in a tag outside quotes, and one at the beginning of an address.
    pub const fn checked(text: &'static str, values: usize) -> Template {
        let bytes = text.as_bytes();
        let (mut at, mut holes, mut in_tag, mut in_quotes) = (0, 0, false, false);
        while at < bytes.len() {
            match bytes[at] {
                b'<' if !in_quotes => in_tag = true,
                b'>' if !in_quotes => in_tag = false,
                b'"' if in_tag => in_quotes = !in_quotes,
                b'{' => {
                    assert!(at + 1 < bytes.len() && bytes[at + 1] == b'}', "values are not named in the template");
                    assert!(!in_tag || in_quotes, "no tag and no attribute comes from a value");
                    let first = in_quotes && bytes[at - 1] == b'"';
                    assert!(
                        !first
                            || !(ends(bytes, at, b"href=\"")
                                || ends(bytes, at, b"action=\"")
                                || ends(bytes, at, b"src=\"")),
                        "an address begins in the template: nothing else keeps javascript: out"
                    );
                    holes += 1;
                }
                _ => {}
            }
            at += 1;
        }
        assert!(holes == values, "as many values as holes");
        assert!(!in_quotes, "quotes are closed");
        Template(text)
    }

    /// The literal with the values in its holes.
    pub fn fill(self, values: &[&dyn Show]) -> Html {
        let mut out = String::with_capacity(self.0.len() + 16 * values.len());
        for (at, piece) in self.0.split("{}").enumerate() {
            if let Some(value) = at.checked_sub(1).and_then(|at| values.get(at)) {
                value.show(&mut out);
            }
            out.push_str(piece);
        }
        Html(out)
    }
}

/// Whether `bytes` up to `end` end with `word`.
const fn ends(bytes: &[u8], end: usize, word: &[u8]) -> bool {
    let mut at = 0;
    while at < word.len() {
        if end < word.len() || bytes[end - word.len() + at] != word[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A value that can be put into a hole.
pub trait Show {
    /// Writes the value so that a browser shows it and never interprets it.
    fn show(&self, out: &mut String);
}

impl Show for Html {
    fn show(&self, out: &mut String) {
        out.push_str(&self.0);
    }
}

impl Show for str {
    fn show(&self, out: &mut String) {
        for c in self.chars() {
            match c {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                '\n' | '\t' => out.push(c),
                c if is_obeyed(c) => out.push('·'),
                c => out.push(c),
            }
        }
    }
}

impl Show for String {
    fn show(&self, out: &mut String) {
        self.as_str().show(out);
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn show(&self, out: &mut String) {
        (**self).show(out);
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, out: &mut String) {
        if let Some(value) = self {
            value.show(out);
        }
    }
}

impl<T: Show> Show for [T] {
    fn show(&self, out: &mut String) {
        self.iter().for_each(|value| value.show(out));
    }
}

impl<T: Show> Show for Vec<T> {
    fn show(&self, out: &mut String) {
        self.as_slice().show(out);
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(impl Show for $number {
        fn show(&self, out: &mut String) {
            let _ = write!(out, "{self}");
        }
    })* };
}
numbers!(u8, u16, u32, u64, usize, i32, i64, f64);

/// One piece of a path or a query: percent-encoded.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a>(pub &'a str);

impl Display for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(char::from(byte))?;
                }
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl Show for Piece<'_> {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

/// Anything that can be displayed, as text.
#[derive(Debug, Clone, Copy)]
pub struct Text<T>(pub T);

impl<T: Display> Show for Text<T> {
    fn show(&self, out: &mut String) {
        self.0.to_string().show(out);
    }
}

fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_text() {
        let evil = "<script>alert('x')</script>\" onmouseover=\"alert(1)\u{202e}\u{0}&amp;";
        let page = html!("<p title=\"{}\">{}</p>", evil, evil.to_owned());
        let inside = page.as_str().strip_prefix("<p title=\"").and_then(|rest| rest.strip_suffix("</p>")).unwrap();
        assert_eq!(inside.matches(['<', '\'']).count(), 0, "{inside}");
        assert_eq!(inside.matches('"').count(), 1, "only the quote that ends the attribute: {inside}");
        assert!(inside.contains("&amp;amp;") && !inside.contains(['\u{202e}', '\u{0}']), "{inside}");
    }

    #[test]
    fn markup_goes_in_once_and_is_not_escaped_again() {
        let inner = html!("<b>{}</b>", "a & b");
        let rows: Vec<Html> = (1..3).map(|n| html!("<li>{}</li>", n)).collect();
        assert_eq!(html!("<ul>{}{}</ul>", inner, rows).as_str(), "<ul><b>a &amp; b</b><li>1</li><li>2</li></ul>");
        assert_eq!(html!("<a href=\"/x?y={}\">", Piece("&\"")).as_str(), "<a href=\"/x?y=%26%22\">");
        assert_eq!(html!("{}{}", None::<Html>, Some("<")).as_str(), "&lt;");
        assert_eq!(html!("{}", Text(std::net::Ipv4Addr::LOCALHOST)).as_str(), "127.0.0.1");
    }

    #[test]
    fn a_value_that_looks_like_a_hole_is_none() {
        assert_eq!(html!("<i>{}</i><b>{}</b>", "{}", "x").as_str(), "<i>{}</i><b>x</b>");
    }

    #[test]
    #[should_panic(expected = "an address begins in the template")]
    fn an_address_cannot_come_from_outside() {
        Template::checked("<a href=\"{}\">", 1);
    }

    #[test]
    #[should_panic(expected = "no tag and no attribute comes from a value")]
    fn an_attribute_cannot_come_from_outside() {
        Template::checked("<a href=\"/\" {}>", 1);
    }

    #[test]
    fn pieces_of_addresses_are_encoded() {
        let link = html!("<a href=\"/users/{}\">", Piece("ann/x?\"é"));
        assert_eq!(link.as_str(), "<a href=\"/users/ann%2Fx%3F%22%C3%A9\">");
    }

    #[test]
    fn a_time_that_went_on_is_no_news_and_another_time_is() {
        let time = |at: &str, words: &str| html!("<td><time datetime=\"{}\">{}</time></td>", at, words).without_times();
        assert_eq!(time("14:02", "5 s ago"), time("14:02", "7 s ago"));
        assert_ne!(time("14:02", "5 s ago"), time("14:03", "5 s ago"));
        let after = |words: &str| html!("<time datetime=\"x\">1</time><i>{}</i>", words).without_times();
        assert_ne!(after("2"), after("3"));
        assert_eq!(html!("<b>x</b>").without_times(), "<b>x</b>");
    }
}
