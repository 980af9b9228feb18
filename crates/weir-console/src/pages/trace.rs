//! The page with the story of one message or sample, as a timeline.

use super::{Asking, PageResult, Trouble};
use crate::frame::{Here, Sheet};
use crate::html;
use crate::html::{Html, Piece};
use crate::site::Site;
use crate::trace::{NoTrace, Trace};
use crate::words::time_ns;
use axum::Extension;
use axum::extract::{Path, State};
use weir_mail::operations::TraceLine;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, Path(id): Path<String>) -> PageResult {
    let trace = Trace::of(&site.mail.traces, site.lab.as_ref(), &id).await.map_err(|error| match error {
        NoTrace::Mail(error) => Trouble::from(error),
        NoTrace::Lab(error) => Trouble::from(error),
    })?;
    let line = |line: &TraceLine| {
        let sample = line
            .sample
            .map_or_else(Html::none, |sample| html!(" <a href=\"/lab/samples/{}\">sample {}</a>", sample, sample));
        html!(
            "<li>{} <b>{}</b> {}{} <span class=\"faint\">{}</span></li>",
            time_ns(line.at_ns),
            line.stage,
            line.text,
            sample,
            line.message
        )
    };
    let sentence = |text: &String| html!("<p>{}</p>", text);
    let parts = [
        html!("<h1>Way</h1><p class=\"faint\">{}</p>", trace.id),
        trace.mail.now.iter().map(sentence).collect(),
        html!("<section><ol class=\"timeline\">{}</ol></section>", trace.mail.lines.iter().map(line).collect::<Html>()),
        trace.notes.iter().map(sentence).collect(),
    ];
    Ok(Sheet::live("Way", Here::Nowhere, &parts).page(&site, &visit).await)
}

/// A link to everything that happened to a message.
pub(super) fn link(message: &str) -> Html {
    html!(" · <a href=\"/trace/{}\">everything that happened to it</a>", Piece(message))
}
