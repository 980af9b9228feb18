//! The search in the guide.

use super::{Page, is_part, place};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// How many parts are shown.
const SHOWN: usize = 30;
/// How many characters of a part are shown around the first word.
const AROUND: usize = 160;

/// A part of a page that contains all words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: &'static str,
    pub(crate) title: &'static str,
    /// The heading of the part, and its name in links.
    pub(crate) heading: String,
    pub(crate) place: String,
    /// Some words of it, around the first one that was searched.
    pub(crate) words: String,
}

/// A part of a page: the text below one heading.
#[derive(Debug, Default)]
struct PageSection {
    heading: String,
    text: String,
}

/// The parts that contain all of these words; those with one of them in their heading come first.
pub(crate) fn search(wanted: &str) -> Vec<Found> {
    let wanted: Vec<String> = wanted.split_whitespace().map(str::to_lowercase).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(bool, Found)> = Page::all().flat_map(|page| in_page(page, &wanted)).collect();
    found.sort_by_key(|(in_heading, _)| !in_heading);
    found.into_iter().map(|(_, found)| found).take(SHOWN).collect()
}

fn in_page(page: Page, wanted: &[String]) -> Vec<(bool, Found)> {
    let fits = |part: PageSection| {
        let (heading, text) = (part.heading.to_lowercase(), part.text.to_lowercase());
        let stands = |word: &String| heading.contains(word.as_str()) || text.contains(word.as_str());
        wanted.iter().all(stands).then(|| {
            let in_heading = wanted.iter().any(|word| heading.contains(word.as_str()));
            (in_heading, found(page, &part, wanted))
        })
    };
    parts(page.text).into_iter().filter_map(fits).collect()
}

fn found(page: Page, part: &PageSection, wanted: &[String]) -> Found {
    Found {
        path: page.path,
        title: page.title(),
        heading: part.heading.clone(),
        place: place(&part.heading),
        words: around(&part.text, wanted),
    }
}

/// Some text around the first word that was searched.
fn around(text: &str, wanted: &[String]) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let hit = |word: &&str| wanted.iter().any(|wanted| word.to_lowercase().contains(wanted.as_str()));
    let first = words.iter().position(hit).unwrap_or_default().saturating_sub(8);
    let mut piece = String::new();
    for word in words.iter().skip(first) {
        if piece.chars().count() + 1 + word.chars().count() > AROUND {
            return piece + "…";
        }
        if !piece.is_empty() {
            piece.push(' ');
        }
        piece.push_str(word);
    }
    piece
}

fn parts(text: &str) -> Vec<PageSection> {
    let mut parts = vec![PageSection::default()];
    let mut in_heading = false;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { level, .. }) if is_part(level) => {
                parts.push(PageSection::default());
                in_heading = true;
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(words) | Event::Code(words) | Event::Html(words) | Event::InlineHtml(words) => {
                let Some(part) = parts.last_mut() else { continue };
                let into = if in_heading { &mut part.heading } else { &mut part.text };
                into.push_str(&words);
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) if !in_heading => {
                if let Some(part) = parts.last_mut() {
                    part.text.push(' ');
                }
            }
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_where_it_is_described() {
        let found = search("forward_for OR nothing of this");
        assert!(found.is_empty());
        let found = search("stranger_weight");
        assert!(found.iter().any(|found| found.path == "config.md"), "{found:?}");
        let both = search("Retry-After waiting");
        assert!(!both.is_empty() && both.len() <= SHOWN);
        assert!(both.iter().all(|found| Page::at(found.path).is_some()));
        assert!(search("  ").is_empty());
    }

    #[test]
    fn parts_with_the_word_in_their_heading_come_first() {
        let found = search("backup");
        let in_heading: Vec<bool> = found.iter().map(|found| found.heading.to_lowercase().contains("backup")).collect();
        assert!(in_heading.is_sorted_by(|a, b| a >= b), "{found:?}");
        assert!(found.iter().all(|found| found.words.chars().count() <= AROUND + 1));
    }
}
