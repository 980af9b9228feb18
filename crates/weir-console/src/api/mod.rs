//! `/api/v1`: the gates and their administration as JSON.
//!
//! Who asks is the [`Actor`] that the server put into the request's extensions; a request without one is refused. A [`Rank`] beside
//! it says that they are not in charge of everything. Bodies, answers and times are bounded. What goes wrong is an
//! `application/problem+json` (RFC 9457) with a `hint`. `/openapi.json` describes all of it.

mod accounts;
mod feeds;
mod held;
mod input;
mod lab;
pub(crate) mod openapi;
mod problem;
mod quarantine;
mod queue;
mod rules;
mod state;
mod tokens;
mod trace;
mod users;
mod web;
mod whole;

pub use problem::Problem;

use crate::site::Gates;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use std::time::Duration;
use weir_foundation::Actor;
use weir_foundation::console_accounts::Role;

/// Where the API begins.
pub const PREFIX: &str = "/api/v1";

const BODY_BYTES_MAX: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);
/// A backup copies as much as there is.
const PATIENCE_FOR_BACKUP: Duration = Duration::from_secs(6 * 3600);

/// What somebody may who is not in charge of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank(pub Role);

/// All of the API: over the mail gate and the administration, and over the web gate and the lab where they run.
pub fn router(gates: &Gates) -> Router {
    let mut api = routes(gates.clone());
    if let Some(gate) = &gates.web {
        api = api.merge(web::routes(Arc::clone(gate)));
    }
    if let Some(node) = &gates.lab {
        api = api.merge(lab::routes(node.clone(), gates.clone()));
    }
    Router::new()
        .nest(PREFIX, api)
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || Problem::method())
        .layer(from_fn(patience))
        .layer(from_fn(known))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

fn routes(gates: Gates) -> Router {
    Router::new()
        .route("/openapi.json", get(openapi::document))
        .route("/alive", get(whole::alive))
        .route("/status", get(whole::status))
        .route("/trace/{id}", get(trace::show))
        .route("/audit", get(whole::audit))
        .route("/backup", post(whole::backup))
        .route("/users", get(users::list).post(users::add))
        .route("/users/{name}", get(users::show).patch(users::set))
        .route("/users/{name}/password", post(users::password))
        .route("/users/{name}/lock", post(users::lock))
        .route("/users/{name}/unlock", post(users::unlock))
        .route("/held", get(held::list))
        .route("/held/release", post(held::release))
        .route("/held/delete", post(held::delete))
        .route("/held/analyse", post(held::analyse))
        .route("/held/learned", get(held::learned))
        .route("/held/messages/{message}", get(held::show))
        .route("/quarantine", get(quarantine::list))
        .route("/quarantine/release", post(quarantine::release))
        .route("/quarantine/delete", post(quarantine::delete))
        .route("/quarantine/messages/{message}", get(quarantine::show))
        .route("/feeds", get(feeds::status))
        .route("/feeds/tune", post(feeds::tune))
        .route("/scan/rules", get(rules::list).post(rules::add))
        .route("/scan/rules/{rule}/remove", post(rules::remove))
        .route("/console/accounts", get(accounts::list).post(accounts::add))
        .route("/console/accounts/{name}/password", post(accounts::password))
        .route("/console/accounts/{name}/remove", post(accounts::remove))
        .route("/console/accounts/{name}/codes-off", post(accounts::codes_off))
        .route("/console/tokens", get(tokens::list).post(tokens::add))
        .route("/console/tokens/{name}/revoke", post(tokens::revoke))
        .route("/dkim", get(whole::keys).post(whole::add_key))
        .route("/queue", get(queue::list))
        .route("/queue/retry", post(queue::retry))
        .route("/queue/delete", post(queue::delete))
        .with_state(gates)
}

/// Nobody waits for ever.
async fn patience(request: Request, next: Next) -> Response {
    let patience = if request.uri().path().ends_with("/backup") { PATIENCE_FOR_BACKUP } else { PATIENCE };
    match tokio::time::timeout(patience, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::too_slow().into_response(),
    }
}

/// Nobody acts without a name.
async fn known(request: Request, next: Next) -> Response {
    match request.extensions().get::<Actor>() {
        Some(_) => next.run(request).await,
        None => Problem::nobody().into_response(),
    }
}
