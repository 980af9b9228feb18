//! The web gate: its state, the sessions that wait, and metrics.

use super::call::Call;
use super::operation::{Answer, Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_web::admission::SessionView;
use weir_web::proxy::Gate;
use weir_web::view::Status;

/// How the web gate is doing.
pub const STATUS: Operation<(), Status> = look("/web", "How the web gate is doing");
/// Sessions that ask.
pub const SESSIONS: Operation<Most, Vec<SessionView>> =
    look("/web/sessions", "Sessions that ask, those that ask for most first");
/// The web gate as Prometheus reads it.
pub const METRICS: Operation<(), Metrics> = look("/web/metrics", "The web gate as Prometheus reads it");

/// A server gets no new requests, or gets some again.
pub const DRAIN: Operation<Drain, Status> =
    operate("/web/drain", "Gives a server no new requests, or gives it some again; what is under way ends");

pub(super) fn operations() -> Table<Arc<Gate>> {
    Table::new().with(STATUS, status).with(SESSIONS, sessions).with(METRICS, metrics).with(DRAIN, drain)
}

/// How many are listed.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Most {
    /// At most so many.
    #[serde(default = "hundred")]
    pub most: usize,
}

fn hundred() -> usize {
    100
}

/// Which server, and what becomes of it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebDrain")]
pub struct Drain {
    /// The server as it is written in `backends`.
    pub server: String,
    /// Whether it is drained; otherwise it gets requests again.
    #[serde(default = "yes")]
    pub draining: bool,
}

fn yes() -> bool {
    true
}

/// A longer list would be of no use to a person.
const SESSIONS_MAX: usize = 10_000;

/// Figures in the text format of Prometheus.
pub struct Metrics(String);

impl Answer for Metrics {
    fn described(_: &mut SchemaGenerator) -> (&'static str, Schema) {
        ("text/plain", schemars::json_schema!({ "type": "string" }))
    }

    fn response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], self.0).into_response()
    }

    fn read(content: &[u8]) -> Result<Metrics, serde_json::Error> {
        Ok(Metrics(String::from_utf8_lossy(content).into_owned()))
    }
}

async fn status(call: Call<Arc<Gate>>, (): ()) -> Result<Status, Problem> {
    Ok(call.state.status())
}

async fn sessions(call: Call<Arc<Gate>>, asked: Most) -> Result<Vec<SessionView>, Problem> {
    Ok(call.state.sessions(asked.most.min(SESSIONS_MAX)))
}

async fn drain(call: Call<Arc<Gate>>, asked: Drain) -> Result<Status, Problem> {
    tracing::info!(server = %asked.server, draining = asked.draining, by = call.actor.as_str(), "a server is to be drained, or no longer");
    if call.state.drain(&asked.server, asked.draining) == 0 {
        let detail = format!("no backend has the server {}", asked.server);
        return Err(Problem::invalid(detail, "GET /web lists the servers as they are written"));
    }
    Ok(call.state.status())
}

async fn metrics(call: Call<Arc<Gate>>, (): ()) -> Result<Metrics, Problem> {
    Ok(Metrics(call.state.status().metrics()))
}
