//! The guide: its contents, its pages, and a search in it.

use super::{Asking, PageResult, nowhere, query};
use crate::frame::{Here, Sheet, empty};
use crate::guide::{self, Found, Page};
use crate::html;
use crate::html::Html;
use crate::site::Site;
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse;

/// The contents, or what was found.
pub(super) async fn contents(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let wanted: String = asked.value("q").chars().take(255).collect();
    let below = if wanted.trim().is_empty() {
        let contents = Page::contents().map(Page::html);
        html!("<article class=\"guide contents\">{}</article>", contents)
    } else {
        found(&guide::search(&wanted))
    };
    let body = html!("<h1>Guide</h1>{}{}", search_box(&wanted), below);
    Ok(Sheet::new("Guide", Here::Guide, body).page(&site, &visit).await)
}

/// A page, or a picture in one.
pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, Path(path): Path<String>) -> PageResult {
    if let Some(picture) = guide::picture(&path) {
        return Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response());
    }
    let Some(page) = Page::at(&path) else { return Err(nowhere().await) };
    let body = html!(
        "<p><a href=\"/docs\">All pages of the guide</a></p>{}<article class=\"guide\">{}</article>",
        search_box(""),
        page.html()
    );
    Ok(Sheet::new(page.title(), Here::Guide, body).page(&site, &visit).await)
}

fn search_box(wanted: &str) -> Html {
    html!(
        "<form class=\"filter\" action=\"/docs\" role=\"search\"><label>Words in the guide <input type=\"search\" name=\"q\" \
         value=\"{}\"></label><button>Search</button></form>",
        wanted
    )
}

fn found(found: &[Found]) -> Html {
    if found.is_empty() {
        return empty("No part of the guide contains all of these words.", &html!("Try fewer of them."));
    }
    let line = |found: &Found| {
        html!(
            "<li><a href=\"/docs/{}#{}\">{}</a> <span class=\"faint\">{}</span><p>{}</p></li>",
            found.path,
            found.place.as_str(),
            if found.heading.is_empty() { found.title } else { found.heading.as_str() },
            found.title,
            found.words.as_str()
        )
    };
    html!("<ul class=\"found\">{}</ul>", found.iter().map(line).collect::<Html>())
}
