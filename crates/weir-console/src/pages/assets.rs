//! The three files that pages use. They are in the binary, so there is nothing to install and nothing to build.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Browsers ask again after this.
const KEPT: &str = "private, max-age=300";

pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../assets/style.css"))
}

pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../assets/console.js"))
}

pub(super) async fn icon() -> Response {
    file("image/svg+xml", include_str!("../assets/icon.svg"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, KEPT)], text).into_response()
}
