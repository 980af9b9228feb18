//! Quarantined mail. Whoever reaches this socket is an administrator.

use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use weir_mail::desk::{
    Actor, Authority, Desk, QuarantineDecision, QuarantineDone, QuarantineList, QuarantinePage, QuarantineSelection,
};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filter {
    message: String,
    queue: String,
    recipient: String,
    sender: String,
    older_than_s: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    selection: QuarantineSelection,
}

pub(super) async fn list(
    State(desk): State<Desk>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<QuarantineList>, Problem> {
    let Filter { message, queue, recipient, sender, older_than_s } = filter;
    let messages = if message.is_empty() { Vec::new() } else { vec![message] };
    let selection = QuarantineSelection { messages, queue, recipient, sender, older_than_s, all: true };
    Ok(Json(desk.quarantine_list(&selection).await?))
}

pub(super) async fn show(State(desk): State<Desk>, Name(message): Name) -> Result<Json<QuarantinePage>, Problem> {
    Ok(Json(desk.quarantine_show(&message).await?))
}

pub(super) async fn release(
    State(desk): State<Desk>,
    By(actor): By,
    Body(which): Body<Which>,
) -> Result<Json<QuarantineDone>, Problem> {
    decide(&desk, &which, QuarantineDecision::Release, &actor).await
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    By(actor): By,
    Body(which): Body<Which>,
) -> Result<Json<QuarantineDone>, Problem> {
    decide(&desk, &which, QuarantineDecision::Delete, &actor).await
}

async fn decide(
    desk: &Desk,
    which: &Which,
    decision: QuarantineDecision,
    actor: &Actor,
) -> Result<Json<QuarantineDone>, Problem> {
    Ok(Json(desk.quarantine_decide(&which.selection, decision, &Authority::Administrator, actor).await?))
}
