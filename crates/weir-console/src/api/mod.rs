//! `/api/v1`: the gates and their administration as JSON.
//!
//! The server puts an [`Actor`], who asks, into the extensions of each request; a request without one is refused. A [`Rank`] beside
//! it is the role of that account or token; requests over the control socket have none. Bodies, answers and times are bounded. An error is an
//! `application/problem+json` (RFC 9457) with a `hint`. `/openapi.json` describes all operations.

pub mod accounts;
pub mod bans;
mod call;
pub mod feeds;
pub mod find;
pub mod held;
pub mod incidents;
pub mod lab;
mod openapi;
mod operation;
mod problem;
pub mod quarantine;
pub mod queue;
pub mod rules;
pub mod samples;
pub mod senders;
pub mod sessions;
mod table;
pub mod tokens;
pub mod trace;
pub mod users;
pub mod web;
pub mod whole;

pub use operation::{Answer, Operation, administer, change, look, operate};
pub use problem::Problem;

use crate::gates::Gates;
use crate::noted_change::noted;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use table::{Row, Table};
use weir_foundation::api_tokens::Scope;
use weir_foundation::audit::AuditTrail;
use weir_foundation::console_accounts::Role;
use weir_foundation::{Actor, OperationError};

/// The prefix of all addresses of the API.
pub const PREFIX: &str = "/api/v1";

const BODY_BYTES_MAX: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);
/// A backup may take this long, because it copies everything.
const PATIENCE_FOR_BACKUP: Duration = Duration::from_secs(6 * 3600);

/// The role of the account or token that asks. Requests over the control socket have none, and may do everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank(pub Role);

/// Every operation, whether its gate runs or not.
static ROWS: LazyLock<Vec<Row>> =
    LazyLock::new(|| [common().rows, web::operations().rows, of_lab().rows].into_iter().flatten().collect());

/// The operations that need neither the web gate nor the lab.
fn common() -> Table<Gates> {
    let nouns = [
        openapi::operations,
        whole::operations,
        users::operations,
        held::operations,
        quarantine::operations,
        feeds::operations,
        rules::operations,
        accounts::operations,
        tokens::operations,
        trace::operations,
        find::operations,
        queue::operations,
        bans::operations,
        senders::operations,
        incidents::operations,
        sessions::operations,
    ];
    nouns.into_iter().fold(Table::new(), |table, add| add(table))
}

fn of_lab() -> Table<lab::LabGates> {
    samples::operations(lab::operations(Table::new()))
}

/// The whole API: for the mail gate and the administration, and for the web gate and the lab if they run.
pub fn router(gates: &Gates) -> Router {
    let mut api = common().router.with_state(gates.clone());
    if let Some(gate) = &gates.web {
        let web = web::WebGates { gate: Arc::clone(gate), audit: gates.administration.audit.clone() };
        api = api.merge(web::operations().router.with_state(web));
    }
    if let Some(node) = &gates.lab {
        let lab = lab::LabGates { node: node.clone(), gates: gates.clone() };
        api = api.merge(of_lab().router.with_state(lab));
    }
    Router::new()
        .nest(PREFIX, api)
        .fallback(nowhere)
        .method_not_allowed_fallback(async || Problem::method())
        .layer(from_fn_with_state(gates.administration.audit.clone(), note_changes))
        .layer(from_fn(patience))
        .layer(from_fn(known))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The address does not exist: there is no such operation, or its gate does not run.
async fn nowhere(request: Request) -> Problem {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let asked = |rows: &[Row]| rows.iter().any(|row| row.is_asked(method, path));
    match () {
        () if asked(&web::operations().rows) => Problem::gate_is_off("web gate", "[web]"),
        () if asked(&of_lab().rows) => Problem::gate_is_off("lab", "[lab]"),
        () => Problem::not_found(),
    }
}

/// The scope that a request to a path behind [`PREFIX`] needs; None if there is no such operation.
pub(crate) fn scope_of(method: &str, path: &str) -> Option<Scope> {
    ROWS.iter().find(|row| row.is_asked(method, path)).map(|row| row.scope)
}

/// Every operation with its method and path, and the scope that the document names for it.
#[cfg(test)]
pub(crate) fn scopes() -> impl Iterator<Item = (&'static str, String, Scope)> {
    ROWS.iter().map(|row| (row.verb.word(), format!("{PREFIX}{}", row.path), row.scope))
}

/// Limits the time of a request. A query is ended then; a change continues, because half a change would be worse.
async fn patience(request: Request, next: Next) -> Response {
    let patience = if request.uri().path().ends_with("/backup") { PATIENCE_FOR_BACKUP } else { PATIENCE };
    if request.method().is_safe() {
        let answer = tokio::time::timeout(patience, next.run(request)).await;
        return answer.unwrap_or_else(|_| Problem::too_slow().into_response());
    }
    match tokio::time::timeout(patience, tokio::spawn(next.run(request))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Problem::from(OperationError::Failed(panic.to_string())).into_response(),
        Err(_) => Problem::goes_on().into_response(),
    }
}

async fn note_changes(State(trail): State<AuditTrail>, request: Request, next: Next) -> Response {
    match request.extensions().get::<Actor>().cloned().filter(|_| !request.method().is_safe()) {
        Some(actor) => {
            noted(&trail, &actor, request, next).await.unwrap_or_else(|error| Problem::from(error).into_response())
        }
        None => next.run(request).await,
    }
}

/// Refuses requests without an actor.
async fn known(request: Request, next: Next) -> Response {
    match request.extensions().get::<Actor>() {
        Some(_) => next.run(request).await,
        None => Problem::nobody().into_response(),
    }
}
