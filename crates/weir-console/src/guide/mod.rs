//! The guide from docs/, built into the program. So it can be read and searched without a network, and always matches the version of the
//! program.

mod search;

pub(crate) use search::{Found, search};

use crate::html::Html;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};

/// Every page and picture: its place under docs/, and what it says.
static FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/guide.rs"));

/// The page that lists the others.
const CONTENTS: &str = "SUMMARY.md";
/// Where the guide is served.
const ADDRESS: &str = "/docs/";

/// A page of the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    path: &'static str,
    text: &'static str,
}

impl Page {
    /// The page at a place such as `algorithms/fair.md`.
    pub(crate) fn at(path: &str) -> Option<Page> {
        Page::all().find(|page| page.path == path)
    }

    /// The list of all pages, as one begins to read.
    pub(crate) fn contents() -> Option<Page> {
        Page::at(CONTENTS)
    }

    fn all() -> impl Iterator<Item = Page> {
        FILES.iter().filter(|(path, _)| path.ends_with(".md")).map(|&(path, text)| Page { path, text })
    }

    /// The words of its first heading.
    pub(crate) fn title(self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(self.path)
    }

    /// As it is shown.
    pub(crate) fn html(self) -> Html {
        let mut events: Vec<Event<'static>> = Parser::new_ext(self.text, Options::ENABLE_TABLES).collect();
        name_headings(&mut events);
        let mut out = String::new();
        push_html(&mut out, events.into_iter().filter_map(|event| self.shown(event)));
        // What is too wide on a telephone is moved by the keyboard, too. Markup in a page is shown as it is written, so these are ours.
        let out = out.replace("<pre>", "<pre tabindex=\"0\">").replace("<table>", "<table tabindex=\"0\">");
        Html::of_guide(out)
    }

    /// Links lead to other pages of the guide, or to other sites; those to files of the source lead nowhere here.
    fn shown(self, event: Event<'static>) -> Option<Event<'static>> {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = self.address(&dest_url)?;
                Some(Event::Start(Tag::Link { link_type, dest_url: dest_url.into(), title, id }))
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = self.address(&dest_url)?;
                Some(Event::Start(Tag::Image { link_type, dest_url: dest_url.into(), title, id }))
            }
            Event::Html(words) | Event::InlineHtml(words) => Some(Event::Text(words)),
            event => Some(event),
        }
    }

    /// Where a link of this page leads.
    fn address(self, link: &str) -> Option<String> {
        if link.starts_with("https://") || link.starts_with('#') {
            return Some(link.to_owned());
        }
        let (file, place) = link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
        let path = joined(self.path, file)?;
        FILES.iter().find(|(known, _)| *known == path)?;
        Some(place.map_or(format!("{ADDRESS}{path}"), |place| format!("{ADDRESS}{path}#{place}")))
    }
}

/// A picture of the guide.
pub(crate) fn picture(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == path && known.ends_with(".svg")).map(|(_, text)| *text)
}

/// The target of a link in a file, relative to docs/. The README is one folder above the others, and is served beside them.
fn joined(from: &str, link: &str) -> Option<String> {
    let root = if from == "README.md" { "" } else { "docs/" };
    let mut parts: Vec<&str> = root.split_terminator('/').chain(from.split('/')).collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    if path == "README.md" { Some(path) } else { path.strip_prefix("docs/").map(str::to_owned) }
}

/// Gives every heading the name that links use: its words in lower case with hyphens between them.
fn name_headings(events: &mut [Event<'static>]) {
    let words: Vec<String> = (0..events.len()).map(|at| heading_words(&events[at..])).collect();
    for (event, words) in events.iter_mut().zip(words) {
        if let Event::Start(Tag::Heading { id, .. }) = event {
            *id = Some(CowStr::from(place(&words)));
        }
    }
}

/// The words of the heading that starts here.
fn heading_words(events: &[Event<'_>]) -> String {
    if !matches!(events.first(), Some(Event::Start(Tag::Heading { .. }))) {
        return String::new();
    }
    let inside = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let words = inside.filter_map(|event| match event {
        Event::Text(words) | Event::Code(words) => Some(words.as_ref()),
        _ => None,
    });
    words.collect()
}

/// The name of a heading in links.
fn place(words: &str) -> String {
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// Whether a heading starts a part that gets a line of its own in search results.
fn is_part(level: HeadingLevel) -> bool {
    level <= HeadingLevel::H3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_shown_and_every_link_in_it_leads_to_one() {
        assert!(Page::all().count() > 30);
        for page in Page::all() {
            let html = page.html().into_string();
            for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let (file, _) = link.split_once('#').unwrap_or((link, ""));
                let leads = link.starts_with("https://") || file.is_empty() || {
                    let path = file.strip_prefix(ADDRESS).unwrap_or_default();
                    Page::at(path).is_some() || picture(path).is_some()
                };
                assert!(leads, "{}: {link}", page.path);
            }
        }
    }

    #[test]
    fn links_are_found_from_every_folder() {
        assert_eq!(joined("web.md", "algorithms/fair.md").as_deref(), Some("algorithms/fair.md"));
        assert_eq!(joined("algorithms/fair.md", "../web.md").as_deref(), Some("web.md"));
        assert_eq!(joined("SUMMARY.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(joined("README.md", "docs/web.md").as_deref(), Some("web.md"));
        assert_eq!(joined("web.md", "../crates/weir-web/src/lib.rs"), None);
        assert_eq!(joined("web.md", "../../../etc/passwd"), None);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let page = Page { path: "x.md", text: "# One `two`, three!\n\n[there](#one-two-three) <b>bold</b>\n" };
        let html = page.html().into_string();
        assert!(html.contains("<h1 id=\"one-two-three\">") && html.contains("href=\"#one-two-three\""), "{html}");
        assert!(html.contains("&lt;b&gt;"), "what is written as markup is shown, not obeyed: {html}");
    }
}
