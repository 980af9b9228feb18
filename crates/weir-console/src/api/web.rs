//! The web gate: its state, the sessions that wait, and metrics.

use super::PREFIX;
use super::input::Asked;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use std::sync::Arc;
use weir_web::admission::SessionView;
use weir_web::exchange::{self, Exchange};
use weir_web::proxy::Gate;
use weir_web::view::Status;

/// The part of the API that is about the web gate; to be merged with the rest where one runs.
pub fn web_router(gate: Arc<Gate>, exchange: Option<Arc<Exchange>>) -> Router {
    let api = Router::new()
        .route("/web", get(status))
        .route("/web/exchange", get(exchange_status))
        .route("/web/sessions", get(sessions))
        .route("/web/metrics", get(metrics))
        .with_state(Web { gate, exchange });
    Router::new().nest(PREFIX, api)
}

#[derive(Clone)]
struct Web {
    gate: Arc<Gate>,
    exchange: Option<Arc<Exchange>>,
}

async fn status(State(web): State<Web>) -> Json<Status> {
    Json(web.gate.status())
}

async fn exchange_status(State(web): State<Web>) -> Json<exchange::Status> {
    Json(web.exchange.map_or_else(Default::default, |exchange| exchange.status()))
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

async fn sessions(State(web): State<Web>, Asked(asked): Asked<Most>) -> Json<Vec<SessionView>> {
    Json(web.gate.sessions(asked.most.min(SESSIONS_MAX)))
}

async fn metrics(State(web): State<Web>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    (
        [(header::CONTENT_TYPE, kind)],
        web.gate.status().metrics() + &web.exchange.map_or(String::new(), |exchange| exchange.status().metrics()),
    )
        .into_response()
}
