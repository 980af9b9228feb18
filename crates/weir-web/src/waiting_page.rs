//! The page that a browser gets while its request waits. It shows the visitor's place and how long it will take, and reloads by itself.
//!
//! It needs no JavaScript and nothing from elsewhere. Name, text and colours of the site come from the configuration; nothing of the request is repeated in it.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, HeaderName};
use weir_settings::settings;

use crate::identity::Fields;

settings! {
    /// What a browser sees that has to wait.
    #[derive(PartialEq, Eq)]
    pub struct WaitingPage {
        /// Whether browsers that have to wait get a page that shows their place and reloads by itself; other programs get 503 in any case
        pub enabled as "waiting_page": bool = flag(true),
        /// How long the request of a browser waits before it gets that page
        pub after as "waiting_page_after": Duration = duration("3s", "0s"..="10m"),
        /// The name of the site on that page; empty for none
        pub name as "waiting_page_name": String = text("", "up to 200 octets").valid(short),
        /// What else that page says, as plain text; empty for nothing
        pub text as "waiting_page_text": String = text("", "up to 2000 octets").valid(long),
        /// The colour of the name and the place on that page
        pub colour as "waiting_page_colour": String = text("#1a5fb4", "a colour such as #1a5fb4").valid(colour),
        /// The colour behind the text of that page; empty for white, or black where the browser is set to dark
        pub background as "waiting_page_background": String = text("", "a colour such as #ffffff").valid(colour),
    }
}

fn short(text: &str) -> Result<(), String> {
    bounded(text, 200)
}

fn long(text: &str) -> Result<(), String> {
    bounded(text, 2_000)
}

fn bounded(text: &str, most: usize) -> Result<(), String> {
    if text.len() <= most { Ok(()) } else { Err(format!("{} octets are too many: at most {most}", text.len())) }
}

fn colour(text: &str) -> Result<(), String> {
    let digits = text.strip_prefix('#').unwrap_or("");
    let good = matches!(digits.len(), 3 | 6) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if good || text.is_empty() { Ok(()) } else { Err(format!("{text:?} is not a colour: write #1a5fb4")) }
}

/// What a visitor who has to wait is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Notice {
    /// How many visitors go before, if there is a line.
    pub(crate) ahead: Option<u64>,
    /// When it will be its turn.
    pub(crate) wait: Duration,
    /// When the page asks again.
    pub(crate) again: Duration,
}

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Whether a browser asks for a page to display: it accepts HTML by name, and if it says what the request is for, that is navigation.
pub(crate) fn is_for_browser(method: &Method, fields: &(impl Fields + ?Sized)) -> bool {
    *method == Method::GET
        && fields.lines(&ACCEPT).any(|line| line.windows(9).any(|part| part.eq_ignore_ascii_case(b"text/html")))
        && fields.lines(&SEC_FETCH_MODE).all(|mode| mode.eq_ignore_ascii_case(b"navigate"))
}

impl WaitingPage {
    /// The page.
    pub(crate) fn write(&self, notice: &Notice) -> Bytes {
        let name = escaped(&self.name);
        let title =
            if name.is_empty() { "One moment, please".to_owned() } else { format!("{name}: one moment, please") };
        let again = whole_seconds(notice.again);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<meta http-equiv=\"refresh\" content=\"{again}\">\n<title>{title}</title>\n\
             <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;color:#222;{}}}\
             h1{{font-size:1.6rem}}h1,strong{{color:{}}}{}</style>\n",
            style("background", &self.background),
            if self.colour.is_empty() { "inherit" } else { &self.colour },
            if self.background.is_empty() {
                "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}h1,strong{filter:brightness(1.6)}}"
            } else {
                ""
            },
        );
        let _ = writeln!(page, "<h1>{}</h1>", if name.is_empty() { "One moment, please" } else { &name });
        let _ = writeln!(
            page,
            "<p>More people want to see this site than it can serve at once. You are in line, and this page asks again by itself.</p>"
        );
        let _ = writeln!(page, "{}", place(notice));
        if !self.text.is_empty() {
            let _ = writeln!(page, "<p>{}</p>", escaped(&self.text));
        }
        let _ = writeln!(
            page,
            "<p><small>Your place is kept in a cookie. Asking more often does not bring you in sooner. This page asks again in {}.</small></p>\n</html>",
            words(notice.again)
        );
        page.into()
    }
}

fn place(notice: &Notice) -> String {
    let wait = words(notice.wait);
    match notice.ahead {
        Some(0) => format!("<p>You are <strong>next</strong>: about {wait}.</p>"),
        Some(1) => format!("<p><strong>One</strong> visitor is before you: about {wait}.</p>"),
        Some(ahead) => format!("<p><strong>{ahead}</strong> visitors are before you: about {wait}.</p>"),
        None => format!("<p>It will take about {wait}.</p>"),
    }
}

/// Whole seconds, at least one.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs_f64().ceil() as u64).max(1)
}

fn words(time: Duration) -> String {
    match whole_seconds(time) {
        1 => "a second".to_owned(),
        seconds @ 2..=90 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds.div_ceil(60)),
    }
}

fn style(property: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{property}:{value};") }
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn text(page: &WaitingPage, ahead: Option<u64>, seconds: u64) -> String {
        let wait = Duration::from_secs(seconds);
        let notice = Notice { ahead, wait, again: wait.min(Duration::from_secs(30)) };
        String::from_utf8(page.write(&notice).to_vec()).unwrap()
    }

    #[test]
    fn it_tells_place_and_time_and_asks_again_without_a_script() {
        let page = text(&WaitingPage::default(), Some(12), 75);
        assert!(page.contains("<strong>12</strong> visitors are before you: about 75 seconds."), "{page}");
        assert!(page.contains("<meta http-equiv=\"refresh\" content=\"30\">") && !page.contains("<script"), "{page}");
        assert!(text(&WaitingPage::default(), Some(0), 0).contains("content=\"1\""));
        assert!(text(&WaitingPage::default(), None, 600).contains("about 10 minutes"));
    }

    #[test]
    fn the_site_gives_it_a_name_a_text_and_colours() {
        let page = WaitingPage {
            name: "Tom & Anne's <wiki>".into(),
            text: "Call 112 if it burns.".into(),
            colour: "#a00".into(),
            background: "#ffe".into(),
            ..WaitingPage::default()
        };
        let said = text(&page, Some(1), 5);
        assert!(said.contains("<h1>Tom &amp; Anne's &lt;wiki&gt;</h1>") && said.contains("Call 112"), "{said}");
        assert!(said.contains("background:#ffe;") && said.contains("color:#a00"), "{said}");
        assert!(colour("red;}body{x").is_err() && colour("#12345").is_err() && colour("").is_ok());
    }

    #[test]
    fn browsers_are_told_from_programs() {
        let asks = |fields: &[(&'static str, &'static str)]| {
            let fields: HeaderMap = fields
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            is_for_browser(&Method::GET, &fields)
        };
        assert!(asks(&[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]));
        assert!(asks(&[("accept", "text/html"), ("sec-fetch-mode", "navigate")]));
        assert!(!asks(&[("accept", "text/html"), ("sec-fetch-mode", "cors")]), "a script's request");
        for accept in ["*/*", "application/json", "image/avif,image/webp,*/*", "application/atom+xml, text/xml"] {
            assert!(!asks(&[("accept", accept)]), "{accept}");
        }
        assert!(!asks(&[]), "git says nothing");
        let fields = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html"))]);
        assert!(!is_for_browser(&Method::POST, &fields), "a form must not be sent anew as a page");
    }
}
