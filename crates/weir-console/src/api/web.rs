//! The web gate: its state, the sessions that wait, and metrics.

use super::input::Asked;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use std::sync::Arc;
use weir_web::admission::SessionView;
use weir_web::proxy::Gate;
use weir_web::view::Status;

/// The part of the API that is about the web gate.
pub(super) fn routes(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/web", get(status))
        .route("/web/sessions", get(sessions))
        .route("/web/metrics", get(metrics))
        .with_state(gate)
}

async fn status(State(gate): State<Arc<Gate>>) -> Json<Status> {
    Json(gate.status())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Most {
    #[serde(default = "hundred")]
    most: usize,
}

fn hundred() -> usize {
    100
}

/// More would be no list for people.
const SESSIONS_MAX: usize = 10_000;

async fn sessions(State(gate): State<Arc<Gate>>, Asked(asked): Asked<Most>) -> Json<Vec<SessionView>> {
    Json(gate.sessions(asked.most.min(SESSIONS_MAX)))
}

async fn metrics(State(gate): State<Arc<Gate>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], gate.status().metrics()).into_response()
}
