//! Outgoing mail that waits for delivery.

use super::input::{Asked, Body, By};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use weir_mail::desk::{Desk, QueueDone, QueueList, QueueSelection};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filter {
    message: String,
    user: String,
    domain: String,
}

pub(super) async fn list(State(desk): State<Desk>, Asked(filter): Asked<Filter>) -> Result<Json<QueueList>, Problem> {
    let messages = if filter.message.is_empty() { Vec::new() } else { vec![filter.message] };
    let selection = QueueSelection { messages, user: filter.user, domain: filter.domain, all: true };
    Ok(Json(desk.queue_list(&selection).await?))
}

pub(super) async fn retry(
    State(desk): State<Desk>,
    By(actor): By,
    Body(selection): Body<QueueSelection>,
) -> Result<Json<QueueDone>, Problem> {
    Ok(Json(desk.queue_retry(&selection, &actor).await?))
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    By(actor): By,
    Body(selection): Body<QueueSelection>,
) -> Result<Json<QueueDone>, Problem> {
    Ok(Json(desk.queue_delete(&selection, &actor).await?))
}
