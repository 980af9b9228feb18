//! The frame of every page: the menu, who is logged in, and the result of the last action. Also parts that several pages share.

use crate::html;
use crate::html::Html;
use crate::past::Over;
use crate::pulse::Pulse;
use crate::session::{Said, TOKEN_FIELD, Visit};
use crate::site::Site;
use crate::words::{count, grouped};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::hash::{DefaultHasher, Hash, Hasher};
use weir_chart::Chart;
use weir_foundation::console_accounts::Role;

/// Which page this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    Overview,
    Incidents,
    Throttle,
    Quarantine,
    Queue,
    Feeds,
    Web,
    Lab,
    Audit,
    Settings,
    Guide,
    Mine,
    Nowhere,
}

/// A page without its frame.
pub(crate) struct Sheet {
    title: String,
    here: Here,
    content: Html,
    /// The parts of the content that are kept current: the ids of elements, and what is in them.
    parts: Vec<LivePart>,
}

/// A part of a page that is kept current: the id of its element, and what is in it.
pub(crate) type LivePart = (&'static str, Html);

/// The parts of a page, attached to the response: the stream that keeps the page current draws it again and compares.
#[derive(Debug, Clone)]
pub(crate) struct LiveParts(pub(crate) Vec<LivePart>);

/// The ids of parts in the order of a page. Each part has its place even if it is empty, so that it can come later.
const PART_IDS: [&str; 12] = [
    "part-1", "part-2", "part-3", "part-4", "part-5", "part-6", "part-7", "part-8", "part-9", "part-10", "part-11",
    "part-12",
];

/// The menu: page, address without its first slash, name, the id of the element that shows how much waits there, and the role that sees it.
const WAYS: &[(Here, &str, &str, &str, Role)] = &[
    (Here::Overview, "", "Overview", "", Role::Operator),
    (Here::Incidents, "incidents", "Incidents", "badge-incidents", Role::Operator),
    (Here::Throttle, "throttle", "Throttle", "badge-throttle", Role::Operator),
    (Here::Quarantine, "quarantine", "Quarantine", "badge-quarantine", Role::Operator),
    (Here::Queue, "queue", "Queue", "", Role::Operator),
    (Here::Feeds, "feeds", "Feeds", "badge-feeds", Role::Operator),
    (Here::Web, "web", "Web", "badge-web", Role::Operator),
    (Here::Lab, "lab", "Lab", "badge-lab", Role::Operator),
    (Here::Audit, "audit", "Audit", "", Role::Operator),
    (Here::Settings, "settings", "Settings", "", Role::Admin),
    (Here::Guide, "docs", "Guide", "", Role::Operator),
];

impl Sheet {
    pub(crate) fn new(title: impl Into<String>, here: Here, content: Html) -> Sheet {
        Sheet { title: title.into(), here, content, parts: Vec::new() }
    }

    /// A page that is kept current, part by part, with at most as many parts as there are [`PART_IDS`]. The number of parts must be the same every time.
    pub(crate) fn live(title: impl Into<String>, here: Here, parts: &[Html]) -> Sheet {
        debug_assert!(parts.len() <= PART_IDS.len(), "a part without an id would not be shown");
        let parts: Vec<LivePart> = PART_IDS.into_iter().zip(parts.iter().map(marked)).collect();
        let place = |(id, html): &LivePart| html!("<div id=\"{}\" class=\"live\">{}</div>", *id, html);
        let content = parts.iter().map(place).collect();
        Sheet::new(title, here, content).with_parts(parts)
    }

    /// The same, with these elements kept current.
    pub(crate) fn with_parts(self, parts: Vec<LivePart>) -> Sheet {
        Sheet { parts, ..self }
    }

    /// The page in its frame, with how much waits on each page.
    pub(crate) async fn page(self, site: &Site, visit: &Visit) -> Response {
        let badges = if visit.may(Role::Operator) { badges(site.pulse().await.as_ref()) } else { Vec::new() };
        self.framed(site, Some(visit), &badges)
    }

    /// The page in its frame, without reading the state of the gates: for errors, where reading it may be what fails, and for pages without a login.
    pub(crate) fn bare(self, site: &Site, visit: Option<&Visit>) -> Response {
        self.framed(site, visit, &[])
    }

    fn framed(self, site: &Site, visit: Option<&Visit>, badges: &[(&'static str, Html)]) -> Response {
        let said = visit.and_then(|visit| site.sessions.said(&visit.id)).map(|said| saying(&said));
        let top = visit.map(|visit| top(self.here, visit, badges));
        let live = match visit {
            Some(visit) if !visit.may(Role::Operator) => "",
            None => "",
            Some(_) if self.parts.is_empty() => "badges",
            Some(_) => "page",
        };
        let page = html!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} · Weir</title>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"stylesheet\" href=\"/style.css\"><link rel=\"icon\" href=\"/icon.svg\" type=\"image/svg+xml\">\
             <script src=\"/console.js\" defer></script></head>\
             <body data-live=\"{}\"><a class=\"skip\" href=\"#main\">To the content</a>\
             <div id=\"offline\" role=\"status\" hidden>The connection to Weir is lost. This page goes on by itself when it is back.</div>\
             {}<main id=\"main\">{}{}</main></body></html>\n",
            self.title,
            live,
            top,
            said,
            self.content
        );
        let mut answer = ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response();
        answer.extensions_mut().insert(LiveParts([badges, &self.parts].concat()));
        answer
    }
}

/// A part with a hash of its content, by which the script knows that it already shows the same: so nothing under the
/// pointer is replaced without a visible change.
fn marked(part: &Html) -> Html {
    let mut hasher = DefaultHasher::new();
    part.without_times().hash(&mut hasher);
    html!("<span hidden data-is=\"{}\"></span>{}", format!("{:x}", hasher.finish()), part)
}

fn top(here: Here, visit: &Visit, badges: &[(&'static str, Html)]) -> Html {
    let way = |(page, address, name, badge, role): &(Here, &'static str, &'static str, &'static str, Role)| {
        if !visit.may(*role) {
            return Html::none();
        }
        let current = if *page == here { "page" } else { "false" };
        let shown = badges.iter().find(|(id, _)| id == badge).map(|(_, html)| html.clone());
        let badge = if badge.is_empty() { Html::none() } else { html!("<span id=\"{}\">{}</span>", *badge, shown) };
        html!("<li><a href=\"/{}\" aria-current=\"{}\">{}{}</a></li>", *address, current, *name, badge)
    };
    let ways: Html = WAYS.iter().map(way).collect();
    let mine = match visit.known.role {
        Role::User => html!("<li><a href=\"/me\" aria-current=\"page\">Your mail</a></li>"),
        _ => Html::none(),
    };
    let search = if visit.may(Role::Operator) {
        html!(
            "<form class=\"search\" action=\"/search\" role=\"search\"><input type=\"search\" name=\"q\" \
             placeholder=\"Search\" aria-label=\"Search by id, address or hash\"></form>"
        )
    } else {
        Html::none()
    };
    let name = match visit.known.role {
        Role::User => html!("{}", visit.known.name),
        _ => html!("<a href=\"/account\">{}</a>", visit.known.name),
    };
    html!(
        "<header class=\"top\"><div class=\"bar\"><a class=\"brand\" href=\"/\">Weir</a><nav aria-label=\"Pages\"><ul>{}{}</ul></nav>\
         {}<form class=\"who\" method=\"post\" action=\"/logout\">{}<span>{} <small>{}</small></span><button>Log out</button></form>\
         </div></header>",
        ways,
        mine,
        search,
        token(visit),
        name,
        visit.known.role.as_str()
    )
}

fn saying(said: &Said) -> Html {
    let (class, mark) = if said.done { ("said done", "Done. ") } else { ("said not", "Not done. ") };
    html!("<p class=\"{}\" role=\"status\"><b>{}</b>{}</p>", class, mark, said.words)
}

/// How much waits on each page: the elements beside the names of pages.
pub(crate) fn badges(pulse: &Pulse) -> Vec<(&'static str, Html)> {
    let badge = |number: i64, class: &str, unit: &str| match number {
        0 => Html::none(),
        number => {
            let number = number.max(0) as u64;
            html!("<b class=\"badge {}\">{}<span class=\"unseen\"> {}</span></b>", class, grouped(number), unit)
        }
    };
    let totals = pulse.status.as_ref().map(|status| status.totals).unwrap_or_default();
    let throttle = if totals.stopped > 0 { "red" } else { "amber" };
    vec![
        ("badge-incidents", badge(pulse.incidents.count, "amber", "open")),
        ("badge-throttle", badge(totals.held_recipients, throttle, "held")),
        ("badge-quarantine", badge(pulse.quarantined(""), "plain", "in quarantine")),
        ("badge-feeds", badge(pulse.feeds.as_ref().map_or(0, |feeds| feeds.unscanned() as i64), "amber", "waiting")),
        ("badge-web", badge(pulse.web_waiting() as i64, "amber", "waiting")),
        ("badge-lab", badge(pulse.samples_open(), "plain", "open")),
    ]
}

/// The field that shows that a form is ours.
pub(crate) fn token(visit: &Visit) -> Html {
    html!("<input type=\"hidden\" name=\"{}\" value=\"{}\">", TOKEN_FIELD, visit.token)
}

/// The page to which to return after an action.
pub(crate) fn back(path: &str) -> Html {
    html!("<input type=\"hidden\" name=\"back\" value=\"{}\">", path)
}

/// A table of mails of which some can be chosen and sent to `/action`: the names of its columns, a row for each mail, and what can be done
/// with the chosen ones. `here` is the page to which to return.
pub(crate) fn mails(visit: &Visit, (action, here): (&str, &str), columns: &Html, rows: &Html, choices: &Html) -> Html {
    html!(
        "<form method=\"post\" action=\"/{}\" class=\"list\">{}{}<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>\
         <th><input type=\"checkbox\" class=\"all\" aria-label=\"Choose all\"></th>{}</tr></thead><tbody>{}</tbody></table></div>\
         <div class=\"actions\">{}</div></form>",
        action,
        token(visit),
        back(here),
        columns,
        rows,
        choices
    )
}

/// The first cell of such a row: whether this mail is chosen.
pub(crate) fn choice(message: &str) -> Html {
    html!("<td><input type=\"checkbox\" name=\"message\" value=\"{}\" aria-label=\"Choose this mail\"></td>", message)
}

/// A word with a shape and a colour: held, stopped, served, or nothing special.
pub(crate) fn status(kind: &str, word: &str) -> Html {
    let class = match kind {
        "held" | "waiting" | "pending" | "queued" | "running" | "suspicious" => "amber",
        "stopped" | "locked" | "infected" | "virus" | "forbidden" | "failed" | "down" | "quarantined" | "malicious" => {
            "red"
        }
        "served" | "active" | "open" | "done" | "up" | "leads" | "clean" => "green",
        _ => "plain",
    };
    html!("<span class=\"status {}\">{}</span>", class, word)
}

/// Two or three numbers with their units.
pub(crate) fn numbers(items: &[(&str, String)]) -> Html {
    let item = |(name, value): &(&str, String)| html!("<div><dt>{}</dt><dd>{}</dd></div>", *name, value);
    html!("<dl class=\"numbers\">{}</dl>", items.iter().map(item).collect::<Html>())
}

/// The sizes of a chart with half of the width: on a desktop, and on a telephone.
pub(crate) const NARROW: [(u32, u32); 2] = [(520, 150), (320, 140)];
/// The same for a chart over the whole width.
pub(crate) const WIDE: [(u32, u32); 2] = [(1_040, 220), (320, 160)];

/// A chart that is readable on a desktop and on a telephone.
pub(crate) fn plot(chart: &Chart, [desk, telephone]: [(u32, u32); 2]) -> Html {
    html!(
        "<figure class=\"plot\"><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></figure>",
        Html::chart(chart, desk.0, desk.1),
        Html::chart(chart, telephone.0, telephone.1)
    )
}

/// The times that the charts of a page can look back, as links to the same page.
pub(crate) fn times(page: &'static str, current: Over) -> Html {
    let time = |(over, name, words): (Over, &'static str, &'static str)| {
        let marked = if over == current { "page" } else { "false" };
        html!("<li><a href=\"/{}?over={}\" aria-current=\"{}\">{}</a></li>", page, name, marked, words)
    };
    let times: Html = Over::ALL.into_iter().map(time).collect();
    html!("<nav aria-label=\"Charts of the last\"><ul class=\"tabs times\">{}</ul></nav>", times)
}

/// An empty list, and how to make it show something.
pub(crate) fn empty(words: &str, how: &Html) -> Html {
    html!("<p class=\"empty\">{} {}</p>", words, how)
}

/// Several addresses in one line: the first, and how many more.
pub(crate) fn several(addresses: &[String]) -> String {
    match addresses {
        [] => "nobody".to_owned(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {}", count(rest.len() as u64, "other")),
    }
}
